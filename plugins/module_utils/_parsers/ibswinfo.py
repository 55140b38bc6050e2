# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibswinfo``: inventory and sensors of an unmanaged InfiniBand switch.

Value::

    {"part_number", "serial_number", "product_name", "revision", "ports", "psid", "guid", "firmware", "uptime_s",
     "temperature_c", "max_temperature_c", "fan_status", "fans": [{"fan", "rpm"}],
     "psus": [{"psu", "status", "part_number", "serial_number", "dc_power", "fan_status", "power_w"}],
     "extra", "errors": [...]}

``fan_status`` may be ERROR while every fan turns.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    first_output,
    guid,
    integer,
    prompt_command,
    split_lines,
)

_FIELD = re.compile(r"^(\s*)(\S[^|]*?)\s*\|\s*(.*?)\s*$")
_ONCE = re.compile(r"^([A-Za-z][^|]*?)\s*\|")
_FAN = re.compile(r"^fan#(\d+) \(rpm\)$")
_PSU = re.compile(r"^PSU(\d+) status$")
_UPTIME = re.compile(r"^(?:(\d+)d-)?(\d+):(\d{2}):(\d{2})$")
_TEXTS = {
    "part number": "part_number",
    "serial number": "serial_number",
    "product name": "product_name",
    "revision": "revision",
    "PSID": "psid",
    "firmware version": "firmware",
    "fan status": "fan_status",
}
_NUMBERS = {"ports": "ports", "temperature (C)": "temperature_c", "max temp (C)": "max_temperature_c"}
_PSU_FIELDS = {"P/N": "part_number", "S/N": "serial_number", "DC power": "dc_power", "fan status": "fan_status"}


def _uptime(text: str) -> int | None:
    match = _UPTIME.match(text)
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"fans": [], "psus": [], "extra": {}, "errors": []}
        self.psu: dict[str, Any] | None = None

    def read(self, line: Line) -> None:
        if line.damaged:
            self.problems.damaged(line)
            self.psu = None  # it may have begun the next power supply
            return
        if line.blank or prompt_command(line.text) is not None:
            return
        match = _FIELD.match(line.text)
        if failure(line.text) or line.text.startswith(("error", "Error")):
            self.value["errors"].append(line.text.strip())
            self.problems.add("ibswinfo did not finish.", line)
        elif not match:
            if not line.terminated and set(line.text) not in ({"-"}, {"="}):
                self.problems.cut(line)
        elif not line.terminated:
            self.problems.cut(line)
        elif match.group(1):
            self._of_psu(line, match.group(2), match.group(3))
        else:
            self._field(line, match.group(2), match.group(3))

    def _of_psu(self, line: Line, label: str, text: str) -> None:
        if not text:
            return
        if self.psu is None or (label in _PSU_FIELDS and _PSU_FIELDS[label] in self.psu):
            self.problems.add("The line that names this power supply is missing.", text=f"{label} | {text}")
            self.psu = None
        elif label in _PSU_FIELDS:
            self.psu[_PSU_FIELDS[label]] = text
        elif label == "power (W)":
            watts = integer(text)
            if watts is None:
                self.problems.add(f"'{text}' is no value of {label}.", line)
            else:
                self.psu["power_w"] = watts

    def _field(self, line: Line, label: str, text: str) -> None:
        self.psu = None
        fan, psu = _FAN.match(label), _PSU.match(label)
        value: Any = text
        if psu:
            self.psu = {"psu": int(psu.group(1)), **({"status": text} if text else {})}
            self.value["psus"].append(self.psu)
        elif not text:
            return
        elif fan:
            value = integer(text)
            if value is not None:
                self.value["fans"].append({"fan": int(fan.group(1)), "rpm": value})
        elif label in _TEXTS:
            self.value[_TEXTS[label]] = text
        elif label in _NUMBERS:
            value = integer(text)
            if value is not None:
                self.value[_NUMBERS[label]] = value
        elif label == "GUID":
            value = guid(text)
            if value is not None:
                self.value["guid"] = value
        elif label.startswith("uptime"):
            value = _uptime(text)
            if value is not None:
                self.value["uptime_s"] = value
        else:
            self.value["extra"][label] = text
        if value is None:
            self.problems.add(f"'{text}' is no value of {label}.", line)


def parse(text: str) -> Parsed:
    """Read the output of ``ibswinfo``."""
    reader = _Reader()
    for line in first_output(split_lines(text), _ONCE, reader.problems):
        reader.read(line)
    if set(reader.value) == {"fans", "psus", "extra", "errors"} and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of ibswinfo in this text.")
    return reader.problems.result(reader.value)
