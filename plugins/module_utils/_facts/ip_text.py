# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Text forms of iproute2's answers and of procfs' network tables."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from typing import Any

__all__ = ["parse_bonding", "parse_brief_addresses", "parse_proc_route", "parse_routes", "parse_rules"]

_STATES = {"UP", "DOWN", "UNKNOWN", "DORMANT", "LOWERLAYERDOWN", "TESTING", "NOTPRESENT"}
_ROUTE_TYPES = {
    "unicast",
    "local",
    "broadcast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "anycast",
}
_RTF_UP = 0x1


def parse_brief_addresses(text: str) -> list[dict[str, Any]]:
    """`ip -br addr`: name, state, addresses."""
    rows = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 2 or fields[1] not in _STATES:
            continue
        name, _, peer = fields[0].partition("@")
        row: dict[str, Any] = {"ifname": name, "operstate": fields[1].lower(), "addresses": []}
        if peer:
            row["peer"] = peer
        for field in fields[2:]:
            try:
                ipaddress.ip_interface(field)
            except ValueError:
                continue
            row["addresses"].append(field)
        rows.append(row)
    return rows


def parse_routes(text: str, family: int = 4) -> list[dict[str, Any]]:
    """`ip route [show table all]` as text."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if fields and fields[0] in _ROUTE_TYPES:
            if fields[0] != "unicast":
                continue
            fields = fields[1:]
        if not fields:
            continue
        if fields[0] != "default":
            try:
                network = ipaddress.ip_network(fields[0], strict=False)
            except ValueError:
                continue
            route: dict[str, Any] = {"dst": str(network), "family": network.version}
        else:
            route = {"dst": "default", "family": family}
        for key, value in zip(fields[1:], fields[2:]):
            if key in ("via", "dev", "table", "src", "metric"):
                route.setdefault(key, value)
        if ":" in route.get("via", ""):
            route["family"] = 6
        route.setdefault("table", "main")
        if "metric" in route:
            if not route["metric"].isdecimal():
                continue
            route["metric"] = int(route["metric"])
        found.append(route)
    return found


def parse_rules(text: str, family: int = 4) -> list[dict[str, Any]]:
    """`ip rule`: `100:	from 10.0.0.4 lookup 101`."""
    found = []
    for line in text.splitlines():
        match = re.match(r"(\d+):\s+(?:not )?from (\S+)(?:.*?)\s+lookup (\S+)", line)
        if match:
            found.append(
                {"priority": int(match.group(1)), "from": match.group(2), "table": match.group(3), "family": family}
            )
    return found


def parse_proc_route(text: str) -> list[dict[str, Any]]:
    """`/proc/net/route`: the main IPv4 table, addresses as little-endian hexadecimal."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8:
            continue
        try:
            destination, gateway, flags, mask = (int(fields[index], 16) for index in (1, 2, 3, 7))
            metric = int(fields[6])
        except ValueError:
            continue
        if not flags & _RTF_UP:
            continue
        prefix = bin(mask).count("1")
        route: dict[str, Any] = {
            "dst": f"{_dotted(destination)}/{prefix}" if destination or prefix else "default",
            "dev": fields[0],
            "table": "main",
            "metric": metric,
            "family": 4,
        }
        if gateway:
            route["via"] = _dotted(gateway)
        found.append(route)
    return found


def _dotted(value: int) -> str:
    # The kernel prints the word as it lies in memory.
    return socket.inet_ntoa(struct.pack("<I", value))


def parse_bonding(text: str) -> dict[str, Any]:
    """`/proc/net/bonding/<bond>`."""
    found: dict[str, Any] = {}
    members: list[str] = []
    up: list[str] = []
    speeds: dict[str, int] = {}
    current = None
    for line in text.splitlines():
        key, separator, value = (part.strip() for part in line.partition(":"))
        if not separator:
            continue
        if key == "Bonding Mode":
            found["mode_text"] = value
            found["mode"] = _BOND_MODES.get(value.split("(")[0].strip(), value)
        elif key == "Transmit Hash Policy":
            found["xmit_hash_policy"] = value.split()[0]
        elif key == "Currently Active Slave":
            found["active"] = [value] if value != "None" else []
        elif key == "Slave Interface":
            current = value
            members.append(value)
        elif key == "MII Status" and current is not None and value == "up":
            up.append(current)
        elif key == "Speed" and current is not None and value.split()[:1] and value.split()[0].isdecimal():
            speeds[current] = int(value.split()[0])
    if members:
        found["members"] = members
        found.setdefault("active", up)
    if speeds:
        found["member_speeds_mbps"] = speeds
    return found


_BOND_MODES = {
    "IEEE 802.3ad Dynamic link aggregation": "802.3ad",
    "fault-tolerance": "active-backup",
    "load balancing": "balance-rr",
    "transmit load balancing": "balance-tlb",
    "adaptive load balancing": "balance-alb",
}
