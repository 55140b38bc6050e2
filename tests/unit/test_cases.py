# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real faults as bundles, kept outside the repository: each must reach its verdict, its healthy twin must not."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import diagnose, report_of
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.report.page import render_html

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("RAILYARD_SHARED", ROOT.parent / "shared"))
CASES = sorted((SHARED / "cases").glob("F*/case.yml"))
SEVERITIES = {"fail": ("fail",), "warn": ("warn",), "configure": ("warn", "info")}

if not CASES:
    pytest.skip(f"no cases under {SHARED / 'cases'} (set RAILYARD_SHARED)", allow_module_level=True)


@functools.cache
def diagnosed(folder: Path) -> dict:
    return diagnose(folder)


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def has(token: str, text: str) -> bool:
    """The token stands in the text by itself, not as part of a longer name or number."""
    return re.search(r"(?<![\w.-])" + re.escape(token) + r"(?![\w-]|\.\w)", text) is not None


def words(finding: dict) -> str:
    parts = [finding[key] for key in ("id", "host", "device", "message", "cause", "remedy")]
    return "\n".join([*parts, *finding["evidence"]])


def plan_words(result: dict) -> list[str]:
    """What the plan sets, per host, one text each."""
    texts = []
    for plan in result["plan"].get("hosts", {}).values():
        texts.append("\n".join(f"{name}={value}" for name, value in plan.get("nccl_env", {}).items()))
    return texts


def satisfying(case: dict, result: dict) -> list[str]:
    """Ids of the findings that name everything the case wants named; "plan" for the plan."""
    wanted = SEVERITIES[case["verdict"]]
    tokens = [str(token) for token in case["must_name"]]
    found = [f["id"] for f in result["findings"] if f["severity"] in wanted and all(has(t, words(f)) for t in tokens)]
    if case["verdict"] == "configure" and any(all(has(token, text) for token in tokens) for text in plan_words(result)):
        found.append("plan")
    return found


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name[:3])
def test_the_fault_reaches_its_verdict(path):
    case = load(path)
    if "behaviour_test" in case:
        pytest.skip(f"{case['id']} is a behaviour test for the lab: {case['behaviour_test']}")
    result = diagnosed(path.parent / "fault")
    listed = "\n".join(f"{f['severity']} {f['id']}: {f['message']}" for f in result["findings"])
    assert satisfying(case, result), f"{case['must_name']} not named together in:\n{listed}"
    assert "RF-INTERNAL" not in {f["id"] for f in result["findings"]}, listed
    # The exit code follows from this: 2 with a finding that stops, 0 otherwise.
    stops = [f["id"] for f in result["findings"] if f["severity"] == "fail"]
    assert bool(stops) == (case["verdict"] == "fail"), listed


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name[:3])
def test_the_fault_says_nothing_that_it_must_not(path):
    case = load(path)
    if "behaviour_test" in case:
        pytest.skip(f"{case['id']} is a behaviour test for the lab: {case['behaviour_test']}")
    result = diagnosed(path.parent / "fault")
    ids = satisfying(case, result)
    texts = [words(f) for f in result["findings"] if f["id"] in ids]
    texts += plan_words(result) if "plan" in ids else []
    for token in case.get("must_not", []):
        assert not any(has(str(token), text) for text in texts), token


@pytest.mark.parametrize(
    "path", [p for p in CASES if (p.parent / "healthy").is_dir()], ids=lambda path: path.parent.name[:3]
)
def test_the_healthy_twin_does_not_give_the_finding(path):
    case = load(path)
    fault = {name for name in satisfying(case, diagnosed(path.parent / "fault")) if name != "plan"}
    healthy = diagnosed(path.parent / "healthy")
    given = {f["id"] for f in healthy["findings"]}
    assert not fault & given, [f["message"] for f in healthy["findings"] if f["id"] in fault]
    assert not [f["id"] for f in healthy["findings"] if f["severity"] == "fail"]


@pytest.mark.parametrize("side", ["fault", "healthy"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name[:3])
def test_every_bundle_has_a_report(path, side):
    folder = path.parent / side
    if not folder.is_dir():
        pytest.skip(f"{path.parent.name[:3]} has no {side} bundle")
    report = report_of(diagnosed(folder), "Bundle", "2026-01-01T00:00:00+00:00")
    assert json.loads(json.dumps(report))["findings"] == diagnosed(folder)["findings"]
    page = render_html(report)
    assert all(f["id"] in page for f in report["findings"])
