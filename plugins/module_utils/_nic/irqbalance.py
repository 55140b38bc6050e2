# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""irqbalance keeps its hands off the interrupts that are pinned: it asks a program about each, by device."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import read_text

SERVICE = "irqbalance.service"
POLICY = "/usr/local/lib/gpu-fabric/irqbalance-policy"
DROP_IN = f"/etc/systemd/system/{SERVICE}.d/50-gpu-fabric.conf"
_UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def start_command(text: str) -> str | None:
    """The command line of a unit: its last ``ExecStart=``, continued lines joined."""
    found = None
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.strip().partition("=")
        if key == "ExecStart" and equals:
            found = value.strip() or None
    return found


def policy(functions: t.Iterable[str]) -> str:
    """Called with a device's path below /sys and the number of its interrupt; answers what irqbalance shall do."""
    cases = "|".join(f"*/{bdf}" for bdf in sorted(functions))
    return (
        "#!/bin/sh\n# Managed by railyard.gpu_fabric; changes are overwritten.\n"
        f'case "$1" in\n{cases}) echo ban=true ;;\nesac\n'
    )


def files(functions: t.Collection[str], root: str = "/") -> dict[str, str | None]:
    """The policy and the drop-in that names it; nothing where no interrupt is pinned or irqbalance is not installed."""
    units = (read_text(os.path.join(root, folder.lstrip("/"), SERVICE)) for folder in _UNITS)
    command = next((command for text in units if text and (command := start_command(text))), None)
    if not functions or command is None:
        return {POLICY: None, DROP_IN: None}
    drop_in = (
        "# Managed by railyard.gpu_fabric; changes are overwritten.\n"
        f"[Service]\nExecStart=\nExecStart={command} --policyscript={POLICY}\n"
    )
    return {POLICY: policy(functions), DROP_IN: drop_in}


__all__ = ("DROP_IN", "POLICY", "SERVICE", "files", "policy", "start_command")
