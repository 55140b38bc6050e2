# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other addresses for those of a rack, by a permutation that keeps prefixes. Pure.

Two addresses have as many leading bits in common after it as before, so networks keep to lie in each other, or apart.
The same holds against networks that mean the same on every rack (private, link-local, of a container engine), which the
permutation maps to themselves.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import typing as t

# What is in them is known to rules or says nothing of a rack: bridges of container engines and hypervisors, and so on.
UNTOUCHED4 = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.17.0.0/16", "192.168.122.0/24", "224.0.0.0/3")
# Inside stays inside and outside stays outside.
BORDERS4 = ("172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
# As often another key is tried before an address of the rack may get one that the rack has elsewhere.
_TRIES = 64

Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


class Permutation:
    """Of addresses that are *width* bits long; the first *head* bits and those from *tail* on stay."""

    def __init__(self, secret: bytes, width: int, head: int, tail: int) -> None:
        self.width, self.head, self.tail = width, head, tail
        self.secret, self.key = secret, secret
        self.kept: list[tuple[int, int]] = []  # length, prefix: what lies in it only moves with it
        self.pinned: set[tuple[int, int]] = set()  # after this prefix a bit stays
        self.seen: set[int] = set()
        self._flips: dict[tuple[int, int], int] = {}
        self._settled = False

    def border(self, network: Network) -> None:
        value, length = int(network.network_address), network.prefixlen
        self.pinned |= {(bits, value >> (self.width - bits)) for bits in range(length)}

    def keep_inside(self, network: Network) -> None:
        """Subnets keep their places in a network, as a plan counts them, if the network itself can move."""
        if network.prefixlen >= self.head + 4:
            self.kept.append((network.prefixlen, int(network.network_address) >> (self.width - network.prefixlen)))

    def see(self, value: int) -> None:
        self.seen.add(value >> (self.width - self.tail))

    def network(self, value: int, length: int) -> int:
        self._settle()
        return self._moved(value, min(length, self.tail))

    def host(self, value: int) -> int:
        self._settle()
        return self._moved(value, self.tail)

    def _settle(self) -> None:
        """Take the first key under which no address of the rack becomes another one of the rack, or itself.

        Where there are several, one that leaves the larger networks of the rack, too.
        """
        if self._settled:
            return
        self._settled = True
        shift = self.width - self.tail
        larger = {value >> 8 for value in self.seen}
        best: tuple[tuple[int, int], bytes] | None = None
        for attempt in range(_TRIES):
            self.key = self.secret + bytes([attempt])
            self._flips.clear()
            moved = [self._moved(value << shift, self.tail) >> shift for value in self.seen]
            clashes = sum(value in self.seen for value in moved), sum(value >> 8 in larger for value in moved)
            if best is None or clashes < best[0]:
                best = (clashes, self.key)
            if not any(clashes):
                return
        self.key = best[1] if best else self.secret
        self._flips.clear()

    def _moved(self, value: int, length: int) -> int:
        moved = value
        for bits in range(self.head, length):
            if self._flip(bits, value >> (self.width - bits)):
                moved ^= 1 << (self.width - 1 - bits)
        return moved

    def _flip(self, bits: int, prefix: int) -> int:
        """Whether the bit after a prefix changes: it follows from the prefix alone."""
        place = (bits, prefix)
        if place not in self._flips:
            stays = place in self.pinned or any(
                bits >= length and prefix >> (bits - length) == kept for length, kept in self.kept
            )
            digest = hmac.new(self.key, f"{self.width}:{bits}:{prefix:x}".encode(), hashlib.sha256).digest()
            self._flips[place] = 0 if stays else digest[0] & 1
        return self._flips[place]


class Interfaces(t.Protocol):
    def eui64(self, digits: str) -> str | None: ...

    def tail(self, digits: str) -> str: ...


class Networks:
    """Addresses of both families. *hardware* knows what an interface identifier becomes."""

    def __init__(self, secret: bytes, hardware: Interfaces) -> None:
        self.hardware = hardware
        self.four = Permutation(secret + b"4", 32, 8, 24)
        # 16 bits tell the kind of an IPv6 prefix. The last 16 are numbers that people give, as the last octet is.
        self.six = Permutation(secret + b"6", 128, 16, 112)
        self.untouched4 = [ipaddress.IPv4Network(net) for net in UNTOUCHED4]
        self.known: set[int] = set()  # IPv4 hosts and networks that stood where only an address stands
        self.known24: set[int] = set()
        for net in (*BORDERS4, *UNTOUCHED4):
            self.border(net)

    def border(self, network: str) -> None:
        net = ipaddress.ip_network(network)
        (self.four if net.version == 4 else self.six).border(net)

    def keep_inside(self, network: str) -> None:
        net = ipaddress.ip_network(network)
        (self.four if net.version == 4 else self.six).keep_inside(net)

    # --- IPv4 ----------------------------------------------------------------------------------

    def movable(self, address: ipaddress.IPv4Address) -> bool:
        return not any(address in net for net in self.untouched4)

    def learn(self, address: ipaddress.IPv4Address) -> None:
        if self.movable(address):
            self.known.add(int(address))
            self.known24.add(int(address) >> 8)
            self.four.see(int(address))

    def is_known(self, address: ipaddress.IPv4Address) -> bool:
        return int(address) >> 8 in self.known24

    def ipv4(self, address: ipaddress.IPv4Address, length: int = 32) -> ipaddress.IPv4Address:
        """Of a network only its own bits change, so that it stays the network of its addresses."""
        if not self.movable(address):
            return address
        value = int(address)
        if length < 32 and not value & ((1 << (32 - length)) - 1):
            return ipaddress.IPv4Address(self.four.network(value, length))
        return ipaddress.IPv4Address(self.four.host(value))

    def ipv4_range(self, first: ipaddress.IPv4Address, last: ipaddress.IPv4Address) -> list[str]:
        """What a range becomes: a range again, or several where the permutation takes it apart."""
        if int(first) >> 8 == int(last) >> 8 or first > last:
            return [f"{self.ipv4(first)}-{self.ipv4(last)}"]
        blocks = [
            ipaddress.IPv4Network((self.ipv4(net.network_address, net.prefixlen), net.prefixlen), strict=False)
            for net in ipaddress.summarize_address_range(first, last)
        ]
        spans: list[tuple[int, int]] = []
        for net in sorted(blocks):
            start, end = int(net.network_address), int(net.broadcast_address)
            if spans and spans[-1][1] + 1 == start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        return [f"{ipaddress.IPv4Address(start)}-{ipaddress.IPv4Address(end)}" for start, end in spans]

    # --- IPv6 ----------------------------------------------------------------------------------

    def ipv6(self, address: ipaddress.IPv6Address, length: int = 128) -> ipaddress.IPv6Address:
        if address.ipv4_mapped is not None:
            return ipaddress.IPv6Address(0xFFFF << 32 | int(self.ipv4(address.ipv4_mapped)))
        value = int(address)
        if address.is_multicast:
            if value >> 24 == 0xFF0200000000000000000001FF:  # solicited-node: the end of an interface identifier
                return ipaddress.IPv6Address(value >> 24 << 24 | int(self.hardware.tail(f"{value & 0xFFFFFF:06x}"), 16))
            return address
        if value < 1 << 16:
            return address
        if length < 128 and not value & ((1 << (128 - length)) - 1):
            return address if address.is_link_local else ipaddress.IPv6Address(self.six.network(value, length))
        low = value & ((1 << 64) - 1)
        moved = value if address.is_link_local else self.six.network(value, 64)
        identifier = self.hardware.eui64(f"{low:016x}")
        if identifier is not None:
            low = int(identifier, 16)
        elif low > 0xFFFF:
            low = self.six.host(value) & ((1 << 64) - 1)
        return ipaddress.IPv6Address(moved >> 64 << 64 | low)


__all__ = ("Networks", "Permutation")
