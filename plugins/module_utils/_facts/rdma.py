# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""RDMA devices, their ports and GID tables, from sysfs alone."""

from __future__ import annotations

import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import guid, phys_state, port_state
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import decimal, integer, link_name, place, text

__all__ = ["collect", "ipv4_of_gid", "roce_mtu"]

_CLASS = "/sys/class/infiniband"
_NO_GID = re.compile(r"^[0:]*$")
_MAPPED = re.compile(r"^(?:0{4}:){5}f{4}:([0-9a-f]{4}):([0-9a-f]{4})$", re.IGNORECASE)
_PKEY = re.compile(r"^0x([0-9a-f]{4})$")
_GID_TYPES = {"IB/RoCE v1": "RoCE v1", "RoCE v1": "RoCE v1", "RoCE v2": "RoCE v2", "IB": "IB"}
_TRANSPORTS = {1: "infiniband", 2: "infiniband", 3: "infiniband", 4: "iwarp", 5: "usnic", 6: "usnic", 7: "unspecified"}
_SUBFUNCTION = re.compile(r"/mlx5_core\.sf\.\d+(?:/|$)")
_ARPHRD_INFINIBAND = 32
#: GRH, UDP, BTH, atomic header and checksums that a RoCE packet adds, as the kernel counts them.
_ROCE_HEADROOM = 96
_PATH_MTUS = (4096, 2048, 1024, 512, 256)


def collect(source: Source) -> dict[str, Any]:
    return {name: _device(source, name) for name in sorted(source.listdir(_CLASS), key=_natural)}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def roce_mtu(netdev_mtu: int) -> Optional[int]:
    """Path MTU that the kernel derives for a RoCE port from its network interface."""
    return next((mtu for mtu in _PATH_MTUS if mtu <= netdev_mtu - _ROCE_HEADROOM), None)


def ipv4_of_gid(gid: str) -> Optional[str]:
    """The IPv4 address in an IPv4-mapped GID."""
    match = _MAPPED.match(gid)
    if match is None:
        return None
    value = int(match.group(1) + match.group(2), 16)
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _device(source: Source, name: str) -> dict[str, Any]:
    base = f"{_CLASS}/{name}"
    found: dict[str, Any] = {}
    where = source.realpath(f"{base}/device") or source.realpath(base)
    at = place(where)
    if at is not None:
        found["pci"] = at.bdf
        driver = link_name(source, f"{at.directory}/driver")
        if driver is not None:
            found["driver"] = driver
        if _SUBFUNCTION.search(where or ""):
            found["subfunction"] = True
    # Soft-RoCE and soft-iWARP live on a network interface, not on a card.
    parent = text(source, f"{base}/parent")
    found["software"] = at is None and (parent is not None or "/virtual/" in (where or ""))
    if found["software"] and parent is not None:
        found["parent_netdev"] = parent
    node_type = text(source, f"{base}/node_type")
    if node_type is not None:
        number, _, label = node_type.partition(":")
        found["node_type"] = label.strip() or number.strip()
        if number.strip().isdecimal() and int(number) in _TRANSPORTS:
            found["transport"] = _TRANSPORTS[int(number)]
    for key, attribute in (
        ("firmware", "fw_ver"),
        ("hca_type", "hca_type"),
        ("board_id", "board_id"),
        ("node_desc", "node_desc"),
    ):
        value = text(source, f"{base}/{attribute}")
        if value is not None:
            found[key] = value
    for key in ("node_guid", "sys_image_guid"):
        value = guid(text(source, f"{base}/{key}") or "")
        if value is not None:
            found[key] = value
    siblings = _siblings(source, f"{base}/device/net")
    ports = sorted((port for port in source.listdir(f"{base}/ports") if port.isdecimal()), key=int)
    found["ports"] = {port: _port(source, f"{base}/ports/{port}", int(port), siblings) for port in ports}
    return found


def _siblings(source: Source, directory: str) -> list[tuple[str, int, int]]:
    """(name, index of its port from 0, ARPHRD type) of the interfaces on the same function."""
    found = []
    for name in source.listdir(directory):
        here = f"{directory}/{name}"
        # IPoIB tells its port in dev_id as well; older drivers fill only that.
        index = max(integer(source, f"{here}/dev_port") or 0, integer(source, f"{here}/dev_id") or 0)
        found.append((name, index, integer(source, f"{here}/type") or 0))
    return found


def _port(source: Source, base: str, number: int, siblings: list[tuple[str, int, int]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    state = port_state(text(source, f"{base}/state") or "")
    physical = phys_state(text(source, f"{base}/phys_state") or "")
    rate = text(source, f"{base}/rate")
    link_layer = text(source, f"{base}/link_layer")
    if state is not None:
        found["state"] = state
    if physical is not None:
        found["phys_state"] = physical
    if rate is not None:
        found["rate_text"] = rate
        gbps = decimal(rate)
        if gbps is not None:
            found["rate_gbps"] = gbps
    if link_layer in ("InfiniBand", "Ethernet"):
        found["link_layer"] = link_layer
    for key, attribute in (("lid", "lid"), ("sm_lid", "sm_lid"), ("lmc", "lid_mask_count")):
        value = integer(source, f"{base}/{attribute}")
        if value is not None:
            found[key] = value
    mask = text(source, f"{base}/cap_mask")
    if mask is not None:
        found["capability_mask"] = mask
    gids = _gids(source, base, link_layer)
    found["gids"] = gids
    names = list(dict.fromkeys(gid["netdev"] for gid in gids if "netdev" in gid))
    names.extend(
        name
        for name, index, kind in siblings
        if index == number - 1 and name not in names and (kind == _ARPHRD_INFINIBAND) == (link_layer == "InfiniBand")
    )
    found["netdevs"] = names
    # NCCL and others name a key by its place, and places may be empty.
    table = _pkeys(source, base)
    found["pkeys"] = list(table.values())
    if table:
        found["pkey_table"] = table
    for key in ("counters", "hw_counters"):
        values = {}
        for name in source.listdir(f"{base}/{key}"):
            value = integer(source, f"{base}/{key}/{name}")
            if value is not None and name != "lifespan":
                values[name] = value
        if values:
            found[key] = values
    if link_layer == "Ethernet" and names:
        # sysfs does not tell the active MTU of a RoCE port; the kernel derives it from the interface, and so do we.
        mtu = integer(source, f"/sys/class/net/{names[0]}/mtu")
        derived = roce_mtu(mtu) if mtu is not None else None
        if derived is not None:
            found["active_mtu_bytes"] = derived
    return found


def _pkeys(source: Source, base: str) -> dict[str, str]:
    found = {}
    for index in _numbers(source, f"{base}/pkeys"):
        slot = _PKEY.match(text(source, f"{base}/pkeys/{index}") or "")
        if slot is not None and slot.group(1) != "0000":
            found[str(index)] = slot.group(1)
    return found


def _numbers(source: Source, directory: str) -> list[int]:
    return sorted(int(name) for name in source.listdir(directory) if name.isdecimal())


def _gids(source: Source, base: str, link_layer: Optional[str]) -> list[dict[str, Any]]:
    """The filled slots of the table. An empty slot reads as zero, or its type as EINVAL."""
    found = []
    for index in _numbers(source, f"{base}/gids"):
        gid = text(source, f"{base}/gids/{index}")
        if gid is None or _NO_GID.match(gid):
            continue
        entry: dict[str, Any] = {"index": index, "gid": gid.lower()}
        kind = text(source, f"{base}/gid_attrs/types/{index}")
        if kind is not None:
            # Kernels call both kinds of type 0 `IB/RoCE v1`.
            entry["type"] = "IB" if link_layer == "InfiniBand" else _GID_TYPES.get(kind, kind)
        elif link_layer == "InfiniBand":
            entry["type"] = "IB"
        netdev = text(source, f"{base}/gid_attrs/ndevs/{index}")
        if netdev is not None:
            entry["netdev"] = netdev
        address = ipv4_of_gid(gid)
        if address is not None:
            entry["ipv4"] = address
        found.append(entry)
    return found
