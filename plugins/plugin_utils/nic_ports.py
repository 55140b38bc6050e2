# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run-time settings of a host's ports, and what changing them costs."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import worst
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import disruption, port_settings, rails, roce
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host


def quality(host: Host) -> dict[str, t.Any]:
    found = {}
    for rail in host.rails:
        function = host.machine.function(rail.hca.pci)
        virtual = host.machine.virtual or bool(function.physfn)
        if rail.link_layer == "Ethernet" and rail.netdev and not rail.hca.software:
            wanted = roce.port_values(host.intent, virtual)
            if wanted:
                dev = host.machine.netdevs.get(rail.netdev)
                # a bond has no port of its own: its members' ports are set
                for netdev in dev.bond_members if dev and dev.kind == "bond" else (rail.netdev,):
                    found[netdev] = wanted
    return found


def settings(
    host: Host,
    quality_of: dict[str, t.Any],
    port_tuning: dict[str, dict[str, t.Any]],
    own: dict[str, dict[str, t.Any]],
) -> list[dict[str, t.Any]]:
    """What nic_settings takes: the ports of the rails with their run-time settings."""
    ports = []
    rail_of = {rail.port_name: rail for rail in host.rails}
    tuned = [netdev for netdev in (*port_tuning, *own) if netdev not in quality_of and not _is_bond(host, netdev)]
    alone = list(dict.fromkeys(tuned))
    for netdev in (*quality_of, *alone):
        dev = host.machine.netdevs.get(netdev)
        rail = rail_of.get(netdev) or rail_of.get(dev.master if dev else "")
        settings = {**quality_of.get(netdev, {}), **port_tuning.get(rail.port_name if rail else "", {})}
        settings |= own.get(netdev, {})
        if rail and settings:
            ports.append(
                {
                    "netdev": netdev,
                    "hca": rail.hca.name,
                    "port": rail.port.number if rail.port else 1,
                    "pci": (dev.pci if dev else "") or rail.hca.pci or None,
                    "settings": settings,
                }
            )
    return ports


def _is_bond(host: Host, netdev: str) -> bool:
    dev = host.machine.netdevs.get(netdev)
    return dev is not None and dev.kind == "bond"


def costs(host: Host, quality_of: dict[str, t.Any]) -> t.Iterator[tuple[str, str, str]]:
    """(what, class of disruption, reason) of every rail and of every port with settings of its own."""
    for rail in host.rails:
        yield (f"rail {rail.rail} {rail.netdev}", *_rail_cost(host, rail, quality_of))
    facts = mapping(host.machine.facts.get("netdevs"))
    for netdev, own in host.port_settings.ports.items():
        yield (f"port {netdev}", *port_settings.cost(netdev, mapping(facts.get(netdev)), own))


def _rail_cost(host: Host, rail: rails.Rail, quality_of: dict[str, t.Any]) -> tuple[str, str]:
    dev = host.machine.netdevs.get(rail.netdev)
    seen = mapping(host.machine.facts.get("qos"))
    found = []
    # what a bond costs is what its members' ports cost
    for netdev in dev.bond_members if dev and dev.kind == "bond" else (rail.netdev,):
        pfc = quality_of.get(netdev, {}).get("pfc")
        port = host.machine.netdevs.get(netdev)
        found.append(disruption.of_link(port, host.intent["gpu_fabric_mtu"], pfc, seen.get(netdev)))
    gravest = worst(cost for cost, _ in found)
    return next((item for item in found if item[0] == gravest), ("none", ""))
