# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``mlxfwreset -d DEV query``: the kinds of reset that a card can do.

Value::

    {"levels": {"3": {"text": "Driver restart and PCI reset", "supported": bool, "default": bool}},
     "errors": [...]}
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    believable,
    failure,
    first_output,
)

_SECTION = re.compile(r"^Reset-(?P<what>\w+)\b.*:\s*$")
_ONCE = re.compile(r"^(Reset-levels)")
_ROW = re.compile(r"^(?P<number>\d+):\s+(?P<text>.*?)\s+-(?P<supported>Not [Ss]upported|Supported)(?P<rest>.*)$")


def parse(text: str) -> Parsed:
    """Read what ``mlxfwreset`` or ``mstfwreset`` says to ``query``."""
    problems = Problems()
    value: dict[str, Any] = {"levels": {}, "errors": []}
    section = ""
    for line in first_output(believable(text, problems), _ONCE, problems):
        heading = _SECTION.match(line.text)
        row = _ROW.match(line.text.strip())
        if heading:
            section = heading.group("what")
        elif row and section == "levels":
            if line.terminated:
                value["levels"][row.group("number")] = {
                    "text": row.group("text"),
                    "supported": row.group("supported") == "Supported",
                    "default": "(default)" in row.group("rest"),
                }
            else:
                problems.cut(line)
        elif line.text.startswith("-E-") or failure(line.text):
            value["errors"].append(line.text.removeprefix("-E-").strip())
            problems.add("mlxfwreset reports an error.", line)
    if not value["levels"] and not value["errors"] and not len(problems) and text and text.strip():
        problems.add("There is no answer of mlxfwreset in this text.")
    return problems.result(value)
