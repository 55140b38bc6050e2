# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an RDMA port is at this moment: firmware's settings, the cable and the interface above it, taken together."""

from __future__ import annotations

import ipaddress
from typing import Any

from railyard_lab import catalogue, identity, link
from railyard_lab.interfaces import Interface

STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE"}
PHYSICAL = {1: "Sleep", 2: "Polling", 3: "Disabled", 5: "LinkUp", 6: "LinkErrorRecovery"}
MTU_CODES = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
#: Kernel's iboe_get_mtu: GRH, UDP, BTH, ICRC, atomic header and immediate fit beside the payload.
ROCE_OVERHEAD = 96
DEFAULT_GIDS = 2  # slots 0 and 1 of a RoCE port: made of the MAC address, v1 and v2
ZERO_GID = ":".join(["0000"] * 8)


def roce_mtu(interface_mtu: int) -> int:
    return max((size for size in MTU_CODES if size <= interface_mtu - ROCE_OVERHEAD), default=256)


def view(state: dict[str, Any], nic: dict[str, Any], interfaces: dict[str, Interface]) -> dict[str, Any]:
    """Numbers and names of port 1 of a NIC's RDMA device."""
    interface = interfaces.get(nic["netdev"]) if nic["netdev"] else None
    ethernet = nic["link_layer"] == "Ethernet"
    nominal = link.rate(nic)
    if ethernet:
        up = nic["cable"] and interface is not None and interface.up and interface.carrier
        logical, physical = (4, 5) if up else (1, 3)
        mtu = roce_mtu(interface.mtu if interface else 1500)
        lid = sm_lid = 0
        mask = 0x00010000
    else:
        up = nic["cable"]
        sm_lid = state["sm"]["lid"] if not nic["sw_mng"] else 1
        logical, physical = ((4 if sm_lid else 2), 5) if up else (1, 2)
        mtu = 4096
        lid = nic["lid"] if up and sm_lid else 65535
        mask = int(nic["capability_mask"] or "0xa751e848", 16)
        if logical == 1:
            sm_lid = 0
    # A port without a link reports the slowest rate that its driver can name.
    rate = nominal if up else (40 if ethernet else 10)
    mac = interface.mac if interface is not None and interface.mac else nic["mac"]
    guid = nic["node_guid"] if not ethernet else identity.eui64(mac)
    return {
        "state": logical,
        "phys_state": physical,
        "up": up,
        "rate_gbps": rate,
        "rate_text": catalogue.RATE_TEXT.get(rate, f"{rate} Gb/sec (4X EDR)"),
        "link_layer": nic["link_layer"],
        "lid": lid,
        "sm_lid": sm_lid,
        "lmc": 0,
        "capability_mask": mask,
        "active_mtu": mtu if up or ethernet else 4096,
        "max_mtu": 4096,
        "port_guid": guid,
        "netdev": nic["netdev"],
        "interface": interface,
        "gids": gids(state, nic, guid, interfaces),
    }


def _gid_text(address: str) -> str:
    parsed = ipaddress.ip_address(address)
    value = int(parsed) if parsed.version == 6 else (0xFFFF << 32) | int(parsed)
    digits = f"{value:032x}"
    return ":".join(digits[i : i + 4] for i in range(0, 32, 4))


def gids(
    state: dict[str, Any], nic: dict[str, Any], guid: str, interfaces: dict[str, Interface]
) -> list[dict[str, Any]]:
    """The occupied slots of the GID table: `index`, `gid`, `type`, `netdev`."""
    default = "fe80:0000:0000:0000:" + ":".join(guid[i : i + 4] for i in range(0, 16, 4))
    if nic["link_layer"] != "Ethernet":
        return [{"index": 0, "gid": default, "type": "IB/RoCE v1", "netdev": None}]
    if not nic["netdev"] or nic["netdev"] not in interfaces:
        return []
    found = [
        {"index": index, "gid": default, "type": kind, "netdev": nic["netdev"]}
        for index, kind in enumerate(("IB/RoCE v1", "RoCE v2"))
    ]
    for slot, entry in enumerate(state["gid_tables"].get(nic["rdma"], [])):
        if entry:
            first = DEFAULT_GIDS + 2 * slot
            for offset, kind in enumerate(("IB/RoCE v1", "RoCE v2")):
                found.append({"index": first + offset, "gid": entry[0], "type": kind, "netdev": entry[1]})
    return found


def refresh_gid_tables(state: dict[str, Any], interfaces: dict[str, Interface]) -> None:
    """Follow the addresses as the kernel does: one that goes frees its slots, one that comes takes the first free."""
    hidden = set(state.get("hidden_gids", []))
    for nic in state["nics"]:
        if not nic["rdma"] or nic["link_layer"] != "Ethernet" or not nic["netdev"]:
            continue
        wanted: list[list[str]] = []
        own = interfaces.get(nic["netdev"])
        if own is not None and nic["rdma"] not in hidden:
            default = _gid_text("fe80::" + ":".join(identity.eui64(own.mac)[i : i + 4] for i in range(0, 16, 4)))
            over = [own] + [other for other in interfaces.values() if other.link == own.name]
            for interface in over:
                for address, _prefix in interface.addresses:
                    gid = _gid_text(address)
                    if gid != default or interface is not own:
                        wanted.append([gid, interface.name])
        table = [entry if entry in wanted else None for entry in state["gid_tables"].get(nic["rdma"], [])]
        for entry in wanted:
            if entry in table:
                continue
            if None in table:
                table[table.index(None)] = entry
            else:
                table.append(entry)
        while table and table[-1] is None:
            table.pop()
        state["gid_tables"][nic["rdma"]] = table
