# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibdev2netdev`` and ``ibdev2netdev -v``: which network interface belongs to which RDMA port.

Value::

    {"form": "plain" | "verbose" | "empty",
     "mappings": [{"device", "port", "netdev", "status": "up" | "down" | "na",
                   # -v only; absent where the tool prints NA
                   "pci", "hca_type", "part_id", "description", "firmware", "port_state",
                   "comment", "host"}],
     "errors": [...], "partial": bool}

``status`` is the interface's, not the link's: an InfiniBand port without IPoIB is ``down`` and healthy.  Neither device
nor interface is unique: representors give a port several interfaces, a bond gives several devices one.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    pci_address,
    port_state,
    prompt_command,
    split_hosts,
    split_lines,
    whole_netdev,
)

# The description is free text of the card's VPD and may itself hold parentheses, "port" and "fw": the fixed words are
# looked for from the right, where the tool's own part is.
_ROW = re.compile(
    r"""^\s*
    (?:(?P<pci>NA|(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s+)?
    (?P<device>[A-Za-z][\w.-]*)
    (?:\s+\((?P<hca_type>[^\s()]*)\s+-\s*(?P<part_id>[^\s)]*)\s*\)\s*(?P<description>.*?)\s*\bfw\s+(?P<firmware>\S+))?
    \s+port\s+(?P<port>\d+)
    (?:\s+\((?P<port_state>[^()]*)\))?
    \s+(?:
        ==(?:>|&gt;)(?:\s+(?P<netdev>[^\s()]+))?\s+\((?P<status>\w+)\)
      | <===>\s+(?P<old_netdev>[^\s()]+)
    )
    \s*(?P<comment>[\#(].*)?$""",
    re.VERBOSE,
)
_ARROW = re.compile(r"==>|==&gt;")
_STATUS = {"up": "up", "down": "down", "na": "na"}


def _native(text: str) -> bool:
    return bool(_ROW.match(text))


def _known(text: str | None) -> str | None:
    text = (text or "").strip()
    return None if text in ("", "NA") else text


def _mapping(line: Line, match: re.Match[str], problems: Problems) -> dict[str, Any] | None:
    netdev = match.group("netdev") or match.group("old_netdev")
    if match.group("old_netdev") and not line.terminated and not match.group("comment") and not whole_netdev(netdev):
        problems.cut(line)
        return None
    mapping: dict[str, Any] = {"device": match.group("device"), "port": int(match.group("port"))}
    if netdev:
        mapping["netdev"] = netdev
    else:
        problems.add(f"{mapping['device']} port {mapping['port']}: the line names no interface.", line)
    status = match.group("status")
    if status:
        if status.lower() in _STATUS:
            mapping["status"] = _STATUS[status.lower()]
        else:
            problems.add(f"{mapping['device']} port {mapping['port']}: '{status}' is no status of an interface.", line)
    if _known(match.group("pci")):
        mapping["pci"] = pci_address(match.group("pci"))
    for key in ("hca_type", "part_id", "description", "firmware"):
        if _known(match.group(key)):
            mapping[key] = match.group(key).strip()
    if _known(match.group("port_state")):
        state = port_state(match.group("port_state"))
        if state:
            mapping["port_state"] = state
        else:
            problems.add(f"'{match.group('port_state').strip()}' is no state of a port.", line)
    if match.group("comment") and line.terminated:
        mapping["comment"] = match.group("comment").strip()
    return mapping


def parse(text: str) -> Parsed:
    """Read the output of ``ibdev2netdev`` with or without ``-v``; stderr may be mixed in."""
    problems = Problems()
    value: dict[str, Any] = {"mappings": [], "errors": [], "partial": False, "form": "empty"}
    lines = split_lines(text)
    for host, group in split_hosts(lines, native=_native):
        for line in group:
            if line.blank:
                continue
            if line.damaged:
                problems.damaged(line)
                value["partial"] = True
                continue
            match = _ROW.match(line.text)
            if match:
                mapping = _mapping(line, match, problems)
                if mapping is None:
                    value["partial"] = True
                    continue
                value["mappings"].append({**mapping, "host": host} if host else mapping)
                verbose = value["form"] == "verbose" or match.group("firmware")
                value["form"] = "verbose" if verbose else "plain"
            elif failure(line.text):
                value["errors"].append(line.text.strip())
                value["partial"] = True
                problems.add("ibdev2netdev did not finish.", line)
            elif _ARROW.search(line.text) and line.terminated:
                problems.add("ibdev2netdev prints no such line.", line)
                value["partial"] = True
            elif not line.terminated and prompt_command(line.text) is None:
                problems.cut(line)
                value["partial"] = True
    if not value["mappings"] and not len(problems) and any(not line.blank for line in lines):
        problems.add("There is no output of ibdev2netdev in this text.", text=lines[0].text)
    return problems.result(value)
