# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each folder beside this file is a fault as a bundle, with what must be said of it (expect.yml) and a healthy twin.

``names`` stand together in one finding of the severity ``verdict`` (``plan``: among one host's NCCL variables) and
``lacks`` do not stand there; ``host`` and ``device`` are that finding's. ``also`` are findings that the fault may give
besides; any other of a weight that stops or warns fails the test.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import diagnose

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/expect.yml"))
TWINS = [case for case in CASES if (case / "healthy").is_dir()]


@functools.cache
def diagnosed(folder: Path) -> dict:
    return diagnose(folder)


def expected(case: Path) -> dict:
    return yaml.safe_load((case / "expect.yml").read_text(encoding="utf-8"))


def has(token: object, text: str) -> bool:
    """The token stands in the text by itself, not as part of a longer name or number."""
    return re.search(r"(?<![\w.-])" + re.escape(str(token)) + r"(?![\w-]|\.\w)", text) is not None


def words(finding: dict) -> str:
    return "\n".join([*(finding[key] for key in ("host", "device", "message", "remedy")), *finding["evidence"]])


def variables(result: dict) -> list[str]:
    plans = result["plan"].get("hosts", {}).values()
    return ["\n".join(f"{name}={value}" for name, value in plan["nccl_env"].items()) for plan in plans]


def hits(wanted: dict, result: dict) -> list[dict]:
    return [
        finding
        for finding in result["findings"]
        if finding["severity"] == wanted["verdict"]
        and all(has(token, words(finding)) for token in wanted["names"])
        and all(wanted[key] == finding[key] for key in ("host", "device") if key in wanted)
    ]


def listed(findings: list[dict]) -> str:
    return "\n".join(f"{f['severity']} {f['id']} {f['device']}: {f['message']} {f['evidence']}" for f in findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_fault_is_named(case):
    wanted, result = expected(case), diagnosed(case / "fault")
    if wanted["verdict"] == "plan":
        texts = [text for text in variables(result) if all(has(token, text) for token in wanted["names"])]
        found: list[dict] = []
    else:
        found = hits(wanted, result)
        texts = [words(finding) for finding in found]
    assert texts, f"{variables(result)}\n{listed(result['findings'])}"
    assert not [token for token in wanted.get("lacks", []) for text in texts if has(token, text)], texts
    stops = {finding["id"] for finding in result["findings"] if finding["severity"] == "fail"}
    assert bool(stops) == (wanted["verdict"] == "fail"), listed(result["findings"])
    allowed = {finding["id"] for finding in found} | set(wanted.get("also", []))
    others = [f for f in result["findings"] if f["severity"] != "info" and f["id"] not in allowed]
    assert not others, listed(others)


@pytest.mark.parametrize("case", TWINS, ids=lambda case: case.name)
def test_the_healthy_twin_is_not_accused(case):
    fault = {finding["id"] for finding in hits(expected(case), diagnosed(case / "fault"))}
    healthy = diagnosed(case / "healthy")["findings"]
    accused = [f for f in healthy if f["id"] in fault or f["severity"] != "info"]
    assert not accused, listed(accused)
