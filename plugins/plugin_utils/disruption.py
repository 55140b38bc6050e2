# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the planned changes cost a running host, as classes of disruption."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import dicts, mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.gpudirect import version_tuple
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, Netdev, text


def of_driver(machine: Machine, version: str, flavour: str) -> tuple[str, str]:
    """What bringing this driver into effect costs now."""
    loaded = mapping(mapping(machine.facts.get("driver")).get("loaded"))
    running = text(loaded.get("version"))
    nouveau = mapping(mapping(machine.facts.get("modules")).get("nouveau"))
    if not running:
        if nouveau.get("loaded") is True:
            return "reboot", "nouveau holds the GPUs; it must leave the initramfs"
        return "none", "no NVIDIA driver is loaded"
    if version_tuple(running, 4) != version_tuple(version, 4):
        return "reload", f"driver {running} is loaded, {version} is wanted"
    seen = text(loaded.get("flavour"))
    if seen and seen != flavour:
        return "reload", f"the {seen} kernel modules are loaded, {flavour} is wanted"
    return "none", f"driver {running} is loaded as wanted"


def of_link(dev: Netdev | None, mtu: int, pfc: t.Sequence[bool] | None, qos: t.Any) -> tuple[str, str]:
    """What setting up one rail costs: mlx5 toggles the port whenever PFC changes."""
    if pfc is not None and dev is not None:
        present = mapping(qos).get("pfc")
        if isinstance(present, list) and [bool(flag) for flag in present] != list(pfc):
            return "linkflap", f"PFC of {dev.name} changes, and mlx5 bounces the link for that"
    if dev is not None and dev.mtu is not None and dev.mtu != mtu:
        return "none", f"MTU of {dev.name} goes from {dev.mtu} to {mtu} without a link flap"
    return "none", ""


def gpu_processes(machine: Machine) -> list[str]:
    return [f"{p.get('pid')} {p.get('name')}" for p in dicts(machine.facts.get("gpu_processes"))]
