# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The management interface as it shall be, where the intent says so; the role changes it under a roll-back timer."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import value_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine

VARIABLE = "gpu_fabric_management_link"
KEYS = ("addresses", "gateway", "mtu")


def problems(intent: Intent) -> list[Problem]:
    """What would cut the host off, or cannot be meant."""
    given = intent[VARIABLE]
    if not given:
        return []
    found = [Problem(VARIABLE, f"has no {key}", ", ".join(KEYS)) for key in given if key not in KEYS]
    networks = []
    addresses = given.get("addresses")
    if not isinstance(addresses, (list, tuple)) or not addresses:
        allowed = "all the addresses of the interface, each with its prefix length, such as [10.20.0.5/24]"
        return [*found, Problem(VARIABLE, f"addresses is {addresses!r}", allowed)]
    for item in addresses:
        try:
            interface = ipaddress.ip_interface(str(item))
        except ValueError:
            interface = None
        if interface is None or "/" not in str(item) or not _is_hosts(interface):
            found.append(Problem(VARIABLE, f"{item!r} in addresses", "a host's address with its prefix length"))
        else:
            networks.append(interface.network)
    mtu = given.get("mtu")
    if mtu is not None and (isinstance(mtu, bool) or not isinstance(mtu, int) or not 1280 <= mtu <= 9978):
        found.append(Problem(VARIABLE, f"mtu is {mtu!r}", "a number from 1280 to 9978 bytes"))
    gateway = given.get("gateway")
    if gateway is not None:
        try:
            reachable = any(ipaddress.ip_address(str(gateway)) in network for network in networks)
        except ValueError:
            reachable = False
        if not reachable:
            found.append(Problem(VARIABLE, f"gateway is {gateway!r}", "an address in the network of one of addresses"))
    return found


def _is_hosts(interface: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> bool:
    """Neither the network's own address nor the broadcast address, where there are such, and one of a host at all."""
    if value_checks.unusable(str(interface.ip)):
        return False
    network = interface.network
    if network.prefixlen >= network.max_prefixlen - 1:
        return True
    return interface.ip not in (network.network_address, *([network.broadcast_address] if network.version == 4 else []))


def rack_problems(
    intents: t.Mapping[str, Intent], rail_networks: t.Iterable[str], reached: t.Mapping[str, str]
) -> list[tuple[str, Problem]]:
    """Each host's own problems, then addresses that rails or other hosts have; *reached* are the inventory's."""
    found = [(host, problem) for host, intent in intents.items() for problem in problems(intent)]
    if found:
        return found
    rails = [ipaddress.ip_network(net) for net in rail_networks]
    taken = {address: host for host, address in reached.items() if address}
    for host, intent in intents.items():
        for item in intent[VARIABLE].get("addresses", ()):
            interface = ipaddress.ip_interface(str(item))
            rail = next((n for n in rails if n.version == interface.version and n.overlaps(interface.network)), None)
            other = taken.setdefault(str(interface.ip), host)
            if rail:
                message = f"{item} in addresses overlaps the rails' {rail}"
                found.append((host, Problem(VARIABLE, message, "a network that no rail is in")))
            if other != host:
                message = f"{item} in addresses is {other}'s"
                found.append((host, Problem(VARIABLE, message, "addresses that no other host has")))
    return found


def for_host(machine: Machine, intent: Intent, netdev: str) -> dict[str, t.Any] | None:
    """plan.hosts[h].management_link, an entry of fabric_links; None where the interface is left alone."""
    given = intent[VARIABLE]
    if not given or not netdev:
        return None
    dev = machine.netdevs.get(netdev)
    gateway = given.get("gateway")
    return {
        "netdev": netdev,
        "pci": (dev.pci if dev else "") or None,
        "mac": (dev.mac if dev else "") or None,
        "management": True,
        "mtu": given.get("mtu"),
        "addresses": [str(item) for item in given["addresses"]],
        "routes": [{"dst": "default", "via": str(gateway)}] if gateway else [],
        "rules": [],
    }
