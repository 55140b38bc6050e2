# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``mlxconfig``/``mstconfig``: firmware settings, as text (``q``, ``-e q``, ``set``) or JSON (``-j``).

Value::

    {"devices": [{"device", "pci", "device_type", "name", "description",
                  "parameters": {NAME: {"default", "current", "next", "new", "modified": bool, "read_only": bool}},
                  "extra"}],
     "applied": bool, "messages": [...], "errors": [...]}

Values are the tool's own texts: ``True(1)``, ``16``, ``0x1f(31)``, ``Array[0..7]``.  Which of ``default``, ``current``
and ``next`` a parameter has follows the columns, less those that are ``N/A`` because the firmware does not tell;
``new`` is what ``set`` is about to write.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    clean,
    failure,
    holds_damage,
    json_items,
    pci_address,
    prompt_command,
    split_lines,
)

_DEVICE = re.compile(r"^Device #\d+:\s*$")
_HEADER = re.compile(r"^\s*Configurations:(?P<columns>(?:\s+(?:Default|Current|Next Boot|New))+)\s*$")
_COLUMN = re.compile(r"Default|Current|Next Boot|New")
_COLUMNS = {"Default": "default", "Current": "current", "Next Boot": "next", "New": "new"}
# Small letters only behind an underscore, as in EXP_ROM_UEFI_x86_ENABLE: no sentence begins with such a word.
_ROW = re.compile(
    r"^\s*(?P<modified>\*)?\s*(?P<read_only>RO\s)?\s*"
    r"(?P<name>[A-Z][A-Z0-9]*(?:_[A-Za-z0-9_]*)?(?:\[[\d.]+\])?)(?P<values>(?:\s+\S+)+)\s*$"
)
# A value that fills its column stands right before the next one.
_VALUE = re.compile(r"[^\s()]*\([^\s()]*\)|\S+")
_UNTOLD = "N/A"
_FIELD = re.compile(r"^(Device type|Name|Description|Device|PSID|Versions?|Part number):\s*(.*?)\s*$", re.IGNORECASE)
_KEYS = {"device type": "device_type", "name": "name", "description": "description", "device": "device"}
_MESSAGE = re.compile(r"^\s*-([IWE])-\s*(.*)$")
# Without a header the number of values tells the columns: -e prints three, a plain query one.
_BY_COUNT = {1: ("next",), 3: ("default", "current", "next")}


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"devices": [], "messages": [], "errors": []}
        self.device: dict[str, Any] | None = None
        self.columns: tuple[str, ...] | None = None
        self.lost = False
        self.headed = False

    def read(self, line: Line) -> None:
        message = _MESSAGE.match(line.text)
        header = _HEADER.match(line.text)
        if prompt_command(line.text) is not None:
            self.device, self.columns, self.lost, self.headed = None, None, False, False
            return
        if line.blank or set(line.text.strip()) == {"-"}:
            return
        if message:
            self._message(line, message)
        elif _DEVICE.match(line.text):
            self._open()
        elif header:
            names = _COLUMN.findall(header.group("columns"))
            # A cut header may lack its last columns, and with them every row below would be misread.
            self.columns = tuple(_COLUMNS[name] for name in names) if line.terminated else None
            self.headed = True
        elif not (self._field(line) or self._row(line)):
            if failure(line.text):
                self.value["errors"].append(line.text.strip())
                self.problems.add("mlxconfig did not finish.", line)
            elif "Applying..." in line.text:
                if "Done!" in line.text:
                    self.value["applied"] = True
                elif not line.terminated:
                    self.problems.cut(line)
                elif "Failed" in line.text:
                    self.value["applied"] = False
            elif not line.terminated:
                self.problems.cut(line)

    def damaged(self, line: Line) -> None:
        self.problems.damaged(line)
        text = line.text.strip()
        if text.startswith(("Configurations", "Device #")) or not (_ROW.match(line.text) or _FIELD.match(line.text)):
            # It may have begun the next device or given the columns.
            self.lost = True

    def _open(self) -> None:
        self.device = {"parameters": {}, "extra": {}}
        self.value["devices"].append(self.device)
        self.columns, self.lost, self.headed = None, False, False

    def _message(self, line: Line, match: re.Match[str]) -> None:
        if match.group(1) == "E":
            self.value["errors"].append(match.group(2).strip())
            self.problems.add("mlxconfig reports an error.", line)
        elif not line.terminated and not line.text.rstrip().endswith("."):
            self.problems.cut(line)
        else:
            self.value["messages"].append(match.group(2).strip())

    def _field(self, line: Line) -> bool:
        match = _FIELD.match(line.text)
        if not match or self.headed or self.lost:
            return False
        if self.device is None:
            return False
        said = match.group(2)
        key = _KEYS.get(match.group(1).lower())
        if not line.terminated:
            self.problems.cut(line)
        elif key is None:
            self.device["extra"][match.group(1)] = said
        elif said and said != _UNTOLD:
            self.device[key] = said
            if key == "device" and pci_address(said):
                self.device["pci"] = pci_address(said)
        return True

    def _row(self, line: Line) -> bool:
        match = _ROW.match(line.text)
        marked = match and (line.indented or match.group("modified") or match.group("read_only"))
        if not match or not (marked or self.headed):
            return False
        if self.lost:
            return True
        values = _VALUE.findall(match.group("values"))
        if not line.terminated:
            self.problems.cut(line)
            return True
        columns = self.columns if self.headed else _BY_COUNT.get(len(values))
        if columns is None or len(columns) != len(values):
            if line.terminated and (self.headed or self.device is not None):
                self.problems.add("The number of values is not that of the columns.", line)
            return True
        if self.device is None:
            self._open()
        assert self.device is not None
        if match.group("name") in self.device["parameters"]:
            self.problems.add("The line that names this device is missing.", line)
            self.lost = True
            return True
        parameter: dict[str, Any] = {key: shown for key, shown in zip(columns, values) if shown != _UNTOLD}
        if "default" in columns or match.group("modified"):
            parameter["modified"] = bool(match.group("modified"))
        if match.group("read_only"):
            parameter["read_only"] = True
        self.device["parameters"][match.group("name")] = parameter
        return True


def _text(member: Any) -> Any:
    return member if isinstance(member, (str, list)) else str(member)


def _read_json(text: str) -> Parsed:
    problems = Problems()
    value: dict[str, Any] = {"devices": [], "messages": [], "errors": []}
    items, whole = json_items(text)
    document = items[0] if len(items) == 1 else None
    if not whole or not isinstance(document, dict) or holds_damage(document):
        problems.add("This is no whole JSON object.", text=clean(text).strip())
        return problems.result(value)
    for entry in document.values():
        if not isinstance(entry, dict) or not isinstance(entry.get("tlv_configuration"), dict):
            problems.add("This is no device.", text=str(entry))
            continue
        device: dict[str, Any] = {"parameters": {}, "extra": {}}
        for key, member in entry.items():
            if key in ("device_type", "name", "description", "device"):
                device[key] = _text(member)
            elif key != "tlv_configuration":
                device["extra"][key] = member
        if pci_address(str(device.get("device", ""))):
            device["pci"] = pci_address(str(device["device"]))
        for name, settings in entry["tlv_configuration"].items():
            if not isinstance(settings, dict):
                problems.add(f"{name} has no settings.", text=str(settings))
                continue
            parameter = {
                key: _text(settings[f"{key}_value"])
                for key in ("default", "current", "next")
                if settings.get(f"{key}_value", _UNTOLD) != _UNTOLD
            }
            parameter.update(
                {key: settings[key] for key in ("modified", "read_only") if isinstance(settings.get(key), bool)}
            )
            device["parameters"][name] = parameter
        value["devices"].append(device)
    return problems.result(value)


def parse(text: str) -> Parsed:
    """Read the output of ``mlxconfig`` or ``mstconfig``."""
    if re.search(r"^\s*\{", clean(text), re.MULTILINE):
        return _read_json(text)
    reader = _Reader()
    for line in split_lines(text):
        if line.damaged:
            reader.damaged(line)
        else:
            reader.read(line)
    said = reader.value["devices"] or reader.value["messages"] or reader.value["errors"]
    if not said and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of mlxconfig in this text.")
    return reader.problems.result(reader.value)
