#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_firmware_config
short_description: Firmware settings of ConnectX and BlueField cards (mlxconfig, mstconfig)
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Compares the wanted settings with the values of the next boot and writes only what differs, one call per card. All
    ports and functions of a card share one set of settings and are handled as one.
  - Every name and every value of every card is checked before anything is written; what a card does not know is
    refused by name.
  - What was written waits for a reset of the card. RV(reset_needed) says for which kind. The card is reset here only
    if O(allow_disruption) covers a V(fwreset), no process uses a GPU, and the card can be reset that way. Settings that
    the firmware shows only after a reset (behind C(ADVANCED_PCI_SETTINGS)) are then written in a second pass.
  - Functions that manage NVSwitches (SW_MNG in their VPD) and cards with a port in O(protected) are refused.
  - A setting that is no longer asked for gets back the value that it had before this module changed it first.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  cards:
    description: The cards, as the plan gives them. Without any, all that this module changed before goes back.
    type: list
    elements: dict
    default: []
    suboptions:
      device:
        description: PCI address of the card's first function.
        type: str
        required: true
      functions:
        description: Further functions of the same card, in other slots than O(cards[].device) (Socket Direct).
        type: list
        elements: str
        default: []
      settings:
        description:
          - Values by name, as numbers or as the tool's names (V(ETH), V(True), V(2), V(0x10)).
          - A name without its port (C(LINK_TYPE)) stands for all ports of the card (C(LINK_TYPE_P1), C(LINK_TYPE_P2)).
        type: dict
        required: true
      optional:
        description: Names of O(cards[].settings) that are passed over where a card does not have them.
        type: list
        elements: str
        default: []
  protected:
    description: Interfaces that must keep their link, such as the one that carries this run's connection.
    type: list
    elements: str
    default: []
  allow_disruption:
    description: The highest class of disruption that is allowed.
    type: str
    choices: [none, linkflap, reload, fwreset, reboot, powercycle]
    default: none
  gpu_processes:
    description: Processes that use GPUs now; none is reset under their feet.
    type: list
    elements: str
    default: []
seealso:
  - module: railyard.gpu_fabric.nic_settings
"""

EXAMPLES = r"""
- name: The rails' cards speak Ethernet from the next reset on
  railyard.gpu_fabric.nic_firmware_config:
    cards:
      - device: "0000:18:00.0"
        settings:
          LINK_TYPE: ETH
          ATS_ENABLED: false

- name: Bring it into force now
  railyard.gpu_fabric.nic_firmware_config:
    cards:
      - device: "0000:18:00.0"
        settings:
          ADVANCED_PCI_SETTINGS: 1
          PCI_WR_ORDERING: per_mkey
    protected: [eno1]
    allow_disruption: fwreset
"""

RETURN = r"""
changed_cards:
  description: Cards of which a setting differed.
  returned: success
  type: list
  elements: str
  sample: ["0000:18:00.0"]
reset_needed:
  description: What still has to happen so that all that was asked for is in force.
  returned: success
  type: str
  sample: fwreset
pending:
  description: Parameters whose value of the next boot is not the one in force, by card, whoever set them.
  returned: success
  type: dict
  sample: {"0000:18:00.0": {LINK_TYPE_P1: "IB(1) -> ETH(2)"}}
deferred:
  description: Settings that wait for C(ADVANCED_PCI_SETTINGS) to be in force, by card.
  returned: success
  type: dict
  sample: {"0000:18:00.0": [PCI_WR_ORDERING]}
skipped:
  description: Optional settings that a card does not have, by card.
  returned: success
  type: dict
  sample: {}
resets:
  description: Cards that this call resets.
  returned: success
  type: list
  elements: str
  sample: []
link_type_changed:
  description: Whether a reset of this call changes the kind of a port's link, so that the host must be planned anew.
  returned: success
  type: bool
  sample: false
"""

import concurrent.futures
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import CLASSES, covers, worst
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._mlxconfig_tool import Pci, Tool
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

STATE = "nic_firmware.json"
#: How long a card may take to come back after its reset.
RETURN_S = 60.0
AT_ONCE = 8


class Card:
    """One card with what is wanted of it and what it has."""

    def __init__(self, entry: t.Mapping[str, t.Any], record: t.Mapping[str, t.Any], pci: Pci) -> None:
        self.device: str = entry["device"]
        self.functions = sorted({*pci.functions(self.device), *(entry.get("functions") or [])})
        self.wanted: dict[str, t.Any] = dict(entry["settings"])
        self.optional: list[str] = list(entry.get("optional") or [])
        self.first: dict[str, t.Any] = dict(record.get(self.device, {}))
        self.parameters: dict[str, dict[str, t.Any]] = {}
        self.resolution = firmware.Resolution({}, {}, [], [])
        self.released: dict[str, t.Any] = {}

    def look(self, tool: Tool) -> list[firmware.Difference]:
        """Compare with what the card has; what nobody wants any more goes back to its first value."""
        self.parameters = tool.query(self.device)
        self.resolution = firmware.resolve(self.wanted, self.optional, self.parameters)
        kept = {*self.resolution.settings, *self.resolution.deferred}
        self.released = {n: v for n, v in self.first.items() if n not in kept and n in self.parameters}
        return firmware.differences({**self.resolution.settings, **self.released}, self.parameters)

    def remembered(self, todo: t.Sequence[firmware.Difference]) -> dict[str, t.Any]:
        """First values of all that was or is about to be changed, and is wanted now or not back in force yet."""
        first = {
            n: v
            for n, v in self.first.items()
            if n not in self.released or not firmware.same(v, self.parameters[n].get("current"))
        }
        for item in todo:
            if item.name not in self.released:
                first.setdefault(item.name, item.next)
        return first


def refuse(cards: t.Sequence[Card], protected: t.Collection[str], pci: Pci) -> None:
    """Stop before any question to the firmware where a card is none of ours to touch."""
    reasons = []
    seen: dict[str, str] = {}
    for card in cards:
        reason = pci.obstacle(card.device)
        if reason:
            reasons.append(f"{card.device}: {reason}")
        carried = sorted(pci.netdevs(card.functions) & set(protected))
        if carried:
            reasons.append(
                f"{card.device}: its port {', '.join(carried)} carries this host's management connection, which "
                "a reset would cut off. Set the card's firmware by hand, from the console"
            )
        for function in card.functions:
            if seen.setdefault(function, card.device) != card.device:
                reasons.append(f"{card.device}: {function} is of the same card as {seen[function]}; name a card once")
                break
    if reasons:
        raise Failure("Nothing was changed: " + "; ".join(reasons))


def check(cards: t.Sequence[Card], todo: t.Mapping[str, list[firmware.Difference]], tool: Tool) -> None:
    """Names first, then values: the tool itself judges them, and is told not to go on."""
    reasons: dict[str, list[str]] = {}
    for card in cards:
        for reason in card.resolution.refusals:
            reasons.setdefault(reason, []).append(card.device)
    if not reasons:
        for card in cards:
            settings = {item.name: item.wanted for item in todo[card.device]}
            refusal = tool.rehearse(card.device, settings) if settings else None
            if refusal:
                reasons.setdefault(refusal, []).append(card.device)
    if reasons:
        told = (f"{', '.join(devices)}: {reason}" for reason, devices in reasons.items())
        raise Failure("Nothing was changed: " + "; ".join(told))


def write(card: Card, todo: list[firmware.Difference], tool: Tool) -> None:
    """One call per card, read back."""
    if not todo:
        return
    tool.set(card.device, {item.name: item.wanted for item in todo})
    card.parameters = tool.query(card.device)
    coming = {item.name: card.parameters.get(item.name, {}).get("next") for item in todo}
    lost = [
        f"{item.name} is {coming[item.name]} for the next boot after it was set to {item.wanted}"
        for item in todo
        if not firmware.same(item.wanted, coming[item.name])
    ]
    if lost:
        raise Failure(f"{card.device}: {'; '.join(lost)}")


def ours(card: Card) -> set[str]:
    return {*card.resolution.settings, *card.released}


def waiting(card: Card, todo: t.Sequence[firmware.Difference]) -> dict[str, tuple[t.Any, t.Any]]:
    """What of ours is not in force yet, counting what is about to be written."""
    found = firmware.pending(card.parameters, {item.name: item.wanted for item in todo})
    return {name: values for name, values in found.items() if name in ours(card)}


def live_gpu_processes(cli: Cli) -> list[str]:
    """Whoever uses a GPU at this moment; the list that the plan brought is older."""
    if cli.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    result = cli.run(query, check=False, timeout_s=60)
    lines = [line.strip() for line in result.stdout.splitlines() if line.strip()[:1].isdigit()]
    return [" ".join(part.strip() for part in line.split(",", 1)) for line in lines] if result.rc == 0 else []


class Presence:
    """What a card shows, before and after its reset."""

    def __init__(self, card: Card, pci: Pci, same_link: bool) -> None:
        self.card, self.pci = card, pci
        self.driven = pci.driven(card.functions)
        # With another kind of link the interfaces are others, or none until IPoIB is loaded.
        self.netdevs = pci.netdevs(card.functions) if same_link else set()

    def wait(self) -> None:
        deadline = time.monotonic() + RETURN_S
        while not self.back():
            if time.monotonic() > deadline:
                shown = ", ".join(sorted(self.driven | self.netdevs))
                raise Failure(
                    f"{self.card.device}: not all that was there before the reset ({shown}) is back after "
                    f"{RETURN_S:g} s; look at dmesg, then power cycle the host"
                )
            time.sleep(0.5)

    def back(self) -> bool:
        functions = self.card.functions
        return self.driven <= self.pci.driven(functions) and len(self.pci.netdevs(functions)) >= len(self.netdevs)


class Run:
    """One call of the module."""

    def __init__(
        self, params: t.Mapping[str, t.Any], cli: Cli, pci: Pci, state: StateFile, at_once: int = AT_ONCE
    ) -> None:
        self.params, self.cli, self.pci, self.state, self.at_once = params, cli, pci, state, at_once
        self.changes = ChangeSet()
        self.warnings: list[str] = []
        self.changed_cards: set[str] = set()
        self.resets: list[str] = []
        self.link_type_changed = False
        self.cards: list[Card] = []
        self.needs: dict[str, str] = {}

    def go(self, check_mode: bool) -> dict[str, t.Any]:
        self.check_mode = check_mode
        self.record = self.state.load()
        self.cards = self._cards()
        if self.cards:
            refuse(self.cards, self.params["protected"], self.pci)
            self.tool = Tool(self.cli)
            todo = self._pass()
            self._needs(todo)
            if self._may_reset():
                self._reset(todo)
        if not check_mode:
            self.state.save(self.record)
        return self._result()

    def _cards(self) -> list[Card]:
        """Those that are named, and those that this module changed before and nobody names any more."""
        entries = list(self.params["cards"])
        named = {entry["device"] for entry in entries}
        for device in sorted(set(self.record) - named):
            if self.pci.obstacle(device) is None:
                entries.append({"device": device, "settings": {}})
            else:
                self.warnings.append(f"{device} is not there any more; its settings are left as they are")
                del self.record[device]
        return [Card(entry, self.record, self.pci) for entry in entries]

    def _pass(self) -> dict[str, list[firmware.Difference]]:
        """Look at every card, check all that is asked for, then write what differs."""
        todo = dict(zip((c.device for c in self.cards), self._each(lambda card: card.look(self.tool))))
        check(self.cards, todo, self.tool)
        for card in self.cards:
            for item in todo[card.device]:
                self.changes.compare(f"{card.device} {item.name}", item.next, firmware.argument(item.wanted))
                self.changed_cards.add(card.device)
        # The record first: a run that is cut off later still knows what there was.
        if not self.check_mode:
            before = {card.device: {**card.remembered(todo[card.device]), **card.released} for card in self.cards}
            self.state.save({**self.record, **{device: first for device, first in before.items() if first}})
        for card in self.cards:
            if not self.check_mode:
                write(card, todo[card.device], self.tool)
            first = card.remembered(todo[card.device])
            card.first = first
            if first:
                self.record[card.device] = first
            else:
                self.record.pop(card.device, None)
        return todo if self.check_mode else {card.device: [] for card in self.cards}

    def _each(self, ask: t.Callable[[Card], t.Any]) -> list[t.Any]:
        """Ask all cards; each takes seconds to answer, and none waits for another."""
        if self.at_once == 1:
            return [ask(card) for card in self.cards]
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(ask, self.cards))

    def _needs(self, todo: t.Mapping[str, list[firmware.Difference]]) -> None:
        for card in self.cards:
            names = set(waiting(card, todo[card.device])) | set(card.resolution.deferred)
            resettable = bool(names) and self.tool.resettable(card.device)
            self.needs[card.device] = firmware.need(names, resettable)

    def _may_reset(self) -> bool:
        """Whether cards are to be reset now; a reason against it is a warning, never silence."""
        waiting_for = worst(self.needs.values())
        if waiting_for == "none":
            return False
        devices = ", ".join(device for device, need in self.needs.items() if need != "none")
        if "fwreset" not in self.needs.values():
            self.warnings.append(f"{devices}: the new firmware settings are in force after a {waiting_for} of the host")
            return False
        if not covers(self.params["allow_disruption"], "fwreset"):
            self.warnings.append(
                f"{devices}: the new firmware settings wait for a {waiting_for}. Drain the host and allow it with "
                "gpu_fabric_allow_disruption: fwreset, or reboot the host"
            )
            return False
        processes = list(self.params["gpu_processes"]) or live_gpu_processes(self.cli)
        if processes:
            self.warnings.append(
                f"{devices}: the cards are not reset while GPU processes run ({', '.join(processes[:8])}). Drain the "
                "host, then run again"
            )
        return not processes

    def _reset(self, todo: dict[str, list[firmware.Difference]]) -> None:
        """Reset the cards that wait for it; what they hid before is written then, and may need another reset."""
        for _pass in range(2):
            for card in self.cards:
                if self.needs[card.device] != "fwreset":
                    continue
                names = waiting(card, todo[card.device])
                other_link = any(name.startswith(firmware.LINK_TYPE) for name in names)
                self.link_type_changed |= other_link
                self.resets.append(card.device)
                self.changes.compare(f"{card.device} firmware reset", None, ", ".join(sorted(names)) or firmware.GATE)
                if self.check_mode:
                    for name, value in card.resolution.deferred.items():
                        self.changes.compare(f"{card.device} {name}", "(not shown)", firmware.argument(value))
                    self.needs[card.device] = "none"
                    continue
                present = Presence(card, self.pci, not other_link)
                self.tool.reset(card.device)
                present.wait()
            if self.check_mode:
                return
            todo = self._pass()
            self._needs(todo)
            if "fwreset" not in self.needs.values():
                return

    def _result(self) -> dict[str, t.Any]:
        pending = {
            card.device: {name: f"{current} -> {coming}" for name, (current, coming) in waits.items()}
            for card in self.cards
            if (waits := firmware.pending(card.parameters))
        }
        return {
            "changed": len(self.changes) > 0,
            "diff": self.changes.diff(),
            "changed_cards": sorted(self.changed_cards),
            "reset_needed": worst(self.needs.values()),
            "pending": pending,
            "deferred": {c.device: sorted(c.resolution.deferred) for c in self.cards if c.resolution.deferred},
            "skipped": {c.device: sorted(c.resolution.skipped) for c in self.cards if c.resolution.skipped},
            "resets": list(dict.fromkeys(self.resets)),
            "link_type_changed": self.link_type_changed,
        }


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "cards": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "device": {"type": "str", "required": True},
                    "functions": {"type": "list", "elements": "str", "default": []},
                    "settings": {"type": "dict", "required": True},
                    "optional": {"type": "list", "elements": "str", "default": []},
                },
            },
            "protected": {"type": "list", "elements": "str", "default": []},
            "allow_disruption": {"type": "str", "choices": list(CLASSES), "default": "none"},
            "gpu_processes": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    run = Run(module.params, Cli(), Pci(), StateFile(STATE))
    try:
        result = run.go(module.check_mode)
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    for sentence in run.warnings:
        module.warn(sentence)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
