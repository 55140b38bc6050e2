# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The recorded output of nccl-tests: whether it was one run, whether its data was right, whether it was fast."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import nccl_tests
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RackView, dicts, get

NO_MPI = define(
    "bench",
    "RF-BENCH-NO-MPI",
    title="nccl-tests ran as independent processes",
    severity="fail",
    phase="diagnose",
    means="Every process began with a rank 0 of its own: the binary was built without MPI. Each run stayed inside one "
    "node and looks like a pass.",
    looks_at="The ranks that each process of one nccl-tests output lists, against the processes and GPUs that its "
    "command asked for. Several complete runs one after the other are no finding.",
    cause="nccl-tests was built without MPI=1, or mpirun is of another MPI than the one it was built with.",
    remedy="Build it with make MPI=1 MPI_HOME=..., or use a package that is, start it with the mpirun of the same MPI, "
    "and run again.",
    check="The output has one table and lists ranks of every node; ldd all_reduce_perf names libmpi.",
    source="https://github.com/NVIDIA/nccl-tests/issues/213; https://github.com/NVIDIA/nccl-tests/issues/306",
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

SLOW = define(
    "bench",
    "RF-BENCH-SLOW",
    title="A collective is slower than it must be",
    severity="fail",
    phase="diagnose",
    means="The bus bandwidth of the largest message is below what these machines reach: a rail, the path between GPU "
    "and NIC, or one node holds all others back.",
    looks_at="The largest message of the recorded nccl-tests output against the plan's threshold for these hosts, and "
    "the verdict that nccl-tests itself printed (NCCL_TESTS_MIN_BW). Below nine tenths stops, below the whole warns.",
    cause="GPUDirect RDMA off, a slow or missing rail, traffic in the lossy class, PCIe below its rate, one bad node.",
    remedy="Look at the other findings of these hosts first; then measure each rail (ib_write_bw) and each pair of "
    "hosts (site.yml --tags benchmark names the odd one out).",
    check="all_reduce_perf reaches the threshold that the report gives.",
    source="Thresholds of Azure/azurehpc-health-checks and oracle-quickstart/oci-hpc; nccl-tests NCCL_TESTS_MIN_BW",
)

_COUNTS = (
    (r"(?:^|\s)(?:-np?|-c|--np|--ntasks)[= ](\d+)", None),
    (r"--ntasks-per-node[= ](\d+)", r"(?:^|\s)(?:-N|--nodes)[= ](\d+)"),
)
# Looser than the parser's: a shortened record of the ranks still says who began at 0.
_RANK = re.compile(
    r"^.*#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(?P<pid>\d+)\s+on\s+(?P<host>\S+)", re.MULTILINE
)
_TABLE = re.compile(r"^.*#\s*nThread \d+ nGpus (?P<gpus>\d+)", re.MULTILINE)
# Smaller messages say little about bandwidth.
_LARGE = 2**28


def _asked(command: str) -> int | None:
    """How many processes the command starts."""
    for pattern, times in _COUNTS:
        match = re.search(pattern, command)
        factor = re.search(times, command) if times else None
        if match and (factor or not times):
            return int(match.group(1)) * (int(factor.group(1)) if factor else 1)
    return None


def _gpus_each(command: str) -> int:
    match = re.search(r"\s(?:-g|--ngpus)[= ](\d+)", command)
    return int(match.group(1)) if match else 1


@rack_rule(NO_MPI)
def independent_runs(rack: RackView) -> t.Iterator[Finding]:
    text = rack.text("nccl_tests.txt") or ""
    told = nccl_tests.parse(text).value
    command = (rack.text("nccl_tests_command.txt") or "").strip()
    ranks: dict[tuple[str, str], list[int]] = collections.defaultdict(list)
    for match in _RANK.finditer(text):
        ranks[(match["host"], match["pid"])].append(int(match["rank"]))
    zeros = sum(numbers.count(0) for numbers in ranks.values())
    hosts = list(dict.fromkeys(str(host) for host, _pid in ranks))
    asked = _asked(command)
    # Each process of one job has ranks of its own; only one of them has rank 0.
    alone = zeros > 1 and all(0 in numbers for numbers in ranks.values())
    alone = alone and (len(hosts) > 1 or (asked or 0) > 1 or all(numbers == [0] for numbers in ranks.values()))
    listed = sum(map(len, ranks.values()))
    wanted = (asked or zeros) * max(_gpus_each(command), listed // zeros if alone and zeros else 1)
    short = not alone and (asked or 0) > 1 and bool(told.get("complete")) and listed < wanted and len(ranks) == 1
    if not ranks and (asked or 0) > 1 and len(_TABLE.findall(text)) == asked:
        # Only the heads were recorded: one for each process.
        alone, zeros, hosts = True, asked or 0, ["the nodes of the job"]
    if not alone and not short:
        return
    seen = (
        f"{zeros} tables, each with its own rank 0 (processes on {', '.join(hosts[:6])})"
        if alone
        else f"one table of {listed} ranks on {hosts[0]}, although {asked} processes were started"
    )
    yield NO_MPI.on(
        "",
        f"nccl-tests printed {seen}: the binary was built without MPI (MPI=1), and {asked or zeros} independent "
        f"runs look like one; one table with {wanted} ranks wanted",
        device="nccl-tests",
        evidence=[command, *re.findall(r"^.*#\s+Rank\s+0\b.*$", text, re.M)[:4]],
    )


@rack_rule(WRONG_DATA)
def wrong_data(rack: RackView) -> t.Iterator[Finding]:
    text = rack.text("nccl_tests.txt") or ""
    for match in re.finditer(r"^.*Out of bounds values ?: ?(\d+) FAILED.*$", text, re.M):
        if match.group(1) != "0":
            yield WRONG_DATA.on(
                "",
                f"nccl-tests found {match.group(1)} out of bounds values, 0 wanted",
                device="nccl-tests",
                evidence=[match[0].strip()],
            )
            return
    for row in dicts(nccl_tests.parse(text).value.get("rows")):
        wrong = max(row.get("out_of_place_wrong") or 0, row.get("in_place_wrong") or 0)
        if wrong:
            yield WRONG_DATA.on(
                "",
                f"nccl-tests found {wrong} wrong elements in the message of {row.get('size_bytes')} bytes, 0 wanted",
                device="nccl-tests",
                evidence=[line.strip() for line in text.splitlines() if line.split()[:1] == [str(row["size_bytes"])]][
                    :2
                ],
            )
            return


@rack_rule(SLOW)
def slow_collective(rack: RackView) -> t.Iterator[Finding]:
    told = nccl_tests.parse(rack.text("nccl_tests.txt") or "").value
    failed = [run for run in dicts(told.get("summaries")) if run.get("average_ok") is False]
    if failed:
        average = failed[0].get("average_busbw_gbytes_s")
        yield SLOW.on(
            "",
            f"nccl-tests judges its average bus bandwidth of {average} GB/s as FAILED; what NCCL_TESTS_MIN_BW asks for "
            "wanted",
            device="nccl-tests",
            evidence=[f"Avg bus bandwidth: {average} FAILED"],
        )
        return
    hosts = list(dict.fromkeys(str(row.get("host")) for row in dicts(told.get("devices"))))
    large = [row for row in dicts(told.get("rows")) if (row.get("size_bytes") or 0) >= _LARGE]
    key = "nccl_single_busbw_gbps" if len(hosts) == 1 else "nccl_busbw_gbps"
    floors = [get(view.plan, "thresholds", key) for host in hosts if (view := rack.by_name(host))]
    known = [floor for floor in floors if isinstance(floor, (int, float))]
    if told.get("collective") not in (None, "all_reduce") or not large or not known or len(hosts) > 2:
        return
    best = max(
        max(row.get("out_of_place_busbw_gbytes_s") or 0, row.get("in_place_busbw_gbytes_s") or 0) for row in large
    )
    floor = max(known)
    if best < floor:
        yield SLOW.on(
            "",
            f"all_reduce of {', '.join(hosts)} reaches {best:g} GB/s bus bandwidth, {floor:g} GB/s wanted",
            device="nccl-tests",
            evidence=[f"largest message: {large[-1].get('size_bytes')} bytes, busbw {best:g}"],
            severity="fail" if best < 0.9 * floor else "warn",
        )
