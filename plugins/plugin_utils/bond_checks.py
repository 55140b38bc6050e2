# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bonds that are well formed and yet cannot be: for what the host has, and for each other."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import interface_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.bonds import VARIABLE, Bond
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Problem, at
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.management import default_routes


def problems(
    bonds: t.Sequence[Bond],
    management_link: t.Mapping[str, t.Any],
    machine: Machine,
    rails: t.Collection[str],
    management: str,
    subnets: t.Sequence[str],
) -> list[Problem]:
    """*rails* are the interfaces of this host's rails, *subnets* those of the rack's rails; of bonds and of the
    management's interface what is in good form."""
    found: list[Problem] = []
    for bond in bonds:
        found += _gateway(bond, machine)
        found += _on_host(bond, machine, rails, management)
        for message, allowed in interface_checks.too_large(machine, bond.members, bond.mtu):
            found.append(Problem(VARIABLE, message, allowed, at(bond.name, "mtu")))
        found += _addresses(bond, machine, subnets)
    return [*found, *_between(bonds, management_link)]


def _gateway(bond: Bond, machine: Machine) -> t.Iterator[Problem]:
    for gateway in bond.gateways:
        version = ipaddress.ip_address(gateway).version
        others = [dev for dev in default_routes(machine, version) if dev != bond.name]
        if others:
            message = f"{gateway}, and the host's default route is over {others[0]}"
            allowed = f"no gateway of {bond.name}, or no default route over {others[0]}: a host has one"
            yield Problem(VARIABLE, message, allowed, at(bond.name, "gateway"))


def _on_host(bond: Bond, machine: Machine, rails: t.Collection[str], management: str) -> t.Iterator[Problem]:
    name = bond.name
    present = machine.netdevs.get(name)
    if name == "lo" or (present and present.kind not in ("bond", "")):
        message = "it is an interface of another kind"
        yield Problem(VARIABLE, message, "names that are free, such as bond0", at(name))
    for member, place in bond.members.items():
        dev = machine.netdevs.get(member)
        if member in rails:
            told = (f"{member} is a rail", "interfaces that are no rails (gpu_fabric_exclude_devices)")
        elif member == management:
            told = (f"{member} is the management interface", "interfaces that do not carry management")
        elif machine.netdevs and not dev:
            shown = ", ".join(sorted(other for other in machine.netdevs if other != "lo")[:12])
            told = (f"{member} is not there", f"one of {shown}")
        elif dev and dev.master not in ("", name):
            told = (f"{member} belongs to {dev.master}", "interfaces that belong to nothing else")
        else:
            continue
        yield Problem(VARIABLE, *told, at(name, "members", place))


def _addresses(bond: Bond, machine: Machine, subnets: t.Sequence[str]) -> t.Iterator[Problem]:
    networks = [ipaddress.ip_network(item) for item in subnets]
    present = machine.netdevs.get(bond.name)
    for item, place in bond.addresses.items():
        own, where = ipaddress.ip_interface(item), at(bond.name, "addresses", place)
        net = next((net for net in networks if net.version == own.version and net.overlaps(own.network)), None)
        if net:
            yield Problem(VARIABLE, f"{own} overlaps the rails' {net}", "networks that the rails do not use", where)
        new = [item] if not present or item not in present.addresses else []
        for message, allowed in interface_checks.used_elsewhere(machine, [bond.name], new):
            yield Problem(VARIABLE, message, allowed, where)


def _between(bonds: t.Sequence[Bond], management_link: t.Mapping[str, t.Any]) -> t.Iterator[Problem]:
    """What two bonds, or a bond and the management interface, cannot both have."""
    every = [(VARIABLE, at(bond.name), f"bond {bond.name}", bond.addresses, bond.gateways) for bond in bonds]
    own = {str(item): place for place, item in enumerate(management_link.get("addresses") or ())}
    gateways = [str(item) for item in interface_checks.gateways(management_link)]
    every.append((interface_checks.MANAGEMENT, "", "the management interface", own, gateways))
    networks: list[tuple[str, interface_checks.Interface]] = []
    holders: dict[int, str] = {}
    for variable, where, what, addresses, ways in every:
        for item, place in addresses.items():
            address = ipaddress.ip_interface(item)
            near = (n for n in networks if n[1].version == address.version and n[1].network.overlaps(address.network))
            other = next(near, (what, address))[0]
            if other != what:
                message = f"{address} is in a network of {other}"
                yield Problem(variable, message, "a network of its own for each", where + at("addresses", place))
            networks.append((what, address))
        for gateway in ways:
            holder = holders.setdefault(ipaddress.ip_address(gateway).version, what)
            if holder != what:
                yield Problem(variable, f"{gateway} beside that of {holder}", "one default route", f"{where}.gateway")
