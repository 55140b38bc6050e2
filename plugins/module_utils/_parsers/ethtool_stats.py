# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool -S``: the driver's counters.

Value: ``{"counters": {name: int}, "errors": [...]}``.  Names differ between drivers and their versions; some hold a
colon themselves (``[0]: rx_bytes``), so that the value stands behind the last one.
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
    integer,
)

_COUNTER = re.compile(r"^\s+(\S.*?):\s*(-?\d+)\s*$")
_ONCE = re.compile(r"^(NIC statistics)")
_ERROR = re.compile(r"^(?:no stats available|Cannot get stats|netlink error)")


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool -S``."""
    problems = Problems()
    value: dict[str, Any] = {"counters": {}, "errors": []}
    started = False
    for line in first_output(believable(text, problems), _ONCE, problems):
        if line.text.startswith("NIC statistics"):
            started = True
            continue
        match = _COUNTER.match(line.text)
        if _ERROR.match(line.text) or failure(line.text):
            value["errors"].append(line.text.strip())
            problems.add("ethtool could not read the counters.", line)
        elif not line.terminated:
            problems.cut(line)
        elif match and match.group(1) not in value["counters"]:
            value["counters"][match.group(1)] = integer(match.group(2))
        elif match:
            problems.add(f"The counter {match.group(1)} stands there twice; the first value was kept.", line)
        elif started and line.indented:
            problems.add("This is no counter.", line)
    if not value["counters"] and not started and not len(problems) and text and text.strip():
        problems.add("There is no output of ethtool -S in this text.")
    return problems.result(value)
