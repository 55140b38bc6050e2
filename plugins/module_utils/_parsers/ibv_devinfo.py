# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibv_devinfo`` and ``ibv_devinfo -v`` of libibverbs.

Value::

    {"devices": [{"device", "transport": "infiniband" | "iwarp" | "usnic" | "unspecified", "firmware", "node_guid",
                  "sys_image_guid", "vendor_id", "vendor_part_id", "hardware", "board_id", "number_of_ports",
                  "ports": [{"port", "state", "phys_state", "max_mtu_bytes", "active_mtu_bytes", "sm_lid", "lid", "lmc",
                             "link_layer", "active_width", "active_speed_gbps", "effective_speed_gbps",
                             "gids": [{"index", "gid", "type"}], "extra"}],
                  "extra"}],
     "errors": [...], "warnings": [...], "partial": bool}

``transport`` is the verbs transport: RoCE says ``infiniband`` too, its ``link_layer`` is ``Ethernet``.
``ibv_devinfo -l`` and ``ibv_devices`` give the devices' names (and GUIDs) only.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    NO_LINK_LAYER,
    Line,
    Parsed,
    Problems,
    failure,
    guid,
    integer,
    link_layer,
    number,
    phys_state,
    port_state,
    prompt_command,
    split_lines,
)

_FIELD = re.compile(r"^\s*([A-Za-z][\w .]*?):(?:\s+(.*?))?\s*$")
_GID = re.compile(r"^\s*GID\[\s*(\d+)\]:\s+(\S+?)(?:,\s*(.*?))?\s*$")
_HOW_MANY = re.compile(r"^\s*\d+ HCAs? found:\s*$")
_TABLE = re.compile(r"^\s*device\s+node GUID\s*$")
_NAME = re.compile(r"^\s+([A-Za-z][\w.-]*)(?:\s+([0-9a-fA-F]{16}))?\s*$")
_MTU = re.compile(r"^(\d+) \(\d+\)$")
_WIDTH = re.compile(r"^(\d+)X \(\d+\)$")
_SPEED = re.compile(r"^(\d+(?:\.\d+)?) Gb(?:ps|/s(?:ec)?)(?: \(\d+\))?$")
_TRANSPORT = re.compile(r"^(\S+)(?: UDP)? \(-?\d+\)$")
_TRANSPORTS = {"infiniband": "infiniband", "iwarp": "iwarp", "usnic": "usnic", "unspecified": "unspecified"}
_GID_TYPES = {"RoCE v2": "RoCE v2", "RoCE v1": "RoCE v1", "IB/RoCE v1": "RoCE v1", "IB": "IB"}


def _group(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.match(text)
    return match.group(1) if match else None


def _mtu(text: str) -> int | None:
    return integer(_group(_MTU, text) or "")


def _width(text: str) -> int | None:
    return integer(_group(_WIDTH, text) or "")


def _speed(text: str) -> float | None:
    return number(_group(_SPEED, text) or "")


def _transport(text: str) -> str | None:
    return _TRANSPORTS.get((_group(_TRANSPORT, text) or "").lower())


def _text(text: str) -> str | None:
    return text or None


_DEVICE_FIELDS = {
    "transport": ("transport", _transport),
    "fw_ver": ("firmware", _text),
    "node_guid": ("node_guid", guid),
    "sys_image_guid": ("sys_image_guid", guid),
    "vendor_id": ("vendor_id", _text),
    "vendor_part_id": ("vendor_part_id", integer),
    "hw_ver": ("hardware", _text),
    "board_id": ("board_id", _text),
    "phys_port_cnt": ("number_of_ports", integer),
}
_PORT_FIELDS = {
    "state": ("state", port_state),
    "phys_state": ("phys_state", phys_state),
    "max_mtu": ("max_mtu_bytes", _mtu),
    "active_mtu": ("active_mtu_bytes", _mtu),
    "sm_lid": ("sm_lid", integer),
    "port_lid": ("lid", integer),
    "port_lmc": ("lmc", integer),
    "link_layer": ("link_layer", link_layer),
    "active_width": ("active_width", _width),
    "active_speed": ("active_speed_gbps", _speed),
    "effective_speed": ("effective_speed_gbps", _speed),
}
_WHOLE = ("link_layer", "node_guid", "sys_image_guid")


def _whole(label: str, text: str) -> bool:
    """Does the last value of a cut text prove that nothing is missing behind it?"""
    return label in _WHOLE or (label not in ("board_id", "fw_ver") and bool(re.search(r" \(\d+\)$", text)))


def _gid(text: str) -> str | None:
    try:
        return ipaddress.IPv6Address(text).exploded
    except ValueError:
        return None


class _Reader:
    def __init__(self) -> None:
        self.problems = Problems()
        self.value: dict[str, Any] = {"devices": [], "errors": [], "warnings": [], "partial": False}
        self.device: dict[str, Any] | None = None
        self.port: dict[str, Any] | None = None
        self.seen: set[str] = set()
        self.listing = False

    def read(self, line: Line) -> None:
        if line.blank or prompt_command(line.text) is not None:
            return
        if line.text.startswith("libibverbs: Warning"):
            self.value["warnings"].append(line.text.strip())
            return
        if line.text.startswith(("No IB devices", "Failed to ")) or failure(line.text):
            self.value["errors"].append(line.text.strip())
            self.problems.add("ibv_devinfo did not finish.", line)
            return
        match = _FIELD.match(line.text)
        gid = _GID.match(line.text)
        if line.terminated and (_HOW_MANY.match(line.text) or _TABLE.match(line.text)):
            self.listing = True
        elif self.listing and not match:
            self._listed(line)
        elif match and match.group(1) == "hca_id":
            self._device(line, (match.group(2) or "").strip())
        elif match and match.group(1) == "port":
            self._port(line, (match.group(2) or "").strip())
        elif self.device is None:
            if not line.terminated:
                self.problems.cut(line)
        elif gid:
            self._add_gid(line, gid)
        elif match:
            self._field(line, match.group(1), (match.group(2) or "").strip())
        elif not line.terminated:
            self.problems.cut(line)
        # What remains are the names of capability bits that -v lists below their mask, which says the same.

    def damaged(self, line: Line) -> None:
        self.problems.damaged(line)
        match = _FIELD.match(line.text)
        label = match.group(1) if match else ""
        if label not in _PORT_FIELDS and not line.text.lstrip().startswith("GID["):
            self.port = None
            if label not in _DEVICE_FIELDS:
                self.device = None  # it may have named the device or the port

    def _listed(self, line: Line) -> None:
        match = _NAME.match(line.text)
        if match and (line.terminated or match.group(2)):
            device: dict[str, Any] = {"device": match.group(1), "ports": [], "extra": {}}
            if match.group(2):
                device["node_guid"] = match.group(2).lower()
            self.value["devices"].append(device)
        elif not line.terminated:
            self.problems.cut(line)

    def _device(self, line: Line, name: str) -> None:
        self.device = self.port = None
        if not line.terminated:
            self.problems.cut(line)
        elif name:
            self.device = {"device": name, "ports": [], "extra": {}}
            self.value["devices"].append(self.device)
        self.seen = set()

    def _port(self, line: Line, name: str) -> None:
        self.port = None
        if not line.terminated:
            self.problems.cut(line)
        elif self.device is not None and name.isdigit():
            self.port = {"port": int(name), "extra": {}}
            self.device["ports"].append(self.port)
        self.seen = {"port"}

    def _add_gid(self, line: Line, match: re.Match[str]) -> None:
        gid = _gid(match.group(2))
        kind = _GID_TYPES.get(match.group(3) or "")
        if not line.terminated and not kind:
            self.problems.cut(line)
        elif self.port is not None:
            if gid is None or (match.group(3) and kind is None):
                self.problems.add("This is no entry of a GID table.", line)
                return
            entry: dict[str, Any] = {"index": int(match.group(1)), "gid": gid}
            if kind:
                entry["type"] = kind
            self.port.setdefault("gids", []).append(entry)

    def _field(self, line: Line, label: str, text: str) -> None:
        of_port = label in _PORT_FIELDS
        record = self.port if of_port or (self.port is not None and label not in _DEVICE_FIELDS) else self.device
        if record is None:
            return
        if label in self.seen or (label in _DEVICE_FIELDS and self.port is not None):
            self.problems.add("The line that names this device or port is missing.", line)
            self.device = self.port = None
            return
        self.seen.add(label)
        if not line.terminated and not _whole(label, text):
            self.problems.cut(line)
            return
        known = _PORT_FIELDS.get(label) or _DEVICE_FIELDS.get(label)
        if known is None:
            record["extra"][label] = text
            return
        value = known[1](text)
        if value is not None:
            record[known[0]] = value
        elif label == "link_layer" and text.lower() in NO_LINK_LAYER:
            record["extra"][label] = text
        elif not line.terminated:
            self.problems.cut(line)
        elif text:
            self.problems.add(f"'{text}' is no value of {label}.", line)


def parse(text: str) -> Parsed:
    """Read the output of ``ibv_devinfo`` with or without ``-v``."""
    reader = _Reader()
    for line in split_lines(text):
        if line.damaged:
            reader.damaged(line)
        else:
            reader.read(line)
    for device in reader.value["devices"]:
        wanted = device.get("number_of_ports")
        if reader.listing:
            continue
        if wanted is None or wanted > len(device["ports"]):
            reader.problems.add(
                f"{device['device']}: {len(device['ports'])} of {'?' if wanted is None else wanted} ports are listed."
            )
    reader.value["partial"] = len(reader.problems) > 0
    if not reader.value["devices"] and not len(reader.problems) and text and text.strip():
        reader.problems.add("There is no output of ibv_devinfo in this text.")
    return reader.problems.result(reader.value)
