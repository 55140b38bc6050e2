# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Launchers, MPI and benchmarks: which stage failed, kept apart from the fabric itself."""

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

NO_MPI = define(
    "bench",
    "RF-BENCH-NO-MPI",
    title="nccl-tests ran as independent processes",
    severity="fail",
    phase="diagnose",
    means="Every process printed its own table with rank 0: the binary was built without MPI. Each run stayed inside "
    "one node and looks like a pass.",
    looks_at="The number of nccl-tests headers and ranks in one output against the processes that were started.",
    cause="nccl-tests was built without MPI=1.",
    remedy="Build it with make MPI=1 MPI_HOME=..., or use a package that is, and run again.",
    check="The output has one header and lists ranks of every node.",
    source="https://github.com/NVIDIA/nccl-tests/issues/213",
)

WRONG_DATA = define(
    "bench",
    "RF-BENCH-WRONG-DATA",
    title="A collective returned wrong data",
    severity="fail",
    phase="diagnose",
    means="nccl-tests verified the result and found wrong elements. Nothing that is trained on this node can be "
    "trusted.",
    looks_at="'Out of bounds values' and the #wrong columns of nccl-tests.",
    cause="PCIe peer-to-peer through a translating IOMMU, a bad GPU or NVLink, LL128 forced where it is not supported.",
    remedy="Take the node out; iommu=pt or the IOMMU off, remove NCCL_PROTO, then test GPU by GPU (dcgmi diag -r 3).",
    check="nccl-tests ends with Out of bounds values : 0 OK.",
    source="https://github.com/NVIDIA/nccl-tests/issues/131; https://github.com/NVIDIA/nccl/issues/489",
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


@rack_rule(NO_MPI)
def independent_runs(rack: RackView) -> t.Iterator[Finding]:
    text = rack.text("nccl_tests.txt") or ""
    headers = len(re.findall(r"^#\s*nThread \d+|^# nccl-tests version", text, re.M))
    tables = len(re.findall(r"^#\s+Using devices", text, re.M)) or headers
    ranks = {int(number) for number in re.findall(r"^#\s+Rank\s+(\d+)", text, re.M)}
    command = (rack.text("nccl_tests_command.txt") or "").strip()
    asked = re.search(r"(?:-np?|--ntasks[= ]|-n)\s*(\d+)", command)
    wanted = int(asked.group(1)) if asked else 0
    nodes = set(re.findall(r"^#\s+Rank\s+\d+.* on\s+(\S+) device", text, re.M))
    if tables > 1 and (ranks == {0} or (wanted and max(ranks, default=0) + 1 < wanted)):
        yield NO_MPI.on(
            "",
            f"nccl-tests printed {tables} tables, each with its own rank 0 ({wanted or tables} processes on "
            f"{len(nodes) or 'several'} nodes): the binary was built without MPI; one table with {wanted or tables} "
            "ranks wanted",
            device="nccl-tests",
            evidence=[command, *re.findall(r"^#\s+Rank\s+\d+.*$", text, re.M)[:4]],
        )


@rack_rule(WRONG_DATA)
def wrong_data(rack: RackView) -> t.Iterator[Finding]:
    text = rack.text("nccl_tests.txt") or ""
    for match in re.finditer(r"^#? ?Out of bounds values ?: ?(\d+) FAILED.*$", text, re.M):
        if match.group(1) != "0":
            yield WRONG_DATA.on(
                "",
                f"nccl-tests found {match.group(1)} out of bounds values, 0 wanted",
                device="nccl-tests",
                evidence=[match[0].strip()],
            )
            return
