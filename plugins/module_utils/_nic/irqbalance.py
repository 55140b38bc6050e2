# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""irqbalance keeps its hands off the interrupts that are pinned: it asks a program about each, by device."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import (
    HEADER,
    MARK,
    conf_files,
    read_text,
)

SERVICE = "irqbalance.service"
POLICY = "/usr/local/lib/gpu-fabric/irqbalance-policy"
#: Behind everybody else's, of whatever name: the last command line counts.
DROP_IN = f"/etc/systemd/system/{SERVICE}.d/zz-gpu-fabric.conf"
#: Its name in an earlier version.
EARLIER = f"/etc/systemd/system/{SERVICE}.d/50-gpu-fabric.conf"
_UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def start_command(text: str) -> str | None:
    """The command line of a unit: its last ``ExecStart=``, continued lines joined."""
    found = None
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.strip().partition("=")
        if key == "ExecStart" and equals:
            found = value.strip() or None
    return found


def present_command(root: str = "/") -> str | None:
    """The command line that irqbalance has without ours: of its unit, and of drop-ins over it, in their order."""
    texts = (read_text(os.path.join(root, folder.lstrip("/"), SERVICE)) for folder in _UNITS)
    unit = next((text for text in texts if text), None)
    if unit is None:
        return None
    drop_ins = conf_files([f"{folder}/{SERVICE}.d" for folder in _UNITS], root)
    others = [path for path in drop_ins if os.path.basename(path) != os.path.basename(DROP_IN)]
    lines = [read_text(os.path.join(root, path.lstrip("/"))) or "" for path in others]
    return start_command("\n".join([unit, *(text for text in lines if MARK not in text)]))


def policy(functions: t.Iterable[str]) -> str:
    """Called with a device's path below /sys and the number of its interrupt; answers what irqbalance shall do."""
    cases = "|".join(f"*/{bdf}" for bdf in sorted(functions))
    return f'#!/bin/sh\n{HEADER}case "$1" in\n{cases}) echo ban=true ;;\nesac\n'


def files(functions: t.Collection[str], root: str = "/") -> dict[str, str | None]:
    """The policy and the drop-in that names it; nothing where no interrupt is pinned or irqbalance is not installed."""
    command = present_command(root)
    if not functions or command is None:
        return {POLICY: None, DROP_IN: None, EARLIER: None}
    drop_in = f"{HEADER}[Service]\nExecStart=\nExecStart={command} --policyscript={POLICY}\n"
    return {POLICY: policy(functions), DROP_IN: drop_in, EARLIER: None}


__all__ = ("DROP_IN", "POLICY", "SERVICE", "files", "policy", "present_command", "start_command")
