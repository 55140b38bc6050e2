# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How systemd-networkd keeps a link: one ``.network`` file per interface. Pure."""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, Route

DIRECTORY = "/etc/systemd/network"


# The first file that matches an interface is the only one, so ours come before those that match many (Name=en*).
PREFIX = "05-gpu-fabric-"


def path(link: Link) -> str:
    return f"{DIRECTORY}/{PREFIX}{link.netdev}.network"


def render(link: Link) -> str:
    """Return the file of one link."""
    lines = ["[Match]", f"Name={link.netdev}", "", "[Link]"]
    if link.mtu is not None:
        lines.append(f"MTUBytes={link.mtu}")
    # A rail without a cable must not hold up the boot of the node.
    lines += ["RequiredForOnline=yes" if link.management else "RequiredForOnline=no", "", "[Network]"]
    lines += [f"Address={address}" for address in sorted(link.addresses)]
    lines += [f"DNS={server}" for server in link.name_servers]
    # A router on a rail must not become the node's default route.
    lines += [*([] if link.management else ["IPv6AcceptRA=no"]), "ConfigureWithoutCarrier=yes"]
    if link.ipoib and link.ipoib.mode != "datagram":
        lines += ["", "[IPoIB]", f"Mode={link.ipoib.mode}"]
    for route in sorted(link.routes, key=Route.order):
        any_destination = "::/0" if route.family == 6 else "0.0.0.0/0"
        lines += ["", "[Route]", f"Destination={any_destination if route.dst == 'default' else route.dst}"]
        lines += [f"Gateway={route.via}"] if route.via else ["Scope=link"] if route.family == 4 else []
        lines += [f"PreferredSource={route.src}"] if route.src else []
        lines.append(f"Table={route.table}")
    for rule in sorted(link.rules):
        lines += ["", "[RoutingPolicyRule]", f"From={rule.source}", f"Table={rule.table}", f"Priority={rule.priority}"]
    return "\n".join(lines) + "\n"


def bond_files(link: Link) -> dict[str, str]:
    """Return the file that makes the bond, and one per member."""
    bond = link.bond
    assert bond is not None
    names = {"miimon": "MIIMonitorSec", "lacp_rate": "LACPTransmitRate", "xmit_hash_policy": "TransmitHashPolicy"}
    lines = ["[NetDev]", f"Name={link.netdev}", "Kind=bond", "", "[Bond]", f"Mode={bond.mode}"]
    lines += [f"{names[key]}={value}{'ms' if key == 'miimon' else ''}" for key, value in bond.options().items()]
    found = {f"{DIRECTORY}/{PREFIX}{link.netdev}.netdev": "\n".join(lines) + "\n"}
    for member in bond.members:
        lines = ["[Match]", f"Name={member}", "", "[Link]", "RequiredForOnline=no"]
        lines += [f"MTUBytes={link.mtu}"] if link.mtu is not None else []
        lines += ["", "[Network]", f"Bond={link.netdev}", "LinkLocalAddressing=no", "IPv6AcceptRA=no"]
        found[f"{DIRECTORY}/{PREFIX}{member}.network"] = "\n".join(lines) + "\n"
    return found


def partition_files(link: Link, parent_file: str | None = None) -> dict[str, str]:
    """Return the file that makes a partition's interface, and what has the port's own file ask for it.

    ``parent_file``: name of the port's ``.network`` file where it is not ours.
    """
    ipoib = link.ipoib
    assert ipoib is not None and ipoib.parent is not None and ipoib.pkey is not None
    lines = ["[NetDev]", f"Name={link.netdev}", "Kind=ipoib", "", "[IPoIB]"]
    lines += [f"PartitionKey={ipoib.pkey:#06x}", f"Mode={ipoib.mode}"]
    beside = parent_file or f"{PREFIX}{ipoib.parent}.network"
    return {
        f"{DIRECTORY}/{PREFIX}{link.netdev}.netdev": "\n".join(lines) + "\n",
        f"{DIRECTORY}/{beside}.d/{PREFIX}{link.netdev}.conf": f"[Network]\nIPoIB={link.netdev}\n",
    }


__all__ = ("DIRECTORY", "PREFIX", "bond_files", "partition_files", "path", "render")
