# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MTU of the rails: drift of what the rdma layer set, and ends that differ.

A value that nobody has set yet is no drift. Three things tell drift from a fresh host: what the collection itself
made persistent on the host, what the other hosts have, and whether the layer was ever configured here.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    Port,
    RackView,
    majority,
    mapping,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.rail_values import (
    RailValue,
    grouped,
    names,
    shown,
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

STACKED_MTU = define(
    "links",
    "RF-LINK-MTU-STACKED",
    title="An interface and the one it stands on have different MTUs",
    severity="fail",
    phase="verify",
    means="A VLAN or a bond sends larger frames than the interface below it carries: small messages pass and large "
    "ones are dropped without an error.",
    looks_at="MTU of VLANs against their parent, of bonds against their members, of bridges against what they carry.",
    cause="The MTU was raised on one of the two; a bridge was made with the default of 1500.",
    remedy="Set the same MTU on the interface named and on the one below it, in the file of the network manager that "
    "makes them, and bring it up again on the drained node.",
    check="ping -M do -s 8972 PEER through the interface (for 9000).",
    source="https://github.com/NVIDIA/nccl/issues/1524; Linux VLAN, bonding and bridge documentation",
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


def _known(host: HostView, port: Port) -> int | None:
    """MTU of a rail's Ethernet interface."""
    mtu = host.get("netdevs", port.netdev, "mtu") if port.netdev else None
    return mtu if isinstance(mtu, int) and port.data.get("link_layer") != "InfiniBand" else None


def _path_mtus(rack: RackView) -> list[str]:
    """What the adapters make of the interfaces' MTUs, where that differs over the rack."""
    found = [
        (host.name, port.device, port.data["active_mtu_bytes"])
        for host in rack.hosts
        for port in host.ports
        if isinstance(port.data.get("active_mtu_bytes"), int)
    ]
    if len({mtu for _host, _device, mtu in found}) < 2:
        return []
    return [f"{name}: {device} active_mtu {mtu}" for name, device, mtu in found[:6]]


@rack_rule(MTU_ODD)
def odd_mtu(rack: RackView) -> t.Iterator[Finding]:
    rails = []
    planned: dict[str, t.Any] = {}
    for host in rack.hosts:
        for port in host.rail_ports:
            mtu = _known(host, port)
            if mtu is not None:
                rails.append(RailValue(host, port.device, str(port.netdev), mtu))
                planned[host.name] = mapping(port.rail).get("mtu")
    recorded = any(host.recorded_only for host in rack.hosts)
    usual = majority(rail.value for rail in rails)
    if usual is None and recorded:
        usual = max((rail.value for rail in rails), default=None)
    odd: dict[tuple[t.Any, str], list[RailValue]] = collections.defaultdict(list)
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
        for (host_name, mtu), group in grouped(members).items():
            netdevs = names(group)[0]
            plan = planned[host_name]
            aside = f"; the plan sets {plan}" if plan not in (None, wanted) else ""
            yield MTU_ODD.on(
                host_name,
                f"{host_name}: {shown(group)} has MTU {mtu}, {wanted} wanted ({why}{aside})",
                device=netdevs,
                evidence=[*(f"/sys/class/net/{rail.netdev}/mtu: {mtu}" for rail in group), *_path_mtus(rack)],
                remedy=f"Run site.yml --tags rdma, or ip link set {group[0].netdev} mtu {wanted} on the drained node; "
                "when the value comes back, look for a second profile of the interface.",
            )


_LOCAL = re.compile(r"^(lo|docker|veth|br-|virbr|cni|cilium|lxc|flannel|tunl|kube|cali|vxlan|podman|tailscale|wg)")
_JUMBO = 4096


@rack_rule(MTU_ODD)
def odd_mtu_recorded(rack: RackView) -> t.Iterator[Finding]:
    """A recording that does not know which interfaces are rails: the same interface is compared over the hosts."""
    if any(not host.recorded_only or any(_known(host, p) for p in host.rail_ports) for host in rack.hosts):
        return
    by_name: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    by_host: dict[str, dict[str, int]] = collections.defaultdict(dict)
    for host in rack.hosts:
        for netdev, data in host.section("netdevs").items():
            mtu, kind = mapping(data).get("mtu"), mapping(data).get("kind")
            if isinstance(mtu, int) and not _LOCAL.match(netdev) and kind not in ("veth", "bridge", "ipoib"):
                by_name[netdev].append((host.name, mtu))
                by_host[host.name][netdev] = mtu
    path, odd = _path_mtus(rack), set()
    for netdev, seen in sorted(by_name.items()):
        usual = majority(mtu for _host, mtu in seen) or max(mtu for _host, mtu in seen)
        for host_name, mtu in seen:
            if mtu != usual:
                odd.add(host_name)
                yield MTU_ODD.on(
                    host_name,
                    f"{host_name}: {netdev} has MTU {mtu}, {usual} wanted (as {netdev} of the other hosts)",
                    device=netdev,
                    evidence=[*(f"{name}: {netdev} mtu {value}" for name, value in seen[:6]), *path],
                    remedy=f"Run site.yml --tags rdma, or ip link set {netdev} mtu {usual} on the drained node; "
                    "both ends and the switch ports between need it.",
                )
    largest = {name: max(mtus.values()) for name, mtus in by_host.items()}
    usual = majority(largest.values()) or max(largest.values(), default=0)
    for host_name, mtu in largest.items():
        # The rail has another name here: nothing on this host carries what the others send.
        if mtu < _JUMBO <= usual and host_name not in odd:
            listed = ", ".join(f"{netdev} {value}" for netdev, value in sorted(by_host[host_name].items())[:8])
            yield MTU_ODD.on(
                host_name,
                f"{host_name}: no interface has an MTU above {mtu} ({listed}), {usual} wanted (as on the other hosts)",
                device=", ".join(sorted(by_host[host_name])[:8]),
                evidence=[*(f"{name}: largest MTU {value}" for name, value in sorted(largest.items())[:6]), *path],
            )


@rack_rule(ACTIVE_MTU)
def odd_active_mtu(rack: RackView) -> t.Iterator[Finding]:
    rails = [
        RailValue(host, port.device, port.netdev or "", port.data["active_mtu_bytes"])
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
    for (host_name, mtu), group in grouped([rail for rail in rails if rail.value < usual]).items():
        devices = names(group)[1]
        # On Ethernet another path MTU means another MTU of the interface: large frames are dropped on the way.
        ethernet = any(port.data.get("link_layer") == "Ethernet" for port in _ports(group))
        yield ACTIVE_MTU.on(
            host_name,
            f"{host_name}: {devices} has active MTU {mtu}, {usual} wanted (as the other rails of the rack)",
            device=devices,
            evidence=[
                f"{rail.host.name}: {rail.device} active_mtu: {rail.value}"
                for rail in rails
                if rail in group or rail.value == usual
            ][:6],
            severity="fail" if ethernet else None,
        )


def _ports(rails: list[RailValue]) -> list[Port]:
    return [port for rail in rails for port in rail.host.ports if port.device == rail.device]


@host_rule(STACKED_MTU)
def stacked_interfaces(host: HostView) -> t.Iterator[Finding]:
    netdevs = {str(name): mapping(data) for name, data in host.section("netdevs").items()}
    for name, data in sorted(netdevs.items()):
        mtu, kind = data.get("mtu"), data.get("kind")
        if not isinstance(mtu, int):
            continue
        parent = str(mapping(data.get("vlan")).get("link") or (name.rpartition(".")[0] if kind == "vlan" else ""))
        below = netdevs.get(parent, {}).get("mtu")
        if isinstance(below, int) and below < mtu:
            yield _stacked(host, name, mtu, f"its parent {parent}", below)
        for member, other in sorted(netdevs.items()):
            size = other.get("mtu")
            if other.get("master") != name or not isinstance(size, int) or kind not in ("bridge", "bond"):
                continue
            if kind == "bond" and size < mtu:
                yield _stacked(host, name, mtu, f"its member {member}", size)
            elif kind == "bridge" and mtu < size and size >= _JUMBO and not re.match(r"veth|cali|lxc|tap|vnet", member):
                yield STACKED_MTU.on(
                    host,
                    f"{host.name}: bridge {name} has MTU {mtu}, {size} wanted: its member {member} has {size}, and "
                    "what is addressed through the bridge is cut to the smaller",
                    device=name,
                    evidence=[f"{name} mtu {mtu}", f"{member} mtu {size} master {name}"],
                    severity="warn",
                )


def _stacked(host: HostView, name: str, mtu: int, what: str, below: int) -> Finding:
    return STACKED_MTU.on(
        host,
        f"{host.name}: {name} has MTU {mtu}, {what} has {below}: frames above {below} bytes are dropped, {mtu} on both "
        "wanted",
        device=name,
        evidence=[f"{name} mtu {mtu}", f"{what.rpartition(' ')[2]} mtu {below}"],
    )
