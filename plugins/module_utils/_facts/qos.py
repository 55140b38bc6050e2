# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Quality of service of RoCE ports: from `mlnx_qos` where OFED brought it, else from iproute2's `dcb`."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import dcb, mlnx_qos
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import integer, link_name, text

__all__ = ["UNNAMED", "collect"]

#: Key of an answer that was recorded without the name of its interface.
UNNAMED = "*"
_OBJECTS = ("pfc", "app", "ets", "buffer", "dcbx", "apptrust")
_DCB_KEYS = ("pfc", "dscp_to_priority", "tsa", "tc_bandwidth", "priority_to_tc", "buffer_size", "prio_buffer")
_CLASSES = 8


def collect(source: Source, tools: Tools, netdevs: dict[str, str]) -> dict[str, Any]:
    ports = [netdev for netdev, link_layer in netdevs.items() if link_layer == "Ethernet"]
    if not source.live:
        ports = list(dict.fromkeys([*ports, *_recorded(source)]))
    # `mlnx_qos` is a Python program of its own for each port: they are asked at the same time.
    answers = source.map(lambda netdev: _port(source, tools, netdev), ports)
    found = {netdev: answer for netdev, answer in zip(ports, answers) if answer}
    if not source.live and "mlnx_qos.txt" in source.recorded("mlnx_qos"):
        answer = _from_mlnx_qos(tools, None)
        if answer and not found:
            # It belongs to the one port there is; else nobody can say whose it is.
            found[ports[0] if len(ports) == 1 else UNNAMED] = answer
    return found


def _recorded(source: Source) -> list[str]:
    names = [name[len("mlnx_qos_") :] for name in source.recorded("mlnx_qos_")]
    for prefix in ("dcb_pfc_show_dev_", "dcb_pfc_"):
        names.extend(
            name[len(prefix) :] for name in source.recorded(prefix) if not name[len(prefix) :].startswith("show_dev_")
        )
    return [name.rsplit(".", 1)[0] for name in names]


def _port(source: Source, tools: Tools, netdev: str) -> dict[str, Any]:
    # mlnx_qos is of NVIDIA's drivers alone; what a recording has under the port's name is the port's.
    theirs = source.live and _driver(source, netdev) not in (None, "mlx5_core", "mlx4_core")
    found = (None if theirs else _from_mlnx_qos(tools, netdev)) or _from_dcb(source, tools, netdev) or {}
    found.update(_from_sysfs(source, netdev))
    return found


def _from_mlnx_qos(tools: Tools, netdev: Optional[str]) -> Optional[dict[str, Any]]:
    argv = ("mlnx_qos", "-i", netdev) if netdev is not None else ("mlnx_qos",)
    answer = tools.ask(" ".join(argv), argv, mlnx_qos.parse)
    if answer is None:
        return None
    found: dict[str, Any] = {"backend": "mlnx_qos"}
    for key in (
        "dcbx",
        "trust",
        "dscp_to_priority",
        "pfc",
        "buffer_size",
        "prio_buffer",
        "cable_length_m",
        "priority_to_tc",
    ):
        if key in answer:
            found[key] = answer[key]
    classes = {row["tc"]: row for row in answer.get("tcs", []) if "tc" in row}
    if sorted(classes) == list(range(_CLASSES)) and all("tsa" in row for row in classes.values()):
        found["tsa"] = [classes[index]["tsa"] for index in range(_CLASSES)]
        found["tc_bandwidth"] = [classes[index].get("bandwidth_percent", 0) for index in range(_CLASSES)]
    return found if len(found) > 1 else None


def _from_dcb(source: Source, tools: Tools, netdev: str) -> Optional[dict[str, Any]]:
    found: dict[str, Any] = {"backend": "dcb"}
    for name in _OBJECTS:
        argv = ("dcb", "-j", name, "show", "dev", netdev)
        answer = tools.ask(" ".join(argv), argv, dcb.parse)
        if answer is None or answer.get("errors"):
            continue
        found.update({key: answer[key] for key in _DCB_KEYS if key in answer})
        if name == "app":
            found.setdefault("dscp_to_priority", {})
        if answer.get("trust"):
            found["trust"] = answer["trust"][0]
        if answer.get("dcbx"):
            found["dcbx_modes"] = answer["dcbx"]
    if "trust" not in found and "dscp_to_priority" in found and _driver(source, netdev) == "mlx5_core":
        # This driver has no table of trust: it trusts DSCP as soon as one DSCP has a priority.
        found["trust"] = "dscp" if found["dscp_to_priority"] else "pcp"
    return found if len(found) > 1 else None


def _driver(source: Source, netdev: str) -> Optional[str]:
    return link_name(source, f"/sys/class/net/{netdev}/device/driver")


def _from_sysfs(source: Source, netdev: str) -> dict[str, Any]:
    """What OFED's driver shows besides, and the RoCE traffic class that the kernel forces on connections."""
    base = f"/sys/class/net/{netdev}"
    found: dict[str, Any] = {}
    value = integer(source, f"{base}/qos/cable_len") if source.isdir(f"{base}/qos") else None
    if value is not None:
        found["cable_length_m"] = value
    ecn = {}
    for side in ("roce_np", "roce_rp"):
        enabled = {
            name: text(source, f"{base}/ecn/{side}/enable/{name}")
            for name in source.listdir(f"{base}/ecn/{side}/enable")
        }
        if enabled:
            ecn[side] = [enabled.get(str(index)) == "1" for index in range(_CLASSES)]
    cnp = {
        key: integer(source, f"{base}/ecn/roce_np/{key}")
        for key in ("cnp_dscp", "cnp_802p_prio")
        if source.exists(f"{base}/ecn/roce_np/{key}")
    }
    if ecn or cnp:
        found["ecn"] = {**ecn, **cnp}
    return found
