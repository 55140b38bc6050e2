# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may reach the rack's hosts: the hosts themselves on everything, administration on named ports, nobody else."""

from __future__ import annotations

import typing as t

import netaddr


def member_networks(rail_networks: t.Iterable[str], addresses: t.Iterable[str]) -> list[str]:
    """Fewest networks that hold every rail subnet and every host's management address, no address more."""
    found = [netaddr.IPNetwork(net) for net in rail_networks] + [netaddr.IPNetwork(address) for address in addresses]
    return [str(net) for net in netaddr.cidr_merge(found)]


def for_host(
    intent: t.Mapping[str, t.Any], members: list[str], rail_interfaces: list[str], management: str, client: str = ""
) -> dict[str, t.Any]:
    """plan.hosts[h].firewall. *members* is one list for the rack: it is shared, not copied."""
    admin = list(intent["gpu_fabric_admin_networks"])
    if client and not any(client in netaddr.IPNetwork(net) for net in admin):
        # Whoever runs this must still get in afterwards.
        admin.append(f"{client}/{128 if ':' in client else 32}")
    return {
        "backend": intent["gpu_fabric_firewall"],
        "members": members,
        "admin": admin,
        "rail_interfaces": rail_interfaces,
        "management_interface": management,
        "tcp": intent["gpu_fabric_allow_tcp"],
        # Data of a hardware NIC never meets netfilter; only what the kernel itself sends and receives is filtered.
        "roce_udp_port": 4791,
        # what RoCE packets carry on the wire; captures are held against it
        "roce_dscp": None if intent["gpu_fabric_roce_profile"] == "none" else intent["gpu_fabric_roce_dscp"],
    }
