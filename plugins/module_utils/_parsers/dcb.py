# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``dcb {pfc,app,ets,buffer,dcbx,apptrust} show dev DEV`` of iproute2, as JSON (``-j``) or text.

Value: the members that the object has, of::

    {"pfc": [8 bools], "pfc_capacity", "macsec_bypass": bool, "delay",
     "dscp_to_priority": {"26": 3}, "default_priority": [ints],
     "willing": bool, "ets_capacity", "cbs": bool, "tc_bandwidth": [8], "tsa": [8], "priority_to_tc": [8],
     "prio_buffer": [8], "buffer_size": [8 bytes], "total_size": bytes (not from text, which rounds them),
     "trust": ["dscp"], "dcbx": [...], "extra", "errors": [...]}

An empty table is an empty JSON object: a value without members.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    believable,
    clean,
    failure,
    first_output,
    holds_damage,
    integer,
    json_items,
)

_PRIORITIES = 8
_VECTORS = {
    "prio_pfc": ("pfc", bool),
    "tc_bw": ("tc_bandwidth", int),
    "tc_tsa": ("tsa", str),
    "prio_tc": ("priority_to_tc", int),
    "prio_buffer": ("prio_buffer", int),
    "buffer_size": ("buffer_size", int),
}
_SCALARS = {
    "pfc_cap": ("pfc_capacity", int),
    "macsec_bypass": ("macsec_bypass", bool),
    "delay": ("delay", int),
    "willing": ("willing", bool),
    "ets_cap": ("ets_capacity", int),
    "cbs": ("cbs", bool),
    "total_size": ("total_size", int),
}
_SWITCHES = {"on": True, "off": False}
# iproute2's names of code points; in JSON and with -N they are numbers.
_DSCP = {f"CS{n}": 8 * n for n in range(8)}
_DSCP.update({f"AF{c}{d}": 8 * c + 2 * d for c in range(1, 5) for d in range(1, 4)})
_DSCP.update({"EF": 46, "VOICE-ADMIT": 44, "LE": 1, "DF": 0})
# iproute2 rounds sizes to Kb and Mb in text; only what it prints in bytes is exact.
_ROUNDED = re.compile(r"\d[KM]b$")
_ERROR = re.compile(r"^(?:Error|RTNETLINK|Cannot find device|Device|Object|Operation|Attribute)\b")
_NAMES = re.compile(r"(?:[a-z]+-)+[a-z]+|willing|delay|cbs|order")

_ONCE = re.compile(rf"^({_NAMES.pattern})\s")


def _of_kind(member: Any, kind: type) -> bool:
    return isinstance(member, kind) and (kind is bool or not isinstance(member, bool))


def _read_json(text: str, value: dict[str, Any], problems: Problems) -> None:
    items, whole = json_items(text)
    document = items[0] if len(items) == 1 else None
    if not whole or not isinstance(document, dict) or holds_damage(document):
        problems.add("This is no whole JSON object.", text=clean(text).strip())
        return
    for name, member in document.items():
        if name in _VECTORS:
            key, kind = _VECTORS[name]
            if isinstance(member, list) and len(member) == _PRIORITIES and all(_of_kind(item, kind) for item in member):
                value[key] = member
            else:
                problems.add(f"{name} is no list of {_PRIORITIES} values.", text=str(member))
        elif name in _SCALARS and _of_kind(member, _SCALARS[name][1]):
            value[_SCALARS[name][0]] = member
        elif name == "dscp_prio" and isinstance(member, list):
            table = value.setdefault("dscp_to_priority", {})
            for entry in member:
                # Each entry is [dscp, priority] and, as iproute2 has it, a blank.
                if isinstance(entry, list) and len(entry) >= 2 and all(_of_kind(item, int) for item in entry[:2]):
                    table[str(entry[0])] = entry[1]
                else:
                    problems.add("This is no entry of the DSCP table.", text=str(entry))
        elif name == "default_prio" and isinstance(member, list):
            value["default_priority"] = [item for item in member if _of_kind(item, int)]
        elif name == "order" and isinstance(member, list):
            value["trust"] = [str(item) for item in member]
        elif name == "dcbx" and isinstance(member, list):
            value["dcbx"] = [str(item) for item in member]
        else:
            value["extra"][name] = member


def _element(text: str, kind: type) -> Any:
    if kind is bool:
        return _SWITCHES.get(text)
    return integer(text[:-1] if text.endswith("b") else text) if kind is int else text


def _vector(name: str, words: list[str]) -> list[Any] | None:
    kind = _VECTORS[name][1]
    found: dict[int, Any] = {}
    for word in words:
        index, colon, said = word.partition(":")
        element = _element(said, kind)
        if not colon or not index.isdigit() or element is None:
            return None
        found[int(index)] = element
    return [found[n] for n in range(_PRIORITIES)] if sorted(found) == list(range(_PRIORITIES)) else None


def _dscp_table(words: list[str]) -> dict[str, int] | None:
    table: dict[str, int] = {}
    for word in words:
        code, colon, priority = word.partition(":")
        point = integer(code) if code.isdigit() else _DSCP.get(code.upper())
        if not colon or point is None or not priority.isdigit():
            return None
        table[str(point)] = int(priority)
    return table


def _pair(name: str, words: list[str], value: dict[str, Any]) -> bool:
    """Put one name and its words; False where they are not what dcb prints."""
    if name in ("buffer_size", "total_size") and any(_ROUNDED.search(word) for word in words):
        if name == "total_size" or len(words) == _PRIORITIES:
            value["extra"][name] = " ".join(words)
        return True
    if name in _VECTORS:
        vector = _vector(name, words)
        if vector is not None:
            value[_VECTORS[name][0]] = vector
        return vector is not None
    if name == "dscp_prio":
        table = _dscp_table(words)
        if table is not None:
            value.setdefault("dscp_to_priority", {}).update(table)
        return table is not None
    if name == "default_prio":
        value["default_priority"] = [int(word) for word in words if word.isdigit()]
    elif name in _SCALARS and len(words) == 1:
        key, kind = _SCALARS[name]
        element = _element(words[0], kind)
        if element is None:
            return False
        value[key] = element
    elif name == "order":
        value["trust"] = words
    else:
        value["extra"][name] = " ".join(words)
    return True


def _read_line(line: Line, value: dict[str, Any], problems: Problems) -> None:
    words = line.text.split()
    if not line.terminated:
        problems.cut(line)
        if not line.text[-1:].isspace() and words[-1].partition(":")[2] not in _SWITCHES:
            words.pop()  # the rest of its vector goes with it
    position = 0
    while position < len(words):
        name = words[position]
        if not _NAMES.fullmatch(name):
            if line.terminated:
                problems.add(f"'{name}' is no member of the object.", line)
            return
        end = position + 1
        while end < len(words) and not _NAMES.fullmatch(words[end]):
            end += 1
        said = words[position + 1 : end]
        if not line.terminated and end == len(words) and name.replace("-", "_") not in (*_VECTORS, *_SCALARS):
            return  # how many words are missing cannot be told
        if said and not _pair(name.replace("-", "_"), said, value) and line.terminated:
            problems.add(f"'{' '.join(said)}' is no value of {name}.", line)
        position = end


def parse(text: str) -> Parsed:
    """Read the output of ``dcb OBJECT show dev DEV``, with or without ``-j``."""
    problems = Problems()
    value: dict[str, Any] = {"extra": {}, "errors": []}
    if re.search(r"^\s*\{", clean(text), re.MULTILINE):
        _read_json(text, value, problems)
        return problems.result(value)
    for line in first_output(believable(text, problems), _ONCE, problems):
        if _ERROR.match(line.text) or failure(line.text):
            value["errors"].append(line.text.strip())
            problems.add("dcb could not read the object.", line)
        elif _NAMES.fullmatch(line.text.split()[0]):
            _read_line(line, value, problems)
        elif not line.terminated:
            problems.cut(line)
    return problems.result(value)
