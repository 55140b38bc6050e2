# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of a whole host: files, what systemd makes of them, and the processes that run."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _limits
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._limits import Limit
from ansible_collections.railyard.gpu_fabric.plugins.modules.service_limits import ServiceLimits

SMALL = {"memlock": Limit(8388608, 8388608), "nofile": Limit(1024, 524288)}
BEST = {"memlock": "unlimited", "nofile": "1048576"}


class Host(Cli):
    """systemd over drop-ins below a directory, and the limits of processes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.root = root
        self.pids = {"ssh": 70, "slurmd": 80, "kubelet": 0}
        self.aliases = {"sshd": "ssh"}
        self.active = {"ssh", "slurmd"}
        self.processes = {pid: dict(SMALL) for pid in (1, 70, 80)}
        self.loaded: dict[str, dict[str, str]] = {}
        self.may_raise = True
        monkeypatch.setattr(_limits, "limits_of", lambda pid: dict(self.processes[pid]))
        monkeypatch.setattr(_limits, "may_raise_limits", lambda: self.may_raise)
        monkeypatch.setattr(_limits, "nofile_ceiling", lambda: 1048576)
        monkeypatch.setattr(
            _limits, "set_limit", lambda pid, kind, limit: self.processes[pid].update({kind: Limit(*limit)})
        )
        self.reload()

    def drop_ins(self, unit: str) -> list[Path]:
        return sorted((self.root / f"etc/systemd/system/{unit}.service.d").glob("*.conf"), key=lambda path: path.name)

    def reload(self) -> None:
        for unit in self.pids:
            told = {"LimitMEMLOCK": "8388608", "LimitNOFILE": "524288"}
            for path in self.drop_ins(unit):
                told.update(line.split("=", 1) for line in path.read_text().splitlines() if line.startswith("Limit"))
            self.loaded[unit] = told

    def run(self, argv: t.Sequence[str], **_: t.Any) -> Result:  # type: ignore[override]
        self.ran.append(" ".join(argv[:2]))
        if argv[1] == "daemon-reload":
            self.reload()
            return Result(tuple(argv), 0, "", "")
        return Result(tuple(argv), 0, "\n".join(self.show(name) for name in argv[argv.index("--") + 1 :]), "")

    def show(self, name: str) -> str:
        unit = self.aliases.get(name[: -len(".service")], name[: -len(".service")])
        if unit not in self.pids:
            return f"Id={name}\nLoadState=not-found\nActiveState=inactive\nMainPID=0\n"
        state = "active" if unit in self.active else "inactive"
        text = f"Id={unit}.service\nLoadState=loaded\nActiveState={state}\nMainPID={self.pids[unit]}\n"
        for label, value in self.loaded[unit].items():
            soft, _, hard = value.partition(":")
            text += f"{label}Soft={soft}\n{label}={hard or soft}\n"
        return text + f"DropInPaths={' '.join(map(str, self.drop_ins(unit)))}\n"

    def file(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def limits(self, *services: str, check_mode: bool = False, **more: t.Any) -> ServiceLimits:
        limits = {"memlock": "unlimited", "nofile": 1048576}
        params = {"limits": limits, "services": list(services or ("sshd", "slurmd", "docker")), "state": "present"}
        state = StateFile("limits_files.json", str(self.root / "state"))
        found = ServiceLimits({**params, **more}, check_mode, self, state, str(self.root))
        found.apply()
        return found

    def tree(self) -> dict[str, str]:
        return {str(p.relative_to(self.root)): p.read_text() for p in sorted(self.root.rglob("*")) if p.is_file()}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_files_processes_and_next_starts_once_and_the_files_go_again(host: Host) -> None:
    host.file("etc/systemd/system/slurmd.service.d/10-site.conf", "[Service]\nLimitMEMLOCK=65536\n")
    host.reload()
    before = host.tree()
    foretold = host.limits(check_mode=True)
    assert host.tree() == before and host.processes[70] == SMALL
    done = host.limits()
    assert done.files.changes.diff() == foretold.files.changes.diff()
    assert done.report() == {"ssh.service": BEST, "slurmd.service": BEST} and done.clamped == done.warnings == []
    assert host.loaded["slurmd"] == {"LimitMEMLOCK": "infinity", "LimitNOFILE": "1048576"}
    assert not len(host.limits().files.changes)
    host.limits(state="absent")
    assert host.tree() == before and not len(host.limits(state="absent").files.changes)


def test_services_that_are_named_no_more_are_as_before(host: Host) -> None:
    host.limits("ssh", "slurmd")
    host.limits("ssh")
    assert host.drop_ins("slurmd") == [] and host.loaded["slurmd"]["LimitMEMLOCK"] == "8388608"


@pytest.mark.parametrize("line", ["LimitMEMLOCK=65536", "LimitMEMLOCK=65536:infinity", "LimitNOFILE=1024"])
def test_a_later_drop_in_is_named_and_nothing_stays(host: Host, line: str) -> None:
    host.file("etc/systemd/system/slurmd.service.d/99-site.conf", f"[Service]\n{line}\n")
    host.reload()
    before = host.tree()
    label, _, value = line.partition("=")
    with pytest.raises(Failure, match=rf"slurmd\.service has {label}={value} of .*99-site\.conf.*Every file of this"):
        host.limits()
    assert host.tree() == before and host.processes[80] == SMALL


def test_a_later_drop_in_that_comes_later_is_found_by_the_next_run(host: Host) -> None:
    host.limits()
    host.file("etc/systemd/system/slurmd.service.d/99-site.conf", "[Service]\nLimitMEMLOCK=65536\n")
    host.reload()
    foretold = host.limits(check_mode=True)
    assert foretold.files.changes.subjects == ["slurmd.service memlock at its next start"]
    before = host.tree()
    with pytest.raises(Failure, match=r"99-site\.conf"):
        host.limits()
    assert host.tree() == before, "what an earlier run wrote stays"


def test_what_systemd_has_not_read_yet_is_read(host: Host) -> None:
    host.limits()
    host.loaded["slurmd"]["LimitMEMLOCK"] = "8388608"
    assert len(host.limits().files.changes) == 1 and host.loaded["slurmd"]["LimitMEMLOCK"] == "infinity"


def test_a_later_file_of_logins_changes_nothing(host: Host) -> None:
    host.file("etc/security/limits.d/zz-site.conf", "* hard memlock 64\n")
    before = host.tree()
    said = (
        r"Nothing was changed. In a login, \* gets hard memlock 65536 from /etc/security/limits.d/zz-site.conf, not unl"
    )
    with pytest.raises(Failure, match=said):
        host.limits()
    assert host.tree() == before and not len(host.limits(state="absent").files.changes)


@pytest.mark.parametrize("nofile", ["unlimited", 2097152])
def test_more_open_files_than_the_kernel_knows_lock_nobody_out(host: Host, nofile: t.Any) -> None:
    with pytest.raises(Failure, match=r"Nothing was changed: nofile .* \(fs\.nr_open = 1048576\).*gpu_fabric_sysctl"):
        host.limits(limits={"nofile": nofile})
    assert host.tree() == {}


def test_an_earlier_task_may_raise_the_ceiling_in_check_mode(host: Host) -> None:
    assert "fs.nr_open" in host.limits(check_mode=True, limits={"nofile": 2097152}).warnings[0]


def test_where_nobody_may_raise_limits_logins_still_work(host: Host) -> None:
    host.may_raise = False
    host.processes[1]["nofile"] = Limit(1024, 1048576)
    done = host.limits()
    text = host.tree()["etc/security/limits.d/90-gpu-fabric.conf"]
    assert "memlock  8192\n" in text and "nofile   524288\n" in text and "unlimited" not in text
    assert "logins: memlock 8388608, wanted unlimited" in done.clamped
    assert host.loaded["ssh"]["LimitMEMLOCK"] == "infinity", "systemd takes what it gets"
    assert not len(host.limits().files.changes)


def test_a_service_without_a_main_process_is_told(host: Host) -> None:
    host.active.add("kubelet")
    assert [text.partition(",")[0] for text in host.limits("kubelet").warnings] == ["kubelet.service runs"]


@pytest.mark.parametrize("name", ["slurmd@", "slurmd@.service", "a b", "../x", ""])
def test_what_is_no_service_is_refused(host: Host, name: str) -> None:
    with pytest.raises(Failure, match=r"is no service; of a template, name the instances"):
        host.limits(name)
    assert host.ran == []
