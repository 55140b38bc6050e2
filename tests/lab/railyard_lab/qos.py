# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data-centre bridging of one mlx5 port, as its driver keeps it. mlnx_qos, dcb and ethtool show this."""

from __future__ import annotations

from typing import Any

HOST, CEE, IEEE = "host", "cee", "ieee"
MAX_BUFFER = 1027728


def factory() -> dict[str, Any]:
    return {
        "dcbx": [HOST, CEE, IEEE],
        "trust": "pcp",
        "dscp": {},  # DSCP: priority, as programmed by the host (the driver's APP table)
        "default_prio": [],
        "apps": [],  # other APP entries: [selector, protocol, priority]
        "pfc": [0] * 8,
        "delay": 7,
        "prio_tc": [1, 0, 2, 3, 4, 5, 6, 7],  # the quirk of mlx5: traffic classes 0 and 1 swapped
        "tsa": ["vendor"] * 8,
        "tc_bw": [0] * 8,
        "maxrate": [0] * 8,
        "prio_buffer": [0] * 8,
        "buffer_size": [20016, 156096, 0, 0, 0, 0, 0, 0],
        "roce": {"rp": [1] * 8, "np": [1] * 8, "cnp_dscp": 48, "cnp_802p_prio": 6, "tclass": -1},
        "rdma_cm": {"mode": "RoCE v2", "tos": 0},
    }


def supported(nic: dict[str, Any]) -> bool:
    """Only the owner of an Ethernet port has DCB: not a VF, not an InfiniBand port, not an NVSwitch bridge."""
    return "qos" in nic and nic["link_layer"] == "Ethernet" and not nic["vf"] and not nic["sw_mng"]


def shown_shares(values: dict[str, Any]) -> list[int]:
    """The driver shows 100 % for every class that is not ETS (mlx5e_dcbnl_ieee_getets)."""
    return [share if kind == "ets" else 100 for share, kind in zip(values["tc_bw"], values["tsa"], strict=True)]


def set_app(values: dict[str, Any], dscp: int, priority: int) -> None:
    """The first DSCP entry makes the driver trust DSCP."""
    values["dscp"][str(dscp)] = priority
    values["trust"] = "dscp"


def delete_app(values: dict[str, Any], dscp: int, priority: int) -> bool:
    """The last one that goes makes it trust PCP again. False where there is no such entry."""
    if values["dscp"].get(str(dscp)) != priority:
        return False
    del values["dscp"][str(dscp)]
    if not values["dscp"]:
        values["trust"] = "pcp"
    return True


def set_buffers(nic: dict[str, Any], places: list[int], sizes: list[int]) -> bool:
    """Program the receive buffers. False where the driver refuses them (mlx5e_port_manual_buffer_config).

    All of them together must fit, and one with a lossless priority must have room; with 802.3x pause all are lossless.
    """
    values = nic["qos"]
    lossless = [1] * 8 if any(nic["pause"].values()) else values["pfc"]
    if sum(sizes) > MAX_BUFFER or any(bit and not sizes[place] for bit, place in zip(lossless, places, strict=True)):
        return False
    values["prio_buffer"], values["buffer_size"] = places, sizes
    return True


def set_trust(values: dict[str, Any], trust: str) -> None:
    if trust == values["trust"]:
        return
    values["dscp"] = {str(dscp): dscp >> 3 for dscp in range(64)} if trust == "dscp" else {}
    values["trust"] = trust


def set_pfc(nic: dict[str, Any], wanted: list[int], delay: int | None = None) -> bool:
    """Program PFC. True when the driver bounced the link for it."""
    values = nic["qos"]
    if delay is not None and delay:
        values["delay"] = delay
    if wanted == values["pfc"]:
        return False
    values["pfc"] = list(wanted)
    # Lossless priorities get the second receive buffer, as the firmware does it by itself.
    values["prio_buffer"] = [1 if bit else 0 for bit in wanted]
    nic["flaps"] += 1
    return True


def priority_of(nic: dict[str, Any], dscp: int) -> int:
    """The priority that a packet of this DSCP gets at this port."""
    values = nic.get("qos")
    if not values or values["trust"] != "dscp":
        return 0
    return values["dscp"].get(str(dscp), dscp >> 3)
