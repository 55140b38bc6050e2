# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""PCI configuration space: the bytes of `/sys/bus/pci/devices/*/config` to the registers that matter to a fabric."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Optional

__all__ = ["ACS_BITS", "capability", "decode", "extended"]

#: Bits of the ACS control register, named as lspci names them.
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")

_STATUS_HAS_CAPABILITIES = 0x10
CAP_EXPRESS = 0x10
ECAP_ACS = 0x000D
_ECAP_ATS = 0x000F
#: What the kernel shows to a reader without CAP_SYS_ADMIN.
_HEADER = 64


def _word(data: bytes, offset: int) -> Optional[int]:
    return struct.unpack_from("<H", data, offset)[0] if offset >= 0 and offset + 2 <= len(data) else None


def capability(data: bytes, wanted: int) -> Optional[int]:
    """Offset of a capability in the first 256 bytes."""
    status = _word(data, 0x06)
    if status is None or not status & _STATUS_HAS_CAPABILITIES or len(data) <= _HEADER:
        return None
    offset = data[0x34] & 0xFC
    seen: set[int] = set()
    while offset >= 0x40 and offset + 2 <= len(data) and offset not in seen:
        seen.add(offset)
        if data[offset] == wanted:
            return offset
        offset = data[offset + 1] & 0xFC
    return None


def extended(data: bytes) -> Iterator[tuple[int, int]]:
    """(id, offset) of the extended capabilities from 0x100 on."""
    offset = 0x100
    seen: set[int] = set()
    while offset >= 0x100 and offset + 4 <= len(data) and offset not in seen:
        seen.add(offset)
        header = struct.unpack_from("<I", data, offset)[0]
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, offset
        offset = header >> 20 & 0xFFC


def decode(data: bytes) -> dict[str, Any]:
    """Registers of one function. Empty where only the standard header could be read, as for a user other than root."""
    if len(data) <= _HEADER or data[:2] == b"\xff\xff":
        return {}
    found: dict[str, Any] = {}
    express = capability(data, CAP_EXPRESS)
    control = _word(data, express + 8) if express is not None else None
    if control is not None:
        payload, request = control >> 5 & 7, control >> 12 & 7
        if payload <= 5:
            found["max_payload_bytes"] = 128 << payload
        if request <= 5:
            found["max_read_request_bytes"] = 128 << request
        found["relaxed_ordering"] = bool(control & 0x10)
    if len(data) < 0x104:
        return found
    acs: dict[str, Any] = {"capable": False, "control": []}
    for identity, offset in extended(data):
        if identity == ECAP_ACS:
            word = _word(data, offset + 6)
            if word is not None:
                acs = {"capable": True, "control": [name for bit, name in enumerate(ACS_BITS) if word >> bit & 1]}
        elif identity == _ECAP_ATS:
            word = _word(data, offset + 6)
            if word is not None:
                found["ats_enabled"] = bool(word & 0x8000)
    found["acs"] = acs
    return found
