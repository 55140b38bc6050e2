# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is cabled to what: rails of the hosts against the leaves of an InfiniBand fabric. Pure.

No list of wanted cables exists, so the fabric is judged by itself. Hosts that share leaves belong together: where the
other rails of a host lie, the same rail of most hosts there tells where this one belongs. That holds for any number of
leaf groups, and does not change with names or with the order in which switches were found.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.fabric_graph import Fabric, Link, Place
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import majority, natural

RailKey = t.Union[int, str]
# Fewer ends than this are too few to say that a whole fabric follows another plan.
_ENOUGH_ENDS = 16


@dataclasses.dataclass(frozen=True)
class Slot:
    """A port of a host that takes a rail's cable. *rail* is its number, or the device's name where no plan is known."""

    host: str
    hca: str
    rail: RailKey

    @property
    def label(self) -> str:
        """mlx5_3 (rail 3)"""
        return f"{self.hca} (rail {self.rail})" if isinstance(self.rail, int) else self.hca

    @property
    def order(self) -> tuple[t.Any, ...]:
        return natural(self.host), natural(str(self.rail)), self.hca


@dataclasses.dataclass(frozen=True)
class End:
    """A slot whose cable leads to a switch; *link* is seen from the host."""

    slot: Slot
    leaf: Place
    link: Link


@dataclasses.dataclass(frozen=True)
class Misplaced:
    """A rail on another leaf than its neighbours. *partner* is the one whose place it has, and the other way round."""

    end: End
    wanted: Place
    votes: int
    voters: int
    partner: End | None = None


@dataclasses.dataclass(frozen=True)
class Unsettled:
    """Ends of one rail that lie on different leaves, without a majority that says which are right."""

    rail: RailKey
    ends: tuple[End, ...]


@dataclasses.dataclass(frozen=True)
class OtherPlan:
    """Most ends do not follow their rail: the fabric is not cabled by rails."""

    astray: int
    ends: int


@dataclasses.dataclass(frozen=True)
class Missing:
    """Slots of one host that the fabric does not have; *port* is where the first one belongs, when that is known."""

    slots: tuple[Slot, ...]
    whole_host: bool
    port: Place | None = None
    port_link: Link | None = None


@dataclasses.dataclass(frozen=True)
class FewUplinks:
    switch: str
    seen: int
    wanted: int
    same: int
    siblings: int
    lacking: tuple[str, ...]
    down_ports: tuple[Link, ...]


@dataclasses.dataclass(frozen=True)
class Degraded:
    """A link with fewer lanes, or slower lanes, than those it is compared with."""

    link: Link
    slot: Slot | None
    gbps: float
    lanes: int | None
    basis: str


Observation = t.Union[Misplaced, Unsettled, OtherPlan, Missing, FewUplinks, Degraded]


class Cabling:
    """A fabric, and which of its CA ports are rails of which host."""

    def __init__(self, fabric: Fabric, slots: dict[str, Slot], expected: t.Iterable[Slot] = ()) -> None:
        """*slots*: port GUID → slot; *expected*: slots that exist, whether the fabric has them or not."""
        self.fabric = fabric
        self.ends: dict[Slot, End] = {}
        for guid, slot in slots.items():
            for link in fabric.links_of(guid):
                if link.peer is not None and fabric.is_switch(link.peer.node):
                    self.ends[slot] = End(slot, link.peer, link)
        self.by_host: dict[str, list[End]] = collections.defaultdict(list)
        self.by_leaf: dict[str, list[End]] = collections.defaultdict(list)
        for end in sorted(self.ends.values(), key=lambda end: end.slot.order):
            self.by_host[end.slot.host].append(end)
            self.by_leaf[end.leaf.node].append(end)
        self.expected = sorted({*expected, *self.ends}, key=lambda slot: slot.order)
        self.neighbours = self._neighbours()

    def _neighbours(self) -> dict[str, dict[RailKey, str | None]]:
        """Leaf → rail → the leaf on which most hosts of this leaf have that rail; None without a majority."""
        seen: dict[str, dict[RailKey, collections.Counter[str]]] = {}
        for ends in self.by_host.values():
            for end in ends:
                rails = seen.setdefault(end.leaf.node, {})
                for other in ends:
                    rails.setdefault(other.slot.rail, collections.Counter())[other.leaf.node] += 1
        return {
            leaf: {rail: majority(counts.elements()) for rail, counts in rails.items()} for leaf, rails in seen.items()
        }

    def belongs(self, host: str, rail: RailKey) -> tuple[str | None, int, int]:
        """The leaf to which this rail of this host belongs, how many of its rails say so, and of how many."""
        votes: collections.Counter[str] = collections.Counter()
        for end in self.by_host[host]:
            leaf = self.neighbours[end.leaf.node].get(rail)
            if leaf is not None:
                votes[leaf] += 1
        leaf = majority(votes.elements())
        return leaf, votes[leaf] if leaf else 0, sum(votes.values())

    def usual_port(self, host: str) -> int | None:
        """The port number that this host has on most of its leaves, as racks are cabled row by row."""
        return majority(end.leaf.port for end in self.by_host[host])

    def observations(self) -> list[Observation]:
        return [*self.misplaced(), *self.missing(), *self.degraded(), *self.uplinks()]

    # Rails on leaves

    def misplaced(self) -> list[Observation]:
        wrong: list[Misplaced] = []
        open_ends: dict[RailKey, list[End]] = collections.defaultdict(list)
        for host, ends in self.by_host.items():
            for end in ends:
                leaf, votes, voters = self.belongs(host, end.slot.rail)
                if leaf is None:
                    open_ends[end.slot.rail].append(end)
                elif leaf != end.leaf.node:
                    wrong.append(Misplaced(end, Place(leaf, self._free_port(host, leaf)), votes, voters))
        unsettled = [
            Unsettled(rail, tuple(ends))
            for rail, ends in sorted(open_ends.items(), key=lambda item: natural(str(item[0])))
            if len({end.leaf.node for end in ends}) > 1
        ]
        astray = len(wrong) + sum(len(entry.ends) for entry in unsettled)
        if len(self.ends) >= _ENOUGH_ENDS and astray * 2 > len(self.ends):
            return [OtherPlan(astray, len(self.ends))]
        return [*_paired(wrong), *unsettled]

    def _free_port(self, host: str, leaf: str) -> int | None:
        """The port on *leaf* that the host's cable belongs to, where it is known and nothing else is in it."""
        port = self.usual_port(host)
        link = self.fabric.links.get(Place(leaf, port)) if port is not None else None
        return port if link is not None and link.peer is None else None

    # What is not there

    def missing(self) -> list[Observation]:
        if not self.fabric.complete:
            return []  # what a recording lacks is not what the fabric lacks
        hosts: dict[str, list[Slot]] = collections.defaultdict(list)
        for slot in self.expected:
            hosts[slot.host].append(slot)
        # Rails may be fabrics of their own, of which a discovery sees one: only what most hosts have here counts.
        present = collections.Counter(slot.rail for slot in self.ends)
        wanted = {rail for rail, count in present.items() if count * 2 > len(hosts)}
        found: list[Observation] = []
        for host, slots in hosts.items():
            known = {slot.rail for slot in slots}
            # Without a plan a rail is a device's name, and a host that lacks it has no slot of that name.
            slots += [Slot(host, rail, rail) for rail in sorted(wanted - known, key=str) if isinstance(rail, str)]
            gone = tuple(slot for slot in slots if slot.rail in wanted and slot not in self.ends)
            if gone and host not in self.by_host:
                found.append(Missing(gone, whole_host=True))
                continue
            for slot in gone:
                leaf = self.belongs(host, slot.rail)[0]
                port = Place(leaf, self._free_port(host, leaf)) if leaf else None
                found.append(Missing((slot,), False, port, self.fabric.links.get(port) if port else None))
        return found

    def uplinks(self) -> list[Observation]:
        """Switches with fewer links to the tier above than most switches of their tier."""
        found: list[Observation] = []
        for tier, above in zip(self.tiers, self.tiers[1:]):
            up: dict[str, collections.Counter[str]] = {switch: collections.Counter() for switch in tier}
            # Port number → whether it leads upwards, over the switches of the tier.
            roles: dict[int | None, collections.Counter[bool]] = collections.defaultdict(collections.Counter)
            for switch in tier:
                for link, peer in self._peers(switch):
                    up[switch][peer] += peer in above
                    roles[link.place.port][peer in above] += 1
            wanted = majority(sum(counts.values()) for counts in up.values())
            if wanted is None:
                continue
            same = sum(1 for counts in up.values() if sum(counts.values()) == wanted)
            usual = {peer: majority(counts[peer] for counts in up.values()) or 0 for peer in above}
            for switch in sorted(tier, key=self.fabric.name):
                seen = sum(up[switch].values())
                if seen >= wanted:
                    continue
                lacking = sorted((p for p in above if up[switch][p] < usual[p]), key=self.fabric.name)
                down = [
                    link
                    for link in self.fabric.links_of(switch)
                    if link.peer is None and majority(roles[link.place.port].elements())
                ]
                found.append(FewUplinks(switch, seen, wanted, same, len(tier), tuple(lacking), tuple(down)))
        return found

    def _peers(self, switch: str) -> t.Iterator[tuple[Link, str]]:
        for link in self.fabric.links_of(switch):
            if link.peer is not None:
                yield link, link.peer.node

    @functools.cached_property
    def tiers(self) -> list[set[str]]:
        """Leaves, then the switches above them, and so on."""
        tiers = [set(self.by_leaf)]
        known = set(self.by_leaf)
        while tiers[-1]:
            above = {peer for switch in tiers[-1] for _link, peer in self._peers(switch) if self.fabric.is_switch(peer)}
            tiers.append(above - known)
            known |= above
        return tiers[:-1]

    # Links that are there, but not all of them

    def degraded(self) -> list[Observation]:
        found: list[Observation] = []
        hosts = {host: _usual_rate(end.link for end in ends) for host, ends in self.by_host.items()}
        leaves = {leaf: _usual_rate(end.link for end in ends) for leaf, ends in self.by_leaf.items()}
        for end in sorted(self.ends.values(), key=lambda end: end.slot.order):
            own, near = hosts[end.slot.host], leaves[end.leaf.node]
            if own and end.link.slower_than(own.gbps):
                found.append(Degraded(end.link, end.slot, own.gbps, own.lanes, "as most rails of the host"))
            # A leaf may hold adapters of several generations: both ends must be able to do more.
            elif near and end.link.slower_than(near.gbps) and self._could_be_faster(end):
                found.append(Degraded(end.link, end.slot, near.gbps, near.lanes, "as most ports of the leaf"))
        for tier, above in zip(self.tiers, self.tiers[1:]):
            links = [
                link
                for switch in sorted(tier, key=self.fabric.name)
                for link, peer in self._peers(switch)
                if peer in above
            ]
            usual = _usual_rate(links)
            for link in links:
                if usual and link.slower_than(usual.gbps):
                    found.append(Degraded(link, None, usual.gbps, usual.lanes, "as most links between these switches"))
        return found

    def _could_be_faster(self, end: End) -> bool:
        other = self.fabric.links.get(end.leaf)
        return any("Could be" in (link.remark or "") for link in (end.link, other) if link is not None)


class _Rate(t.NamedTuple):
    gbps: float
    lanes: int | None


def _usual_rate(links: t.Iterable[Link]) -> _Rate | None:
    return majority(_Rate(link.gbps, link.lanes) for link in links if link.gbps is not None)


def _paired(wrong: list[Misplaced]) -> list[Misplaced]:
    """Join two cables that have each other's place, those of one host first."""
    waiting: dict[tuple[str, str], list[Misplaced]] = collections.defaultdict(list)
    for entry in wrong:
        waiting[(entry.end.leaf.node, entry.wanted.node)].append(entry)
    partners: dict[Slot, End] = {}
    for (seen, wanted), entries in sorted(waiting.items()):
        if seen > wanted:
            continue  # the pair is met from its other side
        others = list(waiting.get((wanted, seen), ()))
        for same_host in (True, False):
            for entry in entries:
                if entry.end.slot in partners:
                    continue
                near = [o for o in others if not same_host or o.end.slot.host == entry.end.slot.host]
                if near:
                    others.remove(near[0])
                    partners[entry.end.slot] = near[0].end
                    partners[near[0].end.slot] = entry.end
    return [
        dataclasses.replace(entry, partner=partners[entry.end.slot], wanted=partners[entry.end.slot].leaf)
        if entry.end.slot in partners
        else entry
        for entry in wrong
    ]


__all__ = (
    "Cabling",
    "Degraded",
    "End",
    "FewUplinks",
    "Misplaced",
    "Missing",
    "Observation",
    "OtherPlan",
    "Slot",
    "Unsettled",
)
