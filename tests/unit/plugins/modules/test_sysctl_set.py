# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import stat
import string
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _files, _sysctl
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysctl import Kernel, SysctlSet

OWN = "/etc/sysctl.d/90-gpu-fabric.conf"


class FakeKernel(Kernel):
    """A kernel below a directory, that may refuse values as the real one does."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(str(root))
        self.clamps: dict[str, str] = {}
        self.refuses: dict[str, str] = {}

    def write(self, key: str, value: str) -> str | None:
        if self.refuses.get(key) == value:
            raise Failure(f"The kernel kept {key} = {self.read(key)!r} when {value!r} was written.")
        return super().write(key, self.clamps.get(key, value)) if key not in self.clamps else self._clamp(key, value)

    def _clamp(self, key: str, value: str) -> str | None:
        pathlib.Path(self._path(key)).write_text(self.clamps[key])
        taken = self.read(key)
        if taken != value:
            raise Failure(f"The kernel kept {key} = {taken!r} when {value!r} was written.")
        return None


class Host:
    def __init__(self, base: pathlib.Path) -> None:
        self.base = base
        self.root = base / "root"
        self.own = str(self.root / OWN.lstrip("/"))
        (self.root / "etc/sysctl.d").mkdir(parents=True)
        self.kernel = FakeKernel(base / "proc-sys")
        for key, value in {
            "net.core.rmem_max": "212992",
            "vm.swappiness": "60",
            "net.ipv4.tcp_rmem": "4096\t131072\t6291456",
        }.items():
            self.set(key, value)

    def set(self, key: str, value: str) -> None:
        path = self.base / "proc-sys" / pathlib.Path(*_sysctl.segments(key))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")

    def get(self, key: str) -> str | None:
        return self.kernel.read(key)

    def file(self, path: str, text: str | None = None) -> str:
        target = self.root / path.lstrip("/")
        if text is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return target.read_text() if target.exists() else ""

    def plan(self, settings: dict[str, t.Any]) -> SysctlSet:
        state = str(self.base / "state")
        originals = StateFile("files.json", state)
        return SysctlSet(self.own, settings, self.kernel, StateFile("sysctl.json", state), originals, str(self.root))

    def apply(self, settings: dict[str, t.Any]) -> SysctlSet:
        todo = self.plan(settings)
        if len(todo.changes):
            todo.apply()
        return todo


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Host:
    return Host(tmp_path)


WANTED = {"net.core.rmem_max": 67108864, "net.ipv4.tcp_rmem": "4096 131072  33554432"}


def test_file_of_somebody_else_is_kept_and_given_back(host: Host) -> None:
    host.file(OWN, "vm.swappiness = 10\n")
    host.apply(WANTED)
    assert "vm.swappiness" not in host.file(OWN)
    host.apply({"net.core.rmem_max": 1048576})
    host.apply({})
    assert host.file(OWN) == "vm.swappiness = 10\n"
    assert not len(host.plan({}).changes) and not (host.base / "state").exists()


def test_in_the_file_and_in_force(host: Host) -> None:
    foretold = host.plan(WANTED)
    assert host.get("net.core.rmem_max") == "212992" and not host.file(OWN)
    done = host.apply(WANTED)
    assert done.changes.diff() == foretold.changes.diff()
    assert done.changed_keys == ["net.core.rmem_max", "net.ipv4.tcp_rmem"]
    assert _sysctl.parse(host.file(OWN)) == [
        ("net.core.rmem_max", "67108864"),
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
    ]
    assert host.get("net.ipv4.tcp_rmem") == "4096 131072 33554432"
    assert not len(host.plan(WANTED).changes)


def test_persisted_but_not_in_force_is_a_change(host: Host) -> None:
    host.apply(WANTED)
    host.set("net.core.rmem_max", "212992")
    todo = host.apply(WANTED)
    assert todo.changed_keys == ["net.core.rmem_max"]
    assert host.get("net.core.rmem_max") == "67108864"


def test_in_force_but_not_persisted_is_a_change(host: Host) -> None:
    host.set("net.core.rmem_max", "67108864")
    todo = host.apply({"net.core.rmem_max": 67108864})
    assert todo.changes.subjects == [host.own] and not todo.changed_keys


def test_dropped_keys_get_the_value_from_before_the_first_change(host: Host) -> None:
    host.apply(WANTED)
    host.apply({**WANTED, "net.core.rmem_max": 33554432})
    todo = host.apply({"net.ipv4.tcp_rmem": WANTED["net.ipv4.tcp_rmem"]})
    assert todo.reverted == {"net.core.rmem_max": "212992"}
    assert host.get("net.core.rmem_max") == "212992"
    host.apply({})
    assert host.get("net.ipv4.tcp_rmem") == "4096 131072 6291456"
    assert not (host.root / OWN.lstrip("/")).exists()
    assert not (host.base / "state/sysctl.json").exists()
    assert not len(host.plan({}).changes)


def test_originals_are_on_disk_before_the_first_write(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        host.kernel, "write", lambda key, value: seen.append((host.base / "state/sysctl.json").read_text())
    )
    host.apply(WANTED)
    originals = {"net.core.rmem_max": "212992", "net.ipv4.tcp_rmem": "4096 131072 6291456"}
    assert json.loads(seen[0])[host.own] == originals


def test_one_refused_value_leaves_all_as_it_was(host: Host) -> None:
    host.file(OWN, "vm.swappiness = 10\n")
    host.kernel.refuses["net.ipv4.tcp_rmem"] = "4096 131072 33554432"
    with pytest.raises(Failure, match=r"kept net\.ipv4\.tcp_rmem.*Every parameter has the value that it had before"):
        host.apply({**WANTED, "vm.swappiness": 1})
    assert host.get("net.core.rmem_max") == "212992" and host.get("vm.swappiness") == "60"
    assert host.file(OWN) == "vm.swappiness = 10\n" and not (host.base / "state").exists()


def test_what_cannot_be_set_back_is_named_and_remembered(host: Host) -> None:
    host.kernel.clamps["net.ipv4.tcp_rmem"] = "1 2 3"
    with pytest.raises(Failure, match=r"kept .*tcp_rmem = '1 2 3'.*Not set back either: net\.ipv4\.tcp_rmem"):
        host.apply(WANTED)
    saved = json.loads((host.base / "state/sysctl.json").read_text())
    assert saved[host.own] == {"net.ipv4.tcp_rmem": "4096 131072 6291456"}
    assert host.get("net.core.rmem_max") == "212992" and not host.file(OWN)


def test_a_disk_without_room_leaves_the_kernel_as_it_was(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, *_rest: t.Any) -> None:
        raise Failure(f"Cannot write {path}: No space left on device")

    monkeypatch.setattr(_files, "write_atomic", full)
    with pytest.raises(Failure, match=r"No space left on device.*Every parameter has the value"):
        host.apply(WANTED)
    assert host.get("net.core.rmem_max") == "212992" and not (host.base / "state").exists()


def test_absent_takes_the_file_away_though_a_value_cannot_be_restored(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.apply(WANTED)
    monkeypatch.setattr(host.kernel, "write", lambda key, value: f"{key} cannot be written here: Read-only")
    todo = host.apply({})
    assert not (host.root / OWN.lstrip("/")).exists() and len(todo.unavailable) == 2


def test_a_value_that_turns_out_to_be_read_only_gets_a_dash(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.kernel, "write", lambda key, value: f"{key} cannot be written here: Read-only")
    todo = host.apply({"vm.swappiness": 10})
    assert [item.key for item in todo.unavailable] == ["vm.swappiness"]
    assert "-vm.swappiness = 10\n" in host.file(OWN)


@pytest.mark.parametrize("name", ["etc/sysctl.d/90-gpu-fabric", "usr/lib/sysctl.d/90.conf", "etc/sysctl.conf"])
def test_a_file_that_is_not_read_at_boot_is_refused(host: Host, name: str) -> None:
    with pytest.raises(Failure, match=r"is not read at boot: give the file a name in .*/etc/sysctl\.d that ends in"):
        SysctlSet(str(host.root / name), WANTED, host.kernel, StateFile("a"), StateFile("b"), str(host.root))


def test_a_masked_file_of_ours_is_refused_before_anything_is_set(host: Host) -> None:
    os.mknod(host.base / "null", stat.S_IFSOCK | 0o600)
    (host.root / OWN.lstrip("/")).symlink_to(host.base / "null")
    with pytest.raises(Failure, match=r"it is a link to .*null, a device"):
        host.apply(WANTED)
    assert host.get("net.core.rmem_max") == "212992"


def test_a_file_of_somebody_else_keeps_its_owner_and_mode(host: Host) -> None:
    host.file(OWN, "vm.swappiness = 10\n")
    path = host.root / OWN.lstrip("/")
    path.chmod(0o600)
    theirs = 4711 if os.geteuid() == 0 else os.geteuid()
    os.chown(path, theirs, -1)
    host.apply(WANTED)
    assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o644, os.geteuid())
    host.apply({})
    assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, theirs)


@pytest.mark.parametrize(
    "line", ["/net/core/rmem_max=1", "net//core/rmem_max = 1", "- net.core.rmem_max = 1", "\t-net/core/rmem_max=1"]
)
def test_every_spelling_of_systemd_is_an_override(host: Host, line: str) -> None:
    host.file("/etc/sysctl.d/99-site.conf", line + "\n")
    assert [item.path for item in host.plan(WANTED).overrides()] == ["/etc/sysctl.d/99-site.conf"]


def test_a_glob_does_not_win_over_a_key_by_its_name(host: Host) -> None:
    host.file("/etc/sysctl.d/99-site.conf", "net.core.* = 1\n-net.ipv4.tcp_rmem\n")
    (host.root / "etc/sysctl.d/99-y.conf").mkdir()
    assert not host.plan(WANTED).overrides()


def test_a_key_without_an_interface_is_reported_and_harmless_at_boot(host: Host) -> None:
    todo = host.apply({"net.ipv4.conf.ens9/100.rp_filter": 2, "vm.swappiness": 10})
    assert [item.key for item in todo.unavailable] == ["net/ipv4/conf/ens9.100/rp_filter"]
    assert "does not exist in this kernel or network namespace" in todo.unavailable[0].reason
    assert "-net/ipv4/conf/ens9.100/rp_filter = 2\n" in host.file(OWN)
    assert host.get("vm.swappiness") == "10"
    assert not len(host.plan({"net.ipv4.conf.ens9/100.rp_filter": 2, "vm.swappiness": 10}).changes)


def test_a_read_only_key_is_reported(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sysctl.os, "access", lambda path, mode: not path.endswith("swappiness"))
    todo = host.apply({"vm.swappiness": 10, "net.core.rmem_max": 1})
    assert [(item.key, "read-only" in item.reason) for item in todo.unavailable] == [("vm.swappiness", True)]
    assert host.get("vm.swappiness") == "60" and host.get("net.core.rmem_max") == "1"


@pytest.mark.parametrize(
    ("path", "wins"),
    [
        ("/etc/sysctl.d/99-site.conf", True),
        ("/usr/lib/sysctl.d/95-vendor.conf", True),
        ("/run/sysctl.d/zz.conf", True),
        ("/etc/sysctl.d/10-early.conf", False),
        ("/etc/sysctl.d/99-site.txt", False),
    ],
)
def test_what_wins_at_boot(host: Host, path: str, wins: bool) -> None:
    host.file(path, "# tuned by hand\nnet/core/rmem_max=1048576\n")
    found = host.plan(WANTED).overrides()
    expected = [("net.core.rmem_max", "1048576", "67108864", path)] if wins else []
    assert [tuple(item) for item in found] == expected


def test_a_file_in_etc_masks_its_namesake(host: Host) -> None:
    host.file("/usr/lib/sysctl.d/99-x.conf", "net.core.rmem_max = 1\n")
    host.file("/etc/sysctl.d/99-x.conf", "")
    assert not host.plan(WANTED).overrides()


def test_the_same_value_later_is_no_override(host: Host) -> None:
    host.file("/etc/sysctl.d/99-x.conf", "net.core.rmem_max = 1\nnet.ipv4.tcp_rmem = 4096\t131072 33554432\n")
    host.file("/etc/sysctl.d/99-y.conf", "net.core.rmem_max = 67108864\n")
    assert not host.plan(WANTED).overrides()


@pytest.mark.parametrize(
    "text", ["net.core.rmem_max", "; net.core.rmem_max=1", "# net.core.rmem_max=1", "=1", "-net.core.rmem_max"]
)
def test_lines_that_assign_nothing_to_it(text: str) -> None:
    assert ("net.core.rmem_max", "1") not in _sysctl.parse(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"net core": 1}, "'net core' is no kernel parameter's name"),
        ({"../etc/passwd": 1}, "is no kernel parameter's name"),
        ({"vm.swappiness": None}, "None is not a kernel parameter's value"),
        ({"vm.swappiness": "1\nvm.panic=1"}, "is not a kernel parameter's value"),
        ({"vm.swappiness": [1]}, "is not a kernel parameter's value"),
        ({"vm.swappiness": 1, "vm/swappiness": 2}, "given twice, with '1' and '2'"),
    ],
)
def test_bad_settings_are_refused(host: Host, settings: dict[str, t.Any], message: str) -> None:
    with pytest.raises(Failure, match=message):
        host.plan(settings)


_part = st.text(string.ascii_lowercase + string.digits + "_-", min_size=1, max_size=8).filter(
    lambda part: part[0] != "-"
)


@given(st.lists(_part, min_size=2, max_size=4), st.booleans())
def test_spellings_of_a_key_are_one(parts: list[str], vlan: bool) -> None:
    if vlan:
        parts[-1] += ".100"
    dotted = ".".join(part.replace(".", "/") for part in parts)
    slashed = "/".join(parts)
    assert _sysctl.canonical(dotted) == _sysctl.canonical(slashed)
    assert _sysctl.segments(_sysctl.canonical(dotted)) == tuple(parts)


@given(
    st.dictionaries(st.lists(_part, min_size=2, max_size=3).map(".".join), st.integers(0, 9999).map(str), max_size=5)
)
def test_what_is_rendered_is_parsed_back(settings: dict[str, str]) -> None:
    assert dict(_sysctl.parse(_sysctl.render(settings, unavailable=list(settings)[:2]))) == settings
