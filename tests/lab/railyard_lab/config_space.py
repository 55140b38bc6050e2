# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI configuration space and Vital Product Data of a function, byte for byte as lspci and setpci take them apart."""

from __future__ import annotations

import struct
from typing import Any

PCIE_CAP = 0x60
AER_CAP, ACS_CAP = 0x100, 0x160
ACS_CONTROL = ACS_CAP + 6
DEVICE_CONTROL = PCIE_CAP + 8
SIZE = 4096
VOLATILE = ((ACS_CONTROL, 2), (DEVICE_CONTROL, 2))  # what the host writes while it runs
_PORT_TYPES = {"endpoint": 0, "root": 4, "upstream": 5, "downstream": 6}
ACS_REDIRECT = 0x1D  # source validation, request and completion redirect, upstream forwarding


def _read_request_code(size: int) -> int:
    return max(0, (max(size, 128) // 128).bit_length() - 1)


def build(function: dict[str, Any], buses: tuple[int, int, int] | None) -> bytearray:
    """`buses`: primary, secondary and subordinate number of a bridge."""
    data = bytearray(SIZE)

    def put(offset: int, layout: str, *values: int) -> None:
        struct.pack_into("<" + layout, data, offset, *values)

    bridge = function["kind"] == "bridge"
    put(0x00, "HH", int(function["vendor"], 16), int(function["device"], 16))
    put(0x04, "HH", 0x0546 if not bridge else 0x0547, 0x0010)  # memory, bus master, SERR, no INTx; capabilities
    pci_class = int(function["class"], 16)
    put(0x08, "BBBB", 0x00 if not bridge else 0xB0, pci_class & 0xFF, (pci_class >> 8) & 0xFF, pci_class >> 16)
    put(0x0C, "BB", 0x10, 0)
    put(0x0E, "B", 0x01 if bridge else 0x00)
    if bridge:
        put(0x18, "BBB", *(buses or (0, 0, 0)))
        put(0x1C, "BBH", 0xF1, 0x01, 0)
        put(0x20, "HHHH", 0xFFF0, 0x0000, 0xFFF1, 0x0001)
        put(0x34, "B", 0x40)
        put(0x3C, "BBH", 0xFF, 1 if function["port_type"] != "upstream" else 0, 0x0003)
    else:
        put(0x10, "II", 0x0000000C, 0x00000020)  # 64-bit prefetchable
        put(0x2C, "HH", int(function["subsystem_vendor"], 16), int(function["subsystem_device"], 16))
        put(0x34, "B", 0x40)
        put(0x3C, "BB", 0xFF, 1)
    link = function["link"]
    if not link["max_width"]:  # a function of a virtual bus, or a VF: no capabilities that name a link
        put(0x34, "B", 0)
        put(0x06, "H", 0)
        return data
    put(0x40, "BBHHH", 0x01, 0x48 if function.get("vpd") else PCIE_CAP, 0xC803, 0x0008, 0)
    if function.get("vpd"):
        put(0x48, "BBHI", 0x03, PCIE_CAP, 0x8000, 0)
    _pcie(put, function)
    put(0x9C, "BBHII", 0x11, 0x00, 0x803F, 0x2000, 0x3000)
    acs = ACS_CAP if function["acs"] else 0
    put(AER_CAP, "I", 0x00010001 | acs << 20)
    put(AER_CAP + 0x0C, "I", 0x00462030)
    put(AER_CAP + 0x14, "I", 0x0000E000)
    if acs:
        put(ACS_CAP, "IHH", 0x0001000D, 0x005F, 0)
        if function.get("acs_control"):
            put(ACS_CONTROL, "H", function["acs_control"])
    return data


def _pcie(put: Any, function: dict[str, Any]) -> None:
    link, port_type = function["link"], function["port_type"]
    slot = 0x100 if port_type in ("root", "downstream") else 0
    put(PCIE_CAP, "BBH", 0x10, 0x9C, 0x0002 | _PORT_TYPES[port_type] << 4 | slot)
    capability = 0x00008022 | (
        0x10000000 if port_type == "endpoint" else 0
    )  # 512 bytes, extended tags, role based errors
    control = 0x002F | 1 << 4 | 1 << 8 | 1 << 11 | _read_request_code(function["max_read_request"]) << 12
    put(PCIE_CAP + 0x04, "IHH", capability, control | 1 << 5, 0)
    number = 0 if port_type == "endpoint" else int(function.get("port_number", 0))
    put(PCIE_CAP + 0x0C, "I", link["max_gen"] | link["max_width"] << 4 | 1 << 22 | number << 24)
    active = 0x2000 if port_type in ("root", "downstream") else 0
    put(PCIE_CAP + 0x10, "HH", 0x0040 if port_type == "root" else 0, link["gen"] | link["width"] << 4 | 0x1000 | active)
    if slot:
        put(PCIE_CAP + 0x14, "IHH", 0x00000000, 0x03C0, 0x0040)
    put(PCIE_CAP + 0x24, "IHH", 0x0007081F, 0x0019, 0)
    speeds = sum(1 << generation for generation in range(1, link["max_gen"] + 1))
    put(PCIE_CAP + 0x2C, "IHH", speeds, link["max_gen"], 0x001E if link["gen"] >= 3 else 0)


def keep_volatile(fresh: bytearray, old: bytes | None) -> bytearray:
    """Take over what the host wrote since its boot."""
    if old and len(old) == SIZE:
        for offset, length in VOLATILE:
            fresh[offset : offset + length] = old[offset : offset + length]
    return fresh


def acs_control(data: bytes) -> int:
    return struct.unpack_from("<H", data, ACS_CONTROL)[0]


def vpd(product: str, fields: list[tuple[str, str]]) -> bytes:
    """Product name, read-only fields with their checksum, end tag."""
    name = product.encode()
    body = b"".join(key.encode() + bytes([len(value)]) + value.encode() for key, value in fields)
    head = b"\x82" + struct.pack("<H", len(name)) + name + b"\x90" + struct.pack("<H", len(body) + 4) + body + b"RV\x01"
    return head + bytes([(-sum(head)) & 0xFF]) + b"\x78"
