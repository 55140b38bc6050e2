# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibnetdiscover`` (and ``-p``): the links of an InfiniBand fabric; ``-l``, ``ibhosts`` and ``ibswitches``: its nodes.

Value::

    {"links": [{"type": "ca" | "switch" | "router", "lid", "port", "guid", "description", "width", "speed",
                "peer": {"type", "lid", "port", "guid", "description"}}],
     "nodes": [{"type", "guid", "system_image_guid", "description", "lid", "number_of_ports"}],
     "errors": [...]}

Each link stands there once from either end, as the tool prints it.  ``speed`` is absent for ``???``; a link without
``peer`` leads to nothing that answers.  ``guid`` of a CA is its port's, ``nodes`` (not with ``-p``) have the node's.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    split_lines,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers.iblinkinfo import short_guid

_TYPES = {
    "CA": "ca",
    "SW": "switch",
    "RT": "router",
    "Ca": "ca",
    "Switch": "switch",
    "Rt": "router",
    "Router": "router",
}
_LETTERS = {"H": "ca", "S": "switch", "R": "router"}
_END = r"(CA|SW|RT)\s+(\d+)\s+(\d+)\s+(0x[0-9a-f]+)"
_ROW = re.compile(rf"^{_END}\s+(\d+)x\s+(\S+)\s+(?:-\s+{_END}\s+\(\s*'(.*)'\s+-\s+'(.*)'\s*\)|'(.*)')\s*$")
# An old release writes what leads nowhere without quotes.
_LONE_ROW = re.compile(rf"^{_END}\s+(\d+)x\s+(\S+)\s{{3,}}([^'\s].*?)\s*$")
_NODE = re.compile(
    r'^(Switch|Ca|Rt)\s+(\d+)\s+"([HSR])-([0-9a-f]+)"\s+#\s+"(.*)"(?:\s+.*?\blid\s+(\d+)\s+lmc\s+\d+)?\s*$'
)
_LISTED = re.compile(
    r'^(Switch|Ca|Rt|Router)\s*: (0x[0-9a-f]+) ports (\d+) (?:devid 0x[0-9a-f]+ vendid 0x[0-9a-f]+ )?"(.*)"'
    r"(?: .*?\blid (\d+) lmc \d+)?\s*$"
)
_EDGE = re.compile(
    r'^\[(?P<port>\d+)\](?:\[ext \d+\])?(?:\((?P<guid>[0-9a-f]+)\))?\s+"(?P<letter>[HSR])-(?P<peer>[0-9a-f]+)"'
    r"\[(?P<peer_port>\d+)\](?:\[ext \d+\])?(?:\((?P<peer_guid>[0-9a-f]+)\))?\s+#\s+"
    r'(?:lid (?P<lid>\d+) lmc \d+ )?"(?P<description>.*)" lid (?P<peer_lid>\d+) (?P<width>\d+)x(?P<speed>\S+)\s*$'
)
_IDENTITY = re.compile(r"^(sysimgguid|switchguid|caguid|rtguid)=(0x[0-9a-f]+)")
_ERROR = re.compile(r"^(?:ibwarn|ibpanic|ibnetdiscover|.*discover failed|src/)")


def _end(groups: tuple[Any, ...], description: str) -> dict[str, Any]:
    kind, lid, port, port_guid = groups
    return {
        "type": _TYPES[kind],
        "lid": int(lid),
        "port": int(port),
        "guid": short_guid(port_guid),
        "description": description,
    }


def _row(match: re.Match[str]) -> dict[str, Any]:
    groups = match.groups()
    row = _end(groups[0:4], groups[12] if groups[12] is not None else groups[10])
    row["width"] = int(groups[4])
    if groups[5] != "???":
        row["speed"] = groups[5]
    if groups[6]:
        row["peer"] = _end(groups[6:10], groups[11])
    return row


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"links": [], "nodes": [], "errors": []}
        self.node: dict[str, Any] | None = None
        self.identity: dict[str, str] = {}

    def read(self, line: Line) -> None:
        if line.damaged:
            self.problems.damaged(line)
            if not line.text.startswith("["):
                self.node, self.identity = None, {}
            return
        row, node, edge = _ROW.match(line.text), _NODE.match(line.text), _EDGE.match(line.text)
        identity, listed = _IDENTITY.match(line.text), _LISTED.match(line.text)
        if line.blank:
            if line.terminated:
                self.node, self.identity = None, {}
        elif row:
            self.value["links"].append(_row(row))  # a parenthesis or a quote closes it
        elif _ERROR.match(line.text) or failure(line.text):
            self.value["errors"].append(line.text.strip())
            self.problems.add("ibnetdiscover did not finish.", line)
        elif not line.terminated:
            self.problems.cut(line)
        elif _LONE_ROW.match(line.text):
            self._lone(line.text)
        elif listed:
            self._listed(listed)
        elif identity:
            self.identity[identity.group(1)] = short_guid(identity.group(2)) or ""
        elif node:
            self._open(node)
        elif edge and self.node is not None:
            self._edge(edge)
        elif line.text.startswith(("CA ", "SW ", "[")):
            self.problems.add("ibnetdiscover prints no such line.", line)

    def _open(self, match: re.Match[str]) -> None:
        self.node = {
            "type": _TYPES[match.group(1)],
            "number_of_ports": int(match.group(2)),
            "guid": short_guid(match.group(4)),
            "description": match.group(5),
        }
        if match.group(6):
            self.node["lid"] = int(match.group(6))
        if self.identity.get("sysimgguid"):
            self.node["system_image_guid"] = self.identity["sysimgguid"]
        self.value["nodes"].append(self.node)

    def _lone(self, text: str) -> None:
        match = _LONE_ROW.match(text)
        if match:
            row = {**_end(match.groups()[:4], match.group(7)), "width": int(match.group(5))}
            if match.group(6) != "???":
                row["speed"] = match.group(6)
            self.value["links"].append(row)

    def _listed(self, match: re.Match[str]) -> None:
        node = {
            "type": _TYPES[match.group(1)],
            "number_of_ports": int(match.group(3)),
            "guid": short_guid(match.group(2)),
            "description": match.group(4),
        }
        if match.group(5):
            node["lid"] = int(match.group(5))
        self.value["nodes"].append(node)

    def _edge(self, match: re.Match[str]) -> None:
        assert self.node is not None
        row = {
            "type": self.node["type"],
            "port": int(match.group("port")),
            "guid": short_guid(match.group("guid")) if match.group("guid") else self.node["guid"],
            "description": self.node["description"],
            "width": int(match.group("width")),
            "peer": {
                "type": _LETTERS[match.group("letter")],
                "lid": int(match.group("peer_lid")),
                "port": int(match.group("peer_port")),
                "guid": short_guid(match.group("peer_guid") or match.group("peer")),
                "description": match.group("description"),
            },
        }
        lid = match.group("lid") or self.node.get("lid")
        if lid is not None:
            row["lid"] = int(lid)
        if match.group("speed") != "???":
            row["speed"] = match.group("speed")
        self.value["links"].append(row)


def parse(text: str) -> Parsed:
    """Read the output of ``ibnetdiscover`` in its port (``-p``) or topology form."""
    reader = _Reader()
    for line in split_lines(text):
        reader.read(line)
    if not reader.value["links"] and not reader.value["nodes"] and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of ibnetdiscover in this text.")
    return reader.problems.result(reader.value)
