# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``lspci`` in all its forms: plain, ``-n``, ``-nn``, ``-k``, ``-v`` to ``-vvv``, ``-D``, and what ``grep`` leaves
of it.

Value::

    {"devices": [{"pci", "class_name", "class": "0302", "description", "vendor": "10de", "device": "2330", "revision",
                  "subsystem", "subsystem_vendor", "subsystem_device", "driver", "kernel_modules": [...], "numa_node",
                  "iommu_group", "physical_slot", "port_type": "Root Port", "gone": true,
                  "bus": {"primary", "secondary", "subordinate"},
                  "link": {"speed_gts", "width", "max_speed_gts", "max_width", "speed_downgraded": bool,
                           "width_downgraded": bool},
                  "max_payload_bytes", "max_payload_supported_bytes", "max_read_request_bytes", "relaxed_ordering":
                   bool,
                  "acs": {"capable": true, "capabilities": ["SrcValid", ...], "control": ["SrcValid", ...]},
                  "aer": {"uncorrectable": [...], "correctable": [...]}, "errors_detected": ["CorrErr"],
                  "vpd": {"product_name", "part_number", "serial", "keywords": {}}, "slot_name"}],
     "unattributed": [{"acs": {...}, ...}]}     # lines whose device is not in the text

``acs.control`` names what is switched on; a device whose ``ACSCtl`` is not in the text has no ``control``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    pci_address,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_ADDRESS = r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_DEVICE = re.compile(rf"^{_ADDRESS} (\S[^:\[]*?)(?: \[([0-9a-fA-F]{{4}})\])?: (.*)$")
_NUMERIC = re.compile(rf"^{_ADDRESS} (?:Class )?([0-9a-fA-F]{{4}}): ([0-9a-fA-F]{{4}}):([0-9a-fA-F]{{4}})(?: (.*))?$")
_IDS = re.compile(r"\s*\[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]")
_SUFFIX = re.compile(r"\s*\((rev|prog-if) ([0-9a-fA-F]{2})(?: \[([^\]]*)\])?\)")
_LINK = re.compile(r"\bSpeed (\d+(?:\.\d+)?)GT/s(?: \((ok|downgraded|overdriven|strange)\))?")
_WIDTH = re.compile(r"\bWidth x(\d+)(?: \((ok|downgraded|overdriven|strange)\))?(?=[,\s]|$)")
_FLAG = re.compile(r"([A-Za-z][A-Za-z0-9_]*)([+-])(?=[\s,]|$)")
_BUS = re.compile(r"primary=([0-9a-fA-F]{2}), secondary=([0-9a-fA-F]{2}), subordinate=([0-9a-fA-F]{2}),")
_PAYLOAD = re.compile(r"MaxPayload (\d+) bytes")
_READ_REQUEST = re.compile(r"MaxReadReq (\d+) bytes")
_PORT_TYPE = re.compile(r"\] Express (?:\(v\d+\) )?([A-Za-z][^,(]*?)(?: \(Slot[+-]\))?(?:, (?:MSI|IntMsgNum)\b|\s*$)")
_VPD_ITEM = re.compile(r"^\s+\[(\w\w)\] ([^:]+): ?(.*?)\s*$")
_OWN = re.compile(rf"^(?:{_ADDRESS} |\s*(?:ACS|Lnk|Dev|UE|CE)[A-Z][A-Za-z0-9]+:)")
_SIGNAL_ACS = frozenset({"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"})


def parse(text: str) -> Parsed:
    """Read the output of ``lspci``."""
    problems = Problems()
    lines = read_lines(text, problems, barriers=True, own=_OWN)
    reader = _Reader(problems)
    for line in lines:
        if not line.blank:
            reader.read(line)
    value = reader.result()
    if not value["devices"] and not value["unattributed"]:
        problems.add("There is no output of lspci in this text.", text=lines[0].text if lines else "")
    return problems.result(value)


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.devices: list[dict[str, Any]] = []
        self.loose: list[dict[str, Any]] = []
        self.current: dict[str, Any] | None = None
        self.hidden = False  # the current lines belong to a device whose own line could not be read
        self.block = ""

    def read(self, line: Line) -> None:
        if line.damaged:
            if not line.text.startswith(("\t", " ")):
                self.current, self.hidden = None, True
            self.block = ""
            return
        numeric = _NUMERIC.match(line.text)
        device = None if numeric else _DEVICE.match(line.text)
        if numeric or device:
            self._device(numeric, device, line)
        elif not line.terminated:
            # Every field of the verbose form ends with its newline.
            self.problems.cut(line)
        elif line.indented or re.match(r"^(?:ACSCtl|ACSCap|LnkSta|LnkCap|DevCtl|LnkCtl):", line.text):
            self._detail(line)
        elif re.match(rf"^{_ADDRESS}\b", line.text):
            self.problems.add("The line of this device is not readable.", line)
            self.current, self.hidden = None, True

    def _device(self, numeric: re.Match[str] | None, named: re.Match[str] | None, line: Line) -> None:
        match = numeric or named
        assert match is not None
        device: dict[str, Any] = {"pci": pci_address(match.group(1))}
        self.current, self.hidden, self.block = device, False, ""
        self.devices.append(device)
        if numeric:
            device["class"] = numeric.group(2).lower()
            device["vendor"], device["device"] = numeric.group(3).lower(), numeric.group(4).lower()
            rest = numeric.group(5) or ""
            if not line.terminated:
                self.problems.cut(line)
        else:
            assert named is not None
            device["class_name"] = named.group(2)
            if named.group(3):
                device["class"] = named.group(3).lower()
            rest = named.group(4)
        suffixes = {name: number for name, number, _text in _SUFFIX.findall(rest)}
        if "rev" in suffixes:
            device["revision"] = suffixes["rev"].lower()
            if suffixes["rev"].lower() == "ff":
                # Reads of all ones: the device does not answer any more.
                device["gone"] = True
        if numeric:
            return
        first_suffix = _SUFFIX.search(rest)
        description = rest[: first_suffix.start()] if first_suffix else rest
        # Names have brackets too, so the identifiers are the last pair.
        ids = next(reversed(list(_IDS.finditer(description))), None)
        if ids:
            device["vendor"], device["device"] = ids.group(1).lower(), ids.group(2).lower()
            description = description[: ids.start()]
        if line.terminated or suffixes:
            device["description"] = description.strip()
        else:
            if ids:
                device["description"] = description.strip()
            self.problems.cut(line)  # at least the revision may be missing

    def _target(self) -> dict[str, Any] | None:
        if self.current is not None:
            return self.current
        if self.hidden:
            return None
        if not self.loose:
            self.problems.add("The text holds lines of devices that it does not name.")
            self.loose.append({})
        return self.loose[-1]

    def _detail(self, line: Line) -> None:
        text = line.text.strip()
        label, _colon, rest = text.partition(":")
        rest = rest.strip()
        if label.startswith("Capabilities"):
            self.block = rest
        elif label in ("DevCap", "DevCtl", "DevSta", "LnkCap", "LnkCtl", "LnkSta", "UESta", "CESta") or (
            label in ("DevCap2", "DevCtl2", "LnkCap2", "LnkCtl2", "LnkSta2", "SltCap", "SltCtl", "SltSta", "RootCap")
        ):
            self.block = label
        reader = self._READERS.get(label)
        device = self._target()
        if device is None:
            return
        if self.hidden and label in ("ACSCtl", "ACSCap"):
            return
        if reader:
            reader(self, device, rest, line)
        elif label.startswith("Capabilities"):
            self._capability(device, rest)
        elif text.startswith("!!!"):
            device["gone"] = True
        elif self.block.startswith(("DevCap", "DevCtl")):
            self._payload(device, text)
        elif _VPD_ITEM.match(line.text):
            self._vpd(device, line)
        elif label == "DeviceName":
            device["slot_name"] = rest

    def _capability(self, device: dict[str, Any], rest: str) -> None:
        match = _PORT_TYPE.search(rest)
        if match:
            device["port_type"] = match.group(1).strip()
        if "Access Control Services" in rest:
            device.setdefault("acs", {})["capable"] = True

    def _subsystem(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        if "subsystem" in device:
            return
        ids = _IDS.search(rest)
        if ids:
            device["subsystem_vendor"], device["subsystem_device"] = ids.group(1).lower(), ids.group(2).lower()
        device["subsystem"] = _IDS.sub("", rest).strip()

    def _numa(self, device: dict[str, Any], rest: str, line: Line) -> None:
        self._integer(device, "numa_node", rest, line)

    def _iommu(self, device: dict[str, Any], rest: str, line: Line) -> None:
        self._integer(device, "iommu_group", rest, line)

    def _integer(self, device: dict[str, Any], key: str, rest: str, line: Line) -> None:
        if re.match(r"^-?\d+$", rest):
            device[key] = int(rest)
        else:
            self.problems.add(f"The {key} is no number.", line)

    def _slot(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        device["physical_slot"] = rest

    def _driver(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        device["driver"] = rest

    def _modules(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        device["kernel_modules"] = [name.strip() for name in rest.split(",") if name.strip()]

    def _bus(self, device: dict[str, Any], rest: str, line: Line) -> None:
        match = _BUS.search(rest)
        if match:
            device["bus"] = dict(
                zip(("primary", "secondary", "subordinate"), (part.lower() for part in match.groups()))
            )
        else:
            self.problems.add("The bus numbers of the bridge are not readable.", line)

    def _link_capability(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        self._link(device, rest, "max_speed_gts", "max_width")

    def _link_status(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        self._link(device, rest, "speed_gts", "width")

    def _link(self, device: dict[str, Any], rest: str, speed_key: str, width_key: str) -> None:
        link = device.setdefault("link", {})
        for pattern, key, kind, flag in (
            (_LINK, speed_key, float, "speed_downgraded"),
            (_WIDTH, width_key, int, "width_downgraded"),
        ):
            match = pattern.search(rest)
            if match:
                link[key] = kind(match.group(1))
                if match.group(2):
                    link[flag] = match.group(2) == "downgraded"
        # Newer pciutils say nothing where the link runs as it can, and a recording without LnkSta's remark says
        # nothing.
        for key, most, flag in (
            ("speed_gts", "max_speed_gts", "speed_downgraded"),
            ("width", "max_width", "width_downgraded"),
        ):
            if key in link and most in link and flag not in link:
                link[flag] = link[key] < link[most]

    @staticmethod
    def _flags(rest: str) -> dict[str, bool]:
        return {name: sign == "+" for name, sign in _FLAG.findall(rest)}

    def _acs_capability(self, device: dict[str, Any], rest: str, line: Line) -> None:
        self._acs(device, rest, line, "capabilities")

    def _acs_control(self, device: dict[str, Any], rest: str, line: Line) -> None:
        self._acs(device, rest, line, "control")

    def _acs(self, device: dict[str, Any], rest: str, line: Line, key: str) -> None:
        flags = self._flags(rest)
        if not set(flags) >= _SIGNAL_ACS:
            self.problems.add("The ACS flags are not all there, so none is read.", line)
            return
        if device is (self.loose[-1] if self.loose else None) and key in device.get("acs", {}):
            # A filtered listing: the next device begins.
            device = {}
            self.loose.append(device)
        acs = device.setdefault("acs", {})
        acs["capable"] = True
        acs[key] = [name for name, on in flags.items() if on]

    def _device_control(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        self._payload(device, rest)

    def _payload(self, device: dict[str, Any], text: str) -> None:
        payload = _PAYLOAD.search(text)
        if payload:
            key = "max_payload_supported_bytes" if self.block == "DevCap" else "max_payload_bytes"
            device[key] = int(payload.group(1))
        request = _READ_REQUEST.search(text)
        if request:
            device["max_read_request_bytes"] = int(request.group(1))
        flags = self._flags(text)
        if self.block == "DevCtl" and "RlxdOrd" in flags:
            device["relaxed_ordering"] = flags["RlxdOrd"]

    def _device_status(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        errors = ("CorrErr", "NonFatalErr", "FatalErr", "UnsupReq")
        flags = self._flags(rest)
        device["errors_detected"] = [name for name in errors if flags.get(name)]

    def _uncorrectable(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        flags = self._flags(rest)
        device.setdefault("aer", {})["uncorrectable"] = [name for name, on in flags.items() if on]

    def _correctable(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        flags = self._flags(rest)
        device.setdefault("aer", {})["correctable"] = [name for name, on in flags.items() if on]

    def _product_name(self, device: dict[str, Any], rest: str, _line: Line) -> None:
        device.setdefault("vpd", {"keywords": {}})["product_name"] = rest

    @staticmethod
    def _vpd(device: dict[str, Any], line: Line) -> None:
        match = _VPD_ITEM.match(line.text)
        if not match:
            return
        vpd = device.setdefault("vpd", {"keywords": {}})
        keyword, _name, text = match.groups()
        vpd["keywords"].setdefault(keyword, text)
        key = {"PN": "part_number", "SN": "serial"}.get(keyword)
        if key:
            vpd.setdefault(key, text)

    _READERS = {
        "Subsystem": _subsystem,
        "NUMA node": _numa,
        "IOMMU group": _iommu,
        "Physical Slot": _slot,
        "Kernel driver in use": _driver,
        "Kernel modules": _modules,
        "Bus": _bus,
        "LnkCap": _link_capability,
        "LnkSta": _link_status,
        "ACSCap": _acs_capability,
        "ACSCtl": _acs_control,
        "DevCap": _device_control,
        "DevCtl": _device_control,
        "DevSta": _device_status,
        "UESta": _uncorrectable,
        "CESta": _correctable,
        "Product Name": _product_name,
    }

    def result(self) -> dict[str, Any]:
        return {"devices": self.devices, "unattributed": [device for device in self.loose if device]}
