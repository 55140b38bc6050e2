"""netplan, ifupdown, NetworkManager and networkd bring the same rails and the same bond up, now and at boot.

Two pairs of machines, each machine with another network manager; the tests build on one another, in their order.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
import runs
from machines import Pair
from rack import Run
from states import assert_as_planned, states

PAIRS = [("networkmanager", "ifupdown"), ("netplan", "networkd")]
pytestmark = pytest.mark.parametrize("pair", PAIRS, indirect=True, scope="module", ids="-".join)
MEMBERS = ["ens6", "ens7"]
# A busy controller may take many seconds to pull the cable.
LOAD_S = 90
RAILS = "Rails have their MTU, addresses, routes and rules"


@pytest.fixture(scope="module")
def mode(pair: Pair) -> str:
    """One pair has a bond of each kind."""
    return "802.3ad" if pair.managers == PAIRS[0] else "active-backup"


@pytest.fixture(scope="module")
def intent(mode: str) -> tuple[str, str]:
    bond = {"members": MEMBERS, "mode": mode, "mtu": 9000, "addresses": ["10.30.0.{{ inventory_hostname[-1] }}/24"]}
    return ("-e", json.dumps({"gpu_fabric_bonds": {"bond0": bond}}))


@pytest.fixture(scope="module")
def before(pair: Pair) -> dict[str, Any]:
    return states(pair)


@pytest.fixture(scope="module")
def first(before: dict[str, Any], intent: tuple[str, str]) -> Run:
    return runs.rdma(*intent)


@pytest.fixture(scope="module")
def plan(first: Run) -> dict[str, Any]:
    assert first.rc == 0, first.describe()
    return runs.plan_of(first)


def test_each_host_keeps_its_own_network_manager(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    assert first.rc == 0, first.describe()
    found = {host: result["manager"] for host, task, result in first.results() if task.endswith(RAILS)}
    assert found == {machine.name: manager for machine, manager in zip(pair.machines, pair.managers)}
    assert_as_planned(pair, plan)


def test_bond_is_of_the_planned_kind(first: Run, pair: Pair, mode: str) -> None:
    for machine in pair.machines:
        options = runs.bond_options(machine, "bond0")
        assert options["mode"] == mode and options["miimon"] == "100"
        if mode == "802.3ad":
            assert (options["lacp_rate"], options["xmit_hash_policy"]) == ("fast", "layer3+4")
    pair.machines[1].reach("10.30.0.1")


def test_traffic_goes_on_when_a_cable_is_pulled(first: Run, pair: Pair) -> None:
    server, client = pair.machines
    server.run("systemd-run --quiet --collect --unit=load-server iperf3 --server --one-off")
    start = time.monotonic()
    load = client.start(f"iperf3 --client 10.30.0.1 --time {LOAD_S} --json")
    time.sleep(12)
    counted = runs.sent_bytes(client, MEMBERS)
    time.sleep(3)
    grown = {name: now - counted[name] for name, now in runs.sent_bytes(client, MEMBERS).items()}
    carrying, other = sorted(MEMBERS, key=lambda name: -grown[name])
    # The member that carries the load loses its cable: both ends see their link go.
    for machine in pair.machines:
        machine.plug(f"bond{MEMBERS.index(carrying)}", connected=False)
    left = runs.sent_bytes(client, MEMBERS)
    pulled_s = math.ceil(time.monotonic() - start)
    said = json.loads(load.communicate(timeout=LOAD_S + 120)[0])
    now = runs.sent_bytes(client, MEMBERS)
    for machine in pair.machines:
        machine.plug(f"bond{MEMBERS.index(carrying)}", connected=True)
    seconds = [interval["sum"]["bytes"] for interval in said["intervals"]]
    # The emulated machines' speed goes up and down; a bond that stands still sends nothing at all.
    before, after = seconds[:10], seconds[pulled_s + 5 :]
    assert len(after) >= 10, f"the cable was pulled {pulled_s} s after the start, of {LOAD_S}"
    assert sum(after) / len(after) > sum(before) / len(before) / 20, seconds
    sent = {name: now[name] - left[name] for name in MEMBERS}
    assert sent[other] > sum(after) and sent[other] > 100 * sent[carrying], sent


def test_second_run_changes_nothing(first: Run, pair: Pair, plan: dict[str, Any], intent: tuple[str, str]) -> None:
    run = runs.rdma(*intent)
    assert run.rc == 0, run.describe()
    assert run.changes() == set()
    assert_as_planned(pair, plan)


def test_reboot_keeps_everything(first: Run, pair: Pair, plan: dict[str, Any]) -> None:
    pair.reboot()
    assert_as_planned(pair, plan)
    pair.machines[1].reach("10.30.0.1")


def test_absent_brings_back_what_was_there(
    first: Run, before: dict[str, Any], pair: Pair, plan: dict[str, Any]
) -> None:
    run = runs.rdma("-e", "gpu_fabric_state=absent")
    assert run.rc == 0, run.describe()
    assert {name: runs.differences(before[name], state) for name, state in states(pair).items()} == {
        name: [] for name in before
    }
