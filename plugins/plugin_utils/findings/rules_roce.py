# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rails as IP interfaces: subnets and bonds."""

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


def _ethernet_rails(host: HostView) -> list[tuple[str, str]]:
    """(interface, RDMA device) of the Ethernet rails; a recording that lists no RDMA device: all physical "
    "interfaces."""
    ports = host.rail_ports or [port for port in host.ports if port.role in (None, "compute")]
    if ports or "rdma_devices" in host.facts or not host.recorded_only:
        return [(p.netdev, p.device) for p in ports if p.netdev and p.data.get("link_layer") != "InfiniBand"]
    physical = [n for n, data in host.section("netdevs").items() if mapping(data).get("kind") == "physical"]
    return [(str(netdev), "no RDMA device recorded") for netdev in physical]


def _subnets(host: HostView, netdev: str) -> list[tuple[str, str]]:
    """(network, address) of an interface, from its addresses or, where they were not recorded, from its routes."""
    found = []
    for address in host.get("netdevs", netdev, "addresses") or ():
        try:
            interface = ipaddress.ip_interface(address)
        except ValueError:
            continue
        if interface.version == 4 and interface.network.prefixlen < 31:
            found.append((str(interface.network), str(interface.ip)))
    if not found:
        for route in dicts(host.get("routes")):
            dst = str(route.get("dst"))
            if (
                route.get("dev") == netdev
                and route.get("src")
                and not route.get("via")
                and "/" in dst
                and ":" not in dst
            ):
                found.append((dst, str(route["src"])))
    return list(dict.fromkeys(found))


@host_rule(SAME_SUBNET)
def rails_in_one_subnet(host: HostView) -> t.Iterator[Finding]:
    groups: dict[str, list[tuple[str, str, str]]] = collections.defaultdict(list)
    for netdev, device in _ethernet_rails(host):
        for network, address in _subnets(host, netdev):
            groups[network].append((netdev, device, address))
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
                f"{host.name}: {', '.join(netdevs)} are all in the same subnet {network} and lack "
                f"{', '.join(lacking)}: any of them answers ARP for the others (ARP flux); a subnet for each rail, or "
                "arp_ignore, arp_announce and a policy routing rule (ip rule) for each rail wanted",
                device=", ".join(netdevs),
                evidence=[
                    *(f"{netdev} ({device}) {ip} in {network}" for netdev, device, ip in members),
                    *_seen(host, netdevs),
                ],
            )


def _seen(host: HostView, netdevs: list[str]) -> list[str]:
    keys = [
        f"net.ipv4.conf.{scope}.{key}"
        for scope in ("all", *netdevs[:2])
        for key in ("arp_ignore", "arp_announce", "rp_filter")
    ]
    return [f"{key} = {value}" for key in keys if (value := host.get("sysctl", key)) is not None]


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
        lacking.append("a rule from its address (ip rule)")
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
