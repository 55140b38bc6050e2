# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``mst status`` and ``mst status -v`` of MFT.

Value::

    {"modules": [{"name", "loaded": bool}],
     "devices": [{"device_type", "revision", "mst", "pci", "rdma": [...], "netdevs": [...], "numa_node": int | None,
                  "description", "extra"}],
     "errors": [...]}

``numa_node`` is None where the firmware tells none (-1).  Without the driver's modules the tool knows nothing of a
device but its ``pci``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    believable,
    failure,
    pci_address,
)

_MODULE = re.compile(r"^\s+(MST .*?module) (is not loaded|loaded)\s*$")
_DEVICE = re.compile(r"^(/dev/mst/\S+)\s+- (.*?)\s*$")
_PLACE = re.compile(r"^\s+domain:bus:dev\.fn=([0-9a-fA-F:.]+)\s")
_ROW = re.compile(r"^\s*(?P<type>[A-Z][\w-]*)\(rev:(?P<revision>\w+)\)\s+(?P<rest>\S.*)$")
_ADDRESS = re.compile(r"^\s*((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s*$")
_NO_MST = re.compile(r"^(?:NA|N/A|-)$")


def _row(line: Line, match: re.Match[str], problems: Problems) -> dict[str, Any]:
    device: dict[str, Any] = {"device_type": match.group("type"), "revision": match.group("revision"), "extra": {}}
    words = match.group("rest").split()
    if not line.terminated:
        problems.cut(line)
        if not line.text[-1:].isspace() and not pci_address(words[-1]):
            words.pop()
    for word in words:
        if word.startswith("/dev/mst/"):
            device["mst"] = word
        elif pci_address(word):
            device["pci"] = pci_address(word)
        elif word.startswith("net-"):
            device["netdevs"] = [name[4:] if name.startswith("net-") else name for name in word.split(",") if name]
        elif re.match(r"^-?\d+$", word):
            device["numa_node"] = int(word) if int(word) >= 0 else None
        elif not _NO_MST.match(word):
            device.setdefault("rdma", []).extend(name for name in word.split(",") if name)
    return device


def parse(text: str) -> Parsed:
    """Read the output of ``mst status`` with or without ``-v``."""
    problems = Problems()
    value: dict[str, Any] = {"modules": [], "devices": [], "errors": []}
    last: dict[str, Any] | None = None
    said = False
    for line in believable(text, problems):
        module = _MODULE.match(line.text)
        device = _DEVICE.match(line.text)
        place = _PLACE.match(line.text)
        row = _ROW.match(line.text)
        bare = _ADDRESS.match(line.text)
        said = said or line.text.startswith(("MST modules", "MST devices", "PCI devices", "PCI Devices", "DEVICE_TYPE"))
        if failure(line.text) or line.text.startswith("-E-"):
            value["errors"].append(line.text.strip())
            problems.add("mst did not answer.", line)
        elif row:
            value["devices"].append(_row(line, row, problems))
        elif bare:  # the function ends it
            value["devices"].append({"pci": pci_address(bare.group(1)), "extra": {}})
        elif not line.terminated:
            problems.cut(line)
        elif module:
            value["modules"].append({"name": module.group(1), "loaded": module.group(2) == "loaded"})
        elif device:
            last = {"mst": device.group(1), "description": device.group(2), "extra": {}}
            value["devices"].append(last)
        elif place and last is not None:
            address = pci_address(place.group(1))
            if address and "pci" not in last:
                last["pci"] = address
        elif not line.indented:
            last = None
    if problems.any_damaged():
        # A damaged line may have named a device whose place would then be taken for that of the one above.
        for entry in value["devices"]:
            if "description" in entry:
                entry.pop("pci", None)
    if not value["devices"] and not value["modules"] and not said and not len(problems) and text and text.strip():
        problems.add("There is no output of mst status in this text.")
    return problems.result(value)
