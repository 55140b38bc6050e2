# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool --show-fec``: forward error correction of an interface, as text or as ``--json``.

Value::

    {"interfaces": [{"netdev", "configured": ["auto", "rs", …], "active": ["rs"], "statistics": {name: int}}],
     "errors": [...]}

Names are lower case, as ``--set-fec`` takes them.  Whether *configured* is what was set or all that the port can do
depends on the driver; ethtool says as much (``Supported/Configured``).  A port without a link has no *active* one.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import _ethtool
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    prompt_command,
    split_lines,
)

_HEADER = re.compile(r"^FEC parameters for ([^\s:]+):\s*$")
_FIELD = re.compile(r"^(Supported/Configured|Configured|Active) FEC encodings?:((?:\s+\S+)*)\s*$")
_STATISTIC = re.compile(r"^  ([a-z]\w*): (\d+)\s*$")
_ERROR = re.compile(r"^(?:Cannot get|netlink error)")
_NAMES = ("auto", "off", "rs", "baser", "llrs")
# Nothing is reported: the link is down, or the driver cannot tell. Once it stood for "off", which has its own name now.
_NOTHING = ("none", "not", "reported")


def _encodings(words: list[Any], problems: Problems, line: Line | None = None) -> list[str] | None:
    found = []
    for word in words:
        name = str(word).lower()
        if name in _NAMES:
            found.append(name)
        elif name not in _NOTHING:
            problems.add(f"'{word}' is no encoding.", line, str(word))
            return None
    return found


def _read_text(text: str, value: dict[str, Any], problems: Problems) -> None:
    interface: dict[str, Any] | None = None
    for line in split_lines(text):
        header = None if line.damaged else _HEADER.match(line.text)
        field = None if line.damaged else _FIELD.match(line.text)
        statistic = None if line.damaged else _STATISTIC.match(line.text)
        if line.damaged:
            problems.damaged(line)
            interface = None  # it may have named the next interface
        elif line.blank or prompt_command(line.text) is not None:
            continue
        elif header:
            interface = {"netdev": header.group(1)}
            value["interfaces"].append(interface)
        elif _ERROR.match(line.text) or failure(line.text):
            value["errors"].append(line.text.strip())
            problems.add("ethtool could not read FEC.", line)
        elif not line.terminated:
            problems.cut(line)
        elif interface is not None and field:
            key = "active" if field.group(1) == "Active" else "configured"
            names = _encodings(field.group(2).split(), problems, line)
            if key in interface:
                problems.add("The line that names this interface is missing.", line)
                interface = None
            elif names is not None:
                interface[key] = names
        elif interface is not None and statistic:
            interface.setdefault("statistics", {})[statistic.group(1)] = int(statistic.group(2))


def _read_json(text: str, value: dict[str, Any], problems: Problems) -> None:
    for item in _ethtool.json_interfaces(text, problems):
        interface: dict[str, Any] = {}
        if "ifname" in item:
            interface["netdev"] = str(item["ifname"])
        # A release of 2022 named the member as the text does.
        configured = item.get("config", item.get("support/config"))
        for key, words in (("configured", configured), ("active", item.get("active"))):
            names = _encodings(words, problems) if isinstance(words, list) else None
            if names is not None:
                interface[key] = names
        value["interfaces"].append(interface)


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool --show-fec``."""
    return _ethtool.read(text, "--show-fec", _read_text, _read_json)
