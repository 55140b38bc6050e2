# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold for any facts: no exception, no foreign device, no order dependence, linear growth."""

from __future__ import annotations

import json
import random

import boxes
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import parse, render

BOXES = [boxes.hgx_h100, boxes.dgx_a100, boxes.hgx_b200, boxes.gb200, boxes.hyperv, boxes.kvm, boxes.pcie_box]
odd = st.sampled_from(
    [None, "", "x", -1, 0, 3.5, True, [], {}, [None], [{}], {"1": None}, "0000:18:00.0", float("nan"), 10**30]
)


def places(value, path=()):
    """Paths of everything inside *value*."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


ALL_PLACES = {box: places(box().done()) for box in BOXES}


def put(facts, path, value, drop):
    for key in path[:-1]:
        if not isinstance(facts, (dict, list)) or (isinstance(facts, list) and not isinstance(key, int)):
            return
        try:
            facts = facts[key]
        except (KeyError, IndexError):
            return
    try:
        if drop:
            del facts[path[-1]]
        else:
            facts[path[-1]] = value
    except (KeyError, IndexError, TypeError):
        return


@given(st.data(), st.sampled_from(BOXES))
@settings(max_examples=150, deadline=None)
def test_odd_facts_never_raise_and_never_bring_in_a_foreign_device(data, box):
    facts = box().done()
    for _ in range(data.draw(st.integers(1, 4))):
        put(facts, data.draw(st.sampled_from(ALL_PLACES[box])), data.draw(odd), data.draw(st.booleans()))
    try:
        plan = boxes.plan_one(facts)
    except IntentError as error:
        # an address that became part of a rail's subnet is a fair refusal
        assert "overlaps" in str(error)
        return
    devices = set(facts.get("rdma_devices") or ()) if isinstance(facts.get("rdma_devices"), dict) else set()
    chosen = [
        item.split(":")[0] for item in plan["nccl_env"].get("NCCL_IB_HCA", "=").removeprefix("=").split(",") if item
    ]
    assert set(chosen) <= devices
    roles = boxes.roles(plan)
    assert all(roles[name] == "compute" for name in chosen)
    numbers = [rail["rail"] for rail in plan["rails"]]
    assert len(set(numbers)) == len(numbers)
    assert json.loads(json.dumps(plan)) is not None
    assert parse(render(plan["nccl_env"])) == plan["nccl_env"]


KEYS = ("host", "pci", "gpus", "rdma_devices", "netdevs", "routes", "ssh", "ports", "1", "mlx5_0", "outputs", "sysctl")
anything = st.recursive(
    odd,
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@given(anything)
def test_any_value_as_facts(facts):
    boxes.plan_rack({"gpu-01": {}}, {"gpu-01": facts}, {})


@given(st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_order_of_hosts_and_of_facts_does_not_matter(order):
    facts = {f"gpu-{n}": (boxes.hgx_h100 if n % 2 else boxes.hgx_b200)("Ethernet").done() for n in range(1, 5)}
    reference = boxes.rack(facts)
    names = list(facts)
    order.shuffle(names)
    mixed = {name: shuffled(facts[name], order) for name in names}
    assert json.dumps(boxes.rack(mixed), sort_keys=True) == json.dumps(reference, sort_keys=True)


def shuffled(facts, order: random.Random):
    facts = dict(facts)
    for key in ("pci", "rdma_devices", "netdevs"):
        items = list(facts[key].items())
        order.shuffle(items)
        facts[key] = dict(items)
    facts["gpus"] = order.sample(facts["gpus"], len(facts["gpus"]))
    return facts


def test_a_second_plan_from_the_state_that_the_first_one_gives_is_the_same():
    facts = {f"gpu-{n}": boxes.hgx_h100().done() for n in (1, 2)}
    first = boxes.rack(facts)
    for host, plan in first["hosts"].items():
        for link in plan["links"]:
            facts[host]["netdevs"][link["netdev"]].update(mtu=link["mtu"], addresses=link["addresses"])
        facts[host]["qos"] = {netdev: {"pfc": wanted["pfc"]} for netdev, wanted in plan["qos"].items()}
    assert boxes.rack(facts) == first


def test_unreachable_hosts_are_named_and_left_out():
    facts = {"gpu-1": boxes.hgx_h100().done()}
    plan = boxes.plan_rack({"gpu-1": {}, "gpu-2": {}}, facts, {})
    assert plan["rack"]["hosts"] == ["gpu-1"] and plan["rack"]["unreachable"] == ["gpu-2"]
    assert list(plan["hosts"]) == ["gpu-1"]
    assert boxes.plan_rack({}, {}, {})["hosts"] == {}


def test_notes_become_findings_with_host_and_remedy():
    facts = {"gpu-1": boxes.kvm(front_end=True).done()}
    plan = boxes.rack(facts)
    found = [f for f in evaluate(facts, plan, {"gpu-1": {}}) if f["id"] == "RF-PLAN-LOW-CONFIDENCE"]
    assert [(f["host"], f["severity"], f["phase"]) for f in found] == [("gpu-1", "fail", "preflight")]
    assert "gpu_fabric_compute_devices" in found[0]["remedy"]


def test_every_note_of_the_planner_is_in_the_catalogue(request):
    import re

    from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.rules_plan import ENTRIES

    defined = {entry.id for entry in ENTRIES}
    used = set()
    for path in (request.config.rootpath / "plugins" / "plugin_utils").glob("*.py"):
        used |= set(re.findall(r'"(RF-PLAN-[A-Z-]+)"', path.read_text(encoding="utf-8")))
    assert used == defined
