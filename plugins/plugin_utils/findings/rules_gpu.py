# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs: are all of them there, does the driver see them, what does the kernel log say of them."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import lines_about
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
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
    title="A driver is there but nvidia-smi gives no GPU",
    severity="fail",
    phase="verify",
    means="The driver is installed and nvidia-smi ends with an error, so no GPU of the host can be used.",
    looks_at="The first lines of nvidia-smi, the loaded module and, where that is not known, the installed driver.",
    cause="The driver could not initialise a GPU, or user space and kernel module do not fit.",
    remedy="Read the quoted error and the kernel log (dmesg | grep -i nvrm); reboot the drained node once, then treat "
    "it as hardware.",
    check="nvidia-smi -L lists every GPU.",
    source="NVIDIA driver documentation, nvidia-smi return codes.",
)


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


# How nvidia-smi fails although a driver is there; what it says without one, or for a wrong option, is another matter.
_DEAD = frozenset(
    {"no_devices", "gpu_lost", "gpu_requires_reset", "initialize_failed", "system_not_initialized", "crashed"}
    | {"blocked_by_operating_system", "timed_out", "driver_not_loaded"}
)


def _explained(host: HostView) -> bool:
    """Whether another finding says already why no driver runs."""
    reasons = {"key_rejected", "gpu_needs_open_module", "gpu_init_failed", "gpu_unsupported", "nouveau_conflict"}
    said = {event.get("kind") for event in dicts(host.get("kernel_log", "events"))}
    dkms = [row for row in dicts(host.get("dkms")) if str(row.get("module")).startswith("nvidia")]
    return bool(reasons & said or dkms or host.loaded("nouveau") or host.get("host", "secure_boot"))


@host_rule(GPU_NO_ANSWER)
def no_answer(host: HostView) -> t.Iterator[Finding]:
    error = host.get("driver", "smi_error")
    kind = host.get("driver", "smi_error_kind")
    # A version mismatch has a finding of its own (RF-DRIVER-LIBRARY-MISMATCH).
    if not isinstance(error, str) or "mismatch" in error.lower() or _seen_by_driver(host):
        return
    loaded = host.loaded("nvidia") or bool(host.get("driver", "loaded", "version"))
    # Where nobody recorded the modules, the words tell whether a driver is loaded.
    if not loaded and not (host.recorded_only and kind in _DEAD):
        return
    if not loaded and ((kind != "driver_not_loaded" and host.loaded("nvidia") is False) or _explained(host)):
        return
    if loaded and not host.gpus and not host.recorded_only:
        return
    if not loaded and kind == "driver_not_loaded" and not host.driver_version():
        return  # nothing is installed: a bare host
    of = f" of {len(host.gpus)}" if host.gpus else ""
    driver = host.driver_version()
    lost = host.get("driver", "smi_error_pci")
    why = (
        " although the nvidia module is loaded"
        if loaded
        else f": the kernel module of driver {driver[0]} is not loaded"
        if kind == "driver_not_loaded" and driver
        else f": {error.splitlines()[0].strip()}"
    ) + (f": GPU {short_bdf(lost)} does not answer" if lost else "")
    yield GPU_NO_ANSWER.on(
        host,
        f"{host.name}: nvidia-smi gives 0{of} GPUs{why}; every GPU of the host wanted",
        device=lost or "GPU",
        evidence=[*error.splitlines()[:4], *(f"{driver[1]}: {driver[0]}" for _once in (1,) if driver)],
    )
