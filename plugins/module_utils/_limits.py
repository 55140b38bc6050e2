# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Resource limits: what a login, systemd and a running service have, and the files that say so."""

from __future__ import annotations

import os
import resource
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure

UNLIMITED = "unlimited"
CAP_SYS_RESOURCE = 24
MARK = "# Managed by railyard.gpu_fabric; changes are overwritten.\n"

# Name in limits.conf → (name in systemd, label in /proc/<pid>/limits, resource).
KINDS = {
    "memlock": ("MEMLOCK", "Max locked memory", resource.RLIMIT_MEMLOCK),
    "nofile": ("NOFILE", "Max open files", resource.RLIMIT_NOFILE),
    "stack": ("STACK", "Max stack size", resource.RLIMIT_STACK),
    "nproc": ("NPROC", "Max processes", resource.RLIMIT_NPROC),
}
LOGIN_FILE = "/etc/security/limits.d/90-gpu-fabric.conf"
DROP_IN = "90-gpu-fabric.conf"


class Limit(t.NamedTuple):
    """Soft and hard value of one limit, in its unit (bytes, files, processes); -1: unlimited."""

    soft: int
    hard: int

    def __str__(self) -> str:
        soft, hard = (UNLIMITED if value == resource.RLIM_INFINITY else str(value) for value in self)
        return soft if soft == hard else f"{soft} (hard {hard})"


def number(value: t.Any, kind: str) -> int:
    """Return a wanted value as a number; ``unlimited`` is RLIM_INFINITY."""
    if str(value) == UNLIMITED:
        return resource.RLIM_INFINITY
    try:
        wanted = int(value)
    except (TypeError, ValueError):
        wanted = -1
    if wanted < 1:
        raise Failure(f"The limit {kind} must be a positive number or 'unlimited', not {value!r}")
    return wanted


def wanted_limits(limits: t.Mapping[str, t.Any]) -> dict[str, int]:
    unknown = sorted(set(limits) - set(KINDS))
    if unknown:
        raise Failure(f"Unknown limits: {', '.join(unknown)}; known are {', '.join(KINDS)}")
    return {kind: number(value, kind) for kind, value in limits.items()}


def pam_value(kind: str, value: int) -> str:
    """Sizes count in KiB in limits.conf, in bytes everywhere else."""
    if value == resource.RLIM_INFINITY:
        return UNLIMITED
    return str(value // 1024 if kind in ("memlock", "stack") else value)


def login_file(limits: t.Mapping[str, int]) -> str:
    """The file of pam_limits. The ``*`` of pam_limits does not cover root, so root stands on its own."""
    lines = [
        f"{who:<5} {which:<5} {kind:<8} {pam_value(kind, value)}"
        for kind, value in sorted(limits.items())
        for who in ("*", "root")
        for which in ("soft", "hard")
    ]
    return MARK + "\n".join(lines) + "\n"


def systemd_file(section: str, prefix: str, limits: t.Mapping[str, int]) -> str:
    """A drop-in that sets ``<prefix>Limit<NAME>`` in ``section``."""
    lines = [
        f"{prefix}Limit{KINDS[kind][0]}={'infinity' if value == resource.RLIM_INFINITY else value}"
        for kind, value in sorted(limits.items())
    ]
    return MARK + f"[{section}]\n" + "\n".join(lines) + "\n"


def files(limits: t.Mapping[str, int], units: t.Iterable[str]) -> dict[str, str]:
    """Every file by its path: logins, the defaults of both managers, and one drop-in per unit."""
    contents = {LOGIN_FILE: login_file(limits)}
    for manager in ("system", "user"):
        contents[f"/etc/systemd/{manager}.conf.d/{DROP_IN}"] = systemd_file("Manager", "Default", limits)
    for unit in units:
        contents[f"/etc/systemd/system/{unit}.d/{DROP_IN}"] = systemd_file("Service", "", limits)
    return contents


def parse_proc_limits(text: str) -> dict[str, Limit]:
    """Read ``/proc/<pid>/limits``; kinds it does not list are absent."""
    found = {}
    for line in text.splitlines():
        for kind, (_, label, _) in KINDS.items():
            words = line[len(label) :].split()
            if line.startswith(label) and len(words) >= 2:
                soft, hard = (resource.RLIM_INFINITY if word == UNLIMITED else int(word) for word in words[:2])
                found[kind] = Limit(soft, hard)
    return found


def reachable(wanted: int, present: Limit, may_raise: bool) -> Limit:
    """Return what the kernel lets us set: without CAP_SYS_RESOURCE no hard limit can be raised."""
    if may_raise or present.hard == resource.RLIM_INFINITY:
        return Limit(wanted, wanted)
    if wanted == resource.RLIM_INFINITY or wanted > present.hard:
        return Limit(present.hard, present.hard)
    return Limit(wanted, wanted)


# What follows reads and changes processes.


def may_raise_limits() -> bool:
    """Whether this process may raise hard limits. Containers and some sandboxes take that away even from root."""
    with open("/proc/self/status", encoding="ascii") as stream:
        for line in stream:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def limits_of(pid: int) -> dict[str, Limit] | None:
    """Return the limits of a process, ``None`` when it is gone."""
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii") as stream:
            return parse_proc_limits(stream.read())
    except (FileNotFoundError, ProcessLookupError):
        return None


def set_limit(pid: int, kind: str, limit: Limit) -> None:
    try:
        resource.prlimit(pid, KINDS[kind][2], tuple(limit))
    except ProcessLookupError:
        return
    except (PermissionError, ValueError) as exc:
        raise Failure(f"The kernel refuses {kind} {limit} for process {pid} ({os.strerror(1)}): {exc}") from exc


__all__ = (
    "DROP_IN",
    "KINDS",
    "LOGIN_FILE",
    "UNLIMITED",
    "Limit",
    "files",
    "limits_of",
    "login_file",
    "may_raise_limits",
    "parse_proc_limits",
    "reachable",
    "set_limit",
    "systemd_file",
    "wanted_limits",
)
