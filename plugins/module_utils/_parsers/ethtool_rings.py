# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool -g``: ring sizes, as text or as ``--json``.

Value::

    {"interfaces": [{"netdev", "maximum": {"rx", "rx_mini", "rx_jumbo", "tx", …}, "current": {…}}], "errors": [...]}

``n/a`` leaves the member out; switches such as ``tx_push`` are booleans.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import _ethtool
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    failure,
    holds_damage,
    integer,
    json_items,
    prompt_command,
    split_lines,
)

_HEADER = re.compile(r"^Ring parameters for ([^\s:]+):\s*$")
_SECTIONS = {"Pre-set maximums:": "maximum", "Current hardware settings:": "current"}
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z ]*?):\s*(\S*)\s*$")
_ERROR = re.compile(r"^(?:Cannot get|netlink error)")
_SWITCHES = {"on": True, "off": False}


def _key(label: str) -> str:
    return label.strip().lower().replace(" ", "_").replace("-", "_")


def _read_text(text: str, value: dict[str, Any], problems: Problems) -> None:
    interface: dict[str, Any] | None = None
    section: str | None = None
    for line in split_lines(text):
        header = None if line.damaged else _HEADER.match(line.text)
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
            problems.add("ethtool could not read the rings.", line)
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
                problems.add(f"'{said}' is no size of a ring.", line)
        elif not line.terminated:
            problems.cut(line)


def _read_json(text: str, value: dict[str, Any], problems: Problems) -> None:
    items, whole = json_items(text)
    if not whole:
        problems.add("The JSON document ends early; only its whole elements were read.")
    for item in items:
        if not isinstance(item, dict) or holds_damage(item):
            problems.add("An element of the list is no interface.", text=str(item))
            continue
        interface: dict[str, Any] = {"maximum": {}, "current": {}}
        for name, member in item.items():
            if name == "ifname":
                interface["netdev"] = str(member)
            elif isinstance(member, (bool, int)):
                section = "maximum" if name.endswith("-max") else "current"
                interface[section][_key(name[:-4] if section == "maximum" else name)] = member
        value["interfaces"].append(interface)


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool -g``."""
    return _ethtool.read(text, "-g", _read_text, _read_json)
