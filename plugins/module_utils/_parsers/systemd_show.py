# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``systemctl show``: one block of ``Key=Value`` lines a unit, blocks apart by a blank line.

Value::

    {"units": [{"Id": "sshd.service", "ActiveState": "active", "LimitMEMLOCK": "infinity", …}]}

Values are the text as printed; ``limit`` reads those of ``Limit…``.  Without units asked for, the one block is the
manager's.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_PROPERTY = re.compile(r"^([A-Z][A-Za-z0-9]*)=(.*)$")


def parse(text: str) -> Parsed:
    """Read the output of ``systemctl show``."""
    problems = Problems()
    units: list[dict[str, str]] = []
    current: dict[str, str] | None = None
    lines = read_lines(text, problems, barriers=True, own=_PROPERTY)
    for line in lines:
        if line.blank or (line.damaged and not line.text.strip(" \t\ufffd")):
            current = None
            continue
        match = None if line.damaged else _PROPERTY.match(line.text)
        if not match:
            if not line.terminated:
                problems.cut(line)
            continue
        if not line.terminated:
            problems.cut(line)
            continue
        name, value = match.groups()
        # A block never names a property twice: the blank line before this one was lost.
        if current is None or (name in current and name in ("Id", "Names")):
            current = {}
            units.append(current)
        current[name] = value
    if not units and any(not line.blank for line in lines):
        problems.add("There is no output of systemctl show in this text.", text=lines[0].text)
    value_: dict[str, Any] = {"units": units}
    return problems.result(value_)


def limit(text: str) -> int | str | None:
    """``infinity`` → ``unlimited``, a number → bytes or a count; None for anything else."""
    if text in ("infinity", "18446744073709551615"):
        return "unlimited"
    return int(text) if re.match(r"^\d{1,20}$", text) else None
