# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool -k``: offloads, as text or as ``--json``.

Value::

    {"interfaces": [{"netdev", "features": {"rx-checksumming": {"active": bool, "fixed": bool, "requested": bool}}}],
     "errors": [...]}
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import _ethtool
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    failure,
    prompt_command,
    split_lines,
)

_HEADER = re.compile(r"^Features for ([^\s:]+):\s*$")
_FEATURE = re.compile(r"^\s*([a-z][\w-]*): (on|off)(?: \[(fixed|not requested|requested on|requested off)\])?\s*$")
_ERROR = re.compile(r"^(?:Cannot get|netlink error)")


def _feature(active: bool, remark: str | None) -> dict[str, bool]:
    feature = {"active": active, "fixed": remark == "fixed"}
    if remark != "not requested":  # after a change: another feature brought it along
        feature["requested"] = {"requested on": True, "requested off": False}.get(remark or "", active)
    return feature


def _read_text(text: str, value: dict[str, Any], problems: Problems) -> None:
    interface: dict[str, Any] | None = None
    for line in split_lines(text):
        header = None if line.damaged else _HEADER.match(line.text)
        match = None if line.damaged else _FEATURE.match(line.text)
        if line.damaged:
            problems.damaged(line)
            if not re.match(r"^\s*[a-z][\w-]*: ", line.text):
                interface = None  # it may have named the next interface
        elif header:
            interface = {"netdev": header.group(1), "features": {}}
            value["interfaces"].append(interface)
        elif line.blank or prompt_command(line.text) is not None:
            continue
        elif _ERROR.match(line.text) or failure(line.text):
            value["errors"].append(line.text.strip())
            problems.add("ethtool could not read the features.", line)
        elif not line.terminated and not (match and match.group(3)):
            problems.cut(line)
        elif match and interface is not None:
            if match.group(1) in interface["features"]:
                problems.add("The line that names this interface is missing.", line)
                interface = None
                continue
            interface["features"][match.group(1)] = _feature(match.group(2) == "on", match.group(3))
        elif interface is not None:
            problems.add("This is no feature.", line)


def _read_json(text: str, value: dict[str, Any], problems: Problems) -> None:
    for item in _ethtool.json_interfaces(text, problems):
        interface: dict[str, Any] = {"features": {}}
        for name, member in item.items():
            if name == "ifname":
                interface["netdev"] = str(member)
            elif isinstance(member, dict) and isinstance(member.get("active"), bool):
                feature = {
                    key: member[key] for key in ("active", "fixed", "requested") if isinstance(member.get(key), bool)
                }
                interface["features"][name] = feature
        value["interfaces"].append(interface)


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool -k``."""
    return _ethtool.read(text, "-k", _read_text, _read_json)
