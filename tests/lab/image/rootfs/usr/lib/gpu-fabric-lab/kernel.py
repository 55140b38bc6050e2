# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel settings of one node.

A container shares most of ``/proc/sys`` with the machine under it: ``vm.*``, ``fs.*`` and much of ``kernel.*`` would be
written there, and ``net.core.rmem_max`` and its like are missing or read-only outside the first network namespace.
Those become the node's own: plain files of a tmpfs, new with every boot as a kernel's are. What the kernel does keep
per namespace (``net.ipv4``, ``net.ipv6``, host name, IPC) stays the real thing.
"""

from __future__ import annotations

import ctypes
import os
import stat
import uuid
from pathlib import Path

PROC_SYS = Path("/proc/sys")
REAL = Path("/usr/lib/gpu-fabric-lab/proc-sys")

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x20, 0x1000, 0x2, 0x4, 0x8
CAP_SYS_RESOURCE = 24

# Per UTS, IPC or PID namespace, or different with every reading: bound to the kernel's own.
REAL_ONES = {
    "kernel": ("hostname", "domainname", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "msgmax", "msgmnb",
               "msgmni", "auto_msgmni", "ns_last_pid", "random/uuid"),
}  # fmt: skip
SKIPPED = {"binfmt_misc"}  # an automount of the whole machine

# A Debian server's values; those of net/ exist in the first network namespace only.
DEFAULTS = {
    "net/core": {
        "rmem_max": "212992", "wmem_max": "212992", "rmem_default": "212992", "wmem_default": "212992",
        "netdev_max_backlog": "1000", "netdev_budget": "300", "netdev_budget_usecs": "8000", "dev_weight": "64",
        "busy_poll": "0", "busy_read": "0", "default_qdisc": "pfifo_fast", "rps_sock_flow_entries": "0",
        "flow_limit_table_len": "4096", "netdev_tstamp_prequeue": "1", "message_burst": "10", "message_cost": "5",
    },
    "vm": {"zone_reclaim_mode": "0", "swappiness": "60", "dirty_ratio": "20", "dirty_background_ratio": "10",
           "max_map_count": "65530", "min_free_kbytes": "90112", "stat_interval": "1", "nr_hugepages": "0",
           "overcommit_memory": "0", "compaction_proactiveness": "20"},
    "kernel": {"numa_balancing": "1", "nmi_watchdog": "1", "watchdog": "1", "timer_migration": "1", "panic": "0",
               "sched_rt_runtime_us": "950000", "pid_max": "4194304", "threads-max": "8254874", "sysrq": "438",
               "perf_event_paranoid": "3", "randomize_va_space": "2"},
    "fs": {"nr_open": "1048576", "file-max": "9223372036854775807", "aio-max-nr": "65536"},
}  # fmt: skip


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str | None, flags: int, data: str = "") -> None:
    kind_bytes = kind.encode() if kind else None
    if _libc().mount(source.encode(), str(target).encode(), kind_bytes, flags, data.encode()) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot mount {source} on {target}: {os.strerror(error)}")


def _copy(real: Path, own: Path) -> None:
    """Fill `own` with the values of `real` as plain files."""
    for name in sorted(set(os.listdir(real)) - SKIPPED):
        source, target = real / name, own / name
        mode = source.lstat().st_mode
        if stat.S_ISDIR(mode):
            target.mkdir()
            _copy(source, target)
            continue
        try:
            text = source.read_text()
        except (OSError, UnicodeDecodeError):  # a trigger such as vm.compact_memory: it can be written only
            text = ""
        target.write_text(text)
        target.chmod(stat.S_IMODE(mode))


def give_own_settings() -> str:
    """Lay the node's own settings over /proc/sys; return the identifier of this boot."""
    boot_id = str(uuid.uuid4())
    if not os.access(PROC_SYS / "vm/swappiness", os.W_OK):  # an engine that hands it over read-only
        mount("none", PROC_SYS, None, MS_REMOUNT | MS_BIND)
    REAL.mkdir(parents=True, exist_ok=True)
    mount(str(PROC_SYS), REAL, None, MS_BIND)
    for area, defaults in DEFAULTS.items():
        own = PROC_SYS / area
        if not own.is_dir():
            continue
        mount("lab-sysctl", own, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=4m")
        _copy(REAL / area, own)
        for name, value in defaults.items():
            (own / name).write_text(value + "\n")
            (own / name).chmod(0o644)
        for name in REAL_ONES.get(area, ()):
            if (own / name).exists():
                mount(str(REAL / area / name), own / name, None, MS_BIND)
    # A kernel that boots draws a new identifier; containers would all show the one of the machine under them.
    (PROC_SYS / "kernel/random/boot_id").chmod(0o644)
    (PROC_SYS / "kernel/random/boot_id").write_text(boot_id + "\n")
    return boot_id


def make_sysfs_read_only() -> None:
    """As systemd's container interface asks: it then leaves devices to the machine that owns them (no udev)."""
    mount("none", Path("/sys"), None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def can_raise_limits() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def tolerate_fixed_limits() -> None:
    """Where this machine may raise no limit (no CAP_SYS_RESOURCE), pam_limits must not lock logins out.

    Nothing changes on a machine that may: there a limits file that cannot be applied refuses the login, as it should.
    """
    if can_raise_limits():
        return
    for path in Path("/etc/pam.d").iterdir():
        text = path.read_text()
        lines = [
            line.replace("required", "optional", 1) if "pam_limits.so" in line and not line.startswith("#") else line
            for line in text.splitlines(keepends=True)
        ]
        if "".join(lines) != text:
            path.write_text("".join(lines))
