# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of logins and services: RDMA pins memory, and every queue pair costs a descriptor."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.services import UNITS
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine

# Debian calls the SSH daemon's unit ssh.service, and has the alias only where it is enabled, not where a socket starts
# it; the facts of its limits are under sshd everywhere.
_UNIT_NAMES = {"sshd": ("ssh", "sshd")}


def for_host(machine: Machine, intent: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """plan.hosts[h].limits; services are those of the intent that exist here, or that the facts do not ask about."""
    known = set()
    for source in (machine.facts.get("services"), mapping(machine.facts.get("limits")).get("services")):
        known |= {str(unit).removesuffix(".service") for unit, data in mapping(source).items() if _exists(data)}
    services = []
    for wanted in intent["gpu_fabric_services_memlock"]:
        wanted = wanted.removesuffix(".service")
        names = _UNIT_NAMES.get(wanted, (wanted,))
        services += [name for name in names if name in known or name not in UNITS][:1]
    nofile = intent["gpu_fabric_nofile"]
    return {
        "memlock": "unlimited",
        "nofile": nofile,
        "values": {"memlock": "unlimited", "nofile": nofile},
        "services": list(dict.fromkeys(services)),
    }


def _exists(data: t.Any) -> bool:
    data = mapping(data)
    return (
        data.get("active") not in (None, "", "not-found")
        or data.get("enabled") not in (None, "", "not-found")
        or bool(data.get("pid"))
    )
