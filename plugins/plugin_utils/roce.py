# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One DSCP in, every other quality-of-service value out."""

from __future__ import annotations

import typing as t

#: Where packets may be lost: the NIC sends again what is missing, by itself and not all at once.
LOSSY_RECOVERY = {"adp_retrans": True, "tx_window": True, "slow_restart": True}
#: The GIDs that connections of RDMA-CM get, which must be routed to have a DSCP at all.
RDMA_CM_MODE = "RoCE v2"


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
        "switch": switch_expectations(intent),
    }


def switch_expectations(intent: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What the ports of the switches must have so that they treat the rails' packets as the hosts do."""
    dscp, cnp = intent["gpu_fabric_roce_dscp"], intent["gpu_fabric_roce_cnp_dscp"]
    classes = traffic_classes(intent)
    return {
        "trust": "dscp",
        "dscp_to_priority": {str(dscp): dscp >> 3, str(cnp): cnp >> 3},
        "pfc": pfc_mask(intent),
        "ecn_traffic_classes": [classes[dscp >> 3]],
        "strict_traffic_classes": [classes[cnp >> 3]],
        # the whole frame: the interface's MTU, Ethernet header, VLAN tag and check sum
        "mtu_min": intent["gpu_fabric_mtu"] + 22,
    }


def traffic_classes(intent: t.Mapping[str, t.Any]) -> list[int]:
    """The traffic class of each priority; each has its own unless the intent says otherwise."""
    return intent["gpu_fabric_roce_priority_to_tc"] or list(range(8))


def shares(intent: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """ETS as the NIC takes it, for all eight classes; nothing where the intent leaves it as it is."""
    given = {str(traffic_class): share for traffic_class, share in intent["gpu_fabric_roce_ets"].items()}
    wanted: dict[str, t.Any] = {}
    if given:
        named = [given.get(str(traffic_class), "strict") for traffic_class in range(8)]
        wanted["ets"] = {
            "tsa": ["strict" if share == "strict" else "ets" for share in named],
            "tc_bandwidth": [0 if share == "strict" else share for share in named],
        }
    if given or intent["gpu_fabric_roce_priority_to_tc"]:
        wanted["priority_to_tc"] = traffic_classes(intent)
    return wanted


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
        # whoever does not own data centre bridging loses what it sets to the firmware's own exchange
        "dcbx": "os",
        "trust": "dscp",
        "dscp_to_priority": {str(values["dscp"]): values["priority"], str(values["cnp_dscp"]): values["cnp_priority"]},
        "pfc": [bool(flag) for flag in values["pfc"]],
        # 802.3x pause stops the whole link and excludes PFC
        "pause": {"rx": False, "tx": False},
        "traffic_class": values["traffic_class"],
        "rdma_cm_mode": RDMA_CM_MODE,
        "rdma_cm_tos": values["rdma_cm_tos"],
        "cnp_dscp": values["cnp_dscp"],
        "cnp_priority": values["cnp_priority"],
        "ecn": {str(values["priority"]): {"rp": True, "np": True}},
        **shares(intent),
    }
    for setting in ("buffer_size", "priority_to_buffer"):
        if intent[f"gpu_fabric_roce_{setting}"]:
            wanted["prio_buffer" if setting == "priority_to_buffer" else setting] = intent[f"gpu_fabric_roce_{setting}"]
    recovery = LOSSY_RECOVERY if values["profile"] == "lossy" else {}
    accelerations = {**recovery, **intent["gpu_fabric_roce_accelerations"]}
    if accelerations:
        wanted["accelerations"] = accelerations
    if intent["gpu_fabric_cable_length_m"] is not None:
        wanted["cable_length_m"] = intent["gpu_fabric_cable_length_m"]
    return wanted


def rdma_mtu(netdev_mtu: int) -> int:
    """The path MTU that RoCE derives from an interface's MTU: 96 bytes of headers off, then the next step down."""
    payload = netdev_mtu - 96
    return max((step for step in (256, 512, 1024, 2048, 4096) if step <= payload), default=0)
