# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._modules import Aside
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._systemd import UnitSet
from ansible_collections.railyard.gpu_fabric.plugins.modules.service_set import await_paths

DAEMON = "nvidia-persistenced.service"
MANAGER = "nvidia-fabricmanager.service"


class Systemd(Cli):
    """systemctl over units of its own, with the answers of systemd 252."""

    def __init__(self, **units: dict[str, str]) -> None:
        super().__init__()
        self.units = {name.replace("__", "-") + ".service": unit for name, unit in units.items()}
        self.broken: set[str] = set()

    def run(self, argv: t.Sequence[str], check: bool = True, **_options: t.Any) -> Result:  # type: ignore[override]
        answer, rc = "", 0
        if argv[0] == "journalctl":
            answer = "request to query NVSwitch device information failed with error:WARNING Nothing to do"
        elif argv[1] == "show":
            answer = "\n".join(self._show(name) for name in argv[argv.index("--") + 1 :])
        else:
            self.ran.append(" ".join(argv[1:]))
            rc = self._change(argv[1], argv[-1])
        return Result(tuple(argv), rc, answer, "Job failed" if rc else "")

    def _show(self, name: str) -> str:
        unit = self.units.get(name)
        if unit is None:
            unit = {"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": "", "NeedDaemonReload": "no"}
        return "".join(
            f"{key}={value}\n" for key, value in {"Type": "simple", "Result": "success", "Id": name, **unit}.items()
        )

    def _change(self, verb: str, name: str) -> int:
        if name in self.broken and verb in ("start", "restart"):
            return 1
        if verb != "daemon-reload":
            key = "UnitFileState" if verb in ("enable", "disable") else "ActiveState"
            value = {"enable": "enabled", "disable": "disabled", "stop": "inactive"}.get(verb, "active")
            self.units[name][key] = value
        return 0


def unit(active: str = "inactive", enabled: str = "disabled", **more: str) -> dict[str, str]:
    return {"LoadState": "loaded", "ActiveState": active, "UnitFileState": enabled, "NeedDaemonReload": "no", **more}


class Kernel(Systemd):
    """modprobe over modules of its own, one of which may be in use."""

    def __init__(self, *loaded: str, busy: str = "", spoilt: str = "", **units: dict[str, str]) -> None:
        super().__init__(**units)
        self.modules, self.busy, self.spoilt = list(loaded), busy, spoilt

    def run(self, argv: t.Sequence[str], check: bool = True, **options: t.Any) -> Result:  # type: ignore[override]
        if argv[0] != "modprobe":
            return super().run(argv, check, **options)
        self.ran.append(" ".join(argv))
        name = argv[-1]
        if "--remove" in argv and name == self.busy:
            return Result(tuple(argv), 1, "", f"modprobe: FATAL: Module {name} is in use.")
        if "--remove" not in argv and name == self.spoilt:
            return Result(tuple(argv), 1, "", f"modprobe: ERROR: could not insert '{name}': Invalid argument")
        (self.modules.remove if "--remove" in argv else self.modules.append)(name)
        return Result(tuple(argv), 0, "", "")

    def loaded(self) -> set[str]:
        return set(self.modules)

    def built_in(self) -> set[str]:
        return {"ib_core"}


def restart(kernel: Kernel, names: t.Sequence[str] = ("nvidia_peermem", "nv_peer_mem", "ib_core")) -> None:
    todo = UnitSet({"openibd": "started"}, ["openibd"], kernel, check_mode=False)
    with Aside(names, kernel, kernel):  # type: ignore[arg-type]
        todo.apply()


def test_modules_are_out_of_the_kernel_while_a_unit_restarts() -> None:
    kernel = Kernel("ib_core", "nvidia_peermem", openibd=unit("active", "enabled"))
    restart(kernel)
    assert kernel.ran == [
        "modprobe --remove nvidia_peermem",
        "restart openibd.service",
        "modprobe nvidia_peermem",
    ]


def test_modules_come_back_where_the_restart_fails() -> None:
    kernel = Kernel("nvidia_peermem", spoilt="nv_peer_mem", openibd=unit("active", "enabled"))
    kernel.broken.add("openibd.service")
    with pytest.raises(Failure, match=r"restart openibd\.service exited with 1"):
        restart(kernel)
    assert kernel.modules == ["nvidia_peermem"]


def test_nothing_restarts_while_a_module_is_in_use() -> None:
    kernel = Kernel("nv_peer_mem", "nvidia_peermem", busy="nv_peer_mem", openibd=unit("active", "enabled"))
    with pytest.raises(Failure, match=r"nv_peer_mem is in use\. End what uses it; nothing was restarted"):
        restart(kernel)
    assert sorted(kernel.modules) == ["nv_peer_mem", "nvidia_peermem"]
    assert not [line for line in kernel.ran if "restart" in line]


def test_a_module_that_does_not_come_back_is_told() -> None:
    kernel = Kernel("nvidia_peermem", spoilt="nvidia_peermem", openibd=unit("active", "enabled"))
    with pytest.raises(Failure, match=r"nvidia_peermem was unloaded and does not load again: .*Invalid argument"):
        restart(kernel)


def test_what_a_restart_brings_is_waited_for(tmp_path: Path) -> None:
    here, gone = tmp_path / "infiniband", tmp_path / "none"
    here.mkdir()
    await_paths([str(here)], 0)
    with pytest.raises(Failure, match=f"^{gone} is not there 0 s after the restart"):
        await_paths([str(here), str(gone)], 0)


RAN = {"InactiveExitTimestampMonotonic": "81234567"}
WANTED = {"nvidia-persistenced": "started", "nvidia-fabricmanager": "stopped"}


def test_enabled_and_running_or_neither() -> None:
    systemd = Systemd(nvidia__persistenced=unit(), nvidia__fabricmanager=unit("active", "enabled"))
    todo = UnitSet(WANTED, [], systemd, check_mode=False)
    assert not systemd.ran
    assert todo.changes.diff()[0]["after"] == "active, enabled\n"
    todo.apply()
    assert systemd.ran == [f"enable {DAEMON}", f"start {DAEMON}", f"disable {MANAGER}", f"stop {MANAGER}"]
    again = UnitSet(WANTED, [], systemd, check_mode=False)
    assert not len(again.changes) and not again.argvs


def test_a_unit_that_is_not_there_need_not_be_stopped() -> None:
    systemd = Systemd(nvidia__persistenced=unit("active", "enabled"))
    assert not len(UnitSet(WANTED, [], systemd, check_mode=False).changes)


def test_a_unit_that_is_not_there_cannot_be_started() -> None:
    with pytest.raises(Failure, match=f"{DAEMON} cannot be started: no such unit"):
        UnitSet(WANTED, [], Systemd(), check_mode=False)
    foretold = UnitSet(WANTED, [], Systemd(), check_mode=True)
    assert foretold.changes.subjects == [DAEMON]


def test_why_it_does_not_start_is_quoted() -> None:
    systemd = Systemd(nvidia__persistenced=unit())
    systemd.broken.add(DAEMON)
    with pytest.raises(Failure, match=rf"start {DAEMON} exited with 1: Job failed \| .*Nothing to do"):
        UnitSet({DAEMON: "started"}, [], systemd, check_mode=False).apply()


def test_a_unit_that_dies_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd(nvidia__persistenced=unit(enabled="enabled"))
    monkeypatch.setattr(systemd, "_change", lambda verb, name: 0)
    with pytest.raises(Failure, match="is inactive, enabled after it was started"):
        UnitSet({DAEMON: "started"}, [], systemd, check_mode=False).apply()


def test_static_units_are_not_enabled_and_oneshots_may_be_done() -> None:
    systemd = Systemd(a=unit("active", "static"), b=unit("inactive", "enabled", Type="oneshot", **RAN))
    assert not len(UnitSet({"a": "started", "b": "started"}, [], systemd, check_mode=False).changes)


def test_oneshots_that_were_never_started_are() -> None:
    systemd = Systemd(
        never=unit(enabled="enabled", Type="oneshot", InactiveExitTimestampMonotonic="0"),
        stopped=unit(enabled="enabled", Type="oneshot", RemainAfterExit="yes", **RAN),
    )
    todo = UnitSet({"never": "started", "stopped": "started"}, [], systemd, check_mode=False)
    assert todo.argvs == [["systemctl", "start", f"{name}.service"] for name in ("never", "stopped")]


def test_an_alias_is_enabled_by_its_own_name() -> None:
    systemd = Systemd(sshd=unit(Id="ssh.service"))
    todo = UnitSet({"sshd": "started"}, [], systemd, check_mode=False)
    assert todo.argvs == [["systemctl", "enable", "ssh.service"], ["systemctl", "start", "ssh.service"]]


def test_what_reloads_runs() -> None:
    systemd = Systemd(a=unit("reloading", "enabled"))
    assert not len(UnitSet({"a": "started"}, [], systemd, check_mode=False).changes)


def test_what_does_not_stay_stopped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd(docker=unit("active", "disabled"))
    monkeypatch.setattr(systemd, "_change", lambda verb, name: 0)
    with pytest.raises(Failure, match=r"docker\.service is active, disabled after it was stopped: .*a socket, path"):
        UnitSet({"docker": "stopped"}, [], systemd, check_mode=False).apply()


def test_restart_is_always_a_change() -> None:
    systemd = Systemd(nvidia__persistenced=unit("active", "enabled"))
    todo = UnitSet({DAEMON: "started"}, [DAEMON], systemd, check_mode=False)
    todo.apply()
    assert systemd.ran == [f"restart {DAEMON}"] and len(todo.changes) == 1


def test_what_runs_reads_its_files_again_and_what_starts_has_read_them() -> None:
    systemd = Systemd(nvidia__persistenced=unit("active", "enabled"), nvidia__fabricmanager=unit())
    todo = UnitSet({DAEMON: "started", MANAGER: "started"}, [], systemd, check_mode=False, reload=[DAEMON, MANAGER])
    todo.apply()
    assert systemd.ran == [f"reload {DAEMON}", f"enable {MANAGER}", f"start {MANAGER}"] and len(todo.changes) == 2
    with pytest.raises(Failure, match="only units that are to run"):
        UnitSet({DAEMON: "stopped"}, [], systemd, check_mode=False, reload=[DAEMON])


def test_a_paused_unit_stays_enabled() -> None:
    systemd = Systemd(nvidia__persistenced=unit("active", "enabled"))
    UnitSet({DAEMON: "paused", "not-here": "paused"}, [], systemd, check_mode=False).apply()
    assert systemd.ran == [f"stop {DAEMON}"]
    assert not len(UnitSet({DAEMON: "paused"}, [], systemd, check_mode=False).changes)


def test_changed_unit_files_are_read_first() -> None:
    systemd = Systemd(nvidia__persistenced=unit(NeedDaemonReload="yes"))
    UnitSet({DAEMON: "started"}, [], systemd, check_mode=False).apply()
    assert systemd.ran[0] == "daemon-reload"


@pytest.mark.parametrize("state", ["masked", "masked-runtime"])
def test_a_masked_unit_is_left_to_whoever_masked_it(state: str) -> None:
    systemd = Systemd(nvidia__persistenced=unit(enabled=state))
    with pytest.raises(Failure, match=f"systemctl unmask {DAEMON}"):
        UnitSet({DAEMON: "started"}, [], systemd, check_mode=False)
    assert not UnitSet({DAEMON: "stopped"}, [], systemd, check_mode=False).argvs
