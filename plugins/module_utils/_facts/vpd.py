# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""PCI vital product data: the bytes of `/sys/bus/pci/devices/*/vpd` to what the maker wrote into the card."""

from __future__ import annotations

from typing import Any

__all__ = ["LIMIT", "decode"]

#: The largest VPD that the specification allows; the cards' own are a few hundred bytes.
LIMIT = 32768
_IDENTIFIER = 0x02
_READ_ONLY = 0x10
_READ_WRITE = 0x11
_END = 0x0F
#: Written by the maker into the bridge functions of a ConnectX-7 that manages NVSwitches.
_SWITCH_MANAGEMENT = "SW_MNG"


def decode(data: bytes) -> dict[str, Any]:
    """`product_name, part_number, serial, keywords, sw_mng`; what a cut or damaged text does not hold is absent."""
    found: dict[str, Any] = {}
    keywords: dict[str, str] = {}
    offset = 0
    while offset < len(data):
        tag = data[offset]
        if tag & 0x80:  # large resource: length in two bytes
            if offset + 3 > len(data):
                break
            name, length, offset = tag & 0x7F, data[offset + 1] | data[offset + 2] << 8, offset + 3
        else:
            name, length, offset = tag >> 3 & 0x0F, tag & 7, offset + 1
            if name == _END:
                break
        body = data[offset : offset + length]
        if name == _IDENTIFIER and len(body) == length:
            found["product_name"] = _string(body)
        elif name in (_READ_ONLY, _READ_WRITE):
            keywords.update(_keywords(body))
        offset += length
    if "PN" in keywords:
        found["part_number"] = keywords["PN"]
    if "SN" in keywords:
        found["serial"] = keywords["SN"]
    if keywords or found:
        found["keywords"] = keywords
        told = [found.get("product_name", ""), *keywords.values()]
        found["sw_mng"] = any(_SWITCH_MANAGEMENT in value for value in told)
    return found


def _keywords(body: bytes) -> dict[str, str]:
    keywords: dict[str, str] = {}
    offset = 0
    while offset + 3 <= len(body):
        key = body[offset : offset + 2]
        length = body[offset + 2]
        value = body[offset + 3 : offset + 3 + length]
        if not key.isalnum() or len(value) < length:
            break
        # RV holds a checksum and RW the free room: bytes, not text.
        if key not in (b"RV", b"RW"):
            keywords[key.decode("ascii")] = _string(value)
        offset += 3 + length
    return keywords


def _string(value: bytes) -> str:
    return value.decode("latin-1").strip("\x00 \t\r\n")
