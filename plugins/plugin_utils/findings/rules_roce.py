# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RoCE: traffic class, trust and PFC that must agree; GIDs; bonds; several rails in one subnet."""

from __future__ import annotations

import collections
import ipaddress
import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
    mapping,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import parse
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_env import gid_kind

TRAFFIC_CLASS = define(
    "roce",
    "RF-ROCE-TRAFFIC-CLASS",
    title="RoCE traffic leaves in a class without flow control",
    severity="fail",
    phase="verify",
    means="NCCL marks its packets with NCCL_IB_TC (0 when unset); the NIC maps their DSCP to a priority for which PFC "
    "is off. Bandwidth collapses under load with retransmissions, idle tests are fine.",
    looks_at="NCCL_IB_TC of /etc/nccl.conf, the NIC's trust mode, DSCP map and PFC bits. The traffic class is DSCP << "
    "2, plus the ECN bits: 104 and 106 are both DSCP 26.",
    cause="QoS was configured on the NIC and the class was not given to NCCL, or the values come from two places.",
    remedy="Set gpu_fabric_roce_dscp once and run site.yml --tags rdma,nccl: trust, map, PFC and NCCL_IB_TC follow "
    "from it.",
    check="The counters rx_prioN and tx_prioN of the lossless priority move under ib_write_bw.",
    source="https://github.com/NVIDIA/nccl/issues/378",
    mended_by="nccl",
)

TRUST = define(
    "roce",
    "RF-ROCE-TRUST",
    title="The NIC trusts PCP while the class is given as DSCP",
    severity="fail",
    phase="verify",
    means="With trust pcp an untagged RoCE packet goes to priority 0 whatever its DSCP; PFC of the RoCE priority "
    "never acts.",
    looks_at="Trust state of the rails that have PFC on, and NCCL_IB_TC.",
    cause="The trust mode was lost at a driver reload or never set.",
    remedy="Run site.yml --tags rdma, or mlnx_qos -i NETDEV --trust dscp on the drained node.",
    check="mlnx_qos -i NETDEV: Priority trust state: dscp.",
    source="mlnx_qos documentation; https://github.com/NVIDIA/nccl/issues/378",
    mended_by="rdma",
)

PAUSE = define(
    "roce",
    "RF-ROCE-PAUSE",
    title="Global pause is on beside PFC",
    severity="warn",
    phase="verify",
    means="Link-level pause stops every priority and takes PFC's place; the two exclude each other.",
    looks_at="Pause parameters and PFC bits of the rails.",
    cause="The driver's default was left on.",
    remedy="ethtool -A NETDEV rx off tx off (site.yml --tags rdma does it).",
    check="ethtool -a NETDEV: RX off, TX off.",
    source="NVIDIA nic-configuration-operator; mlx5 driver",
    mended_by="rdma",
)

GID_INDEX = define(
    "roce",
    "RF-ROCE-GID-INDEX",
    title="A forced GID index is not a routable RoCE v2 address",
    severity="fail",
    phase="preflight",
    means="NCCL_IB_GID_INDEX in /etc/nccl.conf selects a link-local, RoCE v1 or empty entry on this device: queue "
    "pairs time out or are unreachable.",
    looks_at="The device's GID table at that index.",
    cause="Index 3 was copied; it is right only where one link-local and one IPv4 address exist.",
    remedy="Remove the variable: NCCL 2.21 and later choose by themselves (site.yml --tags nccl writes the file anew).",
    check="show_gids: the index is v2 with the rail's address on every device.",
    source="https://github.com/NVIDIA/nccl/issues/769",
    mended_by="nccl",
)

NO_GID = define(
    "roce",
    "RF-ROCE-NO-GID",
    title="A rail's address has no RoCE v2 GID",
    severity="fail",
    phase="verify",
    means="The interface has its address and the adapter's GID table has no entry for it, so NCCL cannot use the rail "
    "although port and address are up.",
    looks_at="GID tables of active RoCE rails whose interface has a routable address.",
    cause="The address was added while the RDMA device was being set up, the interface is in another network "
    "namespace, or RoCE v2 is off on the card.",
    remedy="Take the address away and add it again (ip addr del, ip addr add) on the drained node; check the RoCE mode "
    "(cma_roce_mode) and network namespaces (rdma system).",
    check="show_gids lists a v2 entry with the rail's IPv4 address.",
    source="kernel GID cache, RoCE v2",
)

SAME_SUBNET = define(
    "roce",
    "RF-ROCE-ARP-FLUX",
    title="Several rails in one subnet without ARP and source routing rules",
    severity="fail",
    phase="preflight",
    means="Any interface answers ARP for every rail and all traffic leaves by the first: queue pairs time out or one "
    "NIC carries everything.",
    looks_at="Addresses of the rails, arp_ignore and arp_announce of their interfaces, policy rules from their "
    "addresses.",
    cause="All rails were put into one subnet and the kernel's defaults were kept.",
    remedy="Give each rail its own subnet (gpu_fabric_rail_mode: subnet_per_rail), or set gpu_fabric_rail_mode: flat, "
    "which writes arp_ignore, arp_announce, rp_filter and one routing table per rail.",
    check="ip route get PEER from RAIL_ADDRESS names the rail; arping from a peer is answered by one MAC.",
    source="https://github.com/NVIDIA/nccl/issues/1109; libfabric: verbs provider on multi-NIC systems",
    mended_by="rdma",
)

LAG = define(
    "roce",
    "RF-ROCE-LAG",
    title="RoCE over a bond needs several queue pairs",
    severity="info",
    phase="configure",
    means="A queue pair of a bond device stays on one member link. With NCCL's default of one queue pair for each "
    "connection half of the bandwidth is used.",
    looks_at="RDMA devices of bonds (mlx5_bond_N), their members, NCCL_IB_QPS_PER_CONNECTION in /etc/nccl.conf, a "
    "benchmark where one was recorded.",
    cause="LAG maps by queue pair.",
    remedy="Keep NCCL_IB_QPS_PER_CONNECTION at 2 to 4 (the plan sets it on such hosts); measure with ib_write_bw -q 8 "
    "as well as with NCCL.",
    check="tx_bytes of both members move alike under all_reduce_perf.",
    source="https://github.com/NVIDIA/nccl/issues/1015",
)

BOND_DEGRADED = define(
    "roce",
    "RF-BOND-DEGRADED",
    title="A bond runs with fewer members than it has",
    severity="warn",
    phase="preflight",
    means="One member link is down: the bond has half of its bandwidth and no redundancy.",
    looks_at="Members and active members of bonds, MII status.",
    cause="Cable, module or switch port of the member.",
    remedy="Check the member named in the message (ethtool MEMBER), the switch port and its LACP state.",
    check="cat /proc/net/bonding/BOND: MII Status up for every member.",
    source="Linux bonding documentation",
)


def pfc_priorities(qos: dict[str, t.Any]) -> list[int]:
    bits = qos.get("pfc")
    return [number for number, on in enumerate(bits) if on] if isinstance(bits, list) else []


def dscp_map(qos: dict[str, t.Any]) -> dict[int, int]:
    found = {}
    for dscp, priority in mapping(qos.get("dscp_to_priority")).items():
        try:
            found[int(dscp)] = int(priority)
        except (TypeError, ValueError):
            continue
    return found


@host_rule(TRAFFIC_CLASS, TRUST)
def traffic_class(host: HostView) -> t.Iterator[Finding]:
    conf = host.files.get("/etc/nccl.conf")
    rails = {port.netdev for port in host.rail_ports} or set(host.section("qos"))
    if conf is None:
        return  # the nccl layer was not configured: nothing to agree with yet
    set_to = parse(conf).get("NCCL_IB_TC")
    value = int(set_to) if set_to and set_to.isdigit() else 0
    shown = f"NCCL_IB_TC is {set_to}" if set_to is not None else "NCCL_IB_TC is not set"
    wrong: dict[tuple[int, int, int, int], list[str]] = collections.defaultdict(list)
    untrusted: dict[int, list[str]] = collections.defaultdict(list)
    for netdev, data in sorted(host.section("qos").items()):
        qos = mapping(data)
        lossless = pfc_priorities(qos)
        if netdev not in rails or not lossless:
            continue
        if qos.get("trust") == "pcp":
            untrusted[lossless[0]].append(str(netdev))
            continue
        dscp = value >> 2
        table = dscp_map(qos)
        priority = table.get(dscp, dscp >> 3)
        if priority in lossless:
            continue
        planned = mapping(host.rack_plan.get("roce")).get("dscp", 26)
        fits = [d for d in sorted(table) if table[d] in lossless]
        wanted = planned if table.get(planned, planned >> 3) in lossless else (fits[0] if fits else lossless[0] * 8)
        wrong[(dscp, priority, lossless[0], wanted)].append(str(netdev))
    for (dscp, priority, lossless_priority, wanted), netdevs in wrong.items():
        yield TRAFFIC_CLASS.on(
            host,
            f"{host.name}: {shown}: packets leave with DSCP {dscp}, which {_nics(netdevs)} maps to priority "
            f"{priority} without PFC; PFC is on for priority {lossless_priority}: NCCL_IB_TC {wanted << 2 | 2} (DSCP "
            f"{wanted}) wanted",
            device=_nics(netdevs),
            evidence=[
                f"/etc/nccl.conf: NCCL_IB_TC={set_to}" if set_to is not None else "/etc/nccl.conf has no NCCL_IB_TC",
                f"PFC enabled: priority {lossless_priority}",
                f"DSCP {dscp} -> priority {priority}",
            ],
        )
    for priority, netdevs in untrusted.items():
        yield TRUST.on(
            host,
            f"{host.name}: {_nics(netdevs)} trusts pcp, dscp wanted: PFC is on for priority {priority}, and "
            "untagged RoCE goes to priority 0",
            device=", ".join(netdevs),
            evidence=["Priority trust state: pcp", f"PFC enabled: priority {priority}"],
        )


def _nics(netdevs: list[str]) -> str:
    """A recording may not say which interface the settings are of."""
    return ", ".join(netdevs) if netdevs != ["*"] else "the NIC"


@host_rule(PAUSE)
def pause_beside_pfc(host: HostView) -> t.Iterator[Finding]:
    for port in host.rail_ports:
        pause = mapping(host.get("netdevs", port.netdev, "pause"))
        on = [way for way in ("rx", "tx") if pause.get(way) is True]
        lossless = pfc_priorities(mapping(host.get("qos", port.netdev)))
        if on and lossless:
            yield PAUSE.on(
                host,
                f"{host.name}: {port.netdev} ({port.device}) has global pause {' and '.join(on)} on beside PFC for "
                f"priority {lossless[0]}, off wanted",
                device=port.netdev,
                evidence=[f"{port.netdev} pause: {', '.join(f'{way} {pause.get(way)}' for way in ('rx', 'tx'))}"],
            )


def _rows(port: t.Any) -> dict[int, dict[str, t.Any]]:
    return {row["index"]: row for row in dicts(port.data.get("gids")) if isinstance(row.get("index"), int)}


def _routable(row: dict[str, t.Any]) -> bool:
    return "v2" in str(row.get("type")) and gid_kind(str(row.get("gid"))) in ("ipv4", "ipv6")


@host_rule(GID_INDEX)
def forced_index(host: HostView) -> t.Iterator[Finding]:
    forced = parse(host.files.get("/etc/nccl.conf", "")).get("NCCL_IB_GID_INDEX", "")
    if not forced.isdigit():
        return
    index = int(forced)
    for port in host.rail_ports or host.ports:
        rows = _rows(port)
        if port.data.get("link_layer") == "InfiniBand" or not rows or (index in rows and _routable(rows[index])):
            continue
        row = rows.get(index)
        kind = {"link-local": "link-local (fe80)"}.get(gid_kind(str(row.get("gid"))), "") if row else ""
        seen = f"{row.get('gid')} {row.get('type')} {kind}".strip() if row else "empty"
        better = next((number for number in sorted(rows) if _routable(rows[number])), None)
        hint = f"; index {better} ({rows[better].get('gid')}) is the RoCE v2 address" if better is not None else ""
        yield GID_INDEX.on(
            host,
            f"{host.name}: NCCL_IB_GID_INDEX {index} on {port.device} port {port.number}: index {index} is {seen}; a "
            f"routable RoCE v2 GID wanted{hint}",
            device=port.device,
            evidence=[f"/etc/nccl.conf: NCCL_IB_GID_INDEX {index}", f"{port.device} {port.number} {index} {seen}"],
        )


@host_rule(NO_GID)
def address_without_gid(host: HostView) -> t.Iterator[Finding]:
    lacking: list[tuple[str, str, str]] = []
    for port in host.rail_ports:
        addresses = host.get("netdevs", port.netdev, "addresses") if port.netdev else None
        rows = _rows(port)
        if (
            port.data.get("link_layer") == "InfiniBand"
            or not port.active
            or not rows
            or not isinstance(addresses, list)
        ):
            continue
        own = [str(a).partition("/")[0] for a in addresses if not str(a).lower().startswith("fe80")]
        if own and not any(_routable(row) for row in rows.values()):
            lacking.append((port.device, str(port.netdev), own[0]))
    if lacking:
        names = ", ".join(f"{device} ({netdev}, {address})" for device, netdev, address in lacking)
        yield NO_GID.on(
            host,
            f"{host.name}: no RoCE v2 GID for the address of {names}; one GID for each address wanted",
            device=", ".join(device for device, _netdev, _address in lacking),
            evidence=[f"{netdev} has {address}, {device} has no v2 GID of it" for device, netdev, address in lacking],
        )


def _ethernet_rails(host: HostView) -> list[tuple[str, str]]:
    """(interface, RDMA device) of the Ethernet rails; a recording that lists no RDMA device: all physical "
    "interfaces."""
    ports = host.rail_ports or [port for port in host.ports if port.role in (None, "compute")]
    if ports or "rdma_devices" in host.facts or not host.recorded_only:
        return [(p.netdev, p.device) for p in ports if p.netdev and p.data.get("link_layer") != "InfiniBand"]
    physical = [n for n, data in host.section("netdevs").items() if mapping(data).get("kind") == "physical"]
    return [(str(netdev), "no RDMA device recorded") for netdev in physical]


@host_rule(SAME_SUBNET)
def rails_in_one_subnet(host: HostView) -> t.Iterator[Finding]:
    groups: dict[str, list[tuple[str, str, str]]] = collections.defaultdict(list)
    for netdev, device in _ethernet_rails(host):
        for address in host.get("netdevs", netdev, "addresses") or ():
            try:
                interface = ipaddress.ip_interface(address)
            except ValueError:
                continue
            if interface.version == 4 and interface.network.prefixlen < 31:
                groups[str(interface.network)].append((netdev, device, str(interface.ip)))
    rules = [str(row.get("from", "")).partition("/")[0] for row in dicts(host.get("rules"))]
    for network, members in groups.items():
        netdevs = list(dict.fromkeys(member[0] for member in members))
        if len(netdevs) < 2:
            continue
        bad = [_arp(host, netdev, rules, ip) for netdev, _device, ip in members]
        lacking = sorted({reason for reasons in bad for reason in reasons})
        if lacking:
            yield SAME_SUBNET.on(
                host,
                f"{host.name}: {', '.join(netdevs)} are all in {network} and lack {', '.join(lacking)}; a subnet for "
                "each rail, or arp_ignore, arp_announce and a rule for each rail wanted",
                device=", ".join(netdevs),
                evidence=[f"{netdev} ({device}) {ip} in {network}" for netdev, device, ip in members],
            )


def _arp(host: HostView, netdev: str, rules: list[str], ip: str) -> list[str]:
    lacking = []
    for key in ("arp_ignore", "arp_announce"):
        values = [host.get("sysctl", f"net.ipv4.conf.{scope}.{key}") for scope in (netdev, "all")]
        known = [int(value) for value in values if str(value).isdigit()]
        if not known or max(known) < 1:
            lacking.append(key)
    filters = [host.get("sysctl", f"net.ipv4.conf.{scope}.rp_filter") for scope in (netdev, "all")]
    if max((int(value) for value in filters if str(value).isdigit()), default=0) == 1:
        lacking.append("rp_filter 2 (it is 1)")
    if "rules" in host.facts and ip not in rules:
        lacking.append("a rule from its address")
    return lacking


@rack_rule(LAG)
def roce_lag(rack: RackView) -> t.Iterator[Finding]:
    try:
        bench = mapping(json.loads(rack.text("bench.json") or "{}"))
    except ValueError:
        bench = {}
    perftest = next((v for k, v in bench.items() if k.startswith("ib_write_bw") and isinstance(v, (int, float))), None)
    nccl = next((v for k, v in bench.items() if "busbw" in k and isinstance(v, (int, float))), None)
    for host in rack.hosts:
        for port in host.ports:
            netdev = mapping(host.get("netdevs", port.netdev)) if port.netdev else {}
            bond = mapping(netdev.get("bond"))
            if "_bond_" not in port.device and netdev.get("kind") != "bond":
                continue
            listed = bond.get("members")
            members = listed if isinstance(listed, list) else []
            text = host.files.get("/etc/nccl.conf")
            lacking = text is not None and parse(text).get("NCCL_IB_QPS_PER_CONNECTION", "1") == "1"
            slow = bool(perftest and nccl and nccl < 0.75 * perftest)
            measured = f"; ib_write_bw reaches {perftest:g} Gb/s, NCCL {nccl:g}" if slow else ""
            yield LAG.on(
                host,
                f"{host.name}: {port.device} ({port.netdev}) is a bond of {len(members) or 'several'} links: "
                f"NCCL_IB_QPS_PER_CONNECTION 2 to 4 wanted, NCCL's default is 1{measured}",
                device=port.device,
                evidence=[
                    f"{port.netdev}: {bond.get('mode')}, members {', '.join(map(str, members))}" if members else "",
                    f"bench: {json.dumps(bench)}" if bench else "",
                ],
                severity="warn" if lacking or slow else None,
            )


@host_rule(BOND_DEGRADED)
def bond_degraded(host: HostView) -> t.Iterator[Finding]:
    for name, data in sorted(host.section("netdevs").items()):
        bond = mapping(mapping(data).get("bond"))
        members, active = bond.get("members"), bond.get("active")
        if not isinstance(members, list) or not isinstance(active, list) or "active-backup" in str(bond.get("mode")):
            continue
        gone = [member for member in members if member not in active]
        down = [m for m in gone if host.get("netdevs", m, "carrier") is not True]
        if down and len(members) > 1:
            yield BOND_DEGRADED.on(
                host,
                f"{host.name}: {name} runs with {len(members) - len(down)} of {len(members)} members; "
                f"{', '.join(down)} is down, up wanted",
                device=name,
                evidence=[f"members {', '.join(members)}; active {', '.join(active)}"],
            )
