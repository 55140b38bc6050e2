# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The management interface as it shall be, where the intent says so; the role changes it under a roll-back timer."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import interface_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem, at, unknown_keys
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.management import lower_devices

VARIABLE = interface_checks.MANAGEMENT
KEYS = ("addresses", "gateway", "mtu")


def read(intent: Intent) -> tuple[dict[str, t.Any], list[Problem]]:
    """The interface as far as it is in good form, and what would cut the host off or cannot be meant."""
    given = intent[VARIABLE]
    if not given:
        return {}, []
    found = unknown_keys(VARIABLE, "", given, KEYS)
    own, ill = interface_checks.addresses(VARIABLE, "", given.get("addresses"))
    if not given.get("addresses"):
        message = "missing" if given.get("addresses") is None else f"{given['addresses']!r} is not allowed"
        allowed = "all the addresses of the interface, each with its prefix length, such as [10.20.0.5/24]"
        ill = [Problem(VARIABLE, message, allowed, ".addresses")]
    mtu, odd = interface_checks.mtu(VARIABLE, "", given.get("mtu"))
    faults = interface_checks.gateway_problems(VARIABLE, "", given, list(own), whole=not ill)
    gateway = given.get("gateway") if not faults else None
    return {"addresses": own, "gateway": gateway, "mtu": mtu}, [*found, *ill, *odd, *faults]


def on_host(
    given: t.Mapping[str, t.Any], intent: Intent, machine: Machine, netdev: str, rail_networks: t.Iterable[str]
) -> list[Problem]:
    """What keeps this host from having it; *given* is what is in good form."""
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
    for item, place in given["addresses"].items():
        own = ipaddress.ip_interface(item).network
        rail = next((net for net in rails if net.version == own.version and net.overlaps(own)), None)
        if rail:
            message = f"{item} overlaps the rails' {rail}"
            found.append(Problem(VARIABLE, message, "a network that no rail is in", at("addresses", place)))
    present = machine.netdevs.get(netdev)
    lower = lower_devices(machine, netdev)
    for item, place in given["addresses"].items():
        new = [item] if not present or item not in present.addresses else []
        for message, allowed in interface_checks.used_elsewhere(machine, lower, new):
            found.append(Problem(VARIABLE, message, allowed, at("addresses", place)))
    for message, allowed in interface_checks.too_large(machine, sorted(lower), given.get("mtu")):
        found.append(Problem(VARIABLE, message, allowed, ".mtu"))
    return found


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
