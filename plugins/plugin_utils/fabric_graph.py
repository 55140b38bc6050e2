# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The graph of an InfiniBand fabric, from what ibnetdiscover and iblinkinfo say. Pure.

A node of the graph is a switch, or one port of a channel adapter: both are named by the GUID under which the tools show
them. Either tool is enough; ibnetdiscover names the peers by GUID, iblinkinfo has states and ports without a peer.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers.iblinkinfo import SPEEDS
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import dicts, mapping

_LANE_GBPS = dict(SPEEDS.values())
# Rates are sums of rounded lanes.
_TOLERANCE = 0.99


class Place(t.NamedTuple):
    """A port of a node: switch GUID, or CA port GUID, and port number (None: not known which)."""

    node: str
    port: int | None


@dataclasses.dataclass
class Link:
    """What is plugged into a place, seen from there."""

    place: Place
    peer: Place | None = None
    lanes: int | None = None
    lane_gbps: float | None = None
    speed: str | None = None
    state: str | None = None
    phys_state: str | None = None
    remark: str | None = None

    @property
    def gbps(self) -> float | None:
        """Nominal rate of a link that has two ends."""
        if self.peer is None or self.lanes is None or self.lane_gbps is None:
            return None
        return self.lanes * self.lane_gbps

    def slower_than(self, gbps: float) -> bool:
        return self.gbps is not None and self.gbps < gbps * _TOLERANCE

    @property
    def rate_text(self) -> str:
        """4x HDR (200 Gb/s)"""
        if self.gbps is None:
            return "an unknown rate"
        return f"{self.lanes}x {self.speed or f'{self.lane_gbps:g} Gb/s'} ({self.gbps:g} Gb/s)"

    @property
    def state_text(self) -> str:
        """down/polling"""
        return "/".join(part for part in (self.state, self.phys_state) if part)


class Fabric:
    def __init__(self, discovered: t.Any = None, linkinfo: t.Any = None, complete: bool = True) -> None:
        """*discovered*, *linkinfo*: values of the parsers of ibnetdiscover and iblinkinfo, either may be None.

        *complete*: nothing of them was unreadable or cut off; without it, what is absent says nothing.
        """
        self.complete = complete
        self.kinds: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.lids: dict[str, int] = {}
        self.links: dict[Place, Link] = {}
        self._read_discovered(mapping(discovered))
        self._read_linkinfo(mapping(linkinfo))

    def _node(self, guid: t.Any, kind: t.Any, description: t.Any, lid: t.Any = None) -> None:
        if kind:
            self.kinds[guid] = str(kind)
        if description:
            self.names[guid] = str(description)
        if isinstance(lid, int) and lid:
            self.lids[guid] = lid

    def _read_discovered(self, value: dict[t.Any, t.Any]) -> None:
        for row in dicts(value.get("links")):
            guid, peer = row.get("guid"), mapping(row.get("peer"))
            if not guid or row.get("port") is None:
                continue
            self._node(guid, row.get("type"), row.get("description"), row.get("lid"))
            link = self.links.setdefault(Place(guid, row["port"]), Link(Place(guid, row["port"])))
            if peer.get("guid") and peer.get("port") is not None:
                self._node(peer["guid"], peer.get("type"), peer.get("description"), peer.get("lid"))
                link.peer = Place(peer["guid"], peer["port"])
                # A port without a peer has a width and a speed too: what it would come up with.
                link.lanes, link.speed = row.get("width"), row.get("speed")
                link.lane_gbps = _LANE_GBPS.get(str(row.get("speed")))
                # A recording cut off may have one of the two rows of a cable.
                back = dataclasses.replace(link, place=link.peer, peer=link.place)
                self.links.setdefault(link.peer, back)
        for node in dicts(value.get("nodes")):
            if node.get("type") == "switch" and node.get("guid"):
                self._node(node["guid"], "switch", node.get("description"), node.get("lid"))

    def _read_linkinfo(self, value: dict[t.Any, t.Any]) -> None:
        rows: list[tuple[Place, dict[str, t.Any]]] = []
        for node in dicts(value.get("nodes")):
            for port in dicts(node.get("ports")):
                # The heading of a CA has no GUID, its lines do; with a switch it is the other way round.
                guid = port.get("guid") or node.get("guid")
                if guid and port.get("port") is not None:
                    self._node(guid, node.get("type"), node.get("description"), port.get("lid"))
                    rows.append((Place(guid, port["port"]), port))
        by_lid = {lid: guid for guid, lid in self.lids.items()}
        by_name = self._unique_names()
        for place, port in rows:
            link = self.links.setdefault(place, Link(place))
            link.state, link.phys_state = port.get("state"), port.get("phys_state")
            link.remark = port.get("remark")
            peer = mapping(port.get("peer"))
            guid = peer.get("guid") or by_lid.get(peer.get("lid", 0)) or by_name.get(str(peer.get("description")))
            if link.peer is None and guid and peer.get("port") is not None:
                link.peer = Place(guid, peer["port"])
            if port.get("rate_gbps") is not None:
                link.lanes, link.speed = port.get("width"), port.get("speed")
                link.lane_gbps = port["rate_gbps"] / port["width"]

    def _unique_names(self) -> dict[str, str]:
        """Description → node, where it is the only one; LIDs are zero as long as no subnet manager ran."""
        count = collections.Counter(self.names.values())
        return {name: guid for guid, name in self.names.items() if count[name] == 1}

    @functools.cached_property
    def _by_node(self) -> dict[str, list[Link]]:
        found: dict[str, list[Link]] = collections.defaultdict(list)
        for place in sorted(self.links, key=lambda place: (place.node, place.port or 0)):
            found[place.node].append(self.links[place])
        return found

    def links_of(self, guid: str) -> list[Link]:
        """The links of a node in order of its ports."""
        return self._by_node.get(guid, [])

    def is_switch(self, guid: str) -> bool:
        return self.kinds.get(guid) == "switch" or (guid not in self.kinds and len(self.links_of(guid)) > 2)

    @property
    def adapter_ports(self) -> list[str]:
        """GUIDs of the ports of channel adapters."""
        return [guid for guid in self.names if not self.is_switch(guid) and self.kinds.get(guid) != "router"]

    def name(self, guid: str) -> str:
        return self.names.get(guid) or guid

    def where(self, place: Place) -> str:
        """leaf-2 port 17"""
        return self.name(place.node) + (f" port {place.port}" if place.port is not None else "")


__all__ = ("Fabric", "Link", "Place")
