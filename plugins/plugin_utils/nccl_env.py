# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL's variables for one host: few, derived, each with its reason; and the user's own, checked against the host."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.classify import Classification
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.gpudirect import version_tuple
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, integer, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import exact_list, selector, unreadable
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail

# Since this version NCCL picks the GID itself, by family, scope and RoCE version.
DYNAMIC_GID = (2, 21)
ECMP_QPS = LAG_QPS = "4"

# Variables that do nothing any more, or do harm in a file that every job reads.
FLAGGED: dict[str, str] = {
    "NCCL_IB_CUDA_SUPPORT": "was replaced by NCCL_NET_GDR_LEVEL in 2.4 and is not read",
    "NCCL_RINGS": "was removed; NCCL_GRAPH_FILE describes rings",
    "NCCL_MAX_NRINGS": "was renamed NCCL_MAX_NCHANNELS in 2.5",
    "NCCL_MIN_NRINGS": "was renamed NCCL_MIN_NCHANNELS in 2.5",
    "NCCL_TREE_THRESHOLD": "was removed in 2.5; the tuning model decides",
    "NCCL_LL_THRESHOLD": "was removed in 2.5; the tuning model decides",
    "NCCL_SINGLE_RING_THRESHOLD": "was removed in 2.3",
    "NCCL_CHECKS_DISABLE": "was replaced by NCCL_CHECK_POINTERS in 2.2",
    "NCCL_LAUNCH_MODE": "is not needed since 2.9",
    "NCCL_IB_USE_INLINE": "is for debugging only",
    "NCCL_ALGO": "fails jobs whose collective lacks the algorithm (since 2.24); for tests only",
    "NCCL_PROTO": "can corrupt data silently (LL128 where it is not supported); for tests only",
    "NCCL_NTHREADS": "defeats the tuning model; for tests only",
    "NCCL_DMABUF_ENABLE": "is on by default; 0 is for debugging only",
    "LD_LIBRARY_PATH": "has no effect here: the dynamic linker ran before NCCL reads the file",
}
# One value of these turns the fabric off for every job on the host.
FATAL_VALUES = {
    "NCCL_IB_DISABLE": ("1", "jobs would use TCP instead of the rails"),
    "NCCL_NET": ("Socket", "jobs would use TCP"),
}
# Values that hold every job of the host back; right in a test, and never left over.
HANDICAPS: dict[str, tuple[frozenset[str], str]] = {
    "NCCL_P2P_DISABLE": (frozenset({"1"}), "sends data between the GPUs of a node through host memory, not NVLink"),
    "NCCL_P2P_LEVEL": (
        frozenset({"0", "LOC"}),
        "sends data between the GPUs of a node through host memory, not NVLink",
    ),
    "NCCL_NET_GDR_LEVEL": (frozenset({"0", "LOC"}), "turns GPUDirect RDMA off"),
    "NCCL_SHM_DISABLE": (frozenset({"1"}), "sends data between processes of a node over the network"),
    "NCCL_DMABUF_ENABLE": (frozenset({"0"}), "turns DMA-BUF off, and with it GPUDirect RDMA without nvidia_peermem"),
    "NCCL_NVLS_ENABLE": (frozenset({"0"}), "turns NVLink SHARP off"),
    "NCCL_PXN_DISABLE": (frozenset({"1"}), "keeps data from reaching its rail over NVLink"),
}
# Of these, the ones that cost so much that a run with them measures nothing.
CRIPPLING = frozenset({"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", *FATAL_VALUES})


def handicap(name: str, value: str) -> str | None:
    """Why a value keeps jobs from using what the host has; None for one that does not."""
    value = value.strip().strip("\"'")
    if name in FATAL_VALUES and value == FATAL_VALUES[name][0]:
        return FATAL_VALUES[name][1]
    values, why = HANDICAPS.get(name, (frozenset(), ""))
    return why if value in values else None


def derive(
    machine: Machine,
    intent: t.Mapping[str, t.Any],
    found: Classification,
    rails: t.Sequence[Rail],
    roce: t.Mapping[str, t.Any],
    address: str,
) -> tuple[dict[str, str], dict[str, str], list[Note]]:
    """(variables in order, reason of each, notes)."""
    env: dict[str, str] = {}
    why: dict[str, str] = {}
    notes: list[Note] = []

    def put(name: str, value: str, reason: str) -> None:
        env[name], why[name] = value, reason

    ethernet = any(rail.link_layer == "Ethernet" for rail in rails)
    if rails:
        names = [f"{rail.hca.name}:{rail.port.number if rail.port else 1}" for rail in rails]
        put(
            "NCCL_IB_HCA",
            exact_list(names),
            "the compute ports in rail order, exact names: a prefix would match others",
        )
    if found.management:
        put(
            "NCCL_SOCKET_IFNAME",
            exact_list([found.management]),
            "peers reach this host there; rails and bridges stay out",
        )
        if _ipv6_only(machine, found.management, address):
            put("NCCL_SOCKET_FAMILY", "AF_INET6", f"{found.management} has IPv6 addresses only")
    if rails and ethernet:
        if roce.get("traffic_class") is not None:
            put("NCCL_IB_TC", str(roce["traffic_class"]), f"DSCP {roce['dscp']}: NCCL's default 0 is the lossy class")
        _load_balance(machine, intent, rails, put)
        _gid(machine, intent, rails, put, notes)
    _user(machine, intent, found, rails, roce, env, why, notes)
    return env, why, notes


def _load_balance(
    machine: Machine, intent: t.Mapping[str, t.Any], rails: t.Sequence[Rail], put: t.Callable[[str, str, str], None]
) -> None:
    lags = [rail for rail in rails if is_lag(machine, rail)]
    if lags:
        put(
            "NCCL_IB_QPS_PER_CONNECTION",
            LAG_QPS,
            f"{', '.join(rail.hca.name for rail in lags)} is a bond: one queue pair uses one member only",
        )
    elif intent["gpu_fabric_fabric_lb"] == "ecmp":
        put("NCCL_IB_QPS_PER_CONNECTION", ECMP_QPS, "ECMP hashes queue pairs: one per connection is one path")
    if intent["gpu_fabric_fabric_lb"] == "adaptive":
        put("NCCL_IB_ADAPTIVE_ROUTING", "1", "the fabric sprays packets; off by default on RoCE")


def is_lag(machine: Machine, rail: Rail) -> bool:
    dev = machine.netdevs.get(rail.netdev)
    return "_bond_" in rail.hca.name or bool(dev and dev.kind == "bond")


def _ipv6_only(machine: Machine, management: str, address: str) -> bool:
    dev = machine.netdevs.get(management)
    addresses = list(dev.global_addresses) if dev else []
    if addresses:
        return all(":" in item for item in addresses)
    return ":" in address


def _gid(
    machine: Machine,
    intent: t.Mapping[str, t.Any],
    rails: t.Sequence[Rail],
    put: t.Callable[[str, str, str], None],
    notes: list[Note],
) -> None:
    six = bool(intent["gpu_fabric_rail_ipv6"]) and not intent["gpu_fabric_rail_ipv4"]
    if version_tuple(intent["gpu_fabric_nccl_version"]) >= DYNAMIC_GID:
        if six:
            put("NCCL_IB_ADDR_FAMILY", "AF_INET6", "the rails have IPv6 addresses only")
            put("NCCL_IB_ADDR_RANGE", intent["gpu_fabric_rail_ipv6"], "GIDs of the rails' pool, not link-local ones")
        return
    if "NCCL_IB_GID_INDEX" in intent["gpu_fabric_nccl_env"]:
        return
    indexes = {f"{rail.hca.name}:{rail.port.number if rail.port else 1}": gid_index(rail, six) for rail in rails}
    seen = {index for index in indexes.values() if index is not None}
    if len(seen) == 1 and None not in indexes.values():
        reason = f"NCCL {intent['gpu_fabric_nccl_version']} does not choose; index of the RoCE v2 address on every rail"
        put("NCCL_IB_GID_INDEX", str(seen.pop()), reason)
    elif len(seen) > 1:
        notes.append(
            Note(
                "RF-PLAN-GID-INDEX",
                ",".join(indexes),
                f"NCCL {intent['gpu_fabric_nccl_version']} takes one GID index for all rails, but they differ: "
                + ", ".join(f"{name} index {index}" for name, index in indexes.items()),
                [f"{name}: {row}" for name, row in _gid_rows(rails)],
                "Set gpu_fabric_nccl_version to 2.21 or newer, or make the rails' address lists alike",
            )
        )


def gid_index(rail: Rail, six: bool = False) -> int | None:
    """Lowest index with a routable RoCE v2 address of the wanted family."""
    best = None
    for row in rail.port.gids if rail.port else ():
        index = integer(row.get("index"))
        if index is None or "v2" not in text(row.get("type")):
            continue
        kind = gid_kind(text(row.get("gid")))
        if kind == ("ipv6" if six else "ipv4") and (best is None or index < best):
            best = index
    return best


def gid_kind(gid: str) -> str:
    """ipv4, ipv6, link-local, zero or "" (no GID)."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return ""
    if address.ipv4_mapped:
        return "ipv4"
    if int(address) == 0 or (int(address) >> 64 in (0xFE80 << 48,) and int(address) & (1 << 64) - 1 == 0):
        return "zero"
    return "link-local" if address.is_link_local else "ipv6"


def _gid_rows(rails: t.Sequence[Rail]) -> list[tuple[str, str]]:
    return [
        (rail.hca.name, f"index {row.get('index')} {row.get('gid')} {row.get('type')}")
        for rail in rails
        for row in (rail.port.gids if rail.port else ())
    ]


def _user(
    machine: Machine,
    intent: t.Mapping[str, t.Any],
    found: Classification,
    rails: t.Sequence[Rail],
    roce: t.Mapping[str, t.Any],
    env: dict[str, str],
    why: dict[str, str],
    notes: list[Note],
) -> None:
    """The user's variables over the derived ones. What cannot be right is noted and kept out."""
    for name, value in sorted(intent["gpu_fabric_nccl_env"].items(), key=lambda item: natural(item[0])):
        if value is None:
            env.pop(name, None)
            why.pop(name, None)
            continue
        value = str(value)
        complaint = unreadable(value)
        if complaint:
            notes.append(_bad(name, value, complaint, name))
            continue
        checked = _check(machine, intent, found, rails, roce, name, value)
        notes += checked
        if any(note.id == "RF-PLAN-NCCL-ENV" for note in checked):
            continue
        env[name], why[name] = value, "set in gpu_fabric_nccl_env"


def _bad(name: str, value: str, reason: str, device: str, evidence: list[str] | None = None) -> Note:
    return Note(
        "RF-PLAN-NCCL-ENV",
        device,
        f"{name}={value} {reason}",
        [f"gpu_fabric_nccl_env: {name}: {value}", *(evidence or [])],
        f"Correct or remove {name} in gpu_fabric_nccl_env",
    )


def _check(
    machine: Machine,
    intent: t.Mapping[str, t.Any],
    found: Classification,
    rails: t.Sequence[Rail],
    roce: t.Mapping[str, t.Any],
    name: str,
    value: str,
) -> list[Note]:
    if name in FLAGGED:
        note = _bad(name, value, FLAGGED[name], name)
        return [note._replace(id="RF-PLAN-NCCL-ENV-OBSOLETE")]
    if name in FATAL_VALUES and value == FATAL_VALUES[name][0]:
        return [_bad(name, value, FATAL_VALUES[name][1], name)]
    if (why := handicap(name, value)) is not None:
        return [_bad(name, value, why, name)._replace(id="RF-PLAN-NCCL-ENV-OBSOLETE")]
    if name == "NCCL_TOPO_FILE" and not machine.virtual and machine.virtualization is not None:
        note = _bad(name, value, "replaces the PCI tree, which this bare-metal host shows as it is", name)
        return [note._replace(id="RF-PLAN-NCCL-ENV-OBSOLETE")]
    if name == "NCCL_IB_HCA":
        return _check_hca(machine, found, rails, value)
    if name == "NCCL_SOCKET_IFNAME":
        return _check_interface(machine, value)
    if name in ("NCCL_IB_TC", "NCCL_IB_FIFO_TC") and roce.get("dscp") is not None and rails:
        return _check_tc(name, value, roce)
    if name == "NCCL_IB_GID_INDEX":
        return _check_gid(intent, rails, value)
    return []


def _check_hca(machine: Machine, found: Classification, rails: t.Sequence[Rail], value: str) -> list[Note]:
    chosen = selector(value)
    if chosen.problems:
        return [_bad("NCCL_IB_HCA", value, problem, "NCCL_IB_HCA") for problem in chosen.problems]
    notes = []
    roles = {verdict.name: verdict.role for verdict in found.verdicts}
    names = {hca.name for hca in machine.hcas}
    if not chosen.exclude and names:
        for item, _ in chosen.items:
            hits = [name for name in names if (name == item if chosen.exact else name.startswith(item))]
            if not hits:
                shown = [f"devices: {', '.join(sorted(names, key=natural))}"]
                notes.append(
                    _bad("NCCL_IB_HCA", value, f"names {item}, which is no device of {machine.name}", item, shown)
                )
            elif not chosen.exact and len(hits) > 1 and item in hits:
                others = ", ".join(sorted(set(hits) - {item}, key=natural))
                notes.append(
                    _bad("NCCL_IB_HCA", value, f"matches by prefix: {item} also selects {others}; write ={item}", item)
                )
    taken = [
        hca.name
        for hca in machine.hcas
        if roles.get(hca.name) in ("storage", "management", "nvswitch_bridge", "vf")
        and any(chosen.matches(hca.name, port.number) and port.active for port in hca.ports)
    ]
    if taken:
        listed = ", ".join(f"{name} ({roles[name]})" for name in taken)
        notes.append(_bad("NCCL_IB_HCA", value, f"selects {listed}, which are no rails", ",".join(taken)))
    return notes


def _check_interface(machine: Machine, value: str) -> list[Note]:
    chosen = selector(value, ports=False)
    if chosen.problems:
        return [_bad("NCCL_SOCKET_IFNAME", value, problem, "NCCL_SOCKET_IFNAME") for problem in chosen.problems]
    if not machine.netdevs:
        return []
    hits = [dev for dev in machine.netdevs.values() if chosen.matches(dev.name) and dev.name != "lo"]
    if not hits:
        shown = [f"interfaces: {', '.join(sorted(machine.netdevs, key=natural))}"]
        return [
            _bad("NCCL_SOCKET_IFNAME", value, f"matches no interface of {machine.name}", "NCCL_SOCKET_IFNAME", shown)
        ]
    virtual = [
        dev.name for dev in hits if dev.kind in ("veth", "bridge") or dev.name.startswith(("docker", "cni", "cilium"))
    ]
    if virtual and len(virtual) < len(hits):
        shown_names = ", ".join(sorted(virtual))
        return [_bad("NCCL_SOCKET_IFNAME", value, f"also selects {shown_names}, which peers cannot reach", virtual[0])]
    return []


def _check_tc(name: str, value: str, roce: t.Mapping[str, t.Any]) -> list[Note]:
    number = integer(value)
    if number is None or not 0 <= number <= 255:
        return [_bad(name, value, "is not a byte", name)]
    if number >> 2 == roce["dscp"]:
        return []
    return [
        _bad(
            name,
            value,
            f"is DSCP {number >> 2}, priority {number >> 5}; the rails carry DSCP {roce['dscp']} on priority "
            f"{roce['priority']} (traffic class {roce['traffic_class']})",
            name,
        )
    ]


def _check_gid(intent: t.Mapping[str, t.Any], rails: t.Sequence[Rail], value: str) -> list[Note]:
    index, notes = integer(value), []
    if index is None:
        return [_bad("NCCL_IB_GID_INDEX", value, "is not a number", "NCCL_IB_GID_INDEX")]
    for rail in rails:
        rows = {integer(row.get("index")): row for row in (rail.port.gids if rail.port else ())}
        if rail.link_layer != "Ethernet" or not rows:
            continue
        row = rows.get(index)
        kind = gid_kind(text(row.get("gid"))) if row else ""
        shown = f"index {index} {row.get('gid')} {row.get('type')}" if row else f"index {index} is empty"
        if row and "v2" in text(row.get("type")) and kind in ("ipv4", "ipv6"):
            continue
        better = gid_index(rail, bool(intent["gpu_fabric_rail_ipv6"]) and not intent["gpu_fabric_rail_ipv4"])
        hint = f"; index {better} has the RoCE v2 address" if better is not None else ""
        notes.append(
            _bad(
                "NCCL_IB_GID_INDEX",
                value,
                f"on {rail.hca.name}: {shown} cannot be routed{hint}",
                rail.hca.name,
                [shown],
            )
        )
    if not notes and index >= 0 and version_tuple(intent["gpu_fabric_nccl_version"]) >= DYNAMIC_GID:
        note = _bad(
            "NCCL_IB_GID_INDEX",
            value,
            "should not be set since NCCL 2.21, which chooses by itself",
            "NCCL_IB_GID_INDEX",
        )
        return [note._replace(id="RF-PLAN-NCCL-ENV-OBSOLETE")]
    return notes
