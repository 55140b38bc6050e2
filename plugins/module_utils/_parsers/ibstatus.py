# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibstatus``: one block per port, read by a shell script from sysfs.

Value::

    {"ports": [{"device", "port", "default_gid", "base_lid", "sm_lid", "state", "phys_state", "rate_gbps", "rate_text",
                "width", "speed", "link_layer", "extra"}],
     "errors": [...], "partial": bool}

The speed's name follows the rate: an Ethernet port of 100 Gb/s is called EDR.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    NO_LINK_LAYER,
    Line,
    Parsed,
    Problems,
    failure,
    integer,
    link_layer,
    number,
    phys_state,
    port_state,
    prompt_command,
    split_lines,
)

_HEADER = re.compile(r"^\s*Infiniband device '([^']+)' port (\d+) status:\s*$")
_FIELD = re.compile(r"^\s+([a-z][a-z _]*):(?:\s+(.*?))?\s*$")
_GID = re.compile(r"^[0-9a-f]{4}(?::[0-9a-f]{4}){7}$")
_RATE = re.compile(r"^(\d+(?:\.\d+)?) Gb/sec(?: \((\d+)X\s*([A-Z0-9]+)?\))?$")


def _read(port: dict[str, Any], label: str, text: str) -> bool | None:
    """Put a field into the port; False for a value that the tool does not print, None for an unknown label."""
    value: Any
    if label in ("base lid", "sm lid"):
        value = integer(text)
    elif label == "state":
        value = port_state(text) if re.match(r"^\d+: ", text) else None
    elif label == "phys state":
        label = "phys_state"
        value = phys_state(text) if re.match(r"^\d+: ", text) else None
    elif label == "link_layer":
        if text.lower() in NO_LINK_LAYER:
            port["extra"][label] = text
            return True
        value = link_layer(text)
    elif label == "default gid":
        if text == "unknown":
            return True
        value = text if _GID.match(text) else None
    elif label == "rate":
        match = _RATE.match(text)
        if not match:
            return False
        port["rate_gbps"], port["rate_text"] = number(match.group(1)), text
        if match.group(2):
            port["width"] = int(match.group(2))
        if match.group(3):
            port["speed"] = match.group(3)
        return True
    else:
        return None
    if value is None:
        return False
    port[label.replace(" ", "_")] = value
    return True


def _whole(label: str, text: str) -> bool:
    """Does the last value of a cut text prove that nothing is missing? The number before a state fixes its word."""
    if label == "rate":
        return text.endswith(")")
    return label in ("state", "phys state", "link_layer") or (label == "default gid" and bool(_GID.match(text)))


def _field(line: Line, port: dict[str, Any], seen: set[str], problems: Problems) -> bool:
    """Read one field; False where it shows that the header of another port is missing."""
    match = _FIELD.match(line.text)
    if not match:
        problems.add("ibstatus prints no such line.", line)
        return True
    label, text = match.group(1), (match.group(2) or "").strip()
    if label in seen:
        problems.add("The line that names this port is missing.", line)
        return False
    seen.add(label)
    if not line.terminated and not _whole(label, text):
        problems.cut(line)
        return True
    done = _read(port, label, text)
    if done is None:
        port["extra"][label] = text
    elif not done and not line.terminated:
        problems.cut(line)
    elif not done and text:
        problems.add(f"'{text}' is no value of {label}.", line)
    return True


def parse(text: str) -> Parsed:
    """Read the output of ``ibstatus``."""
    problems = Problems()
    value: dict[str, Any] = {"ports": [], "errors": [], "partial": False}
    port: dict[str, Any] | None = None
    seen: set[str] = set()
    for line in split_lines(text):
        header = None if line.damaged else _HEADER.match(line.text)
        field = _FIELD.match(line.text)
        if line.damaged:
            problems.damaged(line)
            if not field or field.group(1) not in ("base lid", "sm lid", "rate", "state", "phys state", "link_layer"):
                port = None  # it may have been a header
        elif header:
            port, seen = {"device": header.group(1), "port": int(header.group(2)), "extra": {}}, set()
            value["ports"].append(port)
        elif line.blank or prompt_command(line.text) is not None:
            port = None
        elif line.text.startswith("Fatal error:") or failure(line.text):
            value["errors"].append(" ".join(line.text.split()))
            problems.add("ibstatus did not finish.", line)
        elif port is not None:
            if not _field(line, port, seen, problems):
                port = None
        elif not line.terminated:
            problems.cut(line)
    for port in value["ports"]:
        if "link_layer" not in port and "state" not in port:
            problems.add(f"The block of {port['device']} port {port['port']} ends early.")
    value["partial"] = len(problems) > 0
    if not value["ports"] and not len(problems) and text and text.strip():
        problems.add("There is no output of ibstatus in this text.")
    return problems.result(value)
