# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IP over InfiniBand, planned: addresses of the rails' interfaces, interfaces of partitions, and who is a member."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.addressing import AddressPlan
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.ib_networks import (
    CONNECTED_MTU,
    DATAGRAM_MTU,
    ENCAPSULATION,
    FULL,
    IPOIB,
    PARTITIONS,
    Network,
    read,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, Port
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail

# What any InfiniBand fabric carries: packets of 2048 bytes.
SAFE_MTU = 2048 - ENCAPSULATION
_NAME_LIMIT = 15


class IpoibPlan:
    """The networks of the rack with their subnets."""

    def __init__(self, intent: Intent, rails: int, highest_node: int) -> None:
        self.networks = read(intent)
        self.managed = bool(intent["gpu_fabric_opensm_nodes"])
        self.problems: list[Problem] = []
        self._addresses: list[AddressPlan] = []
        for network in self.networks:
            count = len(network.rails) if network.rails is not None else rails
            addresses = AddressPlan(_as_rails(network, intent), count, highest_node)
            self._addresses.append(addresses)
            self.problems += [
                Problem(network.variable, f"{network.title}: {_plain(p.message)}", _plain(p.allowed))
                for p in addresses.problems
            ]

    def subnets(self) -> list[str]:
        return [subnet for addresses in self._addresses for subnet in addresses.networks()]

    def for_host(
        self, machine: Machine, rails: t.Sequence[Rail], node: int, management: str
    ) -> tuple[list[dict[str, t.Any]], list[Note]]:
        """plan.hosts[h].ipoib, entries of fabric_links, each port's own interface before those of its partitions."""
        links: dict[str, dict[str, t.Any]] = {}
        notes: list[Note] = []
        ports = [rail for rail in rails if rail.link_layer == "InfiniBand"]
        for network, addresses in zip(self.networks, self._addresses):
            notes += _absent_rails(network, ports)
            for rail in ports:
                place = network.place(rail.rail)
                if place is None or not self._may(network, rail, notes) or not network.pools:
                    continue
                if not rail.netdev:
                    notes.append(_no_interface(network, rail))
                    continue
                if rail.netdev == management:
                    continue
                planned = addresses.address(node, place)
                given = [item for item in (planned.ipv4, planned.ipv6) if item]
                if network.pkey is None:
                    links[rail.netdev] = _link(machine, rail, network, rail.netdev, given, self.managed, notes)
                    continue
                # A port's own interface is brought up for its partitions even where nobody addresses it.
                links.setdefault(rail.netdev, _parent(machine, rail, network))
                name = f"{rail.netdev}.{network.pkey:04x}"
                links[name] = _link(machine, rail, network, name, given, self.managed, notes)
        return list(links.values()), notes

    def _may(self, network: Network, rail: Rail, notes: list[Note]) -> bool:
        """Whether the port is a full member of the partition, as far as anybody knows."""
        if network.pkey is None or rail.port is None or not rail.port.active or not rail.port.pkeys:
            return True
        table = dict(rail.port.pkeys)
        if network.pkey in table.values():
            return True
        shown = ", ".join(f"{value:#06x}" for value in table.values())
        limited = network.pkey & ~FULL in table.values()
        has = f"is a limited member ({network.pkey & ~FULL:#06x})" if limited else f"has the keys {shown}"
        port = f"{rail.hca.name} port {rail.port.number}"
        message = f"partition {network.pkey:#06x} ({network.name}) is wanted on rail {rail.rail}, and {port} {has}"
        remedy = (
            "Nothing to do: opensm on gpu_fabric_opensm_nodes gives the key in this run"
            if self.managed
            else f"Give port GUID 0x{rail.port.guid or '?'} full membership of {network.pkey:#06x} in the subnet"
            " manager (UFM, or partitions.conf of opensm), name nodes that run one in gpu_fabric_opensm_nodes, or"
            f" take the rail out of {PARTITIONS}"
        )
        id_ = "RF-PLAN-PKEY-PENDING" if self.managed else "RF-PLAN-PKEY"
        evidence = [f"{port}: pkeys/{index}: {value:#06x}" for index, value in table.items()]
        notes.append(Note(id_, rail.hca.name, message, evidence, remedy))
        return self.managed


def sharing(links: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """Addressed interfaces that hear the broadcasts meant for another one of the host: those of one partition."""
    keys = [link["ipoib"].get("pkey") for link in links if link["addresses"]]
    return [link["netdev"] for link in links if link["addresses"] and keys.count(link["ipoib"].get("pkey")) > 1]


def mode_problems(networks: t.Sequence[Network], name: str, rails: t.Sequence[Rail]) -> list[tuple[str, Problem]]:
    """Connected mode where the NIC does not offer it, and names that no interface can have."""
    found = []
    for network in networks:
        for rail in rails:
            if rail.link_layer != "InfiniBand" or network.place(rail.rail) is None:
                continue
            if network.mode == "connected" and rail.hca.driver.startswith("mlx5"):
                message = (
                    f"{network.title}: mode is connected, and {rail.hca.name} ({rail.hca.driver}) has enhanced IP over"
                    " InfiniBand, which offers datagram only"
                )
                found.append((name, Problem(network.variable, message, "datagram on NICs that mlx5 drives")))
                break
            child = f"{rail.netdev}.{network.pkey:04x}" if network.pkey and network.pools and rail.netdev else ""
            if len(child) > _NAME_LIMIT:
                message = f"{network.title}: {child} has {len(child)} characters, and an interface's name 15 at most"
                found.append((name, Problem(network.variable, message, "rails whose interfaces have shorter names")))
                break
    return found


def overlaps(plan: IpoibPlan, name: str, machine: Machine, rail_networks: t.Sequence[str]) -> list[tuple[str, Problem]]:
    """Subnets must hold no network that something else in the rack is in."""
    nets = [ipaddress.ip_network(net) for net in plan.subnets()]
    found = []
    others = [("the rails' " + net, net) for net in rail_networks]
    for dev in machine.netdevs.values():
        if not dev.infiniband and dev.name != "lo":
            others += [(f"{name}'s {dev.name} {item}", item) for item in dev.global_addresses]
    for what, item in others:
        try:
            other = ipaddress.ip_interface(item).network
        except ValueError:
            continue
        net = next((net for net in nets if net.version == other.version and net.overlaps(other)), None)
        if net:
            message = f"{net} of IP over InfiniBand overlaps {what}"
            found.append((name, Problem(IPOIB, message, "pools that nothing else in the rack uses")))
    return found[:4]


def members_inside(plan: IpoibPlan, reached: t.Mapping[str, str]) -> list[tuple[str, Problem]]:
    """Members of the rack, whoever takes part, that are reached at an address in one of the subnets."""
    found = []
    for name, address in reached.items():
        net = next(
            (net for net in plan.subnets() if address and ipaddress.ip_address(address) in ipaddress.ip_network(net)),
            None,
        )
        if net:
            message = f"{net} of IP over InfiniBand holds {address}, at which {name} is reached"
            found.append(("", Problem(IPOIB, message, "pools that nothing else in the rack uses")))
    return found[:4]


def nccl_pkey(networks: t.Sequence[Network], rails: t.Sequence[Rail]) -> tuple[str, str, list[Note]]:
    """(NCCL_IB_PKEY, reason, notes): an index, needed only where index 0 is no partition for all to talk in."""
    ports = [rail for rail in rails if rail.link_layer == "InfiniBand" and rail.port and rail.port.pkeys]
    if not ports or len(ports) < len(rails):
        return "", "", []
    tables = {
        f"{rail.hca.name}:{t.cast(Port, rail.port).number}": dict(t.cast(Port, rail.port).pkeys) for rail in ports
    }
    if all(table.get(0, 0) & FULL for table in tables.values()):
        return "", "", []
    for network in networks:
        if network.pkey is None or any(network.place(rail.rail) is None for rail in ports):
            continue
        indexes = {
            name: next((index for index, value in table.items() if value == network.pkey), None)
            for name, table in tables.items()
        }
        seen = set(indexes.values())
        if len(seen) == 1 and None not in seen:
            first = next(iter(tables.values())).get(0, 0)
            reason = f"index of {network.pkey:#06x} on every rail; index 0 has {first:#06x}, a limited membership"
            return str(seen.pop()), reason, []
        if None not in seen:
            shown = ", ".join(f"{name} index {index}" for name, index in indexes.items())
            note = Note(
                "RF-PLAN-NCCL-PKEY",
                ",".join(indexes),
                f"NCCL takes one index for all rails, and {network.pkey:#06x} has several: {shown}",
                [
                    f"{name}: pkeys/{index}: {value:#06x}"
                    for name, table in tables.items()
                    for index, value in table.items()
                ],
                "Have the subnet manager put the key at one index (indx0 in opensm's partitions.conf)",
            )
            return "", "", [note]
    return "", "", []


def _as_rails(network: Network, intent: Intent) -> dict[str, t.Any]:
    """The network in the words of the rails' address plan: a subnet per rail."""
    words: dict[str, t.Any] = {
        "gpu_fabric_rail_mode": "subnet_per_rail",
        "gpu_fabric_rail_host_offset": intent["gpu_fabric_rail_host_offset"],
        "gpu_fabric_rail_gateways": False,
        "gpu_fabric_expected_rails": None,
        "gpu_fabric_rail_subnets": [],
        "gpu_fabric_rail_ipv4": "",
        "gpu_fabric_rail_ipv6": "",
        "gpu_fabric_rail_ipv4_prefix": 24,
        "gpu_fabric_rail_ipv6_prefix": 64,
    }
    for version, pool, prefix in network.pools:
        words[f"gpu_fabric_rail_ipv{version}"], words[f"gpu_fabric_rail_ipv{version}_prefix"] = pool, prefix
    return words


def _plain(text: str) -> str:
    return text.replace("gpu_fabric_rail_", "").replace(" in mode subnet_per_rail", "")


def _absent_rails(network: Network, ports: t.Sequence[Rail]) -> list[Note]:
    missing = sorted(set(network.rails or ()) - {rail.rail for rail in ports})
    if not missing or not ports:
        return []
    return [
        Note(
            "RF-PLAN-IPOIB",
            ", ".join(f"rail {number}" for number in missing),
            f"{network.title} names rail {', '.join(map(str, missing))}, and this host has no such InfiniBand rail",
            [f"rail {rail.rail}: {rail.hca.name}" for rail in ports],
            f"Correct rails in {network.variable}, or look for the lost card with lspci",
        )
    ]


def _no_interface(network: Network, rail: Rail) -> Note:
    return Note(
        "RF-PLAN-IPOIB",
        rail.hca.name,
        f"{network.title} wants an interface on rail {rail.rail}, and {rail.hca.name} has none: ib_ipoib is not loaded",
        [f"{rail.hca.name} {rail.hca.pci}: no network interface"],
        "Nothing to do but run again: this run loads the module, and the next one names the interface",
    )


def _parent(machine: Machine, rail: Rail, network: Network) -> dict[str, t.Any]:
    return _entry(machine, rail, rail.netdev, None, [], {"mode": network.mode})


def _link(
    machine: Machine, rail: Rail, network: Network, name: str, addresses: list[str], managed: bool, notes: list[Note]
) -> dict[str, t.Any]:
    ipoib: dict[str, t.Any] = {"mode": network.mode}
    if network.pkey is not None:
        ipoib |= {"parent": rail.netdev, "pkey": f"{network.pkey:#06x}"}
    return _entry(machine, rail, name, _mtu(network, rail, name, managed, notes), addresses, ipoib)


def _entry(
    machine: Machine, rail: Rail, name: str, mtu: int | None, addresses: list[str], ipoib: dict[str, t.Any]
) -> dict[str, t.Any]:
    return {
        "netdev": name,
        "pci": rail.hca.pci or None,
        "mtu": mtu,
        "addresses": addresses,
        "routes": [],
        "rules": [],
        "rail": rail.rail,
        "ipoib": ipoib,
    }


def _mtu(network: Network, rail: Rail, name: str, managed: bool, notes: list[Note]) -> int:
    if network.mode == "connected":
        return network.mtu or CONNECTED_MTU
    active = rail.port.active_mtu_bytes if rail.port and rail.port.active else None
    limit = active - ENCAPSULATION if active else None
    if network.mtu and limit and network.mtu > limit:
        notes.append(
            Note(
                "RF-PLAN-IPOIB-MTU",
                name,
                f"{network.title} asks for an MTU of {network.mtu}, and {rail.hca.name} allows {limit}: its active MTU"
                f" is {active}",
                [f"{rail.hca.name} active_mtu: {active}"],
                "Set mtu to auto or less, or raise the MTU of the port's link and of the partition (mtu=5 in"
                " partitions.conf)",
            )
        )
    # Ports that wait for the collection's own opensm will be in its groups, of 4096 bytes.
    return network.mtu or limit or (DATAGRAM_MTU if managed else SAFE_MTU)
