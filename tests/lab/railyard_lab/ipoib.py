# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IP over InfiniBand: a port's interface and those of its partitions.

A container can have no interface of type 32. A port's is a veth on the fabric's one switch, a partition's is a macvlan
over it; `ip` and sysfs show both as ib_ipoib has them. So addresses, routes and packets are the kernel's own.
"""

from __future__ import annotations

from typing import Any

DEFAULT_PKEY = 0xFFFF
ENCAPSULATION = 4
PKEY_SLOTS = 16
_BROADCAST_HEAD = "00:ff:ff:ff:ff:12:40:1b"


def ports(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """InfiniBand NICs by the name of their interface."""
    found = (nic for nic in state["nics"] if nic["link_layer"] == "InfiniBand" and not nic["sw_mng"])
    return {nic["netdev"]: nic for nic in found if nic["netdev"]}


def loaded(state: dict[str, Any]) -> bool:
    return "ib_ipoib" in state["modules"]


def children(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Interfaces of partitions: name -> {parent, pkey, mode}."""
    return state.get("ipoib", {})


def pkeys(nic: dict[str, Any]) -> list[int]:
    """The port's P_Key table, as the subnet manager filled it."""
    return [int(key, 16) for key in nic.get("pkeys", ["0xffff"])]


def pkey(state: dict[str, Any], name: str) -> int:
    return int(children(state)[name]["pkey"], 16) if name in children(state) else DEFAULT_PKEY


def port_of(state: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The NIC under an interface of IP over InfiniBand."""
    return ports(state).get(children(state)[name]["parent"] if name in children(state) else name)


def joined(state: dict[str, Any], name: str) -> bool:
    """Whether the interface is in its broadcast group: the port is active and has the key. Else it has no carrier."""
    nic = port_of(state, name)
    wanted = pkey(state, name) & 0x7FFF
    return bool(nic and nic["cable"] and state["sm"]["lid"] and any(key & 0x7FFF == wanted for key in pkeys(nic)))


def mode(state: dict[str, Any], name: str) -> str:
    if name in children(state):
        return children(state)[name]["mode"]
    return ports(state)[name].get("ipoib_mode", "datagram")


def group_mtu(state: dict[str, Any]) -> int:
    """What the broadcast group allows; an interface never has more."""
    return state["sm"].get("mtu", 4096) - ENCAPSULATION


def address(nic: dict[str, Any], key: int = DEFAULT_PKEY) -> str:
    """Flags and queue pair (each interface has its own), the subnet's prefix, the port's GUID."""
    guid = ":".join(nic["node_guid"][i : i + 2] for i in range(0, 16, 2))
    pair = "10:29" if key == DEFAULT_PKEY else f"11:{key & 0xFF:02x}"
    return f"00:00:{pair}:fe:80:00:00:00:00:00:00:{guid}"


def broadcast(key: int) -> str:
    return f"{_BROADCAST_HEAD}:{key >> 8:02x}:{key & 0xFF:02x}:00:00:00:00:00:00:ff:ff:ff:ff"
