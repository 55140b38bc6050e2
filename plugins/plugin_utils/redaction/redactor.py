# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts and names of files of a bundle, with everything replaced that identifies the rack. Pure.

Every file is read twice: first to learn what identifies the rack, from the places that tell what something is, then to
replace it in whatever spelling it stands.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.redaction.hardware import Hardware
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.redaction.names import (
    Names,
    host_names,
    is_address,
    node_names,
    serials,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.redaction.networks import Networks

_QUAD = r"\d{1,3}(?:\.\d{1,3}){3}"
_IPV4 = re.compile(
    rf"(?<![0-9.])(?:(?P<arpa>\d{{1,3}}(?:\.\d{{1,3}}){{1,3}})\.in-addr\.arpa"
    rf"|(?P<address>{_QUAD})(?P<length>/\d{{1,2}}(?![0-9.]))?(?:-(?P<last>{_QUAD}))?)(?![0-9]|\.[0-9])"
)
# 10-7-3-9 and 10_7_3_9 in names that are made from addresses; 10.7.3.* and 10.7.3/24 for a whole network.
_IPV4_JOINED = re.compile(r"(?<![0-9])(\d{1,3})([-_])(\d{1,3})\2(\d{1,3})\2(\d{1,3})(?![0-9])")
_IPV4_START = re.compile(r"(?<![\w.])(\d{1,3}\.\d{1,3}\.\d{1,3})(?=\.(?:\*|x\b|\[|\{|\()|\.?/24\b|\.(?:[\s\"']|$))")
_IPV6 = re.compile(
    r"(?<![\w.])((?:[0-9a-f]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}))(/\d{1,3})?(?![0-9a-z]|:[0-9a-f])",
    re.I,
)
_IPV6_REVERSED = re.compile(r"(?<![\w.])((?:[0-9a-f]\.){4,32})ip6\.arpa", re.IGNORECASE)
_WORD = re.compile(r"(?:(?<![0-9a-z])|(?<=0x))([0-9a-f]{8})(?![0-9a-z])", re.IGNORECASE)
_WORDS = re.compile(r"(?<![0-9a-z])([0-9a-f]{32})(?![0-9a-z])", re.IGNORECASE)
_ENDPOINT = re.compile(r"(?<![0-9A-F])([0-9A-F]{8}|[0-9A-F]{32})(?=:[0-9A-F]{4}\b)")
_ROUTE = re.compile(r"^(\S+\t)([0-9A-F]{8})\t([0-9A-F]{8})((?:\t\S+){4}\t)([0-9A-F]{8})", re.MULTILINE)
_ROUTE_PATH = re.compile(r"/net/route$")
_SOCKETS_PATH = re.compile(r"/net/(tcp|udp|raw|icmp|udplite)6?$")
_IPV6_PATH = re.compile(r"/net/(if_inet6|ipv6_route|igmp6|anycast6|mcfilter6)$")
# Lists of versions, where four numbers with dots between are no address unless the rack has it.
_VERSIONS = re.compile(r"(^|/)(dpkg|rpm|dkms|modinfo|ofed_info|apt|dnf)[\w.-]*$|/var/lib/dpkg/status$")
_FILE_NAMES_PATH = re.compile(r"(^|/)commands\.json$")
_HELD = re.compile("\ue000([0-9]+)\ue001")
_RULES = re.compile(r"[^\t\n\r\x0b\x0c\x1b\x20-\xff\0]")


def is_text(data: bytes) -> bool:
    """NUL separates the words of /proc/*/cmdline and ends those of a device tree; other control characters are data."""
    if b"\0" not in data:
        return True
    sample = data.decode("latin-1")
    return _RULES.search(sample) is None and b"\0\0" not in data


class Redactor:
    """Replacements for one bundle. *names*: host names, *secret*: what the replacements follow from."""

    def __init__(self, names: t.Iterable[str], serial_numbers: t.Iterable[str], secret: bytes) -> None:
        self.secret = secret
        self.hardware = Hardware(secret)
        self.networks = Networks(secret, self.hardware)
        self._hosts = {name for name in names if name}
        self._nodes: set[str] = set()
        self._serial_numbers = set(serial_numbers)
        self._held: list[str] = []
        for name in self._hosts:
            self._learn_ipv4(name)
        self._prepare()

    def _prepare(self) -> None:
        self.names = Names((name for name in self._hosts if not is_address(name)), self._nodes)
        # The serial number of some devices is their GUID, which has more spellings.
        guids = self.hardware.guids | self.hardware.macs
        numbers = {value for value in self._serial_numbers if re.sub("[:.-]", "", value).lower() not in guids}
        self.serials = {value.upper(): self._serial(value) for value in numbers}
        listed = "|".join(re.escape(value) for value in sorted(self.serials, key=len, reverse=True))
        self._serials = re.compile(rf"(?<![^\W_])(?:{listed})(?![^\W_])" if listed else r"(?!)", re.IGNORECASE)
        self._ready = True

    # --- learning ------------------------------------------------------------------------------

    def learn(self, path: str, data: bytes) -> None:
        """What a file of the bundle tells. Everything is learned before anything is replaced."""
        text = data.decode("latin-1")
        self._serial_numbers |= serials(path, text)
        self.hardware.learn("", path.replace("_", " "))
        self.hardware.learn(path, text)
        if is_text(data):
            self._hosts |= host_names(path, text)
            self._nodes |= node_names(path, text)
            self._learn_ipv4(text, path)
        self._ready = False

    def _learn_ipv4(self, text: str, path: str = "") -> None:
        for match in _IPV4.finditer(text):
            if match["address"] and self._is_clear(match, path):
                for spelled in (match["address"], match["last"]):
                    address = _ipv4(spelled) if spelled else None
                    if address is not None:
                        self.networks.learn(address)
        for pattern, turn in ((_ROUTE, (2, 3)), (_ENDPOINT, (1,))):
            if (_ROUTE_PATH if pattern is _ROUTE else _SOCKETS_PATH).search(path):
                for match in pattern.finditer(text):
                    for group in turn:
                        if len(match[group]) == 8:
                            self.networks.learn(ipaddress.IPv4Address(bytes.fromhex(match[group])[::-1]))

    @staticmethod
    def _is_clear(match: re.Match[str], path: str) -> bool:
        """Whether four numbers are an address by where they stand."""
        before = match.string[match.start() - 1 : match.start()]
        after = match.string[match.end() : match.end() + 1]
        if _VERSIONS.search(path):
            return match.string[max(0, match.start() - 2) : match.start()] == "//" or before == "@"
        return not (before.isalnum() or after.isalpha() or {before, after} & {"_", "-"})

    # --- replacing -----------------------------------------------------------------------------

    def text(self, text: str, path: str = "") -> str:
        return self._replaced(text, path, in_names=_FILE_NAMES_PATH.search(path) is not None)

    def name(self, name: str, path: str = "") -> str:
        """A file's name, in which `_` stands for a blank. The kernel's own have words that a host may be called by."""
        return self._replaced(name, "", in_names=True, words="/root/" not in f"/{path}")

    def _replaced(self, text: str, path: str, in_names: bool, words: bool = True) -> str:
        if not self._ready:
            self._prepare()
        self.hardware.learn(path, text)
        self._held = []
        text = self._serials.sub(lambda match: self._hold(self.serials[match[0].upper()]), text)
        text = self._tables(text, path)
        text = self.hardware.replace(text, self._hold)
        text = _IPV6_REVERSED.sub(self._ipv6_reversed, text)
        text = _IPV6.sub(self._ipv6, text)
        text = _IPV4.sub(lambda match: self._ipv4(match, path, in_names), text)
        text = _IPV4_JOINED.sub(self._ipv4_joined, text)
        text = _IPV4_START.sub(self._ipv4_start, text)
        text = self.names.replace(text, in_names=in_names, words=words)
        return _HELD.sub(lambda match: self._held[int(match[1])], text)

    def _hold(self, made: str) -> str:
        """A mark that no later step looks into."""
        self._held.append(made)
        return f"\ue000{len(self._held) - 1}\ue001"

    def data(self, data: bytes, path: str = "") -> bytes:
        """A file's contents; in what is no text, identities that stand there as text, and those of PCI registers."""
        # latin-1 keeps every byte, whatever the encoding; what is looked for is ASCII.
        if is_text(data):
            return self.text(data.decode("latin-1"), path).encode("latin-1")
        if not self._ready:
            self._prepare()
        # Nothing stands between two fields of product data.
        for value, replacement in self.serials.items():
            data = data.replace(value.encode(), replacement.encode())
        return self.hardware.data(data)

    # --- addresses -----------------------------------------------------------------------------

    def _ipv4(self, match: re.Match[str], path: str, in_names: bool) -> str:
        if match["arpa"]:
            octets = match["arpa"].split(".")[::-1]
            address = _ipv4(".".join(octets + ["0"] * (4 - len(octets))))
            if address is None:
                return match[0]
            kept = str(self.networks.ipv4(address, 8 * len(octets))).split(".")[: len(octets)]
            return self._hold(".".join(kept[::-1]) + ".in-addr.arpa")
        address = _ipv4(match["address"])
        last = _ipv4(match["last"]) if match["last"] else None
        if address is None or (match["last"] and last is None):
            return match[0]
        padded = any(len(octet) > 1 and octet[0] == "0" for octet in match["address"].split("."))
        if (padded or in_names or not self._is_clear(match, path)) and not self.networks.is_known(address):
            return match[0]
        length = match["length"] or ""
        if last is not None and not length:
            return self._hold(", ".join(self.networks.ipv4_range(address, last)))
        made = str(self.networks.ipv4(address, min(int(length[1:]), 32) if length else 32))
        if padded:
            made = ".".join(octet.zfill(3) for octet in made.split("."))
        return self._hold(made + length + (f"-{self.networks.ipv4(last)}" if last is not None else ""))

    def _ipv4_joined(self, match: re.Match[str]) -> str:
        address = _ipv4(".".join(match.group(1, 3, 4, 5)))
        if address is None or not self.networks.is_known(address):
            return match[0]
        return self._hold(str(self.networks.ipv4(address)).replace(".", match[2]))

    def _ipv4_start(self, match: re.Match[str]) -> str:
        address = _ipv4(match[1] + ".0")
        if address is None or not self.networks.is_known(address):
            return match[0]
        return self._hold(str(self.networks.ipv4(address, 24)).rpartition(".")[0])

    def _ipv6(self, match: re.Match[str]) -> str:
        spelled, length = match[1], match[2] or ""
        before = after = ""
        address = _parsed6(spelled)
        if address is None and spelled[:1] == ":":  # a label before it
            before, spelled = ":", spelled[1:]
            address = _parsed6(spelled)
        if address is None and spelled[-1:] == ":":  # a sentence goes on behind it
            spelled, after = spelled[:-1], ":"
            address = _parsed6(spelled)
        groups = spelled.split(":")
        exploded = len(groups) == 8 and all(len(group) == 4 for group in groups)  # as GIDs are written
        if address is None or (int(address) >> 112 < 0x2000 and address.ipv4_mapped is None and not exploded):
            return match[0]
        moved = self.networks.ipv6(address, min(int(length[1:]), 128) if length else 128)
        if moved == address:
            return self._hold(match[0])
        made = moved.exploded if exploded else str(moved)
        if moved.ipv4_mapped is not None and "." in spelled:
            made = f"::ffff:{moved.ipv4_mapped}"
        return self._hold(before + (made.upper() if spelled.isupper() else made) + length + after)

    def _ipv6_reversed(self, match: re.Match[str]) -> str:
        digits = match[1].replace(".", "")[::-1]
        address = ipaddress.IPv6Address(int(digits.ljust(32, "0"), 16))
        made = f"{int(self.networks.ipv6(address, 4 * len(digits))):032x}"[: len(digits)]
        return self._hold(".".join(made[::-1]) + ".ip6.arpa")

    # --- hexadecimal addresses -----------------------------------------------------------------

    def _tables(self, text: str, path: str) -> str:
        """Addresses that a table of the kernel, or a filter, has in hexadecimal."""
        if _ROUTE_PATH.search(path):
            return _ROUTE.sub(self._route, text)
        if _SOCKETS_PATH.search(path):
            return _ENDPOINT.sub(lambda match: self._hold(self._words_backwards(match[1])), text)
        if _IPV6_PATH.search(path):
            return _WORDS.sub(lambda match: self._hold(self._digits6(match[1])), text)
        text = _WORDS.sub(lambda match: self._gid(match[1]), text)
        return text if path.endswith("/status") else _WORD.sub(lambda match: self._word(match[1]), text)

    def _route(self, match: re.Match[str]) -> str:
        size = bin(int(match[5], 16)).count("1")
        made = [self._backwards(match[2], size), self._backwards(match[3], 32)]
        return match[1] + "\t".join(map(self._hold, made)) + match[4] + self._hold(match[5])

    def _backwards(self, word: str, length: int) -> str:
        """The bytes of an address as they lie in memory."""
        return self.networks.ipv4(ipaddress.IPv4Address(bytes.fromhex(word)[::-1]), length).packed[::-1].hex().upper()

    def _words_backwards(self, words: str) -> str:
        if len(words) == 8:
            return self._backwards(words, 32)
        packed = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, 32, 8))
        moved = self.networks.ipv6(ipaddress.IPv6Address(packed)).packed
        return "".join(moved[at : at + 4][::-1].hex() for at in range(0, 16, 4)).upper()

    def _digits6(self, digits: str) -> str:
        made = self.networks.ipv6(ipaddress.IPv6Address(bytes.fromhex(digits))).packed.hex()
        return made.upper() if digits.isupper() else made

    def _gid(self, digits: str) -> str:
        """A GID without its colons, told by its beginning."""
        mapped = ipaddress.IPv6Address(bytes.fromhex(digits)).ipv4_mapped
        if digits.lower().startswith("fe80" + 12 * "0") or (mapped is not None and self.networks.is_known(mapped)):
            return self._hold(self._digits6(digits))
        return digits

    def _word(self, word: str) -> str:
        """A private address of the rack as eight digits, in either order; anything else is a mask or a counter."""
        packed = bytes.fromhex(word)
        for order in (packed, packed[::-1]):
            address = ipaddress.IPv4Address(order)
            if address.is_private and int(address) in self.networks.known and order[3]:
                moved = self.networks.ipv4(address).packed
                made = (moved if order is packed else moved[::-1]).hex()
                return self._hold(made.upper() if word.isupper() else made)
        return word

    def _serial(self, value: str) -> str:
        digest = hmac.new(self.secret, f"serial:{value.upper()}".encode(), hashlib.sha256).hexdigest().upper()
        if value.isdecimal():
            digest = str(int(digest, 16))[1:]
        return "".join(char if char in "-." else digest[n % len(digest)] for n, char in enumerate(value))


def _ipv4(spelled: str) -> ipaddress.IPv4Address | None:
    octets = [int(octet) for octet in spelled.split(".")]
    return ipaddress.IPv4Address(bytes(octets)) if all(octet < 256 for octet in octets) else None


def _parsed6(spelled: str) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(spelled)
    except ValueError:
        return None


__all__ = ("Redactor", "is_text")
