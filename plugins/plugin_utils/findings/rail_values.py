# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One value of every rail of the rack, for rules that look for the odd one out."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView


class RailValue(t.NamedTuple):
    host: HostView
    device: str
    netdev: str
    value: t.Any


def grouped(rails: list[RailValue]) -> dict[tuple[str, t.Any], list[RailValue]]:
    """Equal values of one host are one finding."""
    groups: dict[tuple[str, t.Any], list[RailValue]] = collections.defaultdict(list)
    for rail in rails:
        groups[(rail.host.name, rail.value)].append(rail)
    return groups


def names(rails: list[RailValue]) -> tuple[str, str]:
    """(interfaces, devices); a recording may not know the devices, or the interface."""
    netdevs = ", ".join("the NIC" if rail.netdev == "*" else rail.netdev for rail in rails)
    return netdevs, ", ".join(rail.device for rail in rails if rail.device)


def shown(rails: list[RailValue]) -> str:
    """ens1f0np0 (mlx5_0), as far as both are known."""
    netdevs, devices = names(rails)
    return f"{netdevs} ({devices})" if devices and netdevs else netdevs or devices


def settings_of(host: HostView, section: str) -> list[tuple[str, str]]:
    """(device, interface) of the rails; where none are known by their interfaces, those that *section* is about."""
    rails = [(port.device, port.netdev) for port in host.rail_ports if port.netdev]
    known = host.section(section)
    if not rails or (host.recorded_only and not any(netdev in known for _device, netdev in rails)):
        return [("", str(netdev)) for netdev in sorted(known)]
    return rails
