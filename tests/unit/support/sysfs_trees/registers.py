# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Registers and vital product data as bytes, the way a card holds them."""

from __future__ import annotations

import struct
from typing import Optional

_PAYLOADS = {128 << code: code for code in range(6)}


def config_space(
    vendor: str,
    device: str,
    base_class: str,
    *,
    acs: Optional[int] = None,
    max_read_request: int = 512,
    payload: int = 256,
) -> bytes:
    """4096 bytes: the header, a PCI Express capability, AER and, where there is one, ACS."""
    data = bytearray(4096)
    struct.pack_into("<HH", data, 0, int(vendor, 16), int(device, 16))
    struct.pack_into("<HH", data, 4, 0x0006, 0x0010)
    data[9:12] = int(base_class, 16).to_bytes(3, "little")
    data[0x0E] = 1 if base_class.startswith("0604") else 0
    data[0x34] = 0x40  # power management, then PCI Express
    data[0x40:0x42] = bytes((0x01, 0x60))
    data[0x60:0x62] = bytes((0x10, 0x00))
    struct.pack_into("<H", data, 0x68, _PAYLOADS[payload] << 5 | _PAYLOADS[max_read_request] << 12 | 0x10)
    following = 0x148 if acs is not None else 0
    struct.pack_into("<I", data, 0x100, 0x0001 | 2 << 16 | following << 20)
    if acs is not None:
        struct.pack_into("<I", data, 0x148, 0x000D | 1 << 16)
        struct.pack_into("<HH", data, 0x14C, 0x005F, acs)
    return bytes(data)


def vital_product_data(product: str, keywords: dict[str, str]) -> bytes:
    """Identifier string, read-only keywords with their checksum, end tag."""

    def field(key: str, value: bytes) -> bytes:
        return key.encode() + bytes((len(value),)) + value

    name = product.encode()
    head = b"\x82" + struct.pack("<H", len(name)) + name
    body = b"".join(field(key, value.encode()) for key, value in keywords.items())
    length = len(body) + 4
    read_only = b"\x90" + struct.pack("<H", length) + body
    checksum = -sum(head + read_only + b"RV\x01") & 0xFF
    return head + read_only + field("RV", bytes((checksum,))) + b"\x78"
