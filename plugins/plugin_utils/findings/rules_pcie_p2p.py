# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Traffic between PCIe devices: what sends it over the root complex or through the IOMMU."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    mapping,
    natural,
    short_bdf,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.rules_pcie import watched

ACS = define(
    "pcie",
    "RF-PCIE-ACS",
    title="PCIe ACS redirects traffic between devices",
    severity="fail",
    phase="diagnose",
    means="Bridges with request or completion redirect, or upstream forwarding, send GPU-to-NIC and GPU-to-GPU "
    "traffic up to the root complex. Collectives hang or run at a fraction of the bandwidth.",
    looks_at="ACS control bits of PCIe bridges (class 0604) above GPUs and NICs, on bare metal. Source validation "
    "alone is no fault. In a virtual machine and on direct-NIC platforms (Grace) ACS belongs on and is not judged.",
    cause="ACS is on by the firmware's default or by SR-IOV settings, and the bits come back at every boot and bus "
    "reset.",
    remedy="Turn ACS off in the firmware setup, or set gpu_fabric_acs: clear: site.yml --tags rdma then clears it now "
    "and at boot on the bridges above GPUs and NICs (setpci -s BRIDGE ECAP_ACS+6.w=0000); use gpu_fabric_iommu: "
    "passthrough (iommu=pt).",
    check="lspci -vvv -s BRIDGE: ACSCtl shows ReqRedir- CmpltRedir- UpstreamFwd-.",
    source="https://github.com/NVIDIA/nccl/issues/2079; NCCL GPU troubleshooting guide",
    mended_by="rdma",
)

IOMMU = define(
    "pcie",
    "RF-PCIE-IOMMU",
    title="The IOMMU translates between devices on bare metal",
    severity="warn",
    phase="diagnose",
    means="With a translating IOMMU traffic between devices goes to the root complex; peer-to-peer over PCIe is slow, "
    "hangs or gives wrong data.",
    looks_at="Types of the IOMMU groups of GPUs and NICs, intel_iommu, amd_iommu and iommu on /proc/cmdline.",
    cause="The kernel's default domain is translated (DMA-FQ) and iommu=pt is not set.",
    remedy="Add iommu=pt to the kernel's command line and reboot, or turn the IOMMU off in the firmware setup.",
    check="cat /sys/kernel/iommu_groups/*/type prints identity for GPUs and NICs.",
    source="https://github.com/NVIDIA/nccl/issues/489; NVIDIA GPUDirect documentation",
)

_REDIRECT = ("ReqRedir", "CmpltRedir", "UpstreamFwd")


def _bare_metal(host: HostView) -> bool:
    # Grace and later platforms need their own ACS masks; rdma_topo knows them.
    return not host.virtual and host.get("host", "architecture") not in ("aarch64", "arm64")


def _redirecting(host: HostView) -> dict[str, list[str]]:
    """Bridge → redirect bits that are set."""
    found = {}
    for pci, data in host.section("pci").items():
        function = mapping(data)
        control = mapping(function.get("acs")).get("control")
        kind = str(function.get("class") or "")
        if isinstance(control, list) and (kind.startswith("0604") or not kind):
            bits = [bit for bit in _REDIRECT if bit in control]
            if bits:
                found[str(pci)] = bits
    return found


@host_rule(ACS)
def acs_redirects(host: HostView) -> t.Iterator[Finding]:
    if not _bare_metal(host):
        return
    redirecting = _redirecting(host)
    below: dict[str, list[str]] = collections.defaultdict(list)
    known = False
    for pci, what in watched(host).items():
        upstream = mapping(host.section("pci").get(pci)).get("upstream")
        known = known or bool(upstream)
        for bridge in upstream if isinstance(upstream, list) else []:
            below[bridge].append(what)
    concerned = [bridge for bridge in sorted(redirecting, key=natural) if bridge in below or not known]
    if not concerned:
        return
    shown = [f"{short_bdf(b)} ({', '.join(redirecting[b])})" for b in concerned]
    users = sorted({what for bridge in concerned for what in below[bridge]}, key=natural)
    cmdline = host.get("host", "cmdline")
    passthrough = isinstance(cmdline, list) and any(
        word in ("iommu=pt", "iommu=off", "intel_iommu=off") for word in cmdline
    )
    lines = [line.strip() for line in _recorded(host, concerned)]
    yield ACS.on(
        host,
        f"{host.name}: ACS redirects peer traffic on {len(concerned)} bridge{'s' if len(concerned) > 1 else ''}: "
        f"{', '.join(shown[:8])}{' and more' if len(shown) > 8 else ''}"
        + (f" above {', '.join(users)}" if users else "")
        + "; these bits off wanted",
        device=", ".join(concerned),
        evidence=[
            *(
                lines
                or [
                    f"{bridge} ACSCtl: {' '.join(f'{bit}+' for bit in redirecting[bridge])}" for bridge in concerned[:8]
                ]
            ),
            f"/proc/cmdline: {' '.join(map(str, cmdline))}" if isinstance(cmdline, list) else "",
        ],
        remedy=None
        if passthrough or not isinstance(cmdline, list)
        else "Turn ACS off in the firmware setup, or set gpu_fabric_acs: clear: site.yml --tags rdma then clears it "
        "now and at boot on these bridges; set gpu_fabric_iommu: passthrough as well (/proc/cmdline lacks iommu=pt) "
        "and reboot.",
    )


def _recorded(host: HostView, bridges: list[str]) -> t.Iterator[str]:
    """The lines of a recorded lspci -vvv about these bridges."""
    short = {short_bdf(bridge) for bridge in bridges}
    current = False
    for line in (host.recorded("lspci_vvv") or "").splitlines():
        if line[:1].strip():
            current = line.split(" ", 1)[0] in short | set(bridges)
            if current:
                yield line
        elif current and "ACSCtl" in line:
            yield line


@host_rule(IOMMU)
def iommu_translates(host: HostView) -> t.Iterator[Finding]:
    if not _bare_metal(host):
        return
    kinds: dict[str, list[str]] = collections.defaultdict(list)
    for pci, what in watched(host).items():
        kind = mapping(host.section("pci").get(pci)).get("iommu_group_type")
        if isinstance(kind, str):
            kinds[kind].append(what)
    translated = [what for kind, names in kinds.items() if kind.upper().startswith("DMA") for what in names]
    if translated:
        shown = sorted(translated, key=natural)
        yield IOMMU.on(
            host,
            f"{host.name}: the IOMMU translates for {', '.join(shown[:6])}{' and more' if len(shown) > 6 else ''} "
            f"({', '.join(sorted(kinds))}); identity (iommu=pt) wanted",
            device="iommu",
            evidence=[f"{kind}: {', '.join(names[:6])}" for kind, names in sorted(kinds.items())],
        )
