# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""playbooks/diagnose.yml as its users start it: from any folder, without an inventory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLAYBOOK = HERE.parents[2] / "playbooks" / "diagnose.yml"
DEVICE = {"name", "pci", "role", "reason", "confidence"}
RAIL = {"rail", "hca", "netdev", "gpu"}
FINDING = {"id", "severity", "phase", "host", "device", "message", "evidence", "remedy"}


def diagnose(cwd: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(PLAYBOOK)]
    for variable in variables:
        command += ["-e", variable]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("side", "code"), [("fault", 2), ("healthy", 0)])
def test_the_exit_code_and_the_report(tmp_path, side, code):
    # A relative folder for the report, a trailing slash on the bundle's.
    bundle = f"{HERE}/port-waits-for-a-subnet-manager/{side}/"
    run = diagnose(tmp_path, f"gpu_fabric_bundle={bundle}", "gpu_fabric_report_dir=out/deep")
    assert run.returncode == code, run.stdout + run.stderr
    report = json.loads((tmp_path / "out/deep/report.json").read_text(encoding="utf-8"))
    assert {"hosts", "plan", "findings"} <= set(report)
    assert set(report["hosts"]) == set(report["plan"]) == {"ia"}
    planned = report["plan"]["ia"]
    assert planned["nccl_env"]["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1"
    assert all(set(device) >= DEVICE for device in planned["devices"])
    assert [rail["hca"] for rail in planned["rails"]] == ["mlx5_0", "mlx5_1"]
    assert all(set(rail) >= RAIL for rail in planned["rails"])
    assert all(set(finding) >= FINDING for finding in report["findings"])
    assert any(finding["severity"] == "fail" for finding in report["findings"]) == (code == 2)
    assert "ia" in (tmp_path / "out/deep/report.html").read_text(encoding="utf-8")
    assert "<testsuite " in (tmp_path / "out/deep/junit.xml").read_text(encoding="utf-8")
    said = (run.stdout.partition("PLAY RECAP")[0]).rstrip().splitlines()
    assert f"Report: {tmp_path}/out/deep/report.html" in "".join(said[-3:])


def test_the_report_is_beside_the_bundle_and_leaves_the_racks_alone(tmp_path):
    shutil.copytree(HERE / "port-waits-for-a-subnet-manager/healthy", tmp_path / "b1")
    for number in range(2):  # the first report is no host of the second
        run = diagnose(tmp_path, "gpu_fabric_bundle=b1")
        assert run.returncode == 0, run.stdout + run.stderr
        assert f"Report: {tmp_path}/b1-report/report.html" in run.stdout
        assert sorted(path.name for path in tmp_path.iterdir()) == ["b1", "b1-report"], number
        assert set(json.loads((tmp_path / "b1-report/report.json").read_text(encoding="utf-8"))["hosts"]) == {"ia"}
    assert sorted(path.name for path in (tmp_path / "b1-report").iterdir()) == [
        "junit.xml",
        "report.html",
        "report.json",
    ]


COLLECT = PLAYBOOK.with_name("collect.yml")


def collect(cwd: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(COLLECT), "-i", "n1,"]
    for variable in ("ansible_connection=local", f"ansible_python_interpreter={sys.executable}", *variables):
        command += ["-e", variable]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("files", [["notes.txt"], ["inventory.ini", "vars.yml", "gpu-99/x"], ["n1/precious"]])
def test_a_bundle_is_not_mixed_with_what_is_there(tmp_path, files):
    for name in files:
        (tmp_path / "b" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "b" / name).write_text("x", encoding="utf-8")
    run = collect(tmp_path, "gpu_fabric_bundle=b")
    assert run.returncode == 2
    assert f"{tmp_path}/b holds" in run.stdout and "is no bundle of this rack" in run.stdout
    found = sorted(
        path.relative_to(tmp_path / "b").as_posix() for path in (tmp_path / "b").rglob("*") if path.is_file()
    )
    assert found == sorted(files)


def test_a_folder_that_is_not_there_is_one_message(tmp_path):
    run = diagnose(tmp_path, "gpu_fabric_bundle=missing/bundle", f"gpu_fabric_report_dir={tmp_path}/out")
    assert run.returncode == 2
    assert f"{tmp_path}/missing/bundle: no such folder" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_of_bundles_is_not_taken_for_a_healthy_one(tmp_path):
    shutil.copytree(HERE / "port-waits-for-a-subnet-manager/healthy", tmp_path / "bundles/20260101-120000")
    run = diagnose(tmp_path, "gpu_fabric_bundle=bundles")
    assert run.returncode == 2, run.stdout + run.stderr
    said = " ".join(run.stdout.split()) + " ".join(run.stderr.split())
    assert "so nothing was judged" in said and "20260101-120000 in it may be such" in said
    assert not (tmp_path / "bundles-report").exists()
