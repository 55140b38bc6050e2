# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""By which interface a host is reached, and what lies under that interface."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import dicts, mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, integer, text

CARRIES_CONNECTION = "carries this run's SSH connection"


def connection_interface(machine: Machine) -> str:
    """The interface that carries this run's SSH connection; empty without one.

    Without a connection the facts name the default route's interface, which need not be the one that peers reach.
    """
    ssh = mapping(machine.facts.get("ssh"))
    name = text(ssh.get("netdev"))
    return name if name != "lo" and ssh.get("basis") != "default_route" else ""


def management_interface(machine: Machine, intent: t.Mapping[str, t.Any], address: str = "") -> tuple[str, str]:
    """The interface by which the host is reached, and how that is known; empty where it is not."""
    if intent["gpu_fabric_management_interface"]:
        return intent["gpu_fabric_management_interface"], "named in gpu_fabric_management_interface"
    ssh = mapping(machine.facts.get("ssh"))
    if connection_interface(machine):
        return connection_interface(machine), CARRIES_CONNECTION
    if address:
        for dev in machine.netdevs.values():
            if any(a.partition("/")[0] == address for a in dev.addresses):
                return dev.name, f"holds the inventory's address {address}"
    routes = default_routes(machine) or [name for name in (text(ssh.get("netdev")),) if name not in ("", "lo")]
    if routes:
        return routes[0], "carries the default route"
    return "", ""


def default_routes(machine: Machine, family: int | None = None) -> list[str]:
    """Interfaces with a default route in the main table, preferred first; IPv4 before IPv6, or one *family* alone."""
    found = []
    for route in dicts(machine.facts.get("routes")):
        main = str(route.get("table", "main")) in ("main", "254", "None", "")
        if text(route.get("dst")) in ("default", "0.0.0.0/0", "::/0") and text(route.get("dev")) and main:
            six = integer(route.get("family")) == 6 or route.get("dst") == "::/0"
            found.append((six, integer(route.get("metric")) or 0, text(route["dev"])))
    return list(dict.fromkeys(dev for six, _, dev in sorted(found) if family in (None, 6 if six else 4)))


def lower_devices(machine: Machine, netdev: str) -> set[str]:
    """The interface and everything under it: a VLAN's parent, a bond's or bridge's members."""
    seen: set[str] = set()
    waiting = [netdev]
    while waiting:
        name = waiting.pop()
        dev = machine.netdevs.get(name)
        if name in seen:
            continue
        seen.add(name)
        if dev:
            waiting += [*dev.bond_members, *([dev.vlan_parent] if dev.vlan_parent else [])]
            # also what a hypervisor's paravirtual interface took as its fast path (netvsc and its virtual function)
            waiting += [other.name for other in machine.netdevs.values() if other.master == name]
    return seen
