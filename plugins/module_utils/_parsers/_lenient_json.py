# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads JSON that is cut off, or that is none: unquoted names, commas before a closing bracket, bare words as values.

Old perftest writes such files, and any recording may end early.  What stands before the first place that makes no
sense is
kept; a value that the end of the text may have shortened is not.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import REPLACEMENT

_BLANK = re.compile(r"\s*")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*)"')
_WORD = re.compile(r"[^\s,:{}\[\]\"]+")
_NUMBER = re.compile(r"^-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?$")
_CONSTANTS = {"true": True, "false": False, "null": None}
_DEPTH = 40


class _Stop(Exception):
    """The text makes no sense from here on."""


def load(text: str, whole_objects: bool = False) -> tuple[Any, bool]:
    """(value, whether all of the text was good): strict JSON first, then what can be made of it.

    ``whole_objects``: an object of which a member is damaged is left out, not only the member.
    """
    try:
        # NaN and Infinity are no JSON, and nothing can be done with them.
        value = json.loads(text, parse_constant=lambda _word: None)
        return _pruned(value, whole_objects), REPLACEMENT not in text
    except (ValueError, RecursionError):
        pass
    reader = _Reader(text)
    try:
        value = reader.value(0)
    except _Stop:
        return _pruned(reader.root, whole_objects), False
    return _pruned(value, whole_objects), reader.rest().strip() == ""


def _damaged(value: Any) -> bool:
    return isinstance(value, str) and REPLACEMENT in value


def _spoiled(value: Any) -> bool:
    """Whether an object or one below it holds something damaged."""
    if isinstance(value, dict):
        return any(_damaged(key) or _damaged(item) or _spoiled(item) for key, item in value.items())
    return isinstance(value, list) and any(_damaged(item) or _spoiled(item) for item in value)


def _pruned(value: Any, whole: bool) -> Any:
    """Without members that are damaged and numbers that are none."""
    if isinstance(value, dict):
        return {key: _pruned(item, whole) for key, item in value.items() if not _damaged(key) and not _damaged(item)}
    if isinstance(value, list):
        kept = [
            item for item in value if not _damaged(item) and not (whole and isinstance(item, dict) and _spoiled(item))
        ]
        return [_pruned(item, whole) for item in kept]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.root: Any = None

    def rest(self) -> str:
        return self.text[self.at :]

    def _peek(self) -> str:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        if self.at >= len(self.text):
            raise _Stop
        return self.text[self.at]

    def value(self, depth: int) -> Any:
        self.root = self._container()
        return self._value(self.root, depth)

    def _container(self) -> Any:
        """The empty container that begins here; None before a scalar."""
        first = self._peek()
        return {} if first == "{" else [] if first == "[" else None

    def _value(self, container: Any, depth: int) -> Any:
        if depth > _DEPTH:
            raise _Stop
        if isinstance(container, dict):
            return self._object(container, depth)
        if isinstance(container, list):
            return self._array(container, depth)
        return self._scalar()

    def _object(self, found: dict[str, Any], depth: int) -> dict[str, Any]:
        self.at += 1
        while self._peek() != "}":
            name = self._name()
            if self._peek() != ":":
                raise _Stop
            self.at += 1
            child = self._container()
            if child is not None:
                found[name] = child
            item = self._value(child, depth + 1)
            if child is None:
                found[name] = item
            self._separator("}")
        self.at += 1
        return found

    def _array(self, found: list[Any], depth: int) -> list[Any]:
        self.at += 1
        while self._peek() != "]":
            # Attached before it is filled, so that its members survive a stop.
            child = self._container()
            if child is not None:
                found.append(child)
            item = self._value(child, depth + 1)
            if child is None:
                found.append(item)
            self._separator("]")
        self.at += 1
        return found

    def _separator(self, closing: str) -> None:
        found = self._peek()
        if found == ",":
            self.at += 1
        elif found != closing:
            raise _Stop

    def _name(self) -> str:
        return self._string() if self._peek() == '"' else self._word()

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if not match or REPLACEMENT in match.group(1):
            raise _Stop
        self.at = match.end()
        try:
            return str(json.loads(match.group(0)))
        except ValueError:
            return match.group(1)

    def _word(self) -> str:
        match = _WORD.match(self.text, self.at)
        # A word that the text ends with may go on.
        if not match or match.end() >= len(self.text) or REPLACEMENT in match.group(0):
            raise _Stop
        self.at = match.end()
        return match.group(0)

    def _scalar(self) -> Any:
        if self._peek() == '"':
            return self._string()
        word = self._word()
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if _NUMBER.match(word):
            return float(word) if re.search(r"[.eE]", word) else int(word)
        if re.match(r"^[-+.0-9]", word):
            raise _Stop
        # Bare words may have several parts: `Transport_type: IB over Ethernet,`
        while self._peek() not in ",}]":
            word += " " + self._word()
        return word
