# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How ifupdown keeps a link: one file per interface below ``interfaces.d``. Pure."""

from __future__ import annotations

import fnmatch
import os
import re

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import (
    bond_commands,
    ipoib_commands,
    route_command,
    rule_command,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, Route

DIRECTORY = "/etc/network/interfaces.d"
INTERFACES = "/etc/network/interfaces"
# What source-directory reads; a partition's interface has a dot in its name.
_UNREAD = re.compile(r"[^A-Za-z0-9_-]")


def path(link: Link) -> str:
    return f"{DIRECTORY}/gpu-fabric-{_UNREAD.sub('_', link.netdev)}"


def patterns(interfaces: str) -> list[str]:
    """Return the paths, with wildcards, of the files that /etc/network/interfaces reads besides."""
    found = []
    for words in map(str.split, interfaces.splitlines()):
        if words[:1] in (["source"], ["source-directory"]):
            own = ["*"] if words[0] == "source-directory" else []
            found += [os.path.join(os.path.dirname(INTERFACES), word, *own) for word in words[1:]]
    return found


def reads(interfaces: str, path: str) -> bool:
    """Whether ifupdown reads a file. A wildcard does not stand for a slash."""
    parts = path.split("/")
    return any(
        len(words) == len(parts) and all(map(fnmatch.fnmatchcase, parts, words))
        for words in (os.path.normpath(pattern).split("/") for pattern in patterns(interfaces))
    )


def stanza(link: Link, family: str, address: str | None) -> list[str]:
    if address is None:
        return [f"iface {link.netdev} {family} manual"]
    lines = [f"iface {link.netdev} {family} static", f"    address {address}"]
    # Without this, the interface waits for duplicate address detection at every boot.
    return [*lines, "    dad-attempts 0"] if family == "inet6" else lines


def render(link: Link) -> str:
    """Return the file of one link. ifupdown merges several ``iface`` stanzas of one interface."""
    lines = [f"auto {link.netdev}"]
    addresses: list[str | None] = [*sorted(link.addresses)] or [None]
    for position, address in enumerate(addresses):
        lines += stanza(link, "inet6" if address and ":" in address else "inet", address)
        if position == 0 and link.bond:
            # Whoever brings the bond up again finds it there already.
            add = bond_commands("$IFACE", link.bond, None, None)[0]
            lines.append(f"    pre-up ip link show dev $IFACE >/dev/null 2>&1 || {' '.join(add)}")
            for member in link.bond.members:
                lines.append(f"    pre-up test -e /sys/class/net/{member}/master || ip link set dev {member} down")
                lines.append(f"    pre-up ip link set dev {member} master $IFACE")
            lines.append("    post-down ip link delete dev $IFACE")
        if position == 0 and link.ipoib:
            # ifupdown makes ib0.8001 by itself, from the name; this is for versions and names that it does not know.
            for add in ipoib_commands("$IFACE", link.ipoib, None):
                lines.append(f"    pre-up ip link show dev $IFACE >/dev/null 2>&1 || {' '.join(add)}")
            if link.ipoib.mode != "datagram":
                # A new interface has datagram; kernels that offer nothing else have no such file.
                lines.append(f"    pre-up echo {link.ipoib.mode} > /sys/class/net/$IFACE/mode")
        if position == 0 and link.mtu is not None:
            # Before the interface is up: some drivers bounce the link when the MTU changes under traffic.
            lines.append(f"    pre-up ip link set dev $IFACE mtu {link.mtu}")
        if position == 0 and address is None:
            lines.append("    up ip link set dev $IFACE up")
    for route in sorted(link.routes, key=Route.order):
        lines.append(f"    up {' '.join(route_command('replace', route, '$IFACE'))}")
    for rule in sorted(link.rules):
        # `ip rule add` is not idempotent: take away what an earlier ifup left.
        lines.append(f"    up {' '.join(rule_command('del', rule))} 2>/dev/null; {' '.join(rule_command('add', rule))}")
        lines.append(f"    down {' '.join(rule_command('del', rule))}")
    return "\n".join(lines) + "\n"


def bond_files(link: Link) -> dict[str, str]:
    """ifupdown has everything of a bond in one file."""
    return {}


def partition_files(link: Link) -> dict[str, str]:
    """ifupdown has everything of a partition's interface in one file."""
    return {}


__all__ = ("DIRECTORY", "INTERFACES", "bond_files", "partition_files", "path", "patterns", "reads", "render")
