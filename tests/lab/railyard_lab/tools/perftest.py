# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""ib_write_bw and its family: client and server talk over real sockets, so address, route, MTU and firewall matter."""

from __future__ import annotations

import argparse
import json
import random
import socket
import time
from typing import Any

from railyard_lab import catalogue, perf, ports, rdma_path
from railyard_lab import state as state_file
from railyard_lab.tools import _common

LINE = "-" * 87
NAMES = {
    "ib_write_bw": "RDMA_Write BW Test", "ib_read_bw": "RDMA_Read BW Test", "ib_send_bw": "Send BW Test",
    "ib_write_lat": "RDMA_Write Latency Test", "ib_read_lat": "RDMA_Read Latency Test", "ib_send_lat": "Send Latency Test",
}  # fmt: skip
BW_HEADER = " #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
LAT_HEADER = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
              "99% percentile[usec]   99.9% percentile[usec] ")  # fmt: skip


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, add_help=True)
    parser.add_argument("server", nargs="?")
    parser.add_argument("-d", "--ib-dev")
    parser.add_argument("-i", "--ib-port", default="1")
    parser.add_argument("-p", "--port", type=int, default=18515)
    parser.add_argument("-s", "--size", default=None)
    parser.add_argument("-n", "--iters", type=int, default=None)
    parser.add_argument("-D", "--duration", type=float, default=None)
    parser.add_argument("-q", "--qp", type=int, default=1)
    parser.add_argument("-x", "--gid-index", type=int, default=None)
    parser.add_argument("-m", "--mtu", type=int, default=None)
    parser.add_argument("-a", "--all", action="store_true")
    parser.add_argument("-b", "--bidirectional", action="store_true")
    parser.add_argument("-F", "--CPU-freq", action="store_true")
    parser.add_argument("-R", "--rdma_cm", action="store_true")
    parser.add_argument("-T", "--tos", type=int, default=None)
    parser.add_argument("--tclass", type=int, default=None)
    parser.add_argument("-c", "--connection", default="RC")
    parser.add_argument("-S", "--sl", type=int, default=0)
    parser.add_argument("-t", "--tx-depth", type=int, default=128)
    parser.add_argument("-l", "--post_list", type=int, default=1)
    parser.add_argument("-I", "--inline_size", type=int, default=0)
    parser.add_argument("-z", "--com_rdma_cm", action="store_true")
    parser.add_argument("-N", "--noPeak", action="store_true")
    parser.add_argument("--report_gbits", action="store_true")
    parser.add_argument("--report-both", action="store_true")
    parser.add_argument("--bind_source_ip")
    parser.add_argument("--ipv6", action="store_true")
    parser.add_argument("--run_infinitely", action="store_true")
    parser.add_argument("--use_cuda", type=int, default=None)
    parser.add_argument("--use_cuda_bus_id", default=None)
    parser.add_argument("--use_cuda_dmabuf", action="store_true")
    parser.add_argument("--out_json", action="store_true")
    parser.add_argument("--out_json_file", default=None)
    parser.add_argument("-V", "--version", action="store_true")
    return parser


class Failure(Exception):
    pass


def _size(text: str) -> int:
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text[:-1] if scale > 1 else text) * scale


def main(name: str, argv: list[str]) -> int:
    given = _parser(name).parse_args(argv)
    if given.version:
        print("Version: 6.12")
        return 0
    try:
        return _run(name, given)
    except Failure as error:
        print(error)
        return 1


def _run(name: str, given: argparse.Namespace) -> int:
    state = _common.snapshot()
    live = _common.live(state)
    if not {"mlx5_ib", "ib_uverbs"} <= set(state["modules"]):
        raise Failure(
            " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device"
        )
    nics = sorted((nic for nic in state["nics"] if nic["rdma"]), key=lambda nic: nic["pci"])
    nic = state_file.nic_by(state, "rdma", given.ib_dev) if given.ib_dev else (nics or [None])[0]
    if nic is None:
        raise Failure(f" IB device {given.ib_dev} not found\n Unable to find the Infiniband/RoCE device")
    traffic_class = given.tclass if given.tclass is not None else given.tos or 0
    port = ports.view(state, nic, live)
    mine = perf.endpoint(state, nic, live, traffic_class, given.gid_index)
    if not mine["up"]:
        raise Failure(
            f" Port number {given.ib_port} state is {'Down' if port['state'] == 1 else 'Initialize'}\n Couldn't set the link layer\n Couldn't get context for the device"
        )
    if given.gid_index is not None and mine["gid"] is None:
        raise Failure(" Invalid GID index\n Failed to get GID attributes\n Couldn't get context for the device")
    if given.mtu:
        if given.mtu > mine["mtu"]:
            raise Failure(
                f"Requested mtu is higher than active mtu \nChanging to active mtu - {ports.MTU_CODES[mine['mtu']]}"
            )
        mine["mtu"] = given.mtu
    mine["gpu"] = _gpu_share(state, nic, given)
    mine["size"] = given.size
    if given.server is None:
        return _server(name, given, mine)
    return _client(name, given, mine)


def _gpu_share(state: dict[str, Any], nic: dict[str, Any], given: argparse.Namespace) -> float:
    if given.use_cuda is None and given.use_cuda_bus_id is None:
        return 1.0
    present = state_file.present_gpus(state)
    from railyard_lab import gpus

    if gpus.failure(state):
        raise Failure(
            "initializing CUDA\ncuInit(0) returned 100\n Couldn't allocate MR\nfailed to create mr\nFailed to create MR\n Couldn't create IB resources"
        )
    index = given.use_cuda or 0
    if given.use_cuda_bus_id is not None:
        index = next((at for at, gpu in enumerate(present) if given.use_cuda_bus_id.lower() in gpu["pci"]), -1)
    if not 0 <= index < len(present):
        raise Failure(f"No CUDA device {index}\n Couldn't allocate MR")
    gpu = present[index]
    possible, share = perf.gpudirect(state, nic, gpu, given.use_cuda_dmabuf)
    print("Perftest doesn't supports CUDA tests with inline messages: inline size set to 0")
    print("initializing CUDA\nListing all CUDA devices in system:")
    for at, other in enumerate(present):
        print(f"CUDA device {at}: PCIe address is {other['pci'][5:10].upper()}")
    print(f"\nPicking device No. {index}")
    print(f"[pid = 4242, dev = {index}] device name = [{catalogue.GPUS[gpu['model']]['name']}]")
    print("creating CUDA Ctx\nmaking it the current CUDA Ctx\nCUDA device integrated: 0")
    if not possible:
        raise Failure(
            "ERROR: ibv_reg_mr failed: Bad address\n Couldn't allocate MR\nfailed to create mr\nFailed to create MR\n Couldn't create IB resources"
        )
    return share


# --- the two ends -------------------------------------------------------------------------------------------------


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    rdma_path.send(channel, message)


def _receive(channel: socket.socket) -> dict[str, Any]:
    try:
        return rdma_path.receive(channel)
    except OSError:
        raise Failure(
            " Unable to read from server/client\n Failed to exchange data between server and clients"
        ) from None


def _server(name: str, given: argparse.Namespace, mine: dict[str, Any]) -> int:
    with socket.create_server(("::", given.port), family=socket.AF_INET6, dualstack_ipv6=True) as listening:
        print(
            "\n************************************\n* Waiting for client to connect... *\n************************************",
            flush=True,
        )
        channel, _peer = listening.accept()
    with channel:
        theirs = _receive(channel)
        _send(channel, mine)
        _agree(mine, theirs)
        _heading(name, given, mine, theirs)
        with rdma_path.listener(mine) as wire:
            _send(channel, {"ready": True})
            rdma_path.answer(wire, channel)
            verdict = _receive(channel)
    if not verdict.get("passed"):
        print(f" Completion with error at server\n Failed status 12: wr_id 0 syndrom 0x81\n{LINE}")
        return 1
    if name.endswith("_lat") or given.bidirectional or name == "ib_send_bw":
        print(_table(name, given, mine, theirs))
    print(LINE)
    return 0


def _client(name: str, given: argparse.Namespace, mine: dict[str, Any]) -> int:
    try:
        channel = socket.create_connection((given.server, given.port), timeout=15)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise Failure(
                f"{error.strerror} for {given.server}:{given.port}\n Unable to init the socket connection"
            ) from None
        raise Failure(
            f"Couldn't connect to {given.server}:{given.port}\n Unable to init the socket connection"
        ) from None
    with channel:
        channel.settimeout(60)
        _send(channel, mine)
        theirs = _receive(channel)
        _agree(mine, theirs)
        _heading(name, given, mine, theirs)
        _receive(channel)
        if not rdma_path.reaches(mine, theirs):
            _send(channel, {"passed": False})
            print(_header(name, given))
            print(" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n"
                  f" Failed to complete run_iter_{'lat' if name.endswith('_lat') else 'bw'} function successfully")  # fmt: skip
            return 1
        # A stand-in need not keep the line busy; it takes a moment, so that overlaps show.
        time.sleep(0.1)
        _send(channel, {"passed": True})
    print(_table(name, given, mine, theirs))
    print(LINE)
    if given.out_json or given.out_json_file:
        _write_json(name, given, mine, theirs)
    return 0


def _agree(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    if mine["link_layer"] != theirs["link_layer"]:
        raise Failure(" Link layer of the two sides differs\n Failed to exchange data between server and clients")
    if mine["size"] != theirs["size"] and None not in (mine["size"], theirs["size"]):
        raise Failure(" Conflict: message sizes of the two sides differ")


def _heading(name: str, given: argparse.Namespace, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    client = given.server is not None
    rng = random.Random(f"{mine['host']}{mine['device']}{theirs['host']}")
    mtu = min(mine["mtu"], theirs["mtu"])
    title = NAMES[name]
    if given.bidirectional:
        title = title.replace(" BW", " Bidirectional BW")
    print(LINE)
    print(f"{'':<20}{title}")
    print(f" Dual-port       : OFF\t\tDevice         : {mine['device']}")
    print(f" Number of qps   : {given.qp}\t\tTransport type : IB")
    print(f" Connection type : {given.connection}\t\tUsing SRQ      : OFF")
    print(" PCIe relax order: ON\n ibv_wr* API     : ON")
    if not name.endswith("_lat") and client:
        print(f" TX depth        : {given.tx_depth}")
    if not name.endswith("_lat"):
        print(" CQ Moderation   : 1")
    print(f" Mtu             : {mtu}[B]")
    print(f" Link type       : {'IB' if mine['link_layer'] == 'InfiniBand' else 'Ethernet'}")
    if mine["link_layer"] == "Ethernet" and mine["gid"]:
        print(f" GID index       : {mine['gid']['index']}")
    print(" Max inline data : 0[B]" if not name.endswith("_lat") else " Max inline data : 220[B]")
    print(f" rdma_cm QPs\t : {'ON' if given.rdma_cm else 'OFF'}")
    print(
        " Data ex. method : Ethernet"
        if not given.rdma_cm
        else f" Data ex. method : rdma_cm \tTOS    : {given.tos or 0}"
    )
    print(LINE)
    for word, end in (("local", mine), ("remote", theirs)):
        for _ in range(given.qp):
            lid = f"0x{end['lid']:02x}" if end["lid"] else "0000"
            print(f" {word} address: LID {lid} QPN 0x{rng.randrange(0x80, 0x4000):04x} PSN 0x{rng.randrange(1 << 24):x} "
                  f"RKey 0x{rng.randrange(1 << 20):06x} VAddr 0x00{rng.randrange(1 << 44):012x}")  # fmt: skip
            if end["link_layer"] == "Ethernet" and end["gid"]:
                octets = bytes.fromhex(end["gid"]["gid"].replace(":", ""))
                print(" GID: " + ":".join(f"{octet:02d}" for octet in octets))
    print(LINE, flush=True)


def _header(name: str, given: argparse.Namespace) -> str:
    if name.endswith("_lat"):
        return LAT_HEADER
    return BW_HEADER.format(unit="Gb/sec" if given.report_gbits else "MiB/sec")


def _sizes(name: str, given: argparse.Namespace) -> list[int]:
    if given.all:
        return [1 << power for power in range(1, 24)]
    return [_size(given.size)] if given.size else [2 if name.endswith("_lat") else 65536]


def _bandwidth(
    given: argparse.Namespace, mine: dict[str, Any], theirs: dict[str, Any], size: int
) -> tuple[float, float, float, int]:
    """Peak and average in Gb/s, messages per second in millions, iterations."""
    best = perf.link_gbps(mine, theirs, min(mine["gpu"], theirs["gpu"])) * (2 if given.bidirectional else 1)
    average = best * perf.size_share(size, best, given.qp)
    rate = average * 1e9 / 8 / size / 1e6
    iterations = int(rate * 1e6 * given.duration) if given.duration else (given.iters or 5000) * given.qp
    peak = 0.0 if given.duration or given.noPeak else average * 1.0008
    return peak, average, rate, iterations


def _latency(mine: dict[str, Any], theirs: dict[str, Any], size: int) -> list[float]:
    base = 1.92 + (0.25 if mine["pfc"] != theirs["pfc"] else 0.0) + 4 * (mine["loss"] + theirs["loss"])
    typical = base + size * 8 / (perf.link_gbps(mine, theirs) * 1000)
    return [typical - 0.07, typical * 3.1, typical, typical + 0.02, 0.06, typical + 0.19, typical + 1.34]


def _table(name: str, given: argparse.Namespace, mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    lines = [_header(name, given)]
    for size in _sizes(name, given):
        if name.endswith("_lat"):
            low, high, typical, average, deviation, p99, p999 = _latency(mine, theirs, size)
            lines.append(f" {size:<7d} {given.iters or 1000:<10d}     {low:<7.2f}        {high:<7.2f}      {typical:<7.2f}     \t       "
                         f"{average:<7.2f}     \t{deviation:<7.2f}\t\t{p99:<7.2f} \t\t{p999:<7.2f}")  # fmt: skip
            continue
        peak, average, rate, iterations = _bandwidth(given, mine, theirs, size)
        if not given.report_gbits:
            peak, average = peak * 1e9 / 8 / (1 << 20), average * 1e9 / 8 / (1 << 20)
        digits = 6 if average < 0.1 else 2
        lines.append(
            f" {size:<10d} {iterations:<16d} {peak:<7.{digits}f}            {average:<7.{digits}f}  \t\t   {rate:<7.6f}"
        )
    return "\n".join(lines)


def _write_json(name: str, given: argparse.Namespace, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    size = _sizes(name, given)[-1]
    test = {"test": NAMES[name].replace(" ", "_"), "Dual_port": "OFF", "Device": mine["device"], "Number_of_qps": given.qp,
            "Transport_type": "IB", "Connection_type": given.connection, "Using_SRQ": "OFF", "PCIe_relax_order": "ON",
            "ibv_wr_API": "ON", "TX_depth": given.tx_depth, "CQ_Moderation": 1, "Mtu": min(mine["mtu"], theirs["mtu"]),
            "Link_type": "IB" if mine["link_layer"] == "InfiniBand" else "Ethernet",
            "GID_index": mine["gid"]["index"] if mine["gid"] else 0, "Max_inline_data": 0, "rdma_cm_QPs": "OFF",
            "Data_ex_method": "Ethernet"}  # fmt: skip
    if name.endswith("_lat"):
        names = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "percentile_99", "percentile_99.9")
        values = [round(value, 2) for value in _latency(mine, theirs, size)]
        results = {"MsgSize": size, "n_iterations": given.iters or 1000, **dict(zip(names, values))}
    else:
        peak, average, rate, iterations = _bandwidth(given, mine, theirs, size)
        if not given.report_gbits:
            peak, average = peak * 1e9 / 8 / (1 << 20), average * 1e9 / 8 / (1 << 20)
        results = {"MsgSize": size, "n_iterations": iterations, "BW_peak": round(peak, 2), "BW_average": round(average, 2),
                   "MsgRate": round(rate, 6)}  # fmt: skip
    path = given.out_json_file or "perftest_out.json"
    with open(path, "w", encoding="utf-8") as handle:
        json.dump({"test_info": test, "results": results}, handle, indent=1)
