# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUDirect RDMA: the path between GPU memory and the NIC, and the modules that make it."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import lines_with
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    mapping,
    upstream,
)

PEERMEM = define(
    "gpudirect",
    "RF-GDR-PEERMEM",
    title="nvidia_peermem is not loaded",
    severity="fail",
    phase="preflight",
    means="GPUDirect RDMA is off on this node: NCCL copies through host memory without an error, at a third to a half "
    "of the bandwidth, and the slowest node sets the pace.",
    looks_at="/proc/modules on every host, the plan's GPUDirect path, the path that an NCCL log shows per node. Where "
    "the plan uses DMA-BUF a missing module is only a difference between nodes and a warning.",
    cause="The module is not in modules-load.d and was lost at the last reboot, or an OFED reload unloaded it.",
    remedy="modprobe nvidia_peermem, and have it loaded at boot (site.yml --tags rdma writes "
    "/etc/modules-load.d); with open kernel modules and kernel 5.12 or later DMA-BUF needs no module.",
    check="lsmod | grep nvidia_peermem; NCCL INFO shows /GDRDMA on both ends of every inter-node channel.",
    source="https://github.com/NVIDIA/nccl/issues/897; https://github.com/NVIDIA/nccl/issues/1412",
    mended_by="rdma",
)

PEERMEM_SYMBOLS = define(
    "gpudirect",
    "RF-GDR-PEERMEM-SYMBOLS",
    title="nvidia_peermem was built against another RDMA stack",
    severity="fail",
    phase="diagnose",
    means="The module refuses to load because ib_core of the running kernel does not offer the symbol with the version "
    "it was compiled against.",
    looks_at="'disagrees about version of symbol' and 'Unknown symbol' of nvidia_peermem in the kernel log; the "
    "answer of modprobe; the installed OFED.",
    cause="The NVIDIA driver was built before OFED was installed or updated, or the inbox ib_core has no peer-memory "
    "interface.",
    remedy="Rebuild the NVIDIA kernel module against the installed OFED (dkms build --force, then dkms install), or "
    "use DMA-BUF with the open kernel modules (kernel 5.12 or later) and leave the module out.",
    check="modprobe nvidia_peermem ends with 0.",
    source="https://github.com/NVIDIA/gpu-operator/issues/2868",
)

GDRDRV_FLAVOUR = define(
    "gpudirect",
    "RF-GDR-GDRDRV-FLAVOUR",
    title="gdrdrv was built for the other driver flavour",
    severity="warn",
    phase="verify",
    means="GDRCopy's module is loaded but was compiled for the other flavour (open or proprietary) of the NVIDIA "
    "module; its sanity test fails and UCX or NVSHMEM run slower. NCCL does not need it.",
    looks_at="gdrdrv's own line in the kernel log against /proc/driver/nvidia/version.",
    cause="The driver's flavour changed and gdrdrv was not rebuilt.",
    remedy="Rebuild gdrdrv for the running driver (dkms remove and install gdrdrv for this kernel), then modprobe -r "
    "gdrdrv and modprobe gdrdrv.",
    check="gdrcopy_sanity passes.",
    source="https://github.com/NVIDIA/gdrcopy/issues/331",
)

GDRDRV_MISSING = define(
    "gpudirect",
    "RF-GDR-GDRDRV-MISSING",
    title="gdrdrv is asked for and cannot be loaded",
    severity="warn",
    phase="verify",
    means="GDRCopy's user-space library is installed and its module is absent for the running kernel.",
    looks_at="The answer of modprobe gdrdrv and the kernel log.",
    cause="The module was not built: headers are missing, or the kernel moved.",
    remedy="Install the headers of the running kernel and run dkms autoinstall, then modprobe gdrdrv.",
    check="ls /dev/gdrdrv.",
    source="https://github.com/NVIDIA/gdrcopy/issues/331",
)


GDRDRV_STALE = define(
    "gpudirect",
    "RF-GDR-GDRDRV-STALE",
    title="The module gdrdrv is older than its package",
    severity="warn",
    phase="verify",
    means="The file that the running kernel loads gdrdrv from is not the installed package's: an earlier build was "
    "left, and library and module differ.",
    looks_at="The version of the module's file (modinfo gdrdrv) against that of the package gdrdrv-dkms or gdrcopy.",
    cause="The package was upgraded and DKMS did not build it for the running kernel.",
    remedy="Rebuild gdrdrv for the running kernel (dkms remove the old version, dkms install the new one), then "
    "modprobe -r gdrdrv and modprobe gdrdrv.",
    check="modinfo -F version gdrdrv equals the package's version; gdrcopy_sanity passes.",
    source="https://github.com/NVIDIA/gdrcopy/issues/331",
)


DISTANCE = define(
    "gpudirect",
    "RF-GDR-DISTANCE",
    title="A GPU has no NIC near enough for GPUDirect RDMA",
    severity="warn",
    phase="verify",
    means="NCCL uses GPUDirect RDMA only where GPU and NIC share a PCIe switch (PIX, PXB). Across the processor's host "
    "bridge or between sockets (PHB, NODE, SYS) it copies through host memory.",
    looks_at="The shortest distance of each GPU to an adapter in nvidia-smi topo -m, on bare metal. Guests show a tree "
    "of the hypervisor's, and Grace reaches its GPUs over C2C: neither is judged.",
    cause="The adapter sits in a slot of another root port or socket; or the machine has no PCIe switches at all.",
    remedy="Move the adapter into a slot below the GPU's switch or at least of its socket. Where the machine has none, "
    "measure with NCCL_NET_GDR_LEVEL=PHB in gpu_fabric_nccl_env and keep it only when it is faster.",
    check="nvidia-smi topo -m shows PIX or PXB between each GPU and an adapter; NCCL INFO shows /GDRDMA.",
    source="NCCL src/graph/paths.cc; https://github.com/NVIDIA/nccl/issues/1435",
)

_NEAR, _ORDER = ("PIX", "PXB", "PSB"), ("PIX", "PSB", "PXB", "PHB", "NODE", "SOC", "SYS")


def dmabuf(host: HostView) -> bool:
    """Whether DMA-BUF serves this host: planned, and not with the proprietary modules, which do not have it."""
    planned = mapping(host.plan.get("modules")).get("gpudirect") == "dmabuf"
    return planned and host.get("driver", "loaded", "flavour") != "proprietary"


_CHANNEL = re.compile(
    r"^(?P<node>[\w.-]+):\d+:\d+ \[\d+\] NCCL INFO Channel \S+ : .*\[(?P<side>send|receive)\] via NET/"
    r"(?P<path>\S+)"
)
_DISABLED = re.compile(r"^(?P<node>[\w.-]+):\d+:\d+ .*GPU Direct RDMA Disabled", re.IGNORECASE)


def gdr_by_node(log: str) -> tuple[dict[str, list[str]], set[str]]:
    """(node → lines that show a path without GPUDirect, nodes with a path that has it) of an NCCL log."""
    without: dict[str, list[str]] = {}
    having: set[str] = set()
    for line in log.splitlines():
        match = _CHANNEL.match(line)
        if match:
            # Socket transport has no GPUDirect at all; that is another finding.
            if match["path"].startswith("Socket"):
                continue
            if "GDRDMA" in match["path"]:
                having.add(match["node"])
            else:
                without.setdefault(match["node"], []).append(line)
            continue
        match = _DISABLED.match(line)
        if match:
            without.setdefault(match["node"], []).append(line)
    return without, having


@rack_rule(PEERMEM)
def peermem_missing(rack: RackView) -> t.Iterator[Finding]:
    without, _having = gdr_by_node(rack.text("nccl.log") or "")
    having = [host for host in rack.hosts if host.loaded("nvidia_peermem")]
    reported: set[str] = set()
    for host in rack.hosts:
        if host.loaded("nvidia_peermem") is not False or not host.loaded("nvidia"):
            continue
        if lines_with(host, r"nvidia_peermem.*(disagrees|Unknown symbol)"):
            continue  # it was tried and failed: RF-GDR-PEERMEM-SYMBOLS says why
        path = mapping(host.plan.get("modules")).get("gpudirect")
        lines = without.get(host.name, [])
        at_boot = [name for name, text in host.files.items() if "modules-load.d" in name and "peermem" in text]
        needed = path == "nvidia_peermem" and (host.configured("rdma") or bool(at_boot) or bool(having))
        if not (lines or needed or at_boot or len(having) * 2 > len(rack.hosts) - 1 > 0):
            continue
        why = "the plan's GPUDirect path needs it" if path == "nvidia_peermem" else "the rack has it"
        reported.add(host.name)
        if having:
            why += f", it is loaded on {len(having)} of {len(rack.hosts)} hosts"
        if lines:
            why = "NCCL runs without GPUDirect RDMA here"
        yield PEERMEM.on(
            host,
            f"{host.name}: kernel module nvidia_peermem is not loaded, loaded wanted: {why}",
            device="nvidia_peermem",
            evidence=lines[:4]
            or ["/proc/modules has nvidia, not nvidia_peermem", *[f"{name} names it" for name in at_boot]],
            severity="warn" if dmabuf(host) and not lines else "fail",
        )
    for node, lines in sorted(without.items()):
        view = rack.by_name(node)
        if node in reported or (view is not None and any(peermem_symbols(view))):
            continue
        # Older NCCL looks for the module under another path than newer: loaded does not prove that it is used.
        although = " although nvidia_peermem is loaded" if view is not None and view.loaded("nvidia_peermem") else ""
        yield PEERMEM.on(
            node,
            f"{node}: NCCL sends or receives without GPUDirect RDMA{although}, GDRDMA wanted on every inter-node "
            "channel; load nvidia_peermem or enable DMA-BUF on this node",
            device="nvidia_peermem",
            evidence=lines[:4],
        )


@host_rule(PEERMEM_SYMBOLS)
def peermem_symbols(host: HostView) -> t.Iterator[Finding]:
    lines = lines_with(host, r"nvidia[_-]peermem.*(disagrees about version of symbol|Unknown symbol)")
    if not lines or host.loaded("nvidia_peermem"):
        return
    if dmabuf(host) and not host.recorded_only:
        return  # tried once, and not needed
    symbols = list(dict.fromkeys(re.findall(r"symbol (\w+)", " ".join(lines))))
    ofed = host.get("ofed", "version")
    flavour = host.get("driver", "loaded", "flavour")
    stack = f"OFED {ofed}" if ofed else "the inbox RDMA stack"
    answer = host.recorded("modprobe_nvidia_peermem")
    yield PEERMEM_SYMBOLS.on(
        host,
        f"{host.name}: nvidia_peermem is not loaded, loaded wanted: it refuses to load because symbol "
        f"{', '.join(symbols)} differs between the ib_core it was built against and the running one ({stack}); "
        "rebuild it for the running stack"
        + ("; the loaded proprietary modules have no DMA-BUF in its place" if flavour == "proprietary" else ""),
        device="nvidia_peermem",
        evidence=[*lines[:4], *(answer or "").splitlines()[:2]],
    )


_GDRDRV = re.compile(r"gdrdrv.*built for (?P<flavour>proprietary|open\w*) NVIDIA driver", re.IGNORECASE)


@host_rule(GDRDRV_FLAVOUR)
def gdrdrv_flavour(host: HostView) -> t.Iterator[Finding]:
    running = host.get("driver", "loaded", "flavour")
    lines = lines_with(host, _GDRDRV.pattern)
    if not lines or running not in ("open", "proprietary"):
        return
    match = _GDRDRV.search(lines[-1])
    built = "open" if match and match["flavour"].lower().startswith("open") else "proprietary"
    if built != running:
        yield GDRDRV_FLAVOUR.on(
            host,
            f"{host.name}: gdrdrv is built for the {built} NVIDIA driver, the running driver "
            f"{host.get('driver', 'loaded', 'version') or ''} is the {running} one: gdrdrv for {running} wanted",
            device="gdrdrv",
            evidence=[lines[-1]],
        )


@host_rule(GDRDRV_MISSING)
def gdrdrv_missing(host: HostView) -> t.Iterator[Finding]:
    answer = host.recorded("modprobe_gdrdrv") or ""
    if "not found" in answer and not host.loaded("gdrdrv"):
        yield GDRDRV_MISSING.on(
            host,
            f"{host.name}: module gdrdrv is not found for kernel {host.get('host', 'kernel') or 'not known'}; a module "
            "built for this kernel wanted",
            device="gdrdrv",
            evidence=answer.splitlines()[:2],
        )


@host_rule(GDRDRV_STALE)
def gdrdrv_stale(host: HostView) -> t.Iterator[Finding]:
    module = host.module("gdrdrv")
    seen = module.get("installed_version") or module.get("version")
    for name in ("gdrdrv-dkms", "gdrdrv", "gdrcopy-kmod", "gdrcopy"):
        package = mapping(host.section("packages").get(name))
        wanted = upstream(str(package.get("version") or ""))
        if seen and wanted and package.get("status") in (None, "installed"):
            if not f"{wanted}.".startswith(f"{upstream(str(seen))}."):
                yield GDRDRV_STALE.on(
                    host,
                    f"{host.name}: module gdrdrv has version {seen}, {wanted} wanted (package {name})",
                    device="gdrdrv",
                    evidence=[f"modinfo gdrdrv: {module.get('filename') or ''} {seen}", f"{name} {package['version']}"],
                )
            return


@host_rule(DISTANCE)
def nic_far_from_gpu(host: HostView) -> t.Iterator[Finding]:
    table = mapping(host.get("outputs", "nvidia_smi_topo", "gpu_nic"))
    if host.virtual or not table or host.get("host", "architecture") == "aarch64":
        return
    far: dict[str, tuple[str, list[str]]] = {}
    for gpu, row in table.items():
        seen = {str(nic): str(distance) for nic, distance in mapping(row).items() if str(distance) in _ORDER}
        best = min(seen.values(), key=_ORDER.index, default=None)
        if best is not None and best not in _NEAR:
            far[str(gpu)] = (best, [nic for nic, distance in seen.items() if distance == best])
    if far:
        shown = ", ".join(f"GPU {gpu} {best} ({', '.join(nics[:2])})" for gpu, (best, nics) in list(far.items())[:8])
        yield DISTANCE.on(
            host,
            f"{host.name}: the nearest adapter of {len(far)} of {len(table)} GPUs is too far for GPUDirect RDMA: "
            f"{shown}; PIX or PXB wanted",
            device=", ".join(f"GPU {gpu}" for gpu in far),
            evidence=[f"nvidia-smi topo -m: GPU{gpu} {nics[0]} {best}" for gpu, (best, nics) in list(far.items())[:8]],
        )
