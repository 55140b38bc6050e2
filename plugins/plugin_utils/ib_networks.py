# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the intent says of IP over InfiniBand: the ports' own interfaces, and partitions; read, and refused by name."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

import netaddr

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import value_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem, at, unknown_keys

IPOIB = "gpu_fabric_ipoib"
PARTITIONS = "gpu_fabric_ib_partitions"
# The low 15 bits name a partition. Two members without the highest bit cannot talk to each other.
FULL = 0x8000
DEFAULT_PKEY = 0xFFFF
# Datagrams travel in one InfiniBand packet, of which IP over InfiniBand takes four bytes.
ENCAPSULATION = 4
DATAGRAM_MTU = 4096 - ENCAPSULATION
CONNECTED_MTU = 65520
MODES = ("datagram", "connected")
KEYS = ("rails", "ipv4", "ipv4_prefix", "ipv6", "ipv6_prefix", "mtu", "mode")
PARTITION_KEYS = ("pkey", "name", "members", *KEYS)
_PREFIXES = {4: ("ipv4", 24, 30), 6: ("ipv6", 64, 120)}
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")
_GUID = re.compile(r"^0x[0-9a-f]{16}$")


@dataclass(frozen=True)
class Network:
    """One interface per chosen rail: the port's own, or that of a partition. ``None``: not given."""

    variable: str
    name: str
    pkey: int | None
    rails: tuple[int, ...] | None
    pools: tuple[tuple[int, str, int], ...]
    mtu: int | None
    mode: str
    members: tuple[str, ...] | None

    def place(self, rail: int) -> int | None:
        """Which of the network's subnets a rail has; None where the rail is not chosen."""
        if self.rails is None:
            return rail
        return self.rails.index(rail) if rail in self.rails else None

    @property
    def title(self) -> str:
        return f"partition {self.pkey:#06x}" if self.pkey else self.variable


def read(intent: Intent) -> list[Network]:
    """The networks, the ports' own first. Raises nothing where ``problems`` has found nothing."""
    found = [_network(IPOIB, intent[IPOIB])] if intent[IPOIB] else []
    return found + [_network(PARTITIONS, given) for given in intent[PARTITIONS]]


def _network(variable: str, given: t.Mapping[str, t.Any]) -> Network:
    pkey = key(given["pkey"]) if variable == PARTITIONS else None
    rails, members = given.get("rails", "all"), given.get("members", "all")
    mtu = given.get("mtu", "auto")
    pools = tuple(
        (version, str(given[family]), given.get(f"{family}_prefix") or _prefix(given[family], usual))
        for version, (family, usual, _) in _PREFIXES.items()
        if given.get(family)
    )
    return Network(
        variable=variable,
        name=given.get("name") or (f"partition-{pkey:04x}" if pkey else "Default"),
        pkey=pkey,
        rails=None if rails == "all" else tuple(rails),
        pools=pools,
        mtu=None if mtu == "auto" else mtu,
        mode=given.get("mode", "datagram"),
        members=None if members == "all" else tuple(members),
    )


def _prefix(pool: t.Any, usual: int) -> int:
    return max(usual, int(netaddr.IPNetwork(str(pool)).prefixlen))


def key(value: t.Any) -> int | None:
    """A P_Key as YAML gives it: a number, or a text such as 0x8001."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value, 16) if isinstance(value, str) and value.lower().startswith("0x") else int(value)
    except ValueError:
        return None


def problems(intent: Intent) -> list[Problem]:
    """What cannot be meant."""
    found: list[Problem] = []
    sound: list[Network] = []
    given = intent[IPOIB]
    if given:
        found += _common_problems(IPOIB, "", given, KEYS)
        if not found:
            sound.append(_network(IPOIB, given))
        if not given.get("ipv4") and not given.get("ipv6"):
            found.append(Problem(IPOIB, "no pool, so no interface would get an address", "ipv4, ipv6, or both"))
    keys: dict[int, int] = {}
    names: dict[str, int] = {}
    for position, entry in enumerate(intent[PARTITIONS]):
        where = at(position)
        wrong = _common_problems(PARTITIONS, where, entry, PARTITION_KEYS)
        wrong += _key_problems(where, entry.get("pkey"), position, keys)
        name = entry.get("name")
        if name is not None and (not isinstance(name, str) or not _NAME.match(name) or name == "Default"):
            allowed = "letters, digits, _ and -, beginning with a letter, at most 32; not Default"
            wrong.append(Problem(PARTITIONS, f"{name!r} is not allowed", allowed, f"{where}.name"))
        elif name is not None and names.setdefault(name, position) != position:
            message = f"{name} is the name of {PARTITIONS}[{names[name]}], too"
            wrong.append(Problem(PARTITIONS, message, "each name once", f"{where}.name"))
        wrong += _member_problems(where, entry.get("members", "all"))
        sound += [_network(PARTITIONS, entry)] if not wrong else []
        found += wrong
    return found + _overlaps(sound, intent["gpu_fabric_admin_networks"])


def _key_problems(where: str, value: t.Any, position: int, keys: dict[int, int]) -> list[Problem]:
    number, allowed = key(value), "a key from 0x8001 to 0xfffe: the highest bit is full membership"
    where = f"{where}.pkey"
    if number is None:
        return [Problem(PARTITIONS, "missing" if value is None else f"{value!r} is no key", allowed, where)]
    shown = f"{number:#06x}" if number >= 0 else str(number)
    if not 0 <= number <= 0xFFFF:
        return [Problem(PARTITIONS, f"{shown} is no 16-bit number", allowed, where)]
    if number & ~FULL == 0:
        return [Problem(PARTITIONS, f"{shown} names no partition: its low 15 bits are 0", allowed, where)]
    if number & ~FULL == DEFAULT_PKEY & ~FULL:
        reason = f"is the default partition, in which every port is; {IPOIB} addresses its interfaces"
        return [Problem(PARTITIONS, f"{shown} {reason}", allowed, where)]
    if not number & FULL:
        full = _meant(value, number)
        reason = f"lacks the bit of full membership: limited members cannot talk to each other; write {full:#x}"
        return [Problem(PARTITIONS, f"{shown} {reason}", allowed, where)]
    other = keys.setdefault(number, position)
    if other != position:
        return [Problem(PARTITIONS, f"{shown} is that of {PARTITIONS}[{other}], too", "each key once", where)]
    return []


def _meant(value: t.Any, number: int) -> int:
    """Tools print keys as four hexadecimal digits, often without 0x."""
    printed = re.fullmatch(r"[89a-fA-F][0-9a-fA-F]{3}", str(value))
    return int(printed[0], 16) if printed else number | FULL


def _member_problems(where: str, members: t.Any) -> list[Problem]:
    allowed = "all, or a list of port GUIDs such as 0xa088c203004d1122"
    if members == "all":
        return []
    if not isinstance(members, (list, tuple)) or not members:
        return [Problem(PARTITIONS, f"{members!r} is not allowed", allowed, f"{where}.members")]
    return [
        Problem(PARTITIONS, f"{item!r} is no port's GUID", allowed, where + at("members", place))
        for place, item in enumerate(members)
        if not isinstance(item, str) or not _GUID.match(item)
    ]


def _common_problems(variable: str, where: str, given: t.Mapping[str, t.Any], keys: tuple[str, ...]) -> list[Problem]:
    found = unknown_keys(variable, where, given, keys)
    rails = given.get("rails", "all")
    if rails != "all":
        numbers = rails if isinstance(rails, (list, tuple)) else ()
        good = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 64]
        if not numbers or good != list(numbers) or len(set(good)) < len(good):
            allowed = "all, or a list of rail numbers, each once"
            found.append(Problem(variable, f"{rails!r} is not allowed", allowed, f"{where}.rails"))
    for version, (family, _, longest) in _PREFIXES.items():
        found += _pool_problems(variable, where, given, version, family, longest)
    mode, mtu = given.get("mode", "datagram"), given.get("mtu", "auto")
    if mode not in MODES:
        found.append(Problem(variable, f"{mode!r} is not allowed", " or ".join(MODES), f"{where}.mode"))
    largest = CONNECTED_MTU if mode == "connected" else DATAGRAM_MTU
    if mtu != "auto" and (isinstance(mtu, bool) or not isinstance(mtu, int) or not 1280 <= mtu <= largest):
        allowed = f"auto, 2044, {DATAGRAM_MTU}, or another number from 1280 to {largest} bytes"
        found.append(Problem(variable, f"{mtu!r} is not allowed", allowed, f"{where}.mtu"))
    return found


def _pool_problems(
    variable: str, where: str, given: t.Mapping[str, t.Any], version: int, family: str, longest: int
) -> list[Problem]:
    pool, prefix = given.get(family), given.get(f"{family}_prefix")
    if not pool:
        unused = prefix is not None
        where = f"{where}.{family}_prefix"
        return [Problem(variable, f"{prefix!r} without {family}", "both or none", where)] if unused else []
    try:
        network = netaddr.IPNetwork(str(pool)) if "/" in str(pool) else None
    except (netaddr.AddrFormatError, ValueError):
        network = None
    if network is None or network.version != version or network.ip != network.network:
        example = "10.240.0.0/16" if version == 4 else "fd00:240::/48"
        allowed = f"a network such as {example}, without host bits"
        return [Problem(variable, f"{pool!r} is not allowed", allowed, f"{where}.{family}")]
    if unusable := value_checks.unusable(str(network)):
        return [Problem(variable, unusable, "a network of unicast addresses", f"{where}.{family}")]
    usable = isinstance(prefix, int) and not isinstance(prefix, bool) and network.prefixlen <= prefix <= longest
    if prefix is not None and not usable:
        allowed = f"a number from {network.prefixlen} (the pool's) to {longest}"
        return [Problem(variable, f"{prefix!r} is not allowed", allowed, f"{where}.{family}_prefix")]
    if prefix is None and network.prefixlen > longest:
        return [Problem(variable, f"{pool} has no room", f"a pool of /{longest} or shorter", f"{where}.{family}")]
    return []


def _overlaps(networks: t.Sequence[Network], administration: t.Sequence[str]) -> list[Problem]:
    """Pools must be apart from each other and from where administration comes from."""
    used = [(network, netaddr.IPNetwork(pool)) for network in networks for _, pool, _ in network.pools]
    found = []
    for position, (network, pool) in enumerate(used):
        for other, another in used[:position]:
            if pool in another or another in pool:
                message = f"{pool} overlaps {another} of {other.title}"
                found.append(Problem(network.variable, message, "pools that do not overlap"))
        for admin in map(netaddr.IPNetwork, administration):
            if admin in pool and admin != pool:
                message = f"{admin} overlaps {pool} of {network.title}"
                found.append(Problem("gpu_fabric_admin_networks", message, "networks that do not overlap the pools"))
    return found
