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
    ports and functions of a card share one set of settings and are handled as one. The few that firmware keeps for
    each function (C(PF_TOTAL_SF) and its like) are those of O(cards[].device).
  - Every name and every value of every card is checked before anything is written; what a card does not know is
    refused by name.
  - What was written waits for a reset of the card. RV(reset_needed) says for which kind. The card is reset here only
    if O(allow_disruption) covers a V(fwreset), no process uses a GPU, and the card can be reset that way (level 3 of
    mlxfwreset). Settings that the firmware shows only after a reset (behind C(ADVANCED_PCI_SETTINGS)) are then written
    in a second pass.
  - A reset brings what somebody else left for it into force too; such settings are told as a warning.
  - Functions that manage NVSwitches (SW_MNG in their VPD) and cards with a port in O(protected) are refused.
  - A setting that is no longer asked for gets back the value that it had before this module changed it first. Of a
    card that is not there or carries the connection now, these values are kept until it can be set again.
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
          - Of an array, an element (C(HOST_CHAINING_DESCRIPTORS[3])) or several (C(HOST_CHAINING_DESCRIPTORS[0..3])),
            each of which gets the value. One that is named alone counts before a range that holds it.
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
  description:
    - What still has to happen so that all that was asked for is in force.
    - V(fwreset), or V(reboot) or V(powercycle) where the card can be reset no other way, and V(powercycle)
      for settings that no reset brings into force.
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
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import CLASSES, covers, worst
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._mlxconfig_card import (
    Card,
    Presence,
    carries,
    check,
    functions_of,
    of_link,
    refuse,
    write,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._mlxconfig_tool import Pci, Tool, Way
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

STATE = "nic_firmware.json"
AT_ONCE = 8
#: What nvidia-smi says where nothing can run on a GPU.
NO_GPU = ("couldn't communicate with the NVIDIA driver", "No devices were found")


def gpu_use(planned: t.Sequence[str], cli: Cli) -> str:
    """Who uses a GPU at this moment, or why that is not known. The list that the plan brought is older."""
    processes = list(planned)
    if not processes and cli.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
        try:
            result = cli.run(query, check=False, timeout_s=60)
        except Failure as exc:
            return f"while it is not known what runs on the GPUs ({exc})"
        if result.rc != 0 and not any(answer in result.stdout + result.stderr for answer in NO_GPU):
            said = (result.stdout + result.stderr).strip() or f"status {result.rc}"
            return f"while it is not known what runs on the GPUs (nvidia-smi: {said})"
        lines = [line.strip() for line in result.stdout.splitlines() if line.strip()[:1].isdigit()]
        processes = [" ".join(part.strip() for part in line.split(",", 1)) for line in lines]
    return f"while GPU processes run ({', '.join(processes[:8])})" if processes else ""


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
        #: What check mode would have written.
        self.todo: dict[str, list[firmware.Difference]] = {}
        self.needs: dict[str, str] = {}
        self.ways: dict[str, Way] = {}
        #: Settings that a reset of their card did not bring into force.
        self.stuck: dict[str, set[str]] = {}

    def go(self, check_mode: bool) -> dict[str, t.Any]:
        self.check_mode = check_mode
        self.record = self.state.load()
        self.cards = self._cards()
        if self.cards:
            refuse(self.cards, self.params["protected"], self.pci)
            self.tool = Tool(self.cli)
            todo = self._pass()
            if any(set(card.resolution.deferred) & set(card.parameters) for card in self.cards):
                todo = self._pass()  # some firmware shows them as soon as the gate is written
            self._tell_of_others()
            self._needs(todo)
            self.todo = todo
            if self._may_reset():
                self._reset(todo)
            else:
                self._tell_of_deferred()
        if not check_mode:
            self.state.save(self.record)
        return self._result()

    def _cards(self) -> list[Card]:
        """Those that are named, and those that this module changed before and nobody names any more."""
        entries = list(self.params["cards"])
        named = {entry["device"] for entry in entries}
        for device in sorted(set(self.record) - named):
            owner = next((e["device"] for e in entries if device in functions_of(e, self.pci)), None)
            gone = self.pci.obstacle(device)
            reason = gone or carries(self.pci.functions(device), self.params["protected"], self.pci)
            if owner:  # the same card, by another of its functions
                self.record[owner] = {**self.record.pop(device), **self.record.get(owner, {})}
            elif reason:
                self.warnings.append(f"{device}: {reason}; what was set on it before stays as it is")
                if gone and not named:
                    del self.record[device]
            else:
                entries.append({"device": device, "settings": {}})
        return [Card(entry, self.record, self.pci) for entry in entries]

    def _pass(self) -> dict[str, list[firmware.Difference]]:
        """Look at every card, check all that is asked for, then write what differs."""
        todo = dict(zip((c.device for c in self.cards), self._each(lambda card: card.look(self.tool))))

        def rehearse(card: Card) -> str | None:
            words = {item.name: item.argument for item in todo[card.device]}
            return self.tool.rehearse(card.device, words) if words else None

        check(self.cards, lambda: self._each(rehearse))
        for card in self.cards:
            for item in todo[card.device]:
                self.changes.compare(f"{card.device} {item.name}", item.next, item.argument)
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

    def _tell_of_others(self) -> None:
        """What somebody else left for the next reset comes into force along with what is ours."""
        for card in self.cards:
            others = [
                f"{name} {current} -> {coming}"
                for name, (current, coming) in card.waiting([]).items()
                if name not in card.ours
            ]
            if others:
                self.warnings.append(
                    f"{card.device}: {', '.join(others)} waits for the next reset too and is not of this run's making; "
                    "name it in gpu_fabric_nic_firmware, or take it back with mlxconfig"
                )

    def _tell_of_deferred(self) -> None:
        for card in self.cards:
            if card.resolution.deferred:
                names = ", ".join(sorted(card.resolution.deferred))
                self.warnings.append(
                    f"{card.device}: {names} can be written only once {firmware.GATE} is in force; run again after that"
                )

    def _needs(self, todo: t.Mapping[str, list[firmware.Difference]]) -> None:
        names = {
            card.device: card.ours & set(card.waiting(todo[card.device])) | set(card.resolution.deferred)
            for card in self.cards
        }
        ways = self._each(lambda card: self.tool.way(card.device) if names[card.device] else Way("none", ""))
        self.ways = {card.device: way for card, way in zip(self.cards, ways)}
        for device, way in self.ways.items():
            need = firmware.need(names[device], way.need)
            self.needs[device] = worst([need, "powercycle"]) if self.stuck.get(device) else need

    def _may_reset(self) -> bool:
        """Whether cards are to be reset now; a reason against it is a warning, never silence."""
        for need in ("reboot", "powercycle"):
            devices = [device for device in self.needs if self.needs[device] == need]
            reasons = "; ".join(dict.fromkeys(self.ways[d].reason for d in devices if self.ways[d].reason))
            if devices:
                self.warnings.append(
                    f"{', '.join(devices)}: the new firmware settings are in force after a {need} of the host"
                    + (f": {reasons}" if reasons else "")
                )
        devices = [device for device in self.needs if self.needs[device] == "fwreset"]
        if not devices:
            return False
        if not covers(self.params["allow_disruption"], "fwreset"):
            self.warnings.append(
                f"{', '.join(devices)}: the new firmware settings wait for a fwreset. Drain the host and allow it with "
                "gpu_fabric_allow_disruption: fwreset, or reboot the host"
            )
            return False
        use = gpu_use(self.params["gpu_processes"], self.cli)
        if use:
            self.warnings.append(f"{', '.join(devices)}: the cards are not reset {use}. Drain the host, then run again")
        return not use

    def _reset(self, todo: dict[str, list[firmware.Difference]]) -> None:
        """Reset the cards that wait for it; what they hid before is written then, and may need another reset."""
        for _pass in range(2):
            coming: dict[str, set[str]] = {}
            for card in self.cards:
                if self.needs[card.device] != "fwreset":
                    continue
                names = coming[card.device] = set(card.waiting(todo[card.device]))
                self.link_type_changed |= of_link(names)
                self.resets.append(card.device)
                self.changes.compare(f"{card.device} firmware reset", None, ", ".join(sorted(names)) or firmware.GATE)
                if self.check_mode:
                    self._would_follow(card)
                    self.needs[card.device] = "none"
                    continue
                present = Presence(card, self.pci, names)
                self.tool.reset(card.device)
                present.wait()
            if self.check_mode:
                return
            todo = self._pass()
            self._tell_of_stuck(coming)
            self._needs(todo)
            if "fwreset" not in self.needs.values():
                return

    def _would_follow(self, card: Card) -> None:
        """What check mode cannot see yet: hidden settings are written after the reset, and reset again."""
        deferred = card.resolution.deferred
        for name, value in deferred.items():
            self.changes.compare(f"{card.device} {name}", "(not shown)", firmware.argument(value, ""))
        if deferred:
            self.changed_cards.add(card.device)
            self.changes.compare(f"{card.device} firmware reset", None, ", ".join(sorted(deferred)))

    def _tell_of_stuck(self, coming: t.Mapping[str, set[str]]) -> None:
        """Some settings come into force with the card's power only, which nothing tells before."""
        for card in self.cards:
            stuck = coming.get(card.device, set()) & set(card.waiting([])) & card.ours
            if stuck:
                self.stuck[card.device] = stuck
                self.warnings.append(
                    f"{card.device}: {', '.join(sorted(stuck))} did not come into force with the card's reset; "
                    "power cycle the host"
                )

    def _result(self) -> dict[str, t.Any]:
        # where check mode would have reset a card, nothing waits on it
        cards = [card for card in self.cards if not (self.check_mode and card.device in self.resets)]
        pending = {
            card.device: {name: f"{current} -> {coming}" for name, (current, coming) in waits.items()}
            for card in cards
            if (waits := card.waiting(self.todo[card.device]))
        }
        return {
            "changed": len(self.changes) > 0,
            "diff": self.changes.diff(),
            "changed_cards": sorted(self.changed_cards),
            "reset_needed": worst(self.needs.values()),
            "pending": pending,
            "deferred": {c.device: sorted(c.resolution.deferred) for c in cards if c.resolution.deferred},
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
        with only_writer("nic_firmware_config", module.check_mode):
            result = run.go(module.check_mode)
            failure = None
    except Failure as exc:
        failure = exc
    for sentence in run.warnings:
        module.warn(sentence)
    if failure:
        module.fail_json(msg=str(failure), **failure.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
