# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One table of the packet filter: in the kernel, in its file and with its unit, or in none of them."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _files
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, CommandFailed, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.modules import nft_table

UNIT = "gpu-fabric-firewall.service"


class Host(Cli):
    """nft and systemctl over tables and a unit of their own."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.tools = root, {"nft"}
        self.tables: dict[str, str] = {}
        self.active, self.enabled = "inactive", "disabled"
        self.path, self.units = root / "etc/gpu_fabric/firewall.nft", root / "etc/systemd/system"
        self.units.mkdir(parents=True)

    def which(self, name: str) -> str | None:
        return f"/usr/sbin/{name}" if name in self.tools else None

    def run(
        self, argv: t.Sequence[str], check: bool = True, stdin: str | None = None, timeout_s: float | None = None
    ) -> Result:
        self.ran.append(" ".join(argv) if argv[0] != "unshare" else "unshare")
        result = Result(tuple(argv), *getattr(self, argv[0])(list(argv[1:]), stdin))
        if check and result.rc:
            raise CommandFailed(result)
        return result

    def unshare(self, words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        if "bogus" in words[-2]:
            return 1, "", "syntax error, unexpected string"
        return 0, self._listed(words[-2]), ""

    @staticmethod
    def _listed(text: str) -> str:
        return " ".join(text[text.rindex("table ") :].split()) + "\n"

    def nft(self, words: list[str], stdin: str | None) -> tuple[int, str, str]:
        table = " ".join(words[-2:])
        if words[:2] == ["-f", "-"]:
            assert stdin is not None
            found = re.search(r"^table (\S+ \S+)", stdin, re.M)
            assert found is not None
            self.tables[found.group(1)] = self._listed(stdin)
        elif table not in self.tables:
            return 1, "", "Error: No such file or directory"
        elif "delete" in words:
            del self.tables[table]
        else:
            return 0, self.tables[table], ""
        return 0, "", ""

    def systemctl(self, words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        there = (self.units / UNIT).exists()
        if words[0] == "show":
            state = self.enabled if there else ""
            load = "loaded" if there or self.active == "active" else "not-found"
            text = f"Id={UNIT}\nLoadState={load}\nActiveState={self.active}\nUnitFileState={state}\nType=oneshot\n"
            return 0, text + "RemainAfterExit=yes\nResult=success\nNeedDaemonReload=no\n", ""
        if words[0] in ("enable", "disable"):
            self.enabled = words[0] + "d"
        elif words[0] in ("start", "stop"):
            self.active = "active" if words[0] == "start" else "inactive"
        return 0, "", ""

    def table(self, rules: str | None, check_mode: bool = False, **more: str) -> dict[str, t.Any]:
        params = {
            "family": "inet", "name": "gpu_fabric", "rules": rules, "path": str(self.path), "unit": UNIT,
            "state": "absent" if rules is None else "present", **more,
        }  # fmt: skip
        originals = StateFile("files.json", str(self.root / "state"))
        return nft_table.run(params, check_mode, self, originals, str(self.units))

    def tree(self) -> dict[str, str]:
        return {str(p.relative_to(self.root)): p.read_text() for p in sorted(self.root.rglob("*")) if p.is_file()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


RULES = "chain input {\n  type filter hook input priority filter; policy drop;\n}\n"


def test_loaded_written_and_started_once_and_all_of_it_goes_again(host: Host) -> None:
    foretold = host.table(RULES, check_mode=True)
    assert foretold["changed"] and host.tree() == {} and not host.tables and host.active == "inactive"
    done = host.table(RULES)
    assert done["diff"] == foretold["diff"] and "policy drop" in host.tables["inet gpu_fabric"]
    assert (host.active, host.enabled) == ("active", "enabled")
    unit = (host.units / UNIT).read_text()
    assert f"ExecStart=/usr/sbin/nft -f {host.path}\n" in unit and "ReloadPropagatedFrom=nftables.service" in unit
    assert not host.table(RULES)["changed"]
    host.table(None)
    assert host.tree() == {} and not host.tables and (host.active, host.enabled) == ("inactive", "disabled")
    assert not host.table(None)["changed"]


def test_files_of_somebody_else_are_kept_and_given_back(host: Host) -> None:
    host.path.parent.mkdir(parents=True)
    host.path.write_text("# site\n")
    host.path.chmod(0o600)
    (host.units / UNIT).write_text("[Unit]\nDescription=site\n")
    before = host.tree()
    host.table(RULES)
    host.table(RULES.replace("drop", "accept"))
    host.table(None)
    assert host.tree() == before and host.path.stat().st_mode & 0o777 == 0o600
    assert not host.table(None)["changed"]


def test_a_table_that_somebody_changed_or_flushed_comes_back(host: Host) -> None:
    host.table(RULES)
    host.tables.clear()
    assert host.table(RULES)["changed"] and "inet gpu_fabric" in host.tables
    host.active = "inactive"
    assert host.table(RULES)["changed"] and host.active == "active"


def test_rules_that_nft_refuses_change_nothing(host: Host) -> None:
    host.table(RULES)
    before, tables = host.tree(), dict(host.tables)
    with pytest.raises(Failure, match=r"nft refuses the rules of table inet gpu_fabric; nothing was changed: syntax"):
        host.table("bogus")
    assert (host.tree(), host.tables) == (before, tables)


@pytest.mark.parametrize("earlier", [None, RULES])
def test_where_the_file_cannot_be_written_the_table_is_as_before(
    host: Host, earlier: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if earlier:
        host.table(earlier)
    before, tables = host.tree(), dict(host.tables)

    real = _files.write_atomic

    def full(path: str, text: str, *rest: t.Any) -> None:
        if "accept" in text:
            raise Failure(f"Cannot write {path}: No space left on device")
        real(path, text, *rest)

    monkeypatch.setattr(_files, "write_atomic", full)
    with pytest.raises(Failure, match=r"Every file of this call is as it was before\. The table is"):
        host.table(RULES.replace("drop", "accept"))
    assert (host.tree(), host.tables) == (before, tables)


def test_a_masked_unit_changes_nothing(host: Host) -> None:
    host.enabled = "masked"
    (host.units / UNIT).symlink_to("/dev/null")
    with pytest.raises(Failure, match="it is a link to /dev/null, a device"):
        host.table(RULES)
    assert not host.tables and not host.path.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [("name", "x; flush ruleset"), ("name", ""), ("unit", "firewall"), ("path", "/etc/a b"), ("path", "x.nft")],
)
def test_what_cannot_stand_in_a_script_or_unit_is_refused(host: Host, option: str, value: str) -> None:
    with pytest.raises(Failure, match=f"{option}: .* does not match"):
        host.table(RULES, **{option: value})
    assert host.ran == []


def test_nothing_to_take_away_needs_no_systemd(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "systemctl", lambda words, stdin: (1, "", "System has not been booted with systemd"))
    assert not host.table(None)["changed"]


def test_without_nft(host: Host) -> None:
    host.tools.clear()
    assert host.table(RULES, check_mode=True)["changed"]
    with pytest.raises(Failure, match="install the package nftables"):
        host.table(RULES)
    assert not host.table(None)["changed"]


def test_without_a_systemd_that_runs_a_dry_run_shows_and_a_run_changes_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "systemctl", lambda *_: (1, "", "Failed to connect to bus: Host is down"))
    assert host.table(RULES, check_mode=True)["changed"]
    with pytest.raises(Failure, match="Host is down"):
        host.table(RULES)
    assert not host.tables and not host.path.exists()
