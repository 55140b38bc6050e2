# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NCCL says about its interfaces and devices."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RackView, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.nccl_log import Message, messages, settings

PLUGIN_DIFFERS = define(
    "nccl",
    "RF-NCCL-PLUGIN-DIFFERS",
    title="Nodes of one job load different NCCL net plugins or versions",
    severity="fail",
    phase="diagnose",
    means="The job hangs without an error as soon as nodes of both groups take part; each group alone works.",
    looks_at="NET/Plugin, plugin path and NCCL version lines of an NCCL log, per node; NCCL's own complaint about "
    "mismatched versions.",
    cause="LD_LIBRARY_PATH or the image differs: libnccl-net.so (HPC-X) is found on some nodes only, or another "
    "libnccl comes first.",
    remedy="Make library paths equal on all nodes, or set NCCL_NET_PLUGIN=none for the job; compare with ldd as the "
    "job's environment resolves it, not with package lists.",
    check="The NCCL log prints the same plugin lines on every node.",
    source="https://github.com/NVIDIA/nccl/issues/1634",
)

BOOTSTRAP = define(
    "nccl",
    "RF-NCCL-BOOTSTRAP-INTERFACE",
    title="NCCL bootstraps over an interface that peers cannot reach",
    severity="fail",
    phase="diagnose",
    means="The out-of-band connection goes over a bridge or container interface whose address exists on every node; "
    "initialisation hangs or is refused.",
    looks_at="'Bootstrap : Using' and 'NET/Socket : Using' of an NCCL log.",
    cause="NCCL_SOCKET_IFNAME is not set, or is an exclusion list that leaves local interfaces in.",
    remedy="Run site.yml --tags nccl: NCCL_SOCKET_IFNAME is written per host in its exact form.",
    check="NCCL INFO Bootstrap : Using the management interface.",
    source="NCCL networking troubleshooting guide; https://github.com/NVIDIA/nccl/issues/913",
)

NO_DEVICE = define(
    "nccl",
    "RF-NCCL-NO-IB",
    title="NCCL found no RDMA device and uses TCP",
    severity="fail",
    phase="diagnose",
    means="A node runs the job over sockets at a fraction of the bandwidth, or init hangs because its peers use RDMA.",
    looks_at="'NET/IB : No device found' and 'Using network Socket' of an NCCL log, per node.",
    cause="No active RDMA device: modules missing after a kernel update, NCCL_IB_HCA names no device of this node, or "
    "the container does not see /dev/infiniband.",
    remedy="Check ls /sys/class/infiniband and NCCL_IB_HCA on the node; site.yml --tags ofed,nccl sets both right.",
    check="The log says Using network IB on every node.",
    source="https://github.com/Azure/azhpc-images/issues/119; https://github.com/NVIDIA/nccl/issues/234",
)

NO_INTERFACE = define(
    "nccl",
    "RF-NCCL-NO-INTERFACE",
    title="NCCL finds no interface for its bootstrap",
    severity="fail",
    phase="diagnose",
    means="No process of this node can join the job: NCCL_SOCKET_IFNAME matches no interface that is up and has an "
    "address.",
    looks_at="'no socket interface found' and 'No interface found' of an NCCL log, with the value that was set.",
    cause="The name was taken from another node, or is an exclusion that leaves nothing.",
    remedy="Run site.yml --tags nccl: NCCL_SOCKET_IFNAME is derived per host; remove the value from the job.",
    check="NCCL INFO Bootstrap : Using the management interface.",
    source="https://github.com/NVIDIA/nccl/issues/913",
)

MIXED = define(
    "nccl",
    "RF-NCCL-MIXED-LINK-LAYERS",
    title="NCCL takes InfiniBand and Ethernet ports into one job",
    severity="fail",
    phase="diagnose",
    means="NCCL pairs devices of two nodes by their place in the list: an InfiniBand port is connected to an Ethernet "
    "port, and the job ends or hangs.",
    looks_at="The devices of 'NET/IB : Using' of an NCCL log, per node.",
    cause="NCCL_IB_HCA is not set, so storage and management ports of the other kind take part.",
    remedy="Run site.yml --tags nccl: NCCL_IB_HCA lists the rails of each host exactly.",
    check="NET/IB : Using lists ports of one kind.",
    source="https://github.com/NVIDIA/nccl/issues/234; https://github.com/imbue-ai/cluster-health/issues/4",
)

_VIRTUAL = re.compile(r"^(docker|virbr|br-|veth|cni|cilium|lxc|flannel|kube|podman|tunl|lxdbr|tailscale|cali)")


_MISMATCHED = re.compile(
    r"Mismatched NCCL version detected : rank (?P<a>\d+) version (?P<va>\d+) rank (?P<b>\d+) version (?P<vb>\d+)"
)


def _plain(number: str) -> str:
    """22105 → 2.21.5, as NCCL counts since 2.9."""
    code = int(number)
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}" if code >= 10000 else number


def _mismatched(node: str, match: re.Match[str], line: str) -> Finding:
    one, other = _plain(match["va"]), _plain(match["vb"])
    return PLUGIN_DIFFERS.on(
        "",
        f"The NCCL version differs within one job: rank {match['a']} has {one}, rank {match['b']} has {other} (said by "
        f"{node}); the same on every node wanted",
        device="libnccl.so.2",
        evidence=[line],
    )


@rack_rule(PLUGIN_DIFFERS)
def plugin_differs(rack: RackView) -> t.Iterator[Finding]:
    plugin: dict[str, tuple[str, str]] = {}
    version: dict[str, tuple[str, str]] = {}
    for node, rest, line in messages(rack):
        if match := re.search(r"Plugin Path : (\S+)|NET/Plugin ?: (?:Loaded net plugin|Using) (\S+)", rest):
            plugin[node] = (next(group for group in match.groups() if group), line)
        elif re.search(r"NET/Plugin.*(Could not find|No plugin found|Using internal)", rest):
            plugin.setdefault(node, ("internal", line))
        if match := _MISMATCHED.search(rest):
            yield _mismatched(node, match, line)
            return
        if match := re.search(r"NCCL version (\d+\.\d+\.\d+\S*)", rest):
            version[node] = (match.group(1), line)
    for kind, seen in (("net plugin", plugin), ("NCCL version", version)):
        groups: dict[str, list[str]] = collections.defaultdict(list)
        for node, (value, _line) in seen.items():
            groups[value].append(node)
        if len(groups) < 2:
            continue
        parts = [f"{', '.join(sorted(nodes, key=natural))}: {value}" for value, nodes in sorted(groups.items())]
        odd = min(groups.values(), key=len)
        yield PLUGIN_DIFFERS.on(
            "",
            f"The {kind} differs between nodes of one job: {'; '.join(parts)}; the same on every node wanted",
            device="libnccl-net.so" if kind == "net plugin" else "libnccl.so.2",
            evidence=[line for _value, line in (seen[node] for nodes in groups.values() for node in nodes[:2])],
            remedy=f"Give {', '.join(sorted(odd, key=natural))} the same libraries as the others: libnccl-net.so and "
            "libnccl.so.2 must resolve to the same files in the job's environment (ldd, LD_LIBRARY_PATH), or set "
            "NCCL_NET_PLUGIN=none for the job.",
        )


@rack_rule(BOOTSTRAP)
def bootstrap_interface(rack: RackView) -> t.Iterator[Finding]:
    pattern = re.compile(r"(?:Bootstrap|NET/Socket) ?: Using (?:\[\d+\])?(?P<name>[\w.@-]+):(?P<address>[^<\s]+)")
    seen: set[str] = set()
    for node, text, line in messages(rack):
        match = pattern.search(text)
        if not match or not _VIRTUAL.match(match["name"]) or node in seen:
            continue
        seen.add(node)
        yield BOOTSTRAP.on(
            node,
            f"{node}: NCCL uses interface {match['name']} ({match['address']}) for its bootstrap; the interface that "
            "peers reach this host on wanted (NCCL_SOCKET_IFNAME)",
            device=match["name"],
            evidence=[line],
        )


@rack_rule(NO_INTERFACE)
def no_interface(rack: RackView) -> t.Iterator[Finding]:
    said = settings(rack)
    for node, found in _first(rack, r"no socket interface found|NET/Socket : No interface found").items():
        value, line = said.get(node, {}).get("NCCL_SOCKET_IFNAME", ("", ""))
        host = rack.by_name(node)
        present = ", ".join(sorted(host.section("netdevs"), key=natural)[:8]) if host else ""
        yield NO_INTERFACE.on(
            node,
            f"{node}: NCCL finds no interface for its bootstrap"
            + (f": NCCL_SOCKET_IFNAME is {value}" if value else "")
            + (f", the host has {present}" if present else "")
            + "; the interface that peers reach this host on wanted",
            device="NCCL_SOCKET_IFNAME",
            evidence=[found.line, line],
        )


def _first(rack: RackView, pattern: str) -> dict[str, Message]:
    """The first message of each node that matches."""
    found: dict[str, Message] = {}
    for message in messages(rack):
        if re.search(pattern, message.text):
            found.setdefault(message.node, message)
    return found


@rack_rule(NO_DEVICE)
def no_device(rack: RackView) -> t.Iterator[Finding]:
    said = settings(rack)
    pattern = r"NET/IB : No device found|Using network Socket|Failed to open libibverbs"
    for node, found in _first(rack, pattern).items():
        reasons = [
            f"{name} is {said[node][name][0]}"
            for name in ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA")
            if name in said.get(node, {}) and said[node][name][0] != "0"
        ]
        if "libibverbs" in found.text:
            reasons.append("libibverbs is not installed where the job runs")
        yield NO_DEVICE.on(
            node,
            f"{node}: NCCL finds no RDMA device and uses TCP{': ' + ', '.join(reasons) if reasons else ''}; network IB "
            "wanted",
            device="NET/IB",
            evidence=[found.line, *(said[node][reason.split()[0]][1] for reason in reasons if reason[:4] == "NCCL")],
        )


@rack_rule(MIXED)
def mixed_link_layers(rack: RackView) -> t.Iterator[Finding]:
    for node, found in _first(rack, r"NET/IB ?: Using \[").items():
        kinds: dict[str, list[str]] = collections.defaultdict(list)
        for name, kind in re.findall(r"\[\d+\]([\w.-]+):\d+/(IB|RoCE)\b", found.text):
            kinds[kind].append(name)
        if len(kinds) > 1:
            shown = " and ".join(f"{kind} ({', '.join(names[:10])})" for kind, names in sorted(kinds.items()))
            yield MIXED.on(
                node,
                f"{node}: NCCL uses {shown} in one job; ports of one kind wanted",
                device=", ".join(min(kinds.values(), key=len)),
                evidence=[found.line],
            )
