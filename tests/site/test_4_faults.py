"""Every fault that can be injected is found before anything is changed, and no other is reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rack import Rack, Run

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


def findings(run: Run) -> list[dict]:
    """What a preflight run reports, by its own result."""
    return [
        finding
        for _, _, result in run.results()
        for finding in ((result.get("ansible_facts") or {}).get("gpu_fabric_plan") or {}).get("findings", [])
        if finding["severity"] in ("fail", "warn")
    ]


def places(found: list[dict]) -> set[tuple[str, str, str]]:
    return {(finding["id"], finding.get("host") or "", finding.get("device") or "") for finding in found}


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
        # One message stops the run, and says all of it.
        assert run.rc != 0, run.describe()
        for word in [NODE, *words, "remedy:"]:
            assert word in run.messages(), run.describe()


def test_rack_without_fault_is_clean_again(converged: Rack, healthy: set) -> None:
    run = converged.playbook("playbooks/preflight.yml")
    assert run.rc == 0, run.describe()
    assert places(findings(run)) == healthy
