# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``show_gids`` of mlnx-tools: the GID tables of all RDMA ports.

Value::

    {"gids": [{"device", "port", "index", "gid", "ipv4", "version": "v1" | "v2", "type": "RoCE v1" | "RoCE v2",
               "netdev", "host"}],
     "count": number the tool says it found, "errors": [...], "partial": bool}

``type`` is absent where ``v1`` may as well mean an InfiniBand GID.  The tool prints an IPv4 address for every GID whose
first group is zero; it is kept only where the GID is an IPv4-mapped one.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    ipv4_of_gid,
    prompt_command,
    split_hosts,
    split_lines,
    whole_netdev,
)

_ROW = re.compile(
    r"^\s*(?P<device>[A-Za-z][\w.-]*)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){7})"
    r"(?P<rest>\s.*)?$"
)
_LIKE_A_ROW = re.compile(r"^\s*[A-Za-z][\w.-]*\s+\d+\s+\d+\s+\S*:")
_COUNT = re.compile(r"^\s*n_gids_found=(\d+)\s*$")
_HEADER = re.compile(r"^\s*(?:DEV\s+PORT\s+INDEX\s+GID\b|---+\s+---)")
_IPV4 = re.compile(r"^\d{1,3}(?:\.\d{1,3}){3}$")
_VERSION = re.compile(r"^v[12]$", re.IGNORECASE)


def _native(text: str) -> bool:
    return bool(_ROW.match(text) or _COUNT.match(text) or _HEADER.match(text))


def _row(line: Line, match: re.Match[str], problems: Problems) -> dict[str, Any]:
    gid = match.group("gid").lower()
    row: dict[str, Any] = {
        "device": match.group("device"),
        "port": int(match.group("port")),
        "index": int(match.group("index")),
        "gid": gid,
    }
    rest = match.group("rest") or ""
    words = rest.split()
    if not line.terminated and not (words and rest[-1:].isspace() and len(words) > 1):
        # Of the words of a cut row, the last may lack its end; a version and a port's name prove that theirs is there.
        if words and not _VERSION.match(words[-1]) and not whole_netdev(words[-1]):
            words.pop()
            problems.cut(line)
        elif not words or _VERSION.match(words[-1]):
            problems.cut(line)
    printed = words.pop(0) if words and _IPV4.match(words[0]) else None
    address = ipv4_of_gid(gid)
    if address:
        row["ipv4"] = address
    if printed and printed != address:
        problems.add(f"The IPv4 column says {printed}, which is not what the GID holds.", line)
    if words and _VERSION.match(words[0]):
        row["version"] = words.pop(0).lower()
    if len(words) == 1:
        row["netdev"] = words[0]
    elif words:
        problems.add(f"There are words behind the GID that show_gids does not print: {' '.join(words)}.", line)
    if not line.terminated and "netdev" not in row:
        problems.cut(line)
    if row.get("version") == "v2" or (row.get("version") and "netdev" in row):
        row["type"] = "RoCE " + row["version"]
    return row


def parse(text: str) -> Parsed:
    """Read the output of ``show_gids``; stderr may be mixed in."""
    problems = Problems()
    value: dict[str, Any] = {"gids": [], "errors": [], "partial": False}
    lines = split_lines(text)
    found = 0
    counted = False
    for host, group in split_hosts(lines, native=_native):
        for line in group:
            if line.blank:
                continue
            if line.damaged:
                problems.damaged(line)
                value["partial"] = True
                continue
            match = _ROW.match(line.text)
            count = _COUNT.match(line.text)
            if match:
                row = _row(line, match, problems)
                value["gids"].append({**row, "host": host} if host else row)
            elif count and line.terminated:
                found += int(count.group(1))
                counted = True
            elif failure(line.text):
                value["errors"].append(line.text.strip())
                value["partial"] = True
                problems.add("show_gids did not finish.", line)
            elif line.terminated and _LIKE_A_ROW.match(line.text):
                problems.add("This is no entry of a GID table.", line)
            elif not line.terminated and not _HEADER.match(line.text) and prompt_command(line.text) is None:
                problems.cut(line)
    if counted:
        value["count"] = found
        if found != len(value["gids"]):
            value["partial"] = True
            problems.add(f"show_gids found {found} GIDs, of which {len(value['gids'])} could be read.")
    else:
        value["partial"] = value["partial"] or bool(value["gids"])
    if not value["gids"] and not counted and not len(problems):
        filled = [line for line in lines if not line.blank and not _HEADER.match(line.text)]
        if filled:
            problems.add("There is no output of show_gids in this text.", filled[0])
    return problems.result(value)
