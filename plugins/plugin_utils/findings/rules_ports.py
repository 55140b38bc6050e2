# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports of the fabric: state, rate, link layer; compared over the rack."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import lines_with
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    Port,
    RackView,
    majority,
    mapping,
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

LINK_LAYER = define(
    "rdma",
    "RF-PORT-LINK-LAYER",
    title="A port runs another link layer than its peers",
    severity="fail",
    phase="preflight",
    means="The same card is InfiniBand here and Ethernet on the other hosts (or the other way round): the rail "
    "reaches nobody.",
    looks_at="Link layer of ports at the same PCI address over the rack, LINK_TYPE where it was read.",
    cause="LINK_TYPE of a VPI card was set on a part of the rack, or a replaced card came with the factory's default.",
    remedy="mlxconfig -d BDF set LINK_TYPE_P1=IB(1) or ETH(2) as on the other hosts, then reset the card on the "
    "drained node.",
    check="cat /sys/class/infiniband/DEVICE/ports/1/link_layer is equal on all hosts.",
    source="mlxconfig documentation, LINK_TYPE",
)

_IGNORED_ROLES = frozenset({"unused", "management", "vf", "software", "nvswitch_bridge", "data_direct"})


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
        usual = majority(group) or (max(group) if host.recorded_only and len(set(group)) > 1 else None)
        where = f"as on {sum(1 for r in group if r > rate)} of {len(group)} hosts"
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


@rack_rule(LINK_LAYER)
def link_layer_differs(rack: RackView) -> t.Iterator[Finding]:
    places: dict[tuple[str, str], list[tuple[HostView, t.Any]]] = collections.defaultdict(list)
    for host in rack.hosts:
        for port in host.ports:
            layer = port.data.get("link_layer")
            if layer in ("InfiniBand", "Ethernet") and (port.owner.get("pci") or host.recorded_only):
                places[_slot(port)].append((host, port))
    for members in places.values():
        usual = majority(port.data["link_layer"] for _host, port in members)
        for host, port in members:
            if usual is None or len(members) < 3 or port.data["link_layer"] == usual:
                continue
            setting = mapping(host.get("nic_config", port.owner.get("pci"), f"LINK_TYPE_P{port.number}"))
            yield LINK_LAYER.on(
                host,
                f"{host.name}: {port.label} is {port.data['link_layer']}, {usual} wanted (as on the other hosts)",
                device=port.device,
                evidence=[
                    f"link_layer: {port.data['link_layer']}",
                    f"LINK_TYPE_P{port.number}: {setting.get('current')}" if setting else "",
                ],
            )


@rack_rule(PORT_RATE, PORT_DOWN)
def interfaces_without_ports(rack: RackView) -> t.Iterator[Finding]:
    """A recording of interfaces alone: the same interface is compared over the hosts."""
    if any(host.ports or not host.recorded_only for host in rack.hosts):
        return
    seen: dict[str, list[tuple[HostView, float | None, bool | None]]] = collections.defaultdict(list)
    for host in rack.hosts:
        for name, data in host.section("netdevs").items():
            netdev = mapping(data)
            speed, carrier = netdev.get("speed_mbps"), netdev.get("carrier")
            if netdev.get("kind") in (None, "physical", "bond") and (speed or carrier is not None):
                seen[str(name)].append((host, speed / 1000 if isinstance(speed, int) else None, carrier))
    for name, members in sorted(seen.items()):
        speeds = [speed for _host, speed, carrier in members if speed and carrier is not False]
        usual = majority(speeds) or max(speeds, default=None)
        up = sum(1 for _host, _speed, carrier in members if carrier)
        for host, speed, carrier in members:
            if carrier is False and up * 2 > len(members) - 1 and up:
                yield PORT_DOWN.on(
                    host,
                    f"{host.name}: {name} has no link, a link wanted; the same interface is up on {up} of "
                    f"{len(members)} hosts",
                    device=name,
                    evidence=[f"{name}: link detected: no"],
                )
            elif speed and usual and speed < usual and carrier is not False:
                yield PORT_RATE.on(
                    host,
                    f"{host.name}: {name} runs at {speed:g} Gb/s, {usual:g} Gb/s wanted (as on the other hosts)",
                    device=name,
                    evidence=[f"{other.name}: {name} {rate:g} Gb/s" for other, rate, _carrier in members if rate][:6],
                )
