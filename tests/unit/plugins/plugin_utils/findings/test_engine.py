# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings import engine
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import CATALOGUE

KEYS = {
    "id",
    "severity",
    "phase",
    "host",
    "device",
    "message",
    "evidence",
    "cause",
    "remedy",
    "mended_by",
}


def test_shape_and_order(rack):
    rack.port("gpu-02", "mlx5_4").update(state="down", phys_state="polling")
    rack.facts["gpu-04"]["rdma_devices"]["mlx5_6"]["firmware"] = "28.42.1000"
    rack.port("gpu-01", "mlx5_1").update(state="down", phys_state="polling")
    found = rack.findings()
    assert [(f["severity"], f["host"]) for f in found] == [("fail", "gpu-01"), ("fail", "gpu-02"), ("warn", "gpu-04")]
    for finding in found:
        assert set(finding) == KEYS
        assert isinstance(finding["evidence"], list)


def test_order_of_hosts_does_not_matter(rack):
    rack.port("gpu-02", "mlx5_4").update(state="down", phys_state="polling")
    rack.facts["gpu-04"]["netdevs"]["rail2"]["mtu"] = 4200
    first = rack.findings()
    names = list(rack.facts)
    random.Random(7).shuffle(names)
    rack.facts = {name: rack.facts[name] for name in names}
    assert rack.findings() == first


def test_natural_order_of_hosts():
    facts = {f"gpu-{n}": {"gpus": [], "pci": {"0000:00:00.0": {}}} for n in (10, 2, 1)}
    assert [f["host"] for f in engine.evaluate(facts) if f["id"] == "RF-GPU-NONE"] == ["gpu-1", "gpu-2", "gpu-10"]


def test_a_rule_that_crashes_is_a_finding_and_the_others_speak(rack, monkeypatch):
    def broken(view):
        yield CATALOGUE["RF-PORT-DOWN"].on(view, "before")
        raise KeyError("rate")

    host_rules, rack_rules = engine.load_rules()
    crash = engine._Rule("rules_x.broken", broken, frozenset({"RF-PORT-DOWN"}))
    monkeypatch.setattr(engine, "load_rules", lambda: ((*host_rules, crash), rack_rules))
    rack.facts["gpu-03"]["netdevs"]["rail2"]["mtu"] = 4200
    found = rack.findings()
    internal = [f for f in found if f["id"] == "RF-INTERNAL"]
    assert len(internal) == 4
    assert "rules_x.broken" in internal[0]["message"] and "KeyError" in internal[0]["evidence"][0]
    assert "RF-ROCE-MTU" in {f["id"] for f in found}
    assert "RF-PORT-DOWN" not in {f["id"] for f in found}


def test_an_undeclared_finding_is_not_passed_on(rack, monkeypatch):
    def stranger(view):
        yield CATALOGUE["RF-PORT-DOWN"].on(view, "text")

    rule = engine._Rule("rules_x.stranger", stranger, frozenset())
    monkeypatch.setattr(engine, "load_rules", lambda: ((rule,), ()))
    assert {f["id"] for f in rack.findings()} == {"RF-INTERNAL"}


def test_equal_findings_are_one(rack, monkeypatch):
    def twice(view):
        yield CATALOGUE["RF-PORT-DOWN"].on(view, "same")
        yield CATALOGUE["RF-PORT-DOWN"].on(view, "same")

    rule = engine._Rule("rules_x.twice", twice, frozenset({"RF-PORT-DOWN"}))
    monkeypatch.setattr(engine, "load_rules", lambda: ((rule,), ()))
    assert len(rack.findings()) == 4


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4) | st.just("active"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def replace_somewhere(draw, node, depth):
    """Put junk in the place of one value, at most *depth* levels down."""
    key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    if depth and isinstance(node[key], (dict, list)) and node[key]:
        replace_somewhere(draw, node[key], depth - 1)
    else:
        node[key] = draw(JUNK)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_facts_whatever_make_the_engine_raise(data):
    """One value anywhere in the facts or the plan is replaced by junk; the engine always answers with findings."""
    from tests.unit.plugins.plugin_utils.findings.conftest import Rack  # not at the top: pytest loads it first

    rack = Rack(["gpu-01", "gpu-02"])
    node = data.draw(st.sampled_from([rack.facts["gpu-02"], rack.plan]))
    replace_somewhere(data.draw, node, data.draw(st.integers(0, 6)))
    found = engine.evaluate(rack.facts, rack.plan, rack.intents, {})
    assert all(set(finding) == KEYS for finding in found)


@pytest.mark.parametrize("facts", [{}, {"a": None}, {"a": []}, {"a": {"pci": None, "gpus": {}}}])
def test_empty_facts(facts):
    assert [f for f in engine.evaluate(facts) if f["severity"] == "fail" and f["id"] != "RF-GPU-NONE"] == []
