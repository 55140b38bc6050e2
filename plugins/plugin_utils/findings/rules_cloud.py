# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of a cloud's API that were recorded with the rack: security groups and network interfaces."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    RackView,
    dicts,
    mapping,
)

SECURITY_GROUP = define(
    "firewall",
    "RF-CLOUD-SECURITY-GROUP",
    title="A security group does not admit its own members",
    severity="fail",
    phase="preflight",
    means="Members of the rack cannot reach each other: EFA needs all traffic to and from the security group itself, "
    "in both directions; the fabric's bootstrap needs all TCP. Rules with address ranges do not count for EFA.",
    looks_at="Recorded rules of the security groups (sg_rules.json) and what interfaces they are on (interfaces.json).",
    cause="The self-referencing rule was left out for one direction, or replaced by a CIDR rule.",
    remedy="Add a rule for all protocols with the group itself as peer, for ingress and for egress; do not open it to "
    "all addresses.",
    check="A fi_pingpong or a two-node NCCL test between members passes.",
    source="Cloud providers' documentation of EFA security groups",
)


def _load(rack: RackView, name: str, key: str) -> list[dict[str, t.Any]]:
    """The list of an API's answer, bare or under its usual key."""
    try:
        data = json.loads(rack.text(name) or "null")
    except ValueError:
        return []
    if isinstance(data, dict):
        data = data.get(key) if key in data else [data]
    return dicts(data)


def _groups(rack: RackView) -> dict[str, dict[str, list[dict[str, t.Any]]]]:
    """Group → direction → rules, from either form: groups with permissions, or a flat list of rules."""
    found: dict[str, dict[str, list[dict[str, t.Any]]]] = {}
    for group in _load(rack, "sg_rules.json", "SecurityGroups"):
        if "IpPermissions" in group or "IpPermissionsEgress" in group:
            found[str(group.get("GroupId") or group.get("GroupName"))] = {
                "ingress": dicts(group.get("IpPermissions")),
                "egress": dicts(group.get("IpPermissionsEgress")),
            }
    for rule in _load(rack, "sg_rules.json", "SecurityGroupRules"):
        if "IsEgress" in rule and rule.get("GroupId"):
            both = found.setdefault(str(rule["GroupId"]), {"ingress": [], "egress": []})
            both["egress" if rule["IsEgress"] else "ingress"].append(rule)
    return found


def _admits_itself(rule: dict[str, t.Any], group: str) -> bool:
    peers = [str(pair.get("GroupId")) for pair in dicts(rule.get("UserIdGroupPairs"))]
    peers.append(str(mapping(rule.get("ReferencedGroupInfo")).get("GroupId")))
    return str(rule.get("IpProtocol")) == "-1" and group in peers


@rack_rule(SECURITY_GROUP)
def group_without_itself(rack: RackView) -> t.Iterator[Finding]:
    interfaces = _load(rack, "interfaces.json", "NetworkInterfaces")
    for group, rules in sorted(_groups(rack).items()):
        users = [
            row for row in interfaces if group in [str(mapping(g).get("GroupId")) for g in dicts(row.get("Groups"))]
        ]
        efa = [str(row.get("NetworkInterfaceId")) for row in users if str(row.get("InterfaceType")).startswith("efa")]
        if interfaces and not users:
            continue  # it is on no interface of the rack
        lacking = [way for way in ("ingress", "egress") if not any(_admits_itself(r, group) for r in rules[way])]
        open_out = any(
            str(rule.get("IpProtocol")) == "-1" and "0.0.0.0/0" in json.dumps(rule) for rule in rules["egress"]
        )
        if "egress" in lacking and open_out and not efa and interfaces:
            lacking.remove("egress")  # without EFA an open way out serves
        if lacking:
            yield SECURITY_GROUP.on(
                "",
                f"security group {group} has no self-referencing rule for all protocols: {' and '.join(lacking)} from "
                f"{group} to itself wanted" + (f" (EFA interfaces {', '.join(efa[:4])})" if efa else ""),
                device=group,
                evidence=[f"{way}: {json.dumps(rule)}" for way in lacking for rule in rules[way][:3]],
            )
