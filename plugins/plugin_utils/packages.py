# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package sets of the layers: one version string per product, the rest derived (docs/architecture.md, Package sets)."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import compatibility, disruption
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.gpudirect import version_tuple
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, strings, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note

# From here on Fabric Manager and IMEX have one package name for all branches.
UNSUFFIXED_FROM = 580
# What may be taken out of the kernel, while no GPU is in use, for a restart of the RDMA stack: it holds ib_core.
PEERMEM = ("nvidia_peermem", "nv_peer_mem")
# Everything that carries the driver's version, dependencies among it: apt would else take the newest of those.
_DRIVER_PINS = [
    "nvidia-*",
    "libnvidia-*",
    "lib*-nvidia*",
    "libcuda1",
    "libcudadebugger1",
    "libnvcuvid1",
    "libnvoptix1",
    "libxnvctrl*",
    "firmware-nvidia-*",
    "linux-*-nvidia-*",
    "cuda-drivers*",
    "xserver-xorg-video-nvidia*",
]


def flavour(machine: Machine, intent: t.Mapping[str, t.Any]) -> tuple[str, str]:
    """Kernel module flavour and why: by the oldest GPU generation of the host."""
    if intent["gpu_fabric_driver_flavour"] != "auto":
        return intent["gpu_fabric_driver_flavour"], "set in gpu_fabric_driver_flavour"
    rows = [row for row in (compatibility.generation(gpu) for gpu in machine.gpus) if row]
    closed = [row["name"] for row in rows if "open" not in row["flavours"]]
    if closed:
        return "proprietary", f"{closed[0]} GPUs have no open kernel modules"
    if rows:
        return "open", f"{rows[0]['name']} GPUs: open kernel modules, which DMA-BUF needs"
    return "open", "open kernel modules from Turing on"


def for_host(
    machine: Machine, intent: t.Mapping[str, t.Any], *, infiniband: bool, has_rdma: bool
) -> tuple[dict[str, t.Any], list[Note]]:
    notes: list[Note] = []
    kind, kind_reason = flavour(machine, intent)
    driver = _driver(machine, intent, kind, kind_reason)
    notes += _compatible(machine, intent, kind)
    sets = {
        "driver": driver,
        "cuda": _cuda(machine, intent),
        "nccl": _nccl(machine, intent),
        "ofed": _ofed(machine, intent, infiniband, has_rdma),
    }
    return sets, notes


def _family(machine: Machine) -> str:
    os_facts = mapping(mapping(machine.facts.get("host")).get("os"))
    names = [text(os_facts.get("id")), *strings(os_facts.get("id_like"))]
    return "ubuntu" if "ubuntu" in names else "debian"


def repository(machine: Machine, given: t.Mapping[str, t.Any], usual: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The repository given in the intent, completed; or the vendor's for this distribution."""
    host = mapping(machine.facts.get("host"))
    os_facts = mapping(host.get("os"))
    version = text(os_facts.get("version_id"))
    ident = text(os_facts.get("id")) or "debian"
    machine_name = text(host.get("architecture")) or "x86_64"
    words = {
        "distribution": ident + (version.replace(".", "") if ident == "ubuntu" else version.split(".")[0]),
        "distribution_dotted": ident + version,
        "architecture": {"aarch64": "sbsa", "arm64": "sbsa"}.get(machine_name, "x86_64"),
        "machine": {"aarch64": "arm64-sbsa", "arm64": "arm64-sbsa"}.get(machine_name, "x86_64"),
        "doca": text(given.get("doca_version")) or "3.2.1",
    }
    if any(given.get(key) for key in ("key", "key_file")):
        usual = {key: value for key, value in usual.items() if key != "key_url"}
    source = {**usual, **given} if not given.get("url") else {"name": usual["name"], **given}
    found = {}
    for key, value in source.items():
        if isinstance(value, str) and usual.get(key) == value:
            value = value.format_map(words)
        if key != "doca_version":
            found[key] = value
    found.setdefault("suite", "/")
    found.setdefault("components", [])
    return found


def services_settled(machine: Machine, services: t.Mapping[str, str]) -> bool:
    """Whether the facts show every service as it should be, so that the host need not be asked again."""
    seen = mapping(machine.facts.get("services"))
    for unit, wanted in services.items():
        found = mapping(seen.get(unit.removesuffix(".service")) or seen.get(unit))
        state = {found.get("active") is True, found.get("enabled") is True}
        if state != {wanted == "started"}:
            return False
    return True


def _driver(machine: Machine, intent: t.Mapping[str, t.Any], kind: str, reason: str) -> dict[str, t.Any]:
    version = intent["gpu_fabric_driver_version"]
    major = version_tuple(version, 1)[0]
    names = compatibility.table()["driver_packages"][_family(machine)]
    other = "proprietary" if kind == "open" else "open"
    packages = {name.format(major=major): version for name in names[kind] + names["both"]}
    remove = [name.format(major=major) for name in names[other]]
    bridges = any(function.sw_mng for function in machine.functions.values())
    nvswitch = bool(machine.nvswitches) or bridges
    manager = "nvidia-fabricmanager" if major >= UNSUFFIXED_FROM else f"nvidia-fabricmanager-{major}"
    services = {"nvidia-persistenced.service": "started"}
    load = ["nvidia", "nvidia_uvm", "nvidia_modeset"]
    if nvswitch:
        packages[manager] = version
        services["nvidia-fabricmanager.service"] = "started"
        where = "its bridges manage 4th-generation NVSwitches" if bridges else f"{len(machine.nvswitches)} NVSwitches"
        reason += f"; Fabric Manager {version}: {where}"
        if bridges:
            # NVLSM programs the switches through InfiniBand management datagrams, also on pure RoCE hosts
            packages |= {"nvlsm": "", "libnvsdm": version}
            load.append("ib_umad")
    else:
        remove.append("nvidia-fabricmanager*")
        services["nvidia-fabricmanager.service"] = "stopped"
        reason += "; no Fabric Manager: no NVSwitch is shown"
    cost, cost_reason = disruption.of_driver(machine, version, kind)
    return {
        "wanted": bool(machine.gpus),
        "reason": reason if machine.gpus else "no GPU is shown",
        "repository": repository(machine, intent["gpu_fabric_repository"], compatibility.table()["repository"]),
        "packages": packages,
        "remove": remove,
        "pins": [{"packages": [*_DRIVER_PINS], "version": f"{version}*", "priority": 1001}],
        "hold": True,
        "version": version,
        "flavour": kind,
        "services": services,
        "services_settled": services_settled(machine, services),
        "modules": {"load": load, "blacklist": ["nouveau"], "options": {}},
        "disruption": cost,
        "disruption_reason": cost_reason,
    }


def _cuda(machine: Machine, intent: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    version = intent["gpu_fabric_cuda_version"]
    parts = version.split(".")
    series = ".".join(parts[:2])
    # the package's name holds the series; a third number pins the update release
    name = f"cuda-toolkit-{series.replace('.', '-')}"
    return {
        "wanted": bool(machine.gpus),
        "reason": f"CUDA {version}" if machine.gpus else "no GPU is shown",
        "repository": repository(machine, intent["gpu_fabric_repository"], compatibility.table()["repository"]),
        "packages": {name: version if len(parts) > 2 else ""},
        "remove": [],
        "pins": [{"packages": [name], "version": f"{version}*", "priority": 1001}],
        "hold": True,
        "version": version,
        "services": {},
        "disruption": "none",
        "disruption_reason": "toolkits of several versions live side by side",
    }


def _nccl(machine: Machine, intent: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    version = intent["gpu_fabric_nccl_version"]
    cuda = ".".join(intent["gpu_fabric_cuda_version"].split(".")[:2])
    exact = f"{version}-1+cuda{cuda}"
    return {
        "wanted": bool(machine.gpus),
        "reason": f"NCCL {version} built for CUDA {cuda}" if machine.gpus else "no GPU is shown",
        "repository": repository(machine, intent["gpu_fabric_repository"], compatibility.table()["repository"]),
        "packages": {"libnccl2": exact, "libnccl-dev": exact},
        "remove": [],
        "pins": [{"packages": ["libnccl2", "libnccl-dev"], "version": exact, "priority": 1001}],
        "hold": True,
        "version": version,
        "services": {},
        "disruption": "none",
        "disruption_reason": "running processes keep the library that they loaded",
    }


def _ofed(machine: Machine, intent: t.Mapping[str, t.Any], infiniband: bool, has_rdma: bool) -> dict[str, t.Any]:
    table = compatibility.table()
    doca = intent["gpu_fabric_rdma_stack"] == "doca"
    version = intent["gpu_fabric_ofed_version"] if doca else ""
    given = {**intent["gpu_fabric_ofed_repository"]}
    if version:
        given["doca_version"] = version
    installed = text(mapping(machine.facts.get("ofed")).get("version"))
    moves = doca and not installed
    return {
        "wanted": has_rdma or bool(machine.gpus) or not intent["gpu_fabric_require_hardware"],
        "reason": "DOCA-OFED" if doca else "the distribution's RDMA stack",
        "repository": repository(machine, given, table["doca_repository"]) if doca else None,
        "packages": dict.fromkeys(table["doca_packages"] if doca else table["inbox_packages"], ""),
        "remove": [],
        "pins": [],
        "hold": doca,
        "version": version,
        "services": {"openibd.service": "started"} if doca else {},
        # What a restart of the stack must not find in the kernel, and what must be there after it.
        "holders": list(PEERMEM) if moves else [],
        "brings": [f"/sys/bus/pci/devices/{pci}/infiniband" for pci in _adapters(machine)] if moves else [],
        "disruption": "reload" if moves else "none",
        "disruption_reason": "DOCA replaces the inbox RDMA modules" if moves else "user-space packages",
    }


def _adapters(machine: Machine) -> list[str]:
    """PCI addresses of the adapters that come back with their driver; virtual functions are made by hand."""
    return sorted({hca.pci for hca in machine.hcas if hca.pci and not machine.function(hca.pci).physfn})


def _compatible(machine: Machine, intent: t.Mapping[str, t.Any], kind: str) -> list[Note]:
    """Contradictions between the pinned versions, and between them and the GPUs."""
    if not machine.gpus:
        return []
    table, notes = compatibility.table(), []
    driver, cuda = intent["gpu_fabric_driver_version"], intent["gpu_fabric_cuda_version"]
    major = version_tuple(driver, 1)[0]
    series = ".".join(cuda.split(".")[:2])
    floor = table["cuda_driver_floor"].get(cuda.split(".")[0])
    packaged = table["cuda_toolkit_driver"].get(series)
    evidence = [f"gpu_fabric_driver_version: {driver}", f"gpu_fabric_cuda_version: {cuda}"]
    if series in table["cuda_never_released"]:
        notes.append(
            Note("RF-PLAN-VERSIONS", "", f"CUDA {series} was never released", evidence, "Set gpu_fabric_cuda_version")
        )
    elif floor and major < floor:
        remedy = (
            f"Set gpu_fabric_driver_version to {floor} or newer, or gpu_fabric_cuda_version to an older major version"
        )
        notes.append(
            Note(
                "RF-PLAN-VERSIONS",
                "",
                f"CUDA {cuda} needs driver {floor} or newer, {driver} is planned",
                evidence,
                remedy,
            )
        )
    elif packaged and version_tuple(driver, 3) < version_tuple(packaged, 3):
        notes.append(
            Note(
                "RF-PLAN-VERSIONS-MINOR",
                "",
                f"CUDA {series} came with driver {packaged}, {driver} is planned: newer PTX and features are missing",
                evidence,
                f"Set gpu_fabric_driver_version to {packaged} or newer",
            )
        )
    seen = set()
    for gpu in machine.gpus:
        row = compatibility.generation(gpu)
        if not row or row["name"] in seen:
            continue
        seen.add(row["name"])
        shown = [f"{gpu.pci} [10de:{gpu.device}] {gpu.name}".strip()]
        if kind not in row["flavours"]:
            notes.append(
                Note(
                    "RF-PLAN-FLAVOUR",
                    gpu.pci,
                    f"{row['name']} GPUs run on {' or '.join(row['flavours'])} kernel modules only, {kind} is planned",
                    shown,
                    f"Set gpu_fabric_driver_flavour to auto or {row['flavours'][0]}",
                )
            )
        if major < row["min_driver"]:
            notes.append(
                Note(
                    "RF-PLAN-VERSIONS",
                    gpu.pci,
                    f"{row['name']} GPUs need driver {row['min_driver']} or newer, {driver} is planned",
                    shown,
                    f"Set gpu_fabric_driver_version to {row['min_driver']} or newer",
                )
            )
    return notes
