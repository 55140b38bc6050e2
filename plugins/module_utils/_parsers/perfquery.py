# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``perfquery``, ``-x`` and those of its options that show details (``-E`` …): the counters of InfiniBand ports.

Value::

    {"ports": [{"lid", "port": int | "all", "extended": bool, "details", "capability_mask", "counters": {name: int},
                "extra": {name: text}}],
     "errors": [...], "partial": bool}

``details`` names other counters than those of the port (``PortRcvErrorDetails``).  PortXmitData and PortRcvData count
4-byte words.  ``port`` 255 stands for all ports too.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    integer,
    split_lines,
)

_HEADER = re.compile(
    r"^# (?:Port (?P<extended>extended )?|(?P<details>Port\w+) )counters: "
    r"(?:Lid (?P<lid>\d+)|(?P<place>DR path \S+|GUID \S+))"
    r" port (?P<port>\d+|all)\b"
    r"(?: \(CapMask: (?P<mask>0x[0-9A-Fa-f]+)[^)]*\))?\s*$",
    re.IGNORECASE,
)
_COUNTER = re.compile(r"^([A-Za-z][\w ]*?):\.*\s*(-?\w+)\s*$")
_SELECTORS = ("PortSelect", "CounterSelect", "CounterSelect2")
_ERROR = re.compile(r"^(?:ibwarn|ibpanic|perfquery|iberror):")


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"ports": [], "errors": [], "partial": False}
        self.port: dict[str, Any] | None = None

    def read(self, line: Line) -> None:
        header = _HEADER.match(line.text)
        counter = _COUNTER.match(line.text)
        if line.blank:
            return
        if _ERROR.match(line.text) or failure(line.text):
            self.value["errors"].append(line.text.strip())
            self.problems.add("perfquery did not finish.", line)
        elif header:
            self._open(line, header)
        elif not line.terminated:
            self.problems.cut(line)
        elif counter:
            self._counter(line, counter.group(1), counter.group(2))
        elif line.text.startswith("#"):
            self.port = None  # the header of another kind of counters

    def _open(self, line: Line, match: re.Match[str]) -> None:
        self.port = None
        # Without its end a header may lack digits of the port; its parenthesis or newline closes it.
        if not line.terminated and not match.group("mask"):
            self.problems.cut(line)
            return
        self.port = {"extended": bool(match.group("extended")), "counters": {}, "extra": {}}
        if match.group("details"):
            self.port["details"] = match.group("details")
        port = match.group("port").lower()
        self.port["port"] = int(port) if port.isdigit() else "all"
        if match.group("lid"):
            self.port["lid"] = int(match.group("lid"))
        elif match.group("place"):
            self.port["extra"]["address"] = match.group("place")
        if match.group("mask"):
            self.port["capability_mask"] = match.group("mask").lower()
        self.value["ports"].append(self.port)

    def _counter(self, line: Line, name: str, text: str) -> None:
        if self.port is None:
            return
        if name in self.port["counters"] or name in self.port["extra"]:
            self.problems.add("The line that names this port is missing.", line)
            self.port = None
        elif name in _SELECTORS:
            self.port["extra"][name] = text
        elif integer(text) is None:
            self.problems.add(f"'{text}' is no count.", line)
        else:
            self.port["counters"][name] = integer(text)

    def damaged(self, line: Line) -> None:
        self.problems.damaged(line)
        if not re.match(r"^[A-Za-z]\w*:\.", line.text):
            self.port = None


def parse(text: str) -> Parsed:
    """Read the output of ``perfquery``."""
    reader = _Reader()
    for line in split_lines(text):
        if line.damaged:
            reader.damaged(line)
        else:
            reader.read(line)
    reader.value["partial"] = len(reader.problems) > 0
    if not reader.value["ports"] and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of perfquery in this text.")
    return reader.problems.result(reader.value)
