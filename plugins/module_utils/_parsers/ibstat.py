# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibstat`` of infiniband-diags in all its forms: full, one port (``ibstat DEV PORT``), ``-s``, ``-l`` and ``-p``.

Value::

    {"form": "full" | "port" | "short" | "list" | "guids" | "filtered" | "empty",
     "cas": [{"name", "node_type", "ca_type", "number_of_ports", "firmware", "hardware", "node_guid",
              "system_image_guid", "ports": [{"port", "state", "phys_state", "rate_gbps", "rate_text",
              "effective_speed_gbps", "base_lid", "lmc", "sm_lid", "capability_mask", "port_guid", "link_layer",
              "extra"}], "extra", "host"}],
     "port_guids": [...], "errors": [...], "debug_messages": [...], "failed_devices": [...], "partial": bool}

A CA without a name stands for port fields whose CA line is not in the text (``ibstat | grep``).  ``host`` is there only
where a parallel shell put it in front of the lines.  ``partial``: the tool or the recording stopped before the end.
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
    guid,
    integer,
    link_layer,
    number,
    phys_state,
    port_state,
    prompt_command,
    split_hosts,
    split_lines,
)

_NODE_TYPES = {
    "ca": "ca",
    "switch": "switch",
    "router": "router",
    "iwarp rnic": "rnic",
    "rnic": "rnic",
    "usnic": "usnic",
    "???": "unknown",
}
_HEADER = re.compile(r"^\s*(CA|Switch|Router|iWARP RNIC|RNIC|usNIC|\?\?\?)(:?) ['‘’]([^'‘’]+)['‘’]\s*$", re.IGNORECASE)  # noqa: RUF001
_PORT = re.compile(r"^\s*Port (\d+):\s*$", re.IGNORECASE)
_FIELD = re.compile(r"^\s*([A-Za-z?][\w ?./()-]{0,40}?):\s*(.*?)\s*$")
_MESSAGE = re.compile(r"^\s*(?:\S+: )?(ibpanic|ibwarn|ibdebug)\b", re.IGNORECASE)
_FAILED = re.compile(
    r"stat of IB device '([^']+)' failed|'([^']+)' IB device can't be found|'([^']+)' has no port number"
)
# ibstat -l prints bare names.  Kernel names carry a number; a word without one may be anything.
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]*\d[A-Za-z0-9_.-]*$")
_WORD = re.compile(r"^[A-Za-z][\w.-]*$")
_RATE = re.compile(r"^(\d+(?:\.\d+)?)(?:\s*Gb(?:ps|/s(?:ec)?))?(?:\s*\(([^()]*)\))?$")
_SPEED = re.compile(r"^(\d+(?:\.\d+)?)(?:\s*Gb/?p?s(?:ec)?)?$")
_MASK = re.compile(r"^0x[0-9a-fA-F]{1,8}$")

_CA_FIELDS = {
    "number of ports": "number_of_ports",
    "firmware version": "firmware",
    "hardware version": "hardware",
    "node guid": "node_guid",
    "system image guid": "system_image_guid",
}
_CA_TYPE = re.compile(r"^(?:ca|switch|router|iwarp rnic|rnic|usnic|\?\?\?) type$")
_PORT_FIELDS = {
    "state": "state",
    "physical state": "phys_state",
    "rate": "rate_gbps",
    "effective speed": "effective_speed_gbps",
    "base lid": "base_lid",
    "lmc": "lmc",
    "sm lid": "sm_lid",
    "capability mask": "capability_mask",
    "port guid": "port_guid",
    "link layer": "link_layer",
}
_ORDER = {key: n for n, key in enumerate(["ca_type", *_CA_FIELDS.values(), *_PORT_FIELDS.values()])}


def _text(text: str) -> str | None:
    return text or None


def _rate(text: str) -> float | None:
    match = _RATE.match(text)
    return number(match.group(1)) if match else None


def _speed(text: str) -> float | None:
    match = _SPEED.match(text)
    return number(match.group(1)) if match else None


def _count(text: str) -> int | None:
    value = integer(text)
    return value if value is not None and 0 <= value <= 0xFFFF_FFFF else None


def _mask(text: str) -> str | None:
    return f"0x{int(text, 16):08x}" if _MASK.match(text) else None


_READERS = {
    "ca_type": _text,
    "firmware": _text,
    "hardware": _text,
    "number_of_ports": _count,
    "node_guid": guid,
    "system_image_guid": guid,
    "state": port_state,
    "phys_state": phys_state,
    "rate_gbps": _rate,
    "effective_speed_gbps": _speed,
    "base_lid": _count,
    "lmc": _count,
    "sm_lid": _count,
    "capability_mask": _mask,
    "port_guid": guid,
    "link_layer": link_layer,
}


def _whole_without_newline(key: str, text: str) -> bool:
    """Does the value itself prove that nothing is missing behind it?"""
    if key in ("state", "phys_state", "link_layer", "node_guid", "system_image_guid", "port_guid"):
        return True  # closed words none of which begins another, or a fixed number of digits: its reader decides
    if key == "capability_mask":
        return len(text) == 10
    return key == "rate_gbps" and text.endswith(")")


def _field_key(label: str) -> tuple[str | None, bool]:
    """(key, belongs to the CA) of a label; (None, False) for a label this parser does not know."""
    label = label.lower()
    if _CA_TYPE.match(label):
        return "ca_type", True
    if label in _CA_FIELDS:
        return _CA_FIELDS[label], True
    return _PORT_FIELDS.get(label), False


def _native(text: str) -> bool:
    if _HEADER.match(text) or _PORT.match(text) or _NAME.match(text) or re.match(r"\s*ib(?:panic|warn|debug):", text):
        return True
    match = _FIELD.match(text)
    return bool(match and _field_key(match.group(1))[0])


class _Reader:
    """Reads the lines of one host."""

    def __init__(self, host: str | None, problems: Problems, value: dict[str, Any]) -> None:
        self.host = host
        self.problems = problems
        self.value = value
        self.ca: dict[str, Any] | None = None
        self.port: dict[str, Any] | None = None
        self.lost = False  # a header could not be read: what follows belongs to nobody until the next one
        self.headers = False
        # Not part of the value: what decides whether a record is whole.
        self.seen: dict[int, set[str]] = {}
        self.header_lines: dict[int, Line] = {}
        self.alone: set[int] = set()

    def read(self, lines: list[Line]) -> None:
        for line in lines:
            if line.blank:
                continue
            if line.damaged:
                self._damaged(line)
            elif not self._header(line) and not self._message(line):
                self._content(line)
        self._complete()

    def _open_ca(self, line: Line, name: str | None, node_type: str | None) -> None:
        self.ca = {"ports": [], "extra": {}}
        if name:
            self.ca["name"] = name
        if node_type:
            self.ca["node_type"] = node_type
        if self.host:
            self.ca["host"] = self.host
        self.value["cas"].append(self.ca)
        self.port, self.lost = None, False
        self.seen[id(self.ca)] = set()
        self.header_lines[id(self.ca)] = line

    def _open_port(self, line: Line, port_number: int | None) -> None:
        if self.ca is None:
            self._open_ca(line, None, None)
            self.value["filtered"] = True
        assert self.ca is not None
        self.port = {"extra": {}} if port_number is None else {"port": port_number, "extra": {}}
        self.ca["ports"].append(self.port)
        self.seen[id(self.port)] = set()
        self.header_lines[id(self.port)] = line

    def _header(self, line: Line) -> bool:
        match = _HEADER.match(line.text)
        if match:
            self._open_ca(line, match.group(3).replace("\\_", "_"), _NODE_TYPES[match.group(1).lower()])
            self.headers = True
            if match.group(2):
                self.alone.add(id(self.ca))
            return True
        match = _PORT.match(line.text)
        if match:
            if not self.lost:
                self._open_port(line, int(match.group(1)))
            return True
        return False

    def _message(self, line: Line) -> bool:
        match = _MESSAGE.match(line.text)
        if match or failure(line.text):
            warning = match and match.group(1).lower() in ("ibwarn", "ibdebug")
            self.value["debug_messages" if warning else "errors"].append(
                (f"{self.host}: " if self.host else "") + line.text.strip()
            )
            if not warning:
                self.problems.add("ibstat did not finish.", line)
            self.value["failed_devices"].extend(
                name for found in _FAILED.finditer(line.text) for name in found.groups() if name
            )
            return True
        if prompt_command(line.text) is not None:
            self.ca = self.port = None
            self.lost = False
            return True
        return False

    def _damaged(self, line: Line) -> None:
        self.problems.damaged(line)
        self.value["partial"] = True
        match = _FIELD.match(line.text)
        if not match or _field_key(match.group(1))[0] is None:
            # It may have been a header: the fields below must not be taken for those of the record above.
            self.ca = self.port = None
            self.lost = True

    def _content(self, line: Line) -> None:
        match = _FIELD.match(line.text)
        key, of_ca = _field_key(match.group(1)) if match else (None, False)
        if match and key:
            if not self.lost:
                self._field(line, key, of_ca, (match.group(2) or "").strip())
        elif match and line.indented and self.ca is not None:
            self._unknown_field(line, match.group(1), (match.group(2) or "").strip())
        elif self.ca is not None or not line.terminated:
            if not line.terminated:
                self.problems.cut(line)
                self.value["partial"] = True
            else:
                self.problems.add("This line is none of ibstat's.", line)

    def _unknown_field(self, line: Line, label: str, text: str) -> None:
        assert self.ca is not None
        if not line.terminated:
            self.problems.cut(line)
            self.value["partial"] = True
            return
        (self.port if self.port is not None else self.ca)["extra"].setdefault(label, text)

    def _field(self, line: Line, key: str, of_ca: bool, text: str) -> None:
        record = self._record(line, key, of_ca)
        if record is None:
            return
        self.seen[id(record)].add(key)
        text, remark, _rest = text.partition(" #")  # somebody's, behind what the tool printed
        text = text.strip()
        value = _READERS[key](text) if text else None
        if not line.terminated and not remark and (value is None or not _whole_without_newline(key, text)):
            self.problems.cut(line)
            self.value["partial"] = True
        elif value is not None:
            record[key] = value
            if key == "rate_gbps":
                record["rate_text"] = text
        elif key == "link_layer" and text.lower() in NO_LINK_LAYER:
            record["extra"]["Link layer"] = text
        elif text:
            self.problems.add("ibstat does not print such a value here.", line)

    def _record(self, line: Line, key: str, of_ca: bool) -> dict[str, Any] | None:
        """The CA or port to which a field belongs; None where that cannot be known."""
        if of_ca:
            if self.ca is None:
                self._open_ca(line, None, None)
                self.value["filtered"] = True
            elif self.port is not None or any(_ORDER[key] <= _ORDER[other] for other in self.seen[id(self.ca)]):
                if not self.headers:  # grep left no headers: the same label again is the next CA
                    self._open_ca(line, None, None)
                    return self.ca
                self.problems.add("The line that names this CA is missing.", line)
                self.ca = self.port = None
                self.lost = True
            return self.ca
        seen = self.seen[id(self.port)] if self.port is not None else set()
        if self.headers and self.ca is not None:
            if self.port is None or key in seen:
                self.problems.add("The line that numbers this port is missing.", line)
                self.port = None
                self.lost = True
        elif self.port is None or any(_ORDER[key] <= _ORDER[other] for other in seen):
            # grep left no headers, but the order in which ibstat prints: a step back is the next port.
            self._open_port(line, None)
        return self.port

    def _complete(self) -> None:
        """Report the records that end early; needs all records, because old releases lack some lines everywhere."""
        mine = [ca for ca in self.value["cas"] if id(ca) in self.seen]
        named = [ca for ca in mine if "name" in ca]
        any_ports = any(ca["ports"] for ca in named)
        layered = any("link_layer" in self.seen[id(port)] for ca in named for port in ca["ports"])
        for ca in named:
            self._complete_ca(ca, any_ports)
            for port in ca["ports"]:
                seen = self.seen[id(port)]
                missing = [
                    label
                    for label, key in _PORT_FIELDS.items()
                    if key not in seen and key != "effective_speed_gbps" and (layered or key != "link_layer")
                ]
                if not layered and "port_guid" not in seen:
                    missing.append("link layer")
                self._missing(port, missing, f"{ca['name']} port {port.get('port')}")

    def _complete_ca(self, ca: dict[str, Any], any_ports: bool) -> None:
        if id(ca) in self.alone:
            return
        seen = self.seen[id(ca)]
        missing = [label for label, key in {"ca type": "ca_type", **_CA_FIELDS}.items() if key not in seen]
        self._missing(ca, missing, ca["name"])
        wanted = ca.get("number_of_ports")
        if wanted is not None and len(ca["ports"]) < wanted and (any_ports or missing):
            self.value["partial"] = True
            self.problems.add(
                f"{ca['name']} has {wanted} ports, of which {len(ca['ports'])} are listed.", self.header_lines[id(ca)]
            )

    def _missing(self, record: dict[str, Any], labels: list[str], name: str) -> None:
        if not labels:
            return
        self.problems.add(f"{name}: no line for {', '.join(labels)}.", self.header_lines[id(record)])
        # ibstat prints in a fixed order: a record that has its last line was not cut, it just lacks one.
        if "link layer" in labels or "port guid" in labels or "system image guid" in labels:
            self.value["partial"] = True


def _read_list(host: str | None, lines: list[Line], problems: Problems, value: dict[str, Any]) -> None:
    """``ibstat -l`` and ``ibstat -p``: bare names or bare GUIDs."""
    for line in lines:
        text = line.text.strip()
        if not text or prompt_command(line.text) is not None or _MESSAGE.match(text) or failure(text):
            continue
        if text.startswith("0x") and " " not in text:
            port_guid = None if line.damaged else guid(text)
            if port_guid:
                value["port_guids"].append(port_guid)
            elif line.terminated and not line.damaged:
                problems.add("This is no GUID of 16 digits.", line)
        elif _NAME.match(text) and not line.damaged:
            if line.terminated:
                ca: dict[str, Any] = {"name": text, "ports": [], "extra": {}}
                value["cas"].append({**ca, "host": host} if host else ca)
            else:
                problems.cut(line)
                value["partial"] = True
        elif not line.terminated:
            problems.cut(line)
            value["partial"] = True
        elif _WORD.match(text) and value["cas"]:
            problems.add("This word may be the name of a device, or not.", line)


def _form(value: dict[str, Any], readers: list[_Reader]) -> str:
    if value.pop("filtered", False):
        return "filtered"
    if any(reader.headers for reader in readers):
        if any(reader.alone for reader in readers):
            return "port"
        return "full" if any(ca["ports"] for ca in value["cas"]) else "short"
    if value["port_guids"]:
        return "guids"
    return "list" if value["cas"] else "empty"


def parse(text: str) -> Parsed:
    """Read the output of ``ibstat``; stderr may be mixed in."""
    problems = Problems()
    value: dict[str, Any] = {
        "cas": [],
        "port_guids": [],
        "errors": [],
        "debug_messages": [],
        "failed_devices": [],
        "partial": False,
    }
    readers = []
    lines = split_lines(text)
    groups = split_hosts(lines, native=_native)
    for host, group in groups:
        reader = _Reader(host, problems, value)
        reader.read(group)
        readers.append(reader)
    if not value["cas"] and not any(reader.headers or reader.lost for reader in readers):
        for host, group in groups:
            _read_list(host, group, problems, value)
    value["form"] = _form(value, readers)
    if value["form"] == "filtered":
        problems.add(
            "Fields stand there without the CA or port they belong to: the output was filtered or cut in front."
        )
    elif value["form"] == "empty" and not value["errors"] and any(not line.blank for line in lines):
        problems.add("There is no output of ibstat in this text.", text=lines[0].text)
    if value["errors"]:
        value["partial"] = True
    return problems.result(value)
