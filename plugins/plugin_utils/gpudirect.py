# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How RDMA reaches GPU memory on a host: DMA-BUF, nvidia_peermem or not at all, with the reason."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, text

_NUMBERS = re.compile(r"\d+")
DMABUF_KERNEL = (5, 12)
DMABUF_DRIVER = 515
# OFED 5.5 brought ibv_reg_dmabuf_mr; versions of DOCA-OFED are years: 23.10, 24.10 …
DMABUF_OFED = (5, 5)


def version_tuple(value: str, parts: int = 2) -> tuple[int, ...]:
    return tuple(int(part) for part in _NUMBERS.findall(value)[:parts])


def choose(
    machine: Machine,
    *,
    rails: bool,
    software: bool,
    far: str | None,
    driver_version: str,
    flavour: str,
    stack: str,
) -> tuple[str, str]:
    """("dmabuf" | "nvidia_peermem" | "none", reason) for the driver that the plan installs.

    *far* is the distance of the nearest rail where no GPU reaches one below its host bridge.
    """
    path, reason = _path(machine, rails, software, driver_version, flavour, stack)
    if path != "none" and far:
        reason += f"; NCCL uses it up to PXB by default, and the nearest rail is {far} away"
    return path, reason


def followers(path: str, drivers: t.Collection[str]) -> dict[str, list[str]]:
    """The modules that must come after others, whoever loads these.

    A restart of the RDMA stack (openibd) takes nvidia_peermem out with ib_core, and brings only its own modules back.
    """
    return {"mlx5_ib": ["nvidia_peermem"]} if path == "nvidia_peermem" and "mlx5_core" in drivers else {}


def _path(
    machine: Machine, rails: bool, software: bool, driver_version: str, flavour: str, stack: str
) -> tuple[str, str]:
    if not machine.gpus:
        return "none", "no GPU is shown"
    if not rails:
        return "none", "the host has no rails"
    if software:
        return "none", "software RDMA copies through host memory"
    kernel = version_tuple(text(mapping(machine.facts.get("host")).get("kernel")))
    ofed = text(mapping(machine.facts.get("ofed")).get("version"))
    major = (version_tuple(driver_version, 1) or (0,))[0]
    ofed_version = version_tuple(ofed)
    obstacles = []
    if flavour != "open":
        obstacles.append("the kernel modules are proprietary")
    if major and major < DMABUF_DRIVER:
        obstacles.append(f"driver {driver_version} is older than {DMABUF_DRIVER}")
    if kernel and kernel < DMABUF_KERNEL:
        obstacles.append(f"kernel {kernel[0]}.{kernel[1]} is older than 5.12")
    if ofed_version and ofed_version < DMABUF_OFED:
        obstacles.append(f"OFED {ofed} is older than 5.5")
    if not obstacles:
        shown = f"kernel {kernel[0]}.{kernel[1]}" if kernel else "a current kernel"
        return (
            "dmabuf",
            f"open kernel modules {driver_version} on {shown} with {'OFED ' + ofed if ofed else 'the inbox driver'}",
        )
    why = ", ".join(obstacles)
    if ofed or stack == "doca":
        return "nvidia_peermem", f"DMA-BUF is out: {why}; OFED's ib_core has the peer-memory symbols"
    return "none", f"DMA-BUF is out: {why}; nvidia_peermem does not load on the inbox ib_core"
