# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""all_reduce_perf and its family (nccl-tests 2.17)."""

from __future__ import annotations

import os
import sys
from typing import Any

from railyard_lab import catalogue, gpus, nccl_env, nccl_rack, perf
from railyard_lab import state as state_file
from railyard_lab.tools import _common

COLLECTIVES = {"all_reduce_perf": ("all_reduce", "sum"), "all_gather_perf": ("all_gather", "none"),
               "reduce_scatter_perf": ("reduce_scatter", "sum"), "alltoall_perf": ("alltoall", "none")}  # fmt: skip
HALF_SIZE = 24e6  # bytes at which half of the bandwidth is reached
TYPES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8,
         "bfloat16": 2}  # fmt: skip


def _size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(float(text[:-1] if scale > 1 else text) * scale)


def _options(argv: list[str]) -> dict[str, Any]:
    long = {"nthreads": "t", "ngpus": "g", "minbytes": "b", "maxbytes": "e", "stepbytes": "i", "stepfactor": "f", "iters": "n",
            "warmup_iters": "w", "agg_iters": "m", "check": "c", "op": "o", "datatype": "d", "root": "r", "cudagraph": "G",
            "average": "a", "blocking": "z", "parallel_init": "p", "timeout": "T", "json": "J"}  # fmt: skip
    given: dict[str, Any] = {"t": "1", "g": "1", "b": "32M", "e": "32M", "i": None, "f": None, "n": "20", "w": "1", "m": "1",
                             "c": "1", "d": "float", "G": "0"}  # fmt: skip
    words = iter(argv)
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            given[long.get(name, name)] = value or next(words, "")
        elif word.startswith("-") and len(word) > 1:
            given[word[1]] = word[2:] or next(words, "")
    return given


def _float(value: float, width: int = 7) -> str:
    """nccl-tests' getFloatStr: as many decimals as fit."""
    power = 0
    while value >= 10 ** (power + 1):
        power += 1
    if power < width - 2:
        digits = max(0, min(2, width - power - 3))
        if value < 100 and width == 7:
            digits = 2
        return f"{value:{width}.{digits}f}"
    return f"{value:{width}.1e}"


def main(name: str, argv: list[str]) -> int:
    state = _common.snapshot()
    environment = nccl_env.read()
    given = _options(argv)
    pid, host = os.getpid(), state["host"]
    per_process = int(given["g"]) * int(given["t"])
    rank, hosts, rendezvous = nccl_rack.rank_of(environment)
    own_ranks = int(environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))
    count = per_process * own_ranks
    driver = gpus.failure(state)
    if driver:
        text = "system has unsupported display driver / cuda driver combination" if "mismatch" in driver[0] else (
            "CUDA driver version is insufficient for CUDA runtime version" if driver[1] == 9 else "no CUDA-capable device is detected")  # fmt: skip
        return _cuda(host, pid, text)
    present = state_file.present_gpus(state)
    if count > len(present):
        return _cuda(host, pid, "invalid device ordinal")
    if gpus.fabric(state, present[0])[0] == "In Progress":
        return _cuda(host, pid, "system not yet initialized")
    try:
        mine = nccl_rack.describe(state, environment, count) | {"rank": rank, "pids": pid}
        everyone = nccl_rack.meet(mine, rank, hosts, rendezvous) if hosts > 1 else [mine]
    except nccl_rack.Failure as error:
        if environment.get("NCCL_DEBUG", "").upper() in ("WARN", "INFO", "TRACE"):
            print(f"{host}:{pid}:{pid} [0] {error}")
        print(f"{host}: Test NCCL failure common.cu:1279 'remote process exited or there was a network error / '\n"
              f" .. {host} pid {pid}: Test failure common.cu:1106")  # fmt: skip
        return 3
    if rank:
        return 0
    _report(name, state, environment, given, everyone)
    return 0


def _cuda(host: str, pid: int, text: str) -> int:
    print(f"{host}: Test CUDA failure common.cu:1000 '{text}'\n .. {host} pid {pid}: Test failure common.cu:891")
    return 2


def _report(
    name: str, state: dict[str, Any], environment: dict[str, str], given: dict[str, Any], everyone: list[dict[str, Any]]
) -> None:
    collective, operation = COLLECTIVES[name]
    operation = given.get("o", operation) if operation != "none" else "none"
    low, high = _size(given["b"]), _size(given["e"])
    factor = int(given["f"]) if given["f"] else 0
    step = _size(given["i"]) if given["i"] else 1 << 20
    version = state["nccl"] or "2.27.7"
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    code = major * 10000 + minor * 100 + patch
    per_process = int(given["g"])
    print(f"# nccl-tests version 2.17.1 nccl-headers={code} nccl-library={code}")
    print(f"# Collective test starting: {name}")
    stepping = f"{factor}(factor)" if factor else f"{step}(bytes)"
    print(f"# nThread {given['t']} nGpus {given['g']} minBytes {low} maxBytes {high} step: {stepping} warmup iters: {given['w']} "
          f"iters: {given['n']} agg iters: {given['m']} validation: {given['c']} graph: {given['G']}")  # fmt: skip
    print("#\n# Using devices")
    present = state_file.present_gpus(state)
    rank = 0
    for host in everyone:
        pid = host["pids"]
        for index in range(host["gpus"]):
            gpu = present[index] if index < len(present) else present[0]
            model = catalogue.GPUS[host["model"]]["name"]
            print(f"#  Rank {rank:2d} Group  0 Pid {pid + index // per_process:6d} on {host['host']:>10} device {index:2d} "
                  f"[{gpu['pci'][:-2]}] {model}")  # fmt: skip
            rank += 1
    if environment.get("NCCL_DEBUG", "").upper() in ("VERSION", "WARN", "INFO", "TRACE"):
        print(f"NCCL version {version}+cuda{state['cuda'] or '13.0'}")
    if environment.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE"):
        _info(state, environment, everyone[0])
    unit = "(us)  (GB/s)  (GB/s)"
    print("#")
    print(
        "#                                                              out-of-place                       in-place          "
    )
    print(
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    )
    print(f"#        (B)    (elements)                               {unit}            {unit}       ", flush=True)
    nvls = nccl_env.number(environment, "NCCL_NVLS_ENABLE", 2) != 0
    single = perf.single_node_busbw(state, everyone[0]["gpus"], nvls)
    limit = nccl_rack.busbw(everyone, single, min(single, perf.TWO_NODES[everyone[0]["model"]]))
    share = perf.busbw_factor(collective, rank)
    total = counted = 0.0
    size = low
    while size <= high:
        cells = []
        for place in (1.0, 1.003):
            bandwidth = limit * place * size / (size + HALF_SIZE)
            algorithm = bandwidth / share
            microseconds = size / (algorithm * 1e9) * 1e6 + 17
            algorithm = size / microseconds / 1e3
            wrong = "0" if given["c"] != "0" else "N/A"
            cells.append(f"  {_float(microseconds)}  {algorithm:6.2f}  {algorithm * share:6.2f}  {wrong:>5}")
            total, counted = total + algorithm * share, counted + 1
        print(
            f"{size:12d}  {size // TYPES.get(given['d'], 4):12d}  {given['d']:>8}  {operation:>6}  {-1:6d}"
            + "".join(cells),
            flush=True,
        )
        size = size * factor if factor > 1 else size + max(step, 1)
    print("# Out of bounds values : 0 OK")
    print(f"# Avg bus bandwidth    : {total / max(counted, 1):g} \n#\n# Collective test concluded: {name}")


def _info(state: dict[str, Any], environment: dict[str, str], mine: dict[str, Any]) -> None:
    pid, host = mine["pids"], mine["host"]
    lead = f"{host}:{pid}:{pid} [0] NCCL INFO"
    print(f"{lead} Bootstrap: Using {mine['bootstrap']}<0>")
    for variable in (
        "NCCL_SOCKET_IFNAME",
        "NCCL_IB_HCA",
        "NCCL_IB_TC",
        "NCCL_IB_GID_INDEX",
        "NCCL_IB_QPS_PER_CONNECTION",
    ):
        if variable in environment:
            print(f"{lead} {variable} set by environment to {environment[variable]}")
    roce = any(end["link_layer"] == "Ethernet" for end in mine["ends"])
    listed = " ".join(
        f"[{index}]{end['device']}:1/{'RoCE' if roce else 'IB'}" for index, end in enumerate(mine["ends"])
    )
    if listed:
        print(f"{lead} NET/IB : Using {listed} [RO]; OOB {mine['bootstrap']}<0>")
        print(f"{lead} Using network IB")
    else:
        print(f"{lead} NET/IB : No device found.\n{lead} Using network Socket")
    for index, end in enumerate(mine["ends"]):
        nic = state_file.nic_by(state, "rdma", end["device"])
        gpu = state_file.present_gpus(state)[min(index, mine["gpus"] - 1)]
        if nic is not None:
            direct, _share = perf.gpudirect(state, nic, gpu, nccl_env.number(environment, "NCCL_DMABUF_ENABLE", 1) == 1)
            print(
                f"{lead} NET/IB : GPU Direct RDMA {'Enabled' if direct else 'Disabled'} for HCA {index} '{end['device']}'"
            )
    sys.stdout.flush()
