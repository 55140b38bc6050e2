# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How NetworkManager keeps a link: one keyfile per interface. Pure."""

from __future__ import annotations

import uuid

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, Route

DIRECTORY = "/etc/NetworkManager/system-connections"
# Connections are known by UUID; a fixed one per interface name keeps the file the same in every run.
NAMESPACE = uuid.UUID("6f0d3d6e-8f0b-5a53-9d0e-2f3c3a7b1c11")


def connection_name(link: Link) -> str:
    return f"gpu-fabric-{link.netdev}"


def path(link: Link) -> str:
    return f"{DIRECTORY}/{connection_name(link)}.nmconnection"


def section(link: Link, family: int) -> list[str]:
    name = "ipv6" if family == 6 else "ipv4"
    addresses = [address for address in sorted(link.addresses) if (":" in address) == (family == 6)]
    routes = [route for route in sorted(link.routes, key=Route.order) if route.family == family]
    rules = [rule for rule in sorted(link.rules) if rule.family == family]
    lines = ["", f"[{name}]"]
    lines += [f"address{index}={address}" for index, address in enumerate(addresses, 1)]
    for index, route in enumerate(routes, 1):
        lines.append(f"route{index}={destination(route)}{',' + route.via if route.via else ''}")
        options = [f"table={route.table}", *([f"src={route.src}"] if route.src else [])]
        lines.append(f"route{index}_options={','.join(options)}")
    for index, rule in enumerate(rules, 1):
        lines.append(f"routing-rule{index}=priority {rule.priority} from {rule.source} table {rule.table}")
    # A rail never carries the default route of the node.
    if not link.management:
        lines.append("never-default=true")
    lines.append("method=manual" if addresses else "method=disabled" if family == 4 else "method=link-local")
    return lines


def destination(route: Route) -> str:
    if route.dst == "default":
        return "::/0" if route.family == 6 else "0.0.0.0/0"
    return route.dst if "/" in route.dst else f"{route.dst}/{128 if route.family == 6 else 32}"


def render(link: Link) -> str:
    """Return the keyfile of one link."""
    lines = [
        "[connection]",
        f"id={connection_name(link)}",
        f"uuid={uuid.uuid5(NAMESPACE, link.netdev)}",
        "type=ethernet",
        f"interface-name={link.netdev}",
        "autoconnect-priority=100",
        "",
        "[ethernet]",
    ]
    if link.mtu is not None:
        lines.append(f"mtu={link.mtu}")
    lines += [*section(link, 4), *section(link, 6)]
    return "\n".join(lines) + "\n"


__all__ = ("DIRECTORY", "connection_name", "path", "render")
