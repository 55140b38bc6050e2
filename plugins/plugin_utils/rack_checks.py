# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the intent for the hosts that are there: counts of rails, networks, and addresses."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import (
    bond_checks,
    bonds,
    ib_networks,
    interface_checks,
    ipoib,
    management_link,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.addressing import AddressPlan
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import Intent, Problem


def count_fits(hosts: list[Host]) -> list[tuple[str, Problem]]:
    problems = []
    for host in hosts:
        expected = host.intent["gpu_fabric_expected_rails"]
        if expected is not None and expected < len(host.rails):
            shown = ", ".join(rail.hca.name for rail in host.rails)
            problem = Problem(
                "gpu_fabric_expected_rails",
                f"{expected} rails expected, but {len(host.rails)} devices are rails ({shown})",
                "the number of rails of the host, or fewer devices (gpu_fabric_exclude_devices)",
            )
            problems.append((host.name, problem))
    return problems


def beside_rails(
    hosts: list[Host], rail_networks: list[str], reached: t.Mapping[str, str]
) -> list[tuple[str, Problem]]:
    """What is wrong with interfaces that a person addresses: the management's, and bonds."""
    found: list[tuple[str, Problem]] = []
    sound = {}
    for host in hosts:
        links, wrong = bonds.read(host.intent)
        own, told = management_link.read(host.intent)
        if not wrong and not told:
            sound[host.name] = host.intent
        management, netdevs = host.found.management, {rail.netdev for rail in host.rails if rail.netdev}
        told += management_link.on_host(own, host.intent, host.machine, management, rail_networks)
        wrong += bond_checks.problems(links, own, host.machine, netdevs, management, rail_networks)
        found += [(host.name, problem) for problem in (*told, *wrong)]
    return found + interface_checks.others_addresses(sound, reached)


def networks_of(host: Host, addresses: AddressPlan, over_infiniband: ipoib.IpoibPlan) -> list[tuple[str, str]]:
    """Networks that the host is to be in, each with the variable that says so."""
    found = interface_checks.bond_networks(host.intent)
    if host.fabric == "roce":
        found += [
            (family.variable.removesuffix("_prefix"), str(n)) for family in addresses.families for n in family.subnets
        ]
    if host.fabric == "infiniband":
        found += [(ib_networks.IPOIB, net) for net in over_infiniband.subnets()]
    return found


def unaddressed(ethernet: list[Host], addresses: AddressPlan, intent: Intent) -> list[Problem]:
    """RoCE needs an address on each rail; only a provider's virtual machine brings its own."""
    pools = ("gpu_fabric_rail_ipv4", "gpu_fabric_rail_ipv6", "gpu_fabric_rail_subnets")
    if addresses.problems or addresses.families or any(intent[name] for name in pools):
        return []
    for host in ethernet:
        for rail in host.rails:
            dev = host.machine.netdevs.get(rail.netdev)
            if not host.machine.virtual or not dev or not dev.global_addresses:
                message = f"empty, as {pools[1]} and {pools[2]} are: {host.name}'s {rail.hca.name} gets no address"
                return [Problem(pools[0], message, "a pool in one of the three for RoCE rails")]
    return []


def overlaps(hosts: list[Host], addresses: AddressPlan) -> list[Problem]:
    """Rail subnets must not hold networks that other interfaces of the rack are in."""
    nets = [ipaddress.ip_network(net) for net in addresses.networks()]
    if not nets:
        return []
    users: dict[str, tuple[Host, str]] = {}
    for host in hosts:
        own = {rail.netdev for rail in host.rails}
        for dev in host.machine.netdevs.values():
            if dev.name not in own and dev.name != "lo":
                for item in dev.global_addresses:
                    users.setdefault(item, (host, f"{dev.name} {item}"))
        if host.address:
            users.setdefault(host.address, (host, f"the inventory's address {host.address}"))
    variable = addresses.families[0].variable.removesuffix("_prefix")
    problems = []
    for item, (host, user) in sorted(users.items()):
        try:
            other = ipaddress.ip_interface(item).network
        except ValueError:
            continue
        net = next((net for net in nets if net.version == other.version and net.overlaps(other)), None)
        if net and not _former_rail(host, item, addresses):
            message = f"the rails' {net} overlaps {host.name}'s {user}"
            problems.append(Problem(variable, message, "networks that nothing else in the rack uses"))
    return problems[:8]


def _former_rail(host: Host, item: str, addresses: AddressPlan) -> bool:
    """An address that this plan gives to one of the host's rails: its device was a rail before it was excluded."""
    planned = (addresses.address(host.node, rail) for rail in range(addresses.rails))
    return any(item in (address.ipv4, address.ipv6) for address in planned)
