# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What an interface shall be and what it is, in one comparable shape. Pure."""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass, field

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure


class LinkError(Failure):
    """A wanted link makes no sense, or the system did not take it."""


MAIN_TABLE = 254


@dataclass(frozen=True)
class Route:
    """One route of an interface; ``dst`` is a network in CIDR or ``default``."""

    dst: str
    via: str | None = None
    table: int = MAIN_TABLE
    src: str | None = None

    @property
    def family(self) -> int:
        for address in (None if self.dst == "default" else self.dst, self.via, self.src):
            if address:
                return 6 if ":" in address else 4
        return 4

    def order(self) -> tuple[str, str, int, str]:
        """Sort key: what is on the link comes before what is reached over it."""
        return (self.via or "", self.dst, self.table, self.src or "")

    def describe(self) -> str:
        text = self.dst
        if self.via:
            text += f" via {self.via}"
        if self.src:
            text += f" src {self.src}"
        return text if self.table == MAIN_TABLE else f"{text} table {self.table}"


@dataclass(frozen=True, order=True)
class Rule:
    """One policy-routing rule: packets from ``source`` look in ``table``."""

    source: str
    table: int
    priority: int

    @property
    def family(self) -> int:
        return 6 if ":" in self.source else 4

    def describe(self) -> str:
        return f"{self.priority}: from {self.source} table {self.table}"


MODES = ("802.3ad", "active-backup")
LACP_RATES = ("slow", "fast")
HASH_POLICIES = ("layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4")


@dataclass(frozen=True)
class Bond:
    """What makes an interface a bond. ``None`` means: as the kernel has it."""

    mode: str
    members: tuple[str, ...] = ()
    miimon_ms: int | None = None
    lacp_rate: str | None = None
    xmit_hash_policy: str | None = None
    # Members whose MTU is not the bond's, as the kernel has them.
    other_mtus: tuple[tuple[str, int], ...] = ()

    def options(self) -> dict[str, str]:
        """The options that are given, by the names that the kernel has for them."""
        given = {
            "miimon": self.miimon_ms,
            "lacp_rate": self.lacp_rate,
            "xmit_hash_policy": self.xmit_hash_policy,
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    def describe(self) -> str:
        options = "".join(f" {name} {value}" for name, value in self.options().items())
        mtus = dict(self.other_mtus)
        members = [f"{name} (MTU {mtus[name]})" if name in mtus else name for name in self.members]
        return f"{self.mode} of {', '.join(members) or 'no members'}{options}"


TRANSPORTS = ("datagram", "connected")
# A P_Key's low 15 bits name the partition, bit 15 is full membership: without it, members cannot talk to each other.
FULL_MEMBERSHIP = 0x8000
DEFAULT_PKEY = 0xFFFF


@dataclass(frozen=True)
class Ipoib:
    """What makes an interface IP over InfiniBand. With a parent it is a partition's own interface over the port's."""

    mode: str = "datagram"
    parent: str | None = None
    pkey: int | None = None

    def describe(self) -> str:
        return f"{self.mode} of partition {self.pkey:#06x} over {self.parent}" if self.pkey else self.mode


@dataclass(frozen=True)
class Link:
    """One interface. ``None`` means: leave it as it is."""

    netdev: str
    mac: str | None = None
    mtu: int | None = None
    up: bool | None = True
    addresses: frozenset[str] = field(default_factory=frozenset)
    routes: frozenset[Route] = field(default_factory=frozenset)
    rules: frozenset[Rule] = field(default_factory=frozenset)
    # The host is managed through it: its addresses are all that it shall have, and every change needs a way back.
    management: bool = False
    bond: Bond | None = None
    ipoib: Ipoib | None = None
    # What the kernel calls an interface that is no port of a card: bond, bridge, vlan, …
    kind: str | None = None
    # Of a management interface: those in force, which its new file would else take away.
    name_servers: tuple[str, ...] = ()

    def describe(self) -> dict[str, t.Any]:
        """Return the link as a module's ``diff`` shows it."""
        return {
            **({"bond": self.bond.describe()} if self.bond else {}),
            **({"ipoib": self.ipoib.describe()} if self.ipoib else {}),
            "mtu": self.mtu,
            "up": self.up,
            "addresses": sorted(self.addresses),
            "routes": sorted(route.describe() for route in self.routes),
            "rules": sorted(rule.describe() for rule in self.rules),
        }


def interface_address(text: str, where: str) -> str:
    """Return ``address/prefix`` in canonical form; anything else raises LinkError naming ``where``."""
    if "/" not in str(text):
        raise LinkError(
            f"{where}: the address {text!r} has no prefix length; wanted address/prefix, such as 10.0.0.5/24"
        )
    try:
        return str(ipaddress.ip_interface(text))
    except ValueError as exc:
        raise LinkError(f"{where}: {text!r} is no address with a prefix length: {exc}") from exc


def host_or_network(text: str, where: str) -> str:
    """Return an address or a network in canonical form, as ``ip`` prints it (host networks without a prefix)."""
    try:
        network = ipaddress.ip_network(text, strict=True)
    except ValueError as exc:
        raise LinkError(f"{where}: {text!r} is neither an address nor a network: {exc}") from exc
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def host_address(text: str, where: str) -> str:
    """Return an address in canonical form, which is how the kernel writes it."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as exc:
        raise LinkError(f"{where}: {text!r} is no address") from exc


def wanted_route(raw: t.Mapping[str, t.Any], netdev: str) -> Route:
    """Build a Route from an entry of a link's ``routes``; every error names the interface."""
    where = f"{netdev}: route {raw['dst']}"
    route = Route(
        dst="default" if raw["dst"] == "default" else host_or_network(raw["dst"], f"{netdev}: route"),
        via=host_address(raw["via"], where) if raw.get("via") else None,
        table=int(raw.get("table") or MAIN_TABLE),
        src=host_address(raw["src"], where) if raw.get("src") else None,
    )
    if len({":" in item for item in (route.dst, route.via, route.src) if item and item != "default"}) > 1:
        raise LinkError(f"{netdev}: route {route.describe()}: addresses of both families in one route")
    return route


def wanted_bond(raw: t.Mapping[str, t.Any], netdev: str) -> Bond:
    """Build a Bond from a link's ``bond``; every error names the interface."""
    members = tuple(str(name) for name in raw.get("members") or ())
    if not members or netdev in members or len(set(members)) < len(members):
        raise LinkError(f"{netdev}: a bond needs members, each another interface and each once, not {list(members)}")
    for key, allowed in (("mode", MODES), ("lacp_rate", LACP_RATES), ("xmit_hash_policy", HASH_POLICIES)):
        if raw.get(key) not in (*allowed, *([] if key == "mode" else [None])):
            raise LinkError(f"{netdev}: {key} is {raw.get(key)!r}; it can be {', '.join(allowed)}")
    if raw.get("lacp_rate") and raw["mode"] != "802.3ad":
        raise LinkError(f"{netdev}: lacp_rate belongs to mode 802.3ad, not to {raw['mode']}")
    return Bond(
        mode=raw["mode"],
        members=tuple(sorted(members)),
        miimon_ms=int(raw.get("miimon_ms") or 100),
        lacp_rate=raw.get("lacp_rate"),
        xmit_hash_policy=raw.get("xmit_hash_policy"),
    )


def wanted_ipoib(raw: t.Mapping[str, t.Any], netdev: str) -> Ipoib:
    """Build an Ipoib from a link's ``ipoib``; every error names the interface."""
    mode, parent, pkey = raw.get("mode") or "datagram", raw.get("parent") or None, raw.get("pkey")
    if mode not in TRANSPORTS:
        raise LinkError(f"{netdev}: the transport mode is {mode!r}; it can be {' or '.join(TRANSPORTS)}")
    if pkey is None and parent is None:
        return Ipoib(mode)
    try:
        key = int(str(pkey), 0)
    except ValueError:
        key = 0
    if not FULL_MEMBERSHIP < key < DEFAULT_PKEY or parent is None or parent == netdev:
        raise LinkError(
            f"{netdev}: a partition needs the interface of its port (parent: {parent!r}) and a key from 0x8001 to"
            f" 0xfffe (pkey: {pkey!r})"
        )
    return Ipoib(mode, parent, key)


def wanted_link(raw: t.Mapping[str, t.Any]) -> Link:
    """Build a Link from one entry of the plan's ``links``; every error names the interface."""
    netdev = str(raw.get("netdev") or "")
    if not netdev or "/" in netdev or len(netdev) > 15 or any(char.isspace() for char in netdev):
        raise LinkError(f"{netdev!r} is no interface name (1 to 15 characters, no blank, no slash)")
    mtu = raw.get("mtu")
    if mtu is not None:
        mtu = int(mtu)
        if not 68 <= mtu <= 65535:
            raise LinkError(f"{netdev}: MTU {mtu} is outside 68 to 65535 bytes")
    if raw.get("management") and not raw.get("addresses"):
        raise LinkError(f"{netdev}: a management interface without addresses would cut the host off; give all it has")
    routes = frozenset(wanted_route(entry, netdev) for entry in raw.get("routes") or ())
    rules = frozenset(
        Rule(
            source=host_or_network(entry["from"], f"{netdev}: rule"),
            table=int(entry["table"]),
            priority=int(entry["priority"]),
        )
        for entry in raw.get("rules") or ()
    )
    return Link(
        netdev=netdev,
        mac=(raw.get("mac") or "").lower() or None,
        mtu=mtu,
        addresses=frozenset(interface_address(text, netdev) for text in raw.get("addresses") or ()),
        routes=routes,
        rules=rules,
        management=bool(raw.get("management")),
        bond=wanted_bond(raw["bond"], netdev) if raw.get("bond") else None,
        ipoib=wanted_ipoib(raw["ipoib"], netdev) if raw.get("ipoib") else None,
    )


def wanted_links(raw: t.Iterable[t.Mapping[str, t.Any]]) -> list[Link]:
    """Build all links; two entries of one interface, or one address twice, raise LinkError."""
    links = [wanted_link(entry) for entry in raw]
    seen: dict[str, str] = {}
    for link in links:
        members = link.bond.members if link.bond else ()
        for key in (link.netdev, *members, *(address.split("/")[0] for address in link.addresses)):
            if key in seen:
                raise LinkError(f"{link.netdev}: {key} is already given to {seen[key]}; each may stand once")
            seen[key] = link.netdev
    return links


__all__ = (
    "Bond",
    "Ipoib",
    "Link",
    "LinkError",
    "Route",
    "Rule",
    "host_or_network",
    "interface_address",
    "wanted_ipoib",
    "wanted_link",
    "wanted_links",
)
