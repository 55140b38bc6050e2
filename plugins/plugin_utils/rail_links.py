# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The addresses and links of a host's rails: what the plan gives them, and what a provider has given them already."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import rails
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.addressing import (
    NO_ADDRESS,
    TABLE_BASE,
    Address,
    AddressPlan,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note


def address_of(host: Host, rail: rails.Rail, addresses: AddressPlan) -> Address:
    if rail.link_layer != "Ethernet" or not rail.netdev or rail.netdev == host.found.management:
        return NO_ADDRESS
    planned = addresses.address(host.node, rail.rail)
    if _provider_managed(host, rail, planned):
        dev = host.machine.netdevs[rail.netdev]
        four = [item for item in dev.global_addresses if ":" not in item]
        six = [item for item in dev.global_addresses if ":" in item]
        return NO_ADDRESS._replace(ipv4=four[0] if four else None, ipv6=six[0] if six else None)
    return planned


def _provider_managed(host: Host, rail: rails.Rail, planned: Address) -> bool:
    """In a virtual machine a hardware rail with another address than the planned one has it from the provider."""
    dev = host.machine.netdevs.get(rail.netdev)
    if not host.machine.virtual or rail.hca.software or not dev:
        return False
    return any(item not in (planned.ipv4, planned.ipv6) for item in dev.global_addresses)


def is_ours(host: Host, rail: rails.Rail, addresses: AddressPlan) -> bool:
    """Whether the rail's interface is this collection's to set up."""
    if rail.link_layer != "Ethernet" or not rail.netdev or rail.netdev == host.found.management:
        return False
    return not _provider_managed(host, rail, addresses.address(host.node, rail.rail))


def describe(host: Host, rail: rails.Rail, address: Address, ours: bool) -> dict[str, t.Any]:
    gpus = [host.machine.gpu_position[gpu.pci] if gpu.index is None else gpu.index for gpu in rail.gpus]
    function = host.machine.function(rail.hca.pci)
    dev = host.machine.netdevs.get(rail.netdev)
    return {
        "rail": rail.rail,
        "hca": rail.hca.name,
        "port": rail.port.number if rail.port else 1,
        "pci": rail.hca.pci or None,
        "netdev": rail.netdev or None,
        "gpu": gpus[0] if gpus else None,
        "gpu_pci": rail.gpus[0].pci if rail.gpus else None,
        "gpus": gpus,
        "distance": rail.distance,
        "numa_node": function.numa_node,
        "link_layer": rail.link_layer,
        "rate_gbps": rail.rate_gbps,
        "nominal_gbps": rail.nominal_gbps,
        "mtu": host.intent["gpu_fabric_mtu"] if ours else (dev.mtu if dev else None),
        "ipv4": address.ipv4,
        "ipv4_gateway": address.ipv4_gateway,
        "ipv6": address.ipv6,
        "ipv6_gateway": address.ipv6_gateway,
        "table": TABLE_BASE + rail.rail,
    }


def link(host: Host, rail: rails.Rail, address: Address, addresses: AddressPlan) -> dict[str, t.Any]:
    dev = host.machine.netdevs.get(rail.netdev)
    routes, rules = addresses.routing(address, rail.rail)
    wanted = host.intent["gpu_fabric_mtu"]
    if dev and dev.mtu_max and wanted > dev.mtu_max:
        host.notes.append(
            Note(
                "RF-PLAN-MTU",
                rail.netdev,
                f"gpu_fabric_mtu is {wanted}, {rail.netdev} allows {dev.mtu_max} at most",
                [f"{rail.netdev} mtu_max {dev.mtu_max}"],
                f"Set gpu_fabric_mtu to {dev.mtu_max} or less on the whole rack",
            )
        )
    return {
        "netdev": rail.netdev,
        "pci": (dev.pci if dev else "") or rail.hca.pci or None,
        "mac": (dev.mac if dev else "") or None,
        "mtu": wanted,
        "addresses": [item for item in (address.ipv4, address.ipv6) if item],
        "routes": routes,
        "rules": rules,
        "rail": rail.rail,
    }
