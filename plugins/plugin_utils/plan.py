# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``plan_rack``: intent and facts of the whole rack in, desired state of every host out (docs/architecture.md, Plan).

Pure and deterministic: the same inputs give the same plan whatever order hosts come in, and a host's addresses do not
depend on which other hosts take part.
"""

from __future__ import annotations

import collections
import ipaddress
import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import (
    bond_checks,
    bonds,
    firewall,
    ib_networks,
    interface_checks,
    ipoib,
    management_link,
    opensm,
    port_settings,
    rails,
    reachability,
    roce,
    schedules,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.addressing import (
    AddressPlan,
    flat_stride,
    node_numbers,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.classify import classify
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host_plan import (
    Host,
    plain_address,
    plan_host,
    port_choices,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import (
    Intent,
    IntentError,
    Problem,
    defaults,
    resolve,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import from_facts, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import Affinity

SCHEMA = 1
# What must be the same on every host of a rack, or its hosts cannot talk to each other.
RACK_WIDE = (
    "gpu_fabric_rail_mode",
    "gpu_fabric_rail_ipv4",
    "gpu_fabric_rail_ipv4_prefix",
    "gpu_fabric_rail_ipv6",
    "gpu_fabric_rail_ipv6_prefix",
    "gpu_fabric_rail_subnets",
    "gpu_fabric_rail_host_offset",
    "gpu_fabric_rail_gateways",
    "gpu_fabric_ipoib",
    "gpu_fabric_ib_partitions",
    "gpu_fabric_opensm_nodes",
    "gpu_fabric_opensm_rails",
    "gpu_fabric_mtu",
    "gpu_fabric_roce_profile",
    "gpu_fabric_roce_dscp",
    "gpu_fabric_roce_cnp_dscp",
    "gpu_fabric_roce_pfc_priorities",
    "gpu_fabric_roce_ets",
    "gpu_fabric_roce_priority_to_tc",
    "gpu_fabric_roce_accelerations",
    # ports of one path whose buffers differ pause each other at different fill
    "gpu_fabric_roce_buffer_size",
    "gpu_fabric_roce_priority_to_buffer",
    "gpu_fabric_fabric",
    # NCCL derives its variables from it, and ranks with different ones do not meet
    "gpu_fabric_fabric_lb",
    # ranks of one job with different NCCL versions do not meet
    "gpu_fabric_nccl_version",
    # the report is one, and belongs to the rack
    "gpu_fabric_report_dir",
)
# What works with different values, during a rolling update or on a rack of several generations, but is seldom meant.
BETTER_ONE = {
    "gpu_fabric_driver_version": "jobs run at the pace of the slowest driver, and CUDA of a newer one may not start",
    "gpu_fabric_cuda_version": "a program that was built on one host may not run on another",
    "gpu_fabric_rdma_stack": "failures of one stack look like failures of the fabric",
    "gpu_fabric_link_speed_gbps": "a collective runs at the pace of its slowest rail",
}


def plan_rack(
    intents: t.Mapping[str, t.Any],
    facts: t.Mapping[str, t.Any],
    connection: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """The plan of the rack.

    *intents* are the hosts' ``gpu_fabric_*`` variables (as given or resolved), *facts* their facts; a host without
    facts is unreachable. *connection* is ``{host: {"address", "node_id", "port", "firewall_policy"}}``
    for every member of the inventory's group, also those that do not take part in this run: their numbers and
    addresses are needed to leave them where they are.
    Raises IntentError with everything that is wrong with the intent.
    """
    connection = mapping(dict(connection or {}))
    resolved = _resolve(intents)
    names = sorted((name for name in resolved if facts.get(name)), key=_by_name)
    unreachable = sorted((name for name in resolved if not facts.get(name)), key=_by_name)
    everyone = sorted({*resolved, *connection}, key=_by_name)
    given = {name: intent["gpu_fabric_node_id"] for name, intent in resolved.items()}
    absent, unfit = _absent_numbers(resolved, connection)
    nodes, problems = node_numbers(everyone, given | absent)
    problems += unfit

    hosts = [_look(name, resolved[name], facts[name], connection, nodes[name]) for name in names]
    laid = {h.name: h.rails for h in hosts}
    rails.align(laid, {h.name: h.machine.product for h in hosts})
    rails.agree_on_rates(laid)

    rack_intent = (
        resolved[names[0]] if names else (resolved[everyone[0]] if resolved and everyone[0] in resolved else defaults())
    )
    ethernet = [h for h in hosts if h.fabric == "roce"]
    rail_count = max((rail.rail + 1 for h in hosts for rail in h.rails), default=0)
    roce_rails = max((rail.rail + 1 for h in ethernet for rail in h.rails), default=0)
    # Hosts that do not take part now may have the rails that the intent insists on: the rack's subnets are the same.
    expected = _expected_rails(everyone, resolved, connection)
    subnets = max(roce_rails, *(count or 0 for count in expected)) if roce_rails else 0
    addresses = AddressPlan(rack_intent, subnets, max(nodes.values(), default=1), flat_stride(expected))
    problems += [("", problem) for problem in addresses.problems]
    problems += _count_fits(hosts)
    problems += [("", problem) for problem in _unaddressed(ethernet, addresses, rack_intent)]
    reached = {name: plain_address(text(mapping(entry).get("address"))) for name, entry in connection.items()}
    beside = _beside_rails(hosts, addresses.networks(), reached)
    problems += beside
    problems += [(host.name, problem) for host in hosts for problem in port_choices(host).problems()]
    problems += [("", problem) for problem in _overlaps(hosts, addresses)]
    highest = max(nodes.values(), default=1)
    over_infiniband, found = _infiniband(hosts, rack_intent, everyone, highest, addresses, reached)
    problems += found
    management = _management_addresses(hosts, everyone, connection)
    let_in = {address for address in management.values() if address}
    for host in hosts:
        brought = _networks_of(host, addresses, over_infiniband) if not beside else []
        locked_out = reachability.problems(host.machine, host.intent, connection.get(host.name), brought, let_in)
        problems += [(host.name, problem) for problem in locked_out]
    if problems:
        raise IntentError(problems)
    for host in hosts:
        for rail in host.rails:
            rail.nominal_gbps = port_settings.forced_gbps(host.intent, host.machine, rail) or rail.nominal_gbps

    fabrics = collections.Counter(h.fabric for h in hosts if h.fabric != "none")
    quality = roce.rack_values(rack_intent)
    networks = [*addresses.networks(), *over_infiniband.subnets()]
    members = firewall.member_networks(networks, sorted(set(management.values()) - {""}))
    neighbours = len(everyone) * roce_rails
    managers = opensm.rack(rack_intent, laid, {h.name: h.machine for h in hosts})
    planned = {}
    for host in hosts:
        planned[host.name] = plan_host(
            host, addresses, quality, members, neighbours, len(everyone), over_infiniband, managers
        )
    _note_missing_members(hosts, planned, everyone, management)
    _note_differing(hosts, planned)
    if set(names) == set(everyone):
        _note_unmatched(hosts, planned)
    for name, measurements in schedules.ring(planned, quality.get("perftest_tos")).items():
        planned[name]["benchmark"] = measurements
    return {
        "schema": SCHEMA,
        "rack": {
            "hosts": names,
            "unreachable": unreachable,
            "members": everyone,
            "rails": rail_count,
            "fabric": fabrics.most_common(1)[0][0] if fabrics else "none",
            "roce": quality,
            "subnets": addresses.subnets(),
            "mtu": rack_intent["gpu_fabric_mtu"],
        },
        "hosts": planned,
        "findings": [],
    }


def _by_name(name: str) -> tuple[t.Any, ...]:
    return (natural(name), name)


def _resolve(intents: t.Mapping[str, t.Any]) -> dict[str, Intent]:
    resolved, problems = {}, []
    for host in sorted(intents, key=_by_name):
        intent, found = resolve(mapping(intents[host]))
        resolved[host] = intent
        problems += [(host, problem) for problem in found]
    for variable in RACK_WIDE:
        values: dict[str, list[str]] = {}
        for host, intent in resolved.items():
            values.setdefault(_comparable(intent[variable]), []).append(host)
        if len(values) > 1:
            shown = "; ".join(f"{value} on {_some(hosts)}" for value, hosts in sorted(values.items()))
            problems.append(
                ("", Problem(variable, f"differs within the rack: {shown}", "one value for the whole rack"))
            )
    if problems:
        # the form of interfaces is judged later, host by host; who mends an intent wants to hear it all at once
        for host, intent in resolved.items():
            problems += [(host, told) for told in (*management_link.read(intent)[1], *bonds.read(intent)[1])]
        first = next(iter(resolved.values()))
        raise IntentError(problems + [("", told) for told in ib_networks.problems(first)])
    return resolved


def _expected_rails(
    everyone: list[str], resolved: t.Mapping[str, Intent], connection: t.Mapping[str, t.Any]
) -> list[int | None]:
    """What the intent of every member of the rack expects, whoever takes part in this run."""
    variable = "gpu_fabric_expected_rails"
    others = {
        name: resolve({variable: mapping(connection[name]).get("expected_rails")})[0]
        for name in everyone
        if name not in resolved
    }
    return [(resolved.get(name) or others[name])[variable] for name in everyone]


def _comparable(value: t.Any) -> str:
    """A text by which equal values are equal, whatever the order of a mapping's keys and whoever wrote them."""
    if not isinstance(value, (dict, list)):
        return repr(value)
    return json.dumps(_texts_as_keys(value), sort_keys=True, default=str)


def _texts_as_keys(value: t.Any) -> t.Any:
    """YAML has keys of several types, which have no order."""
    if isinstance(value, dict):
        return {str(key): _texts_as_keys(item) for key, item in value.items()}
    return [_texts_as_keys(item) for item in value] if isinstance(value, list) else value


def _note_differing(hosts: list[Host], planned: dict[str, t.Any]) -> None:
    for variable, why in BETTER_ONE.items():
        values: dict[str, list[str]] = {}
        for host in hosts:
            values.setdefault(_comparable(host.intent[variable]), []).append(host.name)
        if len(values) > 1:
            shown = "; ".join(f"{value} on {_some(names)}" for value, names in sorted(values.items()))
            planned[hosts[0].name]["notes"].append(
                Note(
                    "RF-PLAN-INTENT-DIFFERS",
                    variable,
                    f"{variable} differs within the rack: {shown}; {why}",
                    [f"{name}: {value}" for value, names in sorted(values.items()) for name in names][:10],
                    f"Give {variable} one value for the whole group, unless the hosts are to differ",
                ).as_dict()
            )


def _absent_numbers(
    resolved: t.Mapping[str, Intent], connection: t.Mapping[str, t.Any]
) -> tuple[dict[str, int | None], list[tuple[str, Problem]]]:
    """gpu_fabric_node_id of the members that do not take part in this run, and what is wrong with them."""
    numbers: dict[str, int | None] = {}
    problems: list[tuple[str, Problem]] = []
    for name in sorted(set(connection) - set(resolved), key=_by_name):
        intent, found = resolve({"gpu_fabric_node_id": mapping(connection[name]).get("node_id")})
        numbers[name] = intent["gpu_fabric_node_id"]
        problems += [(name, problem) for problem in found]
    return numbers, problems


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _look(name: str, intent: Intent, facts: t.Any, connection: t.Mapping[str, t.Any], node: int) -> Host:
    machine = from_facts(name, facts)
    affinity = Affinity(machine)
    address = text(mapping(connection.get(name)).get("address"))
    found = classify(machine, intent, affinity, address)
    laid = rails.lay(machine, found, affinity)
    return Host(name, intent, machine, affinity, found, laid, address, node, list(found.notes))


def _count_fits(hosts: list[Host]) -> list[tuple[str, Problem]]:
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


def _beside_rails(
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


def _networks_of(host: Host, addresses: AddressPlan, over_infiniband: ipoib.IpoibPlan) -> list[tuple[str, str]]:
    """Networks that the host is to be in, each with the variable that says so."""
    found = interface_checks.bond_networks(host.intent)
    if host.fabric == "roce":
        found += [
            (family.variable.removesuffix("_prefix"), str(n)) for family in addresses.families for n in family.subnets
        ]
    if host.fabric == "infiniband":
        found += [(ib_networks.IPOIB, net) for net in over_infiniband.subnets()]
    return found


def _infiniband(
    hosts: list[Host],
    intent: Intent,
    everyone: list[str],
    highest_node: int,
    addresses: AddressPlan,
    reached: t.Mapping[str, str],
) -> tuple[ipoib.IpoibPlan, list[tuple[str, Problem]]]:
    """The rack's networks over InfiniBand, and what is wrong with them or with those that shall manage the subnet."""
    ports = [h for h in hosts if h.fabric == "infiniband"]
    count = max((rail.rail + 1 for h in ports for rail in h.rails), default=0)
    wrong = ib_networks.problems(intent)
    found = [("", problem) for problem in wrong]
    found += [("", problem) for problem in opensm.problems(intent, everyone, {h.name: h.fabric for h in hosts})]
    none = {
        name: default for name, default in defaults().items() if name in (ib_networks.IPOIB, ib_networks.PARTITIONS)
    }
    # Hosts that do not take part now may have the rails that the intent insists on.
    count = max(count, intent["gpu_fabric_expected_rails"] or 0) if count else 0
    plan = ipoib.IpoibPlan({**intent, **none} if wrong or not ports else intent, count, highest_node)
    found += [("", problem) for problem in plan.problems]
    for variable in (ib_networks.IPOIB, ib_networks.PARTITIONS):
        if intent[variable] and hosts and not ports:
            shown = ", ".join(sorted({f"{h.name}: {h.fabric}" for h in hosts})[:5])
            found.append(("", Problem(variable, f"no host has InfiniBand rails ({shown})", "nothing on such a rack")))
    for host in ports:
        found += ipoib.mode_problems(plan.networks, host.name, host.rails)
        found += ipoib.overlaps(plan, host.name, host.machine, addresses.networks())
    found += ipoib.members_inside(plan, reached)
    return plan, found


def _unaddressed(ethernet: list[Host], addresses: AddressPlan, intent: Intent) -> list[Problem]:
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


def _overlaps(hosts: list[Host], addresses: AddressPlan) -> list[Problem]:
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


def _management_addresses(hosts: list[Host], everyone: list[str], connection: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Where each member of the rack is reached; "" where that is not known."""
    found = {name: plain_address(text(mapping(connection.get(name)).get("address"))) for name in everyone}
    for host in hosts:
        if not found[host.name]:
            ssh = mapping(host.machine.facts.get("ssh"))
            dev = host.machine.netdevs.get(host.found.management)
            own = [item.partition("/")[0] for item in (dev.global_addresses if dev else ())]
            found[host.name] = next(filter(None, map(plain_address, [text(ssh.get("address")), *own])), "")
    return found


def _note_unmatched(hosts: list[Host], planned: dict[str, t.Any]) -> None:
    """Devices that the intent names and no host has; each host has told of its own rails already."""
    naming: dict[tuple[str, str], list[Host]] = {}
    for host in hosts:
        for entry in host.found.unmatched:
            naming.setdefault(entry, []).append(host)
    for (variable, item), lacking in naming.items():
        named = [host for host in hosts if item in host.intent[variable]]
        told = any(note.id == "RF-PLAN-OVERRIDE-UNMATCHED" and note.device == item for h in named for note in h.notes)
        if told or len(lacking) < len(named) or not any(host.machine.hcas for host in named):
            continue
        planned[named[0].name]["notes"].append(
            Note(
                "RF-PLAN-OVERRIDE-UNMATCHED",
                item,
                f"{variable} names {item}, which no device of {_some([host.name for host in named])} is",
                [f"{hca.name} {hca.pci}" for hca in named[0].machine.hcas],
                f"Correct {item} in {variable}, or remove it",
            ).as_dict()
        )


def _note_missing_members(
    hosts: list[Host], planned: dict[str, t.Any], everyone: list[str], management: dict[str, str]
) -> None:
    missing = [name for name in everyone if not management[name]]
    firewalled = [host for host in hosts if host.intent["gpu_fabric_firewall"] != "none"]
    if missing and firewalled and len(everyone) > 1:
        planned[firewalled[0].name]["notes"].append(
            Note(
                "RF-PLAN-MEMBER-ADDRESS",
                ",".join(missing[:10]),
                f"the management address of {_some(missing)} is not known, so the firewall of the other hosts does not "
                "let them in on it",
                [],
                "Set ansible_host to an address for every host, or run without --limit",
            ).as_dict()
        )
