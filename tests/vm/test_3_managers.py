"""netplan, ifupdown, NetworkManager and networkd bring the same links up, now and at boot, and give them back.

Two pairs of machines, each machine with another network manager; the tests build on one another, in their order.
"""

from __future__ import annotations

from typing import Any

import pytest
import runs
from machines import Pair
from rack import Run
from states import assert_as_planned, states

PAIRS = [("netplan", "ifupdown"), ("networkmanager", "networkd")]
pytestmark = pytest.mark.parametrize("pair", PAIRS, indirect=True, scope="module", ids="-".join)
RAILS = "Rails have their MTU, addresses, routes and rules"


@pytest.fixture(scope="module")
def checked(pair: Pair) -> Run:
    return runs.rdma("--check")


@pytest.fixture(scope="module")
def plan(checked: Run) -> dict[str, Any]:
    assert checked.rc == 0, checked.describe()
    return runs.plan_of(checked)


@pytest.fixture(scope="module")
def before(pair: Pair, plan: dict[str, Any]) -> dict[str, Any]:
    return states(pair, plan)


@pytest.fixture(scope="module")
def first(before: dict[str, Any]) -> Run:
    return runs.rdma()


def test_each_host_keeps_its_own_network_manager(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    assert first.rc == 0, first.describe()
    found = {host: result["manager"] for host, task, result in first.results() if task.endswith(RAILS)}
    assert found == {machine.name: manager for machine, manager in zip(pair.machines, pair.managers)}
    assert_as_planned(pair, plan)


def test_second_run_changes_nothing(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    run = runs.rdma()
    assert run.rc == 0, run.describe()
    assert run.changes() == set()
    assert_as_planned(pair, plan)


def test_reboot_keeps_everything(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    pair.reboot()
    assert_as_planned(pair, plan)


def test_absent_brings_back_what_was_there(
    first: Run, before: dict[str, Any], pair: Pair, plan: dict[str, Any]
) -> None:
    run = runs.rdma("-e", "gpu_fabric_state=absent")
    assert run.rc == 0, run.describe()
    assert {name: runs.differences(before[name], state) for name, state in states(pair, plan).items()} == {
        name: [] for name in before
    }
