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
    ipv6_gateway: str | None
    ipv6_network: str | None


NO_ADDRESS = Address(None, None, None, None, None, None)


def flat_stride(expected: t.Iterable[int | None]) -> int:
    """How far apart two nodes are in one flat subnet, from what the intent of every member expects.

    What hosts show does not count, nor who takes part in the run: either would move the addresses of the others.
    """
    return max((FLAT_STRIDE if count is None else count for count in expected), default=FLAT_STRIDE) or FLAT_STRIDE


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

    def __init__(self, intent: t.Mapping[str, t.Any], rails: int, highest_node: int, stride: int = FLAT_STRIDE) -> None:
        self.mode = intent["gpu_fabric_rail_mode"]
        self.offset = intent["gpu_fabric_rail_host_offset"]
        self.gateways = intent["gpu_fabric_rail_gateways"]
        self.rails = rails
        self.stride = stride
        self.problems: list[Problem] = []
        if self.mode == "flat" and rails > stride:
            self.problems.append(
                Problem(
                    "gpu_fabric_expected_rails",
                    f"a host has {rails} rails, and gpu_fabric_rail_mode: flat keeps {stride} addresses for each",
                    "the highest number of rails of any host, for the whole rack, with flat",
                )
            )
        self.families = [family for family in (self._family(intent, 4), self._family(intent, 6)) if family]
        self._check_room(highest_node)

    def _family(self, intent: t.Mapping[str, t.Any], version: int) -> _Family | None:
        given = [netaddr.IPNetwork(item) for item in intent["gpu_fabric_rail_subnets"]]
        given = [net for net in given if net.version == version]
        needed = 1 if self.mode == "flat" else self.rails
        if given and needed:
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
        if not pool or not needed or given:
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
            last = self._host_number(highest_node, max(self.rails - 1, 0))
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

    def _host_number(self, node: int, rail: int) -> int:
        if self.mode == "routed_31":
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
            number = net.first + self._host_number(node, rail)
            # two addresses, the host's and the switch's: /31, and /127 of IPv6
            prefix = {4: 31, 6: 127}[family.version] if self.mode == "routed_31" else net.prefixlen
            values[f"ipv{family.version}"] = f"{netaddr.IPAddress(number, version=family.version)}/{prefix}"
            values[f"ipv{family.version}_network"] = str(net)
            if self.mode == "routed_31":
                values[f"ipv{family.version}_gateway"] = str(netaddr.IPAddress(number - 1, version=family.version))
            elif self.gateways:
                values[f"ipv{family.version}_gateway"] = str(netaddr.IPAddress(net.first + 1, version=family.version))
        return Address(**{name: values.get(name) for name in Address._fields})

    def routing(self, address: Address, rail: int) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
        """Routes and rules by which a rail's traffic leaves by that rail. A subnet of its own needs none."""
        routes: list[dict[str, t.Any]] = []
        rules: list[dict[str, t.Any]] = []
        table = TABLE_BASE + rail
        for own, gateway, network in (
            (address.ipv4, address.ipv4_gateway, address.ipv4_network),
            (address.ipv6, address.ipv6_gateway, address.ipv6_network),
        ):
            # a provider's address has no network of the plan
            if not own or not network or (self.mode == "subnet_per_rail" and not gateway):
                continue
            source, six = own.partition("/")[0], ":" in own
            # The kernel takes no preferred IPv6 source before duplicate address detection is through; the rule has
            # chosen by the source already.
            preferred = {} if six else {"src": source}
            if self.mode != "routed_31":
                routes.append({"dst": network, **preferred, "table": table})
            if gateway:
                others = {net for net in self.networks() if (":" in net) == six and net != network}
                for net in sorted(others | ({network} if self.mode == "routed_31" else set())):
                    routes.append({"dst": net, "via": gateway, **preferred, "table": table})
            rules.append({"from": f"{source}/{128 if six else 32}", "table": table, "priority": RULE_PRIORITY + rail})
        return routes, rules
