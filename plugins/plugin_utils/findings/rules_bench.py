# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launchers and MPI: which stage failed, kept apart from the fabric itself."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RackView, mapping, natural

LAUNCHER = define(
    "bench",
    "RF-BENCH-LAUNCHER",
    title="The launcher cannot start MPI processes",
    severity="fail",
    phase="diagnose",
    means="The job ended before any process spoke to another node. Nothing can be said about bandwidth from such a "
    "run.",
    looks_at="Error lines of srun and mpirun, the MPI types that srun --mpi=list names.",
    cause="Slurm was built without the PMIx plugin, with another PMIx than MPI's, or the plugin's directory is not "
    "found.",
    remedy="Use a type that srun --mpi=list prints (pmix_v4, pmi2), or start with mpirun over ssh; install Slurm's "
    "PMIx plugin of the major version that MPI was built with.",
    check="srun --mpi=TYPE -N2 hostname, then a two-rank hello program.",
    source="https://github.com/NVIDIA/deepops/issues/942",
)

MPI_INTERFACE = define(
    "bench",
    "RF-BENCH-MPI-INTERFACE",
    title="Open MPI connects over an address that every node has",
    severity="fail",
    phase="diagnose",
    means="Open MPI's TCP transport uses every interface that is up. Bridges such as docker0 have the same address on "
    "all nodes, so a process connects to itself or is refused and mpirun hangs.",
    looks_at="connect() errors of an mpirun log and the addresses of all hosts.",
    cause="btl_tcp_if_include and oob_tcp_if_include are not set. The launcher's layer, apart from what comes after "
    "it.",
    remedy="mpirun --mca btl_tcp_if_include CIDR --mca oob_tcp_if_include CIDR with the management network; the "
    "benchmark role does it.",
    check="mpirun hostname on all nodes, then a tiny MPI program, end within seconds.",
    source="https://github.com/open-mpi/ompi/issues/6377",
)

_LAUNCH_ERRORS = re.compile(
    r"mpi/pmi\w*|cannot create mpi context|OPAL ERROR.*pmix|pmixp?_\w+|PMIX ERROR|unable to (start|launch) daemon"
    r"|ORTE (was unable|does not know)|plrm?_?ssh|Invalid MPI type|An ORTE daemon has unexpectedly failed",
    re.IGNORECASE,
)
_ASKED = re.compile(r"mpi/(?P<a>pmi\w+)|--mpi[= ](?P<b>\w+)|\b(?P<c>pmix\w*)\b", re.IGNORECASE)


@rack_rule(LAUNCHER)
def launcher_fails(rack: RackView) -> t.Iterator[Finding]:
    for name in ("srun.log", "mpirun.log"):
        lines = [line.strip() for line in (rack.text(name) or "").splitlines()]
        errors = [line for line in lines if _LAUNCH_ERRORS.search(line)]
        if not errors:
            continue
        offered = [
            word
            for line in (rack.text("srun_mpi_list.txt") or "").splitlines()
            if (word := line.strip().rpartition(" ")[2]) and "are" not in line and "types" not in line.lower()
        ]
        asked = _ASKED.search(errors[0])
        kind = next((group for group in asked.groups() if group), "") if asked else ""
        tool = name.partition(".")[0]
        yield LAUNCHER.on(
            "",
            f"The launcher stage failed: {tool} could not start the MPI processes{f' with {kind}' if kind else ''}"
            + (f"; srun --mpi=list offers {', '.join(offered)}" if offered else "")
            + "; processes that start wanted",
            device=tool,
            evidence=[*errors[:3], *([f"srun --mpi=list: {' '.join(offered)}"] if offered else [])],
        )


_MPI_CONNECT = re.compile(
    r"\[(?P<node>[\w.-]+)\]\[.*(?:btl_tcp|oob_tcp|mca_btl_tcp).*?(?P<address>\d+(?:\.\d+){3}).*failed"
)


@rack_rule(MPI_INTERFACE)
def mpi_interface(rack: RackView) -> t.Iterator[Finding]:
    owners: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for host in rack.hosts:
        for netdev, data in host.section("netdevs").items():
            addresses = mapping(data).get("addresses")
            for address in addresses if isinstance(addresses, list) else []:
                owners[str(address).partition("/")[0]].append((host.name, str(netdev)))
    seen: set[str] = set()
    for line in (rack.text("mpirun.log") or "").splitlines():
        match = _MPI_CONNECT.search(line)
        if not match or match["address"] in seen:
            continue
        address = match["address"]
        seen.add(address)
        holders = owners.get(address, [])
        if len(holders) < 2 and not address.startswith(("172.17.", "192.168.122.")):
            continue
        shown = ", ".join(f"{netdev} on {host}" for host, netdev in sorted(holders, key=lambda h: natural(h[0]))[:4])
        yield MPI_INTERFACE.on(
            match["node"],
            f"{match['node']}: MPI connects to {address}"
            + (f", which is {shown}" if shown else ", a bridge's default address")
            + "; an address that only one node has wanted",
            device=holders[0][1] if holders else "btl_tcp",
            evidence=[line.strip(), *(f"{host}: {netdev} {address}" for host, netdev in holders[:4])],
        )
