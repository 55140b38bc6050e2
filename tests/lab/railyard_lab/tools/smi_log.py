# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""nvidia-smi -q: one tree of labels and values, printed as text or as XML."""

from __future__ import annotations

import time
from typing import Any, Union

from railyard_lab import catalogue, gpus
from railyard_lab import state as state_file

# (label of the text, tag of the XML, value or children); an empty label or tag leaves the entry out of that form.
Entry = tuple[str, str, Union[str, "list[Entry]"]]
NA = "N/A"
DEPRECATED = "Requested functionality has been deprecated"


def _gpu(state: dict[str, Any], gpu: dict[str, Any]) -> list[Entry]:
    model = catalogue.GPUS[gpu["model"]]
    present = state_file.present_gpus(state)
    minor = present.index(gpu)
    bdf = gpu["pci"]
    bus, device, domain = bdf[5:7].upper(), bdf[8:10], bdf[:4]
    link = state["pci"][bdf]["link"]
    used = sum(process["used_mib"] for process in state["gpu_processes"] if process["gpu_uuid"] == gpu["uuid"])
    mig = "Disabled" if model["architecture"] in ("Ampere", "Hopper", "Blackwell") else NA
    fabric_state, fabric_status = gpus.fabric(state, gpu)
    in_fabric = fabric_state == "Completed"
    errors = str(gpu["uncorrected_ecc"])
    guest = state["virtualization"] != "none"
    gsp = state["driver"]["loaded"]
    processes: list[Entry] = [
        ("", "process_info", [
            ("", "gpu_instance_id", NA), ("", "compute_instance_id", NA), ("", "pid", str(process["pid"])),
            ("", "type", "C"), ("", "process_name", process["name"]), ("", "used_memory", f"{process['used_mib']} MiB"),
        ])
        for process in state["gpu_processes"] if process["gpu_uuid"] == gpu["uuid"]
    ]  # fmt: skip
    return [
        ("Product Name", "product_name", model["name"]),
        ("Product Brand", "product_brand", model["brand"]),
        ("Product Architecture", "product_architecture", model["architecture"]),
        ("Display Mode", "display_mode", DEPRECATED),
        ("Display Attached", "display_attached", "No"),
        ("Display Active", "display_active", "Disabled"),
        ("Persistence Mode", "persistence_mode", "Enabled" if gpus.persistence(state) else "Disabled"),
        ("Addressing Mode", "addressing_mode", "None"),
        ("MIG Mode", "mig_mode", [("Current", "current_mig", mig), ("Pending", "pending_mig", mig)]),
        ("", "mig_devices", "None"),
        ("Accounting Mode", "accounting_mode", "Disabled"),
        ("Accounting Mode Buffer Size", "accounting_mode_buffer_size", "4000"),
        ("Driver Model", "driver_model", [("Current", "current_dm", NA), ("Pending", "pending_dm", NA)]),
        ("Serial Number", "serial", gpu["serial"]),
        ("GPU UUID", "uuid", gpu["uuid"]),
        ("GPU PDI", "pdi", "0x" + gpu["uuid"].replace("-", "")[3:19]),
        ("Minor Number", "minor_number", str(minor)),
        ("VBIOS Version", "vbios_version", model["vbios"]),
        ("MultiGPU Board", "multigpu_board", "No"),
        ("Board ID", "board_id", f"0x{bus.lower()}{device}"),
        ("Board Part Number", "board_part_number", model["board_part"]),
        ("GPU Part Number", "gpu_part_number", model["part"]),
        ("FRU Part Number", "gpu_fru_part_number", NA),
        ("Platform Info", "platformInfo", [
            ("Chassis Serial Number", "chassis_serial_number", NA), ("Slot Number", "slot_number", NA),
            ("Tray Index", "tray_index", NA), ("Host ID", "host_id", NA), ("Peer Type", "peer_type", NA),
            ("Module Id", "module_id", str(gpu["module_id"])), ("GPU Fabric GUID", "gpu_fabric_guid", NA),
        ]),
        ("Inforom Version", "inforom_version", [
            ("Image Version", "img_version", "G520.0200.00.05"), ("OEM Object", "oem_object", "2.1"),
            ("ECC Object", "ecc_object", "7.16"), ("Power Management Object", "pwr_object", NA),
        ]),
        ("Inforom BBX Object Flush", "inforom_bbx_flush", [
            ("Latest Timestamp", "latest_timestamp", NA), ("Latest Duration", "latest_duration", NA)]),
        ("GPU Operation Mode", "gpu_operation_mode", [("Current", "current_gom", NA), ("Pending", "pending_gom", NA)]),
        ("GPU C2C Mode", "c2c_mode", "Disabled"),
        ("GPU Virtualization Mode", "gpu_virtualization_mode", [
            ("Virtualization Mode", "virtualization_mode", "Pass-Through" if guest else "None"),
            ("Host VGPU Mode", "host_vgpu_mode", NA), ("vGPU Heterogeneous Mode", "vgpu_heterogeneous_mode", NA)]),
        ("GPU Recovery Action", "gpu_recovery_action", "GPU Reset" if gpu["remap_pending"] else "None"),
        ("GSP Firmware Version", "gsp_firmware_version", gsp),
        ("IBMNPU", "ibmnpu", [("Relaxed Ordering Mode", "relaxed_ordering_mode", NA)]),
        ("PCI", "pci", [
            ("Bus", "pci_bus", f"0x{bus}"), ("Device", "pci_device", f"0x{device}"), ("Domain", "pci_domain", f"0x{domain}"),
            ("Base Classcode", "pci_base_class", "0x3"), ("Sub Classcode", "pci_sub_class", "0x2"),
            ("Device Id", "pci_device_id", f"0x{model['device'].upper()}10DE"),
            ("Bus Id", "pci_bus_id", gpus.bus_id(bdf)),
            ("Sub System Id", "pci_sub_system_id", f"0x{model['subsystem'][1].upper()}{model['subsystem'][0].upper()}"),
            ("GPU Link Info", "pci_gpu_link_info", [
                ("PCIe Generation", "pcie_gen", [
                    ("Max", "max_link_gen", str(link["max_gen"])), ("Current", "current_link_gen", str(link["gen"])),
                    ("Device Current", "device_current_link_gen", str(link["gen"])),
                    ("Device Max", "max_device_link_gen", str(link["max_gen"])), ("Host Max", "max_host_link_gen", NA)]),
                ("Link Width", "link_widths", [("Max", "max_link_width", f"{link['max_width']}x"),
                                               ("Current", "current_link_width", f"{link['width']}x")])]),
            ("Bridge Chip", "pci_bridge_chip", [("Type", "bridge_chip_type", NA), ("Firmware", "bridge_chip_fw", NA)]),
            ("Replays Since Reset", "replay_counter", "0"), ("Replay Number Rollovers", "replay_rollover_counter", "0"),
            ("Tx Throughput", "tx_util", "471 KB/s"), ("Rx Throughput", "rx_util", "337 KB/s"),
            ("Atomic Caps Outbound", "atomic_caps_outbound", NA), ("Atomic Caps Inbound", "atomic_caps_inbound", NA)]),
        ("Fan Speed", "fan_speed", NA),
        ("Performance State", "performance_state", "P0"),
        ("Clocks Event Reasons", "clocks_event_reasons", [
            ("Idle", "clocks_event_reason_gpu_idle", "Active"),
            ("Applications Clocks Setting", "clocks_event_reason_applications_clocks_setting", "Not Active"),
            ("SW Power Cap", "clocks_event_reason_sw_power_cap", "Not Active"),
            ("HW Slowdown", "clocks_event_reason_hw_slowdown", "Not Active"),
            ("Sync Boost", "clocks_event_reason_sync_boost", "Not Active"),
            ("SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown", "Not Active")]),
        ("Sparse Operation Mode", "sparse_operation_mode", "Disabled"),
        ("FB Memory Usage", "fb_memory_usage", [
            ("Total", "total", f"{model['memory_mib']} MiB"), ("Reserved", "reserved", f"{model['reserved_mib']} MiB"),
            ("Used", "used", f"{used} MiB"), ("Free", "free", f"{model['memory_mib'] - model['reserved_mib'] - used} MiB")]),
        ("BAR1 Memory Usage", "bar1_memory_usage", [
            ("Total", "total", f"{model['bar1_mib']} MiB"), ("Used", "used", "1 MiB"),
            ("Free", "free", f"{model['bar1_mib'] - 1} MiB")]),
        ("Compute Mode", "compute_mode", "Default"),
        ("Utilization", "utilization", [
            ("GPU", "gpu_util", "97 %" if used else "0 %"), ("Memory", "memory_util", "0 %"),
            ("Encoder", "encoder_util", "0 %"), ("Decoder", "decoder_util", "0 %"), ("JPEG", "jpeg_util", "0 %"),
            ("OFA", "ofa_util", "0 %")]),
        ("ECC Mode", "ecc_mode", [("Current", "current_ecc", "Enabled"), ("Pending", "pending_ecc", "Enabled")]),
        ("ECC Errors", "ecc_errors", [
            ("Volatile", "volatile", _ecc(errors)),
            ("Aggregate", "aggregate", [*_ecc(errors), ("SRAM Threshold Exceeded", "sram_threshold_exceeded", "No")]),
            ("Channel Repair Pending", "channel_repair_pending", "No"),
            ("TPC Repair Pending", "tpc_repair_pending", "No"),
            ("Unrepairable Memory", "unrepairable_memory", "No")]),
        ("Retired Pages", "retired_pages", [
            ("Single Bit ECC", "multiple_single_bit_retirement", NA), ("Double Bit ECC", "double_bit_retirement", NA),
            ("Pending Page Blacklist", "pending_blacklist", NA)]),
        ("Remapped Rows", "remapped_rows", [
            ("Correctable Error", "remapped_row_corr", "0"),
            ("Uncorrectable Error", "remapped_row_unc", "1" if gpu["remap_pending"] else "0"),
            ("Pending", "remapped_row_pending", "Yes" if gpu["remap_pending"] else "No"),
            ("Remapping Failure Occurred", "remapped_row_failure", "No")]),
        ("Temperature", "temperature", [
            ("GPU Current Temp", "gpu_temp", f"{30 + minor} C"), ("GPU T.Limit Temp", "gpu_temp_tlimit", "57 C"),
            ("Memory Current Temp", "memory_temp", "42 C")]),
        ("GPU Power Readings", "gpu_power_readings", [
            ("Average Power Draw", "average_power_draw", f"{70 + minor}.31 W"),
            ("Instantaneous Power Draw", "instant_power_draw", f"{70 + minor}.40 W"),
            ("Current Power Limit", "current_power_limit", f"{model['power_w']}.00 W"),
            ("Default Power Limit", "default_power_limit", f"{model['power_w']}.00 W"),
            ("Max Power Limit", "max_power_limit", f"{model['power_w']}.00 W")]),
        ("Clocks", "clocks", [
            ("Graphics", "graphics_clock", "345 MHz"), ("SM", "sm_clock", "345 MHz"),
            ("Memory", "mem_clock", f"{model['mem_mhz']} MHz"), ("Video", "video_clock", "765 MHz")]),
        ("Max Clocks", "max_clocks", [
            ("Graphics", "graphics_clock", f"{model['sm_mhz']} MHz"), ("SM", "sm_clock", f"{model['sm_mhz']} MHz"),
            ("Memory", "mem_clock", f"{model['mem_mhz']} MHz"), ("Video", "video_clock", "1545 MHz")]),
        ("Fabric", "fabric", [
            ("State", "state", fabric_state), ("Status", "status", fabric_status),
            ("CliqueId", "cliqueId", "0" if in_fabric else NA),
            ("ClusterUUID", "clusterUuid", "00000000-0000-0000-0000-000000000000" if in_fabric else NA),
            ("Health", "health", [
                ("Summary", "summary", NA), ("Bandwidth", "bandwidth", NA),
                ("Route Recovery in progress", "route_recovery_in_progress", NA),
                ("Route Unhealthy", "route_unhealthy", NA), ("Access Timeout Recovery", "access_timeout_recovery", NA),
                ("Incorrect Configuration", "incorrect_configuration", NA)])]),
        ("Processes", "processes", processes or "None"),
        ("Capabilities", "capabilities", [("EGM", "egm", "disabled")]),
    ]  # fmt: skip


def _ecc(errors: str) -> list[Entry]:
    return [
        ("SRAM Correctable", "sram_correctable", "0"),
        ("SRAM Uncorrectable Parity", "sram_uncorrectable_parity", "0"),
        ("SRAM Uncorrectable SEC-DED", "sram_uncorrectable_secded", "0"),
        ("DRAM Correctable", "dram_correctable", "0"),
        ("DRAM Uncorrectable", "dram_uncorrectable", errors),
    ]


def _head(state: dict[str, Any], present: list[dict[str, Any]]) -> list[Entry]:
    return [
        ("Timestamp", "timestamp", time.strftime("%a %b %e %H:%M:%S %Y", time.localtime())),
        ("Driver Version", "driver_version", state["driver"]["loaded"]),
        ("CUDA Version", "cuda_version", gpus.cuda_version(state["driver"]["library"])),
        ("Attached GPUs", "attached_gpus", str(len(state_file.present_gpus(state)))),
    ]


def text(state: dict[str, Any], present: list[dict[str, Any]]) -> str:
    lines = ["", "==============NVSMI LOG==============", ""]
    for label, _tag, value in _head(state, present):
        if label == "Attached GPUs":
            lines.append("")
        lines.append(f"{label:<55}: {value}")

    def walk(entries: list[Entry], depth: int) -> None:
        for label, _tag, value in entries:
            if not label:
                continue
            start = "    " * depth + label
            if isinstance(value, str):
                lines.append(f"{start:<55}: {value}")
            elif label == "Processes":
                lines.append(start)
                for process in value:
                    details = {tag: item for _, tag, item in process[2]}
                    lines.extend([
                        f"{'        GPU instance ID':<55}: N/A", f"{'        Compute instance ID':<55}: N/A",
                        f"{'        Process ID':<55}: {details['pid']}", f"{'            Type':<55}: C",
                        f"{'            Name':<55}: {details['process_name']}",
                        f"{'            Used GPU Memory':<55}: {details['used_memory']}"])  # fmt: skip
            else:
                lines.append(start)
                walk(value, depth + 1)

    for gpu in present:
        lines.append(f"GPU {gpus.bus_id(gpu['pci'])}")
        walk(_gpu(state, gpu), 1)
        lines.append("")
    return "\n".join(lines)


_PLAIN_IN_XML = {
    "pci_bus",
    "pci_device",
    "pci_domain",
    "pci_base_class",
    "pci_sub_class",
    "pci_device_id",
    "pci_sub_system_id",
}


def xml(state: dict[str, Any], present: list[dict[str, Any]]) -> str:
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', "<nvidia_smi_log>"]

    def walk(entries: list[Entry], depth: int) -> None:
        tab = "\t" * depth
        for _label, tag, value in entries:
            if not tag:
                continue
            if tag in ("mig_devices", "processes") and value == "None":
                lines.append(f"{tab}<{tag}>")
                if tag == "mig_devices":
                    lines.append(f"{tab}\tNone")
                lines.append(f"{tab}</{tag}>")
            elif isinstance(value, str):
                shown = value.removeprefix("0x") if tag in _PLAIN_IN_XML else value
                escaped = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
                lines.append(f"{tab}<{tag}>{escaped}</{tag}>")
            else:
                lines.append(f"{tab}<{tag}>")
                walk(value, depth + 1)
                lines.append(f"{tab}</{tag}>")

    walk(_head(state, present), 1)
    for gpu in present:
        lines.append(f'\t<gpu id="{gpus.bus_id(gpu["pci"])}">')
        walk(_gpu(state, gpu), 2)
        lines += ["\t\t<accounted_processes>", "\t\t</accounted_processes>", "\t</gpu>", ""]
    lines += ["</nvidia_smi_log>"]
    return "\n".join(lines)
