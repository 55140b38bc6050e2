# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each rule on the smallest facts that give its finding, and on the nearest facts that must not (rules/*.yml)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import CATALOGUE
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate, load_rules

HERE = Path(__file__).parent
SAMPLES = [
    sample
    for path in sorted((HERE / "rules").glob("*.yml"))
    for sample in yaml.safe_load(path.read_text(encoding="utf-8"))
]
PARTS = ("facts", "plan", "intents", "outputs")


def judge(sample: dict) -> list[dict]:
    return evaluate(*(sample.get(part) for part in PARTS))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["id"])
def test_the_fault_is_found_and_named(sample):
    found = judge(sample)
    assert "RF-INTERNAL" not in {f["id"] for f in found}, found
    hits = [f for f in found if f["id"] == sample["id"]]
    assert hits, [f["id"] for f in found]
    texts = ["\n".join([f["host"], f["device"], f["message"], f["remedy"], *f["evidence"]]) for f in hits]
    assert any(all(str(token) in text for token in sample["says"]) for text in texts), texts
    assert {f["severity"] for f in hits} == {sample.get("severity", "fail")}
    if "host" in sample:
        assert {f["host"] for f in hits} == {sample["host"]}
    assert all(f["device"] for f in hits)


@pytest.mark.parametrize(
    "sample", [sample for sample in SAMPLES if "healthy" in sample], ids=lambda sample: sample["id"]
)
def test_the_nearest_healthy_facts_do_not_give_it(sample):
    found = judge({**sample, **sample["healthy"]})
    assert "RF-INTERNAL" not in {f["id"] for f in found}, found
    assert sample["id"] not in {f["id"] for f in found}


def test_every_finding_has_a_sample():
    """The planner's notes have tests of their own; lab faults and remarks of a run stand in files of their own."""
    load_rules()
    elsewhere = "".join((HERE / name).read_text(encoding="utf-8") for name in ("test_lab_faults.py", "test_run.py"))
    sampled = {sample["id"] for sample in SAMPLES}
    missing = {id_ for id_ in CATALOGUE if id_ not in sampled and id_ not in elsewhere and "-PLAN-" not in id_}
    assert missing - {"RF-INTERNAL"} == set()
