# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""OpenPGP public keys, as far as a repository's keyring needs it: armour off, fingerprints out.

A minimal host has gpgv and no gpg, so this is done here (RFC 4880 section 12.2, RFC 9580 section 5.5.4).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import typing as t

_PUBLIC_KEY = 6
_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"


def dearmor(data: bytes) -> bytes:
    """The binary form of a key file in either form. Raises ``ValueError``."""
    if data[:1] and data[0] & 0x80:
        return data
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    blocks = []
    while _BEGIN in text:
        body, found, text = text.partition(_BEGIN)[2].partition(_END)
        if not found:
            raise ValueError("the armoured block has no end: the key is truncated")
        blocks.append(_block(body))
    if not blocks:
        raise ValueError("it is neither an armoured nor a binary OpenPGP key")
    return b"".join(blocks)


def _block(body: str) -> bytes:
    lines = [line.strip() for line in body.split("\n")]
    # Armour headers (Version:, Comment:) end at the first blank line.
    start = next((number + 1 for number, line in enumerate(lines) if not line and number), 0)
    if any(":" in line for line in lines[1:start]):
        lines = lines[start:]
    # The last line, after "=", is the checksum of the others.
    data = "".join(line for line in lines if line and not line.startswith("=") and ":" not in line)
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as exc:
        raise ValueError(f"the armoured block is damaged: {exc}") from exc


def _packets(data: bytes) -> t.Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        header = data[position]
        if not header & 0x80:
            raise ValueError(f"no OpenPGP packet begins at byte {position}")
        position += 1
        if header & 0x40:
            tag = header & 0x3F
            body, position = _new_format(data, position)
        else:
            tag = (header >> 2) & 0x0F
            size = {0: 1, 1: 2, 2: 4}.get(header & 3)
            if size is None:
                raise ValueError("a packet of indeterminate length is not expected in a key")
            length = int.from_bytes(data[position : position + size], "big")
            position += size
            body, position = data[position : position + length], position + length
        if position > len(data):
            raise ValueError("the last packet is cut short: the key is truncated")
        yield tag, body


def _new_format(data: bytes, position: int) -> tuple[bytes, int]:
    if position >= len(data):
        raise ValueError("the last packet is cut short: the key is truncated")
    first = data[position]
    if first < 192:
        length, position = first, position + 1
    elif first < 224:
        length, position = (
            ((first - 192) << 8) + int.from_bytes(data[position + 1 : position + 2], "big") + 192,
            position + 2,
        )
    elif first == 255:
        length, position = int.from_bytes(data[position + 1 : position + 5], "big"), position + 5
    else:
        raise ValueError("a packet in parts is not expected in a key")
    return data[position : position + length], position + length


def fingerprints(data: bytes) -> list[str]:
    """The fingerprints of the primary keys, upper-case hex, in order. Raises ``ValueError``."""
    found = []
    for tag, body in _packets(dearmor(data)):
        if tag != _PUBLIC_KEY or not body:
            continue
        if body[0] == 4:
            digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest()
        elif body[0] in (5, 6):
            prefix = b"\x9a" if body[0] == 5 else b"\x9b"
            digest = hashlib.sha256(prefix + len(body).to_bytes(4, "big") + body).hexdigest()
        else:
            raise ValueError(f"keys of version {body[0]} are not supported")
        found.append(digest.upper())
    if not found:
        raise ValueError("it holds no public key")
    return found


__all__ = ("dearmor", "fingerprints")
