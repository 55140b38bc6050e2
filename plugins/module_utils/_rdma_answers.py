# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Facts of RDMA devices in the shape of the tools' answers, for hosts without the tools."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import rdma
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import integer, text

_NODE_TYPES = {"CA": "ca", "switch": "switch", "router": "router", "RNIC": "rnic", "usNIC": "usnic"}


def _ports(device: dict[str, t.Any]) -> t.Iterator[tuple[int, dict[str, t.Any]]]:
    for name, port in device.get("ports", {}).items():
        yield int(name), port


def _picked(facts: dict[str, t.Any], names: dict[str, str]) -> dict[str, t.Any]:
    return {there: facts[here] for here, there in names.items() if here in facts}


def ibstat(source: Source) -> list[dict[str, t.Any]]:
    """`cas` as ibstat_info returns them."""
    cas = []
    for name, device in rdma.collect(source).items():
        ca: dict[str, t.Any] = {"name": name, "extra": {}}
        ca.update(
            _picked(
                device,
                {
                    "hca_type": "ca_type",
                    "firmware": "firmware",
                    "node_guid": "node_guid",
                    "sys_image_guid": "system_image_guid",
                },
            )
        )
        hardware = text(source, f"/sys/class/infiniband/{name}/hw_rev")
        if hardware is not None:
            ca["hardware"] = hardware
        if device.get("node_type") in _NODE_TYPES:
            ca["node_type"] = _NODE_TYPES[device["node_type"]]
        ca["ports"] = []
        for number, facts in _ports(device):
            port = {"port": number, "extra": {}}
            names = ("state", "phys_state", "rate_gbps", "rate_text", "lmc", "sm_lid", "capability_mask", "link_layer")
            port.update(_picked(facts, {**{key: key for key in names}, "lid": "base_lid"}))
            port_guid = _port_guid(source, name, number)
            if port_guid is not None:
                port["port_guid"] = port_guid
            ca["ports"].append(port)
        ca["number_of_ports"] = len(ca["ports"])
        cas.append(ca)
    return cas


def _port_guid(source: Source, device: str, port: int) -> str | None:
    """The lower half of the first GID, where ibstat has it from too."""
    gid = text(source, f"/sys/class/infiniband/{device}/ports/{port}/gids/0")
    digits = (gid or "").replace(":", "").lower()
    return digits[16:] if len(digits) == 32 else None


def ibdev2netdev(source: Source) -> list[dict[str, t.Any]]:
    """`mappings` as ibdev2netdev_info returns them."""
    mappings = []
    for name, device in rdma.collect(source).items():
        for number, port in _ports(device):
            for netdev in port.get("netdevs", []):
                mapping = {"device": name, "port": number, "netdev": netdev, "status": _status(source, netdev)}
                mapping.update(_picked(device, {"pci": "pci", "hca_type": "hca_type", "firmware": "firmware"}))
                mapping.update(_picked(port, {"state": "port_state"}))
                mappings.append(mapping)
    return mappings


def _status(source: Source, netdev: str) -> str:
    """The tool's own rule: the carrier. It cannot be read while the interface is administratively down."""
    base = f"/sys/class/net/{netdev}"
    if not source.exists(f"{base}/carrier"):
        return "na"
    return "up" if integer(source, f"{base}/carrier") == 1 else "down"


def show_gids(source: Source) -> list[dict[str, t.Any]]:
    """`gids` as show_gids_info returns them."""
    gids = []
    for name, device in rdma.collect(source).items():
        for number, port in _ports(device):
            for gid in port.get("gids", []):
                row = {"device": name, "port": number, **gid}
                if row.get("type") in ("RoCE v1", "RoCE v2"):
                    row["version"] = row["type"][-2:]
                gids.append(row)
    return gids
