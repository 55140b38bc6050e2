# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the kernel log says about GPUs and NVSwitches."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import events, lines_with, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, natural, short_bdf

GPU_XID = define(
    "gpu",
    "RF-GPU-XID",
    title="The driver logged an Xid error",
    severity="fail",
    phase="preflight",
    means="The driver reported a fault of a GPU. Codes that an application can cause (13, 31, 43, 45 and the like) are "
    "a warning; codes of hardware or NVLink stop the run.",
    looks_at="'NVRM: Xid' lines of the kernel log since boot.",
    cause="Depends on the code: memory (48, 63, 64, 92, 94, 95), NVLink (74, 144 to 150), lost GPU (79), firmware "
    "(119, 120).",
    remedy="Drain the node; reset the GPU (nvidia-smi -r) for memory and firmware codes, reboot for a lost GPU, "
    "replace it when the code returns.",
    check="No new Xid line under load after the reset.",
    source="NVIDIA Xid documentation; severity classes as in public cluster health checks.",
)

GPU_FELL_OFF = define(
    "gpu",
    "RF-GPU-FELL-OFF-BUS",
    title="A GPU fell off the bus",
    severity="fail",
    phase="preflight",
    means="The kernel lost contact with a GPU over PCIe. It may be logged with Xid 79 or without any Xid.",
    looks_at="'fallen off the bus' in the kernel log, also where the text is split over several lines.",
    cause="Power, heat, seating or the PCIe link.",
    remedy="Drain the node and power-cycle it; reseat or replace the GPU when it happens again.",
    check="The GPU is in nvidia-smi -L again and the line does not return under load.",
    source="https://github.com/NVIDIA/NVSentinel/issues/155; https://github.com/NVIDIA/dcgm-exporter/issues/604",
)

SXID = define(
    "gpu",
    "RF-GPU-SXID",
    title="An NVSwitch logged an SXid error",
    severity="fail",
    phase="preflight",
    means="The NVLink fabric between the node's GPUs reported a fault. A fatal one ends jobs on all GPUs that use the "
    "switch until it is reset; others can announce it and are a warning.",
    looks_at="'nvidia-nvswitch' SXid lines of the kernel log since boot.",
    cause="A failing NVLink, NVSwitch or baseboard; a link that failed to train.",
    remedy="Drain the node; fatal: restart nvidia-fabricmanager and reset all GPUs, or reboot; replace the baseboard "
    "when the same link returns.",
    check="No new SXid line under a job of all GPUs.",
    source="NVIDIA Fabric Manager user guide, SXid errors; checks of imbue-ai/cluster-health and leptonai/gpud",
)

GPU_INIT = define(
    "gpu",
    "RF-GPU-INIT",
    title="The driver could not initialise a GPU",
    severity="fail",
    phase="verify",
    means="The kernel module found the GPU and failed to start it: nvidia-smi does not list it, or answers 'No devices "
    "were found'.",
    looks_at="'RmInitAdapter failed', 'requires use of the NVIDIA open kernel modules' and 'is not supported by the "
    "driver release' of the kernel log, for GPUs that nvidia-smi does not list.",
    cause="The GSP firmware is missing or of another version than the module; the proprietary modules on a GPU that "
    "needs the open ones; power, seating or a dead GPU.",
    remedy="Read the quoted lines: for firmware reinstall the driver's packages in one version and reboot; for the "
    "flavour set gpu_fabric_driver_flavour: open and run site.yml --tags nvidia; for one GPU of several equal ones "
    "treat it as hardware.",
    check="nvidia-smi -L lists every GPU; dmesg has no RmInitAdapter line after the boot.",
    source="https://github.com/NVIDIA/open-gpu-kernel-modules/issues/387; NVIDIA open kernel modules README",
)

# Codes that a faulty application raises; the GPU is well.
_APPLICATION_XIDS = frozenset({13, 31, 43, 45, 63, 66, 68, 69, 94, 154})


def _answers(gpu: dict[str, t.Any]) -> bool:
    return "index" in gpu or "uuid" in gpu


_XID = re.compile(r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:]+)(?:\.\d)?\): (?P<code>\d+)(?P<rest>.*)")


@host_rule(GPU_XID)
def xids(host: HostView) -> t.Iterator[Finding]:
    by_gpu: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
    for line in text(host):
        match = _XID.search(line)
        if match:
            by_gpu[(_bus(match["pci"]), int(match["code"]))].append(line)
    for (pci, code), lines in by_gpu.items():
        if code == 79:
            continue  # a lost GPU has a finding of its own
        harmless = code in _APPLICATION_XIDS
        yield GPU_XID.on(
            host,
            f"{host.name}: GPU {short_bdf(pci)} logged Xid {code} {len(lines)} time{'s' if len(lines) > 1 else ''}, "
            f"none wanted{' (an application can cause this code)' if harmless else ''}",
            device=pci,
            evidence=lines[:3],
            severity="warn" if harmless else "fail",
        )


def _bus(text_: str) -> str:
    """0000:9b:00 of an Xid line → 0000:9b:00.0."""
    domain, _, rest = text_.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}.0" if rest.count(":") == 1 else text_.lower()


_ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


@host_rule(GPU_FELL_OFF)
def fell_off_the_bus(host: HostView) -> t.Iterator[Finding]:
    lines = text(host)
    lost: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        xid = _XID.search(line)
        if "fallen off the bus" not in line.lower() and not (xid and xid["code"] == "79"):
            continue
        # The driver spreads the message over up to three lines; the address is on the first.
        block = lines[max(0, number - 2) : number + 1] if not _ADDRESS.search(line) and not xid else [line]
        found = _bus(xid["pci"]) if xid else next((m[0] for m in map(_ADDRESS.search, reversed(block)) if m), "GPU")
        found = found.lower() if found.count(":") != 1 else f"0000:{found.lower()}"
        lost.setdefault(found, []).extend(part.strip() for part in block)
    answering = {gpu.get("pci") for gpu in host.gpus if _answers(gpu)}
    for pci, block in lost.items():
        if pci in answering:
            continue  # the log is history: it has come back since
        yield GPU_FELL_OFF.on(
            host,
            f"{host.name}: GPU {short_bdf(pci)} has fallen off the bus; a GPU that answers wanted",
            device=pci,
            evidence=block[:4],
        )


@host_rule(SXID)
def sxids(host: HostView) -> t.Iterator[Finding]:
    found: dict[tuple[str, int], list[dict[str, t.Any]]] = collections.defaultdict(list)
    for event in events(host):
        if event.get("kind") == "sxid" and isinstance(event.get("code"), int):
            found[(str(event.get("pci")), event["code"])].append(event)
    for (pci, code), group in sorted(found.items(), key=lambda item: natural(item[0][0])):
        fatal = any(event.get("fatal") for event in group)
        link = next((event["link"] for event in group if "link" in event), None)
        yield SXID.on(
            host,
            f"{host.name}: NVSwitch {short_bdf(pci)} logged SXid {code}{' (fatal)' if fatal else ''}"
            + (f" on link {link}" if link is not None else "")
            + f" {len(group)} time{'s' if len(group) > 1 else ''}, none wanted",
            device=pci,
            evidence=[str(event.get("text")) for event in group[-3:]],
            severity=None if fatal else "warn",
        )


_REFUSED = {
    "gpu_init_failed": "could not be initialised (RmInitAdapter failed {status})",
    "gpu_needs_open_module": "needs the open kernel modules and the proprietary ones are loaded",
    "gpu_unsupported": "is not supported by driver {driver_version}",
}


@host_rule(GPU_INIT)
def not_initialised(host: HostView) -> t.Iterator[Finding]:
    listed = {gpu.get("pci") for gpu in host.gpus if _answers(gpu)}
    if listed - {None}:
        return  # others answer: RF-GPU-MISSING names the one that does not, with these lines
    said: dict[str, dict[str, t.Any]] = {}
    for event in events(host):
        if event.get("kind") in _REFUSED:
            # The reason that names a remedy counts more than the failure that follows from it.
            pci = str(event.get("pci") or "GPU")
            if pci not in said or said[pci]["kind"] == "gpu_init_failed":
                said[pci] = event
    firmware = lines_with(host, r"GSP firmware|gsp_\w+\.bin|kgspInitRm|GSP.*(?:mismatch|does not match|failed)")
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for pci, event in said.items():
        groups[_REFUSED[event["kind"]].format_map(collections.defaultdict(str, event))].append(pci)
    for what, places in groups.items():
        names = ", ".join(short_bdf(pci) for pci in sorted(places, key=natural))
        yield GPU_INIT.on(
            host,
            f"{host.name}: GPU {names} {what}"
            + (f": {firmware[0]}" if firmware else "")
            + "; a GPU that answers wanted",
            device=", ".join(sorted(places, key=natural)),
            evidence=[*firmware[:2], *(str(said[pci].get("text")) for pci in places[:3])],
        )
