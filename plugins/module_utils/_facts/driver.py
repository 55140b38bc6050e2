# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""NVIDIA driver: the module that is loaded, the library beside it, the packages installed; Fabric Manager."""

from __future__ import annotations

import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import gpus
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.packages import upstream_version
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect", "fabric_manager", "parse_version"]

_LOADED = "/proc/driver/nvidia/version"
_VERSION = re.compile(r"NVRM version:.*?\bKernel Module\b(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/nvidia/current")
_LIBRARY = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)*)$")
#: In the order of preference: the package that builds or holds the module says the version best.
_DRIVER_PACKAGES = (
    re.compile(r"nvidia-(?:kernel-)?dkms(?:-.*)?$|nvidia-open-kernel-dkms$|nvidia-kernel-open-dkms$"),
    re.compile(r"linux-modules-nvidia-.*|kmod-nvidia.*"),
    re.compile(r"nvidia-driver(?:-\d+.*)?$|nvidia-open(?:-\d+)?$"),
    re.compile(r"cuda-drivers(?:-\d+)?$"),
)
_FABRIC_MANAGER = re.compile(r"(?:nvidia-fabric-?manager|cuda-drivers-fabricmanager)(?:-\d+)?$")
_FABRIC_MANAGER_LOG = ("journalctl", "-u", "nvidia-fabricmanager", "-n", "60", "--no-pager")
_LOG_LINES = 60


def parse_version(text: str) -> dict[str, str]:
    """`/proc/driver/nvidia/version`: version and flavour of the module that is loaded."""
    match = _VERSION.search(text)
    if match is None:
        return {}
    return {"version": match.group(1), "flavour": "open" if "Open Kernel Module" in match.group(0) else "proprietary"}


def collect(
    source: Source, tools: Tools, modules: dict[str, Any], packages: Optional[dict[str, Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    loaded = parse_version(source.read(_LOADED) or "")
    module = modules.get("nvidia", {})
    if not loaded and module.get("loaded") and module.get("version"):
        loaded = {"version": module["version"]}
    library = _library(source)
    for value in gpus.smi(tools):
        for failure in value["failures"]:
            found.setdefault("smi_error", failure["text"])
            found.setdefault("smi_error_kind", failure["kind"])
            if failure.get("pci"):
                found.setdefault("smi_error_pci", failure["pci"])
            if failure.get("library_version"):
                library = library or failure["library_version"]
        if value.get("driver_version"):
            # NVML answers only where the library and the module agree.
            library = library or value["driver_version"]
            loaded = loaded or {"version": value["driver_version"]}
        if value.get("cuda_version"):
            found.setdefault("cuda_version", value["cuda_version"])
        if value.get("warnings"):
            found.setdefault("smi_warnings", value["warnings"])
        if value.get("attached_gpus") is not None:
            found.setdefault("attached_gpus", value["attached_gpus"])
    if gpus.hangs(source):
        found["smi_error"] = "nvidia-smi did not answer and was stopped"
        found["smi_error_kind"] = "timed_out"
    if loaded:
        found["loaded"] = loaded
    if library:
        found["library_version"] = library
    installed = _installed(packages or {})
    if installed is not None:
        found["installed_package"], found["installed_version"] = installed
    elif module.get("installed_version"):
        found["installed_version"] = module["installed_version"]
    return found


def _library(source: Source) -> Optional[str]:
    for directory in _LIBRARIES:
        target = source.realpath(f"{directory}/libnvidia-ml.so.1")
        match = _LIBRARY.search(target or "")
        if match is not None:
            return match.group(1)
    return None


def _installed(packages: dict[str, Any]) -> Optional[tuple[str, str]]:
    for pattern in _DRIVER_PACKAGES:
        for name, package in packages.items():
            if pattern.match(name) and package["status"].startswith("installed") and package.get("version"):
                return name, upstream_version(package["version"])
    return None


def fabric_manager(
    source: Source, services: dict[str, Any], packages: Optional[dict[str, Any]]
) -> Optional[dict[str, Any]]:
    found: dict[str, Any] = {}
    for name, package in (packages or {}).items():
        if _FABRIC_MANAGER.match(name) and package["status"].startswith("installed") and package.get("version"):
            found["package"] = name
            found["installed_version"] = upstream_version(package["version"])
    unit = services.get("nvidia-fabricmanager")
    if unit is not None:
        for key in ("active", "state", "enabled", "result"):
            if key in unit:
                found[key] = unit[key]
    if found or not source.live:
        output = source.run(_FABRIC_MANAGER_LOG)
        if output is not None and output.stdout.strip():
            found["log"] = [line for line in output.stdout.splitlines() if line.strip()][-_LOG_LINES:]
    return found or None
