# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Kernel parameters: as they are, and as the files set them at boot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import sysctl_output
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysctl import DIRECTORIES

__all__ = ["KEYS", "collect", "files", "normalize"]

#: Keys that the plan may set, or that a rule reads; per-interface keys are added for the interfaces that exist.
KEYS = (
    "fs.file-max", "fs.nr_open", "fs.aio-max-nr",
    "kernel.numa_balancing", "kernel.nmi_watchdog", "kernel.timer_migration", "kernel.panic", "kernel.sysrq",
    "kernel.shmmax", "kernel.shmall", "kernel.threads-max", "kernel.pid_max",
    "net.core.rmem_max", "net.core.wmem_max", "net.core.rmem_default", "net.core.wmem_default",
    "net.core.optmem_max", "net.core.netdev_max_backlog", "net.core.somaxconn", "net.core.busy_read",
    "net.core.busy_poll", "net.core.default_qdisc",
    "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_mem", "net.ipv4.tcp_timestamps", "net.ipv4.tcp_sack",
    "net.ipv4.tcp_ecn", "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_forward",
    "net.ipv4.neigh.default.gc_thresh1", "net.ipv4.neigh.default.gc_thresh2", "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv6.neigh.default.gc_thresh1", "net.ipv6.neigh.default.gc_thresh2", "net.ipv6.neigh.default.gc_thresh3",
    "net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6",
    "vm.zone_reclaim_mode", "vm.min_free_kbytes", "vm.swappiness", "vm.dirty_ratio", "vm.dirty_background_ratio",
    "vm.stat_interval", "vm.max_map_count", "vm.overcommit_memory", "vm.nr_hugepages",
    "sunrpc.tcp_max_slot_table_entries", "user.max_user_namespaces",
)  # fmt: skip
_PER_INTERFACE = {
    "ipv4": ("arp_ignore", "arp_announce", "arp_filter", "rp_filter", "accept_local"),
    "ipv6": ("accept_ra", "autoconf", "addr_gen_mode", "disable_ipv6"),
}


def collect(source: Source, tools: Tools, interfaces: Iterable[str] = (), extra: Iterable[str] = ()) -> dict[str, Any]:
    keys = dict.fromkeys([*KEYS, *(normalize(key) for key in extra)])
    for interface in ("all", "default", *interfaces):
        # sysctl swaps the separators in a name that holds dots.
        name = interface.replace(".", "/")
        for family, settings in _PER_INTERFACE.items():
            keys.update(dict.fromkeys(f"net.{family}.conf.{name}.{setting}" for setting in settings))
    # A recording may know keys that nobody thought to ask for.
    recorded = (tools.value("sysctl") or {}).get("values", {})
    found = {}
    for key in keys:
        value = source.read("/proc/sys/" + _path(key))
        if value is not None:
            found[key] = " ".join(value.split())
        elif key in recorded:
            found[key] = recorded[key]
    return {**recorded, **found}


def _path(key: str) -> str:
    return key.translate(str.maketrans("./", "/."))


def normalize(key: str) -> str:
    """Dots between the parts, as sysctl prints; the form with slashes begins its first separator with one."""
    key = key.strip()
    dot, slash = key.find("."), key.find("/")
    if slash != -1 and (dot == -1 or slash < dot):
        return key.translate(str.maketrans("./", "/."))
    return key


def files(source: Source) -> list[dict[str, Any]]:
    """`{path, entries}` in the order in which systemd-sysctl applies them: by file name, whatever the directory."""
    chosen: dict[str, str] = {}
    for directory in DIRECTORIES:
        for name in source.listdir(directory):
            if name.endswith(".conf"):
                chosen.setdefault(name, f"{directory}/{name}")
    found = []
    for name in sorted(chosen):
        text = source.read(chosen[name])
        if text is not None:
            entry: dict[str, Any] = {"path": chosen[name], "entries": sysctl_output.parse(text).value["values"]}
            target = source.realpath(chosen[name])
            if target is not None and target != chosen[name]:
                entry["target"] = target
            found.append(entry)
    # procps' `sysctl --system` reads this file last; systemd only through a link of Debian's, listed above.
    text = source.read("/etc/sysctl.conf")
    if text is not None and not any(entry.get("target") == "/etc/sysctl.conf" for entry in found):
        entries = sysctl_output.parse(text).value["values"]
        if entries:
            found.append({"path": "/etc/sysctl.conf", "entries": entries, "applied_by": "sysctl --system"})
    return found
