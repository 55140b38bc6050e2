# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of the rails: a pure function of the node's number and the rail's, so that no run moves another host."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

import netaddr

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import Problem

# Policy routing: one table per rail, above those that systemd, vendors and clouds use
TABLE_BASE = 1000
RULE_PRIORITY = 1000
FLAT_STRIDE = 8


class Address(t.NamedTuple):
    ipv4: str | None
    ipv4_gateway: str | None
    ipv4_network: str | None
    ipv6: str | None
    ipv6_network: str | None


def node_numbers(
    members: t.Iterable[str], given: t.Mapping[str, int | None]
) -> tuple[dict[str, int], list[tuple[str, Problem]]]:
    """{host: number from 1} over every member of the inventory's group, whoever takes part in this run."""
    numbers, problems = {}, []
    for position, host in enumerate(sorted(set(members), key=lambda name: (natural(name), name)), start=1):
        numbers[host] = given.get(host) or position
    taken: dict[int, str] = {}
    for host in sorted(numbers, key=lambda name: (natural(name), name)):
        other = taken.setdefault(numbers[host], host)
        if other != host:
            problems.append(
                (
                    host,
                    Problem(
                        "gpu_fabric_node_id",
                        f"{host} and {other} are both number {numbers[host]}",
                        "a number of its own for each host (set it for all hosts or for none)",
                    ),
                )
            )
    return numbers, problems


@dataclass
class _Family:
    version: int
    subnets: list[netaddr.IPNetwork]
    variable: str


class AddressPlan:
    """Subnets of the rack and every host's address in them."""

    def __init__(self, intent: t.Mapping[str, t.Any], rails: int, highest_node: int) -> None:
        self.mode = intent["gpu_fabric_rail_mode"]
        self.offset = intent["gpu_fabric_rail_host_offset"]
        self.gateways = intent["gpu_fabric_rail_gateways"]
        self.rails = rails
        # In one flat subnet a node's addresses are neighbours. How far apart two nodes are must not depend on who takes
        # part in the run: eight, unless the intent says how many rails a host has or one has more.
        self.stride = intent["gpu_fabric_expected_rails"] or max(FLAT_STRIDE, _power_of_two(rails))
        self.problems: list[Problem] = []
        self.families = [family for family in (self._family(intent, 4), self._family(intent, 6)) if family]
        self._check_room(highest_node)

    def _family(self, intent: t.Mapping[str, t.Any], version: int) -> _Family | None:
        given = [netaddr.IPNetwork(item) for item in intent["gpu_fabric_rail_subnets"]]
        given = [net for net in given if net.version == version]
        needed = 1 if self.mode == "flat" else self.rails
        if given:
            if len(given) < needed:
                self.problems.append(
                    Problem(
                        "gpu_fabric_rail_subnets",
                        f"{len(given)} IPv{version} subnets for {needed} rails",
                        f"at least {needed} IPv{version} subnets",
                    )
                )
                return None
            return _Family(version, given[:needed], "gpu_fabric_rail_subnets")
        variable = f"gpu_fabric_rail_ipv{version}"
        pool, prefix = intent[variable], intent[f"{variable}_prefix"]
        if not pool or not needed:
            return None
        network = netaddr.IPNetwork(pool)
        room = 1 << (prefix - network.prefixlen) if prefix >= network.prefixlen else 0
        if room < needed:
            self.problems.append(
                Problem(
                    variable,
                    f"{pool} holds {room} subnets of /{prefix}, {needed} rails need {needed}",
                    f"a pool that holds {needed} subnets, or a longer {variable}_prefix",
                )
            )
            return None
        size = 1 << ((32 if version == 4 else 128) - prefix)
        subnets = [netaddr.IPNetwork((network.first + rail * size, prefix), version=version) for rail in range(needed)]
        return _Family(version, subnets, f"{variable}_prefix")

    def _check_room(self, highest_node: int) -> None:
        for family in self.families:
            smallest = min(family.subnets, key=lambda net: net.size)
            last = self._host_number(family.version, highest_node, max(self.rails - 1, 0))
            # the last address of an IPv4 subnet is its broadcast address
            if last > smallest.size - (2 if family.version == 4 and self.mode != "routed_31" else 1):
                self.problems.append(
                    Problem(
                        family.variable,
                        f"node number {highest_node} does not fit {smallest} in mode {self.mode} "
                        f"(it needs address {last} of {smallest.size})",
                        "a shorter prefix (larger subnets), or smaller node numbers (gpu_fabric_node_id)",
                    )
                )

    def _host_number(self, version: int, node: int, rail: int) -> int:
        if self.mode == "routed_31" and version == 4:
            return 2 * node + 1
        if self.mode == "flat":
            return self.offset + (node - 1) * self.stride + rail + 1
        return self.offset + node

    def subnets(self) -> list[dict[str, t.Any]]:
        """plan.rack.subnets"""
        count = 1 if self.mode == "flat" and self.rails else self.rails
        found: list[dict[str, t.Any]] = [{"rail": rail, "ipv4": None, "ipv6": None} for rail in range(count)]
        for family in self.families:
            for entry, net in zip(found, family.subnets):
                entry[f"ipv{family.version}"] = str(net)
        return found

    def networks(self) -> list[str]:
        return [str(net) for family in self.families for net in family.subnets]

    def address(self, node: int, rail: int) -> Address:
        values: dict[str, str | None] = {}
        for family in self.families:
            net = family.subnets[0 if self.mode == "flat" else rail]
            number = net.first + self._host_number(family.version, node, rail)
            prefix = 31 if self.mode == "routed_31" and family.version == 4 else net.prefixlen
            values[f"ipv{family.version}"] = f"{netaddr.IPAddress(number, version=family.version)}/{prefix}"
            values[f"ipv{family.version}_network"] = str(net)
            if family.version == 4 and self.mode == "routed_31":
                values["ipv4_gateway"] = str(netaddr.IPAddress(number - 1, version=4))
            elif family.version == 4 and self.gateways:
                values["ipv4_gateway"] = str(netaddr.IPAddress(net.first + 1, version=4))
        return Address(
            values.get("ipv4"),
            values.get("ipv4_gateway"),
            values.get("ipv4_network"),
            values.get("ipv6"),
            values.get("ipv6_network"),
        )

    def routing(self, address: Address, rail: int) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
        """Routes and rules by which a rail's traffic leaves by that rail. A subnet of its own needs none."""
        routes: list[dict[str, t.Any]] = []
        rules: list[dict[str, t.Any]] = []
        if not address.ipv4 or (self.mode == "subnet_per_rail" and not address.ipv4_gateway):
            return routes, rules
        table, source = TABLE_BASE + rail, address.ipv4.partition("/")[0]
        if self.mode != "routed_31":
            routes.append({"dst": address.ipv4_network, "src": source, "table": table})
        if address.ipv4_gateway:
            others = [net for net in self.networks() if ":" not in net and net != address.ipv4_network]
            for net in sorted({*others, *([t.cast(str, address.ipv4_network)] if self.mode == "routed_31" else [])}):
                routes.append({"dst": net, "via": address.ipv4_gateway, "src": source, "table": table})
        rules.append({"from": f"{source}/32", "table": table, "priority": RULE_PRIORITY + rail})
        return routes, rules


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
