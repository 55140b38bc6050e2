# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The program for the boot, its configuration and its units: what is on the host against what is wanted there."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import (
    Folders,
    read_text,
    remove,
    remove_empty,
    write_atomic,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import install, irqbalance, program
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

UNITS = "/etc/systemd/system"
WANTS = f"{UNITS}/multi-user.target.wants"


class Installation:
    """The program, its configuration and its units on the host."""

    def __init__(self, ports: list[dict[str, t.Any]], host: dict[str, t.Any]) -> None:
        needed = bool(ports or host)
        self.files = install.library() if needed else {}
        if needed:
            self.files[install.COMMAND] = install.COMMAND_TEXT
        config = {"ports": ports, **({"host": host} if host else {})}
        self.texts: dict[str, str | None] = {
            program.CONFIG: json.dumps(config, indent=2, sort_keys=True) + "\n" if needed else None,
            f"{UNITS}/{install.UNIT}": install.UNIT_TEXT if ports else None,
            f"{UNITS}/{install.HOST_UNIT}": install.HOST_UNIT_TEXT if host else None,
            install.RULES: install.rules(ports) if ports else None,
        }
        pinned = {port["pci"] for port in ports if port["pci"] and port["settings"].get("irq_affinity")}
        self.balance = irqbalance.files(pinned)
        self.texts.update(self.balance)
        # what names a file of its own beside the program
        self.units = {install.instance(port["netdev"]): install.UNIT for port in ports}
        if host:
            self.units[install.HOST_UNIT] = install.HOST_UNIT
        self.links = {f"{WANTS}/{name}" for name in self.units}

    def present_files(self) -> dict[str, str]:
        """The program's files that are there, stale ones too."""
        found = {}
        for folder, _, names in os.walk(install.LIBRARY):
            paths = (os.path.join(folder, name) for name in names)
            found.update({path: read_text(path) or "" for path in paths if path not in self.texts})
        command = read_text(install.COMMAND)
        return found if command is None else {**found, install.COMMAND: command}

    def present_links(self) -> set[str]:
        prefix, suffix = install.UNIT.split("@")
        names = os.listdir(WANTS) if os.path.isdir(WANTS) else []
        return {
            f"{WANTS}/{name}"
            for name in names
            if (name.startswith(f"{prefix}@") and name.endswith(suffix)) or name == install.HOST_UNIT
        }

    def compare(self, changes: ChangeSet) -> bool:
        self.old = self.present_files()
        self.old_links = self.present_links()
        count = len(changes)
        changes.compare(
            install.COMMAND,
            install.digest(self.old) if self.old else None,
            install.digest(self.files) if self.files else None,
        )
        for path, text in self.texts.items():
            changes.compare(path, read_text(path), text)
        changes.compare(
            "enabled units", sorted(map(os.path.basename, self.old_links)), sorted(map(os.path.basename, self.links))
        )
        return len(changes) > count

    def apply(self, cli: Cli, folders: Folders) -> None:
        rebalance = any(read_text(path) != text for path, text in self.balance.items())
        for path in sorted(set(self.old) - set(self.files)):
            remove(path)
        for path, source in self.files.items():
            if self.old.get(path) != source:
                write_atomic(path, source, mode=0o755 if path == install.COMMAND else 0o644)
        for path, text in self.texts.items():
            if text is None:
                remove(path)
            elif read_text(path) != text:
                folders.remember(path)
                write_atomic(path, text, mode=0o755 if path == irqbalance.POLICY else 0o644)
        for path in self.old_links - self.links:
            remove(path)
        for folder in (install.LIBRARY, os.path.dirname(program.CONFIG), os.path.dirname(irqbalance.DROP_IN)):
            prune(folder)
        folders.prune()
        if cli.which("udevadm") is None:
            # udev went before, with the stack's packages, and left its folders to the rules that were still in them.
            rules = os.path.dirname(install.RULES)
            for folder in (rules, os.path.dirname(rules)):
                remove_empty(folder)
        for path in sorted(self.links - self.old_links):
            folders.remember(path)
            os.makedirs(WANTS, exist_ok=True)
            os.symlink(f"{UNITS}/{self.units[os.path.basename(path)]}", path)
        cli.run(["systemctl", "daemon-reload"])
        if rebalance:
            cli.run(["systemctl", "try-restart", irqbalance.SERVICE])


def prune(top: str) -> None:
    """Remove folders that hold nothing any more, from below."""
    for folder, _, _ in os.walk(top, topdown=False):
        remove_empty(folder)


__all__ = ("UNITS", "WANTS", "Installation")
