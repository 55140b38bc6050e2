# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The intent of all hosts of a rack: what must be the same on each, and what had better be."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import bonds, ib_networks, management_link
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import Intent, IntentError, Problem, resolve
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import some

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


def resolve_all(intents: t.Mapping[str, t.Any]) -> dict[str, Intent]:
    resolved, problems = {}, []
    for host in sorted(intents, key=by_name):
        intent, found = resolve(mapping(intents[host]))
        resolved[host] = intent
        problems += [(host, problem) for problem in found]
    for variable in RACK_WIDE:
        values: dict[str, list[str]] = {}
        for host, intent in resolved.items():
            values.setdefault(comparable(intent[variable]), []).append(host)
        if len(values) > 1:
            shown = "; ".join(f"{value} on {some(hosts)}" for value, hosts in sorted(values.items()))
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


def expected_rails(
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


def absent_numbers(
    resolved: t.Mapping[str, Intent], connection: t.Mapping[str, t.Any]
) -> tuple[dict[str, int | None], list[tuple[str, Problem]]]:
    """gpu_fabric_node_id of the members that do not take part in this run, and what is wrong with them."""
    numbers: dict[str, int | None] = {}
    problems: list[tuple[str, Problem]] = []
    for name in sorted(set(connection) - set(resolved), key=by_name):
        intent, found = resolve({"gpu_fabric_node_id": mapping(connection[name]).get("node_id")})
        numbers[name] = intent["gpu_fabric_node_id"]
        problems += [(name, problem) for problem in found]
    return numbers, problems


def comparable(value: t.Any) -> str:
    """A text by which equal values are equal, whatever the order of a mapping's keys and whoever wrote them."""
    if not isinstance(value, (dict, list)):
        return repr(value)
    return json.dumps(_texts_as_keys(value), sort_keys=True, default=str)


def _texts_as_keys(value: t.Any) -> t.Any:
    """YAML has keys of several types, which have no order."""
    if isinstance(value, dict):
        return {str(key): _texts_as_keys(item) for key, item in value.items()}
    return [_texts_as_keys(item) for item in value] if isinstance(value, list) else value


def by_name(name: str) -> tuple[t.Any, ...]:
    return (natural(name), name)
