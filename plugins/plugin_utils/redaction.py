# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replace what identifies a rack in a support bundle. Pure.

The same original always has the same replacement, whatever file and spelling it stands in, so the bundle can still be
diagnosed: addresses of one subnet stay in one subnet, equal GUIDs stay equal, a GID still holds its interface's
address. Replacements follow from a key that is made for one bundle and not kept.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import natural

# Bridges of container engines and hypervisors: the same on every machine of the world, and rules know them.
_KEPT = tuple(
    ipaddress.ip_network(net) for net in ("127.0.0.0/8", "169.254.0.0/16", "172.17.0.0/16", "192.168.122.0/24")
)
_IPV4 = re.compile(r"(?<![\w.:-])(\d{1,3}(?:\.\d{1,3}){3})(/\d{1,2})?(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w.:])((?:[0-9a-f]{1,4}:|:){2,7}[0-9a-f]{0,4})(/\d{1,3})?(?![\w:])", re.IGNORECASE)
_HARDWARE = re.compile(r"(?<![\w:])[0-9a-f]{2}(?:([:-])[0-9a-f]{2})(?:\1[0-9a-f]{2}){4,18}(?![\w:-])", re.IGNORECASE)
_GUID = re.compile(r"(?<![0-9a-z:])(0x)?(?:[0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3})(?![0-9a-z:])", re.IGNORECASE)
_UUID = re.compile(
    r"(?<![0-9a-f])(?<![0-9a-f]-)[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}(?![0-9a-f-])", re.IGNORECASE
)
_SERIALS = (
    re.compile(
        r"^\s*(?:GPU |Chassis |Module )?Serial(?: Number)?\s*[:=]\s*([\w.-]{4,})\s*$", re.IGNORECASE | re.MULTILINE
    ),
    re.compile(r"\[SN\] Serial number: (\S{4,})"),
    re.compile(r"<(?:chassis_)?serial(?:_number)?>([^<\s]{4,})</"),
    re.compile(r"""["'](?:serial|serial_number|vendor sn|sn)["']\s*:\s*["']([^"'\s]{4,})["']""", re.IGNORECASE),
    re.compile(r"Vendor SN\s*:\s*(\S{4,})"),
)
_NO_SERIAL = re.compile(r"^(n/?a|none|unknown|not|default.*|to|0+|\[?n/a\]?|number)$", re.IGNORECASE)
# Lists of versions; four numbers with dots between are no address there.
_VERSIONS = re.compile(r"(^|/)(dpkg|rpm|dkms|modinfo|ofed_info|apt|dnf)[\w.-]*$|/var/lib/dpkg/status$")


def serials(path: str, text: str) -> set[str]:
    """Serial numbers that a file tells."""
    found = {match.group(1) for pattern in _SERIALS for match in pattern.finditer(text)}
    if "/dmi/id/" in path and path.endswith(("serial", "asset_tag")):
        found.add(text.strip())
    lines = text.splitlines()
    header = [cell.strip() for cell in lines[0].split(",")] if path.endswith(".csv") and lines else []
    for column, name in enumerate(header):
        if "serial" in name.lower():
            found |= {cells[column].strip() for line in lines[1:] if len(cells := line.split(",")) > column}
    return {value for value in found if len(value) >= 4 and not _NO_SERIAL.match(value)}


def host_names(path: str, text: str) -> set[str]:
    """Names that a host gives itself, and the domains behind them."""
    if path.endswith(("root/etc/hostname", "root/proc/sys/kernel/hostname", "/hostname.txt")):
        return {text.strip()} - {"", "localhost"}
    return set()


class Redactor:
    """Replacements for one bundle. *names*: host names, *secret*: what the replacements follow from."""

    def __init__(self, names: t.Iterable[str], serial_numbers: t.Iterable[str], secret: bytes) -> None:
        self.secret = secret
        self.names: dict[str, str] = {}
        self.domains: set[str] = set()
        for name in sorted({name.lower() for name in names}, key=natural):
            self._add_name(name)
        self.serials = {value: self._serial(value) for value in serial_numbers}
        # A name that is a plain word (vm) stands in keys and options as well: vm.swappiness, --vm.
        plain = [name for name in self.names if name.isalpha()]
        marked = [name for name in self.names if name not in plain]
        self._plain = _alternatives(plain, r"(?<![\w.-])", r"(?![\w-]|\.(?!example\.invalid)\w)")
        self._names = _alternatives(marked, r"(?<![\w-])(?<!\w\.)", r"(?![\w-])")
        self._in_names = _alternatives(marked, r"(?<![^\W_])(?<!-)", r"(?![^\W_]|-)")
        self._serials = _alternatives(self.serials, r"(?<![\w])", r"(?![\w])")
        domains = sorted(self.domains, key=len, reverse=True)
        self._domains = re.compile("|".join(rf"\.{re.escape(d)}(?![\w-])" for d in domains) or r"(?!)", re.IGNORECASE)

    def _add_name(self, name: str) -> None:
        if _is_address(name):
            return
        short, _, domain = name.partition(".")
        if short in ("", "localhost"):
            return
        self.names.setdefault(short, f"host-{len(self.names) + 1:03d}")
        if domain and "." in domain:
            self.domains.add(domain)

    def _digest(self, kind: str, value: str) -> str:
        return hmac.new(self.secret, f"{kind}:{value}".encode(), hashlib.sha256).hexdigest()

    # --- a text, a name ------------------------------------------------------------------------

    def text(self, text: str, path: str = "") -> str:
        text = self._serials.sub(lambda m: self.serials[m[0]], text)
        text = self._domains.sub(".example.invalid", text)
        for names in (self._names, self._plain):
            text = names.sub(lambda m: self.names[m[0].lower()], text)
        text = _UUID.sub(lambda m: self._uuid(m[0]), text)
        text = _HARDWARE.sub(lambda m: self._hardware(m[0]), text)
        text = _GUID.sub(lambda m: self._guid(m[0]), text)
        text = _IPV6.sub(lambda m: self._ipv6(m[1], m[2] or ""), text)
        if path.endswith("/proc/net/route"):
            return re.sub(r"(?<=\t)[0-9A-F]{8}(?=\t)", lambda m: self._route_word(m[0]), text)
        return text if _VERSIONS.search(path) else _IPV4.sub(lambda m: self._ipv4(m[1], m[2] or ""), text)

    def name(self, name: str) -> str:
        """A file's name, in which `_` stands for a blank."""
        return self.text(self._in_names.sub(lambda m: self.names[m[0].lower()], name))

    def data(self, data: bytes, path: str = "") -> bytes:
        """A file's contents; in what is no text (VPD) the serial numbers, whose replacements are as long."""
        if b"\0" in data:
            for value, replacement in self.serials.items():
                data = data.replace(value.encode(), replacement.encode())
            return data
        # latin-1 keeps every byte, whatever the encoding; what is looked for is ASCII.
        return self.text(data.decode("latin-1"), path).encode("latin-1")

    # --- one replacement each ------------------------------------------------------------------

    def _serial(self, value: str) -> str:
        digest = self._digest("serial", value).upper()
        return "".join(char if char in "-." else digest[n % len(digest)] for n, char in enumerate(value))

    def _uuid(self, value: str) -> str:
        digits = value.replace("-", "").lower()
        if not digits.strip("0") or not digits.strip("f"):
            return value
        fresh = iter(self._digest("uuid", digits))
        return "".join(char if char == "-" else next(fresh) for char in value)

    def _guid(self, value: str) -> str:
        digits = value.lower().removeprefix("0x").replace(":", "")
        if not digits.strip("0") or not digits.strip("f") or digits.startswith("fe80") or digits.isdecimal():
            return value
        # The maker's prefix stays: it tells nothing of the rack.
        return _in_place(value, "0x" if value.lower().startswith("0x") else "", digits[:6] + self._tail(digits, 10))

    def _hardware(self, value: str) -> str:
        digits = re.sub("[:-]", "", value).lower()
        if not digits.strip("0") or not digits.strip("f"):
            return value
        if len(digits) == 16:
            return _in_place(value, "", digits[:6] + self._tail(digits, 10))
        kept = 6 if len(digits) == 12 else len(digits) - 16 + 6
        return _in_place(value, "", digits[:kept] + self._tail(digits[-16:], len(digits) - kept))

    def _tail(self, digits: str, length: int) -> str:
        return self._digest("hardware", digits)[:length]

    def _ipv4(self, value: str, length: str) -> str:
        try:
            address = ipaddress.IPv4Address(value)
        except ValueError:
            return value + length
        first = int(address) >> 24
        if not 1 <= first <= 223 or any(address in net for net in _KEPT):
            return value + length
        bits = int(length[1:]) if length else 32
        return str(self._map_ipv4(address, min(bits, 32))) + length

    def _map_ipv4(self, address: ipaddress.IPv4Address, bits: int) -> ipaddress.IPv4Address:
        """Prefix-preserving: the first and the last octet stay, each bit between follows from those before it.

        Of a network only its own bits change, so that it stays the network of its addresses.
        """
        old = new = int(address)
        network = old & ((1 << (32 - bits)) - 1) == 0
        for position in range(8, min(bits, 24) if network else 24):
            if int(self._digest("ipv4", f"{old >> (32 - position):x}/{position}")[0], 16) & 1:
                new ^= 1 << (31 - position)
        return ipaddress.IPv4Address(new)

    def _route_word(self, word: str) -> str:
        """/proc/net/route: the bytes of an address back to front; masks and flags are no unicast addresses."""
        address = ipaddress.IPv4Address(bytes.fromhex(word)[::-1])
        if not 1 <= int(address) >> 24 <= 223 or any(address in net for net in _KEPT):
            return word
        size = 24 if int(address) & 0xFF == 0 else 32
        return self._map_ipv4(address, size).packed[::-1].hex().upper()

    def _ipv6(self, value: str, length: str) -> str:
        groups = value.split(":")
        exploded = len(groups) == 8 and all(len(group) == 4 for group in groups)  # as GIDs are written
        if not exploded and ("::" not in value and (len(groups) < 8 or all(len(group) == 2 for group in groups))):
            return value + length  # a time, a hardware address
        try:
            address = ipaddress.IPv6Address(value)
        except ValueError:
            return value + length
        if address.ipv4_mapped is not None:
            mapped = ipaddress.IPv4Address(self._ipv4(str(address.ipv4_mapped), ""))
            address = ipaddress.IPv6Address(0xFFFF << 32 | int(mapped))
        else:
            address = self._map_ipv6(address, min(int(length[1:]), 128) if length else 128)
        return (address.exploded if exploded else str(address)) + length

    def _map_ipv6(self, address: ipaddress.IPv6Address, bits: int) -> ipaddress.IPv6Address:
        if int(address) < 1 << 16 or address.is_multicast:
            return address
        high, low = int(address) >> 64, int(address) & ((1 << 64) - 1)
        if not address.is_link_local:
            # 16 bits stay (fd00 or 2001 tells the kind), the rest of the /64 follows from it.
            high = (high >> 48 << 48) | int(self._digest("ipv6", f"{high:x}")[:12], 16)
        if low > 0xFFFF:
            low = int(self._digest("interface", f"{low:x}")[:16], 16)
        mask = ((1 << bits) - 1) << (128 - bits) if int(address) & ((1 << (128 - bits)) - 1) == 0 else -1
        return ipaddress.IPv6Address((high << 64 | low) & mask & ((1 << 128) - 1))


def _alternatives(words: t.Iterable[str], before: str, after: str) -> re.Pattern[str]:
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(f"{before}(?:{listed}){after}" if listed else r"(?!)", re.IGNORECASE)


def _in_place(value: str, start: str, digits: str) -> str:
    """*digits* with the separators and the case of *value*."""
    fresh = iter(digits)
    body = "".join(char if char in ":-" else next(fresh) for char in value[len(start) :])
    return value[: len(start)] + (body.upper() if value.isupper() else body)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


__all__ = ("Redactor", "host_names", "serials")
