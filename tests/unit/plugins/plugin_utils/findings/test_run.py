# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run says of its own work: values that other layers have from an earlier run, settings without a place."""

from __future__ import annotations

import copy
import typing as t
from unittest import mock

import pytest
from ansible.playbook.task import Task

from ansible_collections.railyard.gpu_fabric.plugins.action import fabric_report, fabric_verdict
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate, remarks, run_rules
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RunView
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import HEADER

OK = {"changed": True, "failed": False}
TABLE = """table inet gpu_fabric {
	set members4 {
		type ipv4_addr
		flags interval
		elements = { 10.60.0.0/23, 10.9.0.1-10.9.0.2 }
	}

	set members6 {
		type ipv6_addr
		flags interval
	}
}
"""  # nft prints tabs
FACTS: dict[str, t.Any] = {
    "files": {
        "/etc/nccl.conf": f"{HEADER}NCCL_IB_HCA==mlx5_0:1\nNCCL_IB_TC=106\nNCCL_DEBUG=WARN\n",
        "/etc/sysctl.d/90-gpu-fabric.conf": "vm.zone_reclaim_mode = 0\n",
    },
    "firewall": {"nftables": {"ruleset": TABLE, "tables": []}},
    "qos": {
        "ens1": {"trust": "dscp", "dscp_to_priority": {"26": 3, "48": 6}, "pfc": [n == 3 for n in range(8)]},
        "ens2": {"trust": "dscp", "dscp_to_priority": {"26": 3, "48": 6}, "pfc": [n == 3 for n in range(8)]},
    },
    "netdevs": {"ens1": {"addresses": ["10.60.0.11/24", "fe80::1/64"]}},
}
PORT = {"trust": "dscp", "dscp_to_priority": {"26": 3, "48": 6}, "pfc": [n == 3 for n in range(8)]}
PLAN: dict[str, t.Any] = {
    "nccl_env": {"NCCL_IB_HCA": "=mlx5_0:1", "NCCL_IB_TC": "106"},
    "nccl_reasons": {"NCCL_IB_HCA": "the compute ports", "NCCL_IB_TC": "DSCP 26"},
    "firewall": {"backend": "nftables", "members": ["10.60.0.0/24", "10.60.1.0/24", "10.9.0.1/32", "10.9.0.2/32"]},
    "qos": {"ens1": PORT, "ens2": PORT},
    "links": [{"netdev": "ens1", "addresses": ["10.60.0.11/24"]}],
}


def said(*applied: str, facts: t.Any = FACTS, plan: t.Any = PLAN, **results: t.Any) -> list[dict[str, t.Any]]:
    return remarks(RunView("gpu-01", facts, plan, {**dict.fromkeys(applied, OK), **results}))


def changed(given: t.Any, path: tuple[t.Any, ...], value: t.Any) -> t.Any:
    given = copy.deepcopy(given)
    inner = given
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return given


NEW_CLASS = changed(PLAN, ("nccl_env", "NCCL_IB_TC"), "138")
NEW_POOL = changed(PLAN, ("firewall", "members"), ["10.70.0.0/24"])
RDMA = ("rdma_links", "rdma_nics")


@pytest.mark.parametrize("applied", [RDMA, ("nccl_configured",), ("security_groups_table",), ()])
def test_nothing_is_said_where_every_layer_has_the_plans_values(applied: tuple[str, ...]) -> None:
    assert said(*applied) == []


def test_rdma_alone_tells_of_nccls_class_with_both_values_and_the_remedy() -> None:
    (finding,) = said(*RDMA, plan=NEW_CLASS)
    assert finding["id"] == "RF-RUN-LEFT-BEHIND" and finding["host"] == "gpu-01"
    assert finding["severity"] == "warn"  # a run is not stopped at its end
    assert "NCCL_IB_TC of /etc/nccl.conf is 106, 138 wanted" in finding["message"]
    assert finding["remedy"] == "Run site.yml --tags rdma,nccl" and finding["mended_by"] == ""


def test_a_profile_without_classes_takes_the_variable_away() -> None:
    plan = changed(PLAN, ("nccl_env",), {"NCCL_IB_HCA": "=mlx5_0:1"})
    assert "NCCL_IB_TC of /etc/nccl.conf is 106, none wanted" in said(*RDMA, plan=plan)[0]["message"]


@pytest.mark.parametrize("more", ["nccl_configured"])
def test_nothing_is_said_where_the_layer_ran_too(more: str) -> None:
    assert said(*RDMA, more, plan=NEW_CLASS) == []


def test_a_layer_that_was_skipped_or_failed_did_not_run() -> None:
    for result in ({"skipped": True, "changed": False}, {"failed": True, "msg": "no"}):
        assert len(said(*RDMA, plan=NEW_CLASS, nccl_configured=result)) == 1
        assert said(plan=NEW_CLASS, rdma_nics=result) == []


def test_what_somebody_else_wrote_or_chose_is_no_remnant() -> None:
    assert said(*RDMA, plan=NEW_CLASS, facts=changed(FACTS, ("files", "/etc/nccl.conf"), "NCCL_IB_TC=106\n")) == []
    assert said(*RDMA, plan=NEW_CLASS, facts=changed(FACTS, ("files",), {})) == []
    own = changed(NEW_CLASS, ("nccl_reasons", "NCCL_IB_TC"), "set in gpu_fabric_nccl_env")
    assert said(*RDMA, plan=own) == []


def test_the_firewall_keeps_the_networks_of_rails_that_moved() -> None:
    (finding,) = said(*RDMA, plan=NEW_POOL)
    assert "10.9.0.1/32, 10.9.0.2/32, 10.60.0.0/23" in finding["message"]
    assert "10.70.0.0/24 wanted" in finding["message"]
    assert finding["remedy"] == "Run site.yml --tags rdma,security"
    assert said(*RDMA, "security_groups_table", plan=NEW_POOL) == []
    assert said(*RDMA, plan=NEW_POOL, facts=changed(FACTS, ("firewall",), {})) == []
    assert said(*RDMA, plan=changed(NEW_POOL, ("firewall", "backend"), "none")) == []
    fewer = changed(PLAN, ("firewall", "members"), ["10.60.0.0/24", "10.9.0.1/32"])
    assert said(*RDMA, plan=fewer) == [], "a host that does not answer is none that moved"


def test_one_remedy_names_every_layer() -> None:
    plan = changed(NEW_CLASS, ("firewall", "members"), ["10.70.0.0/24"])
    assert {finding["remedy"] for finding in said(*RDMA, plan=plan)} == {"Run site.yml --tags rdma,nccl,security"}


def test_nccl_alone_tells_of_the_ports() -> None:
    port = {"trust": "dscp", "dscp_to_priority": {"34": 4, "48": 6}, "pfc": [n == 4 for n in range(8)]}
    plan = changed(PLAN, ("qos",), {"ens1": port, "ens2": port})
    (finding,) = said("nccl_configured", plan=plan)
    assert "PFC of ens1, ens2 is on for 3, on for 4 wanted" in finding["message"]
    assert finding["remedy"] == "Run site.yml --tags nccl,rdma"
    fresh = changed(FACTS, ("files",), {})
    assert said("nccl_configured", plan=plan, facts=fresh) == [], "rdma never ran here"


def test_security_alone_tells_of_addresses_in_networks_that_it_shut() -> None:
    plan = changed(PLAN, ("links", 0, "addresses"), ["10.70.0.11/24"])
    (finding,) = said("security_groups_table", plan=plan)
    assert "the address of ens1 is 10.60.0.11/24, 10.70.0.11/24 wanted" in finding["message"]
    assert said("nccl_configured", plan=plan) == []


def test_settings_without_a_place_are_one_line_by_setting() -> None:
    ports = {f"ens{n}": ["ecn", "traffic_class"] for n in range(1, 11)} | {"@host": ["cpu_governor"]}
    (finding,) = said(rdma_nics={"changed": False, "unsupported": ports}, facts={"files": {}}, plan={"links": []})
    assert finding["id"] == "RF-RUN-UNSUPPORTED" and finding["severity"] == "info"
    assert "cpu_governor on the host" in finding["message"]
    assert (
        "ecn, traffic_class on 10 ports (ens1, ens2, ens3, ens4, ens5, ens6, ens7, ens8 and 2 more)"
        in (finding["message"])
    )
    assert said(rdma_nics={"changed": False, "unsupported": {}}) == []


def test_a_bundle_knows_of_no_run() -> None:
    ids = {id_ for rule in run_rules() for id_ in rule.ids}
    assert ids == {"RF-RUN-LEFT-BEHIND", "RF-RUN-UNSUPPORTED"}
    plan = {"rack": {}, "hosts": {"gpu-01": NEW_CLASS}}
    assert not ids & {finding["id"] for finding in evaluate({"gpu-01": FACTS}, plan, {}, {})}
    assert not ids & {finding["id"] for finding in evaluate({"gpu-01": FACTS}, plan, {})}


def verdict(task_vars: dict[str, t.Any], **args: t.Any) -> tuple[dict[str, t.Any], list[str]]:
    task = Task()
    task.args = args
    action = fabric_verdict.ActionModule(task, mock.Mock(), mock.Mock(), mock.Mock(), mock.Mock(), mock.Mock())
    with mock.patch.object(fabric_verdict.display, "warning") as warning:
        result = action.run(task_vars=task_vars)
    return result, [call.args[0] for call in warning.call_args_list]


VARS: dict[str, t.Any] = {
    "inventory_hostname": "gpu-01",
    "ansible_facts": {"gpu_fabric": FACTS},
    "gpu_fabric_plan": {"hosts": {"gpu-01": NEW_CLASS}},
    "rdma_nics": {"changed": True, "unsupported": {"ens1": ["ecn"]}},
}


def test_the_run_says_so_at_default_verbosity_and_does_not_fail() -> None:
    result, warnings = verdict(VARS, applied=["nccl_configured", "rdma_nics"])
    assert not result.get("failed") and result["stops"] == []
    assert [remark["id"] for remark in result["remarks"]] == ["RF-RUN-LEFT-BEHIND", "RF-RUN-UNSUPPORTED"]
    assert warnings[0] == (
        "RF-RUN-LEFT-BEHIND: gpu-01: the layer nccl did not run and has values of an earlier run: NCCL_IB_TC of "
        "/etc/nccl.conf is 106, 138 wanted. Remedy: Run site.yml --tags rdma,nccl"
    )
    assert warnings[1].startswith("RF-RUN-UNSUPPORTED: gpu-01: not set")


def test_a_removal_and_a_run_without_results_say_nothing() -> None:
    assert verdict(VARS, applied=["rdma_nics"], removing=True)[0]["remarks"] == []
    assert verdict({**VARS, "rdma_nics": None}, applied=["rdma_nics"])[0]["remarks"] == []
    assert verdict({**VARS, "gpu_fabric_plan": None}, applied=["rdma_nics"])[0]["remarks"] == []


def test_the_report_has_the_remarks_of_every_host() -> None:
    found = said(*RDMA, plan=NEW_CLASS)
    hostvars = {
        host: {"ansible_facts": {"gpu_fabric": FACTS}, "preflight_remarks": {"remarks": found}, "gpu_fabric_plan": {}}
        for host in ("gpu-01", "gpu-02")
    }
    args = {
        "hosts": list(hostvars),
        "complete": False,
        "outcomes": [],
        "remarks": "preflight_remarks",
        "title": "T",
    }
    report = fabric_report.ActionModule.gather(hostvars, args)
    assert [finding["id"] for finding in report["findings"]] == ["RF-RUN-LEFT-BEHIND"] * 2
    assert report["verdict"] == "warn"
