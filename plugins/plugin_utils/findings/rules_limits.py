# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of what starts jobs: locked memory."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, mapping

MEMLOCK = define(
    "limits",
    "RF-LIMITS-MEMLOCK",
    title="A service runs with a small limit of locked memory",
    severity="fail",
    phase="verify",
    means="Jobs started by the service cannot register memory for RDMA: ibv_reg_mr and ibv_create_cq end with 'Cannot "
    "allocate memory', although the limit in a login shell is fine.",
    looks_at="/proc/PID/limits of slurmd, containerd, docker, kubelet and sshd, not only their configuration; in a "
    "recording also what ulimit printed, above all inside a job. Reported where the fabric's limits are configured "
    "and the service still runs with the old ones.",
    cause="limits.conf applies to logins through PAM only; the unit has no LimitMEMLOCK, or was not restarted since.",
    remedy="Run site.yml --tags rdma (it writes LimitMEMLOCK=infinity for the services) and restart the service on the "
    "drained node.",
    check="grep 'locked memory' /proc/$(pidof slurmd)/limits prints unlimited.",
    source="https://github.com/ai4d-iasc/trixie/issues/81; NCCL troubleshooting guide",
    mended_by="rdma",
)

NOT_RAISABLE = define(
    "limits",
    "RF-LIMITS-NOT-RAISABLE",
    title="The kernel does not let this host raise limits",
    severity="warn",
    phase="verify",
    means="The limits are configured as they should be, and services still run with less: whatever starts this host's "
    "services has no right to raise a hard limit. RDMA jobs may fail to register memory. In a container that is for "
    "whoever starts it to decide, and only noted.",
    looks_at="CapEff of PID 1 (CAP_SYS_RESOURCE, bit 24) and /proc/PID/limits of services that start jobs.",
    cause="The host is a container, or runs in a sandbox, that was started without CAP_SYS_RESOURCE and with a finite "
    "memlock limit.",
    remedy="Start the container with CAP_SYS_RESOURCE or with --ulimit memlock=-1:-1.",
    check="grep CapEff /proc/1/status has bit 24 set, or grep 'locked memory' /proc/1/limits prints unlimited.",
    source="capabilities(7), setrlimit(2)",
)

# Rails register tens of GiB for each process; any limit below that fails sooner or later.
_ENOUGH = 2**36
_JOB_SERVICES = frozenset(
    {
        "slurmd",
        "slurmstepd",
        "containerd",
        "docker",
        "dockerd",
        "kubelet",
        "crio",
        "cri-o",
        "podman",
        "k3s",
        "k3s-agent",
    }
    | {"rke2-agent", "rke2-server", "sshd", "ssh", "pbs", "pbs_mom", "sge_execd", "flux"}
)


@host_rule(MEMLOCK, NOT_RAISABLE)
def small_memlock(host: HostView) -> t.Iterator[Finding]:
    configured = host.recorded_only or any(
        "gpu-fabric" in path and ("limits.d" in path or ".conf.d" in path) for path in host.files
    )
    if not configured:
        return
    services = host.section("limits", "services")
    for name in sorted(services):
        data = mapping(services[name])
        running = _soft(data.get("memlock"))
        seen = running if running is not None else _soft(mapping(data.get("configured")).get("memlock"))
        if name in _JOB_SERVICES and isinstance(seen, int) and seen < _ENOUGH:
            told = _soft(mapping(data.get("configured")).get("memlock"))
            as_told = not isinstance(told, int) or told >= _ENOUGH
            if as_told and host.section("limits").get("raisable") is False and seen == _hard(data.get("memlock")):
                yield _not_raisable(host, name, data.get("pid"), seen)
            else:
                yield _memlock(host, name, data.get("pid") if running is not None else None, seen)
    named = {str(mapping(data).get("pid")) for data in services.values()}
    for pid, data in sorted(host.section("limits", "processes").items()):
        seen = _soft(mapping(data).get("memlock"))
        if pid not in named and pid != "1" and isinstance(seen, int) and seen < _ENOUGH:
            name = mapping(data).get("name")
            yield _memlock(host, f"process {pid} ({name})" if name else f"process {pid}", pid, seen)


def _soft(value: t.Any) -> t.Any:
    """The limit in force: facts hold soft and hard, or one value."""
    return value.get("soft") if isinstance(value, dict) else value


def _hard(value: t.Any) -> t.Any:
    return value.get("hard") if isinstance(value, dict) else value


def _not_raisable(host: HostView, name: str, pid: t.Any, seen: int) -> Finding:
    return NOT_RAISABLE.on(
        host,
        f"{host.name}: {name} runs with a limit of locked memory (memlock) of {_shown(seen)}, unlimited wanted; it is "
        "configured, but nothing on this host may raise a limit",
        device=name,
        evidence=[
            f"/proc/{pid}/limits: Max locked memory {seen} bytes",
            "/proc/1/status: CapEff without CAP_SYS_RESOURCE",
        ],
        severity="info" if host.section("host").get("container") is True else None,
    )


def _shown(seen: int) -> str:
    """Both units: the kernel counts in bytes, ulimit in KiB."""
    return f"{seen} bytes" + (f" ({seen // 1024} KiB)" if seen % 1024 == 0 else "")


def _logins(host: HostView) -> list[str]:
    """What limits.d gives to logins, which is why a shell looks fine."""
    found = []
    for domain, items in sorted(host.section("limits", "login").items()):
        value = mapping(mapping(items).get("memlock"))
        if "unlimited" in value.values():
            found.append(f"limits.conf: {domain} memlock unlimited (logins through PAM only)")
    return found[:1]


def _memlock(host: HostView, name: str, pid: t.Any, seen: int) -> Finding:
    unit = name if not name.startswith("process") else "the unit that started it (slurmd, containerd, docker, kubelet)"
    return MEMLOCK.on(
        host,
        f"{host.name}: {name} runs with a limit of locked memory (memlock) of {_shown(seen)}, unlimited wanted",
        device=name,
        evidence=[
            f"/proc/{pid}/limits: Max locked memory {seen} bytes" if pid else f"{name}: LimitMEMLOCK={seen}",
            *_logins(host),
        ],
        remedy=f"Set LimitMEMLOCK=infinity for {unit} (site.yml --tags rdma writes the drop-in), then systemctl "
        "daemon-reload and restart it on the drained node.",
    )


_ULIMIT = re.compile(r"(?:^|_)ulimit(?:_|$)")
_LOCKED = re.compile(r"^(?:max locked memory.*?-l\)\s*|\s*)(\d+|unlimited)\s*$", re.MULTILINE)


@host_rule(MEMLOCK)
def small_ulimit(host: HostView) -> t.Iterator[Finding]:
    """What a shell or a job printed, where somebody recorded it."""
    for name, text in sorted(host.section("recorded").items()):
        if not _ULIMIT.search(str(name)) or not isinstance(text, str) or "_n" in str(name).partition("ulimit")[2]:
            continue
        lines = [line for line in text.splitlines() if "locked" in line] or text.split()[-1:]
        match = _LOCKED.search(lines[0]) if lines else None
        if match is None or match.group(1) == "unlimited" or int(match.group(1)) * 1024 >= _ENOUGH:
            continue
        where = str(name).partition("ulimit")[0].strip("_").replace("_", " ") or "the shell that was asked"
        kib = int(match.group(1))
        yield MEMLOCK.on(
            host,
            f"{host.name}: ulimit -l (memlock) in {where} is {kib} KiB ({kib * 1024} bytes), unlimited wanted",
            device="memlock",
            evidence=[f"ulimit: {lines[0].strip()}", *_logins(host)],
            remedy="Set LimitMEMLOCK=infinity for the service that starts jobs (slurmd, containerd; site.yml --tags "
            "rdma writes the drop-in), then systemctl daemon-reload and restart it on the drained node.",
        )
