# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""UCX and Open MPI beside NCCL: UCX on the same ports, MPI's own traffic on the management interface."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail


def ucx(rails: t.Sequence[Rail], roce: t.Mapping[str, t.Any], mode: str) -> dict[str, str]:
    """UCX takes exact names with ports. Its own default traffic class is right only for DSCP 26."""
    if not rails:
        return {}
    env = {"UCX_NET_DEVICES": ",".join(f"{rail.hca.name}:{rail.port.number if rail.port else 1}" for rail in rails)}
    if any(rail.link_layer == "Ethernet" for rail in rails):
        if roce.get("traffic_class") is not None:
            env["UCX_IB_TRAFFIC_CLASS"] = str(roce["traffic_class"])
        if mode != "flat" and len(rails) > 1:
            # Rails are subnets of their own: a connection between two of them has no route.
            env["UCX_IB_ROCE_LOCAL_SUBNET"] = "y"
    return env


def openmpi(management: str) -> dict[str, str]:
    """MPI starts jobs and exchanges addresses; docker0 and its like have the same address on every host."""
    if not management:
        return {}
    return {"OMPI_MCA_btl_tcp_if_include": management, "OMPI_MCA_oob_tcp_if_include": management}
