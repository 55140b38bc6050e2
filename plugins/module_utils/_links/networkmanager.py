# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How NetworkManager keeps a link: one keyfile per interface. Pure."""

from __future__ import annotations

import uuid

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import MAIN_TABLE, Link, Route

DIRECTORY = "/etc/NetworkManager/system-connections"
# Connections are known by UUID; a fixed one per interface name keeps the file the same in every run.
NAMESPACE = uuid.UUID("6f0d3d6e-8f0b-5a53-9d0e-2f3c3a7b1c11")


def connection_name(netdev: str) -> str:
    return f"gpu-fabric-{netdev}"


def connection(netdev: str, kind: str) -> list[str]:
    """Return the section by which NetworkManager knows a connection."""
    return [
        "[connection]",
        f"id={connection_name(netdev)}",
        f"uuid={uuid.uuid5(NAMESPACE, netdev)}",
        f"type={kind}",
        f"interface-name={netdev}",
        "autoconnect-priority=100",
    ]


def path(link: Link) -> str:
    return f"{DIRECTORY}/{connection_name(link.netdev)}.nmconnection"


def section(link: Link, family: int) -> list[str]:
    name = "ipv6" if family == 6 else "ipv4"
    addresses = [address for address in sorted(link.addresses) if (":" in address) == (family == 6)]
    routes = [route for route in sorted(link.routes, key=Route.order) if route.family == family]
    rules = [rule for rule in sorted(link.rules) if rule.family == family]
    lines = ["", f"[{name}]"]
    lines += [f"address{index}={address}" for index, address in enumerate(addresses, 1)]
    servers = "".join(f"{server};" for server in link.name_servers if (":" in server) == (family == 6))
    lines += [f"dns={servers}"] if servers and addresses else []
    for index, route in enumerate(routes, 1):
        lines.append(f"route{index}={destination(route)}{',' + route.via if route.via else ''}")
        options = [f"table={route.table}", *([f"src={route.src}"] if route.src else [])]
        lines.append(f"route{index}_options={','.join(options)}")
    for index, rule in enumerate(rules, 1):
        lines.append(f"routing-rule{index}=priority {rule.priority} from {rule.source} table {rule.table}")
    # A rail never carries the default route of the node; a bond may be given one.
    if not link.management and not any(route.dst == "default" and route.table == MAIN_TABLE for route in routes):
        lines.append("never-default=true")
    lines.append("method=manual" if addresses else "method=disabled" if family == 4 else "method=link-local")
    return lines


def destination(route: Route) -> str:
    if route.dst == "default":
        return "::/0" if route.family == 6 else "0.0.0.0/0"
    return route.dst if "/" in route.dst else f"{route.dst}/{128 if route.family == 6 else 32}"


def render(link: Link) -> str:
    """Return the keyfile of one link."""
    kind = "bond" if link.bond else "infiniband" if link.ipoib else "ethernet"
    lines = connection(link.netdev, kind)
    if link.bond:
        # Members follow the bond, whoever is found first.
        lines += ["autoconnect-slaves=1", "", "[bond]", f"mode={link.bond.mode}"]
        lines += [f"{key}={value}" for key, value in link.bond.options().items()]
    lines += ["", "[infiniband]" if link.ipoib else "[ethernet]"]
    if link.mtu is not None:
        lines.append(f"mtu={link.mtu}")
    if link.ipoib:
        # The keyfile has the key as a decimal number.
        lines += [f"p-key={link.ipoib.pkey}", f"parent={link.ipoib.parent}"] if link.ipoib.parent else []
        lines.append(f"transport-mode={link.ipoib.mode}")
    lines += [*section(link, 4), *section(link, 6)]
    return "\n".join(lines) + "\n"


def bond_files(link: Link) -> dict[str, str]:
    """Return one keyfile per member."""
    bond = link.bond
    assert bond is not None
    found = {}
    for member in bond.members:
        lines = [*connection(member, "ethernet"), f"master={link.netdev}", "slave-type=bond", "", "[ethernet]"]
        lines += [f"mtu={link.mtu}"] if link.mtu is not None else []
        found[f"{DIRECTORY}/{connection_name(member)}.nmconnection"] = "\n".join(lines) + "\n"
    return found


def partition_files(link: Link) -> dict[str, str]:
    """NetworkManager has everything of a partition's interface in one file."""
    return {}


__all__ = ("DIRECTORY", "bond_files", "connection_name", "partition_files", "path", "render")
