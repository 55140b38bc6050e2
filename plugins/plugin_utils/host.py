# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One host on its way through the planner: its intent, its machine, and what its devices are."""

from __future__ import annotations

import functools
import ipaddress
import typing as t
from dataclasses import dataclass, field

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import rails
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.classify import Classification, classify
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import Intent
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, from_facts, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.management import connection_interface, lower_devices
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.port_settings import PortSettings
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import Affinity

FABRICS = {"Ethernet": "roce", "InfiniBand": "infiniband"}


@dataclass
class Host:
    """One host on its way through the planner."""

    name: str
    intent: Intent
    machine: Machine
    affinity: Affinity
    found: Classification
    rails: list[rails.Rail]
    address: str
    node: int
    notes: list[Note] = field(default_factory=list)

    @property
    def fabric(self) -> str:
        return FABRICS.get(self.found.link_layer, "none") if self.rails else "none"

    @property
    def own_address(self) -> str | None:
        """Where the host is reached: by the inventory, or by its management interface."""
        dev = self.machine.netdevs.get(self.found.management)
        own = dev.global_addresses if dev else ()
        return plain_address(self.address) or (own[0].partition("/")[0] if own else None)

    @property
    def client(self) -> str:
        """Where the connection of this run comes from."""
        return plain_address(text(mapping(self.machine.facts.get("ssh")).get("client")))

    @functools.cached_property
    def protected(self) -> list[str]:
        """Interfaces that no layer may touch: the management's, this run's connection's, and everything under them."""
        tops = {self.found.management, connection_interface(self.machine)} - {""}
        return sorted({name for top in tops for name in lower_devices(self.machine, top)}, key=natural)

    @functools.cached_property
    def port_settings(self) -> PortSettings:
        """What the intent decides for the ports by name: rings, channels, speed. Not before the rails are numbered."""
        return PortSettings(self.intent, self.machine, self.rails, self.protected)


def look(name: str, intent: Intent, facts: t.Any, connection: t.Mapping[str, t.Any], node: int) -> Host:
    machine = from_facts(name, facts)
    affinity = Affinity(machine)
    address = text(mapping(connection.get(name)).get("address"))
    found = classify(machine, intent, affinity, address)
    laid = rails.lay(machine, found, affinity)
    return Host(name, intent, machine, affinity, found, laid, address, node, list(found.notes))


def plain_address(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return ""
    return "" if address.is_loopback or address.is_unspecified else str(address)
