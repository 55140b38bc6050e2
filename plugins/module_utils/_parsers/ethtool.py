# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool DEV``: speed, link and link modes of an interface.

Value::

    {"interfaces": [{"netdev", "speed_mbps", "lanes", "duplex", "port", "phyad", "transceiver", "autoneg": bool,
                     "link": bool, "link_reason", "wake_on", "supported_ports": [...],
                     "supported_link_modes": [...], "advertised_link_modes": [...], "partner_link_modes": [...],
                     "supported_fec": [...], "advertised_fec": [...], "partner_fec": [...], "extra"}],
     "errors": [...]}

``Unknown!`` and ``Not reported`` leave the member out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    integer,
    prompt_command,
    split_lines,
)

_HEADER = re.compile(r"^Settings for ([^\s:]+):\s*$")
_FIELD = re.compile(r"^\s+([A-Za-z][\w /-]*?):(?:\s+(.*?))?\s*$")
_SPEED = re.compile(r"^(\d+)Mb/s$")
_MODE = re.compile(r"^(\d+)base")
_LISTS = {
    "supported ports": "supported_ports",
    "supported link modes": "supported_link_modes",
    "advertised link modes": "advertised_link_modes",
    "link partner advertised link modes": "partner_link_modes",
    "supported fec modes": "supported_fec",
    "advertised fec modes": "advertised_fec",
    "link partner advertised fec modes": "partner_fec",
}
_TEXTS = {"port": "port", "transceiver": "transceiver", "wake-on": "wake_on"}
_NUMBERS = {"phyad": "phyad", "lanes": "lanes"}
_UNSAID = ("", "Not reported", "Unknown!", "Unknown", "internal unknown")
_ERROR = re.compile(r"^(?:Cannot get|netlink error|No data available)")


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"interfaces": [], "errors": []}
        self.interface: dict[str, Any] | None = None
        self.key: str | None = None  # of the list or text that the next bare line continues
        self.key_line: Line | None = None
        self.extra = False
        self.labels: set[str] = set()  # of this interface; each stands there once

    def read(self, line: Line) -> None:
        if line.damaged:
            self.problems.damaged(line)
            self._lose_list()
            if not line.indented:
                self.interface = None
            return
        header = _HEADER.match(line.text)
        field = _FIELD.match(line.text)
        if header:
            self._close_list()
            self.labels.clear()
            self.interface = {"netdev": header.group(1), "extra": {}}
            self.value["interfaces"].append(self.interface)
        elif line.blank and not line.terminated:
            return  # the blanks in front of a line that was cut off: a list is still open
        elif line.blank or prompt_command(line.text) is not None:
            self._close_list()
        elif _ERROR.match(line.text) or failure(line.text):
            self.value["errors"].append(line.text.strip())
            self.problems.add("ethtool could not read all of it.", line)
        elif self.interface is None:
            if not line.terminated:
                self.problems.cut(line)
        elif field:
            self._close_list()
            if field.group(1) in self.labels:
                self.problems.add("The line that begins this interface is missing.", line)
                self.interface = None
                return
            self.labels.add(field.group(1))
            self._field(line, field.group(1).lower(), field.group(1), (field.group(2) or "").strip())
        elif line.indented and self.key:
            self._continue(line)
        elif not line.terminated:
            self._lose_list()
            self.problems.cut(line)

    def _close_list(self) -> None:
        self.key, self.key_line = None, None

    def _lose_list(self) -> None:
        """A list whose last lines are missing is a wrong list."""
        if self.key and self.interface is not None:
            (self.interface["extra"] if self.extra else self.interface).pop(self.key, None)
        self._close_list()

    def _field(self, line: Line, label: str, shown: str, text: str) -> None:
        assert self.interface is not None
        whole = line.terminated
        if label in _LISTS:
            if not whole:
                self.problems.cut(line)
            elif text not in _UNSAID:
                self.key, self.key_line, self.extra = _LISTS[label], line, False
                self.interface[self.key] = text.strip("[]").split()
        elif label == "speed":
            match = _SPEED.match(text)
            if match:
                self.interface["speed_mbps"] = int(match.group(1))
            else:
                self._unread(line, text)
        elif label == "duplex":
            if text in ("Full", "Half"):
                self.interface["duplex"] = text.lower()
            elif not text.startswith("Unknown!"):
                self._unread(line, text)
        elif label == "auto-negotiation":
            if text in ("on", "off"):
                self.interface["autoneg"] = text == "on"
            else:
                self._unread(line, text)
        elif label == "link detected":
            self._link(line, text)
        elif not whole:
            self.problems.cut(line)
        elif label in _NUMBERS:
            if integer(text) is not None:
                self.interface[_NUMBERS[label]] = integer(text)
        elif label in _TEXTS:
            if text not in _UNSAID:
                self.interface[_TEXTS[label]] = text
        else:
            self.interface["extra"][shown] = text
            self.key, self.key_line, self.extra = shown, line, True

    def _link(self, line: Line, text: str) -> None:
        assert self.interface is not None
        match = re.match(r"^(yes|no)(?: \((.+)\))?$", text)
        if match:
            self.interface["link"] = match.group(1) == "yes"
            if match.group(2):
                self.interface["link_reason"] = match.group(2)
        else:
            self._unread(line, text)

    def _unread(self, line: Line, text: str) -> None:
        if not line.terminated:
            self.problems.cut(line)
        elif text not in _UNSAID:
            self.problems.add(f"ethtool does not print '{text}' here.", line)

    def _continue(self, line: Line) -> None:
        assert self.interface is not None and self.key is not None
        if not line.terminated:
            self.problems.cut(line)
            self._lose_list()
        elif self.extra:
            self.interface["extra"][self.key] += " " + line.text.strip()
        else:
            self.interface[self.key].extend(line.text.strip().strip("[]").split())

    def end(self) -> None:
        """A text that ends inside a list may lack some of its lines; ethtool's last lines are none of them."""
        if self.key and self.key_line is not None and self.interface is not None:
            self.problems.add("The text ends here, where more lines of the same list may follow.", self.key_line)
            self._lose_list()


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool`` for one or several interfaces."""
    reader = _Reader()
    for line in split_lines(text):
        reader.read(line)
    reader.end()
    if not reader.value["interfaces"] and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of ethtool in this text.")
    return reader.problems.result(reader.value)


def speed_of(mode: str) -> int | None:
    """The speed in Gb/s of a link mode such as ``400000baseCR4/Full``; None for those below one gigabit."""
    match = _MODE.match(mode)
    return (int(match.group(1)) // 1000 or None) if match else None


def speeds_of(modes: Iterable[str]) -> list[int]:
    """The speeds in Gb/s of link modes, each once."""
    return sorted({speed for speed in map(speed_of, modes) if speed})
