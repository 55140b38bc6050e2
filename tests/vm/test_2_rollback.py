"""The interface that carries the run's own connection: a mistake is taken back by the host, a good change stays.

The tests of this file build on one another, in their order.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import runs
from machines import Machine, Pair
from rack import Run

# The way back must not strike while a busy machine still confirms a good change.
ROLLBACK_S = 90
RAILS = "Rails have their MTU, addresses, routes and rules"


@pytest.fixture(scope="module")
def machine(pair: Pair) -> Machine:
    return pair.machines[0]


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, Any]:
    return runs.state_of(machine)


def management(state: dict[str, Any]) -> Any:
    """Everything of a state that says how the machine is managed."""
    # Without the source: of two addresses in one network, networkd makes either the first.
    routes = [route[:4] for route in state["routes"] if route[3] == "ens3"]
    return state["links"]["ens3"], routes, [path for path in state["files"] if "gpu-fabric-ens3" in path]


def change(link: dict[str, Any], *arguments: str, rollback_s: int = ROLLBACK_S) -> Run:
    """A run on one machine alone that gives it this management interface."""
    given = {"gpu_fabric_management_link": link, "rdma_rollback_s": rollback_s}
    return runs.rdma("--limit", "vm-01", "-e", json.dumps(given), *arguments)


def test_nothing_changes_without_a_way_back(machine: Machine, before: dict[str, Any]) -> None:
    run = change({"addresses": ["192.168.76.77/24"]}, rollback_s=0)
    assert run.rc != 0
    assert "give rollback_s" in run.messages()
    assert management(runs.state_of(machine)) == management(before)


def test_wrong_address_is_taken_back_by_the_host(machine: Machine, before: dict[str, Any]) -> None:
    start = time.monotonic()
    # Nobody forwards to this address: the machine is cut off as by a typing mistake in the inventory.
    run = change({"addresses": ["192.168.76.77/24"], "mtu": 1400})
    assert run.rc != 0
    assert f"took the change back after {ROLLBACK_S} s" in run.messages()
    assert "192.168.76.77" in run.messages()
    assert time.monotonic() - start > ROLLBACK_S
    assert management(runs.state_of(machine)) == management(before)
    # The change had really been made, and the timer alone took it back.
    journal = machine.run("journalctl --boot --no-pager --output=cat --unit=gpu-fabric-links-rollback.service")
    assert "gpu-fabric-links-rollback.service: Deactivated successfully" in journal
    assert machine.run("systemctl list-timers --no-legend 'gpu-fabric-links-*'").strip() == ""


def test_good_change_is_confirmed_and_kept(machine: Machine) -> None:
    run = change({"addresses": ["192.168.76.11/24", "192.168.76.21/24"], "mtu": 1400})
    assert run.rc == 0, run.describe()
    state = runs.state_of(machine)
    link, _, files = management(state)
    assert link == {
        "mtu": 1400,
        "up": True,
        "master": None,
        "addresses": ["192.168.76.11/24", "192.168.76.21/24"],
    }
    assert files == ["/etc/systemd/network/05-gpu-fabric-ens3.network"]
    assert machine.run("systemctl list-timers --no-legend 'gpu-fabric-links-*'").strip() == ""
    # The way back is gone: nothing happens when its time comes.
    time.sleep(ROLLBACK_S + 5)
    assert management(runs.state_of(machine)) == management(state)


def test_same_change_again_changes_nothing(machine: Machine) -> None:
    run = change({"addresses": ["192.168.76.11/24", "192.168.76.21/24"], "mtu": 1400})
    assert run.rc == 0, run.describe()
    assert not [task for _, task in run.changes() if RAILS in task]


def test_change_holds_over_a_reboot(machine: Machine, pair: Pair) -> None:
    kept = management(runs.state_of(machine))
    pair.reboot()
    assert management(runs.state_of(machine)) == kept


def test_without_the_intent_the_interface_is_as_it_was(machine: Machine, before: dict[str, Any]) -> None:
    run = runs.rdma("--limit", "vm-01", "-e", f"rdma_rollback_s={ROLLBACK_S}")
    assert run.rc == 0, run.describe()
    assert management(runs.state_of(machine)) == management(before)
