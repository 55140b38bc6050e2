# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``sysctl -a`` (and ``sysctl KEY …``), and files of ``sysctl.d``.

Value::

    {"values": {key: text}, "errors": [{"key", "kind": "permission_denied"|"unknown_key"|"invalid", "text"}]}

Keys have dots; a value of several numbers keeps one blank between them, whatever stood there.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_KEY = re.compile(r"^-?[a-z0-9_]+(?:[./][A-Za-z0-9_*@:-]+)+$")
_ERROR = re.compile(
    r"^\s*sysctl: (?:(permission denied) on key '?([^',]+)'?|(cannot stat) /proc/sys/([^:]+):|(reading|setting)"
    r" key \"([^\"]+)\":)"
)
_KINDS = {"permission denied": "permission_denied", "cannot stat": "unknown_key"}


def parse(text: str) -> Parsed:
    """Read the output of ``sysctl`` or a ``sysctl.d`` file; of several lines with one key the last counts."""
    problems = Problems()
    values: dict[str, str] = {}
    errors: list[dict[str, Any]] = []
    lines = read_lines(text, problems, labels=("sysctl",), prompts=False)
    for line in lines:
        stripped = line.text.strip()
        if not stripped or stripped.startswith(("#", ";")):
            continue
        error = _ERROR.match(line.text)
        key, equals, text_value = line.text.partition("=")
        key = key.strip()
        if error:
            if line.terminated:
                errors.append(_error(error, stripped))
            else:
                problems.cut(line)
        elif not line.terminated:
            problems.cut(line)
        elif equals and _KEY.match(key):
            values[dotted(key.lstrip("-"))] = " ".join(text_value.split())
        elif equals and re.match(r"^[\w.*/@:-]+$", key) and "." in key:
            problems.add("This key of sysctl is not readable.", line)
    if not values and not errors and any(not line.blank for line in lines):
        problems.add("There is no output of sysctl in this text.", text=lines[0].text)
    return problems.result({"values": values, "errors": errors})


def dotted(key: str) -> str:
    """``net/ipv4/conf/eth0.5/arp_ignore`` → dots; sysctl(8) takes the first separator as the separator."""
    first = re.search(r"[./]", key)
    if first is None or first.group(0) == ".":
        return key
    return key.translate(str.maketrans("/.", "./"))


def _error(match: re.Match[str], text: str) -> dict[str, Any]:
    denied, denied_key, stat, stat_key, _verb, other_key = match.groups()
    if denied:
        return {"key": denied_key, "kind": _KINDS[denied], "text": text}
    if stat:
        return {"key": stat_key.replace("/", "."), "kind": _KINDS[stat], "text": text}
    return {"key": other_key, "kind": "invalid", "text": text}
