# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quality of service of the rails: trust, DSCP, flow control, congestion control."""

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
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.rail_values import (
    RailValue,
    grouped,
    names,
    settings_of,
    shown,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import parse

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

DSCP_MAP = define(
    "roce",
    "RF-ROCE-DSCP-MAP",
    title="The DSCP of RoCE is mapped to a priority without flow control",
    severity="fail",
    phase="verify",
    means="Packets carry the right DSCP and the NIC queues them in another priority than the one with PFC: they are "
    "dropped under load.",
    looks_at="dscp2prio of each rail for the rack's RoCE DSCP (26 unless gpu_fabric_roce_dscp says otherwise) against "
    "its PFC priorities and the other rails.",
    cause="The map was changed by hand or by lldpad on one node, or only PFC was set.",
    remedy="Run site.yml --tags rdma, or mlnx_qos -i NETDEV --dscp2prio set,DSCP,PRIORITY on the drained node.",
    check="mlnx_qos -i NETDEV lists the DSCP under the priority with PFC.",
    source="https://github.com/NVIDIA/nccl/issues/378; mlnx_qos",
    mended_by="rdma",
)

ECN_OFF = define(
    "roce",
    "RF-ROCE-ECN",
    title="Congestion control is off for the RoCE priority",
    severity="warn",
    phase="verify",
    means="The NIC neither marks nor slows down for congestion in the lossless class: PFC alone has to stop the "
    "senders, and pauses spread through the fabric.",
    looks_at="/sys/class/net/NETDEV/ecn/roce_np and roce_rp of the priorities with PFC, where the driver "
    "(OFED's) shows them.",
    cause="It was switched off for a test, or the driver's defaults were changed.",
    remedy="echo 1 > /sys/class/net/NETDEV/ecn/roce_np/enable/PRIORITY, and the same for roce_rp.",
    check="Both files read 1; np_cnp_sent grows under congestion.",
    source="NVIDIA RoCE and DCQCN guides; Azure and Cumulus RoCE profiles",
    mended_by="rdma",
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
    set_to, origin = _class_asked_for(host)
    rails = {netdev for _device, netdev in settings_of(host, "qos")}
    if not origin and not host.recorded_only:
        return  # the nccl layer was not configured: nothing to agree with yet
    value = int(set_to) if set_to and set_to.isdigit() else 0
    seen = f"NCCL_IB_TC is {set_to}" if set_to is not None else "NCCL_IB_TC is not set"
    wrong: dict[tuple[int, int, int, int], list[str]] = collections.defaultdict(list)
    untrusted: dict[int, list[str]] = collections.defaultdict(list)
    for netdev, data in sorted(host.section("qos").items()):
        qos = mapping(data)
        lossless = pfc_priorities(qos)
        if netdev not in rails or not lossless:
            continue
        if qos.get("trust") == "pcp":
            # With a VLAN on it the port may well go by the VLAN's priority.
            if origin or not _has_vlan(host, str(netdev)):
                untrusted[lossless[0]].append(str(netdev))
            continue
        if not origin:
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
            f"{host.name}: {seen}: packets leave with DSCP {dscp}, which {_nics(netdevs)} maps to priority "
            f"{priority} without PFC; PFC is on for priority {lossless_priority}: NCCL_IB_TC {wanted << 2 | 2} (DSCP "
            f"{wanted}) wanted",
            device=_nics(netdevs),
            evidence=[
                f"{origin}: NCCL_IB_TC={set_to}" if set_to is not None else f"{origin} has no NCCL_IB_TC",
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


def _class_asked_for(host: HostView) -> tuple[str | None, str]:
    """(traffic class of NCCL, where it is set); nowhere: the nccl layer was not configured."""
    conf = host.files.get("/etc/nccl.conf")
    if conf is not None:
        return parse(conf).get("NCCL_IB_TC"), "/etc/nccl.conf"
    asked = mapping(host.want("nccl_env")).get("NCCL_IB_TC")
    return (str(asked), "gpu_fabric_nccl_env") if asked is not None else (None, "")


def _has_vlan(host: HostView, netdev: str) -> bool:
    return any(str(name).startswith(f"{netdev}.") for name in host.section("netdevs"))


def _nics(netdevs: list[str]) -> str:
    """A recording may not say which interface the settings are of."""
    return ", ".join(netdevs) if netdevs != ["*"] else "the NIC"


@host_rule(PAUSE)
def pause_beside_pfc(host: HostView) -> t.Iterator[Finding]:
    for device, netdev in settings_of(host, "qos"):
        pause = mapping(host.get("netdevs", netdev, "pause"))
        on = [way for way in ("rx", "tx") if pause.get(way) is True]
        lossless = pfc_priorities(mapping(host.get("qos", netdev)))
        if on and lossless:
            yield PAUSE.on(
                host,
                f"{host.name}: {shown([RailValue(host, device, netdev, on)])} has global pause {' and '.join(on)} on "
                f"beside PFC for priority {lossless[0]}, off wanted",
                device=netdev,
                evidence=[f"{netdev} pause: {', '.join(f'{way} {pause.get(way)}' for way in ('rx', 'tx'))}"],
            )


def _bits(value: t.Any) -> tuple[int, ...] | None:
    """The enabled priorities of a PFC row."""
    if not isinstance(value, (list, tuple)) or len(value) != 8:
        return None
    return tuple(number for number, enabled in enumerate(value) if enabled)


@rack_rule(PFC_OFF)
def odd_pfc(rack: RackView) -> t.Iterator[Finding]:
    rails = []
    for host in rack.hosts:
        for device, netdev in settings_of(host, "qos"):
            bits = _bits(host.get("qos", netdev, "pfc"))
            if bits is not None:
                rails.append(RailValue(host, device, netdev, bits))
    here: dict[str, list[tuple[int, ...]]] = collections.defaultdict(list)
    for rail in rails:
        here[rail.host.name].append(rail.value)
    usual = majority(rail.value for rail in rails)
    if usual is None and any(rail.host.recorded_only for rail in rails):
        usual = _likelier(rack, [rail.value for rail in rails])
    odd = []
    for rail in rails:
        planned = _bits(mapping(mapping(rail.host.plan.get("qos")).get(rail.netdev)).get("pfc"))
        # What must be on: the plan's priorities where others (or this host's other rails) have them on already.
        own = majority(here[rail.host.name])
        proven = set(usual or own or ()) if planned is None else {*(usual or ()), *(own or ())}
        if rail.host.configured("rdma") and planned:
            proven |= set(planned)
        wanted = tuple(sorted(set(planned) & proven if planned is not None else proven))
        known_here = rail.host.configured("rdma") or any(here[rail.host.name]) or rail.host.recorded_only
        if known_here and not set(wanted) <= set(rail.value):
            odd.append((rail, wanted))
    for wanted in sorted({item[1] for item in odd}):
        members = [rail for rail, bits in odd if bits == wanted]
        for (host_name, bits), group in grouped(members).items():
            netdevs = names(group)[0]
            mask = ",".join("1" if number in wanted else "0" for number in range(8))
            yield PFC_OFF.on(
                host_name,
                f"{host_name}: {shown(group)} has PFC {_say(bits)}, {_say(wanted)} wanted",
                device=netdevs,
                evidence=[
                    f"{rail.netdev} pfc: {','.join('1' if n in bits else '0' for n in range(8))}" for rail in group
                ],
                remedy=f"Run site.yml --tags rdma (gpu_fabric_allow_disruption: linkflap), or mlnx_qos -i "
                f"{group[0].netdev} --pfc {mask} on the drained node.",
            )


def _likelier(rack: RackView, values: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Of values that stand one against one: the one with the priority of RoCE's DSCP, else one that has any."""
    priority = _dscp(rack.plan.get("rack")) >> 3
    return next((v for v in values if priority in v), next((v for v in values if v), None))


def _dscp(rack_plan: t.Any) -> int:
    planned = mapping(mapping(rack_plan).get("roce")).get("dscp")
    return planned if isinstance(planned, int) else 26


@rack_rule(DSCP_MAP)
def odd_dscp_map(rack: RackView) -> t.Iterator[Finding]:
    dscp = _dscp(rack.plan.get("rack"))
    rails = [
        RailValue(host, device, netdev, table[dscp])
        for host in rack.hosts
        for device, netdev in settings_of(host, "qos")
        if dscp in (table := dscp_map(mapping(host.get("qos", netdev))))
        and host.get("qos", netdev, "trust") in (None, "dscp")
    ]
    usual = majority(rail.value for rail in rails)
    for (host_name, priority), group in grouped(rails).items():
        host = group[0].host
        lossless = {bit for rail in group for bit in pfc_priorities(mapping(host.get("qos", rail.netdev)))}
        # A rack that chose another DSCP for RoCE says so in the file that NCCL reads.
        asked = _class_asked_for(host)[0]
        other = asked is not None and asked.isdigit() and int(asked) >> 2 != dscp
        if usual == priority and len(group) < len(rails):
            continue  # the map is the rack's: it is PFC that differs here
        wanted = usual if usual is not None and usual != priority else min(lossless, default=None)
        if wanted is None or wanted == priority or priority in lossless or other or not lossless:
            continue
        yield DSCP_MAP.on(
            host_name,
            f"{host_name}: {shown(group)} maps DSCP {dscp} to priority {priority}, which has no PFC; priority {wanted} "
            "wanted",
            device=names(group)[0],
            evidence=[
                f"DSCP {dscp} -> priority {priority}",
                f"PFC enabled: priority {', '.join(map(str, sorted(lossless)))}",
            ],
            remedy=f"Run site.yml --tags rdma, or mlnx_qos -i {group[0].netdev} --dscp2prio set,{dscp},{wanted} on the "
            "drained node.",
        )


@host_rule(ECN_OFF)
def congestion_control_off(host: HostView) -> t.Iterator[Finding]:
    for device, netdev in settings_of(host, "qos"):
        qos = mapping(host.get("qos", netdev))
        ecn = mapping(qos.get("ecn"))
        for priority in pfc_priorities(qos):
            off = [
                side
                for side in ("roce_np", "roce_rp")
                if isinstance(ecn.get(side), list) and len(ecn[side]) > priority and ecn[side][priority] is False
            ]
            if off:
                yield ECN_OFF.on(
                    host,
                    f"{host.name}: {shown([RailValue(host, device, netdev, off)])} has ECN ({' and '.join(off)}) off "
                    f"for priority {priority}, on wanted beside PFC",
                    device=netdev,
                    evidence=[f"/sys/class/net/{netdev}/ecn/{side}/enable/{priority}: 0" for side in off],
                )


def _say(bits: tuple[int, ...]) -> str:
    return f"on for priority {', '.join(str(bit) for bit in bits)}" if bits else "off for all priorities"
