# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``iblinkinfo``: every link of an InfiniBand fabric, node by node or one per line (``-l``).

Value::

    {"nodes": [{"type": "ca" | "switch" | "router", "guid", "description",
                "ports": [{"lid", "port", "guid", "width", "lane_gbps", "rate_gbps", "speed", "state", "phys_state",
                           "peer": {"guid", "lid", "port", "description"}, "remark"}]}],
     "errors": [...]}

``width`` is the number of lanes and ``lane_gbps`` what the tool prints; ``rate_gbps`` is the link's nominal rate.  A
port without ``peer`` has none.  A node without ``type`` stands for links whose heading is not in the text.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    guid,
    number,
    phys_state,
    port_state,
    prompt_command,
    split_lines,
)

# Printed signalling rate of a lane → (name, nominal Gb/s).
SPEEDS = {
    "2.5": ("SDR", 2.5),
    "5.0": ("DDR", 5.0),
    "10.0": ("QDR", 10.0),
    "10.3125": ("FDR10", 10.0),
    "14.0625": ("FDR", 14.0),
    "25.78125": ("EDR", 25.0),
    "53.125": ("HDR", 50.0),
    "106.25": ("NDR", 100.0),
    "212.5": ("XDR", 200.0),
}
_TYPES = {"ca": "ca", "switch": "switch", "router": "router"}
_HEADER = re.compile(r"^\s*(CA|Switch|Router): (?:(0x[0-9a-f]+) )?(.*?):\s*$")
LINK = re.compile(
    r"""^\s*(?:(?P<guid>0x[0-9a-f]+)\s+)?(?:"(?P<own>[^"]*)"\s+)?
    (?P<lid>\d+)\s+(?P<port>\d+)\[\s*\S*\s*\]\s*
    ==\(\s*(?:(?P<width>\d+)X\s*(?P<lane>[\d.]+)\s*Gbps(?:\s*\((?P<name>\w+)\))?)?\s*(?P<state>[A-Za-z?]+)/\s*(?P<phys>[A-Za-z?]+)\s*\)==>\s*
    (?:(?P<peer_guid>0x[0-9a-f]+)\s+)?(?:(?P<peer_lid>\d+)\s+(?P<peer_port>\d+))?\s*\[\s*\S*\s*\]\s*
    "(?P<peer>[^"]*)"\s*\((?P<remark>.*)\)\s*$""",
    re.VERBOSE,
)
_ERROR = re.compile(r"^(?:ibwarn|ibpanic|iblinkinfo|discover failed|.*[Ff]ailed\b)")


def _known_speed(lane: float | None) -> tuple[str, float] | None:
    """The speed of a lane, of which some releases print fewer digits."""
    return next((known for text, known in SPEEDS.items() if lane is not None and abs(float(text) - lane) < 0.01), None)


def short_guid(text: str) -> str | None:
    """A GUID whose leading zeros the tool leaves out."""
    digits = text[2:] if text.startswith("0x") else text
    return guid(digits.rjust(16, "0"))


def link(match: re.Match[str]) -> dict[str, Any]:
    """The values of a line that ``LINK`` matches."""
    port: dict[str, Any] = {"lid": int(match.group("lid")), "port": int(match.group("port"))}
    if match.group("guid"):
        port["guid"] = short_guid(match.group("guid"))
    if match.group("width"):
        port["width"] = int(match.group("width"))
        port["lane_gbps"] = number(match.group("lane"))
        known = _known_speed(port["lane_gbps"])
        if known:
            port["speed"], port["rate_gbps"] = match.group("name") or known[0], known[1] * port["width"]
    for key, value in (("state", port_state(match.group("state"))), ("phys_state", phys_state(match.group("phys")))):
        if value is not None:
            port[key] = value
    if match.group("peer_lid") or match.group("peer"):
        peer: dict[str, Any] = {"description": match.group("peer")}
        if match.group("peer_guid"):
            peer["guid"] = short_guid(match.group("peer_guid"))
        if match.group("peer_lid"):
            peer.update(lid=int(match.group("peer_lid")), port=int(match.group("peer_port")))
        port["peer"] = peer
    remark = match.group("remark").strip()
    if remark:
        port["remark"] = remark
    return port


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"nodes": [], "errors": []}
        self.node: dict[str, Any] | None = None
        self.lost = False
        self.by_guid: dict[tuple[str, str], dict[str, Any]] = {}

    def read(self, line: Line) -> None:
        match = LINK.match(line.text)
        header = _HEADER.match(line.text)
        if line.damaged:
            self.problems.damaged(line)
            # A damaged line with an arrow is a link; any other may have been the heading of the next node.
            if "==" not in line.text:
                self.lost, self.node = True, None
        elif line.blank or prompt_command(line.text) is not None:
            return
        elif match:
            self._link(match)
        elif header and line.terminated:  # a node's description may hold colons itself
            self._open(header)
        elif _ERROR.match(line.text) or failure(line.text):
            self.value["errors"].append(line.text.strip())
            self.problems.add("iblinkinfo did not finish.", line)
        elif not line.terminated:
            self.problems.cut(line)
        elif "==(" in line.text:
            self.problems.add("iblinkinfo prints no such line.", line)

    def _open(self, match: re.Match[str]) -> None:
        self.node = {"type": _TYPES[match.group(1).lower()], "description": match.group(3), "ports": []}
        if match.group(2):
            self.node["guid"] = short_guid(match.group(2))
        self.value["nodes"].append(self.node)
        self.lost = False

    def _link(self, match: re.Match[str]) -> None:
        port = link(match)
        if match.group("own") is not None:  # -l: every line names its own node
            key = (port.get("guid", ""), match.group("own").strip())
            if key not in self.by_guid:
                self.by_guid[key] = {"description": key[1], "ports": []}
                if port.get("guid"):
                    self.by_guid[key]["guid"] = port["guid"]
                self.value["nodes"].append(self.by_guid[key])
            self.by_guid[key]["ports"].append(port)
        elif not self.lost:
            if self.node is None:
                self.node = {"ports": []}
                self.value["nodes"].append(self.node)
                self.problems.add("The heading of the first links is not in the text.")
            if self._foreign(self.node, port):
                self.problems.add("The heading of these links is not in the text.", text=match.group(0))
                self.lost, self.node = True, None
            else:
                self.node["ports"].append(port)

    @staticmethod
    def _foreign(node: dict[str, Any], port: dict[str, Any]) -> bool:
        """Links of CAs begin with a GUID, those of a switch share its LID."""
        if node.get("type") == "switch":
            return "guid" in port or bool(node["ports"] and node["ports"][0]["lid"] != port["lid"])
        return node.get("type") == "ca" and "guid" not in port


def parse(text: str) -> Parsed:
    """Read the output of ``iblinkinfo``."""
    reader = _Reader()
    for line in split_lines(text):
        reader.read(line)
    if not reader.value["nodes"] and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of iblinkinfo in this text.")
    return reader.problems.result(reader.value)
