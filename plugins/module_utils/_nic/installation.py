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
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet, our_link, ours
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import (
    MARK,
    Folders,
    StateFile,
    read_text,
    remove_empty,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import install, irqbalance, program
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

UNITS = "/etc/systemd/system"
WANTS = f"{UNITS}/multi-user.target.wants"


class Installation:
    """The program, its configuration and its units on the host.

    What somebody else had under one of these names is kept when it is first written, and comes back with the last port.
    """

    def __init__(self, ports: list[dict[str, t.Any]], host: dict[str, t.Any], cli: Cli, originals: StateFile) -> None:
        needed = bool(ports or host)
        self._cli = cli
        self._recorded = originals.load()
        self._folders = Folders(os.path.dirname(originals.path))
        wanted = {**install.library(), install.COMMAND: install.COMMAND_TEXT} if needed else {}
        # JSON knows no comments.
        config = {"comment": f"{MARK}; changes are overwritten.", "ports": ports, **({"host": host} if host else {})}
        pinned = {port["pci"] for port in ports if port["pci"] and port["settings"].get("irq_affinity")}
        self._balance = irqbalance.files(pinned)
        texts: dict[str, str | None] = {
            program.CONFIG: json.dumps(config, indent=2, sort_keys=True) + "\n" if needed else None,
            f"{UNITS}/{install.UNIT}": install.UNIT_TEXT if ports else None,
            f"{UNITS}/{install.HOST_UNIT}": install.HOST_UNIT_TEXT if host else None,
            install.RULES: install.rules(ports) if ports else None,
            **self._balance,
        }
        self._program = sorted({*wanted, *self._lying_there()} - set(texts))
        units = {install.instance(port["netdev"]): install.UNIT for port in ports}
        if host:
            units[install.HOST_UNIT] = install.HOST_UNIT
        self._links = {f"{WANTS}/{name}": f"{UNITS}/{unit}" for name, unit in units.items()}
        self._links_before = self._enabled()
        names = sorted({*self._links, *self._links_before})
        self._unmarked = {path for path in (*self._program, program.CONFIG) if of_an_earlier_version(path)}
        executable = (install.COMMAND, irqbalance.POLICY)
        self._files = FileSet(
            [
                *(ours(path, wanted.get(path), 0o755 if path in executable else 0o644) for path in self._program),
                *(ours(path, text, 0o755 if path in executable else 0o644) for path, text in texts.items()),
                *(our_link(path, self._links.get(path)) for path in names),
            ],
            cli,
            originals,
            check_mode=False,
            known=dict.fromkeys(self._unmarked),
        )
        self._steps = self._files.plan()

    def _lying_there(self) -> list[str]:
        """The program's files that are there or were, stale ones too."""
        found = [os.path.join(folder, name) for folder, _, names in os.walk(install.LIBRARY) for name in names]
        return [*found, install.COMMAND, *(path for path in self._recorded if path.startswith(f"{install.LIBRARY}/"))]

    def _enabled(self) -> set[str]:
        """The links that have systemd start a unit of these names, and what is recorded of such."""
        prefix, suffix = install.UNIT.split("@")
        paths = {f"{WANTS}/{name}" for name in (os.listdir(WANTS) if os.path.isdir(WANTS) else [])}
        return {
            path
            for path in paths | set(self._recorded)
            if os.path.dirname(path) == WANTS
            if (os.path.basename(path).startswith(f"{prefix}@") and path.endswith(suffix))
            or os.path.basename(path) == install.HOST_UNIT
        }

    def compare(self, changes: ChangeSet) -> bool:
        """Note what differs: the program as a whole, its other files each, the units that are enabled."""
        count = len(changes)
        before = {path: text for path in self._program if (text := read_text(path)) is not None}
        after = {**before, **{step.path: step.content for step in self._steps if step.path in self._program}}
        left = {path: text for path, text in after.items() if text is not None}
        digests = [install.digest(files) if files else None for files in (before, left)]
        changes.compare(install.COMMAND, *digests)
        links = [step for step in self._steps if step.link]
        told = {*self._program, *(step.path for step in links if step.before is None or step.content is None)}
        for change in self._files.changes:
            if change.subject not in told:
                changes.compare(*change)
        enabled = {path for path in self._links_before if os.path.lexists(path)}
        coming = (enabled - {step.path for step in links}) | {step.path for step in links if step.content is not None}
        changes.compare("enabled units", sorted(map(os.path.basename, enabled)), sorted(map(os.path.basename, coming)))
        return len(changes) > count

    def apply(self) -> None:
        if self._unmarked - set(self._recorded):
            self._folders.claim(install.LIBRARY)
        self._files.apply(self._steps)
        if self._cli.which("udevadm") is None:
            # udev went before, with the stack's packages, and left its folders to the rules that were still in them.
            rules = os.path.dirname(install.RULES)
            for folder in (rules, os.path.dirname(rules)):
                remove_empty(folder)
        self._cli.run(["systemctl", "daemon-reload"])
        if any(step.path in self._balance for step in self._steps):
            self._cli.run(["systemctl", "try-restart", irqbalance.SERVICE])

    def settle(self) -> None:
        """Keep no record of what is as it was before, though this call had nothing to write."""
        self._files.settle()


def of_an_earlier_version(path: str) -> bool:
    """Whether a file is ours, though without the mark that tells: from before sources and configuration had it."""
    text = read_text(path) or ""
    if path != program.CONFIG:
        return install.COPYRIGHT in text.partition("\n")[0]
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and "ports" in found and found.keys() <= {"ports", "host"}


__all__ = ("UNITS", "WANTS", "Installation")
