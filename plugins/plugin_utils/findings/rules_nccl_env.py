# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables that NCCL gets from wherever: what was left over from a test, what wins over /etc/nccl.conf."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    mapping,
    natural,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.nccl_log import settings
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import parse, selector
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_env import (
    CRIPPLING,
    FLAGGED,
    HANDICAPS,
    handicap,
)

CONF_HANDICAP = define(
    "nccl",
    "RF-NCCL-CONF-HANDICAP",
    title="/etc/nccl.conf turns a path of the fabric off",
    severity="fail",
    phase="configure",
    means="Every job on the host runs without RDMA, NVLink or GPUDirect RDMA, at a fraction of the bandwidth and "
    "without an error.",
    looks_at="NCCL_IB_DISABLE, NCCL_NET, NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_NET_GDR_LEVEL, NCCL_SHM_DISABLE, "
    "NCCL_DMABUF_ENABLE, NCCL_NVLS_ENABLE and NCCL_PXN_DISABLE in /etc/nccl.conf, unless the plan sets them so.",
    cause="A work-around that was tried once and left.",
    remedy="Run site.yml --tags nccl, which owns the whole file; what shall stay belongs into gpu_fabric_nccl_env.",
    check="grep DISABLE /etc/nccl.conf prints nothing.",
    source="NCCL user guide, environment variables: for debugging only",
    mended_by="nccl",
)

CONF_OBSOLETE = define(
    "nccl",
    "RF-NCCL-CONF-OBSOLETE",
    title="A variable of /etc/nccl.conf does nothing or belongs into a test",
    severity="warn",
    phase="configure",
    means="The variable is not read any more, or forces a choice on every job that NCCL makes better by itself.",
    looks_at="Names in /etc/nccl.conf against those that were removed, renamed or are for tests only, unless the plan "
    "sets them.",
    cause="The file was written for an older NCCL, or for one benchmark.",
    remedy="Run site.yml --tags nccl, which owns the whole file; what shall stay belongs into gpu_fabric_nccl_env.",
    check="The line is gone from /etc/nccl.conf.",
    source="NCCL user guide and release notes",
    mended_by="nccl",
)

JOB_HANDICAP = define(
    "nccl",
    "RF-NCCL-JOB-HANDICAP",
    title="The job's environment turns a path of the fabric off",
    severity="fail",
    phase="diagnose",
    means="The job ran without RDMA, NVLink or GPUDirect RDMA: what it measured says nothing about the fabric.",
    looks_at="Variables that NCCL says in its log that it read, and recorded environments (env.txt, printenv.txt).",
    cause="A work-around in the job script, in the container's image or in a login profile.",
    remedy="Remove the variable named in the message from the job's environment and run again.",
    check="NCCL_DEBUG=INFO no longer prints that the variable is set.",
    source="NCCL user guide, environment variables: for debugging only",
)

CONF_INTERFACE = define(
    "nccl",
    "RF-NCCL-CONF-IFNAME",
    title="NCCL_SOCKET_IFNAME in /etc/nccl.conf does not fit the host",
    severity="warn",
    phase="configure",
    means="Names are prefixes without a leading =, and an exclusion leaves every other interface in: NCCL bootstraps "
    "over an interface that peers cannot reach, or finds none.",
    looks_at="The value against the host's interfaces, in NCCL's own reading.",
    cause="The value was copied from another cluster, or interfaces were renamed.",
    remedy="Run site.yml --tags nccl: NCCL_SOCKET_IFNAME is derived per host and written in its exact form.",
    check="grep NCCL_SOCKET_IFNAME /etc/nccl.conf begins with NCCL_SOCKET_IFNAME==.",
    source="https://github.com/NVIDIA/nccl/issues/913",
    mended_by="nccl",
)

USER_CONF = define(
    "nccl",
    "RF-NCCL-USER-CONF",
    title="A user's NCCL file or profile overrides /etc/nccl.conf",
    severity="warn",
    phase="diagnose",
    means="NCCL reads ~/.nccl.conf first, and the environment wins over both: the values of /etc/nccl.conf do not "
    "hold for this user.",
    looks_at="~/.nccl.conf and NCCL_* lines of /etc/profile.d and /etc/environment. A value that turns a path of the "
    "fabric off stops, others warn.",
    cause="A setting that was tried once and left.",
    remedy="Remove the line from the file named, or move it into gpu_fabric_nccl_env.",
    check="env | grep NCCL in a login shell prints nothing unexpected.",
    source="NCCL src/misc/param.cc, initEnv",
)

CONF = "/etc/nccl.conf"


@host_rule(CONF_HANDICAP)
def conf_handicap(host: HostView) -> t.Iterator[Finding]:
    planned = mapping(host.plan.get("nccl_env"))
    for name, value in parse(host.files.get(CONF, "")).items():
        why = handicap(name, value)
        if why and planned.get(name) != value:
            yield CONF_HANDICAP.on(
                host,
                f"{host.name}: {CONF} sets {name}={value}, which {_third(why)}; no such line wanted",
                device=name,
                evidence=[f"{CONF}: {name}={value}"],
                severity=None if name in CRIPPLING else "warn",
            )


@host_rule(CONF_OBSOLETE)
def conf_obsolete(host: HostView) -> t.Iterator[Finding]:
    planned = mapping(host.plan.get("nccl_env"))
    for name, value in parse(host.files.get(CONF, "")).items():
        if name in FLAGGED and name not in HANDICAPS and planned.get(name) != value:
            yield CONF_OBSOLETE.on(
                host,
                f"{host.name}: {CONF} sets {name}={value}: it {FLAGGED[name]}; no such line wanted",
                device=name,
                evidence=[f"{CONF}: {name}={value}"],
            )


def _third(why: str) -> str:
    return why.replace("jobs would use TCP", "makes jobs use TCP")


@rack_rule(JOB_HANDICAP)
def job_handicap(rack: RackView) -> t.Iterator[Finding]:
    seen = [(node, name, *said) for node, found in settings(rack).items() for name, said in found.items()]
    for host in rack.hosts:
        for recorded in ("env", "printenv"):
            for line in (host.recorded(recorded) or "").splitlines():
                name, equals, value = line.strip().partition("=")
                if equals:
                    seen.append((host.name, name, value, line.strip()))
    done: set[tuple[str, str]] = set()
    for node, name, value, line in seen:
        why = handicap(name, value)
        if why and (node, name) not in done:
            done.add((node, name))
            yield JOB_HANDICAP.on(
                node,
                f"{node}: the job runs with {name}={value}, which {_third(why)}; {name} not set wanted",
                device=name,
                evidence=[line],
                severity=None if name in CRIPPLING else "warn",
            )


@host_rule(CONF_INTERFACE)
def conf_interface(host: HostView) -> t.Iterator[Finding]:
    value = parse(host.files.get(CONF, "")).get("NCCL_SOCKET_IFNAME")
    netdevs = host.section("netdevs")
    # A recording may hold the rails only.
    if not value or ("lo" not in netdevs and not any(mapping(data).get("addresses") for data in netdevs.values())):
        return
    chosen = selector(value, ports=False)
    hits = [str(name) for name in netdevs if name != "lo" and chosen.matches(str(name))]
    local = [name for name in hits if mapping(netdevs[name]).get("kind") in ("bridge", "veth", "vf")]
    wrong = list(chosen.problems)
    if not hits:
        wrong.append("it matches no interface of this host")
    elif local and not chosen.exact:
        wrong.append(f"it also selects {', '.join(sorted(local, key=natural)[:6])}")
    if wrong:
        yield CONF_INTERFACE.on(
            host,
            f"{host.name}: NCCL_SOCKET_IFNAME={value} in {CONF}: {'; '.join(wrong)}; the exact name (==) of the "
            "interface that peers reach wanted",
            device="NCCL_SOCKET_IFNAME",
            evidence=[f"{CONF}: NCCL_SOCKET_IFNAME={value}", f"interfaces: {', '.join(sorted(netdevs, key=natural))}"],
            severity=None if hits else "fail",
        )


_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(?P<name>NCCL_[A-Z0-9_]+)=(?P<value>.*)$")


@host_rule(USER_CONF)
def user_conf(host: HostView) -> t.Iterator[Finding]:
    for path, text in sorted(host.files.items()):
        personal = path.startswith(("/etc/profile", "/root/.", "/home/")) or path == "/etc/environment"
        if not personal:
            continue
        found = [match for line in text.splitlines() if (match := _ASSIGNMENT.match(line))]
        if not found:
            continue
        bad = {m["name"]: why for m in found if (why := handicap(m["name"], m["value"]))}
        shown = ", ".join(f"{match['name']}={match['value'].strip()}" for match in found[:4])
        yield USER_CONF.on(
            host,
            f"{host.name}: {path} sets {shown}, which wins over {CONF}"
            + "".join(f"; {name} {_third(why)}" for name, why in bad.items())
            + "; none wanted",
            device=path,
            evidence=[match[0].strip() for match in found[:6]],
            severity="fail" if CRIPPLING & set(bad) else None,
        )
