# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ofed_info -s`` and the first line of ``ofed_info``: which OFED is installed.

Value: ``{"name": "MLNX_OFED_LINUX", "version": "24.10-1.1.4.0", "text", "errors"}``.
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

# MLNX_OFED_LINUX-24.10-1.1.4.0:   OFED-internal-25.10-1.7.1:   MLNX_OFED_LINUX-5.8-1.1.2.1 (OFED-5.8-1.1.2):
_LINE = re.compile(
    r"^\s*(([A-Z_-]*OFED[\w-]*?|DOCA[\w-]*?)-(\d[\w.]*(?:-[\w.]+)*))(?: \([^)]*\))?\s*(:?)\s*$", re.IGNORECASE
)


def parse(text: str) -> Parsed:
    """Read the output of ``ofed_info``."""
    problems = Problems()
    value: dict[str, Any] = {"errors": []}
    for line in believable(text, problems):
        match = _LINE.match(line.text)
        if failure(line.text):
            value["errors"].append(line.text.strip())
            problems.add("ofed_info did not answer.", line)
        elif match and "version" not in value:
            if line.terminated or match.group(4):
                value.update(name=match.group(2), version=match.group(3), text=match.group(1))
                continue
            problems.cut(line)
        elif "version" in value:
            # The packages that follow are none of this parser's.
            if match and line.terminated and match.group(2) == value["name"] and match.group(3) != value["version"]:
                problems.add("Another release stands here; the first one was kept.", line)
        elif not line.terminated:
            problems.cut(line)
    if "version" not in value and not len(problems) and text and text.strip():
        problems.add("There is no output of ofed_info in this text.")
    return problems.result(value)
