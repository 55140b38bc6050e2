# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Resource limits: what a login, systemd and a running service have, and the files that say so."""

from __future__ import annotations

import os
import resource
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.limits import parse_limits_conf
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import HEADER, Failure, conf_files, read_text

UNLIMITED = "unlimited"
CAP_SYS_RESOURCE = 24

# Name in limits.conf → (name in systemd, label in /proc/<pid>/limits, resource).
KINDS = {
    "memlock": ("MEMLOCK", "Max locked memory", resource.RLIMIT_MEMLOCK),
    "nofile": ("NOFILE", "Max open files", resource.RLIMIT_NOFILE),
    "stack": ("STACK", "Max stack size", resource.RLIMIT_STACK),
    "nproc": ("NPROC", "Max processes", resource.RLIMIT_NPROC),
}
LOGIN_DIRECTORY = "/etc/security/limits.d"
LOGIN_FILE = f"{LOGIN_DIRECTORY}/90-gpu-fabric.conf"
DROP_IN = "90-gpu-fabric.conf"


def shown(value: int) -> str:
    return UNLIMITED if value == resource.RLIM_INFINITY else str(value)


class Limit(t.NamedTuple):
    """Soft and hard value of one limit, in its unit (bytes, files, processes); -1: unlimited."""

    soft: int
    hard: int

    def __str__(self) -> str:
        soft, hard = (shown(value) for value in self)
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
    return HEADER + "\n".join(lines) + "\n"


def systemd_file(section: str, prefix: str, limits: t.Mapping[str, int]) -> str:
    """A drop-in that sets ``<prefix>Limit<NAME>`` in ``section``."""
    lines = [
        f"{prefix}Limit{KINDS[kind][0]}={'infinity' if value == resource.RLIM_INFINITY else value}"
        for kind, value in sorted(limits.items())
    ]
    return HEADER + f"[{section}]\n" + "\n".join(lines) + "\n"


def files(limits: t.Mapping[str, int], logins: t.Mapping[str, int], units: t.Iterable[str]) -> dict[str, str]:
    """Every file by its path: logins, the defaults of both managers, and one drop-in per unit."""
    contents = {LOGIN_FILE: login_file(logins)}
    for manager in ("system", "user"):
        contents[f"/etc/systemd/{manager}.conf.d/{DROP_IN}"] = systemd_file("Manager", "Default", limits)
    for unit in units:
        contents[f"/etc/systemd/system/{unit}.d/{DROP_IN}"] = systemd_file("Service", "", limits)
    return contents


def login_limits(limits: t.Mapping[str, int], given: t.Iterable[t.Mapping[str, Limit]]) -> dict[str, int]:
    """What pam_limits can set where nobody may raise a limit: it refuses the login, root's too, if it cannot set one.

    *given* is what those have who start logins.
    """
    reached = dict(limits)
    for present in given:
        reached = {kind: reachable(value, present[kind], False).hard for kind, value in reached.items()}
    return reached


def login_overrides(logins: t.Mapping[str, int], root: str = "/") -> list[str]:
    """What files of a later name give to logins instead, one sentence each."""
    name = os.path.basename(LOGIN_FILE)
    winners: dict[tuple[str, str, str], tuple[t.Any, str]] = {}
    for path in conf_files([LOGIN_DIRECTORY], root):
        if os.path.basename(path) > name:
            text = read_text(os.path.join(root, path.lstrip("/"))) or ""
            for domain, bound, kind, value in parse_limits_conf(text):
                for each in ("soft", "hard") if bound == "-" else (bound,):
                    winners[domain, each, kind] = (value, path)
    unit = {kind: 1024 if kind in ("memlock", "stack") else 1 for kind in KINDS}
    return [
        f"{domain} gets {bound} {kind} {value} from {path}, not {shown(wanted)}"
        for (domain, bound, kind), (value, path) in winners.items()
        for wanted in (logins.get(kind),)
        if domain in ("*", "root") and wanted is not None
        if value != (UNLIMITED if wanted == resource.RLIM_INFINITY else wanted // unit[kind] * unit[kind])
    ]


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


def nofile_ceiling() -> int:
    """How many open files the kernel lets any process have."""
    return int(read_text("/proc/sys/fs/nr_open") or resource.RLIM_INFINITY)


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
        resource.prlimit(pid, KINDS[kind][2], (limit.soft, limit.hard))
    except ProcessLookupError:
        return
    except (PermissionError, ValueError) as exc:
        raise Failure(f"The kernel refuses {kind} {limit} for process {pid}: {exc}. The files are in place") from exc


__all__ = (
    "DROP_IN",
    "KINDS",
    "LOGIN_FILE",
    "UNLIMITED",
    "Limit",
    "files",
    "limits_of",
    "login_file",
    "login_limits",
    "login_overrides",
    "may_raise_limits",
    "nofile_ceiling",
    "parse_proc_limits",
    "reachable",
    "set_limit",
    "shown",
    "systemd_file",
    "wanted_limits",
)
