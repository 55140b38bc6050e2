# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``plan_rack``: intent and facts of the whole rack in, desired state of every host out (docs/architecture.md, Plan).

Pure and deterministic: the same inputs give the same plan whatever order hosts come in, and a host's addresses do not
depend on which other hosts take part.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import (
    firewall,
    ib_networks,
    ipoib,
    opensm,
    port_settings,
    rack_checks,
    rack_notes,
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
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host, look, plain_address
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host_plan import Rack, plan_host
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import Intent, IntentError, Problem, defaults
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rack_intent import (
    absent_numbers,
    by_name,
    expected_rails,
    resolve_all,
)

SCHEMA = 1


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
    resolved = resolve_all(intents)
    names = sorted((name for name in resolved if facts.get(name)), key=by_name)
    unreachable = sorted((name for name in resolved if not facts.get(name)), key=by_name)
    everyone = sorted({*resolved, *connection}, key=by_name)
    given = {name: intent["gpu_fabric_node_id"] for name, intent in resolved.items()}
    absent, unfit = absent_numbers(resolved, connection)
    nodes, problems = node_numbers(everyone, given | absent)
    problems += unfit

    hosts = [look(name, resolved[name], facts[name], connection, nodes[name]) for name in names]
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
    expected = expected_rails(everyone, resolved, connection)
    subnets = max(roce_rails, *(count or 0 for count in expected)) if roce_rails else 0
    addresses = AddressPlan(rack_intent, subnets, max(nodes.values(), default=1), flat_stride(expected))
    problems += [("", problem) for problem in addresses.problems]
    problems += rack_checks.count_fits(hosts)
    problems += [("", problem) for problem in rack_checks.unaddressed(ethernet, addresses, rack_intent)]
    reached = {name: plain_address(text(mapping(entry).get("address"))) for name, entry in connection.items()}
    beside = rack_checks.beside_rails(hosts, addresses.networks(), reached)
    problems += beside
    problems += [(host.name, problem) for host in hosts for problem in host.port_settings.problems()]
    problems += [("", problem) for problem in rack_checks.overlaps(hosts, addresses)]
    highest = max(nodes.values(), default=1)
    over_infiniband, found = _infiniband(hosts, rack_intent, everyone, highest, addresses, reached)
    problems += found
    management = _management_addresses(hosts, everyone, connection)
    let_in = {address for address in management.values() if address}
    for host in hosts:
        brought = rack_checks.networks_of(host, addresses, over_infiniband) if not beside else []
        locked_out = reachability.problems(host.machine, host.intent, connection.get(host.name), brought, let_in)
        problems += [(host.name, problem) for problem in locked_out]
    if problems:
        raise IntentError(problems)
    for host in hosts:
        for rail in host.rails:
            rail.nominal_gbps = port_settings.forced_gbps(host.intent, host.machine, rail) or rail.nominal_gbps

    fabrics = collections.Counter(h.fabric for h in hosts if h.fabric != "none")
    rack = Rack(
        size=len(everyone),
        addresses=addresses,
        quality=roce.rack_values(rack_intent),
        members=firewall.member_networks(
            [*addresses.networks(), *over_infiniband.subnets()], sorted(set(management.values()) - {""})
        ),
        neighbours=len(everyone) * roce_rails,
        over_infiniband=over_infiniband,
        managers=opensm.rack(rack_intent, laid, {h.name: h.machine for h in hosts}),
    )
    planned = {host.name: plan_host(host, rack) for host in hosts}
    rack_notes.missing_members(hosts, planned, everyone, management)
    rack_notes.differing(hosts, planned)
    if set(names) == set(everyone):
        rack_notes.unmatched(hosts, planned)
    for name, measurements in schedules.ring(planned, rack.quality.get("perftest_tos")).items():
        planned[name]["benchmark"] = measurements
    return {
        "schema": SCHEMA,
        "rack": {
            "hosts": names,
            "unreachable": unreachable,
            "members": everyone,
            "rails": rail_count,
            "fabric": fabrics.most_common(1)[0][0] if fabrics else "none",
            "roce": rack.quality,
            "subnets": addresses.subnets(),
            "mtu": rack_intent["gpu_fabric_mtu"],
        },
        "hosts": planned,
        "findings": [],
    }


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
