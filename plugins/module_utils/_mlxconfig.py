# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Firmware settings of a card: what they mean, what differs from what is wanted, and what the difference costs. Pure.

The firmware keeps three values of every parameter: the factory's, the one in force, and the one of the next boot.
Writing changes the last only; a reset of the card brings it into force.
"""

from __future__ import annotations

import difflib
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig_arrays as arrays

GATE = "ADVANCED_PCI_SETTINGS"
#: What firmware may show only with GATE: once it is in force, or as soon as it is written.
ADVANCED = frozenset({"MAX_ACC_OUT_READ", "PCI_WR_ORDERING", "HIDE_PORT2_PF", "FORCE_ETH_PCI_SUBCLASS"})
_EMBEDDED = (
    "INTERNAL_CPU_PAGE_SUPPLIER",
    "INTERNAL_CPU_ESWITCH_MANAGER",
    "INTERNAL_CPU_IB_VPORT0",
    "INTERNAL_CPU_OFFLOAD_ENGINE",
)
#: Hidden parameters and the one that has to be 1 for them.
GATES = {**dict.fromkeys(ADVANCED, GATE), **dict.fromkeys(_EMBEDDED, "INTERNAL_CPU_MODEL")}
#: Parameters that no reset of the card brings into force: the processor beside it keeps its power.
POWERCYCLE = ("INTERNAL_CPU_",)
#: Parameters that say how many functions a card shows.
FUNCTIONS = frozenset({"HIDE_PORT2_PF", "NUM_OF_PF"})
LINK_TYPE = "LINK_TYPE"
ETHERNET = ("eth", "2")


_NAMED = re.compile(r"^(?P<label>[^()]*)\((?P<number>-?[0-9]+)\)$")
_NUMBER = re.compile(r"^-?[0-9]+$")
_HEX = re.compile(r"^0[xX][0-9a-fA-F]+$")
_PORT = re.compile(r"^(?P<stem>.+)_P(?P<port>\d+)$")
_TRUTH = {"true": 1, "yes": 1, "false": 0, "no": 0}

Parameters = t.Mapping[str, t.Mapping[str, t.Any]]


def number_of(value: t.Any) -> int | None:
    """The number behind ``ETH(2)``, ``0x1f``, ``16``, ``True``, ``no``; ``None`` where only a name is given."""
    text = str(value).strip()
    named = _NAMED.match(text)
    if named:
        return int(named.group("number"))
    if _HEX.match(text):
        return int(text, 16)
    return int(text) if _NUMBER.match(text) else _TRUTH.get(text.lower())


def label_of(value: t.Any) -> str:
    text = str(value).strip()
    named = _NAMED.match(text)
    return (named.group("label") if named else text).lower()


def same(wanted: t.Any, shown: t.Any) -> bool:
    """Whether a value as a person writes it is the one that the tool shows."""
    one, other = number_of(wanted), number_of(shown)
    return one == other if one is not None and other is not None else label_of(wanted) == label_of(shown)


def argument(value: t.Any, shown: t.Any) -> str:
    """A value as the tool takes it for a parameter that it shows as *shown*: the number where there is one.

    Where it shows a parameter in hexadecimal, it reads every number in that base, so such a one is given with ``0x``.
    """
    text = str(value).strip()
    number = number_of(text)
    if number is None or _HEX.match(text):
        return text
    return hex(number) if _HEX.match(label_of(shown)) else str(number)


class Resolution(t.NamedTuple):
    """The wanted settings in a card's own names."""

    settings: dict[str, t.Any]
    #: Wait until their gate is in force.
    deferred: dict[str, t.Any]
    #: Optional ones that this card does not have.
    skipped: list[str]
    #: One sentence each.
    refusals: list[str]


def resolve(wanted: t.Mapping[str, t.Any], optional: t.Collection[str], parameters: Parameters) -> Resolution:
    """Give every wanted setting its place among the card's parameters.

    A name without a port (``LINK_TYPE``) stands for every port of the card (``LINK_TYPE_P1``, ``LINK_TYPE_P2``); a
    name with one counts before it. So does an element of an array (``NAME[3]``) before a range (``NAME[0..7]``).
    """
    found = Resolution({}, {}, [], [])
    taken_apart = arrays.spread(wanted, optional, parameters, lambda stem: _ports_of(stem, parameters))
    wanted, optional = taken_apart.settings, taken_apart.optional
    found.refusals.extend(taken_apart.refusals)
    exact = {name: value for name, value in wanted.items() if name in parameters}
    for name, value in wanted.items():
        if name in exact:
            names = [name]
        else:
            names = [item for item in _ports_of(name, parameters) if item not in exact]
            if not names and _ports_of(name, parameters):
                continue
        if not names:
            _absent(name, value, wanted, optional, parameters, found)
            continue
        for item in names:
            reason = _obstacle(parameters[item])
            if reason and not same(value, parameters[item].get("next")):
                if name in optional:
                    found.skipped.append(item)
                else:
                    found.refusals.append(f"{item} {reason}")
            else:
                found.settings[item] = value
    return found


def _ports_of(stem: str, parameters: Parameters) -> list[str]:
    return sorted(name for name in parameters if (match := _PORT.match(name)) and match.group("stem") == stem)


def _obstacle(parameter: t.Mapping[str, t.Any]) -> str:
    """Why this parameter cannot be changed."""
    shown = parameter.get("next")
    if shown is None:
        return "shows no value of the next boot; mlxconfig -e q tells more"
    if parameter.get("read_only"):
        return f"is read only (it is {shown})"
    if arrays.is_array(parameter):
        first, last = arrays.bounds(parameter) or (0, 0)
        return f"is an array; name its elements, as in [{first}] or [{first}..{last}] behind the name"
    if "current" not in parameter:
        return "shows no value that is in force; mlxconfig -e q tells more"
    return ""


def _absent(
    name: str,
    value: t.Any,
    wanted: t.Mapping[str, t.Any],
    optional: t.Collection[str],
    parameters: Parameters,
    found: Resolution,
) -> None:
    match = _PORT.match(name)
    if (match.group("stem") if match else name) == LINK_TYPE and label_of(value) in ETHERNET:
        return  # a card that knows no other link than Ethernet has no such parameter
    array = arrays.stem(name)
    gate = GATES.get(array, "")
    if gate in parameters and number_of(parameters[gate].get("current")) != 1:
        if number_of(wanted.get(gate)) == 1:
            found.deferred[name] = value
        else:
            found.refusals.append(f"{name} is shown only once {gate} is in force; set {gate} to 1 along with it")
        return
    if name in optional:
        found.skipped.append(name)
        return
    if match and _ports_of(match.group("stem"), parameters):
        found.refusals.append(f"{name}: the card has no port {match.group('port')}")
        return
    if array != name and array in parameters:
        found.refusals.append(f"{name} shows no value; ask the tool for it (q {name})")
        return
    near = difflib.get_close_matches(array.upper(), [*parameters, *GATES], n=1, cutoff=0.75)
    hint = f"; the nearest that it has is {near[0]}" if near else ""
    found.refusals.append(f"{name} is no parameter of this card and firmware{hint}")


def elements(names: t.Iterable[str], parameters: Parameters) -> list[str]:
    """The elements of arrays among *names*, in this card's own names; what it does not have is left out."""
    found: dict[str, None] = {}
    for name in names:
        at = arrays.place(name)
        if at is None:
            continue
        for array in arrays.held_by(at, parameters, lambda stem: _ports_of(stem, parameters)):
            limits = arrays.bounds(parameters[array])
            if limits and limits[0] <= at.first and at.last <= limits[1]:
                found.update(dict.fromkeys(at._replace(name=array).elements))
    return list(found)


class Difference(t.NamedTuple):
    """One parameter whose value of the next boot is not the wanted one."""

    name: str
    current: t.Any
    next: t.Any
    wanted: t.Any

    @property
    def argument(self) -> str:
        """What is wanted, as the tool takes it."""
        return argument(self.wanted, self.next)


def differences(settings: t.Mapping[str, t.Any], parameters: Parameters) -> list[Difference]:
    return [
        Difference(name, parameters[name].get("current"), parameters[name].get("next"), value)
        for name, value in settings.items()
        if not same(value, parameters[name].get("next"))
    ]


def pending(parameters: Parameters, after: t.Mapping[str, t.Any] | None = None) -> dict[str, tuple[t.Any, t.Any]]:
    """Parameters whose next value is not the one in force; *after* are the values that are about to be written."""
    found = {}
    for name, parameter in parameters.items():
        coming = (after or {}).get(name, parameter.get("next"))
        current = parameter.get("current")
        if current is not None and coming is not None and not same(coming, current):
            found[name] = (current, coming)
    return found


def need(names: t.Collection[str], way: str) -> str:
    """What brings these parameters into force on a card that loads its settings with *way*."""
    if not names:
        return "none"
    if any(name.startswith(POWERCYCLE) for name in names):
        return "powercycle"
    return way


__all__ = (
    "ADVANCED",
    "FUNCTIONS",
    "GATE",
    "GATES",
    "LINK_TYPE",
    "Difference",
    "Parameters",
    "Resolution",
    "argument",
    "differences",
    "elements",
    "label_of",
    "need",
    "number_of",
    "pending",
    "resolve",
    "same",
)
