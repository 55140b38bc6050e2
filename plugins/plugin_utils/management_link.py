# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The management interface as it shall be, where the intent says so; the role changes it under a roll-back timer."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import interface_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.management import lower_devices

VARIABLE = interface_checks.MANAGEMENT
KEYS = ("addresses", "gateway", "mtu")


def problems(intent: Intent) -> list[Problem]:
    """What would cut the host off, or cannot be meant."""
    given = intent[VARIABLE]
    if not given:
        return []
    found = [Problem(VARIABLE, f"has no {key}", ", ".join(KEYS)) for key in given if key not in KEYS]
    addresses = given.get("addresses")
    if not isinstance(addresses, (list, tuple)) or not addresses:
        allowed = "all the addresses of the interface, each with its prefix length, such as [10.20.0.5/24]"
        return [*found, Problem(VARIABLE, f"addresses is {addresses!r}", allowed)]
    own = [item for item in map(interface_checks.interface, addresses) if item]
    found += [
        Problem(VARIABLE, f"{item!r} in addresses", "a host's address with its prefix length")
        for item in addresses
        if interface_checks.interface(item) is None
    ]
    double = interface_checks.twice(own)
    if double:
        found.append(Problem(VARIABLE, f"{double.ip} stands twice in addresses", "each address once"))
    mtu = given.get("mtu")
    if mtu is not None and (isinstance(mtu, bool) or not isinstance(mtu, int) or not 1280 <= mtu <= 9978):
        found.append(Problem(VARIABLE, f"mtu is {mtu!r}", "a number from 1280 to 9978 bytes"))
    faults = interface_checks.gateway_faults(given, own)
    return found + [Problem(VARIABLE, f"gateway {fault}", allowed) for fault, allowed in faults]


def on_host(intent: Intent, machine: Machine, netdev: str, rail_networks: t.Iterable[str]) -> list[Problem]:
    """What keeps this host from having it. For an intent in good form."""
    given = intent[VARIABLE]
    if not given:
        return []
    if not netdev:
        message = "nothing tells by which interface the host is managed, so that its addresses would go nowhere"
        return [Problem(VARIABLE, message, "gpu_fabric_management_interface beside it")]
    if netdev in intent[interface_checks.BONDS]:
        message = f"the host is managed through {netdev}, which gpu_fabric_bonds gives its addresses, too"
        return [Problem(VARIABLE, message, "one of the two")]
    rails = [ipaddress.ip_network(net) for net in rail_networks]
    found = []
    for item in map(str, given["addresses"]):
        own = ipaddress.ip_interface(item).network
        rail = next((net for net in rails if net.version == own.version and net.overlaps(own)), None)
        if rail:
            message = f"{item} in addresses overlaps the rails' {rail}"
            found.append(Problem(VARIABLE, message, "a network that no rail is in"))
    present = machine.netdevs.get(netdev)
    new = [item for item in map(str, given["addresses"]) if not present or item not in present.addresses]
    lower = lower_devices(machine, netdev)
    wrong = [*interface_checks.used_elsewhere(machine, lower, new)]
    wrong += interface_checks.too_large(machine, sorted(lower), given.get("mtu"))
    return found + [Problem(VARIABLE, *item) for item in wrong]


def for_host(machine: Machine, intent: Intent, netdev: str) -> dict[str, t.Any] | None:
    """plan.hosts[h].management_link, an entry of fabric_links; None where the interface is left alone."""
    given = intent[VARIABLE]
    if not given or not netdev:
        return None
    dev = machine.netdevs.get(netdev)
    return {
        "netdev": netdev,
        "pci": (dev.pci if dev else "") or None,
        "mac": (dev.mac if dev else "") or None,
        "management": True,
        "mtu": given.get("mtu"),
        "addresses": [str(item) for item in given["addresses"]],
        "routes": interface_checks.default_routes(given),
        "rules": [],
    }
