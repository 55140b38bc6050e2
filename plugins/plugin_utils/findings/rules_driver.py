# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA driver: versions that must agree, flavour, what keeps it from loading."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.compatibility import table
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.gpu_models import gpu_rows
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    mapping,
    natural,
    upstream,
    version_key,
)

LIBRARY_MISMATCH = define(
    "driver",
    "RF-DRIVER-LIBRARY-MISMATCH",
    title="Loaded kernel module and user-space library differ",
    severity="fail",
    phase="diagnose",
    means="nvidia-smi and every new job fail with 'Driver/library version mismatch'; running jobs go on.",
    looks_at="/proc/driver/nvidia/version against the library's version (nvidia-smi's own message, else the installed "
    "libnvidia-compute package) and the package history.",
    cause="The packages were upgraded (unattended-upgrades or a person) while the old kernel module stayed loaded.",
    remedy="Drain the node, then reboot it, or unload and load the nvidia modules when no process uses the GPUs; hold "
    "every package of the driver set so that it does not happen again (site.yml --tags nvidia).",
    check="cat /proc/driver/nvidia/version and nvidia-smi name the same version.",
    source="https://github.com/pando85/homelab/issues/4110; https://github.com/Azure/az-hop/issues/269",
)

NOUVEAU = define(
    "driver",
    "RF-DRIVER-NOUVEAU",
    title="nouveau is loaded although it is blacklisted",
    severity="fail",
    phase="verify",
    means="nouveau holds the GPUs, so the NVIDIA module cannot bind them.",
    looks_at="/proc/modules, the blacklist files of modprobe.d, the modules inside the initramfs where recorded. "
    "nouveau on a host without any NVIDIA package is the normal state of a bare system and is not reported.",
    cause="The blacklist was written and the initramfs not regenerated, or the reboot after it is missing.",
    remedy="Regenerate the initramfs (update-initramfs -u -k all, or dracut --force) and reboot the drained node.",
    check="lsmod | grep nouveau prints nothing; lsinitramfs /boot/initrd.img-$(uname -r) | grep nouveau neither.",
    source="https://github.com/NVIDIA/ansible-role-nvidia-driver/issues/44",
)

SECURE_BOOT = define(
    "driver",
    "RF-DRIVER-SECURE-BOOT",
    title="Secure Boot is on and the modules will not be signed",
    severity="fail",
    phase="preflight",
    means="With Secure Boot the kernel loads only modules signed by an enrolled key. DKMS builds (NVIDIA, OFED, "
    "gdrcopy) are not, so the installation succeeds and no GPU works.",
    looks_at="The firmware's SecureBoot variable (mokutil --sb-state), enrolled keys, whether the planned packages "
    "build by DKMS, the signer of the installed module.",
    cause="No key for locally built modules is enrolled; enrolment needs a person at the firmware's console.",
    remedy="Use modules signed by the distribution (linux-modules-nvidia-*), or enrol your own signing key (mokutil "
    "--import KEY.der, confirm at the console on the next boot) and have DKMS sign with it, or turn Secure Boot off in "
    "the firmware setup.",
    check="mokutil --sb-state; modinfo -F signer nvidia names an enrolled key.",
    source="https://github.com/wvthoog/proxmox-vgpu-installer/issues/9",
)

CUDA_FLOOR = define(
    "driver",
    "RF-CUDA-DRIVER-TOO-OLD",
    title="The CUDA toolkit needs a newer driver branch",
    severity="fail",
    phase="preflight",
    means="Each CUDA major release has a lowest driver branch; below it every program ends with 'CUDA driver version "
    "is insufficient for CUDA runtime version'.",
    looks_at="gpu_fabric_cuda_version against gpu_fabric_driver_version and the compatibility table; for a host with a "
    "driver already loaded and none asked for, the loaded one.",
    cause="Toolkit and driver were chosen apart from each other.",
    remedy="Choose a driver of at least the branch named in the message, or an older toolkit; cuda-compat helps only "
    "on data-centre GPUs and listed branches.",
    check="nvidia-smi: CUDA Version is at least the toolkit's major version.",
    source="NVIDIA CUDA compatibility guide; https://github.com/NVIDIA/nccl-tests/issues/98",
)

GPU_FLOOR = define(
    "driver",
    "RF-DRIVER-TOO-OLD-FOR-GPU",
    title="The wanted driver branch does not know the GPU",
    severity="fail",
    phase="preflight",
    means="The driver branch is older than the GPU generation: it installs and finds no supported device.",
    looks_at="PCI device ids of the GPUs against the lowest branch of their generation; gpu_fabric_driver_version.",
    cause="A version pinned for older machines is applied to newer ones.",
    remedy="Set gpu_fabric_driver_version to the branch named in the message or newer.",
    check="nvidia-smi -L lists every GPU.",
    source="NVIDIA supported-GPU lists; plugins/plugin_utils/data/compatibility.json",
)

DRIVER_DRIFT = define(
    "driver",
    "RF-DRIVER-DRIFT",
    title="Driver version differs between hosts",
    severity="warn",
    phase="preflight",
    means="Hosts of one rack run different driver versions. Jobs over both may fail or behave differently.",
    looks_at="The loaded driver version of every host.",
    cause="An upgrade reached only a part of the rack, or a node was reinstalled.",
    remedy="Run site.yml --tags nvidia with one gpu_fabric_driver_version for the rack, in batches.",
    check="cat /proc/driver/nvidia/version is equal on all hosts.",
    source="Fleet version checks of imbue-ai/cluster-health and others",
    mended_by="nvidia",
)

_LIBRARY = re.compile(r"NVML library version:\s*(\d+(?:\.\d+)+)")


def _library(host: HostView) -> tuple[str, str] | None:
    """(version of the user-space libraries, where it was seen)."""
    for name in sorted(host.section("packages")):
        package = mapping(host.section("packages")[name])
        if re.match(r"^libnvidia-(compute|ml\d?)", name) and package.get("status") in (None, "installed"):
            return upstream(str(package.get("version", ""))), name
    for path in (("driver", "library_version"), ("driver", "installed_version")):
        value = host.get(*path)
        if isinstance(value, str) and value:
            return upstream(value), "the library"
    match = _LIBRARY.search(str(host.get("driver", "smi_error") or ""))
    return (match.group(1), "nvidia-smi") if match else None


@host_rule(LIBRARY_MISMATCH)
def library_mismatch(host: HostView) -> t.Iterator[Finding]:
    loaded = host.get("driver", "loaded", "version")
    error = str(host.get("driver", "smi_error") or "")
    said = "version mismatch" in error.lower()
    library = _library(host)
    differs = bool(loaded and library and not _same(str(loaded), library[0]))
    # Packages newer than the module are a mismatch once the tool says so; before that the role's reboot is pending.
    if not said and not (differs and library and library[1] == "the library" and host.get("driver", "library_version")):
        return
    history = host.recorded("apt_history") or ""
    lines = [line for line in history.splitlines() if "nvidia" in line.lower() or line.startswith("Commandline")]
    seen = library[0] if library else "another version"
    busy = host.get("gpu_processes")
    held = f" {len(busy)} GPU processes run: drain first." if isinstance(busy, list) and busy else ""
    yield LIBRARY_MISMATCH.on(
        host,
        f"{host.name}: the loaded nvidia module is {loaded or 'of another version'}, the user-space library {seen}; "
        f"equal versions wanted. A reboot of the drained node loads the new module.{held}",
        device="nvidia",
        evidence=[
            *error.splitlines()[:2],
            f"/proc/driver/nvidia/version: {loaded}" if loaded else "",
            f"{library[1]}: {seen}" if library else "",
            *lines[:3],
        ],
    )


def _same(full: str, other: str) -> bool:
    """nvidia-smi may print the library's version without its last part."""
    return full == other or full.startswith(other + ".") or other.startswith(full + ".")


@host_rule(NOUVEAU)
def nouveau_loaded(host: HostView) -> t.Iterator[Finding]:
    if not host.loaded("nouveau"):
        return
    blacklists = [
        path
        for path, text in host.files.items()
        if "modprobe.d" in path and re.search(r"^blacklist\s+nouveau", text, re.M)
    ]
    packages = [
        name for name in host.section("packages") if re.match(r"^(nvidia-(dkms|kernel|driver|open)|kmod-nvidia)", name)
    ]
    listed = (host.recorded(name) or "" for name in ("lsinitramfs", "lsinitrd"))
    initramfs = [line for text in listed for line in text.splitlines() if "nouveau" in line]
    if not (blacklists or packages or initramfs):
        return
    inside = "it is still in the initramfs" if initramfs else "the initramfs may still hold it"
    yield NOUVEAU.on(
        host,
        f"{host.name}: nouveau is loaded, not loaded wanted; {inside}: regenerate the initramfs and reboot",
        device="nouveau",
        evidence=[*(f"{path}: blacklist nouveau" for path in blacklists), "nouveau in the module list", *initramfs[:2]],
    )


def _listed(host: HostView, pci: str) -> list[str]:
    """The line of lspci about a function, where it was recorded."""
    text = host.recorded("lspci_nn") or ""
    short = pci.removeprefix("0000:")
    return [line for line in text.splitlines() if line.startswith((short, pci))][:1]


def gpu_lines(host: HostView) -> list[str]:
    """Evidence for what depends on the GPU: each model once, with the recorded line of lspci."""
    lines: dict[str, list[str]] = {}
    for pci, model, row in gpu_rows(host):
        lines.setdefault(model, [f"{pci}: {model} ({row['name']})", *_listed(host, pci)])
    return [line for group in lines.values() for line in group]


@host_rule(SECURE_BOOT)
def unsigned_modules(host: HostView) -> t.Iterator[Finding]:
    state = (host.recorded("mokutil_sb-state") or "").strip()
    enabled = host.get("host", "secure_boot")
    if enabled is None:
        enabled = "SecureBoot enabled" in state
    if not enabled or host.loaded("nvidia") or host.module("nvidia").get("signer"):
        return
    planned = mapping(mapping(mapping(host.plan.get("packages")).get("driver")).get("packages"))
    by_dkms = [name for name in planned if "dkms" in name] or (
        ["dkms"] if host.want("driver_packaging") == "dkms" else []
    )
    enrolled = (host.recorded("mokutil_list-enrolled") or "").strip() or host.get("host", "enrolled_keys")
    if not by_dkms or enrolled:
        return
    yield SECURE_BOOT.on(
        host,
        f"{host.name}: SecureBoot enabled and no signing key enrolled, the driver comes as DKMS build ({by_dkms[0]}): "
        "modules signed by an enrolled key wanted",
        device="nvidia",
        evidence=[state or "SecureBoot enabled", f"driver packages: {', '.join(by_dkms)}", "enrolled keys: none"],
    )


def _branch(version: t.Any) -> int | None:
    match = re.match(r"^\s*(\d{3})(?:\.|$)", str(version))
    return int(match.group(1)) if match else None


@host_rule(GPU_FLOOR)
def too_old_for_gpu(host: HostView) -> t.Iterator[Finding]:
    branch = _branch(host.want("driver_version", ""))
    if branch is None or host.noted("RF-PLAN-VERSIONS"):
        return
    for pci, model, row in gpu_rows(host):
        if branch < row["min_driver"]:
            yield GPU_FLOOR.on(
                host,
                f"{host.name}: {model} ({row['name']}) needs driver branch {row['min_driver']} or newer, "
                f"{host.want('driver_version')} is asked for",
                device=pci,
                evidence=[f"gpu_fabric_driver_version: {host.want('driver_version')}", *_listed(host, pci)],
            )
            return


@rack_rule(CUDA_FLOOR)
def cuda_needs_newer_driver(rack: RackView) -> t.Iterator[Finding]:
    asked: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for host in rack.hosts:
        driver = host.want("driver_version") or host.get("driver", "loaded", "version")
        if host.want("cuda_version") and driver and not host.noted("RF-PLAN-VERSIONS"):
            asked[(str(host.want("cuda_version")), str(driver))].append(host.name)
    said = mapping(rack.outputs.get("said"))
    if not rack.hosts and said.get("gpu_fabric_cuda_version") and said.get("gpu_fabric_driver_version"):
        asked[(str(said["gpu_fabric_cuda_version"]), str(said["gpu_fabric_driver_version"]))].append("")
    for (cuda, driver), names in sorted(asked.items()):
        floor = table()["cuda_driver_floor"].get(cuda.partition(".")[0])
        branch = _branch(driver)
        if floor is None or branch is None or branch >= floor:
            continue
        for name in names:
            yield CUDA_FLOOR.on(
                name,
                f"{name + ': ' if name else ''}CUDA {cuda} needs driver branch {floor} or newer, branch {branch} is "
                f"chosen (driver {driver})",
                device="cuda",
                evidence=[f"gpu_fabric_cuda_version: {cuda}", f"gpu_fabric_driver_version: {driver}"],
                remedy=f"Set gpu_fabric_driver_version to branch {floor} or newer, or gpu_fabric_cuda_version to a "
                f"toolkit that branch {branch} supports.",
            )


@rack_rule(DRIVER_DRIFT)
def driver_drift(rack: RackView) -> t.Iterator[Finding]:
    versions = {host.name: str(version) for host in rack.hosts if (version := host.get("driver", "loaded", "version"))}
    counts = collections.Counter(versions.values())
    if len(counts) < 2:
        return
    usual = max(counts, key=lambda version: (counts[version], version_key(version)))
    for name in sorted(versions, key=natural):
        if versions[name] != usual:
            yield DRIVER_DRIFT.on(
                name,
                f"{name}: driver {versions[name]} is loaded, {usual} wanted (as on {counts[usual]} of {len(versions)} "
                "hosts)",
                device="nvidia",
                evidence=[f"/proc/driver/nvidia/version: {versions[name]}"],
            )
