# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifiers that differ between hosts and stay the same for one: all derived from the host's name."""

from __future__ import annotations

OUI_MELLANOX = "9c63c0"
OUI_OTHER = "3cecef"


def _digest(*parts: str) -> bytes:
    import hashlib  # brings OpenSSL along, which most tools never need

    return hashlib.sha256("\0".join(parts).encode()).digest()


def mac(host: str, bdf: str, oui: str = OUI_MELLANOX) -> str:
    # Consecutive functions of one card have consecutive addresses, as on real cards.
    card, function = bdf.rsplit(".", 1)
    base = int.from_bytes(_digest(host, card)[:3], "big") & 0xFFFFF8
    return ":".join((oui + f"{base + int(function):06x}")[i : i + 2] for i in range(0, 12, 2))


def guid(mac_address: str) -> str:
    """Node GUID of a Mellanox function: its base MAC with 0300 (not fffe) in the middle."""
    digits = mac_address.replace(":", "")
    return digits[:6] + "0300" + digits[6:]


def eui64(mac_address: str) -> str:
    """Interface identifier of a MAC address: fffe in the middle, universal bit flipped."""
    digits = mac_address.replace(":", "")
    return f"{int(digits[:2], 16) ^ 2:02x}{digits[2:6]}fffe{digits[6:]}"


def serial(host: str, what: str, prefix: str = "", length: int = 12) -> str:
    return (prefix + str(int.from_bytes(_digest(host, what, "serial")[:8], "big")))[:length]


def gpu_uuid(host: str, bdf: str) -> str:
    import uuid

    return f"GPU-{uuid.UUID(bytes=_digest(host, bdf, 'gpu')[:16], version=4)}"


def hexadecimal(host: str, what: str, digits: int) -> str:
    return _digest(host, what, "hex").hex()[:digits]
