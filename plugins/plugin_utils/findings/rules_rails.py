# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Drift of what the rdma layer sets: MTU and PFC of the rails.

A value that nobody has set yet is no drift. Three things tell drift from a fresh host: what the collection itself
made persistent on the host, what the other hosts have, and whether the layer was ever configured here.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    Port,
    RackView,
    majority,
    mapping,
)

MTU_ODD = define(
    "roce",
    "RF-ROCE-MTU",
    title="MTU of a rail differs on one node",
    severity="fail",
    phase="preflight",
    means="One end of the rail has another MTU than the others. Small messages pass, large ones are dropped without an "
    "error: jobs hang, or RDMA falls to a smaller path MTU.",
    looks_at="mtu of each rail's interface: against what the collection made persistent on the host, else against the "
    "other hosts. 1500 on a host that was never configured is no finding.",
    cause="The value was changed by hand, the interface was recreated, or a network manager's profile overrides it.",
    remedy="Run site.yml --tags rdma, or ip link set NETDEV mtu VALUE on the drained node; look for a second profile "
    "of the interface when it comes back.",
    check="ping -M do -s 8972 PEER over the rail (for 9000); ibv_devinfo: active_mtu 4096.",
    source="https://github.com/NVIDIA/nccl/issues/1524; kernel iboe_get_mtu (netdev MTU less 96, rounded down)",
    mended_by="rdma",
)

ACTIVE_MTU = define(
    "rdma",
    "RF-PORT-MTU",
    title="Path MTU of a port differs on one node",
    severity="warn",
    phase="preflight",
    means="active_mtu of the port is smaller than on the other hosts: lower bandwidth on this rail, and connections "
    "with a fixed path MTU fail.",
    looks_at="Active MTU of the rails' ports over the rack (InfiniBand; RoCE where the interface's MTU is not known).",
    cause="The partition or the switch port limits the MTU (InfiniBand), the interface has a small MTU (RoCE: 4192 "
    "gives 4096), or the neighbour is an older device.",
    remedy="Check the partition's mtu in the subnet manager's partitions.conf and the neighbour's port (smpquery "
    "portinfo), then bounce the port.",
    check="ibv_devinfo -d DEVICE: active_mtu 4096 (5) on all rails.",
    source="opensm partition configuration",
)

PFC_OFF = define(
    "roce",
    "RF-ROCE-PFC",
    title="PFC of a rail differs on one node",
    severity="fail",
    phase="preflight",
    means="Priority flow control is not enabled for the RoCE priority on a rail of this node while the rack runs "
    "lossless. Under load its traffic is dropped and retransmitted; idle tests are fine.",
    looks_at="PFC bits per priority of each rail (mlnx_qos or dcb) against the plan and the other hosts; a rack on "
    "which no node has it yet is no finding.",
    cause="The setting is lost at a driver reload or reboot without the boot unit, or was switched off by hand or by "
    "lldpad.",
    remedy="Run site.yml --tags rdma (needs gpu_fabric_allow_disruption: linkflap), or mlnx_qos -i NETDEV --pfc MASK "
    "on the drained node; stop lldpad when it changes the value back.",
    check="mlnx_qos -i NETDEV (or dcb pfc show dev NETDEV): the RoCE priority is enabled.",
    source="https://github.com/NVIDIA/nccl/issues/378; mlnx_qos, dcb-pfc",
    mended_by="rdma",
)

_UNTOUCHED_MTU = 1500
_PERSISTED_MTU = re.compile(r"(?:\bMTUBytes\s*=|\bmtu\s*[:=]?)\s*(\d{3,5})\b", re.IGNORECASE)


def persisted_mtu(host: HostView, netdev: str) -> tuple[int, str] | None:
    """The MTU that the collection made persistent for an interface, and in which file."""
    for path, text in sorted(host.files.items()):
        name = path.rpartition("/")[2]
        wanted = f"gpu-fabric-{netdev}"
        if not (name.endswith(wanted) or name.rpartition(".")[0].endswith(wanted)):
            continue
        match = _PERSISTED_MTU.search(text)
        if match:
            return int(match.group(1)), path
    return None


class _Rail(t.NamedTuple):
    host: HostView
    device: str
    netdev: str
    value: t.Any


def _grouped(rails: list[_Rail]) -> dict[tuple[str, t.Any], list[_Rail]]:
    """Equal values of one host are one finding."""
    groups: dict[tuple[str, t.Any], list[_Rail]] = collections.defaultdict(list)
    for rail in rails:
        groups[(rail.host.name, rail.value)].append(rail)
    return groups


def _names(rails: list[_Rail]) -> tuple[str, str]:
    return ", ".join(rail.netdev for rail in rails), ", ".join(rail.device for rail in rails)


@rack_rule(MTU_ODD)
def odd_mtu(rack: RackView) -> t.Iterator[Finding]:
    rails = []
    planned: dict[str, t.Any] = {}
    for host in rack.hosts:
        for port in host.rail_ports:
            mtu = host.get("netdevs", port.netdev, "mtu") if port.netdev else None
            if isinstance(mtu, int) and port.data.get("link_layer") != "InfiniBand":
                rails.append(_Rail(host, port.device, str(port.netdev), mtu))
                planned[host.name] = mapping(port.rail).get("mtu")
    recorded = any(host.recorded_only for host in rack.hosts)
    usual = majority(rail.value for rail in rails)
    if usual is None and recorded:
        usual = max((rail.value for rail in rails), default=None)
    odd: dict[tuple[t.Any, str], list[_Rail]] = collections.defaultdict(list)
    for rail in rails:
        persisted = persisted_mtu(rail.host, rail.netdev)
        if persisted:
            if persisted[0] != rail.value:
                odd[(persisted[0], f"as {persisted[1].rpartition('/')[2]} of the host says")].append(rail)
            continue
        plan = planned[rail.host.name]
        wanted = usual if usual is not None else plan
        # A recording shows a rack in use: there, what the others have counts against a default as well.
        fresh = rail.value == _UNTOUCHED_MTU and not rail.host.configured("rdma") and not (recorded and usual)
        if wanted is None or rail.value in (wanted, plan) or fresh:
            continue
        same = sum(1 for other in rails if other.value == wanted) if usual is not None else 0
        odd[(wanted, f"as {same} of {len(rails)} rails of the rack" if same else "the plan's value")].append(rail)
    for (wanted, why), members in odd.items():
        for (host_name, mtu), group in _grouped(members).items():
            netdevs, devices = _names(group)
            plan = planned[host_name]
            aside = f"; the plan sets {plan}" if plan not in (None, wanted) else ""
            yield MTU_ODD.on(
                host_name,
                f"{host_name}: {netdevs} ({devices}) has MTU {mtu}, {wanted} wanted ({why}{aside})",
                device=netdevs,
                evidence=[f"/sys/class/net/{rail.netdev}/mtu: {mtu}" for rail in group],
                remedy=f"Run site.yml --tags rdma, or ip link set {group[0].netdev} mtu {wanted} on the drained node; "
                "when the value comes back, look for a second profile of the interface.",
            )


_LOCAL = re.compile(r"^(lo|docker|veth|br-|virbr|cni|cilium|lxc|flannel|tunl|kube)")


@rack_rule(MTU_ODD)
def odd_mtu_recorded(rack: RackView) -> t.Iterator[Finding]:
    """A recording without PCIe and RDMA facts has no rails: the same interface is compared over the hosts."""
    if any(host.rail_ports or not host.recorded_only for host in rack.hosts):
        return
    by_name: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    for host in rack.hosts:
        for netdev, data in host.section("netdevs").items():
            mtu, kind = mapping(data).get("mtu"), mapping(data).get("kind")
            if isinstance(mtu, int) and not _LOCAL.match(netdev) and kind not in ("veth", "bridge"):
                by_name[netdev].append((host.name, mtu))
    for netdev, seen in sorted(by_name.items()):
        usual = majority(mtu for _host, mtu in seen) or max(mtu for _host, mtu in seen)
        for host_name, mtu in seen:
            if mtu != usual:
                yield MTU_ODD.on(
                    host_name,
                    f"{host_name}: {netdev} has MTU {mtu}, {usual} wanted (as {netdev} of the other hosts)",
                    device=netdev,
                    evidence=[f"{name}: {netdev} mtu {value}" for name, value in seen[:6]],
                )


@rack_rule(ACTIVE_MTU)
def odd_active_mtu(rack: RackView) -> t.Iterator[Finding]:
    rails = [
        _Rail(host, port.device, port.netdev or "", port.data["active_mtu_bytes"])
        for host in rack.hosts
        for port in host.rail_ports or (host.ports if host.recorded_only else ())
        if port.state in (None, "active")
        # On Ethernet the path MTU follows from the interface's, which is judged where it is known.
        and (port.data.get("link_layer") == "InfiniBand" or host.get("netdevs", port.netdev, "mtu") is None)
        and isinstance(port.data.get("active_mtu_bytes"), int)
    ]
    usual = majority(rail.value for rail in rails) or max((rail.value for rail in rails), default=None)
    if usual is None:
        return
    for (host_name, mtu), group in _grouped([rail for rail in rails if rail.value < usual]).items():
        devices = _names(group)[1]
        # On Ethernet another path MTU means another MTU of the interface: large frames are dropped on the way.
        ethernet = any(port.data.get("link_layer") == "Ethernet" for port in _ports(group))
        yield ACTIVE_MTU.on(
            host_name,
            f"{host_name}: {devices} has active MTU {mtu}, {usual} wanted (as the other rails of the rack)",
            device=devices,
            evidence=[
                f"{rail.device} active_mtu: {rail.value}" for rail in rails if rail in group or rail.value == usual
            ][:6],
            severity="fail" if ethernet else None,
        )


def _ports(rails: list[_Rail]) -> list[Port]:
    return [port for rail in rails for port in rail.host.ports if port.device == rail.device]


def _bits(value: t.Any) -> tuple[int, ...] | None:
    """The enabled priorities of a PFC row."""
    if not isinstance(value, (list, tuple)) or len(value) != 8:
        return None
    return tuple(number for number, enabled in enumerate(value) if enabled)


@rack_rule(PFC_OFF)
def odd_pfc(rack: RackView) -> t.Iterator[Finding]:
    rails = []
    for host in rack.hosts:
        for port in host.rail_ports:
            bits = _bits(host.get("qos", port.netdev, "pfc")) if port.netdev else None
            if bits is not None:
                rails.append(_Rail(host, port.device, str(port.netdev), bits))
    here: dict[str, list[tuple[int, ...]]] = collections.defaultdict(list)
    for rail in rails:
        here[rail.host.name].append(rail.value)
    usual = majority(rail.value for rail in rails)
    odd = []
    for rail in rails:
        planned = _bits(mapping(mapping(rail.host.plan.get("qos")).get(rail.netdev)).get("pfc"))
        # What must be on: the plan's priorities where others (or this host's other rails) have them on already.
        proven = {bit for other in (usual, majority(here[rail.host.name])) for bit in other or ()}
        if rail.host.configured("rdma") and planned:
            proven |= set(planned)
        wanted = tuple(sorted(set(planned) & proven if planned is not None else proven))
        known_here = rail.host.configured("rdma") or any(here[rail.host.name]) or rail.host.recorded_only
        if known_here and not set(wanted) <= set(rail.value):
            odd.append((rail, wanted))
    for wanted in sorted({item[1] for item in odd}):
        members = [rail for rail, bits in odd if bits == wanted]
        for (host_name, bits), group in _grouped(members).items():
            netdevs, devices = _names(group)
            mask = ",".join("1" if number in wanted else "0" for number in range(8))
            yield PFC_OFF.on(
                host_name,
                f"{host_name}: {netdevs} ({devices}) has PFC {_say(bits)}, {_say(wanted)} wanted",
                device=netdevs,
                evidence=[
                    f"{rail.netdev} pfc: {','.join('1' if n in bits else '0' for n in range(8))}" for rail in group
                ],
                remedy=f"Run site.yml --tags rdma (gpu_fabric_allow_disruption: linkflap), or mlnx_qos -i "
                f"{group[0].netdev} --pfc {mask} on the drained node.",
            )


def _say(bits: tuple[int, ...]) -> str:
    return f"on for priority {', '.join(str(bit) for bit in bits)}" if bits else "off for all priorities"
