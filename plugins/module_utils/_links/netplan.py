# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How netplan keeps a link: one file per interface. Pure.

netplan merges lists of one interface over files by key only, so everything of an interface stands in one file.
"""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import networkd
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, Route

DIRECTORY = "/etc/netplan"
# netplan adds up what its files say of one interface, if they all say it in the section of its kind.
SECTIONS = {"bond": "bonds", "bridge": "bridges", "vlan": "vlans"}
# Another file, of cloud-init say, may ask for it on every card.
NO_DHCP = ("      dhcp4: false", "      dhcp6: false")


def path(link: Link) -> str:
    return f"{DIRECTORY}/60-gpu-fabric-{link.netdev}.yaml"


def render(link: Link) -> str:
    """Return the file of one link; every scalar that could be misread as another type is quoted."""
    lines = ["network:", "  version: 2"]
    if link.bond:
        lines.append("  ethernets:")
        for member in link.bond.members:
            lines += [f'    "{member}":', "      optional: true", *NO_DHCP]
            lines += [f"      mtu: {link.mtu}"] if link.mtu else []
    section = SECTIONS.get("bond" if link.bond else link.kind or "", "ethernets")
    lines += [f"  {section}:", f'    "{link.netdev}":']
    if link.bond:
        names = {"miimon": "mii-monitor-interval", "lacp_rate": "lacp-rate", "xmit_hash_policy": "transmit-hash-policy"}
        lines += ["      interfaces:", *(f'        - "{member}"' for member in link.bond.members)]
        lines += ["      parameters:", f'        mode: "{link.bond.mode}"']
        lines += [f'        {names[key]}: "{value}"' for key, value in link.bond.options().items()]
    if not link.management:
        # A rail without a cable must not hold up the boot of the node.
        lines.append("      optional: true")
    if link.mtu is not None:
        lines.append(f"      mtu: {link.mtu}")
    if link.ipoib and link.ipoib.mode != "datagram":
        lines.append(f'      infiniband-mode: "{link.ipoib.mode}"')
    if not link.management:
        lines += ["      accept-ra: false", *NO_DHCP]
    if link.addresses:
        lines.append("      addresses:")
        lines += [f'        - "{address}"' for address in sorted(link.addresses)]
    if link.name_servers:
        lines += ["      nameservers:", "        addresses:"]
        lines += [f'          - "{server}"' for server in link.name_servers]
    if link.routes:
        lines.append("      routes:")
    for route in sorted(link.routes, key=Route.order):
        any_destination = "::/0" if route.family == 6 else "0.0.0.0/0"
        lines.append(f'        - to: "{any_destination if route.dst == "default" else route.dst}"')
        lines.append(f'          via: "{route.via}"' if route.via else "          scope: link")
        if route.src:
            lines.append(f'          from: "{route.src}"')
        lines.append(f"          table: {route.table}")
    if link.rules:
        lines.append("      routing-policy:")
    for rule in sorted(link.rules):
        lines += [
            f'        - from: "{rule.source}"',
            f"          table: {rule.table}",
            f"          priority: {rule.priority}",
        ]
    return "\n".join(lines) + "\n"


def bond_files(link: Link) -> dict[str, str]:
    """netplan has everything of a bond in one file."""
    return {}


def partition_files(link: Link) -> dict[str, str]:
    """netplan has no word for partitions: its back end networkd is told, beside the file that netplan writes for it."""
    assert link.ipoib is not None
    return networkd.partition_files(link, f"10-netplan-{link.ipoib.parent}.network")


__all__ = ("DIRECTORY", "SECTIONS", "bond_files", "partition_files", "path", "render")
