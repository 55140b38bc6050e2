"""Every fault that can be injected is found before anything is changed, and no other is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rack import Rack, findings, places

NODE = "gpu-02"
# fault → words of which each must stand in one message, and the finding's severity
FAULTS = {
    "port_down": (["mlx5_"], "fail"),
    "wrong_rate": (["400", "200"], "fail"),
    "pcie_width": (["x8", "x16"], "fail"),
    "gpu_missing": (["7", "8"], "fail"),
    "wrong_mtu": (["1500", "9000"], "any"),
    "pfc_off": (["PFC"], "any"),
    "stale_fabric_manager": (["580."], "fail"),
    "peermem_not_loaded": (["nvidia_peermem"], "any"),
    "firmware_drift": (["28."], "any"),
}


# What each fault was found by, so that no fault is found by another's finding.
told: dict[str, set[str]] = {}


@pytest.fixture(scope="module")
def healthy(converged: Rack) -> set[tuple[str, str, str]]:
    run = converged.playbook("playbooks/preflight.yml")
    assert run.rc == 0, run.describe()
    return places(findings(run))


@pytest.fixture
def fault(converged: Rack, healthy: set, request: pytest.FixtureRequest) -> Iterator[str]:
    converged.lab(lab_fault=request.param, lab_fault_node=NODE)
    yield request.param
    converged.lab(lab_fault="none", lab_fault_node=NODE)


@pytest.mark.parametrize("fault", FAULTS, indirect=True)
def test_fault_is_named_with_host_values_and_remedy(converged: Rack, healthy: set, fault: str) -> None:
    words, severity = FAULTS[fault]
    run = converged.playbook("playbooks/preflight.yml")
    assert run.changes() == set()
    new = [finding for finding in findings(run) if not places([finding]) & healthy]
    assert new, run.describe()
    assert {finding["host"] for finding in new} == {NODE}
    told[fault] = {finding["id"] for finding in new}
    for other, ids in told.items():
        assert other == fault or not ids & told[fault], f"{fault} is found by what finds {other}: {ids & told[fault]}"
    text = "\n".join(" ".join([finding["message"], *finding["evidence"]]) for finding in new)
    for word in [NODE, *words]:
        assert word in text, text
    assert all(finding["remedy"] for finding in new)
    if severity == "fail":
        # One message stops the run, and says all of it; the host of the fault is the one that failed.
        assert run.rc != 0, run.describe()
        assert [host for host, counts in run.stats.items() if counts["failures"]] == [NODE]
        for word in [NODE, *words, "remedy:"]:
            assert word in run.messages(), run.describe()


@pytest.mark.parametrize("fault", ["port_down"], indirect=True)
def test_site_stops_before_any_change_and_reports_why(converged: Rack, fault: str, tmp_path: Path) -> None:
    run = converged.site("-e", f"gpu_fabric_report_dir={tmp_path}")
    assert run.rc != 0
    assert run.changes() == set()
    report = json.loads((tmp_path / "report.json").read_text())
    states = {host: entry["state"] for host, entry in report["hosts"].items()}
    assert states == {host: "failed" if host == NODE else "stopped" for host in converged.hosts}
    assert "remedy:" in report["hosts"][NODE]["failure"]
    assert report["verdict"] == "fail"


def test_refused_intent_is_reported_too(converged: Rack, tmp_path: Path) -> None:
    run = converged.site("-e", f"gpu_fabric_report_dir={tmp_path}", "-e", "gpu_fabric_mtu=90000")
    assert run.rc != 0
    assert "gpu_fabric_mtu" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "fail"


def test_rack_without_fault_is_clean_again(converged: Rack, healthy: set) -> None:
    run = converged.playbook("playbooks/preflight.yml")
    assert run.rc == 0, run.describe()
    assert places(findings(run)) == healthy
