# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""mpirun of Open MPI, as far as nccl-tests need it: one process per host over ssh, ranks told by the environment."""

from __future__ import annotations

import os
import random
import shlex
import socket
import subprocess
import sys
from typing import Any

from railyard_lab import interfaces, nccl_env, nccl_rack
from railyard_lab import state as state_file
from railyard_lab.tools import _common

_WITH_VALUE = {"-np": "np", "-n": "np", "-c": "np", "-H": "hosts", "--host": "hosts", "-host": "hosts",
               "--hostfile": "file", "-hostfile": "file", "-machinefile": "file", "-N": "per_node", "-npernode": "per_node"}  # fmt: skip
_SKIP_ONE = {
    "--map-by",
    "--bind-to",
    "-map-by",
    "-bind-to",
    "--report-bindings",
    "-wdir",
    "--rank-by",
    "-oversubscribe",
}
_FLAGS = {
    "--allow-run-as-root",
    "--oversubscribe",
    "-q",
    "--tag-output",
    "--report-bindings",
    "-oversubscribe",
    "--quiet",
}


def _parse(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    given: dict[str, Any] = {"np": None, "hosts": "", "file": None, "per_node": None, "exports": {}}
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        word = argv[position]
        if word in _WITH_VALUE:
            given[_WITH_VALUE[word]] = argv[position + 1]
            position += 2
        elif word == "-x":
            name, equals, value = argv[position + 1].partition("=")
            given["exports"][name] = value if equals else os.environ.get(name, "")
            position += 2
        elif word in ("-mca", "--mca"):
            position += 3
        elif word in _FLAGS:
            position += 1
        elif word in _SKIP_ONE:
            position += 2
        else:
            position += 1
    return given, argv[position:]


def _hosts(given: dict[str, Any]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    if given["file"]:
        with open(given["file"], encoding="utf-8") as handle:
            for line in handle:
                words = line.split("#")[0].split()
                if words:
                    slots = next((int(word.split("=")[1]) for word in words[1:] if word.startswith("slots=")), 1)
                    found.append((words[0], slots))
    for item in filter(None, given["hosts"].split(",")):
        name, _, slots = item.partition(":")
        found.append((name, int(slots) if slots else int(given["per_node"] or 1)))
    return found or [("localhost", int(given["np"] or 1))]


def _is_here(name: str) -> bool:
    if name in ("localhost", "127.0.0.1", socket.gethostname(), socket.gethostname().split(".")[0]):
        return True
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return False
    live = interfaces.current(state_file.load())
    return any(address == own for interface in live.values() for own, _prefix in interface.addresses)


def main(name: str, argv: list[str]) -> int:
    given, command = _parse(argv)
    if not command:
        _common.error("--------------------------------------------------------------------------\n"
                      "mpirun could not find anything to do.")  # fmt: skip
        return 1
    hosts = _hosts(given)
    ranks = int(given["np"]) if given["np"] else sum(slots for _, slots in hosts)
    left, chosen = ranks, []
    for host, slots in hosts:
        take = min(slots, left)
        if take:
            chosen.append((host, take))
        left -= take
    if left:
        _common.error(
            f"There are not enough slots available in the system to satisfy the {ranks} slots that were requested."
        )
        return 1
    environment = nccl_env.read({**os.environ, **given["exports"]})
    state = _common.snapshot()
    try:
        address = nccl_rack.bootstrap_address(environment, interfaces.current(state))[1]
    except nccl_rack.Failure as error:
        _common.error(str(error))
        return 1
    low, high = 32768, 60999
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="utf-8") as handle:
            low, high = (int(word) for word in handle.read().split())
    except OSError:
        pass
    rendezvous = f"{address}:{random.randint(low, high)}"
    running = []
    for number, (host, slots) in enumerate(chosen):
        variables = {
            **given["exports"],
            "OMPI_COMM_WORLD_SIZE": str(ranks),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(slots),
            "OMPI_COMM_WORLD_NODE_RANK_OF_WORLD": str(number),
            "OMPI_MCA_orte_num_nodes": str(len(chosen)),
            "NCCL_COMM_ID": rendezvous,
        }
        if _is_here(host):
            running.append((host, subprocess.Popen(command, env={**os.environ, **variables})))
            continue
        line = " ".join(
            ["env", *(shlex.quote(f"{key}={value}") for key, value in variables.items()), shlex.join(command)]
        )
        running.append((host, subprocess.Popen(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, line])))
    worst = 0
    for host, process in running:
        code = process.wait()
        if code:
            worst = worst or code
            print("--------------------------------------------------------------------------\n"
                  f"mpirun detected that one or more processes exited with non-zero status on {host}, exit code {code}\n"
                  "--------------------------------------------------------------------------", file=sys.stderr)  # fmt: skip
    return worst
