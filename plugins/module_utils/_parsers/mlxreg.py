# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``mlxreg -d DEV --reg_name NAME --get``: the fields of an access register.

Value: ``{"fields": {name: int}, "errors": [...]}``
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    believable,
    failure,
)

_ROW = re.compile(r"^\s*(?P<name>[a-z][a-z0-9_\[\].]*)\s*\|\s*(?P<value>0x[0-9a-fA-F]{1,16})\s*$")


def parse(text: str) -> Parsed:
    problems = Problems()
    value: dict[str, Any] = {"fields": {}, "errors": []}
    for line in believable(text, problems):
        row = _ROW.match(line.text)
        if row and line.terminated:
            number = int(row.group("value"), 16)
            if value["fields"].setdefault(row.group("name"), number) != number:
                problems.add(f"{row.group('name')} stands there twice; the first value was kept.", line)
        elif row:
            problems.cut(line)
        elif line.text.lstrip().startswith("-E-") or failure(line.text):
            value["errors"].append(line.text.strip().removeprefix("-E-").strip())
            problems.add("mlxreg reports an error.", line)
    if not value["fields"] and not value["errors"] and not len(problems) and text and text.strip():
        problems.add("There is no register in this text.")
    return problems.result(value)
