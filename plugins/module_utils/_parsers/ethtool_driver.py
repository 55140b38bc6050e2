# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool -i``: driver and firmware of an interface.

Value::

    {"driver", "version", "firmware", "psid", "expansion_rom", "bus_info", "pci", "supports": {name: bool}, "extra",
     "errors": [...]}

Mellanox drivers put the board's PSID in parentheses behind the firmware's version.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    believable,
    failure,
    first_output,
    pci_address,
)

_FIELD = re.compile(r"^([a-z][a-z-]*):(?:\s+(.*?))?\s*$")
_FIRMWARE = re.compile(r"^(\S+) \(([A-Z]{2,3}_\w+)\)$")
_ONCE = re.compile(r"^(driver):")
_KEYS = {"driver": "driver", "version": "version", "expansion-rom-version": "expansion_rom"}
_ERROR = re.compile(r"^(?:Cannot get driver information|netlink error|ethtool: )")


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool -i``."""
    problems = Problems()
    value: dict[str, Any] = {"supports": {}, "extra": {}, "errors": []}
    for line in first_output(believable(text, problems), _ONCE, problems):
        match = _FIELD.match(line.text)
        if _ERROR.match(line.text) or failure(line.text):
            value["errors"].append(line.text.strip())
            problems.add("ethtool could not read the driver.", line)
            continue
        if not match:
            if not line.terminated:
                problems.cut(line)
            continue
        label, said = match.group(1), (match.group(2) or "").strip()
        firmware = _FIRMWARE.match(said)
        if not line.terminated and not (
            (label == "firmware-version" and firmware)
            or (label == "bus-info" and pci_address(said))
            or (label.startswith("supports-") and said in ("yes", "no"))
        ):
            problems.cut(line)
        elif not said:
            continue
        elif label in _KEYS:
            value[_KEYS[label]] = said
        elif label == "firmware-version":
            value["firmware"] = firmware.group(1) if firmware else said
            if firmware:
                value["psid"] = firmware.group(2)
        elif label == "bus-info":
            value["bus_info"] = said
            address = pci_address(said)
            if address:
                value["pci"] = address
        elif label.startswith("supports-") and said in ("yes", "no"):
            value["supports"][label[len("supports-") :].replace("-", "_")] = said == "yes"
        elif "driver" in value:  # a banner's "word: text" stands in front of the first field
            value["extra"][label] = said
    if "driver" not in value and not len(problems) and text and text.strip():
        problems.add("There is no output of ethtool -i in this text.")
    return problems.result(value)
