# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia_smi_info: from a file, a bundle or the tool; the fullest form first; failures are results."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosts import live
from module_runs import run_module

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _capture
from ansible_collections.railyard.gpu_fabric.plugins.modules import nvidia_smi_info

ROOT = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
FIXTURES = ROOT / "tests/unit/plugins/module_utils/_parsers/fixtures"
SHARED = Path(os.environ.get("RAILYARD_SHARED") or ROOT.parent / "shared") / "corpus"
NO_SHARED = "no recorded outputs: ../shared/corpus is absent and RAILYARD_SHARED is not set"
FOLDERS = ("nvidia-smi", "nvidia-smi-L", "nvidia-smi-q", "nvidia-smi-xml", "nvidia-smi-csv")
CORPUS = sorted(path for folder in FOLDERS for path in (SHARED / folder).glob("*"))
XML = (FIXTURES / "nvidia_smi_xml" / "v12-h100.xml").read_text(encoding="utf-8")
TABLE = (FIXTURES / "nvidia_smi" / "580-two-gpus.txt").read_text(encoding="utf-8")
MISMATCH = (FIXTURES / "nvidia_smi" / "library-mismatch.txt").read_text(encoding="utf-8")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    def build(answers=None):
        """A host whose nvidia-smi gives these answers to these arguments; None: a host without it."""
        script = 'case "$*" in\n'
        for number, (arguments, text) in enumerate((answers or {}).items()):
            answer = tmp_path / f"answer{number}"
            answer.write_text(text, encoding="utf-8")
            script += f'"{arguments}") /bin/cat {answer};;\n'
        commands = None if answers is None else {"nvidia-smi": script + "*) exit 6;;\nesac\n"}
        source = live(tmp_path, None, commands)
        monkeypatch.setattr(_capture, "LiveSource", lambda: source)

    return build


def test_the_tool_is_asked_for_its_fullest_form(machine):
    machine({"-q -x": XML})
    result = run_module(nvidia_smi_info.main)
    assert (result["origin"], result["form"], result["command"]) == ("tool", "xml", "nvidia-smi -q -x")
    assert result["gpus"][0]["pci"] == "0000:8f:00.0" and result["driver_version"] == "550.54.15"
    assert result["changed"] is False


def test_a_form_that_says_nothing_gives_way_to_the_next(machine):
    machine({"-q -x": "", "": TABLE})
    result = run_module(nvidia_smi_info.main)
    assert (result["form"], len(result["gpus"])) == ("table", 2)


def test_a_failure_is_a_result(machine):
    machine({"-q -x": MISMATCH, "": MISMATCH})
    result = run_module(nvidia_smi_info.main)
    assert result["failed"] is False and result["gpus"] == []
    assert [failure["kind"] for failure in result["failures"]] == ["driver_library_mismatch"]
    assert result["failures"][0]["library_version"] == "550.127"


def test_no_tool_is_not_no_gpus(machine):
    machine()
    result = run_module(nvidia_smi_info.main)
    assert result["origin"] == "none"
    assert result["problems"][-1]["reason"] == "nvidia-smi is not on this host or does not answer."


@pytest.mark.parametrize(
    "folder", ["nvidia_smi", "nvidia_smi_q", "nvidia_smi_xml", "nvidia_smi_csv", "nvidia_smi_list"]
)
def test_a_file_of_any_form(folder):
    for path in sorted((FIXTURES / folder).glob("*")):
        result = run_module(nvidia_smi_info.main, capture=str(path))
        assert result["origin"] == "recorded" and (result["gpus"] or result["failures"]), path.name


def test_one_host_of_a_bundle(tmp_path):
    for host, name, text in (("gpu-01", "nvidia-smi_q.xml", XML), ("gpu-02", "nvidia-smi.txt", MISMATCH)):
        (tmp_path / host).mkdir()
        (tmp_path / host / name).write_text(text, encoding="utf-8")
    first = run_module(nvidia_smi_info.main, capture=str(tmp_path), host="gpu-01")
    second = run_module(nvidia_smi_info.main, capture=str(tmp_path / "gpu-02"))
    assert first["gpus"][0]["memory_total_mib"] == 81559
    assert second["failures"][0]["kind"] == "driver_library_mismatch"


def test_warnings_of_nvidia_smi_do_not_take_the_place_of_ansibles(tmp_path):
    path = tmp_path / "smi.txt"
    path.write_text(TABLE + "WARNING: infoROM is corrupted at gpu 0000:C3:00.0\n", encoding="utf-8")
    result = run_module(nvidia_smi_info.main, capture=str(path))
    assert [fault["pci"] for fault in result["faults_reported"]] == ["0000:c3:00.0"]


@pytest.mark.skipif(not CORPUS, reason=NO_SHARED)
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recordings(path):
    result = run_module(nvidia_smi_info.main, capture=str(path))
    assert result["failed"] is False
    assert result["gpus"] or result["failures"] or result["processes"], result
