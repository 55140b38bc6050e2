# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bonds that are well formed and yet cannot be: their options, their gateways, and what the host has."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import interface_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.bonds import VARIABLE
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.management import default_routes

OPTIONS = {
    "lacp_rate": ("slow", "fast"),
    "xmit_hash_policy": ("layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"),
}


def problems(
    intent: Intent, machine: Machine, rails: t.Collection[str], management: str, subnets: t.Sequence[str]
) -> list[Problem]:
    """*rails* are the interfaces of this host's rails, *subnets* those of the rack's rails. For bonds in good form."""
    found = []
    for name, given in intent[VARIABLE].items():
        found += [Problem(VARIABLE, *wrong) for wrong in _options(str(name), given)]
        found += [Problem(VARIABLE, *wrong) for wrong in _gateway(str(name), given, machine)]
        found += [Problem(VARIABLE, *wrong) for wrong in _on_host(str(name), given, machine, rails, management)]
        for message, allowed in interface_checks.too_large(machine, map(str, given["members"]), given.get("mtu")):
            found.append(Problem(VARIABLE, f"{message} ({name})", allowed))
        found += [Problem(VARIABLE, *wrong) for wrong in _addresses(str(name), given, machine, subnets)]
    return found or [Problem(VARIABLE, *wrong) for wrong in _between(intent)]


def _options(name: str, given: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    for key, allowed in OPTIONS.items():
        if given.get(key) not in (None, *allowed):
            yield f"{key} of {name} is {given[key]!r}", ", ".join(allowed)
    if given.get("lacp_rate") and given["mode"] != "802.3ad":
        yield f"lacp_rate of {name} with mode {given['mode']}", "lacp_rate with mode 802.3ad"


def _gateway(name: str, given: t.Mapping[str, t.Any], machine: Machine) -> t.Iterator[tuple[str, str]]:
    faults = interface_checks.gateway_faults(given, _interfaces(given))
    yield from ((f"gateway of {name} {fault}", allowed) for fault, allowed in faults)
    for gateway in interface_checks.gateways(given) if not faults else ():
        others = [dev for dev in default_routes(machine, ipaddress.ip_address(str(gateway)).version) if dev != name]
        if others:
            message = f"gateway {gateway} of {name}, and the host's default route is over {others[0]}"
            yield message, f"no gateway of {name}, or no default route over {others[0]}: a host has one"


def _interfaces(given: t.Mapping[str, t.Any]) -> list[interface_checks.Interface]:
    return [ipaddress.ip_interface(str(item)) for item in given.get("addresses") or ()]


def _on_host(
    name: str, given: t.Mapping[str, t.Any], machine: Machine, rails: t.Collection[str], management: str
) -> t.Iterator[tuple[str, str]]:
    present = machine.netdevs.get(name)
    if name == "lo" or (present and present.kind not in ("bond", "")):
        yield f"{name} is an interface of another kind", "names that are free, such as bond0"
    for member in map(str, given["members"]):
        dev = machine.netdevs.get(member)
        if member in rails:
            yield f"member {member} of {name} is a rail", "interfaces that are no rails (gpu_fabric_exclude_devices)"
        elif member == management:
            yield f"member {member} of {name} is the management interface", "interfaces that do not carry management"
        elif machine.netdevs and not dev:
            shown = ", ".join(sorted(other for other in machine.netdevs if other != "lo")[:12])
            yield f"member {member} of {name} is not there", f"one of {shown}"
        elif dev and dev.master not in ("", name):
            yield f"member {member} of {name} belongs to {dev.master}", "interfaces that belong to nothing else"


def _addresses(
    name: str, given: t.Mapping[str, t.Any], machine: Machine, subnets: t.Sequence[str]
) -> t.Iterator[tuple[str, str]]:
    networks = [ipaddress.ip_network(item) for item in subnets]
    for own in _interfaces(given):
        net = next((net for net in networks if net.version == own.version and net.overlaps(own.network)), None)
        if net:
            yield f"{own} of {name} overlaps the rails' {net}", "networks that the rails do not use"
    present = machine.netdevs.get(name)
    new = [str(item) for item in _interfaces(given) if not present or str(item) not in present.addresses]
    for message, allowed in interface_checks.used_elsewhere(machine, [name], new):
        yield f"{message} (addresses of {name})", allowed


def _between(intent: Intent) -> t.Iterator[tuple[str, str]]:
    """What two bonds, or a bond and the management interface, cannot both have."""
    every = [(f"bond {name}", given) for name, given in intent[VARIABLE].items()]
    every += [("the management interface", intent[interface_checks.MANAGEMENT])]
    networks: list[tuple[str, interface_checks.Interface]] = []
    holders: dict[int, str] = {}
    for what, given in every:
        double = interface_checks.twice(_interfaces(given))
        if double:
            yield f"{double.ip} stands twice in addresses of {what}", "each address once"
        for own in _interfaces(given):
            other = next((o for o, n in networks if n.version == own.version and n.network.overlaps(own.network)), what)
            if other != what:
                yield f"{own} of {what} is in a network of {other}", "a network of its own for each"
            networks.append((what, own))
        for gateway in interface_checks.gateways(given):
            holder = holders.setdefault(ipaddress.ip_address(str(gateway)).version, what)
            if holder != what:
                yield f"gateway {gateway} of {what} beside that of {holder}", "one default route"
