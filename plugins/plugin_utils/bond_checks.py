# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bonds that are well formed and yet cannot be: their options, their gateways, and what the host has."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.bonds import VARIABLE
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine

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
        found += [Problem(VARIABLE, *wrong) for wrong in _gateway(str(name), given)]
        found += [Problem(VARIABLE, *wrong) for wrong in _on_host(str(name), given, machine, rails, management)]
        found += [Problem(VARIABLE, *wrong) for wrong in _in_rails(str(name), given, subnets)]
    return found


def _options(name: str, given: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    for key, allowed in OPTIONS.items():
        if given.get(key) not in (None, *allowed):
            yield f"{key} of {name} is {given[key]!r}", ", ".join(allowed)
    if given.get("lacp_rate") and given["mode"] != "802.3ad":
        yield f"lacp_rate of {name} with mode {given['mode']}", "lacp_rate with mode 802.3ad"


def _gateway(name: str, given: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    if given.get("gateway") in (None, ""):
        return
    try:
        gateway = ipaddress.ip_address(str(given["gateway"]))
    except ValueError:
        yield f"gateway of {name} is {given['gateway']!r}", "an address"
        return
    own = [ipaddress.ip_interface(str(item)) for item in given.get("addresses") or ()]
    if not any(gateway in item.network for item in own):
        shown = ", ".join(map(str, own)) or "none"
        yield f"gateway {gateway} of {name} is in no network of its addresses ({shown})", "an address in one of them"
    elif any(gateway == item.ip for item in own):
        yield f"gateway {gateway} of {name} is the bond's own address", "another address of its network"


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


def _in_rails(name: str, given: t.Mapping[str, t.Any], subnets: t.Sequence[str]) -> t.Iterator[tuple[str, str]]:
    networks = [ipaddress.ip_network(item) for item in subnets]
    for item in given.get("addresses") or ():
        own = ipaddress.ip_interface(str(item)).network
        net = next((net for net in networks if net.version == own.version and net.overlaps(own)), None)
        if net:
            yield f"{item} of {name} overlaps the rails' {net}", "networks that the rails do not use"
