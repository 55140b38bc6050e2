# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""/sys/class/infiniband and its neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from railyard_lab import catalogue, interfaces, ipoib, ports

GID_SLOTS = 16

_COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
    "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors",
    "port_rcv_packets", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors",
    "port_xmit_data", "port_xmit_discards", "port_xmit_packets", "port_xmit_wait", "symbol_error",
    "unicast_rcv_packets", "unicast_xmit_packets",
)  # fmt: skip
_HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error",
    "req_remote_access_errors", "req_remote_invalid_request", "resp_cqe_error", "resp_cqe_flush_error",
    "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans",
    "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans", "rp_cnp_handled",
    "rp_cnp_ignored", "rx_atomic_requests", "rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests",
)  # fmt: skip


def devices(state: dict[str, Any]) -> list[dict[str, Any]]:
    """NICs with an RDMA device, in the order in which `ls` and libibumad see their names."""
    return sorted((nic for nic in state["nics"] if nic["rdma"]), key=lambda nic: nic["rdma"])


def dotted(guid: str) -> str:
    return ":".join(guid[i : i + 4] for i in range(0, 16, 4))


def add(
    files: dict[str, Any],
    state: dict[str, Any],
    live: dict[str, interfaces.Interface],
    device_path: Callable[[dict[str, Any], str], str],
) -> None:
    from railyard_lab.tree import Link, up

    ordered = sorted(devices(state), key=lambda nic: nic["pci"])
    if "ib_uverbs" in state["modules"]:
        files["sys/class/infiniband_verbs/abi_version"] = "6\n"
    if "ib_umad" in state["modules"]:
        files["sys/class/infiniband_mad/abi_version"] = "5\n"
    for number, nic in enumerate(ordered):
        name, device = nic["rdma"], device_path(state, nic["pci"])
        folder = f"{device}/infiniband/{name}"
        model = catalogue.NICS[nic["model"]]
        files[f"sys/class/infiniband/{name}"] = Link(f"../../{folder[4:]}")
        values = {
            "node_type": "1: CA",
            "node_guid": dotted(nic["node_guid"]),
            "sys_image_guid": dotted(nic["sys_image_guid"]),
            "node_desc": f"{state['host']} {name}",
            "fw_ver": nic["firmware"],
            "hca_type": model["hca_type"],
            "hw_rev": "0",
            "board_id": nic["psid"],
            "uevent": f"NAME={name}",
        }
        for key, value in values.items():
            files[f"{folder}/{key}"] = value + "\n"
        files[f"{folder}/device"] = Link("../../../" + nic["pci"])
        files[f"{folder}/subsystem"] = Link(up(folder) + "class/infiniband")
        _port(files, state, nic, f"{folder}/ports/1", ports.view(state, nic, live))
        if state["stack"]["kind"] == "doca" and nic.get("qos") and not nic["vf"]:
            tclass = nic["qos"]["roce"]["tclass"]
            files[f"{folder}/tc/1/traffic_class"] = f"Global tclass={tclass}\n" if tclass >= 0 else "\n"
        for kind, prefix in (("infiniband_verbs", "uverbs"), ("infiniband_mad", "umad")):
            if f"sys/class/{kind}/abi_version" in files:
                entry = f"{device}/{kind}/{prefix}{number}"
                files[f"sys/class/{kind}/{prefix}{number}"] = Link(f"../../{entry[4:]}")
                files[f"{entry}/ibdev"] = name + "\n"
                files[f"{entry}/dev"] = f"231:{number + (192 if prefix == 'uverbs' else 0)}\n"
                files[f"{entry}/device"] = Link("../../../" + nic["pci"])
                if prefix == "umad":
                    files[f"{entry}/port"] = "1\n"


def _port(files: dict[str, Any], state: dict[str, Any], nic: dict[str, Any], folder: str, port: dict[str, Any]) -> None:
    values = {
        "state": f"{port['state']}: {ports.STATES[port['state']]}",
        "phys_state": f"{port['phys_state']}: {ports.PHYSICAL[port['phys_state']]}",
        "rate": port["rate_text"],
        "link_layer": port["link_layer"],
        "lid": f"0x{port['lid']:x}",
        "lid_mask_count": f"{port['lmc']}",
        "sm_lid": f"0x{port['sm_lid']:x}",
        "sm_sl": "0",
        "cap_mask": f"0x{port['capability_mask']:08x}",
        "has_smi": "1" if port["link_layer"] == "InfiniBand" else "0",
    }
    for key, value in values.items():
        files[f"{folder}/{key}"] = value + "\n"
    keys = ipoib.pkeys(nic) if port["link_layer"] == "InfiniBand" else [ipoib.DEFAULT_PKEY]
    slots = ipoib.PKEY_SLOTS if port["link_layer"] == "InfiniBand" else 1
    for slot in range(max(slots, len(keys))):
        files[f"{folder}/pkeys/{slot}"] = f"{keys[slot] if slot < len(keys) else 0:#06x}\n"
    for slot in range(GID_SLOTS if port["link_layer"] == "Ethernet" else 8):
        files[f"{folder}/gids/{slot}"] = ports.ZERO_GID + "\n"
    for entry in port["gids"]:
        files[f"{folder}/gids/{entry['index']}"] = entry["gid"] + "\n"
        files[f"{folder}/gid_attrs/types/{entry['index']}"] = entry["type"] + "\n"
        if entry["netdev"]:
            files[f"{folder}/gid_attrs/ndevs/{entry['index']}"] = entry["netdev"] + "\n"
    counted = {"link_downed": nic["flaps"], "symbol_error": nic["symbol_errors"], **nic.get("counters", {})}
    for name in _COUNTERS:
        files[f"{folder}/counters/{name}"] = f"{counted.get(name, 0)}\n"
    for name in _HW_COUNTERS:
        files[f"{folder}/hw_counters/{name}"] = f"{counted.get(name, 0)}\n"
    files[f"{folder}/hw_counters/lifespan"] = "10\n"


def stores(
    state: dict[str, Any], device_path: Callable[[dict[str, Any], str], str]
) -> list[tuple[str, dict[str, Any], str, int | None]]:
    """OFED's sysfs files that a host may write: path, and the values, key and index in the state behind it."""
    found: list[tuple[str, dict[str, Any], str, int | None]] = []
    if state["stack"]["kind"] != "doca":
        return found
    for nic in state["nics"]:
        if not nic.get("qos") or nic["vf"]:
            continue
        device, values = device_path(state, nic["pci"]), nic["qos"]["roce"]
        net = f"{device}/net/{nic['netdev']}/ecn"
        found += [
            (f"{device}/infiniband/{nic['rdma']}/tc/1/traffic_class", values, "tclass", None),
            (f"{net}/roce_np/cnp_dscp", values, "cnp_dscp", None),
            (f"{net}/roce_np/cnp_802p_prio", values, "cnp_802p_prio", None),
        ]
        found += [
            (f"{net}/roce_{kind}/enable/{priority}", values, kind, priority)
            for kind in ("rp", "np")
            for priority in range(8)
        ]
    return found


def take_in(
    state: dict[str, Any], where: Path, known: dict[str, str], device_path: Callable[[dict[str, Any], str], str]
) -> None:
    """What a host wrote into these files becomes state (the kernel's store functions)."""
    from railyard_lab.tree import _fingerprint

    for path, values, key, index in stores(state, device_path):
        try:
            text = (where / path).read_text()
        except OSError:
            continue
        if known.get(path) in (None, _fingerprint(text)):
            continue
        number = re.search(r"-?\d+", text)
        if number is None:
            continue
        if index is None:
            values[key] = int(number.group())
        else:
            values[key][index] = int(number.group())
        known[path] = ""  # write the kernel's own form of it
