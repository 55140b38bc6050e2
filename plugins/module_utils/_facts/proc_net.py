# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Procfs' network tables."""

from __future__ import annotations

import socket
import struct
from typing import Any

__all__ = ["parse_bonding", "parse_proc_route"]

_RTF_UP = 0x1


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
