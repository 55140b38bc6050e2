# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""One card with what is wanted of it and what it has: refused, compared, written, and waited for after its reset."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig_arrays as arrays
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._mlxconfig_tool import Pci, Tool

#: How long a card may take to come back after its reset.
RETURN_S = 60.0


def functions_of(entry: t.Mapping[str, t.Any], pci: Pci) -> list[str]:
    return sorted({*pci.functions(entry["device"]), *(entry.get("functions") or [])})


class Card:
    """One card with what is wanted of it and what it has."""

    def __init__(self, entry: t.Mapping[str, t.Any], record: t.Mapping[str, t.Any], pci: Pci) -> None:
        self.device: str = entry["device"]
        self.functions = functions_of(entry, pci)
        self.wanted: dict[str, t.Any] = dict(entry["settings"])
        self.optional: list[str] = list(entry.get("optional") or [])
        self.first: dict[str, t.Any] = dict(record.get(self.device, {}))
        self.parameters: dict[str, dict[str, t.Any]] = {}
        self.resolution = firmware.Resolution({}, {}, [], [])
        self.released: dict[str, t.Any] = {}

    def look(self, tool: Tool) -> list[firmware.Difference]:
        """Compare with what the card has; what nobody wants any more goes back to its first value."""
        self.read(tool)
        self.resolution = firmware.resolve(self.wanted, self.optional, self.parameters)
        kept = {*self.resolution.settings, *self.resolution.deferred}
        self.released = {n: v for n, v in self.first.items() if n not in kept and n in self.parameters}
        return firmware.differences({**self.resolution.settings, **self.released}, self.parameters)

    def read(self, tool: Tool) -> None:
        """All parameters, and of arrays the elements that are wanted or were changed before."""
        self.parameters = tool.query(self.device)
        for name, parameter in list(self.parameters.items()):
            self.parameters.update(arrays.elements_of(name, parameter))
        wanted = firmware.elements([*self.wanted, *self.first], self.parameters)
        unseen = [name for name in wanted if name not in self.parameters]
        if unseen:
            self.parameters.update(tool.query(self.device, unseen))

    def remembered(self, todo: t.Sequence[firmware.Difference]) -> dict[str, t.Any]:
        """First values of all that was or is about to be changed, and is wanted now or not back in force yet.

        What nobody wants and the firmware does not show any more, as behind a gate that went back, is forgotten.
        """
        kept = {*self.resolution.settings, *self.resolution.deferred}
        shown = {name: self.parameters.get(name, {}).get("current") for name in self.released}
        back = {n for n, v in self.released.items() if firmware.same(v, shown[n])}
        first = {n: v for n, v in self.first.items() if n in kept or n in self.released.keys() - back}
        for item in todo:
            if item.name not in self.released:
                first.setdefault(item.name, item.next)
        return first

    def waiting(self, todo: t.Sequence[firmware.Difference]) -> dict[str, tuple[t.Any, t.Any]]:
        """What is not in force yet, whoever set it, counting what is about to be written."""
        return firmware.pending(self.parameters, {item.name: item.wanted for item in todo})

    @property
    def ours(self) -> set[str]:
        return {*self.resolution.settings, *self.released}


def refuse(cards: t.Sequence[Card], protected: t.Collection[str], pci: Pci) -> None:
    """Stop before any question to the firmware where a card is none of ours to touch."""
    reasons = []
    seen: dict[str, Card] = {}
    for card in cards:
        reason = pci.obstacle(card.device) or carries(card.functions, protected, pci)
        if reason:
            reasons.append(f"{card.device}: {reason}")
        for function in card.functions:
            if seen.setdefault(function, card) is not card:
                reasons.append(
                    f"{card.device}: {function} is of the same card as {seen[function].device}; name a card once"
                )
                break
    if reasons:
        raise Failure("Nothing was changed: " + "; ".join(reasons))


def carries(functions: t.Collection[str], protected: t.Collection[str], pci: Pci) -> str:
    """Why a card is not this run's to set, where it is the one that carries its connection."""
    carried = sorted(pci.netdevs(functions) & set(protected))
    if not carried:
        return ""
    return (
        f"its port {', '.join(carried)} carries this host's management connection, which a reset would cut off. Set "
        "the card's firmware by hand, from the console"
    )


def check(cards: t.Sequence[Card], rehearse: t.Callable[[], t.Sequence[str | None]]) -> None:
    """Names first, then values: the tool itself judges them, and is told not to go on."""
    reasons: dict[str, list[str]] = {}
    for card in cards:
        for reason in card.resolution.refusals:
            reasons.setdefault(reason, []).append(card.device)
    if not reasons:
        for card, refusal in zip(cards, rehearse()):
            if refusal:
                reasons.setdefault(refusal, []).append(card.device)
    if reasons:
        told = (f"{', '.join(devices)}: {reason}" for reason, devices in reasons.items())
        raise Failure("Nothing was changed: " + "; ".join(told))


def write(card: Card, todo: list[firmware.Difference], tool: Tool) -> None:
    """One call per card, read back."""
    if not todo:
        return
    try:
        tool.set(card.device, {item.name: item.argument for item in todo})
    except Failure as exc:
        told = ", ".join(f"{item.name} is {item.next} and was to be {item.argument}" for item in todo)
        raise Failure(f"{card.device}: {told}: {exc}", **exc.details) from exc
    card.read(tool)
    names = {item.name for item in todo}
    # what is given back along with its gate hides behind it at once
    hidden = {name for name in names - set(card.parameters) if firmware.GATES.get(name) in names}
    coming = {item.name: card.parameters.get(item.name, {}).get("next") for item in todo}
    lost = [
        f"{item.name} is {coming[item.name]} for the next boot after it was set to {item.argument}"
        for item in todo
        if item.name not in hidden and not firmware.same(item.wanted, coming[item.name])
    ]
    if lost:
        raise Failure(f"{card.device}: {'; '.join(lost)}; see what mlxconfig -d {card.device} -e q shows")


class Presence:
    """What a card shows, before and after its reset."""

    def __init__(self, card: Card, pci: Pci, coming: t.Collection[str]) -> None:
        self.card, self.pci = card, pci
        # Further functions may go with these settings.
        self.functions = [card.device] if firmware.FUNCTIONS & set(coming) else card.functions
        self.driven, self.linked = self.pci.driven(self.functions), self._linked()
        if of_link(coming):  # the interfaces are others, or none until IPoIB is loaded
            self.linked = {}

    def _linked(self) -> dict[str, set[str]]:
        """Functions with interfaces. Those of virtual functions and of partitions do not come back by themselves."""
        found = {function: self.pci.netdevs([function]) for function in self.functions}
        return {function: names for function, names in found.items() if names}

    def wait(self) -> None:
        deadline = time.monotonic() + RETURN_S
        while lacking := self.lacking():
            if time.monotonic() > deadline:
                raise Failure(
                    f"{self.card.device}: not all that was there before the reset is back after {RETURN_S:g} s: no "
                    f"{', '.join(lacking)}; look at dmesg, then power cycle the host"
                )
            time.sleep(0.5)

    def lacking(self) -> list[str]:
        driven, linked = self.pci.driven(self.functions), self._linked()
        gone = [f"driver of {function}" for function in sorted(self.driven - driven)]
        return gone + [
            f"interface of {function} ({', '.join(sorted(names))})"
            for function, names in sorted(self.linked.items())
            if function not in linked
        ]


def of_link(names: t.Iterable[str]) -> bool:
    return any(name.startswith(firmware.LINK_TYPE) for name in names)


__all__ = ("Card", "Presence", "carries", "check", "functions_of", "of_link", "refuse", "write")
