# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine as one host's folder of a support bundle: its tree, and what `ip` answers on it."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any, Union

from .build import build
from .spec import Machine, Netdev, Nic

_KINDS = ("bond", "bridge", "vlan", "veth")


def build_bundle(machine: Machine, directory: Union[str, Path]) -> Path:
    """Write the folder and return it; `BundleSource` reads it."""
    folder = Path(directory)
    build(machine, folder / "root")
    ports = [nic for nic in machine.nics if nic.netdev is not None]
    links = [*(_virtual(netdev) for netdev in machine.netdevs), *(_physical(nic) for nic in ports)]
    _write(folder / "ip_addr.json", links)
    routes: list[dict[str, Any]] = []
    addressed = [(netdev.name, netdev.ipv4) for netdev in machine.netdevs] + [(nic.netdev, nic.ipv4) for nic in ports]
    device, gateway = machine.default_route
    if any(name == device for name, _ in addressed):
        routes.append({"dst": "default", "gateway": gateway, "dev": device, "flags": []})
    for name, address in addressed:
        if address is not None:
            network = ipaddress.ip_interface(address)
            source = str(network.ip)
            routes.append({"dst": str(network.network), "dev": name, "prefsrc": source, "scope": "link", "flags": []})
    _write(folder / "ip_route_table_all.json", routes)
    _write(folder / "ip_rule.json", [{"priority": 0, "src": "all", "table": "local"}])
    return folder


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value) + "\n", encoding="utf-8")


def _addresses(ipv4: Union[str, None]) -> list[dict[str, Any]]:
    if ipv4 is None:
        return []
    local, prefix = ipv4.split("/")
    return [{"family": "inet", "local": local, "prefixlen": int(prefix), "scope": "global"}]


def _physical(nic: Nic) -> dict[str, Any]:
    up = nic.state == "ACTIVE"
    link: dict[str, Any] = {
        "ifname": nic.netdev,
        "flags": ["BROADCAST", "MULTICAST", "UP", *(["LOWER_UP"] if up else ["NO-CARRIER"])],
        "mtu": nic.mtu,
        "max_mtu": 9978 if nic.link_layer == "Ethernet" else 65520,
        "operstate": "UP" if up else "DOWN",
        "link_type": "ether" if nic.link_layer == "Ethernet" else "infiniband",
        "addr_info": _addresses(nic.ipv4),
    }
    if nic.master is not None:
        link["master"] = nic.master
    return link


def _virtual(netdev: Netdev) -> dict[str, Any]:
    loopback = netdev.kind == "loopback"
    link: dict[str, Any] = {
        "ifname": netdev.name,
        "flags": ["LOOPBACK", "UP", "LOWER_UP"] if loopback else ["BROADCAST", "UP"],
        "mtu": netdev.mtu,
        "operstate": netdev.operstate.upper(),
        "link_type": "loopback" if loopback else "ether",
        "addr_info": _addresses("127.0.0.1/8" if loopback else netdev.ipv4),
    }
    if netdev.kind in _KINDS:
        link["linkinfo"] = {"info_kind": netdev.kind}
    return link
