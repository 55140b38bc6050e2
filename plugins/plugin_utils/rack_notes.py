# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is worth telling of the rack as a whole though it does not keep it from being planned."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note, some
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rack_intent import BETTER_ONE, comparable


def missing_members(
    hosts: list[Host], planned: dict[str, t.Any], everyone: list[str], management: dict[str, str]
) -> None:
    missing = [name for name in everyone if not management[name]]
    firewalled = [host for host in hosts if host.intent["gpu_fabric_firewall"] != "none"]
    if missing and firewalled and len(everyone) > 1:
        planned[firewalled[0].name]["notes"].append(
            Note(
                "RF-PLAN-MEMBER-ADDRESS",
                ",".join(missing[:10]),
                f"the management address of {some(missing)} is not known, so the firewall of the other hosts does not "
                "let them in on it",
                [],
                "Set ansible_host to an address for every host, or run without --limit.",
            ).as_dict()
        )


def differing(hosts: list[Host], planned: dict[str, t.Any]) -> None:
    for variable, why in BETTER_ONE.items():
        values: dict[str, list[str]] = {}
        for host in hosts:
            values.setdefault(comparable(host.intent[variable]), []).append(host.name)
        if len(values) > 1:
            shown = "; ".join(f"{value} on {some(names)}" for value, names in sorted(values.items()))
            planned[hosts[0].name]["notes"].append(
                Note(
                    "RF-PLAN-INTENT-DIFFERS",
                    variable,
                    f"{variable} differs within the rack: {shown}; {why}",
                    [f"{name}: {value}" for value, names in sorted(values.items()) for name in names][:10],
                    f"Give {variable} one value for the whole group, unless the hosts are to differ",
                ).as_dict()
            )


def unmatched(hosts: list[Host], planned: dict[str, t.Any]) -> None:
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
                f"{variable} names {item}, which no device of {some([host.name for host in named])} is",
                [f"{hca.name} {hca.pci}" for hca in named[0].machine.hcas],
                f"Correct {item} in {variable}, or remove it",
            ).as_dict()
        )
