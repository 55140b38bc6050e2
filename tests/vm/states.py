"""States of both machines, against the plan."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import runs
from machines import Pair

# What network managers set for an interface that they take on, whatever the plan says.
MANAGED = [f"net.ipv6.conf.ens{slot}.accept_ra" for slot in (4, 5, 6, 7)]


def states(pair: Pair, plan: dict[str, Any] | None = None) -> dict[str, Any]:
    """State of each machine, with the kernel parameters that the plan, if there is one yet, names."""
    keys = {name: sorted(host["sysctl"]) for name, host in plan["hosts"].items()} if plan else {}
    with ThreadPoolExecutor() as both:
        found = both.map(lambda machine: runs.state_of(machine, [*keys.get(machine.name, []), *MANAGED]), pair.machines)
        return {machine.name: state for machine, state in zip(pair.machines, found)}


def assert_as_planned(pair: Pair, plan: dict[str, Any]) -> None:
    wrong = {name: runs.not_as_planned(state, plan["hosts"][name]) for name, state in states(pair, plan).items()}
    assert wrong == {name: [] for name in wrong}
