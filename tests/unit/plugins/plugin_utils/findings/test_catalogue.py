# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings import engine
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import CATALOGUE, define

ROOT = Path(__file__).resolve().parents[5]
HOST_RULES, RACK_RULES = engine.load_rules()


def test_every_entry_is_given_by_a_rule_and_has_one_page():
    declared = {"RF-INTERNAL"}.union(*(rule.ids for rule in HOST_RULES + RACK_RULES + engine.run_rules()))
    assert declared == set(CATALOGUE)
    pages = {path.stem for path in (ROOT / "docs" / "findings").glob("RF-*.md")}
    assert pages == set(CATALOGUE)


def test_pages_say_what_the_catalogue_says():
    command = [sys.executable, str(ROOT / "tools" / "findings_pages.py"), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("id_", sorted(CATALOGUE))
def test_entries_are_complete(id_):
    entry = CATALOGUE[id_]
    for field in ("title", "means", "looks_at", "cause", "remedy", "check", "source"):
        text = getattr(entry, field)
        assert len(text) > 8, field
        assert "  " not in text, field
    assert not entry.title.endswith(".")
    assert entry.remedy.endswith((".", ")"))


@pytest.mark.parametrize("id_", sorted(id_ for id_ in CATALOGUE if id_.startswith("RF-PLAN-")))
def test_findings_of_the_plan_name_the_file_that_notes_them(id_):
    source = ROOT / CATALOGUE[id_].source
    assert f'"{id_}"' in source.read_text(encoding="utf-8"), source


def test_an_id_is_defined_once():
    with pytest.raises(ValueError, match="defined twice"):
        define("gpu", "RF-GPU-NONE")
    with pytest.raises(ValueError, match="no finding id"):
        define("gpu", "GPU")
