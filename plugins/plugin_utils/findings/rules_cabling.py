# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cables of an InfiniBand fabric: rails on the wrong leaf, links that are missing, slow, narrow or full of errors.

Looks at what a bundle recorded of the fabric: ibnetdiscover.txt (plain or -p), iblinkinfo.txt (plain or -l) and
ibqueryerrors.txt, for the whole rack or in the folder of the host that ran them.
"""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.cabling import (
    Cabling,
    Degraded,
    End,
    FewUplinks,
    Misplaced,
    Missing,
    OtherPlan,
    Slot,
    Unsettled,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.fabric_graph import Fabric, Link, Place
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.fabric_recording import (
    Recording,
    fabric_of,
    recording_of,
    slots_of,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RackView, dicts, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.rules_rack import UNREADABLE

_SOURCE = "rdma-core's infiniband-diags (ibnetdiscover, iblinkinfo, ibqueryerrors); rail-optimised fabrics"
_REDISCOVER = "ibnetdiscover -p run again: every rail of the host is on the leaf of its neighbours."

SWAPPED = define(
    "cabling",
    "RF-CABLE-SWAPPED",
    title="Two rails are plugged into each other's place",
    severity="fail",
    phase="diagnose",
    means="Traffic between equal rails of two hosts crosses the spines instead of one leaf. Single links test well; "
    "collectives over the whole rack are slower, and the spines congest.",
    looks_at="The switch at which each rail of the plan ends, against the same rail of the hosts with which its other "
    "rails share leaves. Names of devices and switches are not relied on.",
    cause="Two cables were exchanged at the host or at the switch, usually after a card or a module was replaced.",
    remedy="Exchange the two cables named, at one end only.",
    check=_REDISCOVER,
    source=_SOURCE,
)

WRONG_LEAF = define(
    "cabling",
    "RF-CABLE-RAIL",
    title="A rail is on another leaf than its neighbours",
    severity="fail",
    phase="diagnose",
    means="Traffic between equal rails crosses the spines instead of one leaf. Single links test well; collectives "
    "over the whole rack are slower, and the spines congest.",
    looks_at="The switch at which each rail of the plan ends, against the same rail of the hosts with which its other "
    "rails share leaves.",
    cause="The cable is in the wrong switch. Where all rails of a host are named, its rails may be numbered "
    "differently: compare the GPU next to each device.",
    remedy="Move the cable to the leaf named.",
    check=_REDISCOVER,
    source=_SOURCE,
)

UNSETTLED = define(
    "cabling",
    "RF-CABLE-DISAGREE",
    title="Hosts of one leaf group have a rail on different leaves",
    severity="warn",
    phase="diagnose",
    means="One rail ends at several leaves and no majority tells which is meant: one of the hosts is cabled wrongly.",
    looks_at="The switch at which each rail of the plan ends, in groups too small for a majority (two hosts).",
    cause="Two cables are exchanged, or the hosts' rails are numbered differently.",
    remedy="Compare the cables named with the cabling plan and exchange those that are wrong.",
    check=_REDISCOVER,
    source=_SOURCE,
)

NOT_BY_RAIL = define(
    "cabling",
    "RF-CABLE-NOT-BY-RAIL",
    title="The fabric is not cabled by rails",
    severity="warn",
    phase="diagnose",
    means="Most rails end at another leaf than the same rail of the neighbouring hosts. NCCL expects equal rails to be "
    "near each other; without that all traffic crosses the spines.",
    looks_at="The switch at which each rail of the plan ends.",
    cause="The fabric was built for another traffic pattern, or the numbers of the rails differ between most hosts.",
    remedy="Check the numbers of the rails in the plan first (devices near the same GPU on all hosts), then the "
    "cabling plan; for a fabric that is meant so, set NCCL_CROSS_NIC=1.",
    check=_REDISCOVER,
    source=_SOURCE,
)

MISSING = define(
    "cabling",
    "RF-LINK-MISSING",
    title="A rail is not in the fabric",
    severity="fail",
    phase="diagnose",
    means="The discovery reached most hosts on this rail and not this one: its link is down. Jobs on the host fail or "
    "run without the rail.",
    looks_at="Rails of the plan against the adapters that answered; rails that most hosts do not have in this fabric "
    "are not judged, nor anything when the recording is cut off.",
    cause="An unplugged or broken cable or module, a disabled switch port, a host that is off or runs no driver.",
    remedy="Check the link lamps at both ends, reseat or swap the cable and the module, and see whether the switch "
    "port is disabled (ibportstate LID PORT query).",
    check="ibstat on the host: State: Active; ibnetdiscover -p names the adapter.",
    source=_SOURCE,
)

UPLINKS = define(
    "cabling",
    "RF-LINK-UPLINKS",
    title="A switch has fewer uplinks than its siblings",
    severity="warn",
    phase="diagnose",
    means="The hosts below this switch share less bandwidth to the rest of the fabric than others.",
    looks_at="Links of each switch to the tier above, against most switches of its tier; ports that are down here and "
    "lead upwards on the siblings.",
    cause="A dead cable or module between switches, a disabled port, or a spine that is off.",
    remedy="Check cable and module of the ports named, at both ends; enable a disabled port (ibportstate LID PORT "
    "enable).",
    check="iblinkinfo of the switch: as many LinkUp ports as on its siblings.",
    source=_SOURCE,
)

DEGRADED = define(
    "cabling",
    "RF-LINK-DEGRADED",
    title="A link of the fabric is slow or narrow",
    severity="fail",
    phase="diagnose",
    means="The link trained at a lower speed or with fewer lanes than those beside it. A collective runs at the speed "
    "of its slowest link.",
    looks_at="Lanes and speed of each link: a rail against the other rails of the host, then against its leaf where "
    "both ends could do more; a link between switches against the others between the same tiers.",
    cause="A damaged cable or module, dirt on the fibre, or a speed forced on one of the ports.",
    remedy="Reseat, clean or swap cable and module of the link named; look for a forced speed or width (ibportstate "
    "LID PORT query), then reset the port.",
    check="iblinkinfo shows the same width and speed as on its neighbours.",
    source=_SOURCE,
)

ERRORS = define(
    "cabling",
    "RF-LINK-ERRORS",
    title="A link of the fabric counts errors",
    severity="warn",
    phase="diagnose",
    means="The physical layer corrects or repeats: bandwidth varies, and the link is likely to fail.",
    looks_at="Error counters beyond their thresholds (ibqueryerrors), of the physical layer and of dropped packets; "
    "one finding for each cable.",
    cause="A damaged or dirty cable, a failing module, or counters that nobody has cleared since the fabric was built.",
    remedy="Clear the counters (ibqueryerrors -k) and look again under load; swap cable and module when they rise.",
    check="ibqueryerrors names the port no more an hour after the counters were cleared.",
    source=_SOURCE,
)

# Counters that speak of the cable, not of traffic.
_PHYSICAL = (
    "SymbolErrorCounter",
    "LinkErrorRecoveryCounter",
    "LinkDownedCounter",
    "PortRcvErrors",
    "LocalLinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors",
    "PortXmitDiscards",
)
_SHOWN = 6


def _seen_at(fabric: Fabric, end: End) -> str:
    return f"{end.slot.label} of {end.slot.host} is on {fabric.where(end.leaf)}"


def _evidence(fabric: Fabric, *ends: End) -> list[str]:
    return [
        f"{fabric.name(end.link.place.node)} [{end.link.place.port}] - {fabric.name(end.leaf.node)} [{end.leaf.port}]"
        for end in ends
    ]


def _misplaced(fabric: Fabric, entry: Misplaced) -> Finding:
    end, partner = entry.end, entry.partner
    told = f"as {entry.votes} of {entry.voters} rails of the host say"
    if partner is not None:
        return SWAPPED.on(
            end.slot.host,
            f"{_seen_at(fabric, end)}, {fabric.where(entry.wanted)} wanted ({told}); there is {partner.slot.label} of "
            f"{partner.slot.host}: the two cables are swapped",
            device=end.slot.hca,
            evidence=_evidence(fabric, end, partner),
            remedy=f"Exchange the cables of {end.slot.host} {end.slot.hca} and {partner.slot.host} {partner.slot.hca}: "
            f"{end.slot.hca} into {fabric.where(entry.wanted)}, {partner.slot.hca} into {fabric.where(end.leaf)}.",
        )
    return WRONG_LEAF.on(
        end.slot.host,
        f"{_seen_at(fabric, end)}, {fabric.where(entry.wanted)} wanted ({told})",
        device=end.slot.hca,
        evidence=_evidence(fabric, end),
        remedy=f"Move the cable of {end.slot.host} {end.slot.hca} from {fabric.where(end.leaf)} to "
        f"{fabric.where(entry.wanted)}.",
    )


def _unsettled(fabric: Fabric, entry: Unsettled) -> Finding:
    shown = "; ".join(f"{end.slot.host} {end.slot.hca} on {fabric.where(end.leaf)}" for end in entry.ends[:_SHOWN])
    more = f"; and {len(entry.ends) - _SHOWN} more" if len(entry.ends) > _SHOWN else ""
    label = f"rail {entry.rail}" if isinstance(entry.rail, int) else str(entry.rail)
    return UNSETTLED.on(
        "",
        f"{label} ends at different leaves: {shown}{more}; one leaf wanted, and no majority tells which",
        device=label,
        evidence=_evidence(fabric, *entry.ends[:_SHOWN]),
    )


def _other_plan(entry: OtherPlan) -> Finding:
    return NOT_BY_RAIL.on(
        "",
        f"{entry.astray} of {entry.ends} rails end at another leaf than the same rail of their neighbours; equal rails "
        "on equal leaves wanted",
        device="fabric",
    )


def _missing(fabric: Fabric, entry: Missing) -> Finding:
    host = entry.slots[0].host
    devices = ", ".join(slot.label for slot in entry.slots)
    if entry.whole_host:
        message = f"{host}: none of {devices} is in the fabric; a link on every rail wanted"
    else:
        where = f" on {fabric.where(entry.port)}" if entry.port else ""
        state = entry.port_link.state_text if entry.port_link else ""
        aside = f" (that port is {state})" if state else ""
        message = f"{host}: {devices} is not in the fabric; a link{where} wanted{aside}"
    return MISSING.on(
        host,
        message,
        device=", ".join(slot.hca for slot in entry.slots),
        evidence=[_port_line(fabric, entry.port_link)] if entry.port_link else (),
    )


def _port_line(fabric: Fabric, link: Link) -> str:
    peer = f"==> {fabric.where(link.peer)}" if link.peer else "==> nothing"
    parts = [fabric.where(link.place), link.rate_text if link.peer else "", link.state_text, peer, link.remark or ""]
    return " ".join(part for part in parts if part)


def _few_uplinks(fabric: Fabric, entry: FewUplinks) -> Finding:
    ports = ", ".join(f"port {link.place.port} is {link.state_text or 'without a peer'}" for link in entry.down_ports)
    lacking = ", ".join(fabric.name(guid) for guid in entry.lacking)
    asides = [f"{ports}, and leads upwards on the others" if ports else "", f"lacking to {lacking}" if lacking else ""]
    aside = "".join(f"; {text}" for text in asides if text)
    name = fabric.name(entry.switch)
    return UPLINKS.on(
        "",
        f"{name} has {entry.seen} links upwards, {entry.wanted} wanted (as {entry.same} of {entry.siblings} switches "
        f"of its tier){aside}",
        device=name,
        evidence=[_port_line(fabric, link) for link in entry.down_ports[:_SHOWN]],
    )


def _degraded(fabric: Fabric, entry: Degraded) -> Finding:
    link = entry.link
    assert link.peer is not None
    narrow = entry.lanes is not None and link.lanes is not None and link.lanes < entry.lanes
    word = "narrow" if narrow else "slow"
    wanted = f"{entry.lanes}x, {entry.gbps:g} Gb/s" if narrow else f"{entry.gbps:g} Gb/s"
    if entry.slot is not None:
        host, device = entry.slot.host, entry.slot.hca
        subject = f"{host}: the link of {entry.slot.label} to {fabric.where(link.peer)}"
    else:
        host, device = "", fabric.where(link.place)
        subject = f"the link of {device} to {fabric.where(link.peer)}"
    return DEGRADED.on(
        host,
        f"{subject} is {word}: {link.rate_text}, {wanted} wanted ({entry.basis})",
        device=device,
        evidence=[_port_line(fabric, link)],
    )


_SAY: dict[type, t.Callable[[Fabric, t.Any], Finding]] = {
    Misplaced: _misplaced,
    Unsettled: _unsettled,
    OtherPlan: lambda _fabric, entry: _other_plan(entry),
    Missing: _missing,
    FewUplinks: _few_uplinks,
    Degraded: _degraded,
}


def _unreadable(recording: Recording) -> t.Iterator[Finding]:
    problems = recording.parsed.problems
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        yield UNREADABLE.on(
            "",
            f"{recording.source}: {problems[0].reason}{more}; what the fabric lacks is not judged",
            device=recording.source,
            evidence=[f"line {problem.line}: {problem.text}" for problem in problems[:4] if problem.text],
        )


@rack_rule(SWAPPED, WRONG_LEAF, UNSETTLED, NOT_BY_RAIL, MISSING, UPLINKS, DEGRADED, UNREADABLE)
def cabling(rack: RackView) -> t.Iterator[Finding]:
    fabric, recordings = fabric_of(rack)
    if fabric is None:
        return
    for recording in recordings:
        yield from _unreadable(recording)
    slots, planned = slots_of(rack, fabric)
    reported: set[Slot] = set()
    for entry in Cabling(fabric, slots, planned).observations():
        if isinstance(entry, Misplaced) and entry.partner is not None:
            if entry.partner.slot in reported:
                continue  # a swapped pair is one finding
            reported.add(entry.end.slot)
        yield _SAY[type(entry)](fabric, entry)


@rack_rule(ERRORS, UNREADABLE)
def link_errors(rack: RackView) -> t.Iterator[Finding]:
    recording = recording_of(rack, "ibqueryerrors")
    if recording is None:
        return
    yield from _unreadable(recording)
    fabric = fabric_of(rack)[0] or Fabric()
    slots = slots_of(rack, fabric)[0]
    cables: dict[frozenset[Place], list[tuple[Place, dict[str, int]]]] = {}
    for node in dicts(recording.parsed.value["nodes"]):
        for port in dicts(node.get("ports")):
            counters = {name: count for name, count in port["counters"].items() if name in _PHYSICAL}
            if not counters or not isinstance(port["port"], int):
                continue
            place = Place(str(port.get("guid") or node.get("guid")), port["port"])
            fabric.names.setdefault(place.node, str(node.get("description")))
            link = fabric.links.get(place)
            ends = frozenset({place, link.peer} if link is not None and link.peer else {place})
            cables.setdefault(ends, []).append((place, counters))
    for ends, sides in cables.items():
        slot = next((slots[place.node] for place in ends if place.node in slots), None)
        names = " - ".join(fabric.where(place) for place in sorted(ends, key=lambda p: natural(fabric.where(p))))
        seen = "; ".join(
            f"{fabric.where(place)}: " + ", ".join(f"{name} {count}" for name, count in counters.items())
            for place, counters in sides
        )
        yield ERRORS.on(
            slot.host if slot else "",
            f"the link {names} counts errors: {seen}; 0 wanted",
            device=slot.hca if slot else names,
            evidence=[
                f"{fabric.where(place)}: " + " ".join(f"[{name} == {count}]" for name, count in counters.items())
                for place, counters in sides
            ],
        )
