# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other hardware addresses, GUIDs and UUIDs for those of a rack. Pure.

What is one is told by where it stands: behind its label, in a file of that kind, or in a spelling that nothing else
has. A string of hexadecimal digits by itself is a mask, a counter or a checksum, unless the same digits stand elsewhere
in such a place.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import typing as t

# Six, eight or twenty pairs: Ethernet, EUI-64, IP over InfiniBand.
_PAIRS = re.compile(
    r"(?<![\w:])[0-9a-f]{2}([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4}(?:(?:\1[0-9a-f]{2}){2}(?:(?:\1[0-9a-f]{2}){12})?)?"
    r"(?![\w]|[:-][0-9a-f]{2}(?![0-9a-f]))",
    re.IGNORECASE,
)
_QUADS = re.compile(r"(?<![\w:])([0-9a-f]{4})((?::[0-9a-f]{4}){3})(?![\w:])", re.IGNORECASE)
_LABELLED_GUID = re.compile(r"guid[^\w\n]{0,40}(?:0x)?([0-9a-f]{16})(?![0-9a-z])", re.IGNORECASE)
_LABELLED_MAC = re.compile(r"(?:mac|en|ib|wl|sl)(?:x|[^\w\n]{1,40})([0-9a-f]{12})(?![0-9a-f])", re.IGNORECASE)
_BARE_GUID = re.compile(r"(?<![0-9a-z])(?:0x)?([0-9a-f]{16})(?![0-9a-z])", re.IGNORECASE)
_BARE_MAC = re.compile(r"(?<![0-9a-z])([0-9a-f]{12})(?![0-9a-z])", re.IGNORECASE)
_UUID = re.compile(r"(?<![0-9a-f])(?<![0-9a-f]-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])", re.I)
_LABELLED_UUID = re.compile(
    r"(?:uuid|(?:machine|boot|invocation)[-_ ]?id|\[V\d\] Vendor specific)[^\w\n]{0,40}([0-9a-f]{32})(?![0-9a-z])", re.I
)
_BARE_UUID = re.compile(r"(?<![0-9a-z])([0-9a-f]{32})(?![0-9a-z])", re.IGNORECASE)
_LABELLED_ID = re.compile(r"pdi\W{1,60}0x([0-9a-f]{16})(?![0-9a-z])", re.IGNORECASE)
# Anything that may be one of them in another spelling.
_CANDIDATE = re.compile(
    r"(?:(?<![0-9a-z])|(?<=0x)|(?<=(?:en|ib|wl|sl)x))[0-9a-f]{2}(?:[:.-]?[0-9a-f]{2}){5,}(?![0-9a-f])", re.IGNORECASE
)
# iproute2 writes those of bridges without leading zeros.
_SHORTENED = re.compile(r"(?<![\w:])[0-9a-f]{1,2}(?::[0-9a-f]{1,2}){5}(?![\w:])", re.IGNORECASE)
_GUID_FILES = re.compile(
    r"(^|/)(ibnetdiscover|iblinkinfo|ibqueryerrors|ibhosts|ibswitches|ibnodes|ibroute|ibtracert|ibv_devices|opensm|"
    r"saquery|sminfo|smpquery|ibportstate|ibdiagnet)[\w.-]*$"
)
_GUID_PATHS = re.compile(r"/(node_guid|sys_image_guid|port_guid|phys_switch_id|phys_port_id)$")
_MAC_PATHS = re.compile(r"/net/dev_mcast$")
_UUID_PATHS = re.compile(r"(/machine-id|/boot_id|/product_uuid)$")
# EFI variables are named by the GUID of who defined them: the same on every machine.
_EFI = re.compile(r"/efi/(efivars|vars)/|\befivars/")
_EFI_GUIDS = (
    "8be4df6193ca11d2aa0d00e098032b8c",
    "605dab50e0464300abb63dd810dd8b23",
    "d719b2cb3d3a4596a3bcdad00e67656f",
)
# Multicast: spanning tree, LLDP, IPv4, CDP, all nodes.
_GROUPS = ("01005e", "0180c2", "01000c", "333300")
_MIDDLES = ("0300", "0200", "fffe", "0000")
_TRIES = 64
_SHORTEST = 12


class Hardware:
    def __init__(self, secret: bytes) -> None:
        self.secret, self.key = secret, secret
        self.macs: set[str] = set()
        self.guids: set[str] = set()
        self.uuids: set[str] = set()
        self.ids: set[str] = set()  # 64 bits without a structure
        self.constant: set[str] = set(_EFI_GUIDS)
        self._tails: dict[str, str] = {}
        self._settled = False

    # --- finding -------------------------------------------------------------------------------

    def learn(self, path: str, text: str) -> None:
        for match in _PAIRS.finditer(text):
            self._learn_pairs(match[0])
        for match in _QUADS.finditer(text):
            vendor, _, rest = match[0].partition(":")
            if rest.split(":")[1] != vendor:  # vendor:device:subvendor:subdevice
                self._add(self.guids, vendor + rest)
        for match in _LABELLED_ID.finditer(text):
            self._add(self.ids, match[1])
        for pattern in (_LABELLED_GUID, *((_BARE_GUID,) if _guids_only(path) else ())):
            for match in pattern.finditer(text):
                self._add(self.guids, match[1])
        for pattern in (_LABELLED_MAC, *((_BARE_MAC,) if _MAC_PATHS.search(path) else ())):
            for match in pattern.finditer(text):
                self._add(self.macs, match[1])
        for match in _UUID.finditer(text):
            self._add(self.constant if _EFI.search(path) else self.uuids, match[0])
        for pattern in (_LABELLED_UUID, *((_BARE_UUID,) if _UUID_PATHS.search(path) else ())):
            for match in pattern.finditer(text):
                self._add(self.uuids, match[1])
        self.uuids -= self.constant

    def _learn_pairs(self, spelled: str) -> None:
        digits = _bare(spelled)
        if len(digits) == 12:
            # Dashes and decimals may be a date and a time.
            if ":" in spelled or not digits.isdecimal():
                self._add(self.macs, digits)
        elif len(digits) == 16:
            self._add(self.guids, digits)
        elif digits[8:12] == "fe80" or (digits[:4] in ("8000", "a000", "0000") and digits[8:10] != "ff"):
            self._add(self.guids, digits[-16:])  # others of this length are fingerprints of keys

    def _add(self, known: set[str], spelled: str) -> None:
        digits = _bare(spelled)
        empty = not digits.strip("0") or not digits.strip("f")
        if not empty and not digits.startswith(_GROUPS) and not (len(digits) == 16 and digits.startswith("fe80")):
            known.add(digits)

    # --- replacing -----------------------------------------------------------------------------

    def replace(self, text: str, hold: t.Callable[[str], str]) -> str:
        text = _CANDIDATE.sub(lambda match: self._candidate(match[0], hold), text)
        return _SHORTENED.sub(lambda match: self._shortened(match[0], hold), text)

    def _shortened(self, spelled: str, hold: t.Callable[[str], str]) -> str:
        digits = "".join(pair.zfill(2) for pair in spelled.lower().split(":"))
        if digits not in self.macs:
            return spelled
        return hold(":".join(f"{byte:x}" for byte in bytes.fromhex(self.mac(digits))))

    def _candidate(self, spelled: str, hold: t.Callable[[str], str]) -> str:
        digits = _bare(spelled)
        fresh, place, changed = list(digits), 0, False
        while place <= len(digits) - _SHORTEST:
            made = self._known(digits, place, digits == spelled.lower())
            if made:
                fresh[place : place + len(made)] = made
                place += len(made)
                changed = True
            else:
                place += 2
        return hold(_in_place(spelled, "".join(fresh))) if changed else spelled

    def _known(self, digits: str, place: int, joined: bool) -> str | None:
        """What the digits from *place* on become, where they are a known identity."""
        part = digits[place : place + 32]
        if len(part) == 32 and part in self.uuids:
            return self.uuid(part)
        if len(part) == 32 and part in self.constant:
            return part
        if part[:16] in self.ids:
            return self._digest("id", part[:16])[:16]
        if part[:16] in self.guids:
            return self.guid(part[:16])
        if part[:12] in self.macs:
            # A longer string of digits without separators holds one at its end only.
            return self.mac(part[:12]) if not joined or place + 12 == len(digits) else None
        return None

    def mac(self, digits: str) -> str:
        """The maker's prefix stays: it tells nothing of the rack."""
        return digits[:6] + self.tail(digits[6:])

    def guid(self, digits: str) -> str:
        """As the hardware address that many are made from, so that they fit each other as before."""
        middle = digits[6:10]
        if middle not in _MIDDLES:
            middle = f"{int(middle, 16) ^ int(self._digest('middle', digits[:6])[:4], 16):04x}"
        return digits[:6] + middle + self.tail(digits[10:])

    def eui64(self, digits: str) -> str | None:
        """An interface identifier that is made from a hardware address or is a port's GUID."""
        if digits in self.guids or digits[6:10] in ("fffe", "0300"):
            return self.guid(digits)
        return None

    def uuid(self, digits: str) -> str:
        return self._digest("uuid", digits)[:32]

    def tail(self, digits: str) -> str:
        """A permutation of the last 24 bits. The lowest four stay: ports of a card keep their order."""
        if not self._settled:
            self._settle()
        if digits not in self._tails:
            self._tails[digits] = self._feistel(digits)
        return self._tails[digits]

    def _settle(self) -> None:
        """Take the first key under which nothing of the rack becomes something else of it, or itself."""
        self._settled = True
        known = {digits[-6:] for digits in (*self.macs, *self.guids)}
        clashes = {}
        for attempt in range(_TRIES if len(known) <= 512 else 4):
            self.key = self.secret + bytes([attempt])
            clashes[self.key] = sum(self._feistel(tail) in known for tail in known)
            if not clashes[self.key]:
                return
        self.key = min(clashes, key=lambda key: clashes[key])

    def _feistel(self, digits: str) -> str:
        value = int(digits, 16) >> 4
        left, right = value >> 10, value & 0x3FF
        for turn in range(4):
            left, right = right, left ^ int(self._digest("tail", f"{turn}:{right:x}")[:3], 16) & 0x3FF
        return f"{left << 10 | right:05x}{digits[5]}"

    def _digest(self, kind: str, value: str) -> str:
        return hmac.new(self.key, f"{kind}:{value}".encode(), hashlib.sha256).hexdigest()

    def data(self, data: bytes) -> bytes:
        """Product data, and registers: the serial number of a PCI device is its GUID, the lower word first."""
        for digits in self.uuids:
            data = data.replace(digits.encode(), self.uuid(digits).encode())
        fresh = bytearray(data)
        for place in range(0x100, len(data) - 7, 4):
            digits = data[place : place + 8][::-1].hex()
            if digits in self.guids:
                fresh[place : place + 8] = bytes.fromhex(self.guid(digits))[::-1]
        return bytes(fresh)


def _guids_only(path: str) -> bool:
    return _GUID_FILES.search(path) is not None or _GUID_PATHS.search(path) is not None


def _bare(spelled: str) -> str:
    return re.sub("[:.-]", "", spelled).lower()


def _in_place(spelled: str, digits: str) -> str:
    """*digits* with the separators and the case of *spelled*."""
    fresh = iter(digits)
    body = "".join(char if char in ":.-" else next(fresh) for char in spelled)
    return body.upper() if spelled.isupper() else body


__all__ = ("Hardware",)
