# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bundles from files to findings: bundles.yml holds one of each kind of fault, with its healthy neighbour."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import diagnose, report_of

SAMPLES = yaml.safe_load((Path(__file__).parent / "bundles.yml").read_text(encoding="utf-8"))


def write(folder: Path, files: dict) -> Path:
    for path, text in files.items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    return folder


def words(finding: dict) -> str:
    return "\n".join([finding[k] for k in ("host", "device", "message", "remedy")] + finding["evidence"])


def hits(sample: dict, result: dict) -> list[dict]:
    tokens = [re.compile(r"(?<![\w.-])" + re.escape(str(token)) + r"(?![\w-]|\.\w)") for token in sample["says"]]
    wanted = sample.get("severity", "fail")
    return [
        f for f in result["findings"] if f["severity"] == wanted and all(token.search(words(f)) for token in tokens)
    ]


@pytest.mark.parametrize("sample", [s for s in SAMPLES if "says" in s], ids=lambda s: s["name"])
def test_a_fault_is_named_in_one_finding(sample, tmp_path):
    result = diagnose(write(tmp_path, sample["files"]))
    found = hits(sample, result)
    assert found, "\n".join(f"{f['severity']} {f['id']} {words(f)}" for f in result["findings"])
    for token in sample.get("lacks", []):
        assert not [f for f in found if token in words(f)]
    assert "RF-INTERNAL" not in {f["id"] for f in result["findings"]}
    assert json.loads(json.dumps(report_of(result, "Bundle", "2026-01-01")))["findings"] == result["findings"]


@pytest.mark.parametrize("sample", [s for s in SAMPLES if "healthy" in s], ids=lambda s: s["name"])
def test_the_healthy_neighbour_has_no_such_finding(sample, tmp_path):
    fault = {f["id"] for f in hits(sample, diagnose(write(tmp_path / "fault", sample["files"])))}
    healthy = diagnose(write(tmp_path / "healthy", {**sample["files"], **sample["healthy"]}))
    assert not fault & {f["id"] for f in healthy["findings"]}
    assert not [f["message"] for f in healthy["findings"] if f["severity"] == "fail"]


@pytest.mark.parametrize("sample", [s for s in SAMPLES if "plan" in s], ids=lambda s: s["name"])
def test_the_plan_has_the_value(sample, tmp_path):
    result = diagnose(write(tmp_path, sample["files"]))
    texts = [
        "\n".join(f"{name}={value}" for name, value in plan["nccl_env"].items())
        for plan in result["plan"]["hosts"].values()
    ]
    assert any(all(token in text for token in sample["plan"]) for text in texts), texts
    for token in sample.get("lacks", []):
        assert not any(token in text for text in texts)


def test_an_empty_bundle_says_that_nothing_was_recorded(tmp_path):
    found = diagnose(tmp_path)
    assert (found["facts"], found["plan"]) == ({}, {})
    assert [(f["id"], f["severity"]) for f in found["findings"]] == [("RF-FACTS-NOTHING", "warn")]
    assert report_of(found, "Bundle", "2026-01-01")["findings"] == found["findings"]


def test_intent_that_is_refused_is_a_finding(tmp_path):
    files = {"vars.yml": "gpu_fabric_mtu: 99\n", "n1/uname_r.txt": "6.1.0\n"}
    found = diagnose(write(tmp_path, files))["findings"]
    assert [f["id"] for f in found] == ["RF-INTENT-REFUSED"]
    assert "gpu_fabric_mtu" in found[0]["message"]


def test_how_it_was_recorded_is_no_intent(tmp_path):
    files = {"vars.yml": "gpu_fabric_redact: true\ngpu_fabric_bundle: x\n", "n1/uname_r.txt": "6.1.0\n"}
    assert diagnose(write(tmp_path, files))["findings"] == []


def test_broken_files_are_no_traceback(tmp_path):
    files = {
        "vars.yml": "a: [\n",
        "inventory.ini": "[gpu\nx",
        "site.yml": "- : :\n",
        "facts.json": "{",
        "bench.json": "[]",
        "failure.json": "no json",
        "n1/lspci_nn.txt": "\x00\x01\n",
        "n1/nvidia-smi.txt": "",
    }
    result = diagnose(write(tmp_path, files))
    assert "RF-INTERNAL" not in {f["id"] for f in result["findings"]}


def test_an_inventory_is_read_and_never_run(tmp_path):
    """A bundle is data from somebody else."""
    proof = tmp_path / "ran"
    bundle = tmp_path / "bundle"
    (bundle / "g").mkdir(parents=True)
    inventory = bundle / "inventory.ini"
    inventory.write_text(f"#!/bin/sh\ntouch {proof}\necho '{{}}'\n", encoding="utf-8")
    inventory.chmod(0o755)
    found = diagnose(bundle)
    assert not proof.exists()
    assert [f["device"] for f in found["findings"] if f["id"] == "RF-FACTS-UNREADABLE"] == ["inventory.ini"]


def test_links_that_lead_out_of_a_bundle_are_not_followed(tmp_path):
    outside, bundle = tmp_path / "outside", tmp_path / "bundle"
    (outside / "root/etc").mkdir(parents=True)
    (outside / "root/etc/nccl.conf").write_text("NCCL_IB_DISABLE=1\n", encoding="utf-8")
    (outside / "nccl.log").write_text("n1:7:7 [0] NCCL INFO NET/IB : No device found.\n", encoding="utf-8")
    (bundle / "n1").mkdir(parents=True)
    (bundle / "n1" / "root").symlink_to(outside / "root")
    (bundle / "n2").symlink_to(outside)
    (bundle / "nccl.log").symlink_to(outside / "nccl.log")
    (bundle / "vars.yml").symlink_to("vars.yml")
    found = diagnose(bundle)
    assert list(found["facts"]) == ["n1"]
    assert {f["id"] for f in found["findings"]} == {"RF-FACTS-NOTHING", "RF-FACTS-UNREADABLE"}


def test_groups_and_their_variables_belong_to_the_hosts(tmp_path):
    files = {
        "inventory.ini": "[gpu_nodes]\nn[1:2]\n[rack:children]\ngpu_nodes\n[rack:vars]\ncuda_version=12.4\n"
        "gpu_driver_version=470.57.02\n",
        "n1/uname_r.txt": "6.8.0\n",
    }
    found = diagnose(write(tmp_path, files))
    assert [(f["host"], f["severity"]) for f in found["findings"] if "CUDA" in f["message"]] == [("n1", "fail")]


@pytest.mark.parametrize(
    ("name", "misspelt"),
    [
        ("gpu_drivr_branch", True),
        ("gpu_fabric_mut", True),
        ("driver_version", False),
        ("nvidia_cuda_version", False),
        ("site_name", False),
    ],
)
def test_only_a_misspelt_name_is_called_one(tmp_path, name, misspelt):
    found = diagnose(write(tmp_path, {"vars.yml": f"{name}: '570'\n", "n1/uname_r.txt": "6.8.0\n"}))
    assert ("RF-INTENT-NO-EFFECT" in {f["id"] for f in found["findings"]}) is misspelt
