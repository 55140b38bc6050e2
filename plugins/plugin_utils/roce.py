# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One DSCP in, every other quality-of-service value out."""

from __future__ import annotations

import typing as t


def rack_values(intent: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """``plan.rack.roce``: what hosts, switches and tests must agree on."""
    profile = intent["gpu_fabric_roce_profile"]
    dscp, cnp = intent["gpu_fabric_roce_dscp"], intent["gpu_fabric_roce_cnp_dscp"]
    if profile == "none":
        return {"profile": "none"}
    # The two low bits of the byte are ECN: ECT(0), so that switches mark instead of dropping.
    traffic_class = dscp << 2 | 2
    return {
        "profile": profile,
        "dscp": dscp,
        "cnp_dscp": cnp,
        "traffic_class": traffic_class,
        "priority": dscp >> 3,
        "cnp_priority": cnp >> 3,
        "pfc": pfc_mask(intent),
        # perftest's --tos is the whole byte, as NCCL_IB_TC is
        "perftest_tos": traffic_class,
        "nccl_tc": traffic_class,
        "rdma_cm_tos": traffic_class,
    }


def pfc_mask(intent: t.Mapping[str, t.Any]) -> list[int]:
    """Eight flags, priority 0 first; all off unless the profile is lossless."""
    if intent["gpu_fabric_roce_profile"] != "lossless":
        return [0] * 8
    lossless = intent["gpu_fabric_roce_pfc_priorities"] or [intent["gpu_fabric_roce_dscp"] >> 3]
    return [int(priority in lossless) for priority in range(8)]


def port_values(intent: t.Mapping[str, t.Any], virtual: bool) -> dict[str, t.Any] | None:
    """``plan.hosts[h].qos[netdev]``: what ``roce_qos`` sets on one rail; None where the host may not set it.

    A virtual function is not the owner of its port: firmware refuses every DCB change on it.
    """
    values = rack_values(intent)
    if values["profile"] == "none" or virtual:
        return None
    wanted = {
        "trust": "dscp",
        "dscp_to_priority": {str(values["dscp"]): values["priority"], str(values["cnp_dscp"]): values["cnp_priority"]},
        "pfc": [bool(flag) for flag in values["pfc"]],
        # 802.3x pause stops the whole link and excludes PFC
        "pause": {"rx": False, "tx": False},
        "traffic_class": values["traffic_class"],
        "rdma_cm_tos": values["rdma_cm_tos"],
        "cnp_dscp": values["cnp_dscp"],
        "cnp_priority": values["cnp_priority"],
        "ecn_priority": values["priority"],
    }
    if intent["gpu_fabric_cable_length_m"] is not None:
        wanted["cable_length_m"] = intent["gpu_fabric_cable_length_m"]
    return wanted


def rdma_mtu(netdev_mtu: int) -> int:
    """The path MTU that RoCE derives from an interface's MTU: 96 bytes of headers off, then the next step down."""
    payload = netdev_mtu - 96
    return max((step for step in (256, 512, 1024, 2048, 4096) if step <= payload), default=0)
