# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Kernel modules as loaded and as installed, DKMS builds, OFED."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import lsmod, modinfo
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import text

__all__ = ["MODULES", "collect", "dkms", "ofed"]

#: Modules that the plan loads or a rule reads.
MODULES = (
    "nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nv_peer_mem", "nouveau", "gdrdrv",
    "nvidia_fs", "ib_core", "ib_uverbs", "ib_umad", "ib_ipoib", "rdma_cm", "rdma_ucm", "mlx5_core", "mlx5_ib",
    "rdma_rxe", "siw", "vfio_pci", "knem", "xpmem",
)  # fmt: skip
#: Of these the installed file is looked at too: one that differs from what is loaded is a finding.
_INSPECTED = ("nvidia", "nvidia_peermem", "gdrdrv", "mlx5_core")
_DKMS = "/var/lib/dkms"


def collect(source: Source, tools: Tools) -> Optional[dict[str, Any]]:
    loaded = _loaded(source, tools)
    installed = _installed(source, tools)
    if loaded is None and not installed:
        return None
    found: dict[str, Any] = {}
    # Modules that use one of ours (a file system on RDMA, a vendor's) are known by being its holders.
    for name in dict.fromkeys([*MODULES, *(loaded or {}), *installed]):
        entry: dict[str, Any] = {}
        if loaded is not None:
            entry["loaded"] = name in loaded or (source.live and source.isdir(f"/sys/module/{name}"))
            entry.update(loaded.get(name, {}))
            version = text(source, f"/sys/module/{name}/version") if entry["loaded"] else None
            if version is not None:
                entry["version"] = version
        info = installed.get(name)
        if info is not None:
            entry["available"] = "filename" in info or bool(info.get("builtin"))
            for key in ("filename", "license", "signer", "in_tree", "vermagic"):
                if key in info:
                    entry[key] = info[key]
            if "version" in info:
                entry["installed_version"] = info["version"]
        if entry:
            found[name] = entry
    return found


def _loaded(source: Source, tools: Tools) -> Optional[dict[str, Any]]:
    report = source.read("/proc/modules")
    answer = lsmod.parse(report).value if report is not None else tools.value("lsmod")
    return answer["modules"] if answer is not None else None


def _installed(source: Source, tools: Tools) -> dict[str, dict[str, Any]]:
    recorded = [name[len("modinfo_") :].rsplit(".", 1)[0] for name in source.recorded("modinfo_")]
    names = list(_INSPECTED) if source.live else recorded
    answers = source.map(lambda name: tools.ask(f"modinfo {name}", ("modinfo", name), modinfo.parse), names)
    return {name.replace("-", "_"): answer for name, answer in zip(names, answers) if answer is not None}


def dkms(source: Source, tools: Tools) -> Optional[list[dict[str, Any]]]:
    """Builds per kernel, from DKMS' own tree: `<module>/<version>/<kernel>/<architecture>/module/`."""
    if not source.isdir(_DKMS):
        answer = tools.value("dkms_status")
        return answer["modules"] if answer is not None else None
    found = []
    for module in source.listdir(_DKMS):
        for version in source.listdir(f"{_DKMS}/{module}"):
            base = f"{_DKMS}/{module}/{version}"
            if version.startswith("kernel-") or not source.isdir(base):
                continue
            builds = _builds(source, module, base)
            for build in builds:
                found.append({"module": module, "version": version, **build})
            if not builds and source.exists(f"{base}/source"):
                found.append({"module": module, "version": version, "status": "added"})
    return found


def _builds(source: Source, module: str, base: str) -> list[dict[str, str]]:
    builds = []
    for kernel in source.listdir(base):
        if kernel in ("source", "build") or not source.isdir(f"{base}/{kernel}"):
            continue
        for architecture in source.listdir(f"{base}/{kernel}"):
            if not source.isdir(f"{base}/{kernel}/{architecture}/module"):
                continue
            # DKMS links the version that it put into the kernel's tree from beside the versions.
            link = f"{_DKMS}/{module}/kernel-{kernel}-{architecture}"
            target = source.realpath(link)
            installed = target is not None and target.startswith(f"{base}/")
            status = "installed" if installed else "built"
            builds.append({"kernel": kernel, "architecture": architecture, "status": status})
    return builds


def ofed(tools: Tools) -> Optional[dict[str, Any]]:
    answer = tools.value("ofed_info")
    return {key: answer[key] for key in ("name", "version", "text") if key in answer} if answer is not None else None
