# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibqueryerrors``: ports of the fabric whose error counters are beyond their thresholds.

Value::

    {"nodes": [{"guid", "description",
                "ports": [{"port": int | "all", "guid", "counters": {name: int}, "link": {as of iblinkinfo}}]}],
     "summary": {"nodes_checked", "bad_nodes", "ports_checked", "bad_ports"},
     "errors": [...]}
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
    split_lines,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers.iblinkinfo import LINK, link, short_guid

_NODE = re.compile(r'^\s*Errors for (?:(0x[0-9a-f]+) )?"(.*)"\s*$')
_PORT = re.compile(r"^\s+GUID (0x[0-9a-f]+) port (\d+|ALL):(.*)$", re.IGNORECASE)
_COUNTER = re.compile(r"\[([A-Za-z]\w*) == (\d+)(?: \([^)\]]*\))?\]")
_LINK = re.compile(r"^\s+Link info:\s*(.*)$")
_NODES = re.compile(r"^## Summary: (\d+) nodes checked, (\d+) bad nodes found\s*$")
_PORTS = re.compile(r"^##\s+(\d+) ports checked, (\d+) ports have errors beyond threshold\s*$")
_ERROR = re.compile(r"^(?:ibwarn|ibpanic|ibqueryerrors|discover failed|\S*\.c:\d+; )")
_ONCE = re.compile(r"^(## Summary):")


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"nodes": [], "summary": {}, "errors": []}
        self.node: dict[str, Any] | None = None
        self.port: dict[str, Any] | None = None

    def read(self, line: Line) -> None:
        if line.damaged:
            self.problems.damaged(line)
            self.port = None
            if not line.indented:
                self.node = None
            return
        node, port, peer = _NODE.match(line.text), _PORT.match(line.text), _LINK.match(line.text)
        nodes, ports = _NODES.match(line.text), _PORTS.match(line.text)
        if node:
            self._open(node)
        elif port:
            self._port(line, port)
        elif nodes:
            self.value["summary"].update(nodes_checked=int(nodes.group(1)), bad_nodes=int(nodes.group(2)))
        elif ports:
            self.value["summary"].update(ports_checked=int(ports.group(1)), bad_ports=int(ports.group(2)))
        elif _ERROR.match(line.text) or failure(line.text):
            self.value["errors"].append(line.text.strip())
            self.problems.add("ibqueryerrors did not finish.", line)
        elif peer:
            match = LINK.match(peer.group(1))
            if match and self.port is not None:
                self.port["link"] = link(match)
            elif not match:
                self._unread(line)
        elif not line.terminated and not line.blank:
            self.problems.cut(line)

    def _unread(self, line: Line) -> None:
        if line.terminated:
            self.problems.add("ibqueryerrors prints no such line.", line)
        else:
            self.problems.cut(line)

    def _open(self, match: re.Match[str]) -> None:
        self.node, self.port = {"description": match.group(2), "ports": []}, None
        if match.group(1):
            self.node["guid"] = short_guid(match.group(1))
        self.value["nodes"].append(self.node)

    def _port(self, line: Line, match: re.Match[str]) -> None:
        self.port = None
        if not line.terminated and not line.text.rstrip().endswith("]"):
            self.problems.cut(line)
        if self.node is None:
            if line.terminated:
                self.problems.add("The line that names this port's node is missing.", line)
            return
        number = match.group(2)
        self.port = {
            "port": int(number) if number.isdigit() else "all",
            "guid": short_guid(match.group(1)),
            "counters": {name: int(count) for name, count in _COUNTER.findall(match.group(3))},
        }
        self.node["ports"].append(self.port)


def parse(text: str) -> Parsed:
    """Read the output of ``ibqueryerrors``."""
    reader = _Reader()
    for line in first_output(split_lines(text), _ONCE, reader.problems):
        reader.read(line)
    said = reader.value["nodes"] or reader.value["summary"]
    if not said and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of ibqueryerrors in this text.")
    return reader.problems.result(reader.value)
