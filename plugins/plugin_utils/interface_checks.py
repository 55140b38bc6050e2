# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses and a gateway that a person gives an interface: whether a host can have them, and who has them already."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import value_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine

Interface: t.TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface
AN_ADDRESS = "an address"
HOSTS_ADDRESS = "an address of a host with its prefix length, such as 10.20.0.5/24"
BONDS, MANAGEMENT = "gpu_fabric_bonds", "gpu_fabric_management_link"


def interface(item: t.Any) -> Interface | None:
    """A host's address with its prefix length; None where it is none."""
    try:
        found = ipaddress.ip_interface(str(item))
    except ValueError:
        return None
    return found if "/" in str(item) and _is_hosts(found) else None


def _is_hosts(found: Interface) -> bool:
    """Neither the network's own address nor the broadcast address, where there are such, and one of a host at all."""
    if value_checks.unusable(str(found.ip)):
        return False
    network = found.network
    if network.prefixlen >= network.max_prefixlen - 1:
        return True
    return found.ip not in (network.network_address, *([network.broadcast_address] if network.version == 4 else []))


def gateways(given: t.Mapping[str, t.Any]) -> list[t.Any]:
    """Those of an interface: one, or a list of one for each family."""
    value = given.get("gateway")
    return list(value) if isinstance(value, (list, tuple)) else [] if value in (None, "") else [value]


def default_routes(given: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    return [{"dst": "default", "via": str(gateway)} for gateway in gateways(given)]


def gateway_faults(given: t.Mapping[str, t.Any], own: t.Sequence[Interface]) -> list[tuple[str, str]]:
    """(what is wrong with the gateways of an interface with *own* addresses, what is allowed)"""
    found = [fault for fault in (gateway_fault(gateway, own) for gateway in gateways(given)) if fault]
    versions = [] if found else [ipaddress.ip_address(str(gateway)).version for gateway in gateways(given)]
    return found + [(f"two of IPv{v}", "one for each family") for v in (4, 6) if versions.count(v) > 1]


def gateway_problems(
    variable: str, where: str, given: t.Mapping[str, t.Any], items: t.Sequence[str], whole: bool
) -> list[Problem]:
    """What is wrong with the gateways of an interface; where its addresses are not *whole*, with their form only."""
    own = [ipaddress.ip_interface(item) for item in items]
    faults = gateway_faults(given, own)
    if not whole:
        faults = [
            fault for gateway in gateways(given) if (fault := gateway_fault(gateway, own)) and fault[1] == AN_ADDRESS
        ]
    return [Problem(variable, fault, allowed, f"{where}.gateway") for fault, allowed in faults]


def addresses(variable: str, where: str, given: t.Any) -> tuple[dict[str, int], list[Problem]]:
    """A list of hosts' addresses, each with its place, and what is wrong with the others."""
    where = f"{where}.addresses"
    if given is None:
        return {}, []
    if not isinstance(given, (list, tuple)):
        return {}, [Problem(variable, f"{given!r} is not a list", f"a list, each item {HOSTS_ADDRESS}", where)]
    found: dict[str, int] = {}
    problems, seen = [], []
    for place, item in enumerate(given):
        own = interface(item)
        if own is None:
            told = (f"{item!r} is not allowed", HOSTS_ADDRESS)
        elif own.ip in seen:
            told = (f"{own.ip} stands there already", "each address once")
        else:
            found[str(item)] = place
            seen.append(own.ip)
            continue
        problems.append(Problem(variable, *told, f"{where}[{place}]"))
    return found, problems


def mtu(variable: str, where: str, given: t.Any) -> tuple[int | None, list[Problem]]:
    if given is None:
        return None, []
    if isinstance(given, bool) or not isinstance(given, int) or not 1280 <= given <= 9978:
        return None, [
            Problem(variable, f"{given!r} is not allowed", "a number from 1280 to 9978 bytes", f"{where}.mtu")
        ]
    return given, []


def gateway_fault(given: t.Any, own: t.Sequence[Interface]) -> tuple[str, str] | None:
    """(what is wrong with a gateway of an interface with *own* addresses, what is allowed); None where nothing is."""
    try:
        gateway = ipaddress.ip_address(str(given))
    except ValueError:
        return f"{given!r} is no address", AN_ADDRESS
    shown = ", ".join(map(str, own)) or "none"
    if gateway.version == 6 and gateway.is_link_local:
        # Routers announce themselves so, and an interface with IPv6 reaches them whatever its own addresses are.
        if any(item.version == 6 for item in own):
            return None
        return f"{gateway} is IPv6, and no address is ({shown})", "an address of the family that the addresses have"
    if any(gateway == item.ip for item in own):
        return f"{gateway} is the interface's own address", "another address of its network"
    if any(gateway in item.network for item in own):
        if any(interface(f"{gateway}/{item.network.prefixlen}") for item in own if gateway in item.network):
            return None
        return f"{gateway} is no host's address in {shown}", "another address of the network"
    return f"{gateway} is in no network of the addresses ({shown})", "an address in one of them"


def used_elsewhere(machine: Machine, own: t.Container[str], items: t.Iterable[t.Any]) -> t.Iterator[tuple[str, str]]:
    """Addresses in a network that another interface of the host is in: the host would send to it by one of the two."""
    for item in items:
        network = ipaddress.ip_interface(str(item)).network
        for dev in machine.netdevs.values():
            for other in dev.global_addresses if dev.name not in own and dev.name != "lo" else ():
                try:
                    used = ipaddress.ip_interface(other).network
                except ValueError:
                    continue
                if used.version == network.version and used.overlaps(network):
                    yield f"{item} overlaps {dev.name}'s {other}", "networks that no other interface of the host is in"


def too_large(machine: Machine, names: t.Iterable[str], mtu: int | None) -> t.Iterator[tuple[str, str]]:
    """An MTU that one of the interfaces cannot have."""
    for name in names:
        dev = machine.netdevs.get(name)
        if mtu and dev and dev.mtu_max and mtu > dev.mtu_max:
            yield f"{mtu}, and {name} allows {dev.mtu_max} at most", f"{dev.mtu_max} or less"


def given_addresses(intent: Intent) -> list[tuple[str, str, t.Any]]:
    """(variable, what, address) of everything that a person addresses on a host. For intents in good form."""
    found = [(MANAGEMENT, "addresses", item) for item in intent[MANAGEMENT].get("addresses", ())]
    for name, bond in intent[BONDS].items():
        found += [(BONDS, f"addresses of {name}", item) for item in bond.get("addresses") or ()]
    return found


def bond_networks(intent: Intent) -> list[tuple[str, str]]:
    return [(variable, str(item)) for variable, _, item in given_addresses(intent) if variable == BONDS]


def others_addresses(intents: t.Mapping[str, Intent], reached: t.Mapping[str, str]) -> list[tuple[str, Problem]]:
    """Addresses that other hosts of the rack are given, or are *reached* at."""
    found = []
    taken = {address: host for host, address in reached.items() if address}
    for host, intent in intents.items():
        for variable, what, item in given_addresses(intent):
            other = taken.setdefault(str(ipaddress.ip_interface(str(item)).ip), host)
            if other != host:
                found.append((host, Problem(variable, f"{item} in {what} is {other}'s", "addresses of no other host")))
    return found


__all__ = (
    "addresses",
    "bond_networks",
    "default_routes",
    "gateway_fault",
    "gateway_faults",
    "gateway_problems",
    "gateways",
    "given_addresses",
    "interface",
    "mtu",
    "others_addresses",
    "used_elsewhere",
)
