# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is planned for opensm, read by the real one on a simulated fabric: partitions, priorities, a second manager."""

from __future__ import annotations

import re
import signal
import time
import typing as t
from pathlib import Path

import pytest
from railyard_ibsim import simulator
from railyard_ibsim.fat_tree import FatTree
from railyard_ibsim.simulator import Simulator

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import ib_networks, opensm
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import resolve
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import from_facts

pytestmark = pytest.mark.skipif(simulator.lacking() is not None, reason=str(simulator.lacking()))

TREE = FatTree(4, 2, 4)
NODES = TREE.hosts[:2]
STORAGE = {"pkey": 0x8005, "name": "storage", "ipv4": "10.241.0.0/24", "rails": [0]}
# One tenant's partition holds a single port, beside that of the subnet manager.
TENANT_PORT = TREE.adapters[(TREE.hosts[2], 0)] + 1
TENANT = {"pkey": "0x800b", "name": "tenant", "members": [f"0x{TENANT_PORT:016x}"]}


def planned(host: str, *partitions: dict[str, t.Any]) -> dict[str, str]:
    """The files of a host by the planner."""
    variables = {
        "gpu_fabric_opensm_nodes": NODES,
        "gpu_fabric_ib_partitions": list(partitions),
        "gpu_fabric_ipoib": {"ipv4": "10.240.0.0/16"},
    }
    intent, problems = resolve(variables)
    assert problems == [] and ib_networks.problems(intent) == []
    machine = from_facts(host, TREE.facts()[host])
    files = opensm.for_host(opensm.rack(intent, {}, {}), host, machine, [])["files"]
    return {entry["path"]: entry["content"] for entry in files}


def settings(files: dict[str, str], scratch: Path) -> str:
    """The planned configuration, with the partitions' file where a test may write."""
    path = scratch / "partitions.conf"
    path.write_text(files[opensm.PARTITION_FILE], encoding="ascii")
    return files[opensm.CONFIG].replace(opensm.PARTITION_FILE, str(path))


def simulated(scratch: Path, *partitions: dict[str, t.Any]) -> Simulator:
    lines = settings(planned(NODES[0], *partitions), scratch)
    return Simulator(TREE.text(), TREE.node_id(TREE.adapter(NODES[0], 0)), scratch, settings=lines)


def pkeys(running: Simulator, guid: int) -> set[str]:
    """The keys of a port, as a subnet management query shows them."""
    answer = running.run("smpquery", "-G", "pkeys", f"0x{guid:016x}", "1")
    return set(re.findall(r"0x[0-9a-f]{4}\b", answer.split(":", 1)[1])) - {"0x0000"}


def test_real_opensm_gives_the_planned_keys_with_full_membership(tmp_path: Path) -> None:
    with simulated(tmp_path, STORAGE, TENANT) as running:
        found = {port: pkeys(running, guid + 1) for port, guid in TREE.adapters.items()}
        log = (tmp_path / "opensm.txt").read_text(encoding="utf-8", errors="replace")
    member, manager = (TREE.hosts[2], 0), (NODES[0], 0)
    assert found.pop(member) == found.pop(manager) == {"0xffff", "0x8005", "0x800b"}
    assert set(map(frozenset, found.values())) == {frozenset({"0xffff", "0x8005"})}
    assert "PARSE ERROR" not in log and "ERR " not in log, log


def test_broadcast_groups_have_the_packet_size_of_the_intent(tmp_path: Path) -> None:
    with simulated(tmp_path, {**STORAGE, "mtu": 2044}) as running:
        groups = running.run("saquery", "-g")
    sizes = dict(re.findall(r"MGID\.*ff12:401b:(\w+)::ffff:ffff\b.*?Mtu\.*(0x\w+)", groups, re.DOTALL))
    # The upper bits say `exactly`, the lower ones 4 for 2048 bytes and 5 for 4096.
    assert {key: int(value, 16) & 0x3F for key, value in sizes.items()} == {"ffff": 5, "8005": 4}, groups


def test_partition_that_comes_later_needs_no_other_manager(tmp_path: Path) -> None:
    with simulated(tmp_path) as running:
        port = TREE.adapters[(TREE.hosts[3], 1)] + 1
        assert pkeys(running, port) == {"0xffff"}
        settings(planned(NODES[0], STORAGE), tmp_path)
        running.signal_manager(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while "0x8005" not in pkeys(running, port) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert pkeys(running, port) == {"0xffff", "0x8005"}


def test_second_node_stands_by_for_the_first(tmp_path: Path) -> None:
    second = TREE.node_id(TREE.adapter(NODES[1], 0))
    with simulated(tmp_path, STORAGE) as running:
        lines = planned(NODES[1], STORAGE)[opensm.CONFIG].replace(
            opensm.PARTITION_FILE, str(tmp_path / "partitions.conf")
        )
        running.start_manager(second, lines, "Entering STANDBY state")
        said = running.run("sminfo")
    assert f"sm guid 0x{TREE.adapters[(NODES[0], 0)] + 1:x}" in said and "priority 14 state 3 SMINFO_MASTER" in said
