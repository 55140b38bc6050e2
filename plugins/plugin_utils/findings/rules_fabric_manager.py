# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA Fabric Manager: there where NVSwitches are, at the driver's version, running, done."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.gpu_models import gpu_rows
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
    mapping,
    upstream,
)

FM_VERSION = define(
    "fabric_manager",
    "RF-FM-VERSION",
    title="Fabric Manager version differs from the driver",
    severity="fail",
    phase="verify",
    means="Fabric Manager must have exactly the driver's version; the same branch is not enough. It refuses to start "
    "or to program the NVSwitches, and every CUDA program on the node ends with error 802, system not yet initialized.",
    looks_at="The loaded driver's version (else the installed one) against the installed Fabric Manager package and "
    "the unit's own log.",
    cause="An unattended upgrade or a version glob moved one of the two; a hold was set on the meta package only.",
    remedy="Install the Fabric Manager of exactly the driver's version and hold both; the collection derives it from "
    "gpu_fabric_driver_version (site.yml --tags nvidia).",
    check="systemctl is-active nvidia-fabricmanager; nvidia-smi -q: Fabric State Completed.",
    source="https://github.com/aws/aws-parallelcluster/issues/3034; NVIDIA Fabric Manager user guide",
)

FM_NOT_RUNNING = define(
    "fabric_manager",
    "RF-FM-NOT-RUNNING",
    title="Fabric Manager is installed but does not run",
    severity="fail",
    phase="verify",
    means="The host has NVSwitches and a loaded driver, and nobody programs the switches: CUDA error 802 on all GPUs.",
    looks_at="The unit's state and log; NVSwitch functions (10de class 0680) or NVSwitch bridge devices.",
    cause="The unit is disabled or failed; on fourth-generation NVSwitch ib_umad or nvlsm is missing.",
    remedy="systemctl enable --now nvidia-fabricmanager; read journalctl -u nvidia-fabricmanager when it fails.",
    check="systemctl is-active nvidia-fabricmanager prints active.",
    source="https://github.com/NVIDIA/nccl-tests/issues/264; NVIDIA Fabric Manager user guide",
)

FM_MISSING = define(
    "fabric_manager",
    "RF-FM-MISSING",
    title="No Fabric Manager on a host with NVSwitches",
    severity="fail",
    phase="verify",
    means="The driver is loaded and nobody programs the NVSwitches: every CUDA program ends with error 802, system "
    "not yet initialized.",
    looks_at="NVSwitch functions or bridge devices, the module list, the installed packages.",
    cause="The driver was installed without Fabric Manager, or the package was removed by a dependency.",
    remedy="Run site.yml --tags nvidia: it installs the Fabric Manager of exactly the driver's version.",
    check="systemctl is-active nvidia-fabricmanager prints active.",
    source="https://github.com/aws/aws-parallelcluster/issues/3034; NVIDIA Fabric Manager user guide",
    mended_by="nvidia",
)

FM_NOT_NEEDED = define(
    "fabric_manager",
    "RF-FM-NOT-NEEDED",
    title="Fabric Manager on a host without NVSwitch",
    severity="warn",
    phase="configure",
    means="Without NVSwitches Fabric Manager has nothing to do: its unit ends with NV_WARN_NOTHING_TO_DO and the "
    "system stays degraded.",
    looks_at="PCI functions 10de class 0680, NVSwitch bridge devices (SW_MNG in the card's VPD), the unit's state.",
    cause="The package was installed on the whole group, whatever the machine.",
    remedy="Run site.yml --tags nvidia: the package is installed only where NVSwitches are; elsewhere the unit is "
    "disabled.",
    check="systemctl is-system-running prints running.",
    source="https://github.com/NVIDIA/gpu-operator/issues/610",
    mended_by="nvidia",
)

NO_NVSWITCH = define(
    "fabric_manager",
    "RF-FM-NOT-PLANNED",
    title="No NVSwitch: Fabric Manager is left out",
    severity="info",
    phase="configure",
    means="Other hosts of the rack get Fabric Manager, this one does not, because it has no NVSwitch.",
    looks_at="PCI functions 10de class 0680 and NVSwitch bridge devices.",
    cause="The rack mixes machines with and without NVSwitch.",
    remedy="Nothing to do.",
    check="lspci -d 10de::0680 prints nothing.",
    source="https://github.com/NVIDIA/gpu-operator/issues/610",
)

FABRIC_STATE = define(
    "fabric_manager",
    "RF-FM-FABRIC-STATE",
    title="A GPU's NVLink fabric is not ready",
    severity="fail",
    phase="verify",
    means="nvidia-smi reports another fabric state than Completed/Success for a GPU behind NVSwitches. CUDA programs "
    "that use the GPU fail or run without NVLink SHARP.",
    looks_at="Fabric State and Status of nvidia-smi -q; N/A (Ampere, PCIe cards) is not judged.",
    cause="Fabric Manager is still at work, was restarted while GPUs were in use, or met an NVLink fault.",
    remedy="Wait a minute after boot; then read journalctl -u nvidia-fabricmanager, stop the jobs and reset the GPUs "
    "or reboot.",
    check="nvidia-smi -q: State Completed, Status Success on every GPU.",
    source="NVIDIA Fabric Manager user guide; https://github.com/NVIDIA/nccl/issues/976",
)

NO_UMAD = define(
    "fabric_manager",
    "RF-FM-IB-UMAD",
    title="ib_umad is not loaded for NVSwitch management",
    severity="fail",
    phase="verify",
    means="Fourth-generation NVSwitches are managed with InfiniBand management packets over on-board bridge devices. "
    "Without ib_umad Fabric Manager finds nothing to do and no GPU becomes usable, also on nodes whose rails are "
    "Ethernet.",
    looks_at="Bridge devices (SW_MNG in the VPD), the module list, the installed Fabric Manager.",
    cause="RoCE hosts do not load ib_umad by themselves on minimal images.",
    remedy="modprobe ib_umad, have it loaded at boot (site.yml --tags nvidia writes modules-load.d), restart "
    "nvidia-fabricmanager.",
    check="ls /sys/class/infiniband_mad; journalctl -u nvidia-fabricmanager: Detected NVL5+ system.",
    source="NVIDIA Fabric Manager user guide; https://github.com/siderolabs/extensions/issues/717",
    mended_by="nvidia",
)

_MISMATCH = re.compile(
    r"interface version (?P<manager>\d+(?:\.\d+)+) don.t match with driver version (?P<driver>\d+(?:\.\d+)+)"
)


def has_nvswitch(host: HostView) -> bool | None:
    """None: the host's PCI functions are not known."""
    if dicts(host.get("nvswitches")):
        return True
    if "nvswitch_bridge" in host.roles.values():
        return True
    if any(mapping(data).get("vpd", {}).get("sw_mng") for data in host.section("pci").values()):
        return True
    return False if "nvswitches" in host.facts or host.section("pci") else None


def _installed(host: HostView) -> tuple[str, str] | None:
    """(package, version) of Fabric Manager."""
    for name, package in sorted(host.section("packages").items()):
        data = mapping(package)
        plain = re.sub(r"-\d+$", "", name)
        if plain in ("nvidia-fabricmanager", "nvidia-fabric-manager") and data.get("status") in (None, "installed"):
            return name, str(data.get("version", ""))
    version = host.get("fabric_manager", "installed_version")
    return ("nvidia-fabricmanager", version) if isinstance(version, str) and version else None


def _log(host: HostView) -> list[str]:
    log = host.get("fabric_manager", "log")
    return [str(line) for line in log] if isinstance(log, list) else []


@host_rule(FM_VERSION)
def version_differs(host: HostView) -> t.Iterator[Finding]:
    if has_nvswitch(host) is False:
        return
    # The log is history once the unit runs.
    lines = [] if host.get("fabric_manager", "active") is True else _log(host)
    said = next((match for line in reversed(lines) if (match := _MISMATCH.search(line))), None)
    installed, driver = _installed(host), host.driver_version()
    package, version = installed or ("nvidia-fabricmanager", "")
    if installed and driver and upstream(version) != driver[0]:
        manager, wanted, origin = upstream(version), driver[0], driver[1]
    elif said and (not driver or driver[0] == said["driver"]):
        version, manager, wanted, origin = said["manager"], said["manager"], said["driver"], "its log"
    else:
        return
    evidence = [line for line in _log(host) if "version" in line][:2]
    yield FM_VERSION.on(
        host,
        f"{host.name}: {package} has version {manager}, {wanted} wanted: exactly the driver's version (from {origin})",
        device=package,
        evidence=[f"{package} {version}", f"driver {wanted} ({origin})", *evidence],
        remedy=f"Install {package} in version {wanted} and hold it with the driver's packages: set "
        f"gpu_fabric_driver_version to the wanted driver and run site.yml --tags nvidia, then restart "
        "nvidia-fabricmanager on the drained node.",
    )


@host_rule(FM_NOT_RUNNING)
def not_running(host: HostView) -> t.Iterator[Finding]:
    installed = _installed(host)
    if host.get("fabric_manager", "active") is not False or not installed or not has_nvswitch(host):
        return
    # A recording need not hold the list of modules.
    no_driver = host.loaded("nvidia") is False or (host.loaded("nvidia") is None and not host.recorded_only)
    if no_driver or any(version_differs(host)):
        return  # without a driver it cannot run; at another version that is the finding
    yield FM_NOT_RUNNING.on(
        host,
        f"{host.name}: nvidia-fabricmanager is {host.get('fabric_manager', 'state') or 'inactive'}, active wanted: the "
        "host has NVSwitches",
        device="nvidia-fabricmanager",
        evidence=_log(host)[-4:] or [f"state: {host.get('fabric_manager', 'state') or 'inactive'}"],
    )


@host_rule(FM_NOT_NEEDED)
def not_needed(host: HostView) -> t.Iterator[Finding]:
    installed = _installed(host)
    state = host.get("fabric_manager", "state")
    enabled = host.get("services", "nvidia-fabricmanager", "enabled") is True or state == "failed"
    if has_nvswitch(host) is not False or not host.gpus or not (installed and (enabled or host.recorded_only)):
        return
    yield FM_NOT_NEEDED.on(
        host,
        f"{host.name}: {installed[0]} {upstream(installed[1])} is installed, none wanted: the host has no NVSwitch",
        device=installed[0],
        evidence=[f"0 NVSwitch functions on PCI, {len(host.gpus)} GPUs", *_log(host)[-2:]],
    )


@host_rule(FABRIC_STATE)
def fabric_state(host: HostView) -> t.Iterator[Finding]:
    active = host.get("fabric_manager", "active")
    # Without a running Fabric Manager the state is its consequence, not a finding of its own.
    if not has_nvswitch(host) or not (active is True or (host.recorded_only and active is None)):
        return
    seen: dict[tuple[str, str], list[dict[str, t.Any]]] = {}
    for gpu in host.gpus:
        state, status = gpu.get("fabric_state"), gpu.get("fabric_status")
        if state not in (None, "", "N/A", "Completed") or status not in (None, "", "N/A", "Success"):
            seen.setdefault((str(state), str(status or "N/A")), []).append(gpu)
    for (state, status), gpus in seen.items():
        names = ", ".join(str(gpu.get("index", gpu.get("pci"))) for gpu in gpus)
        yield FABRIC_STATE.on(
            host,
            f"{host.name}: GPU {names} ha{'s' if len(gpus) == 1 else 've'} fabric state {state}, status {status}; "
            "Completed and Success wanted",
            device=", ".join(str(gpu.get("pci", gpu.get("index"))) for gpu in gpus),
            evidence=[f"Fabric State: {state}", f"Fabric Status: {status}"],
        )


@host_rule(FM_MISSING)
def manager_missing(host: HostView) -> t.Iterator[Finding]:
    driver = host.driver_version()
    if not has_nvswitch(host) or not host.loaded("nvidia") or "packages" not in host.facts or _installed(host):
        return
    yield FM_MISSING.on(
        host,
        f"{host.name}: no Fabric Manager is installed, {driver[0] if driver else 'the driver version'} wanted: the "
        "host has NVSwitches and a loaded driver",
        device="nvidia-fabricmanager",
        evidence=[f"{len(dicts(host.get('nvswitches')))} NVSwitches", f"driver {driver[0]}" if driver else ""],
    )


@rack_rule(NO_NVSWITCH)
def mixed_rack(rack: RackView) -> t.Iterator[Finding]:
    switched = {host.name: has_nvswitch(host) for host in rack.hosts}
    if True not in switched.values():
        return
    for host in rack.hosts:
        if switched[host.name] is False and host.gpus and not _installed(host):
            yield NO_NVSWITCH.on(
                host,
                f"{host.name}: 0 NVSwitch on PCI, so Fabric Manager is not part of this host's plan",
                device="nvidia-fabricmanager",
                evidence=[f"{len(host.gpus)} GPUs, 0 functions 10de class 0680"],
            )


@host_rule(NO_UMAD)
def umad_missing(host: HostView) -> t.Iterator[Finding]:
    bridges = [n for n, role in host.roles.items() if role == "nvswitch_bridge"]
    bridges += [pci for pci, d in host.section("pci").items() if mapping(mapping(d).get("vpd")).get("sw_mng")]
    installed = _installed(host)
    # Fabric Manager finds neither switch nor bridge on a board of this generation: it cannot see the bridges.
    blind = any("NV_WARN_NOTHING_TO_DO" in line for line in _log(host)) and any(
        row.get("name") == "Blackwell" for _pci, _model, row in gpu_rows(host)
    )
    known = bool(bridges and installed and host.loaded("nvidia"))
    if (known or blind) and host.loaded("ib_umad") is False:
        what = f"{len(bridges)} NVSwitch bridges are" if bridges else "the board's NVSwitches are"
        yield NO_UMAD.on(
            host,
            f"{host.name}: ib_umad is not loaded, loaded wanted: {what} managed through it",
            device="ib_umad",
            evidence=[
                f"bridges: {', '.join(map(str, bridges))}" if bridges else "",
                f"{installed[0]} {installed[1]}" if installed else "",
                *[line for line in _log(host) if "NOTHING_TO_DO" in line][:1],
                *_log(host)[-2:],
            ],
        )
