"""`--tags rdma` on two machines with real kernels: set, unchanged by a second run, measured, rebooted, taken away.

The tests of this file build on one another, in their order: each looks at the machines as the one before left them.
"""

from __future__ import annotations

from typing import Any

import pytest
import runs
import wire
from machines import Pair
from rack import Run
from states import assert_as_planned, states

RAILS = "Rails have their MTU, addresses, routes and rules"


@pytest.fixture(scope="module")
def checked(pair: Pair) -> Run:
    """A run that may change nothing; its plan names the kernel parameters to look at before the first change."""
    return runs.rdma("--check", "--diff")


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


def assert_measured(pair: Pair, plan: dict[str, Any]) -> None:
    """ib_write_bw over each rail; its frames are on that rail's wire, and on no other, with the planned DSCP."""
    server, client = pair.machines
    dscp = plan["rack"]["roce"]["dscp"]
    for rail in (0, 1):
        ends = [plan["hosts"][m.name]["rails"][rail]["ipv4"].partition("/")[0] for m in (client, server)]
        captures = [client.capture(f"rail{number}") for number in (0, 1)]
        offsets = [path.stat().st_size for path in captures]
        said = runs.measure(pair, plan, rail)
        assert "BW average" in said and said.split()[-1].strip("-") == "", said
        seen = [
            [frame for frame in wire.udp_frames(path, offset) if frame.port == wire.ROCE_V2]
            for path, offset in zip(captures, offsets)
        ]
        writes = [frame for frame in seen[rail] if frame.opcode in wire.RDMA_WRITE]
        assert len(writes) >= 200
        assert {(frame.source, frame.destination) for frame in writes} == {tuple(ends)}
        assert {frame.dscp for frame in seen[rail]} == {dscp}
        # 4096 bytes of payload in one frame: the RDMA MTU that the planned MTU allows is in use.
        assert max(frame.length for frame in writes) > 4096
        assert seen[1 - rail] == []


def test_plan_is_two_rails_over_soft_roce(plan: dict[str, Any]) -> None:
    assert plan["rack"]["fabric"] == "roce"
    for number, name in enumerate(("vm-01", "vm-02"), 1):
        host = plan["hosts"][name]
        assert [(rail["hca"], rail["netdev"]) for rail in host["rails"]] == [("rxe0", "ens4"), ("rxe1", "ens5")]
        assert [link["addresses"] for link in host["links"]] == [
            [f"10.224.0.{10 + number}/24"],
            [f"10.224.1.{10 + number}/24"],
        ]
        assert host["protected_interfaces"] == ["ens3"]
        assert all(link["routes"] and link["rules"] for link in host["links"])


def test_check_mode_changes_nothing(checked: Run, before: dict[str, Any], pair: Pair, plan: dict[str, Any]) -> None:
    assert {task.rpartition(" : ")[2] for _, task in checked.changes()} >= {RAILS}
    for name, state in before.items():
        assert [link for link in ("ens4", "ens5") if state["links"][link]["addresses"]] == [], name
        assert not any("gpu" in path for path in state["files"]), name


def test_first_run_sets_everything_as_planned(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    assert first.rc == 0, first.describe()
    assert_as_planned(pair, plan)


def test_rdma_runs_over_each_rail_with_the_planned_dscp(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    assert plan["rack"]["roce"]["perftest_tos"] == 106
    assert_measured(pair, plan)


def test_second_run_changes_nothing(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    unchanged = states(pair, plan)
    second = runs.rdma()
    assert second.rc == 0, second.describe()
    assert second.changes() == set()
    assert {name: runs.differences(unchanged[name], state) for name, state in states(pair, plan).items()} == {
        name: [] for name in unchanged
    }


def test_reboot_keeps_everything(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    pair.reboot()
    assert_as_planned(pair, plan)
    assert_measured(pair, plan)


def test_run_after_the_reboot_changes_nothing(first: Run, pair: Pair) -> None:
    run = runs.rdma()
    assert run.rc == 0, run.describe()
    assert run.changes() == set()


def test_absent_brings_back_what_was_there(
    first: Run, before: dict[str, Any], pair: Pair, plan: dict[str, Any]
) -> None:
    run = runs.rdma("-e", "gpu_fabric_state=absent")
    assert run.rc == 0, run.describe()
    assert {name: runs.differences(before[name], state) for name, state in states(pair, plan).items()} == {
        name: [] for name in before
    }


def test_absent_holds_over_a_reboot(first: Run, before: dict[str, Any], pair: Pair, plan: dict[str, Any]) -> None:
    pair.reboot()
    assert {
        name: runs.differences(before[name], state, restarted=True) for name, state in states(pair, plan).items()
    } == {name: [] for name in before}
