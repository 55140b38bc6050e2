# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""nvidia-smi: table, -L, -q (text, XML), --query-*, topo, nvlink, -pm, --version."""

from __future__ import annotations

import re
import time
from typing import Any

from railyard_lab import catalogue, gpus
from railyard_lab import state as state_file
from railyard_lab.tools import _common, smi_log, smi_topo


def main(name: str, argv: list[str]) -> int:
    state = _common.snapshot()
    if "--version" in argv or "--help" in argv or "-h" in argv:
        return _version(state)
    problem = gpus.failure(state)
    if problem:
        text, code = problem
        print(text)
        return code
    present = state_file.present_gpus(state)
    if argv[:1] == ["topo"]:
        return smi_topo.topo(state, argv[1:])
    if argv[:1] == ["nvlink"]:
        return smi_topo.nvlink(state, argv[1:])
    options = _options(argv)
    if options is None:
        print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n")
        return 2
    if options.get("id") is not None:
        present = [gpu for index, gpu in enumerate(present) if options["id"] in (str(index), gpu["uuid"], gpus.bus_id(gpu["pci"]),
                                                                              gpu["pci"])]  # fmt: skip
        if not present:
            print("No devices were found")
            return 6
    if "pm" in options:
        return _persistence(options["pm"])
    if "query_gpu" in options:
        return _query(state, present, options)
    if "query_apps" in options:
        return _apps(state, present, options)
    if options.get("list"):
        for gpu in present:
            index = state_file.present_gpus(state).index(gpu)
            print(f"GPU {index}: {catalogue.GPUS[gpu['model']]['name']} (UUID: {gpu['uuid']})")
        return 0
    if options.get("query"):
        print(smi_log.xml(state, present) if options.get("xml") else smi_log.text(state, present))
        return 0
    if options.get("reset"):
        return _reset(present)
    _table(state, present)
    return 0


def _options(argv: list[str]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if word in ("-q", "--query"):
            found["query"] = True
        elif word in ("-x", "--xml-format"):
            found["xml"] = True
        elif word in ("-L", "--list-gpus"):
            found["list"] = True
        elif word in ("-r", "--gpu-reset"):
            found["reset"] = True
        elif key in ("-i", "--id"):
            found["id"] = value if equals else next(words, None)
        elif key in ("-pm", "--persistence-mode"):
            found["pm"] = value if equals else next(words, "")
        elif key == "--query-gpu":
            found["query_gpu"] = value if equals else next(words, "")
        elif key in ("--query-compute-apps", "--query-accounted-apps"):
            found["query_apps"] = value if equals else next(words, "")
        elif key == "--format":
            found["format"] = (value if equals else next(words, "")).split(",")
        elif key in ("-d", "--display", "-f", "--filename"):
            if not equals:
                next(words, None)
        else:
            return None
    if ("query_gpu" in found or "query_apps" in found) and "format" not in found:
        return None
    return found


def _version(state: dict[str, Any]) -> int:
    driver = state["driver"]
    print(f"NVIDIA-SMI version  : {driver['library']}")
    print(f"NVML version        : {'.'.join(driver['library'].split('.')[:2])}")
    print(f"DRIVER version      : {driver['loaded'] or 'N/A'}")
    print(f"CUDA Version        : {gpus.cuda_version(driver['library'])}")
    return 0


def _persistence(value: str) -> int:
    if value not in ("0", "1", "ENABLED", "DISABLED"):
        print(f'Invalid persistence mode "{value}"')
        return 2
    wanted = value in ("1", "ENABLED")
    with state_file.change() as state:
        already = gpus.persistence(state) == wanted
        state["persistence"] = wanted
        present = state_file.present_gpus(state)
    word = "enabled" if wanted else "disabled"
    for gpu in present:
        text = (
            f"Persistence mode is already {word.capitalize()} for GPU {gpus.bus_id(gpu['pci'])}."
            if already
            else f"{word.capitalize()} persistence mode for GPU {gpus.bus_id(gpu['pci'])}."
        )
        print(text)
    print("All done.")
    return 0


def _reset(present: list[dict[str, Any]]) -> int:
    with state_file.change() as state:
        for gpu in state["gpus"]:
            if gpu["pci"] in [item["pci"] for item in present]:
                gpu.update(remap_pending=False, xid=None, uncorrected_ecc=0)
    for gpu in present:
        print(f"GPU {gpus.bus_id(gpu['pci'])} was successfully reset.")
    print("All done.")
    return 0


# --- table --------------------------------------------------------------------------------------------------------


def _table(state: dict[str, Any], present: list[dict[str, Any]]) -> None:
    driver = state["driver"]
    wide = "+" + "-" * 89 + "+"
    columns = "+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+"
    print(time.strftime("%a %b %e %H:%M:%S %Y", time.localtime()) + "       ")
    print(wide)
    print(f"| NVIDIA-SMI {driver['library']:<23}Driver Version: {driver['loaded']:<15}"
          f"CUDA Version: {gpus.cuda_version(driver['library']):<9}|")  # fmt: skip
    print(columns)
    print("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
    print("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
    print("|                                         |                        |               MIG M. |")
    print("|" + "=" * 41 + "+" + "=" * 24 + "+" + "=" * 22 + "|")
    persistent = "On" if gpus.persistence(state) else "Off"
    for index, gpu in enumerate(state_file.present_gpus(state)):
        if gpu not in present:
            continue
        model = catalogue.GPUS[gpu["model"]]
        used = sum(process["used_mib"] for process in state["gpu_processes"] if process["gpu_uuid"] == gpu["uuid"])
        print(
            f"| {index:3d}  {model['name']:<25.25} {persistent:>8} |   {gpus.bus_id(gpu['pci'])} Off | {gpu['uncorrected_ecc']:>20} |"
        )
        print(f"| N/A   {30 + index}C    P0           {70 + index:4d}W / {model['power_w']:4d}W | "
              f"{used:7d}MiB / {model['memory_mib']:6d}MiB |      {0 if not used else 97}%      Default |")  # fmt: skip
        mig = "Disabled" if model["architecture"] in ("Ampere", "Hopper", "Blackwell") else "N/A"
        print(f"|                                         |                        | {mig:>20} |")
        print(columns)
    print()
    print(wide)
    print("| Processes:                                                                              |")
    print("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |")
    print("|        ID   ID                                                               Usage      |")
    print("|" + "=" * 89 + "|")
    order = [gpu["uuid"] for gpu in state_file.present_gpus(state)]
    for process in state["gpu_processes"]:
        index = order.index(process["gpu_uuid"]) if process["gpu_uuid"] in order else 0
        print(
            f"|  {index:3d}   N/A  N/A    {process['pid']:11d}      C   {process['name']:<33.33} {process['used_mib']:8d}MiB |"
        )
    if not state["gpu_processes"]:
        print("|  No running processes found                                                             |")
    print(wide)


# --- queries ------------------------------------------------------------------------------------------------------

_UNITS = {
    "memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "memory.reserved": "MiB", "power.draw": "W",
    "power.limit": "W", "power.max_limit": "W", "power.default_limit": "W", "power.min_limit": "W",
    "enforced.power.limit": "W", "power.draw.average": "W", "power.draw.instant": "W",
    "utilization.gpu": "%", "utilization.memory": "%", "fan.speed": "%", "clocks.current.sm": "MHz",
    "clocks.current.memory": "MHz", "clocks.sm": "MHz", "clocks.mem": "MHz", "clocks.max.sm": "MHz",
    "clocks.max.memory": "MHz", "clocks.gr": "MHz", "clocks.current.graphics": "MHz",
}  # fmt: skip
_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "bus_id": "pci.bus_id",
}


def _value(state: dict[str, Any], gpu: dict[str, Any], field: str) -> str | None:
    """Text of a field without its unit; None for a field that does not exist."""
    model = catalogue.GPUS[gpu["model"]]
    present = state_file.present_gpus(state)
    function = state["pci"][gpu["pci"]]
    link = function["link"]
    used = sum(process["used_mib"] for process in state["gpu_processes"] if process["gpu_uuid"] == gpu["uuid"])
    mig = "Disabled" if model["architecture"] in ("Ampere", "Hopper", "Blackwell") else "[N/A]"
    bus = gpus.bus_id(gpu["pci"])
    gsp = state["driver"]["loaded"] if state["driver"]["loaded_flavour"] == "open" else "[N/A]"
    values: dict[str, Any] = {
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.", time.localtime()) + f"{int(time.time() * 1000) % 1000:03d}",
        "driver_version": state["driver"]["loaded"], "kmd_version": state["driver"]["loaded"], "count": len(present),
        "name": model["name"], "serial": gpu["serial"], "uuid": gpu["uuid"], "index": present.index(gpu),
        "pci.bus_id": bus, "pci.domain": "0x" + gpu["pci"][:4].upper(), "pci.bus": "0x" + gpu["pci"][5:7].upper(),
        "pci.device": "0x" + gpu["pci"][8:10].upper(), "pci.baseClass": "0x3", "pci.subClass": "0x2",
        "pci.device_id": f"0x{model['device'].upper()}10DE",
        "pci.sub_device_id": f"0x{model['subsystem'][1].upper()}{model['subsystem'][0].upper()}",
        "pcie.link.gen.current": link["gen"], "pcie.link.gen.gpucurrent": link["gen"], "pcie.link.gen.max": link["max_gen"],
        "pcie.link.gen.gpumax": link["max_gen"], "pcie.link.gen.hostmax": link["max_gen"],
        "pcie.link.width.current": link["width"], "pcie.link.width.max": link["max_width"],
        "display_mode": "Disabled", "display_active": "Disabled", "display_attached": "No",
        "persistence_mode": "Enabled" if gpus.persistence(state) else "Disabled", "addressing_mode": "None",
        "accounting.mode": "Disabled", "accounting.buffer_size": 4000, "driver_model.current": "[N/A]",
        "driver_model.pending": "[N/A]", "vbios_version": model["vbios"], "inforom.img": "G520.0200.00.05",
        "inforom.oem": "2.1", "inforom.ecc": "7.16", "inforom.pwr": "[N/A]", "gpu_recovery_action": "None",
        "fan.speed": "[N/A]", "pstate": "P0", "compute_mode": "Default", "compute_cap": _CAPABILITY[model["architecture"]],
        "memory.total": model["memory_mib"], "memory.reserved": model["reserved_mib"], "memory.used": used,
        "memory.free": model["memory_mib"] - model["reserved_mib"] - used,
        "utilization.gpu": 97 if used else 0, "utilization.memory": 0,
        "ecc.mode.current": "Enabled", "ecc.mode.pending": "Enabled",
        "ecc.errors.corrected.volatile.total": 0, "ecc.errors.uncorrected.volatile.total": gpu["uncorrected_ecc"],
        "ecc.errors.corrected.aggregate.total": 0, "ecc.errors.uncorrected.aggregate.total": gpu["uncorrected_ecc"],
        "retired_pages.pending": "[N/A]", "remapped_rows.pending": "Yes" if gpu["remap_pending"] else "No",
        "temperature.gpu": 30 + present.index(gpu), "temperature.memory": 42,
        "power.management": "Enabled", "power.draw": f"{70 + present.index(gpu)}.31",
        "power.draw.average": f"{70 + present.index(gpu)}.31", "power.draw.instant": f"{70 + present.index(gpu)}.40",
        "power.limit": f"{model['power_w']}.00", "enforced.power.limit": f"{model['power_w']}.00",
        "power.default_limit": f"{model['power_w']}.00", "power.max_limit": f"{model['power_w']}.00",
        "power.min_limit": "200.00", "clocks.current.sm": 345, "clocks.sm": 345, "clocks.current.graphics": 345,
        "clocks.gr": 345, "clocks.current.memory": model["mem_mhz"], "clocks.mem": model["mem_mhz"],
        "clocks.max.sm": model["sm_mhz"], "clocks.max.memory": model["mem_mhz"],
        "mig.mode.current": mig, "mig.mode.pending": mig, "gom.current": "[N/A]", "gom.pending": "[N/A]",
        "gsp.mode.current": "Enabled", "gsp.mode.default": "Enabled", "gsp_firmware_version": gsp, "c2c.mode": "Disabled",
        "fabric.state": gpus.fabric(state, gpu)[0], "fabric.status": gpus.fabric(state, gpu)[1],
        "fabric.cliqueId": 0, "fabric.clusterUuid": "00000000-0000-0000-0000-000000000000",
        "module_id": gpu["module_id"],
    }  # fmt: skip
    found = values.get(_ALIASES.get(field, field))
    return None if found is None else str(found)


_CAPABILITY = {"Ampere": "8.0", "Hopper": "9.0", "Blackwell": "10.0", "Ada Lovelace": "8.9"}


def _csv(names: list[str], rows: list[list[str]], units: dict[str, str], form: list[str]) -> None:
    plain = "nounits" in form
    if "noheader" not in form:
        print(", ".join(f"{name} [{units[name]}]" if name in units else name for name in names))
    for row in rows:
        print(", ".join(
            f"{value} {units[name]}" if name in units and not plain and not value.startswith("[") else value
            for name, value in zip(names, row)))  # fmt: skip


def _query(state: dict[str, Any], present: list[dict[str, Any]], options: dict[str, Any]) -> int:
    names = [name for name in re.split(r"\s*,\s*", options["query_gpu"].strip()) if name]
    rows = []
    for gpu in present:
        row = []
        for name in names:
            value = _value(state, gpu, name)
            if value is None:
                print(f'Field "{name}" is not a valid field to query.\n')
                return 2
            row.append(value)
        rows.append(row)
    shown = [{"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}.get(name, name) for name in names]
    _csv(shown, rows, _UNITS, options["format"])
    return 0


def _apps(state: dict[str, Any], present: list[dict[str, Any]], options: dict[str, Any]) -> int:
    names = [name for name in re.split(r"\s*,\s*", options["query_apps"].strip()) if name]
    known = {gpu["uuid"]: gpu for gpu in present}
    rows = []
    for process in state["gpu_processes"]:
        gpu = known.get(process["gpu_uuid"])
        if gpu is None:
            continue
        own = {"pid": str(process["pid"]), "process_name": process["name"], "name": process["name"],
               "used_gpu_memory": str(process["used_mib"]), "used_memory": str(process["used_mib"])}  # fmt: skip
        rows.append([own.get(name) or _value(state, gpu, name) or "" for name in names])
    probe = present[0]
    for name in names:
        if (
            name not in ("pid", "process_name", "name", "used_gpu_memory", "used_memory")
            and _value(state, probe, name) is None
        ):
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
    shown = ["used_gpu_memory" if name == "used_memory" else name for name in names]
    _csv(shown, rows, {"used_gpu_memory": "MiB"}, options["format"])
    return 0
