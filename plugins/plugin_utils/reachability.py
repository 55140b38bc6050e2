# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""That whoever runs this still gets in afterwards.

A run survives its own mistake: its connection is established and goes on through a firewall that lets no new one in.
So what would lock the next run out is refused here, before anything is changed.
"""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, integer, text


def problems(
    machine: Machine,
    intent: Intent,
    connection: t.Any,
    networks: t.Iterable[tuple[str, str]] = (),
    members: t.Container[str] = (),
) -> list[Problem]:
    """*networks* are those that the host is to be in, each with the variable that says so; *members* the addresses of
    the rack's hosts, which the firewall lets in on every port."""
    return [
        *_shut_out(machine, intent, mapping(connection), members),
        *_no_interface(machine, intent),
        *_taken_over(machine, intent, networks),
    ]


def _taken_over(machine: Machine, intent: Intent, networks: t.Iterable[tuple[str, str]]) -> list[Problem]:
    """Answers to where the run comes from would leave by a rail or a bond, once the host is in its network."""
    client = text(mapping(machine.facts.get("ssh")).get("client")).partition("%")[0]
    if intent["gpu_fabric_state"] == "absent" or not client:
        return []
    address = ipaddress.ip_address(client)
    return [
        Problem(variable, f"{net} holds {client}, from where this run comes", "networks that hold no administrator")
        for variable, net in networks
        if address in ipaddress.ip_interface(net).network
    ]


def _shut_out(
    machine: Machine, intent: Intent, connection: t.Mapping[str, t.Any], members: t.Container[str]
) -> list[Problem]:
    """The port that sshd has told the connection is the host's own; the inventory's may be another's, translated."""
    if intent["gpu_fabric_firewall"] == "none" or intent["gpu_fabric_state"] == "absent":
        return []
    ssh = mapping(machine.facts.get("ssh"))
    if connection.get("firewall_policy") == "accept" or text(ssh.get("client")).removeprefix("::ffff:") in members:
        return []  # nothing is refused, or not to this client
    found = []
    seen = integer(ssh.get("port"))
    port, origin = (seen, "SSH_CONNECTION") if seen else (integer(connection.get("port")), "the inventory")
    allowed = intent["gpu_fabric_allow_tcp"]
    if port and port not in allowed:
        reason = f"the port of this run's connection ({origin}): the firewall would lock you out"
        message = f"{allowed} lacks {port}, {reason}"
        found.append(Problem("gpu_fabric_allow_tcp", message, f"ports with {port} among them"))
    if connection.get("port") and not text(ssh.get("client")) and not intent["gpu_fabric_admin_networks"]:
        message = "empty, and the host does not tell from where it is administered: the firewall would lock you out"
        found.append(Problem("gpu_fabric_admin_networks", message, "the networks from which you connect"))
    return found


def _no_interface(machine: Machine, intent: Intent) -> list[Problem]:
    name = intent["gpu_fabric_management_interface"]
    if not name or not machine.netdevs or name in machine.netdevs or name in intent["gpu_fabric_bonds"]:
        return []
    shown = ", ".join(sorted(dev for dev in machine.netdevs if dev != "lo")[:12])
    return [Problem("gpu_fabric_management_interface", f"the host has no {name}", f"one of its interfaces: {shown}")]
