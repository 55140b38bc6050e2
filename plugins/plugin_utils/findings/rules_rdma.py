# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA adapters: presence, firmware, names; compared over the rack."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import lines_with
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    Port,
    RackView,
    dicts,
    mapping,
    natural,
    version_key,
)

HCA_NONE = define(
    "rdma",
    "RF-HCA-NONE",
    title="No RDMA adapter on the host",
    severity="fail",
    phase="preflight",
    means="The host has neither an RDMA device nor a PCI network function of a maker of RDMA adapters.",
    looks_at="/sys/class/infiniband and the vendor of every PCI function of class 02.",
    cause="The wrong machine is in the inventory, a virtual machine has no function passed through, or the cards are "
    "without power.",
    remedy="Take the host out of the inventory or mend the hardware; for hosts without an RDMA fabric set "
    "gpu_fabric_fabric: none, for a dry run on an ordinary machine gpu_fabric_require_hardware: false.",
    check="ls /sys/class/infiniband lists the adapters.",
    source="DESIGN: hardware is counted on PCI and in sysfs.",
)

HCA_NO_DEVICE = define(
    "rdma",
    "RF-HCA-NO-DEVICE",
    title="An adapter is on PCI but has no RDMA device",
    severity="fail",
    phase="verify",
    means="The network card is there and its RDMA driver is not: NCCL finds no device and falls back to TCP.",
    looks_at="PCI functions of vendor 15b3 with class 02 against /sys/class/infiniband; mlx5_ib in /proc/modules.",
    cause="mlx5_ib (or the vendor's RDMA module) is not loaded, not built for the running kernel, or the kernel "
    "package with extra modules is not installed.",
    remedy="modprobe mlx5_ib; when it does not exist for the running kernel, rebuild it (dkms autoinstall) or install "
    "the kernel's extra modules, then run site.yml --tags ofed.",
    check="ls /sys/class/infiniband shows one device for each function.",
    source="https://github.com/Azure/azhpc-images/issues/119",
)

FIRMWARE_DRIFT = define(
    "rdma",
    "RF-HCA-FIRMWARE-DRIFT",
    title="Adapter firmware differs between equal cards",
    severity="warn",
    phase="preflight",
    means="Cards with the same board id run different firmware. Behaviour under congestion and the set of parameters "
    "may differ between nodes.",
    looks_at="fw_ver of every RDMA device in sysfs, grouped by board id over the rack.",
    cause="A card was replaced, or an update did not reach every card or waits for a reset.",
    remedy="Bring the card to the rack's version in a maintenance window (mstflint/mlxfwmanager -d BDF, then a reset "
    "or power cycle).",
    check="cat /sys/class/infiniband/*/fw_ver is equal for one board id.",
    source="Firmware checks of imbue-ai/cluster-health and facebookresearch/gcm.",
)

NAMES_DIFFER = define(
    "rdma",
    "RF-RDMA-NAMES-DIFFER",
    title="The same adapter has another RDMA name on this host",
    severity="warn",
    phase="preflight",
    means="A list of device names that is right on one node matches nothing on the other. Whatever takes its names "
    "from the first node (NCCL_IB_HCA, UCX_NET_DEVICES, job scripts) breaks here. The collection itself resolves "
    "names per host from PCI addresses.",
    looks_at="RDMA device names per PCI address, compared over the rack.",
    cause="Two renaming rules overlap (rdma-core's persistent naming, the image's own udev rules), or probe order.",
    remedy="Use the per-host /etc/nccl.conf the collection writes; for equal names install one naming rule on all "
    "hosts (rdma_rename NAME_FIXED or NAME_KERNEL in /etc/udev/rules.d) and reboot.",
    check="rdma link prints the same names on all hosts.",
    source="https://github.com/Azure/azhpc-images/issues/491; https://github.com/NVIDIA/nccl/issues/1277",
)

TOOL_DISAGREES = define(
    "rdma",
    "RF-RDMA-TOOL-DISAGREES",
    title="A tool's answer disagrees with sysfs",
    severity="warn",
    phase="diagnose",
    means="A tool reports another state or interface for a port than the kernel. The kernel's value was used.",
    looks_at="ibstat and ibdev2netdev against /sys/class/infiniband. '(Down)' of an IPoIB interface is not the port's "
    "state and is not compared.",
    cause="The link changed between the two reads, or the tool belongs to another driver stack than the loaded one.",
    remedy="Read both again; when they still differ, install the tool of the running stack.",
    check="ibstat and cat /sys/class/infiniband/DEVICE/ports/1/state agree.",
    source="DESIGN: sysfs first, tools second.",
)


_NOTHING = re.compile(
    r"No IB devices found|Failed to get IB devices list|stat of IB device|ibpanic: .*(?:stat|no such)", re.I
)


def _told_nothing(host: HostView) -> list[str]:
    """Lines in which a tool says that there is no RDMA device; an empty list of them says the same."""
    lines = [
        line.strip()
        for name in ("ibv_devinfo", "ibv_devices", "ibstat", "ibstat_l")
        for line in (host.recorded(name) or "").splitlines()
        if _NOTHING.search(line)
    ]
    listed = host.recorded("ls_sys_class_infiniband")
    if listed is not None and (not listed.strip() or "No such file" in listed):
        lines.append("ls /sys/class/infiniband: nothing")
    return lines


@host_rule(HCA_NONE, HCA_NO_DEVICE)
def no_adapter(host: HostView) -> t.Iterator[Finding]:
    told = _told_nothing(host) if host.recorded_only else []
    if "rdma_devices" not in host.facts and not told:
        return
    hardware = [name for name, data in host.section("rdma_devices").items() if not mapping(data).get("software")]
    if hardware or host.want("fabric") == "none":
        return
    functions = host.section("pci")
    cards = sorted(
        (pci for pci, data in functions.items() if _is_mellanox_nic(mapping(data))),
        key=natural,
    )
    if cards:
        loaded = host.loaded("mlx5_ib")
        yield HCA_NO_DEVICE.on(
            host,
            f"{host.name}: {len(cards)} adapters on PCI ({', '.join(cards)}), 0 RDMA devices in /sys/class/infiniband, "
            f"{len(cards)} wanted; mlx5_ib is {'loaded' if loaded else 'not loaded'}",
            device=cards[0],
            evidence=[*told[:3], *lines_with(host, r"mlx5_core|mlx5_ib")[:6]],
        )
    elif told and "rdma_devices" not in host.facts:
        # Which tool failed is known, what is in the slots is not.
        absent = [name for name in ("ib_uverbs", "ib_umad", "mlx5_ib") if host.loaded(name) is False]
        yield HCA_NO_DEVICE.on(
            host,
            f"{host.name}: 0 RDMA devices, at least 1 wanted: {told[0]}"
            + (f"; {', '.join(absent)} not loaded" if absent else ""),
            device="HCA",
            evidence=told[:4],
        )
    elif host.want("require_hardware", True) and host.pci_is_complete:
        yield HCA_NONE.on(
            host,
            f"{host.name}: 0 RDMA adapters (HCA) found, at least 1 wanted",
            device="HCA",
            evidence=["/sys/class/infiniband has no hardware device"],
        )


def _is_mellanox_nic(function: dict[str, t.Any]) -> bool:
    is_nic = str(function.get("class", "")).startswith("02")
    return function.get("vendor") == "15b3" and is_nic and not function.get("physfn")


@rack_rule(FIRMWARE_DRIFT)
def firmware_drift(rack: RackView) -> t.Iterator[Finding]:
    boards: dict[str, list[tuple[HostView, str, str]]] = collections.defaultdict(list)
    for host in rack.hosts:
        for name, device in sorted(host.section("rdma_devices").items(), key=lambda item: natural(item[0])):
            device = mapping(device)
            board, firmware = device.get("board_id"), device.get("firmware")
            if board and firmware and not device.get("software") and host.roles.get(name) not in ("vf", "data_direct"):
                boards[board].append((host, name, firmware))
    for board, members in boards.items():
        counts = collections.Counter(firmware for _host, _name, firmware in members)
        if len(counts) < 2:
            continue
        usual = max(counts, key=lambda version: (counts[version], version_key(version)))
        odd: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for host, name, firmware in members:
            if firmware != usual:
                odd[(host.name, firmware)].append(name)
        for (host_name, firmware), names in odd.items():
            listed = ", ".join(names)
            yield FIRMWARE_DRIFT.on(
                host_name,
                f"{host_name}: {listed} (board {board}) run{'s' if len(names) == 1 else ''} firmware {firmware}, "
                f"{usual} wanted (as {counts[usual]} of {len(members)} cards in the rack)",
                device=listed,
                evidence=[f"/sys/class/infiniband/{name}/fw_ver: {firmware}" for name in names],
            )


def _places(rack: RackView) -> dict[str, dict[str, str]]:
    """PCI address → host → RDMA device name, from the facts and from a recorded list of the rack's devices."""
    places: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for line in (rack.text("nodes_pci.txt") or "").splitlines():
        words = line.split()
        if len(words) == 3:
            places[words[2].lower()][words[0]] = words[1]
    for host in rack.hosts:
        for name, device in host.section("rdma_devices").items():
            device = mapping(device)
            if device.get("pci") and not device.get("software"):
                places[device["pci"]][host.name] = name
    if places:
        return places
    # Without addresses only the whole set can be compared: equal machines have equal sets of InfiniBand names.
    for host in rack.hosts:
        names = sorted((p.device for p in host.ports if p.data.get("link_layer") != "Ethernet"), key=natural)
        if names:
            places[f"{len(names)} devices"][host.name] = ", ".join(names)
    return places


@rack_rule(NAMES_DIFFER)
def names_differ(rack: RackView) -> t.Iterator[Finding]:
    places = _places(rack)
    odd: dict[str, list[tuple[str, str, str]]] = collections.defaultdict(list)
    for pci, names in places.items():
        counts = collections.Counter(names.values())
        if len(counts) < 2:
            continue
        # Of equally frequent names the first in order is taken, so that the verdict does not depend on host order.
        usual = min(counts, key=lambda name: (-counts[name], natural(name)))
        for host_name, name in names.items():
            if name != usual:
                odd[host_name].append((pci, name, usual))
    for host_name, differing in odd.items():
        differing.sort(key=lambda item: natural(item[0]))
        listed = ", ".join(name for _pci, name, _usual in differing)
        detail = "; ".join(f"{pci} is {name} here, {usual} on most hosts" for pci, name, usual in differing)
        yield NAMES_DIFFER.on(
            host_name,
            f"{host_name}: RDMA device names differ from the rack's: {detail}; the host's own names wanted wherever "
            "devices are listed",
            device=listed,
            evidence=[f"{host_name} {name} {pci}" for pci, name, _usual in differing],
        )


@host_rule(TOOL_DISAGREES)
def tool_disagrees(host: HostView) -> t.Iterator[Finding]:
    kernel = {(port.device, port.number): port for port in host.ports}
    for ca in dicts(host.get("outputs", "ibstat", "cas")):
        for said in dicts(ca.get("ports")):
            port = kernel.get((str(ca.get("name")), str(said.get("port"))))
            if port and said.get("state") and port.state and said["state"] != port.state:
                yield _disagreement(host, port, "ibstat", f"state {said['state']}", f"state {port.state}")
    for row in dicts(host.get("outputs", "ibdev2netdev", "mappings")):
        port = kernel.get((str(row.get("device")), str(row.get("port"))))
        names = port.data.get("netdevs") if port else None
        if port and isinstance(names, list) and names and row.get("netdev") and row["netdev"] not in names:
            yield _disagreement(host, port, "ibdev2netdev", str(row["netdev"]), ", ".join(map(str, names)))


def _disagreement(host: HostView, port: Port, tool: str, said: str, kernel: str) -> Finding:
    return TOOL_DISAGREES.on(
        host,
        f"{host.name}: {tool} says {said} for {port.device} port {port.number}, the kernel says {kernel}; the kernel's "
        "value is used",
        device=port.device,
        evidence=[f"{tool}: {said}", f"sysfs: {kernel}"],
    )
