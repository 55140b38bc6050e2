# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nccl_tests_info: reads a run and judges it."""

from __future__ import annotations

from pathlib import Path

import pytest
from module_runs import run_module

from ansible_collections.railyard.gpu_fabric.plugins.modules import nccl_tests_info

ROOT = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
FIXTURES = ROOT / "tests/unit/plugins/module_utils/_parsers/fixtures/nccl_tests"
_HALF = "   time   algbw   busbw #wrong"
HEADER = f"#       size         count      type   redop    root  {_HALF}  {_HALF}\n"
SMALL = (
    "        1024           256     float     sum      -1     20.0    0.05    0.10      0"
    "     20.0    0.05    0.11      0\n"
)
LARGE = (
    "  1073741824     268435456     float     sum      -1   5000.0  214.75  402.65      0"
    "   5000.0  214.75  410.20      0\n"
)
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 203.265 \n#\n"
GOOD = HEADER + SMALL + LARGE + END


def test_a_good_run_passes_at_its_largest_message():
    result = run_module(nccl_tests_info.main, text=GOOD, minimum_busbw_gbps=400)
    assert (result["passes"], result["reasons"], result["changed"]) == (True, [], False)
    assert result["largest_busbw_gbytes_s"] == 410.20 and result["average_busbw_gbytes_s"] == 203.265


def test_without_a_minimum_nothing_is_judged():
    assert "passes" not in run_module(nccl_tests_info.main, text=GOOD)


def test_too_slow_names_both_values():
    result = run_module(nccl_tests_info.main, text=GOOD, minimum_busbw_gbps=440)
    assert result["passes"] is False
    assert "410.2 GB/s" in result["reasons"][0] and "440 GB/s" in result["reasons"][0]


def test_the_average_is_judged_only_when_asked_for():
    result = run_module(nccl_tests_info.main, text=GOOD, minimum_busbw_gbps=400, judge="average")
    assert result["passes"] is False and "203.265" in result["reasons"][0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEADER + SMALL + LARGE, "did not finish"),
        (GOOD.replace(": 0 OK", ": 2 FAILED"), "out of bounds"),
        (GOOD.replace("402.65      0", "402.65      7"), "7 values"),
        (GOOD + "node01: Test NCCL failure common.cu:958\n", "The run failed"),
        (GOOD + GOOD, "without MPI"),
        ("mpirun: command not found\n", "There is no bus bandwidth"),
    ],
)
def test_a_run_that_is_not_good_never_passes(text, reason):
    result = run_module(nccl_tests_info.main, text=text, minimum_busbw_gbps=1)
    assert result["passes"] is False
    assert any(reason in line for line in result["reasons"]), result["reasons"]


def test_a_cut_row_is_not_counted():
    result = run_module(nccl_tests_info.main, text=HEADER + SMALL + LARGE[:70], minimum_busbw_gbps=100)
    assert result["largest_busbw_gbytes_s"] == 0.11 and result["passes"] is False and result["warned"]


def test_a_file_a_bundle_and_one_host_of_it(tmp_path):
    (tmp_path / "nccl_tests.txt").write_text(GOOD, encoding="utf-8")
    (tmp_path / "gpu-01").mkdir()
    (tmp_path / "gpu-01" / "nccl_tests.txt").write_text(GOOD.replace("410.20", "300.00"), encoding="utf-8")
    rack = run_module(nccl_tests_info.main, capture=str(tmp_path))
    host = run_module(nccl_tests_info.main, capture=str(tmp_path), host="gpu-01")
    file = run_module(nccl_tests_info.main, capture=str(FIXTURES / "json-v2.json"))
    assert rack["largest_busbw_gbytes_s"] == 410.20 and rack["source"].endswith("nccl_tests.txt")
    assert host["largest_busbw_gbytes_s"] == 402.65
    assert file["nccl_version"] == "2.28.9"


def test_bad_options_say_what_is_wanted(tmp_path):
    empty = run_module(nccl_tests_info.main, capture=str(tmp_path))
    assert empty["failed"] and "nccl_tests.txt" in empty["msg"]
    outside = run_module(nccl_tests_info.main, capture=str(tmp_path), host="../etc")
    assert outside["failed"] and "one folder" in outside["msg"]
    nothing = run_module(nccl_tests_info.main)
    assert nothing["failed"] and "text" in nothing["msg"] and "capture" in nothing["msg"]
