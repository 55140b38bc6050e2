# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Kernel modules as loaded and as installed, DKMS builds, OFED."""

from __future__ import annotations

import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import text

__all__ = ["COMMANDS", "MODULES", "collect", "dkms", "ofed", "parse_lsmod", "parse_modinfo"]

#: Modules that the plan loads or a rule reads.
MODULES = (
    "nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nv_peer_mem", "nouveau", "gdrdrv",
    "nvidia_fs", "ib_core", "ib_uverbs", "ib_umad", "ib_ipoib", "rdma_cm", "rdma_ucm", "mlx5_core", "mlx5_ib",
    "rdma_rxe", "siw", "vfio_pci", "knem", "xpmem",
)  # fmt: skip
#: Of these the installed file is looked at too: one that differs from what is loaded is a finding.
_INSPECTED = ("nvidia", "nvidia_peermem", "gdrdrv", "mlx5_core", "ib_core", "nouveau")
_MODINFO = ("modinfo", *_INSPECTED)
_OFED = ("ofed_info", "-s")
COMMANDS = (_MODINFO, _OFED)
_DKMS = "/var/lib/dkms"


def collect(source: Source) -> Optional[dict[str, Any]]:
    loaded = _loaded(source)
    installed = _installed(source)
    if loaded is None and not installed:
        return None
    found: dict[str, Any] = {}
    # Modules that use one of ours (a file system on RDMA, a vendor's) are known by being its holders.
    for name in dict.fromkeys([*MODULES, *(loaded or {})]):
        entry: dict[str, Any] = {}
        if loaded is not None:
            entry["loaded"] = name in loaded or (source.live and source.isdir(f"/sys/module/{name}"))
            entry.update(loaded.get(name, {}))
            version = text(source, f"/sys/module/{name}/version") if entry["loaded"] else None
            if version is not None:
                entry["version"] = version
        info = installed.get(name)
        if info is not None:
            entry["available"] = info.get("filename") is not None
            for key, label in (("filename", "filename"), ("installed_version", "version"), ("license", "license")):
                if info.get(label):
                    entry[key] = info[label]
            if info.get("signer"):
                entry["signer"] = info["signer"]
        if entry.get("loaded") or info is not None or (name in MODULES and loaded is not None):
            found[name] = entry
    return found


def _loaded(source: Source) -> Optional[dict[str, Any]]:
    report = source.read("/proc/modules")
    if report is None:
        output = source.run(("lsmod",))
        report = output.stdout if output is not None and output.rc == 0 else None
    return parse_lsmod(report) if report is not None else None


def parse_lsmod(report: str) -> dict[str, dict[str, Any]]:
    """`/proc/modules` (`nvidia 56717312 2 nvidia_uvm,nvidia_peermem, Live 0x0`) or `lsmod`."""
    found: dict[str, dict[str, Any]] = {}
    for line in report.splitlines():
        fields = line.split()
        if len(fields) < 3 or not fields[1].isdigit() or not re.fullmatch(r"-?\d+", fields[2]):
            continue
        holders = fields[3] if len(fields) > 3 and fields[3] != "-" else ""
        found[fields[0].replace("-", "_")] = {
            "use_count": int(fields[2]),
            "holders": [holder for holder in holders.split(",") if holder and not holder.startswith("[")],
        }
    return found


def _installed(source: Source) -> dict[str, dict[str, Any]]:
    if not source.live:
        found = {}
        for name in source.recorded("modinfo_"):
            module = name[len("modinfo_") :].rsplit(".", 1)[0]
            output = source.run(("modinfo", module))
            if output is not None:
                for info in parse_modinfo(output.text) or [{}]:
                    found[module.replace("-", "_")] = info
        return found
    output = source.run(_MODINFO)
    if output is None:
        return {}
    found = {info["name"]: info for info in parse_modinfo(output.stdout) if "name" in info}
    # modinfo names those it did not find on stderr.
    for name in _INSPECTED:
        if name not in found and re.search(rf"\b{name}\b.*not found", output.stderr):
            found[name] = {}
    return found


def parse_modinfo(report: str) -> list[dict[str, Any]]:
    """`modinfo a b`: `filename:       /lib/modules/…/nvidia.ko`, one block per module, each begun by its file."""
    found: list[dict[str, Any]] = []
    for line in report.splitlines():
        match = re.match(r"^(filename|version|license|signer|vermagic|name|srcversion):\s+(\S.*)$", line)
        if match is None:
            continue
        key, value = match.group(1), match.group(2).strip()
        if key == "filename" or not found:
            found.append({})
        found[-1].setdefault(key, value)
        if key == "filename":
            stem = value.rsplit("/", 1)[-1].split(".ko", 1)[0]
            found[-1].setdefault("name", stem.replace("-", "_"))
    return found


def dkms(source: Source) -> Optional[list[dict[str, Any]]]:
    """Builds per kernel, from DKMS' own tree: `<module>/<version>/<kernel>/<architecture>/module/`."""
    if not source.isdir(_DKMS):
        return None
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


def ofed(source: Source) -> Optional[dict[str, Any]]:
    """`ofed_info -s`: `MLNX_OFED_LINUX-24.10-1.1.4.0:` or `OFED-internal-24.10-1.1.4:`."""
    output = source.run(_OFED)
    if output is None:
        return None
    for line in output.stdout.splitlines():
        match = re.match(r"^\s*((?:\w+[-_])*?OFED[\w-]*?|DOCA[\w-]*?)-(\d[\w.]*-[\w.]+)\s*:?\s*$", line)
        if match is not None:
            return {"name": match.group(1), "version": match.group(2), "text": line.strip().rstrip(":")}
    return None
