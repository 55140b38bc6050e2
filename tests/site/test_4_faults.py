"""Every fault that can be injected is found before anything is changed, and no other is reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rack import Rack

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


@pytest.fixture(scope="module")
def healthy(converged: Rack) -> set[str]:
    run = converged.playbook("playbooks/preflight.yml")
    assert run.rc == 0, run.describe()
    return findings(run)


def findings(run) -> set[str]:
    """The ids of what a preflight run reports, by its own result."""
    return {
        f"{finding['id']} {finding.get('host')}"
        for _, _, result in run.results()
        for finding in ((result.get("ansible_facts") or {}).get("gpu_fabric_plan") or {}).get("findings", [])
        if finding["severity"] in ("fail", "warn")
    }


@pytest.fixture
def fault(converged: Rack, healthy: set[str], request: pytest.FixtureRequest) -> Iterator[str]:
    converged.lab(lab_fault=request.param, lab_fault_node=NODE)
    yield request.param
    converged.lab(lab_fault="none", lab_fault_node=NODE)


@pytest.mark.parametrize("fault", FAULTS, indirect=True)
def test_fault_is_named_with_host_values_and_remedy(converged: Rack, healthy: set[str], fault: str) -> None:
    words, severity = FAULTS[fault]
    run = converged.playbook("playbooks/preflight.yml")
    if severity == "fail":
        assert run.rc != 0, run.describe()
    new = findings(run) - healthy
    assert new, run.describe()
    assert all(entry.endswith(f" {NODE}") for entry in new), new
    assert len({entry.split()[0] for entry in new}) == 1, new
    for word in [NODE, *words]:
        assert word in run.messages(), run.describe()
    assert run.changes() == set()


def test_rack_without_fault_is_clean_again(converged: Rack, healthy: set[str]) -> None:
    run = converged.playbook("playbooks/preflight.yml")
    assert run.rc == 0, run.describe()
    assert findings(run) == healthy
