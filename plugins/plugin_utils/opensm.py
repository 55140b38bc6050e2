# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The subnet manager on chosen nodes: one instance of opensm per subnet, a master and standbys, and its partitions."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import dicts, mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.ib_networks import (
    ENCAPSULATION,
    FULL,
    Network,
    read,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, Port, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail

NODES, RAILS = "gpu_fabric_opensm_nodes", "gpu_fabric_opensm_rails"
# opensm knows 0 to 15. The highest stays free, for whoever has to take over from all of these.
HIGHEST_PRIORITY = 14
CONFIG = "/etc/opensm/gpu-fabric.conf"
PARTITION_FILE = "/etc/opensm/gpu-fabric-partitions.conf"
UNIT_FILE = "/etc/systemd/system/gpu-fabric-opensm@.service"
# The packages' own units run opensm on every port, as soon as they are installed.
OTHER_UNITS = ("opensm.service", "opensmd.service")
GUARDS = tuple(f"/etc/systemd/system/{unit}.d/50-gpu-fabric.conf" for unit in OTHER_UNITS)
PATHS = (CONFIG, PARTITION_FILE, UNIT_FILE, *GUARDS)
DIRECTORIES = ("/etc/opensm", *(guard.rpartition("/")[0] for guard in GUARDS))
MARK = "# Managed by railyard.gpu_fabric; changes are overwritten.\n"
_DEFAULT = 0x7FFF
_UNIT = """\
[Unit]
Description=OpenSM, the subnet manager of the InfiniBand subnet at port %i
Documentation=man:opensm(8)
After=systemd-modules-load.service
Before=network-online.target

[Service]
ExecStart=/usr/sbin/opensm --config {config} --guid %i --log_file /var/log/opensm.%i.log
ExecReload=/bin/kill -HUP $MAINPID
# Several instances on one host would else write each other's files.
CacheDirectory=opensm/%i
RuntimeDirectory=opensm/%i
Environment=OSM_CACHE_DIR=/var/cache/opensm/%i OSM_TMP_DIR=/run/opensm/%i
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""
_GUARD = """\
[Unit]
# Instances of gpu-fabric-opensm@.service run instead, at the planned ports.
ConditionPathExists=!{config}
"""


def problems(intent: Intent, members: t.Sequence[str], fabrics: t.Mapping[str, str]) -> list[Problem]:
    """Nodes that cannot run it. *fabrics*: what the hosts that were read are part of."""
    nodes, found = intent[NODES], []
    for name in dict.fromkeys(nodes):
        if name not in members:
            found.append(Problem(NODES, f"{name} is no host of the rack", f"hosts of the inventory ({_some(members)})"))
        elif fabrics.get(name, "infiniband") != "infiniband":
            what = "has no rail" if fabrics[name] == "none" else "has Ethernet rails, which need no subnet manager"
            found.append(Problem(NODES, f"{name} {what}", "hosts with InfiniBand rails"))
        if nodes.count(name) > 1:
            found.append(Problem(NODES, f"{name} stands {nodes.count(name)} times", "each host once"))
    if len(nodes) > HIGHEST_PRIORITY:
        found.append(Problem(NODES, f"{len(nodes)} nodes", f"{HIGHEST_PRIORITY} at most, each with its own priority"))
    return found


def _some(names: t.Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class Rack(t.NamedTuple):
    """What one host's part depends on beyond the host."""

    intent: Intent
    lids: dict[str, set[int]]  # of the InfiniBand ports, by host
    small_mtu: bool  # an active port carries less than 4096 bytes
    processes: list[str]  # that run on the GPUs of any host


def rack(intent: Intent, rails: t.Mapping[str, t.Sequence[Rail]], machines: t.Mapping[str, Machine]) -> Rack:
    ports = {name: [rail.port for rail in laid if _is_port(rail)] for name, laid in rails.items()}
    carried = [port.active_mtu_bytes for found in ports.values() for port in found if port and port.active]
    return Rack(
        intent=intent,
        lids={name: {port.lid for port in found if port and port.lid} for name, found in ports.items()},
        small_mtu=any(mtu < 4096 for mtu in carried if mtu),
        processes=[
            f"{name}: {process.get('pid')} {process.get('name')}"
            for name, machine in machines.items()
            for process in dicts(machine.facts.get("gpu_processes"))
        ],
    )


def for_host(rack: Rack, name: str, machine: Machine, rails: t.Sequence[Rail]) -> dict[str, t.Any]:
    """plan.hosts[h].opensm"""
    nodes = rack.intent[NODES]
    wanted = name in nodes and rack.intent["gpu_fabric_state"] == "present"
    ports = [rail for rail in rails if _is_port(rail) and _guid(rail)]
    chosen = _chosen(rack.intent[RAILS], ports) if wanted else []
    texts = _texts(rack, nodes.index(name)) if wanted else {}
    present = mapping(machine.facts.get("files"))
    cost, why = _cost(rack, name, chosen, texts, present) if wanted else _removal_cost(nodes)
    units = {f"gpu-fabric-opensm@{_guid(rail)}.service": "started" if rail in chosen else "stopped" for rail in ports}
    if wanted:
        # Two managers at one port would fight. What a unit of somebody else does at boot is kept for when we leave.
        units = dict.fromkeys(OTHER_UNITS, "paused") | units
    return {
        # Nothing is asked of a host that has none and shall have none.
        "run": wanted or text(present.get(CONFIG)) != "",
        "wanted": wanted,
        "priority": HIGHEST_PRIORITY - nodes.index(name) if wanted else None,
        "ports": [
            {"rail": rail.rail, "hca": rail.hca.name, "port": t.cast(Port, rail.port).number, "guid": _guid(rail)}
            for rail in chosen
        ],
        "files": [{"path": path, **({"content": texts[path]} if wanted else {"original": True})} for path in PATHS],
        # Of the files; they go when they are empty.
        "directories": [] if wanted else [{"path": path, "absent": True} for path in DIRECTORIES],
        "units": units,
        "started": [unit for unit, state in units.items() if state == "started"],
        "packages": {"opensm": ""},
        "disruption": cost,
        "disruption_reason": why,
        "gpu_processes": rack.processes if cost != "none" else [],
    }


def _is_port(rail: Rail) -> bool:
    return rail.link_layer == "InfiniBand" and rail.port is not None


def _guid(rail: Rail) -> str:
    digits = (rail.port.guid if rail.port else "") or rail.hca.node_guid
    return f"0x{digits}" if digits else ""


def _chosen(numbers: t.Sequence[int], ports: t.Sequence[Rail]) -> list[Rail]:
    if numbers:
        return [rail for rail in ports if rail.rail in numbers]
    first: dict[str, Rail] = {}
    for rail in ports:
        first.setdefault(t.cast(Port, rail.port).subnet_prefix, rail)
    return list(first.values())


def _texts(rack: Rack, position: int) -> dict[str, str]:
    return {
        CONFIG: MARK + f"sm_priority {HIGHEST_PRIORITY - position}\npartition_config_file {PARTITION_FILE}\n",
        PARTITION_FILE: MARK + partitions(read(rack.intent), rack.small_mtu),
        UNIT_FILE: MARK + _UNIT.format(config=CONFIG),
        **{guard: MARK + _GUARD.format(config=CONFIG) for guard in GUARDS},
    }


def partitions(networks: t.Sequence[Network], small_mtu: bool = False) -> str:
    """partitions.conf. Without a rule for the default one, only the subnet manager would be a full member of it."""
    own = next((network for network in networks if network.pkey is None), None)
    lines = [_partition("Default", _DEFAULT, _code(own, small_mtu), None)]
    for network in networks:
        if network.pkey is not None:
            lines.append(_partition(network.name, network.pkey & ~FULL, _code(network, small_mtu), network.members))
    return "".join(lines)


def _partition(name: str, key: int, code: int, members: tuple[str, ...] | None) -> str:
    who = "ALL=full" if members is None else ", ".join(f"{guid}=full" for guid in members)
    # The SM's own port in each: its answers about a partition's groups travel in it.
    if members is not None:
        who += ", SELF=full"
    return f"{name}={key:#06x}, ipoib, mtu={code} : {who} ;\n"


def _code(network: Network | None, small_mtu: bool) -> int:
    """The MTU of a broadcast group as the specification numbers it: 4 is 2048 bytes, 5 is 4096."""
    if network is not None and network.mode == "datagram" and network.mtu is not None:
        return 5 if network.mtu + ENCAPSULATION > 2048 else 4
    return 4 if small_mtu else 5


def _cost(
    rack: Rack, name: str, chosen: t.Sequence[Rail], files: t.Mapping[str, str], present: t.Mapping[str, t.Any]
) -> tuple[str, str]:
    """What starting or changing it costs. Cables and forwarding tables stay; ports register anew, keys may go."""
    before = {path: text(present.get(path)) for path in (CONFIG, PARTITION_FILE)}
    if before[CONFIG]:
        gone = sorted(_keys(before[PARTITION_FILE]) - _keys(files[PARTITION_FILE]))
        if gone:
            return "linkflap", f"partition {', '.join(gone)} goes: what talks in it, on any host, is cut off"
        return "none", "opensm reads its files again and stays the master or a standby"
    answering = {rail.port.sm_lid for rail in chosen if rail.port and rail.port.active and rail.port.sm_lid}
    ahead = {lid for node in rack.intent[NODES][: rack.intent[NODES].index(name)] for lid in rack.lids.get(node, ())}
    if not answering:
        return "none", "no subnet manager answers at its ports"
    if answering <= ahead:
        return "none", "it stands by for one with a higher priority"
    lids = ", ".join(map(str, sorted(answering)))
    return (
        "linkflap",
        f"it may take over from the subnet manager at LID {lids}: every port of the fabric registers anew",
    )


def _removal_cost(nodes: t.Sequence[str]) -> tuple[str, str]:
    if nodes:
        return "none", "a standby takes over where it was the master"
    return "none", "traffic goes on; without a subnet manager elsewhere no port comes up any more"


def _keys(partition_file: str) -> set[str]:
    """Keys that a partitions.conf of ours names."""
    heads = [line.split(",")[0] for line in partition_file.splitlines() if "=" in line and not line.startswith("#")]
    return {head.partition("=")[2].strip() for head in heads}
