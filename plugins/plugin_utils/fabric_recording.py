# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a bundle recorded of its InfiniBand fabric: the graph, and which adapter port is which rail of which host. Pure.

Each tool's text may stand for the rack as a whole or in the folder of the host that ran it.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    iblinkinfo,
    ibnetdiscover,
    ibqueryerrors,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.cabling import Slot
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.fabric_graph import Fabric
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
    majority,
    mapping,
)

# Options that change the form, as they appear in a recording's name.
_FORMS = ("", "_p", "_l", "_r")
_PARSERS = {
    "ibnetdiscover": ibnetdiscover.parse,
    "iblinkinfo": iblinkinfo.parse,
    "ibqueryerrors": ibqueryerrors.parse,
}
# The description that rdma-ndd gives an adapter.
_NODE_NAME = re.compile(r"^(?P<host>\S+)\s+(?P<hca>\S+)$")


def _recorded(rack: RackView, tool: str) -> tuple[str, str] | None:
    """Name and text of what a fabric tool said, for the rack or on the host where it ran."""
    names = [f"{tool}{form}" for form in _FORMS]
    for name in names:
        text = rack.text(f"{name}.txt")
        if text:
            return f"{name}.txt", text
    for host in rack.hosts:
        for name in names:
            text = host.recorded(name)
            if text:
                return f"{host.name}/{name}.txt", text
    return None


class Recording(t.NamedTuple):
    source: str
    parsed: Parsed


def recording_of(rack: RackView, tool: str) -> Recording | None:
    recorded = _recorded(rack, tool)
    return Recording(recorded[0], _PARSERS[tool](recorded[1])) if recorded else None


def fabric_of(rack: RackView) -> tuple[Fabric | None, list[Recording]]:
    """The recorded fabric, None where nothing of it was recorded."""
    discovered = recording_of(rack, "ibnetdiscover")
    linkinfo = recording_of(rack, "iblinkinfo")
    recordings = [recording for recording in (discovered, linkinfo) if recording is not None]
    if not recordings:
        return None, []
    fabric = Fabric(
        discovered.parsed.value if discovered else None,
        linkinfo.parsed.value if linkinfo else None,
        complete=not any(recording.parsed.problems for recording in recordings),
    )
    return fabric, recordings


def _guids(device: dict[str, t.Any], port: str) -> t.Iterator[str]:
    """GUIDs under which the fabric may know a port: that of its first GID, else its device's."""
    for gid in dicts(mapping(mapping(device.get("ports")).get(port)).get("gids")):
        if gid.get("index") == 0 and isinstance(gid.get("gid"), str):
            yield gid["gid"].replace(":", "")[-16:].lower()
    if isinstance(device.get("node_guid"), str):
        yield device["node_guid"].replace(":", "").lower()


def _planned(host: HostView) -> t.Iterator[tuple[Slot, dict[str, t.Any], str]]:
    for rail in host.rails:
        hca, port = str(rail.get("hca")), str(rail.get("port", 1))
        device = host.section("rdma_devices", hca)
        layer = rail.get("link_layer") or mapping(mapping(device.get("ports")).get(port)).get("link_layer")
        if layer in (None, "InfiniBand") and isinstance(rail.get("rail"), int):
            yield Slot(host.name, hca, rail["rail"]), device, port


def slots_of(rack: RackView, fabric: Fabric) -> tuple[dict[str, Slot], list[Slot]]:
    """Port GUID → slot, and the slots that the plan knows.

    A host with a plan is known by its GUIDs. Of any other the description (host and device) is taken; its devices have
    the rails that the same names have on most hosts with a plan.
    """
    known: dict[str, Slot] = {}
    planned: list[Slot] = []
    of_host: dict[str, dict[str, Slot]] = {}
    for host in rack.hosts:
        for slot, device, port in _planned(host):
            planned.append(slot)
            for name in {host.name, str(host.get("host", "hostname") or host.name)}:
                of_host.setdefault(name.split(".")[0], {})[slot.hca] = slot
            for guid in _guids(device, port):
                known.setdefault(guid, slot)
    rails: dict[str, list[t.Any]] = collections.defaultdict(list)
    for slot in planned:
        rails[slot.hca].append(slot.rail)
    slots: dict[str, Slot] = {}
    for guid in fabric.adapter_ports:
        if guid in known:
            slots[guid] = known[guid]
            continue
        match = _NODE_NAME.match(fabric.name(guid).strip())
        if not match:
            continue
        name, hca = match["host"].split(".")[0], match["hca"]
        if name in of_host:
            if hca in of_host[name] and of_host[name][hca] not in known.values():
                slots[guid] = of_host[name][hca]
        elif not planned or hca in rails:
            rail = majority(rails[hca]) if hca in rails else hca
            if rail is not None:
                slots[guid] = Slot(name, hca, rail)
    return slots, planned


__all__ = ("Recording", "fabric_of", "recording_of", "slots_of")
