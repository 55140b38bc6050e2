# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""systemd units: enabled and running, or not."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

STARTED = "started"
STOPPED = "stopped"
# Not running now; whether it starts at boot is left as it is.
PAUSED = "paused"

_PROPERTIES = (
    "Id", "LoadState", "ActiveState", "UnitFileState", "Type", "RemainAfterExit", "Result", "NeedDaemonReload",
    "InactiveExitTimestampMonotonic",
)  # fmt: skip
# Units that cannot be enabled or are by what they are part of.
_NOT_OURS_TO_ENABLE = ("static", "indirect", "generated", "alias", "transient")


class Unit(t.NamedTuple):
    """What systemd says of a unit. Of one that is not installed, only the name."""

    name: str
    #: Its own name, where ``name`` is an alias: nothing else can be enabled.
    id: str
    present: bool
    active: str
    enabled: str
    oneshot: bool
    #: It has done its work and went, and left nothing that runs.
    done: bool
    stale: bool

    @property
    def runs(self) -> bool:
        return self.active in ("active", "reloading", "refreshing") or self.done

    def __str__(self) -> str:
        return f"{self.active}, {self.enabled or 'without an [Install] section'}" if self.present else "not installed"


def parse_show(text: str, names: t.Sequence[str]) -> list[Unit]:
    """The answer of ``systemctl show`` for ``names``: one block each, in that order."""
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n")]
    blocks = [block for block in blocks if block]
    if len(blocks) != len(names):
        raise Failure(f"systemctl show answered for {len(blocks)} units when asked for {len(names)}: {text.strip()!r}")
    return [
        Unit(
            name=name,
            id=block.get("Id") or name,
            present=block.get("LoadState") not in ("not-found", None),
            active=block.get("ActiveState", ""),
            enabled=block.get("UnitFileState", ""),
            oneshot=block.get("Type") == "oneshot",
            done=_done(block),
            stale=block.get("NeedDaemonReload") == "yes",
        )
        for name, block in zip(names, blocks)
    ]


def _done(block: t.Mapping[str, str]) -> bool:
    """Whether a oneshot unit that is inactive is so because it has succeeded, not because it was never started."""
    return (
        (block.get("Type"), block.get("ActiveState"), block.get("Result")) == ("oneshot", "inactive", "success")
        and block.get("RemainAfterExit") != "yes"
        and block.get("InactiveExitTimestampMonotonic", "0") != "0"
    )


class UnitSet:
    """The wanted units against systemd's."""

    def __init__(
        self,
        units: t.Mapping[str, str],
        restart: t.Sequence[str],
        cli: Cli,
        check_mode: bool,
        reload: t.Sequence[str] = (),
        strict: bool | None = None,
    ) -> None:
        self._cli = cli
        # A dry run on a machine where systemd does not run can only show what would come.
        self._strict = not check_mode if strict is None else strict
        self._wanted = {name if "." in name else f"{name}.service": state for name, state in units.items()}
        self._restart = [name if "." in name else f"{name}.service" for name in restart]
        self._reload = [name if "." in name else f"{name}.service" for name in reload]
        unknown = sorted(
            {*self._restart, *self._reload} - {name for name, state in self._wanted.items() if state == STARTED}
        )
        if unknown:
            raise Failure(f"{', '.join(unknown)}: only units that are to run can be restarted or reloaded")
        self.changes = ChangeSet()
        self.argvs: list[list[str]] = []
        present = self._show()
        missing = [unit.name for unit in present if not unit.present and self._wanted[unit.name] == STARTED]
        # In check mode, the package that brings the unit may be one that an earlier task would install.
        if missing and not check_mode:
            raise Failure(f"{', '.join(missing)} cannot be started: no such unit is installed on this host")
        if any(unit.stale for unit in present):
            self.argvs.append(["systemctl", "daemon-reload"])
        for unit in present:
            self._plan(unit)

    def _show(self) -> list[Unit]:
        names = list(self._wanted)
        if not names:
            return []
        argv = ["systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", *names]
        answer = self._cli.run(argv, check=self._strict)
        if answer.rc != 0:
            return [Unit(name, name, False, "", "", False, False, False) for name in names]
        return parse_show(answer.stdout, names)

    def _plan(self, unit: Unit) -> None:
        started = self._wanted[unit.name] == STARTED
        paused = self._wanted[unit.name] == PAUSED
        if not unit.present and not started:
            return
        enabled = (
            unit.enabled if paused or unit.enabled in _NOT_OURS_TO_ENABLE else "enabled" if started else "disabled"
        )
        if unit.present and not unit.enabled:
            enabled = ""
        active = ("active" if unit.present and not unit.oneshot else unit.active or "active") if started else "inactive"
        argv: list[str] = []
        if unit.enabled.startswith("masked"):
            if started:
                raise Failure(f"{unit.id} is masked on this host. Unmask it with: systemctl unmask {unit.id}")
            enabled = unit.enabled
        elif enabled != unit.enabled:
            argv = ["systemctl", "enable" if started else "disable", unit.id]
            self.argvs.append(argv)
        if started and unit.name in self._restart:
            self.argvs.append(["systemctl", "restart", unit.id])
            self.changes.compare(unit.name, str(unit), f"restarted, {enabled}")
            return
        if started and unit.name in self._reload and unit.runs:
            self.argvs.append(["systemctl", "reload", unit.id])
            self.changes.compare(unit.name, str(unit), f"reloaded, {enabled}")
            return
        if started and not unit.runs:
            self.argvs.append(["systemctl", "start", unit.id])
            active = "active"
        elif not started and unit.active not in ("inactive", "failed"):
            self.argvs.append(["systemctl", "stop", unit.id])
        elif argv:
            active = unit.active
        else:
            return
        self.changes.compare(unit.name, str(unit), f"{active}, {enabled or 'without an [Install] section'}")

    def apply(self) -> None:
        for argv in self.argvs:
            result = self._cli.run(argv, check=False)
            if result.rc != 0:
                name = argv[-1]
                journal = self._cli.run(["journalctl", "--no-pager", "-n", "10", "-u", name, "-o", "cat"], check=False)
                said = " | ".join(filter(None, (result.stderr.strip(), journal.stdout.strip())))
                raise Failure(f"{result.command} exited with {result.rc}: {said}", cmd=argv, rc=result.rc)
        for unit in self._show():
            if self._wanted[unit.name] == STARTED and not unit.runs:
                raise Failure(f"{unit.name} is {unit} after it was started. Its log: journalctl -u {unit.name}")
            if self._wanted[unit.name] != STARTED and unit.present and unit.active not in ("inactive", "failed"):
                raise Failure(
                    f"{unit.name} is {unit} after it was stopped: something has started it again. What may have: "
                    f"systemctl list-dependencies --reverse {unit.name}, or a socket, path or timer of its name"
                )


__all__ = ("PAUSED", "STARTED", "STOPPED", "Unit", "UnitSet", "parse_show")
