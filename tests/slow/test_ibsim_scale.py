# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""2,048 adapters: 256 hosts with eight rails on a rail-optimised fat-tree of 96 switches, with faults all over it.

Each step's time is printed (pytest -s) and kept in the junit file.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ibsim"))

from railyard_ibsim import simulator
from railyard_ibsim.fat_tree import NARROW, SLOW, FatTree
from railyard_ibsim.simulator import Simulator

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate

HOSTS, RAILS, GROUP = 256, 8, 32

pytestmark = pytest.mark.skipif(simulator.lacking() is not None, reason=str(simulator.lacking()))


class Stopwatch:
    def __init__(self, record) -> None:
        self._record = record

    def __call__(self, name: str, work):
        start = time.monotonic()
        result = work()
        seconds = time.monotonic() - start
        self._record(name, f"{seconds:.2f} s")
        print(f"{name}: {seconds:.2f} s")
        return result


@pytest.fixture
def timed(record_property):
    return Stopwatch(record_property)


def record(tree: FatTree, scratch: Path, timed: Stopwatch, errors=()) -> dict[str, str]:
    running = Simulator(tree.text(), tree.node_id(tree.adapter(tree.hosts[0], 0)), scratch, patience_s=600)
    timed("simulator and subnet manager", running.__enter__)
    try:
        for node, port in errors:
            running.count_errors(tree.node_id(node), port, "SymbolErrorCounter", 1000 + port)
        return timed("ibnetdiscover, iblinkinfo and ibqueryerrors", running.recordings)
    finally:
        running.__exit__(None, None, None)


def judge(tree: FatTree, recorded: dict[str, str]) -> set[tuple[str, str]]:
    """(finding, host or switch) of what concerns the fabric."""
    found = evaluate(tree.facts(), tree.plan(), {}, recorded)
    assert not {"RF-INTERNAL", "RF-FACTS-UNREADABLE"} & {f["id"] for f in found}, found[:3]
    mine = [f for f in found if f["id"].startswith(("RF-CABLE", "RF-LINK"))]
    named = {(f["id"], f["host"] or f["device"].split(" ")[0]) for f in mine}
    assert len(named) == len(mine), "two findings of one kind about one host"
    return named


def test_a_healthy_fabric_has_no_finding(tmp_path, timed):
    tree = FatTree(HOSTS, RAILS, GROUP)
    recorded = record(tree, tmp_path, timed)
    assert len(recorded["ibnetdiscover.txt"]) > 500_000
    assert timed("parsing and judging", lambda: judge(tree, recorded)) == set()


@pytest.mark.parametrize("seed", [1, 2])
def test_every_planted_fault_is_found_and_nothing_else(tmp_path, timed, seed):
    tree, dice = FatTree(HOSTS, RAILS, GROUP), random.Random(seed)
    hosts = iter(dice.sample(tree.hosts[1:], 60))  # the first one carries the subnet manager
    planted: set[tuple[str, str]] = set()
    errors = []

    def rails(count: int) -> list[int]:
        return dice.sample(range(RAILS), count)

    for _ in range(6):
        host, (one, other) = next(hosts), rails(2)
        tree.swap((host, one), (host, other))
        planted.add(("RF-CABLE-SWAPPED", host))
    for _ in range(4):
        one, other = sorted([next(hosts), next(hosts)])
        first, second = rails(2)
        tree.swap((one, first), (other, second))
        planted.add(("RF-CABLE-SWAPPED", one))  # one finding for the pair, on its first host
    for _ in range(6):
        host = next(hosts)
        tree.cut(host, rails(1)[0])
        planted.add(("RF-LINK-MISSING", host))
    for option in (SLOW, NARROW) * 3:
        host = next(hosts)
        tree.cable(host, rails(1)[0]).options = option
        planted.add(("RF-LINK-DEGRADED", host))
    for leaf in dice.sample([name for name in tree.switches if name.startswith("leaf-")], 5):
        tree.cut_uplink(leaf, f"spine-{dice.randint(1, GROUP)}")
        planted.add(("RF-LINK-UPLINKS", leaf))
    for _ in range(5):
        host = next(hosts)
        errors.append(tree.cable(host, rails(1)[0]).high)
        planted.add(("RF-LINK-ERRORS", host))

    recorded = record(tree, tmp_path, timed, errors)
    assert timed("parsing and judging", lambda: judge(tree, recorded)) == planted
