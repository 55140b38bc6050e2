# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The health of GPUs as nvidia-smi tells it: memory, clocks, modes, links."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    majority,
    mapping,
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

ECC = define(
    "gpu",
    "RF-GPU-ECC",
    title="A GPU counts uncorrected memory errors",
    severity="fail",
    phase="preflight",
    means="Memory or cache of the GPU returned wrong data since the last reset: jobs on it end with Xid errors or "
    "compute with what was left. ECC that is off hides the same faults and is a warning.",
    looks_at="Uncorrected volatile ECC errors (since the last reset) and the ECC mode of every GPU. Aggregate counts "
    "of the past and corrected errors are no finding.",
    cause="Ageing or defective memory.",
    remedy="Drain the node, reset the GPU (nvidia-smi -r) so that rows are remapped, run dcgmi diag -r 3; replace the "
    "GPU when errors return. ECC off: nvidia-smi -e 1 and reboot.",
    check="nvidia-smi -q -d ECC: volatile uncorrectable errors 0.",
    source="NVIDIA GPU memory error management; Azure/azurehpc-health-checks azure_gpu_ecc",
)

THROTTLED = define(
    "gpu",
    "RF-GPU-THROTTLED",
    title="A GPU's clocks are held down by hardware",
    severity="fail",
    phase="preflight",
    means="Heat, power supply or the board's brake slows the GPU; a collective waits for its slowest member.",
    looks_at="Active clock event reasons: hw_slowdown, hw_thermal_slowdown, hw_power_brake_slowdown and "
    "sw_thermal_slowdown. Idle, application clocks and the power cap are no finding.",
    cause="Air flow, a failed fan or pump, dust; a failed power supply; a power cable.",
    remedy="Drain the node; check fans, inlet temperature and power supplies in the BMC, then the GPU's heat sink.",
    check="nvidia-smi -q -d PERFORMANCE under load: these reasons are Not Active.",
    source="Azure/azurehpc-health-checks azure_gpu_clock_throttling; Azure/cyclecloud-healthagent mask 0xE8",
)

PERSISTENCE = define(
    "gpu",
    "RF-GPU-PERSISTENCE",
    title="Persistence mode is off",
    severity="warn",
    phase="verify",
    means="The driver unloads a GPU's state when no process uses it: every job start waits for its initialisation, and "
    "settings such as the power limit are lost in between.",
    looks_at="Persistence mode of every GPU.",
    cause="nvidia-persistenced does not run; nvidia-smi -pm 1 does not survive a reboot.",
    remedy="systemctl enable --now nvidia-persistenced (site.yml --tags nvidia does it).",
    check="nvidia-smi --query-gpu=persistence_mode --format=csv prints Enabled for all.",
    source="NVIDIA driver persistence documentation; Azure/azurehpc-health-checks azure_gpu_persistence",
    mended_by="nvidia",
)

RECOVERY = define(
    "gpu",
    "RF-GPU-RECOVERY",
    title="The driver asks for a GPU to be reset or drained",
    severity="fail",
    phase="preflight",
    means="After an error the driver wants the GPU reset, the node rebooted or drained; until then jobs on it fail.",
    looks_at="GPU recovery action and reset status of nvidia-smi.",
    cause="An Xid error that the driver could not get over by itself; the kernel log names it.",
    remedy="Do what the action says on the drained node: nvidia-smi -r for a reset, a reboot otherwise.",
    check="nvidia-smi -q: GPU Recovery Action None, Reset Required No.",
    source="NVIDIA Xid documentation, recovery actions; Azure/cyclecloud-healthagent",
)

VBIOS_DRIFT = define(
    "gpu",
    "RF-GPU-VBIOS-DRIFT",
    title="VBIOS or power limit differs between equal GPUs",
    severity="warn",
    phase="preflight",
    means="GPUs of one model run another firmware or are capped lower than the rack's: the same job runs at another "
    "speed there.",
    looks_at="VBIOS version and power limit of GPUs with the same name over the rack.",
    cause="A replaced board, an update that did not reach it, or a cap that was set once with nvidia-smi -pl.",
    remedy="Update the board's firmware in a maintenance window; set the limit back (nvidia-smi -i GPU -pl WATTS) on "
    "the drained node.",
    check="nvidia-smi --query-gpu=vbios_version,power.limit --format=csv is equal for all.",
    source="imbue-ai/cluster-health VBiosVersion; Azure/azurehpc-health-checks azure_gpu_vbios",
)

_HELD_DOWN = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


def _name(gpu: dict[str, t.Any]) -> tuple[str, str]:
    """(GPU 3 as people say, device)."""
    return f"GPU {gpu.get('index', '?')}", str(gpu.get("pci") or gpu.get("index"))


@host_rule(ROW_REMAP, MIG)
def gpu_memory_and_mode(host: HostView) -> t.Iterator[Finding]:
    for gpu in host.gpus:
        label, device = _name(gpu)
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


@host_rule(ECC, THROTTLED, PERSISTENCE, RECOVERY)
def gpu_state(host: HostView) -> t.Iterator[Finding]:
    no_persistence, no_ecc = [], []
    for gpu in host.gpus:
        label, device = _name(gpu)
        where = f"{label} ({device})" if gpu.get("pci") else label
        ecc = mapping(gpu.get("ecc"))
        errors = ecc.get("uncorrected_volatile")
        if isinstance(errors, int) and errors > 0:
            yield ECC.on(
                host,
                f"{host.name}: {where} counts {errors} uncorrected ECC errors since its last reset, 0 wanted",
                device=device,
                evidence=[f"ecc.errors.uncorrected.volatile.total: {errors}"],
            )
        held = [reason for reason in _HELD_DOWN if reason in (gpu.get("clock_events") or ())]
        if held:
            heat = gpu.get("temperature_c")
            yield THROTTLED.on(
                host,
                f"{host.name}: {where} is held down by {', '.join(held)}"
                + (f" at {heat} °C" if heat is not None else "")
                + "; none of these wanted",
                device=device,
                evidence=[f"clock event reasons active: {', '.join(gpu['clock_events'])}"],
            )
        action = str(gpu.get("recovery_action") or "None")
        if action.lower() not in ("none", "n/a") or gpu.get("reset_required") is True:
            shown = action if action.lower() != "none" else "Reset"
            yield RECOVERY.on(
                host,
                f"{host.name}: the driver asks for {where}: {shown}; no recovery action wanted",
                device=device,
                evidence=[f"GPU recovery action: {action}", f"reset required: {gpu.get('reset_required', 'not told')}"],
            )
        if gpu.get("persistence") is False:
            no_persistence.append(label)
        if ecc.get("enabled") is False:
            no_ecc.append(label)
    if no_persistence:
        yield PERSISTENCE.on(
            host,
            f"{host.name}: persistence mode is Disabled on {', '.join(no_persistence)}, Enabled wanted",
            device=", ".join(no_persistence),
            evidence=["persistence_mode: Disabled"],
        )
    if no_ecc:
        yield ECC.on(
            host,
            f"{host.name}: ECC is off on {', '.join(no_ecc)}, on wanted",
            device=", ".join(no_ecc),
            evidence=["ECC mode: Disabled"],
            severity="warn",
        )


@rack_rule(VBIOS_DRIFT)
def firmware_and_limits(rack: RackView) -> t.Iterator[Finding]:
    for key, label, unit in (("vbios", "VBIOS", ""), ("power_limit_w", "power limit", " W")):
        models: dict[str, list[tuple[HostView, dict[str, t.Any]]]] = collections.defaultdict(list)
        for host in rack.hosts:
            for gpu in host.gpus:
                if gpu.get(key) is not None and gpu.get("name"):
                    models[str(gpu["name"])].append((host, gpu))
        for model, members in models.items():
            usual = majority(gpu[key] for _host, gpu in members)
            odd: dict[tuple[str, t.Any], list[dict[str, t.Any]]] = collections.defaultdict(list)
            for host, gpu in members:
                differs = gpu[key] != usual and not (key == "power_limit_w" and usual and gpu[key] > usual)
                if usual is not None and differs:
                    odd[(host.name, gpu[key])].append(gpu)
            for (host_name, value), gpus in odd.items():
                names = ", ".join(_name(gpu)[0] for gpu in gpus)
                yield VBIOS_DRIFT.on(
                    host_name,
                    f"{host_name}: {names} ({model}) ha{'s' if len(gpus) == 1 else 've'} {label} {value}{unit}, "
                    f"{usual}{unit} wanted (as most GPUs of this model)",
                    device=", ".join(_name(gpu)[1] for gpu in gpus),
                    evidence=[f"{_name(gpu)[0]} {key}: {value}" for gpu in gpus[:4]],
                )
