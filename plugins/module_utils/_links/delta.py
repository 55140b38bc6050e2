# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The commands that lead an interface from what it is to what it shall be. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    Bond,
    Ipoib,
    Link,
    Route,
    Rule,
)


class Delta(t.NamedTuple):
    """The commands for one interface, and its state before and after them."""

    netdev: str
    commands: list[list[str]]
    before: dict[str, t.Any]
    after: dict[str, t.Any]


def in_order(deltas: t.Iterable[Delta]) -> list[list[str]]:
    """Return the commands of all interfaces: what goes goes first, for it may be another one's from now on."""
    commands = [argv for item in deltas for argv in item.commands]
    return sorted(commands, key=lambda argv: not {"del", "flush"} & set(argv[2:4]))


def family_flag(family: int) -> str:
    return "-6" if family == 6 else "-4"


def route_command(verb: str, route: Route, netdev: str) -> list[str]:
    command = ["ip", family_flag(route.family), "route", verb, route.dst]
    if route.via:
        command += ["via", route.via]
    command += ["dev", netdev]
    if route.src:
        command += ["src", route.src]
    return [*command, "table", str(route.table)]


def rule_command(verb: str, rule: Rule) -> list[str]:
    return [
        "ip", family_flag(rule.family), "rule", verb,
        "from", rule.source, "table", str(rule.table), "priority", str(rule.priority),
    ]  # fmt: skip


def bond_commands(name: str, wanted: Bond, present: Bond | None, ours: Bond | None) -> list[list[str]]:
    """Return what makes a bond of an interface: created, its options, members taken in and, of ours, let go."""
    commands = []
    options = [word for pair in wanted.options().items() for word in pair]
    if present is None:
        commands.append(["ip", "link", "add", name, "type", "bond", "mode", wanted.mode, *options])
    elif differing(wanted, present):
        changed = [word for key in differing(wanted, present) for word in (key, wanted.options()[key])]
        commands.append(["ip", "link", "set", "dev", name, "type", "bond", *changed])
    here = present.members if present else ()
    for member in ours.members if ours else ():
        if member in here and member not in wanted.members:
            commands.append(["ip", "link", "set", "dev", member, "nomaster"])
    for member in wanted.members:
        if member not in here:
            # The kernel takes in only what is down, and brings it up then.
            commands.append(["ip", "link", "set", "dev", member, "down"])
            commands.append(["ip", "link", "set", "dev", member, "master", name])
    return commands


def differing(wanted: Bond, present: Bond) -> list[str]:
    now = present.options()
    return [key for key, value in wanted.options().items() if now.get(key) != value]


def ipoib_commands(name: str, wanted: Ipoib, present: Ipoib | None) -> list[list[str]]:
    """Return what makes a partition's interface where it is not, and gives an interface its transport mode."""
    if wanted.parent and present is None:
        return [["ip", "link", "add", "link", wanted.parent, "name", name, "type", "ipoib",
                 "pkey", f"{wanted.pkey:#06x}", "mode", wanted.mode]]  # fmt: skip
    if present is not None and present.mode != wanted.mode:
        return [["ip", "link", "set", "dev", name, "type", "ipoib", "mode", wanted.mode]]
    return []


def removal(present: Link, members: t.Mapping[str, t.Mapping[str, t.Any]]) -> Delta:
    """Return what takes away an interface that an earlier run made. The kernel puts a bond's ``members`` down.

    What each of them was before the bond is given by its name.
    """
    commands = [rule_command("del", rule) for rule in sorted(present.rules)]
    commands.append(["ip", "link", "delete", "dev", present.netdev])
    for member, found in sorted(members.items()):
        if found.get("mtu") is not None:
            commands.append(["ip", "link", "set", "dev", member, "mtu", str(found["mtu"])])
        if found.get("up"):
            commands.append(["ip", "link", "set", "dev", member, "up"])
    return Delta(present.netdev, commands, present.describe(), {})


def delta(wanted: Link, present: Link, ours: Link | None = None) -> Delta:
    """Return what makes ``present`` as ``wanted``.

    Only what is wanted is added; only what ``ours`` (the link of the previous run) brought and
    ``wanted`` no longer names is removed. Addresses, routes and rules of others stay; a management
    interface alone keeps no address but the wanted ones.
    """
    ours = ours or Link(netdev=wanted.netdev)
    name = wanted.netdev
    commands: list[list[str]] = []
    # Rules go first and come last: a rule that points at an empty table would cut traffic.
    gone_rules = (ours.rules - wanted.rules) & present.rules
    gone_routes = (ours.routes - wanted.routes) & present.routes
    gone_addresses = (present.addresses if wanted.management else ours.addresses & present.addresses) - wanted.addresses
    commands += [rule_command("del", rule) for rule in sorted(gone_rules)]
    commands += [route_command("del", route, name) for route in sorted(gone_routes, key=Route.order)]
    # Not `del`: it fails for one that went with another, and does not find one that has a peer.
    commands += [
        ["ip", "address", "flush", "dev", name, "to", address.split("/")[0]] for address in sorted(gone_addresses)
    ]
    if wanted.bond:
        commands += bond_commands(name, wanted.bond, present.bond, ours.bond)
    if wanted.ipoib:
        commands += ipoib_commands(name, wanted.ipoib, present.ipoib)
    if wanted.mtu is not None and wanted.mtu != present.mtu:
        commands.append(["ip", "link", "set", "dev", name, "mtu", str(wanted.mtu)])
    for member, _ in odd_members(wanted, present):
        commands.append(["ip", "link", "set", "dev", member, "mtu", str(wanted.mtu)])
    if wanted.up is not None and wanted.up != present.up:
        commands.append(["ip", "link", "set", "dev", name, "up" if wanted.up else "down"])
    new_addresses = wanted.addresses - present.addresses
    # With a first address the kernel takes the others of its network, and with the last one all routes.
    shaken = bool(gone_addresses)
    for address in sorted((present.addresses - gone_addresses) | wanted.addresses if shaken else new_addresses):
        # Duplicate address detection would leave an IPv6 address unusable for a second.
        nodad = ["nodad"] if ":" in address else []
        # One that a DHCP server gave is there already, with a lifetime: it becomes permanent.
        commands.append(["ip", "address", "replace", address, "dev", name, *nodad])
    new_routes = wanted.routes if shaken else wanted.routes - present.routes
    commands += [route_command("replace", route, name) for route in sorted(new_routes, key=Route.order)]
    new_rules = wanted.rules - present.rules
    commands += [rule_command("add", rule) for rule in sorted(new_rules)]

    before = present.describe()
    after = Link(
        netdev=name,
        mtu=present.mtu if wanted.mtu is None else wanted.mtu,
        up=present.up if wanted.up is None else wanted.up,
        addresses=(present.addresses - gone_addresses) | new_addresses,
        routes=(present.routes - gone_routes) | wanted.routes,
        rules=(present.rules - gone_rules) | new_rules,
        bond=wanted.bond or present.bond,
        # Of the port's own interface only the mode is anybody's wish.
        ipoib=replace(present.ipoib or wanted.ipoib, mode=wanted.ipoib.mode) if wanted.ipoib else present.ipoib,
    ).describe()
    lacks_none = present.bond and wanted.bond and not bond_lacks(wanted.bond, present.bond)
    if lacks_none and not odd_members(wanted, present):
        after["bond"] = before["bond"]
    changed = [key for key in after if before.get(key) != after[key]]
    return Delta(name, commands, {key: before.get(key) for key in changed}, {key: after[key] for key in changed})


def odd_members(wanted: Link, present: Link) -> list[tuple[str, int]]:
    """Members with an MTU that somebody gave them alone. The kernel gives them the bond's whenever that changes."""
    if wanted.bond is None or present.bond is None or wanted.mtu is None or wanted.mtu != present.mtu:
        return []
    return [(name, mtu) for name, mtu in present.bond.other_mtus if name in wanted.bond.members]


def bond_lacks(wanted: Bond, present: Bond | None) -> list[str]:
    if present is None:
        return [f"no bond, wanted {wanted.describe()}"]
    lacks = [f"mode {present.mode}, wanted {wanted.mode}"] if present.mode != wanted.mode else []
    lacks += [
        f"{key} {present.options().get(key)}, wanted {wanted.options()[key]}" for key in differing(wanted, present)
    ]
    return lacks + [f"{member} is no member" for member in wanted.members if member not in present.members]


# The kernel takes the smaller of what it is told and what the broadcast group allows, and says nothing.
PARTITION_MTU = " (the broadcast group of the partition may allow no more: its mtu in the subnet manager's partitions)"


def ipoib_lacks(wanted: Ipoib, present: Ipoib | None) -> list[str]:
    if present is None:
        return [f"no IP over InfiniBand, wanted {wanted.describe()}"]
    lacks = [f"mode {present.mode}, wanted {wanted.mode}"] if present.mode != wanted.mode else []
    if wanted.parent and (present.parent, present.pkey) != (wanted.parent, wanted.pkey):
        lacks.append(f"{present.describe()}, wanted {wanted.describe()}")
    return lacks


def missing(wanted: Link, present: Link) -> list[str]:
    """Return, in words, what ``wanted`` asks for and ``present`` does not have."""
    lacks = bond_lacks(wanted.bond, present.bond) if wanted.bond else []
    lacks += [f"member {name} has MTU {mtu}, wanted {wanted.mtu}" for name, mtu in odd_members(wanted, present)]
    lacks += ipoib_lacks(wanted.ipoib, present.ipoib) if wanted.ipoib else []
    if wanted.mtu is not None and wanted.mtu != present.mtu:
        lacks.append(f"MTU {present.mtu}, wanted {wanted.mtu}{PARTITION_MTU if wanted.ipoib else ''}")
    if wanted.up is not None and wanted.up != present.up:
        lacks.append("down, wanted up" if wanted.up else "up, wanted down")
    lacks += [f"no address {address}" for address in sorted(wanted.addresses - present.addresses)]
    if wanted.management:
        lacks += [f"still has address {address}" for address in sorted(present.addresses - wanted.addresses)]
    lacks += [f"no route {route.describe()}" for route in sorted(wanted.routes - present.routes, key=Route.order)]
    lacks += [f"no rule {rule.describe()}" for rule in sorted(wanted.rules - present.rules)]
    return lacks


__all__ = ("Delta", "delta", "in_order", "missing", "removal")
