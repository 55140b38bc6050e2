# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel parameters that the fabric needs, each with its reason.

RDMA itself bypasses the TCP stack; what is set here serves bootstrap, storage and checkpoints over TCP, neighbour
tables that fit the rack, and several rails on one host.
"""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysctl import canonical, spelling

# (key, value, reason). The facts read these keys, so that a kernel that lacks one is known before anything is written.
GENERAL: tuple[tuple[str, str, str], ...] = (
    ("net.core.rmem_max", "67108864", "receive windows of TCP storage and checkpoints on 100 Gb/s and faster links"),
    ("net.core.wmem_max", "67108864", "send windows of TCP storage and checkpoints on 100 Gb/s and faster links"),
    ("net.ipv4.tcp_rmem", "4096 131072 67108864", "lets TCP autotuning use net.core.rmem_max"),
    ("net.ipv4.tcp_wmem", "4096 65536 67108864", "lets TCP autotuning use net.core.wmem_max"),
    ("net.core.somaxconn", "4096", "rank 0 accepts a connection from every rank at start"),
)
GPU_HOST: tuple[tuple[str, str, str], ...] = (
    ("kernel.numa_balancing", "0", "page migration stalls ranks that are bound to their NUMA node already"),
    ("vm.max_map_count", "1048576", "large jobs map more regions than the default allows"),
)
NEIGHBOURS: tuple[tuple[str, str], ...] = (("gc_thresh1", "4096"), ("gc_thresh2", "8192"), ("gc_thresh3", "16384"))
# Above this many neighbours the kernel's default table (1024) is full before the rack has been resolved.
NEIGHBOUR_LIMIT = 800
KEYS: tuple[str, ...] = tuple(key for key, _, _ in GENERAL + GPU_HOST) + tuple(
    f"net.{family}.neigh.default.{name}" for family in ("ipv4", "ipv6") for name, _ in NEIGHBOURS
)


def interface_key(family: str, netdev: str, name: str) -> str:
    """net.ipv4.conf.IF.name; sysctl swaps the separators in the name of an interface with a dot (a VLAN)."""
    return f"net.{family}.conf.{netdev.replace('.', '/')}.{name}"


def for_host(
    intent: t.Mapping[str, t.Any],
    *,
    rails: t.Sequence[tuple[str, bool, bool]],
    neighbours: int,
    has_gpus: bool,
    container: bool,
    offered: t.Mapping[str, t.Any],
    shared: t.Sequence[str] = (),
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The set, and what was left out of it with the reason.

    *rails* are (interface, has IPv4, has IPv6) of RoCE rails; *neighbours* are hosts times rails; *offered* are the
    parameters that facts read on the host (empty: not known); *shared* are addressed interfaces over InfiniBand.
    """
    wanted: dict[str, dict[str, str]] = {}
    for key, value, reason in GENERAL + (GPU_HOST if has_gpus else ()):
        wanted[key] = {"value": value, "reason": reason}
    if neighbours > NEIGHBOUR_LIMIT:
        families = ("ipv4", "ipv6") if any(six for _, _, six in rails) else ("ipv4",)
        for family in families:
            for name, value in NEIGHBOURS:
                wanted[f"net.{family}.neigh.default.{name}"] = {
                    "value": value,
                    "reason": f"{neighbours} neighbours in the rack (hosts times rails) overflow the default table",
                }
    left_out = {}
    for key in list(wanted):
        if container and key.startswith(("vm.", "kernel.")):
            left_out[key] = "the host is a container and shares its kernel's memory management with others"
        elif offered and key not in offered:
            left_out[key] = "this kernel does not offer it"
        else:
            continue
        del wanted[key]
    wanted.update(_per_rail(intent, rails, not offered or any(key.startswith("net.ipv6.") for key in offered)))
    wanted.update(_shared(shared))
    for key, value in sorted(intent["gpu_fabric_sysctl"].items()):
        # whichever way the parameter is spelt, it is one
        key = next((other for other in wanted if canonical(other) == canonical(key)), key)
        if value is None:
            if wanted.pop(key, None):
                left_out[key] = "removed by gpu_fabric_sysctl"
        else:
            wanted[key] = {"value": spelling(value), "reason": "set in gpu_fabric_sysctl"}
    return dict(sorted(wanted.items())), left_out


def _shared(netdevs: t.Sequence[str]) -> dict[str, dict[str, str]]:
    """Ports of one fabric hear each other's broadcasts, whatever subnets they have."""
    if len(netdevs) < 2:
        return {}
    return {
        interface_key("ipv4", netdev, name): {"value": "2", "reason": reason}
        for netdev in netdevs
        for name, reason in (
            ("arp_ignore", "ports of one InfiniBand fabric hear all requests: each answers for its own address only"),
            ("arp_announce", "ports of one InfiniBand fabric hear all requests: each asks with its own address"),
        )
    }


def _per_rail(
    intent: t.Mapping[str, t.Any], rails: t.Sequence[tuple[str, bool, bool]], has_ipv6: bool
) -> dict[str, dict[str, str]]:
    wanted = {}
    flat = intent["gpu_fabric_rail_mode"] == "flat" and len(rails) > 1
    sourced = flat or intent["gpu_fabric_rail_mode"] == "routed_31" or intent["gpu_fabric_rail_gateways"]
    for netdev, four, six in rails:
        entries = []
        if flat and four:
            entries += [
                ("ipv4", "arp_ignore", "2", "rails share a subnet: each answers ARP only for its own address"),
                ("ipv4", "arp_announce", "2", "rails share a subnet: each asks with its own address"),
            ]
        if sourced and four:
            entries.append(
                ("ipv4", "rp_filter", "2", "a reply may come by another rail than the best route; loose check")
            )
        if not six and has_ipv6:
            entries.append(("ipv6", "accept_ra", "0", "a router advertisement on a rail must not give a default route"))
        for family, name, value, reason in entries:
            wanted[interface_key(family, netdev, name)] = {"value": value, "reason": reason}
    return wanted
