# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA ports: state, rate, firmware, names; compared over the rack."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import lines_with
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    Port,
    RackView,
    dicts,
    majority,
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

PORT_DOWN = define(
    "rdma",
    "RF-PORT-DOWN",
    title="A port of the fabric is down",
    severity="fail",
    phase="preflight",
    means="A rail has no link. NCCL leaves the port out, so the node runs with fewer rails than its peers or the job "
    "hangs.",
    looks_at="state and phys_state of the port in sysfs; whether the same rail is up on the other hosts. A port that "
    "was never brought up anywhere on a fresh rack is not reported.",
    cause="Cable, module or switch port; physical state polling: nothing answers; disabled: switched off on this side.",
    remedy="Reseat or swap the cable and module, enable the switch port; when the physical state is disabled, bring "
    "the interface up (ip link set NETDEV up) or re-enable the port (mlxlink -d BDF -a UP).",
    check="ibstat DEVICE: State: Active, Physical state: LinkUp.",
    source="rdma-core ibstat states; https://github.com/leptonai/gpud/pull/752",
)

PORT_INIT = define(
    "rdma",
    "RF-PORT-NO-SM",
    title="An InfiniBand port waits for a subnet manager",
    severity="fail",
    phase="preflight",
    means="The link is up and the port has no LID: state initializing (or armed) and SM lid 0. Nothing can be sent.",
    looks_at="state, phys_state, lid and sm_lid of the port in sysfs.",
    cause="No subnet manager reaches the port: it is stopped, runs on another fabric, or the port is in no partition.",
    remedy="Start or repair the subnet manager (UFM, the switch's, or opensm); sminfo shows which one answers. Where "
    "the fabric has none, gpu_fabric_opensm_nodes has the collection run opensm on chosen hosts.",
    check="ibstat DEVICE: State: Active and an SM lid other than 0.",
    source="https://github.com/openucx/ucx/discussions/5970",
)

PORT_RATE = define(
    "rdma",
    "RF-PORT-RATE",
    title="A port runs at a lower rate than its peers",
    severity="fail",
    phase="preflight",
    means="The link trained at a lower speed or with fewer lanes than the same rail elsewhere. A collective runs at "
    "the speed of its slowest rail.",
    looks_at="rate of active ports in sysfs: the same rail on other hosts, then the other rails of the host. The rate "
    "of a port that is down is a placeholder and is not judged.",
    cause="A cable or module of a lower class, damaged lanes, a speed forced on the switch or on the card.",
    remedy="Check cable and module (mlxlink -d BDF -m -e -c, ethtool -m NETDEV), the switch port's speed, and a forced "
    "speed on the card (ethtool NETDEV); then reseat or swap the cable.",
    check="cat /sys/class/infiniband/DEVICE/ports/1/rate is equal on all rails.",
    source="rdma-core sysfs rate; GPU-fleet port checks in public health-check projects.",
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

NO_GUID = define(
    "rdma",
    "RF-PORT-NO-GUID",
    title="A virtual function has no GUID",
    severity="fail",
    phase="preflight",
    means="The function's physical link is up and its port stays down: without a GUID the subnet manager cannot give "
    "it a LID.",
    looks_at="Node GUID, port state and LID of InfiniBand functions.",
    cause="The virtual function was made and nobody set its node and port GUID, or the subnet manager was started "
    "without virtualisation.",
    remedy="On the host that owns the physical function: ip link set PF vf N node_guid GUID port_guid GUID, set the "
    "function's link state to auto, bind it again; opensm needs virt_enabled 2.",
    check="ibstat: Node GUID is not 0, State: Active.",
    source="https://github.com/Mellanox/network-operator/issues/249",
)

_IGNORED_ROLES = frozenset({"unused", "management", "vf", "software", "nvswitch_bridge", "data_direct"})


@host_rule(HCA_NONE, HCA_NO_DEVICE)
def no_adapter(host: HostView) -> t.Iterator[Finding]:
    if "rdma_devices" not in host.facts:
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
            evidence=lines_with(host, r"mlx5_core|mlx5_ib")[:6],
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


def _rack_roles(rack: RackView) -> dict[tuple[str, str], str | None]:
    """(PCI address, port) → the role that most hosts give it; a fault must not hide itself by changing its role."""
    seen: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for host in rack.hosts:
        for port in host.ports:
            if port.role and port.owner.get("pci"):
                seen[(port.owner["pci"], port.number)].append(port.role)
    return {key: majority(roles) for key, roles in seen.items()}


def _role(port: Port, roles: dict[tuple[str, str], str | None]) -> str | None:
    if port.rail is not None:
        return "compute"
    usual = roles.get((str(port.owner.get("pci")), port.number))
    return "compute" if usual == "compute" else port.role


@rack_rule(PORT_DOWN, PORT_INIT, NO_GUID)
def ports_not_active(rack: RackView) -> t.Iterator[Finding]:
    roles = _rack_roles(rack)
    up_here = {host.name: any(p.active for p in host.rail_ports) for host in rack.hosts}
    # The plan starts a subnet manager on one of the hosts.
    manager = any(mapping(host.plan.get("opensm")).get("wanted") for host in rack.hosts)
    states: dict[tuple[str, str], list[bool]] = collections.defaultdict(list)
    for host in rack.hosts:
        for port in host.ports:
            if (state := _state(host, port)) is not None:
                states[_slot(port)].append(state == "active")
    for host in rack.hosts:
        for port in host.ports:
            role = _role(port, roles)
            if _state(host, port) in (None, "active") or role in _IGNORED_ROLES:
                continue
            seen = states[_slot(port)]
            up, known = sum(seen), len(seen)
            infiniband = port.data.get("link_layer") == "InfiniBand"
            guid = str(port.owner.get("node_guid") or "")
            linked = port.state == "down" and port.data.get("phys_state") == "linkup"
            if infiniband and linked and guid and not guid.strip("0"):
                yield _no_guid(host, port)
                continue
            if infiniband and port.state in ("initializing", "armed"):
                yield _no_manager(host, port, manager)
                continue
            usually_up = up * 2 > known
            if role != "compute" and not usually_up:
                continue
            switched_off = port.data.get("phys_state") in ("disabled", "sleep")
            if role == "compute" and switched_off and not infiniband and not up and not up_here[host.name]:
                continue  # administratively down everywhere: this rack was not configured yet
            yield _down(host, port, role, up, known)


def _slot(port: Port) -> tuple[str, str]:
    return (str(port.owner.get("pci") or port.device), port.number)


def _state(host: HostView, port: Port) -> str | None:
    """The port's state; where no tool told it (ibdev2netdev alone), that of its Ethernet interface."""
    data = mapping(host.get("netdevs", port.netdev)) if port.netdev else {}
    if port.state is not None or data.get("kind") == "ipoib" or str(port.netdev).startswith("ib"):
        return port.state
    return {"up": "active", "down": "down"}.get(str(data.get("operstate")))


def _no_guid(host: HostView, port: Port) -> Finding:
    return NO_GUID.on(
        host,
        f"{host.name}: {port.label} is down with its link up, lid {port.data.get('lid')}: its node GUID is 0; a GUID "
        "of its own wanted",
        device=port.device,
        evidence=[f"node_guid: {port.owner.get('node_guid')}", *_port_evidence(port)],
    )


def _no_manager(host: HostView, port: Port, planned: bool) -> Finding:
    return PORT_INIT.on(
        host,
        f"{host.name}: {port.label} is {port.state}, lid {port.data.get('lid')}, SM lid {port.data.get('sm_lid')}; "
        "active wanted: no subnet manager has configured it",
        device=port.device,
        evidence=_port_evidence(port),
        mended_by="rdma" if planned else None,
    )


def _down(host: HostView, port: Port, role: str | None, up: int, known: int) -> Finding:
    peers = f"; the same port is active on {up} of {known} hosts" if known > 1 else ""
    what = {"storage": "storage port "}.get(role or "", "")
    return PORT_DOWN.on(
        host,
        f"{host.name}: {what}{port.label} is {_state(host, port)} (physical state "
        f"{port.data.get('phys_state', 'not known')}), active wanted{peers}",
        device=port.device,
        evidence=_port_evidence(port) + lines_with(host, rf"{port.netdev}.*link|Cable error|High Temperature")[-3:]
        if port.netdev
        else _port_evidence(port),
        severity="fail" if role == "compute" else "warn",
    )


def _port_evidence(port: Port) -> list[str]:
    base = f"/sys/class/infiniband/{port.device}/ports/{port.number}"
    keys = ("state", "phys_state", "rate_gbps", "link_layer", "lid", "sm_lid")
    return [f"{base} {key}: {port.data[key]}" for key in keys if port.data.get(key) is not None]


@rack_rule(PORT_RATE)
def slow_ports(rack: RackView) -> t.Iterator[Finding]:
    roles = _rack_roles(rack)
    by_place: dict[tuple[str, ...], list[float]] = collections.defaultdict(list)
    by_host: dict[tuple[str, ...], list[float]] = collections.defaultdict(list)
    judged: list[tuple[HostView, Port, str | None, float]] = []
    for host in rack.hosts:
        for port in host.ports:
            rate = port.data.get("rate_gbps") or _link_speed(host, port)
            role = _role(port, roles)
            up = port.active or (port.state is None and host.get("netdevs", port.netdev, "carrier") is True)
            if not up or not isinstance(rate, (int, float)) or role in _IGNORED_ROLES:
                continue
            judged.append((host, port, role, rate))
            by_place[_place(port)].append(rate)
            if role == "compute":
                by_host[(host.name, *_kind(port))].append(rate)
    for host, port, role, rate in judged:
        group = by_place[_place(port)]
        usual, where = majority(group), f"as on {sum(1 for r in group if r > rate)} of {len(group)} hosts"
        if usual is None or len(group) < 2 or usual <= rate:
            if role != "compute":
                continue
            usual, where = majority(by_host[(host.name, *_kind(port))]), "as the host's other rails"
        if usual is not None and rate < usual:
            yield PORT_RATE.on(
                host,
                f"{host.name}: {port.label} runs at {rate:g} Gb/s, {usual:g} Gb/s wanted ({where})",
                device=port.device,
                evidence=[
                    f"/sys/class/infiniband/{port.device}/ports/{port.number}/rate: "
                    f"{port.data.get('rate_text') or format(rate, 'g')}"
                    if port.data.get("rate_gbps")
                    else f"{port.netdev}: speed {rate:g} Gb/s"
                ],
                severity="fail" if role == "compute" else "warn",
            )


def _link_speed(host: HostView, port: Port) -> float | None:
    """The interface's speed, where no tool told the port's rate."""
    speed = host.get("netdevs", port.netdev, "speed_mbps") if port.netdev else None
    return speed / 1000 if isinstance(speed, int) and port.data.get("link_layer") != "InfiniBand" else None


def _place(port: Port) -> tuple[str, ...]:
    return (str(port.owner.get("pci") or port.device), port.number, *_kind(port))


def _kind(port: Port) -> tuple[str, ...]:
    return (str(port.owner.get("hca_type")), str(port.owner.get("board_id")), str(port.data.get("link_layer")))


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
