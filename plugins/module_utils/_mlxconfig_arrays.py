# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Firmware parameters that are arrays: ``NAME[3]`` and ``NAME[0..3]``, as mlxconfig takes them. Pure.

The tool shows an array as a whole by its bounds only (``Array[0..7]``); a question by name shows the elements, each as
a parameter of its own.
"""

from __future__ import annotations

import re
import typing as t

Parameters = t.Mapping[str, t.Mapping[str, t.Any]]

_PLACE = re.compile(r"^(?P<name>[^\[\]]+)\[(?P<first>[0-9]{1,4})(?:\.\.(?P<last>[0-9]{1,4}))?\]$")
_BOUNDS = re.compile(r"^Array\[([0-9]+)\.\.([0-9]+)\]$")


class Place(t.NamedTuple):
    """One element of an array, or several in a row."""

    name: str
    first: int
    last: int

    @property
    def text(self) -> str:
        shown = str(self.first) if self.first == self.last else f"{self.first}..{self.last}"
        return f"{self.name}[{shown}]"

    @property
    def elements(self) -> list[str]:
        return [f"{self.name}[{index}]" for index in range(self.first, self.last + 1)]


def place(name: str) -> Place | None:
    """What an indexed name stands for; None for one that has no index, or none that can be."""
    match = _PLACE.match(name)
    if not match:
        return None
    first = int(match.group("first"))
    last = int(match.group("last") or first)
    return Place(match.group("name"), first, last) if first <= last else None


def stem(name: str) -> str:
    return name.partition("[")[0]


def bounds(parameter: t.Mapping[str, t.Any]) -> tuple[int, int] | None:
    """The first and the last index of an array; None for a parameter that is none."""
    shown = parameter.get("next")
    if isinstance(shown, list):
        return 0, len(shown) - 1
    match = _BOUNDS.match(str(shown))
    return (int(match.group(1)), int(match.group(2))) if match else None


def is_array(parameter: t.Mapping[str, t.Any]) -> bool:
    shown = parameter.get("next")
    return isinstance(shown, list) or str(shown).startswith("Array[")


def elements_of(name: str, parameter: t.Mapping[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """The elements of an array that is shown as a list."""
    lists = {key: value for key, value in parameter.items() if isinstance(value, list)}
    more = {key: value for key, value in parameter.items() if key == "read_only"}
    found = {}
    for index in range(max((len(values) for values in lists.values()), default=0)):
        shown = {key: str(values[index]) for key, values in lists.items() if index < len(values)}
        found[f"{name}[{index}]"] = {**more, **shown}
    return found


class Spread(t.NamedTuple):
    """Wanted settings with every range taken apart."""

    settings: dict[str, t.Any]
    optional: list[str]
    refusals: list[str]


def spread(
    wanted: t.Mapping[str, t.Any],
    optional: t.Collection[str],
    parameters: Parameters,
    ports_of: t.Callable[[str], t.Sequence[str]],
) -> Spread:
    """Give every element its value. One that is named alone counts before a range that holds it.

    *ports_of* gives a card's own names for one without a port. What the card does not have stays as it is.
    """
    found = Spread({}, list(optional), [])
    owners: dict[str, tuple[str, t.Any]] = {}
    places = {name: place(name) for name in wanted}

    def rank(name: str) -> tuple[int, bool]:
        """The widest first, and a card's own name last: what comes last counts."""
        at = places[name]
        return (at.first - at.last, at.name in parameters) if at else (0, False)

    for name in sorted(wanted, key=rank):
        at, value = places[name], wanted[name]
        if at is None:
            continue
        for array in held_by(at, parameters, ports_of):
            refusal = _outside(name, at, array, parameters[array])
            if refusal:
                found.refusals.append(refusal)
                continue
            for element in at._replace(name=array).elements:
                other, before = owners.get(element, ("", None))
                if other and at.first != at.last and str(before) != str(value):
                    found.refusals.append(f"{element} is {before} in {other} and {value} in {name}; give it one value")
                    break
                owners[element] = (name, value)
                if name in optional:
                    found.optional.append(element)
    for name, value in wanted.items():
        at = places[name]
        if at and held_by(at, parameters, ports_of):
            mine = [element for element, (owner, _value) in owners.items() if owner == name]
            found.settings.update(dict.fromkeys(mine, value))
        else:
            found.settings[name] = value
    return found


def held_by(at: Place, parameters: Parameters, ports_of: t.Callable[[str], t.Sequence[str]]) -> list[str]:
    """The card's own parameters that a name stands for; none where it has no such parameter."""
    return [at.name] if at.name in parameters else list(ports_of(at.name))


def _outside(name: str, at: Place, array: str, parameter: t.Mapping[str, t.Any]) -> str:
    """Why this array has no such element."""
    if not is_array(parameter):
        return f"{name}: {array} is no array (it is {parameter.get('next')}); name it without an index"
    limits = bounds(parameter)
    if limits is None or (limits[0] <= at.first and at.last <= limits[1]):
        return ""
    return f"{name}: {array} has the elements {limits[0]} to {limits[1]}"


def rows(names: t.Iterable[str]) -> list[str]:
    """Elements as few words: those in a row of one array as a range."""
    found: list[Place] = []
    for name in names:
        at = place(name)
        if at is None:
            raise ValueError(name)
        if found and found[-1].name == at.name and found[-1].last + 1 == at.first:
            found[-1] = found[-1]._replace(last=at.last)
        else:
            found.append(at)
    return [at.text for at in found]


def assignments(words: t.Mapping[str, str]) -> list[str]:
    """``NAME=word`` for each; elements in a row that get the same word are one."""
    found: list[tuple[str, str]] = []
    for name, word in words.items():
        last = place(found[-1][0]) if found and found[-1][1] == word else None
        at = place(name)
        if last and at and last.name == at.name and last.last + 1 == at.first:
            found[-1] = (last._replace(last=at.last).text, word)
        else:
            found.append((name, word))
    return [f"{name}={word}" for name, word in found]


__all__ = ("Place", "assignments", "bounds", "elements_of", "held_by", "is_array", "place", "rows", "spread", "stem")
