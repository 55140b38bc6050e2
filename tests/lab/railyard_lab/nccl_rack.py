# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several hosts in one nccl-tests run: they meet over sockets as NCCL's bootstrap does, and try every rail."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from railyard_lab import interfaces, nccl_env, perf, ports, rdma_path


class Failure(Exception):
    """Text of the failure, without the lines that nccl-tests puts around it."""


def active_nics(state: dict[str, Any], live: dict[str, interfaces.Interface]) -> list[dict[str, Any]]:
    if not {"mlx5_ib", "ib_uverbs"} <= set(state["modules"]):
        return []
    found = [nic for nic in state["nics"] if nic["rdma"] and ports.view(state, nic, live)["state"] == 4]
    return sorted(found, key=lambda nic: nic["pci"])


def bootstrap_address(environment: dict[str, str], live: dict[str, interfaces.Interface]) -> tuple[str, str]:
    """Interface and address over which ranks find each other."""
    usable = [
        (name, address)
        for name, interface in live.items()
        if interface.up
        for address, _prefix in interface.addresses
        if ":" not in address
    ]
    pattern = environment.get("NCCL_SOCKET_IFNAME")
    if pattern:
        names = [name for name, _ in nccl_env.match([(name, -1) for name, _ in usable], pattern)]
        usable = [item for item in usable if item[0] in names]
    else:
        # The order of NCCL's search: real interfaces, then docker, then the loopback.
        usable.sort(key=lambda item: next((at for at, word in enumerate(("docker", "lo", "virbr"), 1)
                                           if item[0].startswith(word)), 0))  # fmt: skip
        usable = usable or [("lo", "127.0.0.1")]
    if not usable:
        raise Failure("NCCL WARN Bootstrap : no socket interface found")
    return usable[0]


def describe(state: dict[str, Any], environment: dict[str, str], gpus: int) -> dict[str, Any]:
    """What this host brings: its GPUs and the ends of its rails."""
    live = interfaces.current(state)
    traffic_class = nccl_env.number(environment, "NCCL_IB_TC", 0)
    index = nccl_env.number(environment, "NCCL_IB_GID_INDEX", -1)
    disabled = nccl_env.number(environment, "NCCL_IB_DISABLE", 0)
    nics = [] if disabled else nccl_env.network(state, environment, active_nics(state, live))
    layers = {nic["link_layer"] for nic in nics}
    if len(layers) > 1:
        raise Failure("NCCL WARN NET/IB : Attempted to mix Infiniband and RoCE devices in one communicator")
    return {
        "host": state["host"],
        "gpus": gpus,
        "model": state["gpus"][0]["model"],
        "ends": [perf.endpoint(state, nic, live, traffic_class, index if index >= 0 else None) for nic in nics],
        "bootstrap": bootstrap_address(environment, live)[1],
    }


def _send(channel: socket.socket, message: Any) -> None:
    try:
        rdma_path.send(channel, message)
    except OSError as error:
        raise Failure(f"NCCL WARN socketProgress: Connection closed by remote peer ({error})") from None


def _receive(channel: socket.socket) -> Any:
    try:
        return rdma_path.receive(channel)
    except OSError as error:
        raise Failure(f"NCCL WARN socketProgress: Connection closed by remote peer ({error})") from None


def _call(address: str, port: int, source: str) -> socket.socket:
    """Connect to rank 0; like NCCL, ask again while nobody listens there yet."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((address, port), timeout=20, source_address=(source, 0))
        except ConnectionRefusedError as error:
            if time.monotonic() > deadline:
                raise Failure(f"NCCL WARN socketPollConnect: connect to {address}<{port}> returned {error}") from None
            time.sleep(0.1)
        except OSError as error:
            raise Failure(f"NCCL WARN socketPollConnect: connect to {address}<{port}> returned {error}") from None


def meet(mine: dict[str, Any], rank: int, hosts: int, rendezvous: str) -> list[dict[str, Any]]:
    """Every host's description, in the order of ranks. `rendezvous`: `address:port` of rank 0."""
    address, port = rendezvous.rsplit(":", 1)
    if rank == 0:
        return _gather(mine, hosts, int(port))
    channel = _call(address, int(port), mine["bootstrap"])
    with channel:
        channel.settimeout(60)
        _send(channel, mine)
        everyone = _receive(channel)
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(rdma_path.listener(end)) for end in mine["ends"]]
            for wire in wires:
                _receive(channel)  # the next rail is about to be tried
                _send(channel, "ready")
                rdma_path.answer(wire, channel)
                _receive(channel)
            verdict = _receive(channel)
    if verdict != "done":
        raise Failure(verdict)
    return everyone


def _gather(mine: dict[str, Any], hosts: int, port: int) -> list[dict[str, Any]]:
    with socket.create_server(("", port)) as listening:
        listening.settimeout(30)
        channels: list[tuple[dict[str, Any], socket.socket]] = []
        try:
            while len(channels) < hosts - 1:
                channel, _ = listening.accept()
                channel.settimeout(60)
                channels.append((_receive(channel), channel))
        except TimeoutError:
            raise Failure("NCCL WARN bootstrapRoot: not all ranks have called in") from None
    channels.sort(key=lambda item: item[0]["rank"])
    everyone = [mine] + [item[0] for item in channels]
    for _theirs, channel in channels:
        _send(channel, everyone)
    problem = None
    for theirs, channel in channels:
        for index, end in enumerate(theirs["ends"]):
            _send(channel, "next")
            _receive(channel)
            if index < len(mine["ends"]) and not rdma_path.reaches(mine["ends"][index], end):
                problem = (
                    f"NCCL WARN NET/IB: Got completion from peer {end['gid']['gid'] if end['gid'] else '?'} "
                    f"with status=12 opcode=129 len=0 vendor err 129 (Send) hca {mine['ends'][index]['device']}"
                )
            _send(channel, "stop")
    for _theirs, channel in channels:
        _send(channel, problem or "done")
        channel.close()
    if problem:
        raise Failure(problem)
    return everyone


def busbw(everyone: list[dict[str, Any]], single: float, across: float) -> float:
    """Limit of several hosts: NVLink inside, the slowest host's rails outside."""
    hosts = len(everyone)
    if hosts == 1:
        return single
    ranks = sum(host["gpus"] for host in everyone)
    if any(not host["ends"] for host in everyone):
        wire = 1.1  # sockets over the management network
    else:
        wire = min(
            sum(perf.link_gbps(one, other) for one, other in zip(host["ends"], everyone[(index + 1) % hosts]["ends"]))
            for index, host in enumerate(everyone)
        ) / 8  # fmt: skip
    limit = wire * hosts * (ranks - 1) / (ranks * (hosts - 1))
    return min(across, limit)


def rank_of(environment: dict[str, str]) -> tuple[int, int, str]:
    """Host number, number of hosts, rendezvous: what the launcher left in the environment."""
    rank = int(environment.get("OMPI_COMM_WORLD_NODE_RANK_OF_WORLD", environment.get("PMIX_NODE_RANK", "0")))
    hosts = int(environment.get("OMPI_MCA_orte_num_nodes", "1"))
    return rank, hosts, environment.get("NCCL_COMM_ID", "")
