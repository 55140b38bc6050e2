# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The firmware settings of the rails' cards: what is wanted of which card, why, and whether anything is left to do."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import (
    Function,
    Machine,
    normal_bdf,
    pci_key,
    text,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.tuning import direct_nic

RECORD = "/var/lib/gpu_fabric/nic_firmware.json"
MELLANOX = "15b3"
LINK_TYPES = {"roce": "ETH", "infiniband": "IB"}
#: Settings of the profile that a card has for all of its ports together.
WHOLE_CARD = frozenset({"ATS_ENABLED"})


class Setting(t.NamedTuple):
    value: t.Any
    reason: str
    #: Passed over on cards that do not have it.
    optional: bool


def profile(intent: t.Mapping[str, t.Any], quality: t.Mapping[str, t.Any], untranslated: bool) -> dict[str, Setting]:
    """What the intent says about firmware without naming a parameter; names without a port stand for every port."""
    wanted: dict[str, Setting] = {}
    fabric = intent["gpu_fabric_fabric"]
    if fabric in LINK_TYPES:
        wanted["LINK_TYPE"] = Setting(LINK_TYPES[fabric], f"gpu_fabric_fabric is {fabric}", True)
    if intent["gpu_fabric_nic_firmware_profile"] == "none":
        return wanted
    if untranslated:
        wanted["ATS_ENABLED"] = Setting(0, "GPUDirect on bare metal does without translation services", True)
    if quality.get("profile") in ("lossless", "lossy"):
        priority = quality["priority"]
        owner = "the host owns data centre bridging; the firmware's own exchange would overwrite it"
        wanted |= {
            "LLDP_NB_DCBX": Setting(0, owner, True),
            "DCBX_WILLING": Setting(0, owner, True),
            "ROCE_CC_ALGORITHM": Setting(0, "DCQCN, which answers the switches' ECN marks", True),
            "ROCE_CC_PRIO_MASK": Setting(1 << priority, f"congestion control on the data's priority {priority}", True),
            "CNP_DSCP": Setting(quality["cnp_dscp"], "gpu_fabric_roce_cnp_dscp", True),
            "CNP_802P_PRIO": Setting(quality["cnp_priority"], "the priority of gpu_fabric_roce_cnp_dscp", True),
        }
    return wanted


def settings(intent: t.Mapping[str, t.Any], quality: t.Mapping[str, t.Any], untranslated: bool) -> dict[str, Setting]:
    """The profile with gpu_fabric_nic_firmware over it; null takes a setting of the profile away."""
    wanted = profile(intent, quality, untranslated)
    given = intent["gpu_fabric_nic_firmware"]
    for name, value in sorted(given.items()):
        wanted.pop(name, None)
        if value is not None:
            wanted[name] = Setting(value, "set in gpu_fabric_nic_firmware", False)
    hidden = sorted(firmware.ADVANCED & set(wanted))
    if hidden and firmware.GATE not in wanted:
        wanted[firmware.GATE] = Setting(1, f"the firmware hides {', '.join(hidden)} without it", False)
    return dict(sorted(wanted.items()))


def for_host(
    intent: t.Mapping[str, t.Any],
    machine: Machine,
    rails: t.Sequence[Rail],
    quality: t.Mapping[str, t.Any],
    protected: t.Collection[str],
) -> tuple[dict[str, t.Any], list[Note]]:
    """``plan.hosts[h].nic_firmware`` and what has to be said about it."""
    record = _record(machine)
    if intent["gpu_fabric_state"] == "absent":
        nothing = {"cards": [], "reasons": {}, "left_out": {}, "disruption": "none", "disruption_reason": ""}
        return {"run": bool(record), **nothing}, []
    # Grace and later platforms, and Direct-NIC on any, route GPUDirect by translated addresses and need the services.
    x86 = text(mapping(machine.facts.get("host")).get("architecture")) == "x86_64"
    wanted = settings(intent, quality, x86 and not direct_nic(machine))
    left_out: dict[str, str] = {}
    cards = []
    used = {rail.hca.pci for rail in rails if not rail.hca.software}
    if wanted:
        for functions in _cards(machine, used):
            reason = _why_not(machine, functions, protected)
            if reason:
                left_out[functions[0].bdf] = reason
            else:
                cards.append(_card(functions, _for_ports(wanted, _own_ports(machine, functions, used))))
    notes = []
    # what only the profile wants is no loss on a card that is left alone
    if left_out and intent["gpu_fabric_nic_firmware"]:
        notes.append(
            Note(
                "RF-PLAN-NIC-FIRMWARE",
                ",".join(left_out),
                f"gpu_fabric_nic_firmware is not applied to {', '.join(left_out)}",
                [f"{device}: {reason}" for device, reason in left_out.items()],
                "Set these cards with mlxconfig by hand, from the console, or exclude them in "
                "gpu_fabric_exclude_devices",
            )
        )
    states = {card["device"]: _state(machine, card) for card in cards}
    cost, cost_reason = _cost(states)
    plan = {
        "run": _to_do(states, record),
        "cards": cards,
        "reasons": {name: setting.reason for name, setting in wanted.items()} if cards else {},
        "left_out": left_out,
        "disruption": cost,
        "disruption_reason": cost_reason,
    }
    return plan, notes


def _cards(machine: Machine, used: t.Collection[str]) -> list[list[Function]]:
    """The rails' cards: their physical functions, which share one slot or, in two (Socket Direct), one system GUID.

    A serial number tells boards apart and not cards: the mezzanine of an HGX H100 has four chips, each with settings of
    its own, and one serial number.
    """
    guids = {hca.pci: hca.sys_image_guid for hca in machine.hcas if not hca.software and hca.sys_image_guid.strip("0:")}
    slots: dict[str, list[Function]] = {}
    for function in machine.functions.values():
        if function.vendor == MELLANOX and function.is_network and not function.physfn:
            slots.setdefault(function.bdf.rpartition(".")[0], []).append(function)
    cards: dict[str, list[Function]] = {}
    for slot, functions in slots.items():
        guid = next((guids[function.bdf] for function in functions if function.bdf in guids), slot)
        cards.setdefault(guid, []).extend(functions)
    found = [sorted(card, key=lambda f: pci_key(f.bdf)) for card in cards.values() if {f.bdf for f in card} & set(used)]
    # a rail on a virtual function belongs to no card of this host's
    return sorted(found, key=lambda card: pci_key(card[0].bdf))


def _why_not(machine: Machine, functions: list[Function], protected: t.Collection[str]) -> str:
    if machine.virtual:
        return "a virtual machine does not own the card that is passed to it"
    bridges = [function.bdf for function in functions if function.sw_mng]
    if bridges:
        return f"{bridges[0]} has SW_MNG in its VPD: it manages the NVSwitches"
    own = {function.bdf for function in functions}
    for dev in machine.netdevs.values():
        physical = machine.function(dev.pci).physfn or dev.pci
        if dev.name in protected and physical in own:
            return f"{dev.name} on it carries this run's connection"
    return ""


def _own_ports(machine: Machine, functions: list[Function], used: t.Collection[str]) -> list[int]:
    """The ports that are rails, where another port of their card is used for something else; [] means: all are ours."""
    others = {function.bdf for function in functions} - set(used)
    busy = {hca.pci for hca in machine.hcas if hca.active}
    busy |= {dev.pci for dev in machine.netdevs.values() if dev.global_addresses}
    ports = {int(function.bdf[-1]) + 1 for function in functions if function.bdf in used}
    return sorted(ports) if others & busy else []


def _for_ports(wanted: t.Mapping[str, Setting], ports: t.Sequence[int]) -> dict[str, Setting]:
    """What only the profile wants is for these ports; what somebody names is for what the name says."""
    found = {}
    for name, setting in wanted.items():
        narrow = ports and setting.optional and name not in WHOLE_CARD
        found |= dict.fromkeys([f"{name}_P{port}" for port in ports] if narrow else [name], setting)
    # a name with its port that somebody gave comes last and counts
    return found | {name: setting for name, setting in wanted.items() if not setting.optional}


def _card(functions: list[Function], wanted: t.Mapping[str, Setting]) -> dict[str, t.Any]:
    slot = functions[0].bdf.rpartition(".")[0]
    return {
        "device": functions[0].bdf,
        "functions": [function.bdf for function in functions if function.bdf.rpartition(".")[0] != slot],
        "settings": {name: setting.value for name, setting in wanted.items()},
        "optional": [name for name, setting in wanted.items() if setting.optional],
    }


def _record(machine: Machine) -> dict[str, t.Any]:
    """What the module changed on this host before."""
    try:
        return mapping(json.loads(text(mapping(machine.facts.get("files")).get(RECORD)) or "{}"))
    except ValueError:
        return {"": {"": "cannot be read, which the module is to say"}}


class State(t.NamedTuple):
    """One card as the facts show it against what is wanted of it."""

    #: Settings in the card's own names.
    names: set[str]
    #: Those that are not in force.
    waiting: set[str]
    #: Whether the facts say all there is to know, and nothing has to be refused.
    known: bool


def _state(machine: Machine, card: dict[str, t.Any]) -> State:
    shown = mapping(machine.facts.get("nic_config"))
    values = next((mapping(item) for bdf, item in shown.items() if normal_bdf(str(bdf)) == card["device"]), {})
    parameters = {name: mapping(item) for name, item in values.items()}
    found = firmware.resolve(card["settings"], card["optional"], parameters)
    waiting = {item.name for item in firmware.differences(found.settings, parameters)} | set(found.deferred)
    waiting |= set(firmware.pending(parameters)) & set(found.settings)
    return State(set(found.settings), waiting, bool(parameters) and not found.refusals)


def _to_do(states: dict[str, State], record: dict[str, t.Any]) -> bool:
    """Whether the module has to look: not where the facts show every setting in force and nothing to go back."""
    if any(not state.known or state.waiting for state in states.values()):
        return True
    kept = {device: state.names for device, state in states.items()}
    return any(set(mapping(first)) - kept.get(device, set()) for device, first in record.items())


def _cost(states: dict[str, State]) -> tuple[str, str]:
    """What bringing the settings into force costs, where the facts show which are not."""
    waiting = {device: state.waiting for device, state in states.items() if state.known and state.waiting}
    if not waiting:
        return "none", ""
    names = sorted(set().union(*waiting.values()))
    cost = firmware.need(names, "fwreset")
    return cost, f"{', '.join(names)} of {', '.join(waiting)} come into force with a {cost}"
