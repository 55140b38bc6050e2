# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel modules of a host, among them the one by which RDMA reaches the memory of GPUs."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import gpudirect, packages
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import DISTANCES, NEAR


def for_host(host: Host, over_infiniband: bool) -> dict[str, t.Any]:
    """plan.hosts[h].modules; ``over_infiniband``: whether the rack has networks of IP over InfiniBand."""
    machine, intent = host.machine, host.intent
    direct, reason = gpudirect.choose(
        machine,
        rails=bool(host.rails),
        software=bool(host.rails) and all(rail.hca.software for rail in host.rails),
        far=_far(host),
        driver_version=intent["gpu_fabric_driver_version"],
        flavour=packages.flavour(machine, intent)[0],
        stack=intent["gpu_fabric_rdma_stack"],
    )
    return {
        "name": "gpu-fabric",
        "load": _load(host, direct, over_infiniband),
        "options": {},
        "follow": gpudirect.followers(direct, [rail.hca.driver for rail in host.rails]),
        "gpudirect": direct,
        "gpudirect_reason": reason,
    }


def _load(host: Host, direct: str, over_infiniband: bool) -> list[str]:
    infiniband = host.fabric == "infiniband"
    names = ["ib_uverbs", "rdma_ucm"] if host.rails else []
    if any(rail.hca.driver in ("rdma_rxe", "rxe") for rail in host.rails):
        names.append("rdma_rxe")
    if infiniband or any(function.sw_mng for function in host.machine.functions.values()):
        names.append("ib_umad")
    if infiniband and over_infiniband:
        names.append("ib_ipoib")
    if direct == "nvidia_peermem":
        names.append("nvidia_peermem")
    return names


def _far(host: Host) -> str | None:
    """The shortest distance between a GPU and a rail where it crosses a host bridge (an x86 one: Grace has C2C)."""
    known = [rail.distance for rail in host.rails if rail.distance]
    if not known or text(mapping(host.machine.facts.get("host")).get("architecture")) == "aarch64":
        return None
    nearest = min(known, key=DISTANCES.index)
    return None if nearest in NEAR else nearest
