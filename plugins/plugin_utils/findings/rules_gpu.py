# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs: are all of them there, does the driver see them, what does the kernel log say of them."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import lines_about, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    mapping,
    natural,
    short_bdf,
)

GPU_NONE = define(
    "gpu",
    "RF-GPU-NONE",
    title="No GPU on the host",
    severity="fail",
    phase="preflight",
    means="The host is in the inventory of a GPU rack and has no PCI function of vendor 10de with class 0300 or 0302.",
    looks_at="/sys/bus/pci/devices/*/{vendor,class}; no tool and no driver is needed for it.",
    cause="The wrong machine is in the inventory, a virtual machine has no GPU passed through, or the whole GPU board "
    "is without power.",
    remedy="Take the host out of the inventory, or mend the hardware; for a host that is meant to have none set "
    "gpu_fabric_require_hardware: false.",
    check="lspci -d 10de: lists the GPUs.",
    source="DESIGN: hardware is counted on PCI, not by nvidia-smi.",
)

GPU_MISSING = define(
    "gpu",
    "RF-GPU-MISSING",
    title="A GPU is on PCI but the driver does not have it",
    severity="fail",
    phase="preflight",
    means="nvidia-smi answers for fewer GPUs than PCI shows. Jobs that ask for every GPU of the node wait or fail, and "
    "an all-GPU benchmark ends in an opaque launcher error.",
    looks_at="PCI functions 10de class 0300/0302 against the bus ids in nvidia-smi's answer; NVSwitches (class 0680) "
    "are not counted. The kernel's lines about the missing address are quoted.",
    cause="The GPU fell off the bus or its probe failed: power, seating, heat or a dead board. The kernel's text can "
    "mislead ('is not supported by this driver release' for one GPU of eight equal ones).",
    remedy="Treat it as hardware: drain the node, power it off and on; when the GPU stays away, reseat or replace it.",
    check="nvidia-smi -L | wc -l equals lspci -d 10de::0302 | wc -l.",
    source="https://github.com/NVIDIA/aicr/issues/1858; https://github.com/NVIDIA/open-gpu-kernel-modules/issues/387",
)

GPU_COUNT = define(
    "gpu",
    "RF-GPU-COUNT",
    title="Fewer GPUs on PCI than expected",
    severity="fail",
    phase="preflight",
    means="The number of GPUs on the host's PCI buses differs from gpu_fabric_expected_gpus or, where that is not set, "
    "from what the other hosts with the same GPU have.",
    looks_at="PCI functions 10de class 0300/0302 per host, compared over the rack.",
    cause="A GPU is not enumerated at all: it lost power or its link never trained; or the host is of another kind.",
    remedy="Power the node off and on and look at the BMC's log; reseat or replace the GPU. Where the host is meant to "
    "be different, set gpu_fabric_expected_gpus for it.",
    check="lspci -d 10de::0302 lists as many functions as on the other hosts.",
    source="Fleet checks of imbue-ai/cluster-health, Azure/azurehpc-health-checks, oracle-quickstart/oci-hpc.",
)

GPU_NO_ANSWER = define(
    "gpu",
    "RF-GPU-NVIDIA-SMI",
    title="The driver is loaded but nvidia-smi gives no GPU",
    severity="fail",
    phase="verify",
    means="The kernel module is loaded and nvidia-smi ends with an error, so no GPU of the host can be used.",
    looks_at="The first lines of nvidia-smi and the loaded module.",
    cause="The driver could not initialise a GPU, or user space and kernel module do not fit.",
    remedy="Read the quoted error and the kernel log (dmesg | grep -i nvrm); reboot the drained node once, then treat "
    "it as hardware.",
    check="nvidia-smi -L lists every GPU.",
    source="NVIDIA driver documentation, nvidia-smi return codes.",
)

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

ROW_REMAP = define(
    "gpu",
    "RF-GPU-ROW-REMAP",
    title="A GPU's memory needs attention",
    severity="fail",
    phase="preflight",
    means="Row remapping failed or waits for a reset, or the SRAM error threshold was exceeded: the GPU has used up "
    "or not yet applied its spare memory rows.",
    looks_at="Remapped Rows (pending, failure) and the SRAM threshold of nvidia-smi -q. Corrected errors and remaps "
    "that are done are no finding.",
    cause="Uncorrectable memory errors.",
    remedy="Pending: drain the node and reset the GPU or reboot. Failure or threshold exceeded: replace the GPU.",
    check="nvidia-smi -q -d ROW_REMAPPER: Pending No, Remapping Failure Occurred No.",
    source="NVIDIA GPU memory error management; thresholds of Azure/azurehpc-health-checks",
)

MIG = define(
    "gpu",
    "RF-GPU-MIG",
    title="MIG is enabled on a GPU of the rack",
    severity="warn",
    phase="preflight",
    means="NCCL cannot use peer-to-peer between MIG instances; a training job over this node fails or is slow.",
    looks_at="Current and pending MIG mode of every GPU.",
    cause="The node was used for inference or sharing before.",
    remedy="nvidia-smi -mig 0 on the drained node, then a GPU reset or a reboot.",
    check="nvidia-smi --query-gpu=mig.mode.current --format=csv prints Disabled for all.",
    source="NVIDIA MIG user guide",
)

# Codes that a faulty application raises; the GPU is well.
_APPLICATION_XIDS = frozenset({13, 31, 43, 45, 63, 66, 68, 69, 94, 154})


@host_rule(GPU_NONE)
def no_gpu(host: HostView) -> t.Iterator[Finding]:
    if "gpus" not in host.facts or host.gpus or not host.want("require_hardware", True):
        return
    if not host.pci_is_complete:
        return  # not recorded is not absent
    yield GPU_NONE.on(
        host,
        f"{host.name}: 0 GPUs (PCI vendor 10de, class 0300 or 0302) found, at least 1 wanted",
        device="GPU",
        evidence=[f"{len(host.section('pci'))} PCI functions read, none of them an NVIDIA GPU"],
    )


def _answers(gpu: dict[str, t.Any]) -> bool:
    return "index" in gpu or "uuid" in gpu


def _seen_by_driver(host: HostView) -> bool:
    return any(_answers(gpu) for gpu in host.gpus)


@host_rule(GPU_MISSING)
def gpu_missing(host: HostView) -> t.Iterator[Finding]:
    gpus = [gpu for gpu in host.gpus if gpu.get("pci")]
    missing = [gpu["pci"] for gpu in gpus if not _answers(gpu)]
    # A list without addresses (nvidia-smi -L) says how many there are and not which.
    unplaced = [gpu for gpu in host.gpus if _answers(gpu) and not gpu.get("pci")]
    if not _seen_by_driver(host) or len(missing) <= len(unplaced):
        return
    names = ", ".join(short_bdf(pci) for pci in missing)
    lacks = f"{len(missing) - len(unplaced)} of {names}" if unplaced else names
    seen = len(gpus) - len(missing) + len(unplaced)
    evidence = [f"PCI: {', '.join(short_bdf(gpu['pci']) for gpu in gpus)}", f"nvidia-smi lacks: {lacks}"]
    for pci in missing:
        evidence += lines_about(host, pci)[:4]
    yield GPU_MISSING.on(
        host,
        f"{host.name}: nvidia-smi gives {seen} GPUs, PCI has {len(gpus)}; missing: {lacks}",
        device="GPU" if unplaced else ", ".join(missing),
        evidence=evidence,
    )


@rack_rule(GPU_COUNT)
def gpu_count(rack: RackView) -> t.Iterator[Finding]:
    by_model: dict[str, list[HostView]] = collections.defaultdict(list)
    for host in rack.hosts:
        if not host.gpus:
            continue
        expected = host.want("expected_gpus")
        if expected is not None:
            if len(host.gpus) != int(expected):
                yield _count(host, int(expected), "gpu_fabric_expected_gpus", set())
            continue
        ids = {str(mapping(host.section("pci").get(gpu.get("pci"))).get("device")) for gpu in host.gpus}
        if ids != {"None"}:
            by_model[",".join(sorted(ids))].append(host)
    for hosts in by_model.values():
        counts = collections.Counter(len(host.gpus) for host in hosts)
        usual = max(counts, key=lambda number: (counts[number], number))
        addresses = collections.Counter(
            gpu["pci"] for host in hosts if len(host.gpus) == usual for gpu in host.gpus if gpu.get("pci")
        )
        everywhere = {pci for pci, times in addresses.items() if times == counts[usual]}
        for host in hosts:
            if len(host.gpus) < usual:
                yield _count(host, usual, f"as on {counts[usual]} other hosts with the same GPU", everywhere)


def _count(host: HostView, wanted: int, why: str, everywhere: set[str]) -> Finding:
    present = {gpu.get("pci") for gpu in host.gpus}
    gone = sorted(everywhere - present, key=natural)
    where = f"; not on PCI: {', '.join(short_bdf(pci) for pci in gone)}" if gone else ""
    return GPU_COUNT.on(
        host,
        f"{host.name}: {len(host.gpus)} GPUs on PCI, {wanted} wanted ({why}){where}",
        device=", ".join(gone) or "GPU",
        evidence=[
            f"PCI: {', '.join(short_bdf(str(gpu.get('pci'))) for gpu in host.gpus)}",
            *(line for pci in gone for line in lines_about(host, pci)[:3]),
        ],
    )


@host_rule(GPU_NO_ANSWER)
def no_answer(host: HostView) -> t.Iterator[Finding]:
    error = host.get("driver", "smi_error")
    # A version mismatch has a finding of its own (RF-DRIVER-LIBRARY-MISMATCH).
    if not isinstance(error, str) or not host.loaded("nvidia") or "mismatch" in error.lower() or not host.gpus:
        return
    if _seen_by_driver(host):
        return
    yield GPU_NO_ANSWER.on(
        host,
        f"{host.name}: nvidia-smi gives 0 of {len(host.gpus)} GPUs although the nvidia module is loaded",
        device="GPU",
        evidence=error.splitlines()[:4],
    )


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


@host_rule(ROW_REMAP, MIG)
def gpu_memory_and_mode(host: HostView) -> t.Iterator[Finding]:
    for gpu in host.gpus:
        label, device = f"GPU {gpu.get('index', '?')}", str(gpu.get("pci") or gpu.get("index"))
        rows, ecc = mapping(gpu.get("remapped_rows")), mapping(gpu.get("ecc"))
        wrong = [
            text_
            for seen, text_ in (
                (rows.get("failure"), "row remapping failed"),
                (rows.get("pending"), "row remapping pending"),
                (ecc.get("sram_threshold_exceeded"), "SRAM error threshold exceeded"),
            )
            if seen is True or (isinstance(seen, int) and seen > 0)
        ]
        if wrong:
            yield ROW_REMAP.on(
                host,
                f"{host.name}: {label} has {', '.join(wrong)}; none of these wanted",
                device=device,
                evidence=[f"remapped rows: {rows}" if rows else "", f"ecc: {ecc}" if ecc else ""],
            )
        if gpu.get("mig") is True:
            yield MIG.on(
                host,
                f"{host.name}: {label} has MIG enabled, disabled wanted",
                device=device,
                evidence=["MIG mode: enabled"],
            )
