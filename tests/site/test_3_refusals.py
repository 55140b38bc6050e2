"""Bad intent and missing hardware stop a run with the name of what is wrong, before anything is changed."""

from __future__ import annotations

import pytest
from rack import Rack

BAD = {
    "unknown variable": (["gpu_fabric_mtuu=9000"], ["gpu_fabric_mtuu", "gpu_fabric_mtu"]),
    "bad CIDR": (["gpu_fabric_rail_ipv4=10.224.0.0/33"], ["gpu_fabric_rail_ipv4", "10.224.0.0/33"]),
    "host bits": (["gpu_fabric_rail_ipv4=10.224.0.7/12"], ["gpu_fabric_rail_ipv4"]),
    "MTU out of range": (["gpu_fabric_mtu=90000"], ["gpu_fabric_mtu", "90000"]),
    "pool too small": (
        ["gpu_fabric_rail_ipv4=10.224.0.0/23", "gpu_fabric_rail_ipv4_prefix=24"],
        ["gpu_fabric_rail_ipv4", "10.224.0.0/23"],
    ),
    "rail count": (["gpu_fabric_expected_rails=4"], ["gpu_fabric_expected_rails", "4"]),
    "overlap": (["gpu_fabric_rail_ipv4=10.0.0.0/8", "gpu_fabric_rail_ipv4_prefix=9"], ["gpu_fabric_rail_ipv4"]),
    "contradiction": (["gpu_fabric_roce_dscp=48"], ["gpu_fabric_roce_cnp_dscp"]),
    "role variable": (["security_groups_policy=foo"], ["security_groups_policy", "'foo'", "drop, accept"]),
    "role variable out of range": (["rdma_rollback_s=-5"], ["rdma_rollback_s", "'-5'", "from 0 to 3600"]),
    "unknown role variable": (["security_groups_polcy=accept"], ["security_groups_polcy", "security_groups_policy"]),
    "batch": (["gpu_fabric_batch=abc"], ["gpu_fabric_batch", "'abc'", "25%"]),
    "choice": (["gpu_fabric_allow_disruption=yes"], ["gpu_fabric_allow_disruption", "linkflap"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_intent_is_refused_by_name(session_rack: Rack, name: str) -> None:
    variables, words = BAD[name]
    given = [word for variable in variables for word in ("-e", variable)]
    run = session_rack.site(*given)
    assert run.rc != 0
    assert run.changes() == set()
    for word in words:
        assert word in run.messages(), run.describe()


def test_machine_without_hardware_is_told_what_is_missing(session_rack: Rack) -> None:
    run = session_rack.playbook("site.yml", "-c", "local", "--check", inventory="localhost,")
    assert run.rc != 0
    failed = [result for _, _, result in run.results() if result.get("failed")]
    assert len(failed) == 1, run.describe()
    assert "GPU" in run.messages() and "gpu_fabric_require_hardware" in run.messages()


def test_machine_without_hardware_may_be_meant(session_rack: Rack) -> None:
    given = ("-e", "gpu_fabric_require_hardware=false")
    run = session_rack.playbook("site.yml", "-c", "local", "--check", *given, inventory="localhost,")
    assert run.rc == 0, run.describe()
