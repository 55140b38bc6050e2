# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What brings the links of a host back at every boot: the network manager's files, and its unit."""

from __future__ import annotations

import os
import typing as t
from dataclasses import replace

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet, Step
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import managers
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.files import wanted_files
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.host import Links
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import LinkError
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.system import (
    claimed,
    name_servers,
    overridden,
    read_system,
    shadowed,
    systemd_version,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet


class Boot:
    """The network manager of one host, as it is and as the links need it.

    Raises :class:`LinkError`, with nothing changed, where none of the managers would bring a link up as wanted.
    """

    def __init__(self, links: Links, cli: Cli, asked: str, check_mode: bool) -> None:
        self.links = links
        self.cli = cli
        self.manager: managers.Manager | None = None
        self.system: managers.System | None = None
        self.files: FileSet | None = None
        self.steps: list[Step] = []
        # A host without links needs no manager, and none may be installed yet.
        if links.wanted or links.record:
            self.system = read_system(cli)
            self.manager = managers.choose(self.system, asked, list(links.wanted.values()))
            self._refuse(self.manager, self.system)
            self.files = self._file_set(self.manager, check_mode)
            self.steps = self.files.plan()
        self.unit = Unit(cli, self.manager.unit if self.manager and links.wanted else None)

    def _refuse(self, manager: managers.Manager, system: managers.System) -> None:
        wanted = list(self.links.wanted.values())
        managers.check_partitions(manager, wanted, systemd_version(self.cli, wanted))
        claimed(wanted, manager, system)
        shadowed(wanted, manager)
        managers.bonds_undone(manager, wanted, os.path.exists)
        managers.made_by_another_connection(manager, wanted)

    def _file_set(self, manager: managers.Manager, check_mode: bool) -> FileSet:
        wanted = [
            replace(link, name_servers=name_servers(self.cli, manager, link.netdev)) if link.management else link
            for link in self.links.wanted.values()
        ]
        needed = wanted_files(managers.files(manager, wanted), manager.mode)
        return FileSet(needed, self.cli, StateFile("files.json"), check_mode)

    def compare(self, changes: ChangeSet) -> None:
        """Add what would be written, and what becomes of the unit."""
        for change in self.files.changes if self.files else ():
            changes.compare(*change)
        for name, before, after in self.unit.changes():
            changes.compare(f"unit {name}", before, after)

    @property
    def written(self) -> list[str]:
        return [step.path for step in self.steps]

    @property
    def validate(self) -> list[list[str]]:
        """What tells whether the manager takes its files."""
        return [list(self.manager.validate)] if self.manager and self.manager.validate and self.steps else []

    @property
    def reload(self) -> list[list[str]]:
        """What makes a manager that runs read its files again."""
        return managers.reloads(self.manager, self.system) if self.system and self.steps else []

    @property
    def activations(self) -> list[list[str]]:
        """What hands the links over to a manager that runs, and that would else go on with what it had found."""
        if not (self.manager and self.manager.activate and self.reload):
            return []
        return [*self.reload, *managers.activations(self.manager, self.links.wanted.values(), self.written)]

    def write(self) -> None:
        """Write the files. Where the manager does not take them, it would take none of its others at the next boot."""
        if not self.files or not self.manager:
            return
        try:
            self.files.apply(self.steps)
            for command in self.validate:
                self.cli.run(command)
            overridden(self.links.wanted.values(), self.manager)
        except Failure as exc:
            undone = self.files.undo()
            self.links.saved.save(self.links.record)
            for command in self.validate:
                self.cli.run(command, check=False)
            raise LinkError(f"No link was changed: {str(exc).rstrip('.')}. {undone}", **exc.details) from exc


class Unit:
    """The unit of the network manager: enabled with the first link, and disabled with the last one that needed it.

    It is never stopped: a daemon that runs is left to the next boot.
    """

    def __init__(self, cli: Cli, wanted: str | None) -> None:
        self.cli = cli
        self.saved = StateFile("links-unit.json")
        self.ours = self.saved.load().get("enabled")
        self.enable = wanted if wanted and not is_enabled(cli, wanted) else None
        self.needless = self.ours is not None and self.ours != wanted
        self.disable = self.ours if self.needless and is_enabled(cli, self.ours) else None

    def changes(self) -> t.Iterator[tuple[str, str, str]]:
        if self.enable:
            yield self.enable, "disabled", "enabled"
        if self.disable:
            yield self.disable, "enabled", "disabled"

    def take(self) -> None:
        if self.enable:
            self.saved.save({"enabled": self.enable})
            self.cli.run(["systemctl", "enable", self.enable])

    def let_go(self) -> None:
        if self.disable:
            self.cli.run(["systemctl", "disable", self.disable])
        if self.needless and not self.enable:
            self.saved.save({})


def is_enabled(cli: Cli, unit: str) -> bool:
    return cli.run(["systemctl", "is-enabled", unit], check=False).stdout.strip() in ("enabled", "static", "alias")


__all__ = ("Boot",)
