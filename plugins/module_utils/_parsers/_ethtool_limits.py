# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a device has of something, and how much of it at most: the form of ``ethtool -g`` and ``ethtool -l``."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import _ethtool
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    failure,
    integer,
    prompt_command,
    split_lines,
)

_SECTIONS = {"Pre-set maximums:": "maximum", "Current hardware settings:": "current"}
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z ]*?):\s*(\S*)\s*$")
_ERROR = re.compile(r"^(?:Cannot get|netlink error)")
_SWITCHES = {"on": True, "off": False}


def _key(label: str) -> str:
    return label.strip().lower().replace(" ", "_").replace("-", "_")


class Limits:
    """Reads the answer to *option*, which begins with ``<title> for <interface>:``; *noun* is what is counted."""

    def __init__(self, option: str, title: str, noun: str) -> None:
        self.option, self.noun = option, noun
        self.header = re.compile(rf"^{title} for ([^\s:]+):\s*$")

    def parse(self, text: str) -> Parsed:
        return _ethtool.read(text, self.option, self._read_text, self._read_json)

    def _read_text(self, text: str, value: dict[str, Any], problems: Problems) -> None:
        interface: dict[str, Any] | None = None
        section: str | None = None
        for line in split_lines(text):
            header = None if line.damaged else self.header.match(line.text)
            field = _FIELD.match(line.text)
            if line.damaged:
                problems.damaged(line)
                section = None  # it may have begun the next section, whose labels are the same
            elif line.blank or prompt_command(line.text) is not None:
                continue
            elif header:
                interface, section = {"netdev": header.group(1), "maximum": {}, "current": {}}, None
                value["interfaces"].append(interface)
            elif _ERROR.match(line.text) or failure(line.text):
                value["errors"].append(line.text.strip())
                problems.add(f"ethtool could not read the {self.noun}s.", line)
            elif interface is not None and line.text.strip() in _SECTIONS:
                section = _SECTIONS[line.text.strip()]
            elif interface is not None and section is not None and field:
                key, said = _key(field.group(1)), field.group(2)
                if not line.terminated and said not in _SWITCHES:
                    problems.cut(line)
                elif key in interface[section]:
                    problems.add("The line that begins this section is missing.", line)
                    section = None
                elif said in _SWITCHES:
                    interface[section][key] = _SWITCHES[said]
                elif integer(said) is not None:
                    interface[section][key] = integer(said)
                elif said not in ("n/a", ""):
                    problems.add(f"'{said}' is no number of {self.noun}s.", line)
            elif not line.terminated:
                problems.cut(line)
            elif interface is not None and section is None and field and integer(field.group(2)) is not None:
                problems.add("The line that begins this section is missing.", line)

    def _read_json(self, text: str, value: dict[str, Any], problems: Problems) -> None:
        for item in _ethtool.json_interfaces(text, problems):
            interface: dict[str, Any] = {"maximum": {}, "current": {}}
            for name, member in item.items():
                if name == "ifname":
                    interface["netdev"] = str(member)
                elif isinstance(member, (bool, int)):
                    section = "maximum" if name.endswith("-max") else "current"
                    interface[section][_key(name[:-4] if section == "maximum" else name)] = member
            value["interfaces"].append(interface)
