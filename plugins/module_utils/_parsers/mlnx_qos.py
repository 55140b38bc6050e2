# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``mlnx_qos -i DEV``: trust, DSCP map, PFC, buffers and ETS of a port.

Value::

    {"dcbx": "os" | "firmware", "trust": "dscp" | "pcp", "dscp_to_priority": {"26": 3},
     "buffer_size": [8 bytes], "max_buffer_size", "cable_length_m",
     "pfc": [8 bools], "prio_buffer": [8 ints],
     "priority_to_tc": [8 ints], "tcs": [{"tc", "ratelimit_gbps" (absent: unlimited), "tsa", "bandwidth_percent"}],
     "unsupported": [...], "warnings": [...], "errors": [...], "extra"}

A vector has all its elements or is absent.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    first_output,
    number,
    prompt_command,
    split_lines,
)

_PRIORITIES = 8
_DSCPS = 64
_DSCP = re.compile(r"^\s*prio:(\d+)\s+dscp:([\d,\s]*)$")
_ROW = re.compile(r"^\s*(priority|enabled|buffer)(?::(?=\s*\d+\s+\d))?\s+([\d\s]+)$")
_LIKE_A_ROW = re.compile(r"^\s+(?:enabled|buffer)\b")
_TC = re.compile(r"^tc:\s*(\d+)\s+ratelimit:\s*(unlimited|[\d.]+ ?Gbps),\s*tsa:\s*(\w+)(?:,\s*bw:\s*(\d+)%)?\s*$")
# Old releases say "up" (user priority), and list socket priorities below it.
_TC_PRIORITY = re.compile(r"^\s+(?:priority|up):\s*(\d+)?\s*$")
_BUFFERS = re.compile(r"^Receive buffer size \(bytes\):\s*([\d,]+?),?(?:(?:max_buffer|total)_size=(\d+))?\s*$")
_ERROR = re.compile(r"^(?:Traceback|Netdev|.*[Ee]rror\b|usage:|RuntimeError|Can't)")
_ONCE = re.compile(
    r"^(DCBX mode|Priority trust state|dscp2prio mapping|Receive buffer size|Cable len|PFC configuration|tc: \d+)\b"
)
_DCBX = {"OS controlled": "os", "Firmware controlled": "firmware"}
_TRUST = re.compile(r"^(dscp|pcp|both)$")


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"unsupported": [], "warnings": [], "errors": [], "extra": {}}
        self.priorities: dict[int, int] = {}
        self.tcs: dict[int, dict[str, Any]] = {}
        self.tc: int | None = None
        self.header: list[int] | None = None

    def read(self, line: Line) -> None:
        text = line.text.rstrip()
        if not text or prompt_command(text) is not None:
            return
        if re.match(r"^\*{3,}", text):
            self.value["warnings"].append(text.strip("* "))
        elif "not supported" in text or text.startswith("Unable to get"):
            if line.terminated or text.endswith("on your system"):
                self.value["unsupported"].append(text.strip())
            else:
                self.problems.cut(line)
        elif not (self._dscp(line) or self._vector(line) or self._tc(line) or self._field(line)):
            if _ERROR.match(text) or failure(text):
                self.value["errors"].append(text.strip())
                self.problems.add("mlnx_qos did not finish.", line)
            elif not line.terminated:
                self.problems.cut(line)

    def damaged(self, line: Line) -> None:
        self.problems.damaged(line)
        if not re.match(r"^\s+(?:prio:|enabled|buffer)", line.text):
            self.tc = self.header = None

    def _field(self, line: Line) -> bool:
        label, colon, said = line.text.partition(":")
        said = said.strip()
        known = {"DCBX mode": (_DCBX.get(said), "dcbx"), "Priority trust state": (said, "trust")}
        if not colon:
            return False
        if label in known:
            value, key = known[label]
            if key == "trust" and not _TRUST.match(said):
                value = None
            if value is not None:
                self.value[key] = value
            elif line.terminated:
                self.problems.add(f"'{said}' is no value of {label}.", line)
            else:
                self.problems.cut(line)
            return True
        if label == "Cable len":
            length = number(said)
            if length is not None and line.terminated:
                self.value["cable_length_m"] = length
            elif not line.terminated:
                self.problems.cut(line)
            return True
        match = _BUFFERS.match(line.text)
        if match:
            self._buffers(line, match)
            return True
        return label in ("dscp2prio mapping", "PFC configuration", "default priority")

    def _buffers(self, line: Line, match: re.Match[str]) -> None:
        sizes = [int(size) for size in match.group(1).split(",")]
        # Only what stands behind the sizes proves that the last of them has all its digits.
        if match.group(2) or line.terminated:
            self.value["buffer_size"] = sizes
        if match.group(2) and line.terminated:
            self.value["max_buffer_size"] = int(match.group(2))
        if not line.terminated:
            self.problems.cut(line)

    def _dscp(self, line: Line) -> bool:
        match = _DSCP.match(line.text)
        if not match:
            return False
        words = match.group(2).split(",")
        last = words.pop().strip()  # a comma stands behind every number
        if last and line.terminated:
            words.append(last)
        elif not line.terminated:
            self.problems.cut(line)
        table = self.value.setdefault("dscp_to_priority", {})
        for word in words:
            if not word.strip().isdigit():
                continue
            dscp, priority = str(int(word)), int(match.group(1))
            if table.setdefault(dscp, priority) != priority:
                self.problems.add(f"DSCP {dscp} stands under two priorities.", line)
        return True

    def _vector(self, line: Line) -> bool:
        match = _ROW.match(line.text)
        if not match and line.terminated and _LIKE_A_ROW.match(line.text):
            self.problems.add("The table of PFC is not whole.", line)
            return True
        if not match or (match.group(1) == "priority" and not line.indented):
            return False
        numbers = [int(word) for word in match.group(2).split()]
        if match.group(1) == "priority":
            self.header = numbers
            if not line.terminated:
                self.problems.cut(line)
            return True
        if not line.terminated and match.group(1) == "buffer":
            self.problems.cut(line)
        elif self.header != list(range(_PRIORITIES)) or len(numbers) != _PRIORITIES:
            if line.terminated:
                self.problems.add("The table of PFC is not whole.", line)
            else:
                self.problems.cut(line)
        elif match.group(1) == "enabled":
            self.value["pfc"] = [bool(bit) for bit in numbers]
        else:
            self.value["prio_buffer"] = numbers
        return True

    def _tc(self, line: Line) -> bool:
        match = _TC.match(line.text)
        if match:
            self.tc = None
            if not line.terminated and not match.group(4):
                self.problems.cut(line)
                return True
            self.tc = int(match.group(1))
            entry: dict[str, Any] = {"tc": self.tc, "tsa": match.group(3)}
            limit = number(match.group(2).replace("Gbps", ""))
            if limit is not None:
                entry["ratelimit_gbps"] = limit
            if match.group(4):
                entry["bandwidth_percent"] = int(match.group(4))
            self.tcs[self.tc] = entry
            return True
        match = _TC_PRIORITY.match(line.text)
        if not match:
            return False
        if not line.terminated:
            self.problems.cut(line)
        elif match.group(1) and self.tc is not None:
            priority = int(match.group(1))
            if self.priorities.setdefault(priority, self.tc) != self.tc:
                self.problems.add(f"Priority {priority} stands under two traffic classes.", line)
        return True

    def end(self) -> Parsed:
        if self.tcs:
            self.value["tcs"] = [self.tcs[tc] for tc in sorted(self.tcs)]
            if sorted(self.priorities) == list(range(_PRIORITIES)):
                self.value["priority_to_tc"] = [self.priorities[priority] for priority in range(_PRIORITIES)]
            else:
                self.problems.add(f"{len(self.priorities)} of 8 priorities stand under a traffic class.")
        mapped = len(self.value.get("dscp_to_priority", {}))
        if "dscp_to_priority" in self.value and mapped != _DSCPS:
            self.problems.add(f"{mapped} of 64 DSCP values have a priority.")
        return self.problems.result(self.value)


def parse(text: str) -> Parsed:
    """Read the output of ``mlnx_qos -i DEV``."""
    reader = _Reader()
    for line in first_output(split_lines(text), _ONCE, reader.problems):
        if line.damaged:
            reader.damaged(line)
        else:
            reader.read(line)
    known = set(reader.value) - {"unsupported", "warnings", "errors", "extra"}
    silent = not known and not reader.tcs and not reader.value["unsupported"] and not len(reader.problems)
    if silent and text and text.strip():
        reader.problems.add("There is no output of mlnx_qos in this text.")
    return reader.end()
