# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``lsmod`` and ``/proc/modules``.

Value::

    {"modules": {name: {"size_bytes", "use_count", "holders": [names], "state": "live"}}}
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems, first_output
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_MODULE = re.compile(r"^([A-Za-z0-9_-]+)\s+(\d+)\s+(-?\d+|-)(?:\s+([A-Za-z0-9_,.\[\]-]+))?\s*$")
_PROC = re.compile(
    r"^([A-Za-z0-9_-]+) (\d+) (-?\d+|-) (\S+) (Live|Loading|Unloading) (?:0x)?[0-9a-f]+(?: \([A-Z]+\))?\s*$"
)

_ONCE = re.compile(r"^(Module)\s+Size\s")


def parse(text: str) -> Parsed:
    """Read the output of ``lsmod`` or the text of ``/proc/modules``."""
    problems = Problems()
    modules: dict[str, dict[str, Any]] = {}
    lines = read_lines(text, problems)
    header = False
    for line in first_output(lines, _ONCE, problems):
        if line.blank:
            continue
        if re.match(r"^Module\s+Size\s+Used by\s*$", line.text):
            header = True
            continue
        match = _PROC.match(line.text) or _MODULE.match(line.text)
        if match and not line.terminated:
            problems.cut(line)
            if line.text != line.text.rstrip() or match.group(4):
                # What stands before the last word is whole.
                entry: dict[str, Any] = {"size_bytes": int(match.group(2))}
                if match.group(4) and match.group(3) != "-":
                    entry["use_count"] = int(match.group(3))
                modules.setdefault(match.group(1).replace("-", "_"), entry)
        elif match:
            entry = {"size_bytes": int(match.group(2))}
            if match.group(3) != "-":
                entry["use_count"] = int(match.group(3))
            names = (match.group(4) or "").split(",")
            entry["holders"] = [name for name in names if name and name not in ("-", "[permanent]")]
            if "[permanent]" in names:
                entry["permanent"] = True
            if match.re is _PROC:
                entry["state"] = match.group(5).lower()
            modules.setdefault(match.group(1).replace("-", "_"), entry)
        elif not line.terminated:
            problems.cut(line)
        elif header:
            problems.add("This line of lsmod is not readable.", line)
    if not modules and not header:
        problems.add("There is no output of lsmod in this text.", text=lines[0].text if lines else "")
    return problems.result({"modules": modules})
