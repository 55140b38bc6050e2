# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/extending.md is what a new engineer copies: its parser, recording, rule and sample run as they stand there."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def blocks() -> list[tuple[str, str]]:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    found = [(match[1], match[2]) for match in BLOCK.finditer(page)]
    assert [language for language, _text in found] == ["python", "text", "python", "yaml"]
    return found


@pytest.fixture
def parser(blocks, tmp_path):
    path = tmp_path / "coolctl.py"
    path.write_text(blocks[0][1], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("coolctl_of_the_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.parse


def test_the_parser_reads_its_recording(parser, blocks):
    parsed = parser(blocks[1][1])
    assert parsed.problems == ()
    assert parsed.value["loops"] == [
        {"name": "A", "flow_lpm": 11.8, "inlet_celsius": 31.5},
        {"name": "B", "flow_lpm": 0.0, "inlet_celsius": 47.0},
    ]


def test_the_parser_keeps_the_rules_of_the_page(parser, blocks):
    text = blocks[1][1]
    whole = parser(text).value["loops"]
    assert parser(text.replace("\n", "\r\n")).value["loops"] == whole
    for end in range(len(text)):
        parsed = parser(text[:end])
        assert all(loop in whole for loop in parsed.value["loops"]), text[:end]
    assert parser("loop A: flow 11.").problems
    assert parser("loop A: flow fast, inlet cold\n").problems


def test_the_parser_is_written_for_managed_hosts(blocks):
    ast.parse(blocks[0][1], feature_version=(3, 9))
    imported = {
        name
        for node in ast.walk(ast.parse(blocks[0][1]))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    ours = "ansible_collections.railyard.gpu_fabric.plugins.module_utils."
    assert all(name.startswith(ours) or name in sys.stdlib_module_names for name in imported), imported


# The catalogue of findings is the interpreter's; a rule that is no part of the collection gets one of its own.
DRIVER = """
import importlib.util, json, sys

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate

spec = importlib.util.spec_from_file_location("rules_cooling", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps([evaluate(facts) for facts in json.load(sys.stdin)]))
"""


def evaluate(rule: str, tmp_path: Path, *facts: dict) -> list[list[dict]]:
    path = tmp_path / "rules_cooling.py"
    path.write_text(rule, encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(path)],
        input=json.dumps(facts),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "collections"), "PATH": "/usr/bin:/bin"},
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_the_rule_gives_what_its_sample_says(blocks, parser, tmp_path):
    (sample,) = yaml.safe_load(blocks[3][1])
    recorded = {"n1": {"outputs": {"coolctl": parser(blocks[1][1]).value}}}
    fault, healthy, unknown, from_recording = evaluate(
        blocks[2][1], tmp_path, sample["facts"], sample["healthy"]["facts"], {"n1": {}}, recorded
    )
    assert [f["id"] for f in fault] == [sample["id"]]
    assert all(words in fault[0]["message"] for words in sample["says"])
    assert (fault[0]["host"], fault[0]["device"], fault[0]["severity"]) == ("n1", "B", "fail")
    assert healthy == [] and unknown == []
    assert from_recording == fault


def test_the_page_names_what_exists(blocks):
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for path in (
        "plugins/module_utils/_facts/tools.py",
        "tools/findings_pages.py",
        "docs/adding_a_rule.md",
        "tests/unit/plugins/module_utils/_parsers/fixtures",
        "tests/unit/plugins/module_utils/_parsers/mutations.py",
        "tests/unit/plugins/plugin_utils/findings/rules",
    ):
        assert path.rpartition("/")[2] in page
        assert (ROOT / path).exists(), path
    from ansible_collections.railyard.gpu_fabric.plugins.module_utils._bundle import bundle_name

    assert "coolctl_status.txt" in bundle_name(["coolctl", "status"])
