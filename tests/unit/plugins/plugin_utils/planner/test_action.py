# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin: variables and facts of the play in, the plan out, every error in one message."""

from __future__ import annotations

import pathlib
from unittest import mock

import boxes
import pytest
import yaml
from ansible.errors import AnsibleUndefinedVariable
from ansible.playbook.task import Task

from ansible_collections.railyard.gpu_fabric.plugins.action.fabric_plan import ActionModule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.scope import TAGS

ROOT = pathlib.Path(__file__).parents[5]


def run(hosts, facts, variables=None, members=None, groups=None, transport="local", tags=None, skip=None, **args):
    """The action's result for a play over *hosts* of an inventory whose group has *members*."""
    members = members or hosts
    groups = groups or {"all": members, "gpu_nodes": members, "ungrouped": []}
    hostvars = {}
    for host in dict.fromkeys([*hosts, *members]):
        hostvars[host] = Undefined(
            inventory_hostname=host,
            group_names=[name for name, names in groups.items() if name != "all" and host in names],
            ansible_facts={"gpu_fabric": facts[host]} if host in facts else {},
            **{**(variables or {}).get("all", {}), **(variables or {}).get(host, {})},
        )
    task = Task()
    task.args = args
    action = ActionModule(task, mock.Mock(), mock.Mock(), mock.Mock(), mock.Mock(), mock.Mock())
    action._connection.transport = transport
    task_vars = {
        "inventory_hostname": hosts[0],
        "ansible_play_hosts_all": hosts,
        "groups": groups,
        "hostvars": hostvars,
        "ansible_run_tags": tags or ["all"],
        "ansible_skip_tags": skip or [],
    }
    action._display = warned = mock.Mock()
    result = action.run(task_vars=task_vars)
    return {**result, "warned": [call.args[0] for call in warned.warning.call_args_list]}


FACTS = {f"gpu-{n}": boxes.hgx_h100().done() for n in (1, 2, 10)}


def rails(result, host):
    return [rail["ipv4"] for rail in result["plan"]["hosts"][host]["rails"]]


def test_plan_is_returned_and_is_a_fact():
    result = run(list(FACTS), FACTS)
    assert result["changed"] is False and "failed" not in result
    assert result["ansible_facts"]["gpu_fabric_plan"] is result["plan"]
    assert set(result["plan"]) == {"schema", "rack", "hosts", "findings"}
    assert rails(result, "gpu-10")[0] == "10.224.0.13/24"


def test_limited_play_keeps_addresses():
    whole = run(list(FACTS), FACTS)
    limited = run(["gpu-10"], {"gpu-10": FACTS["gpu-10"]}, members=list(FACTS))
    assert rails(limited, "gpu-10") == rails(whole, "gpu-10")
    assert limited["plan"]["rack"]["members"] == ["gpu-1", "gpu-2", "gpu-10"]


def test_number_of_a_host_that_does_not_take_part_counts():
    variables = {
        "gpu-1": {"gpu_fabric_node_id": 5},
        "gpu-2": {"gpu_fabric_node_id": 6},
        "gpu-10": {"gpu_fabric_node_id": 5},
    }
    result = run(["gpu-10"], FACTS, variables, members=list(FACTS))
    assert result["failed"] and "gpu_fabric_node_id" in result["msg"] and "both number 5" in result["msg"]


def test_host_without_facts_is_unreachable():
    result = run(list(FACTS), {"gpu-1": FACTS["gpu-1"]})
    assert result["plan"]["rack"]["unreachable"] == ["gpu-2", "gpu-10"]


def test_every_intent_error_in_one_message():
    variables = {
        "all": {"gpu_fabric_mtu": 100, "gpu_fabric_rail_ipv4": "nonsense"},
        "gpu-2": {"gpu_fabric_roce_dsc": 1},
    }
    result = run(list(FACTS), FACTS, variables)
    assert result["failed"] and "plan" not in result
    head, *lines = result["msg"].splitlines()
    assert head.startswith("3 values of the intent cannot be used. Nothing was changed.")
    assert len(lines) == 3
    assert any("gpu_fabric_mtu: 100" in line and "1280 to 9978 bytes" in line for line in lines)
    assert any(line.startswith("gpu-2: gpu_fabric_roce_dsc") and "gpu_fabric_roce_dscp" in line for line in lines)


class Undefined(dict):
    """Variables of which some cannot be templated."""

    def __getitem__(self, name):
        value = super().__getitem__(name)
        if value == "{{ nope }}":
            raise AnsibleUndefinedVariable("'nope' is undefined")
        return value


def test_templates_that_fail_are_intent_errors_beside_the_others():
    variables = {
        "gpu-1": {"gpu_fabric_mtu": "{{ nope }}"},
        "gpu-2": {"gpu_fabric_mtu": 1, "ansible_host": "{{ nope }}"},
    }
    result = run(list(FACTS), FACTS, variables)
    assert result["failed"]
    assert "gpu-1: gpu_fabric_mtu: has no value: 'nope' is undefined. Allowed: a number from" in result["msg"]
    assert "gpu-2: gpu_fabric_mtu: 1 is not allowed" in result["msg"]


def test_a_member_that_cannot_be_templated_does_not_stop_the_others():
    result = run(["gpu-1"], FACTS, {"gpu-2": {"ansible_host": "{{ nope }}"}}, members=list(FACTS))
    assert list(result["plan"]["hosts"]) == ["gpu-1"]


def test_host_in_no_group_is_refused_by_name():
    groups = {"all": ["gpu-1", "gpu-2"], "gpu_nodes": ["gpu-1"], "ungrouped": ["gpu-2"]}
    result = run(["gpu-1", "gpu-2"], FACTS, groups=groups, members=["gpu-1"])
    assert result["failed"] and "gpu-2" in result["msg"] and "gpu_nodes" in result["msg"]


def test_an_inventory_without_the_group_is_a_rack_of_all_its_hosts():
    result = run(
        ["localhost"],
        {"localhost": boxes.no_fabric().done()},
        groups={"all": ["localhost"], "ungrouped": ["localhost"]},
    )
    assert result["plan"]["rack"]["members"] == ["localhost"]


@pytest.mark.parametrize("phase", [None, "preflight", "verify"])
def test_findings_are_fatal_only_in_a_phase(phase):
    facts = {"gpu-1": boxes.kvm(front_end=True).done()}
    result = run(["gpu-1"], facts, **({"phase": phase} if phase else {}))
    assert "RF-PLAN-LOW-CONFIDENCE" in [finding["id"] for finding in result["plan"]["findings"]]
    assert bool(result.get("failed")) == (phase is not None)
    assert phase is None or "gpu_fabric_compute_devices" in result["msg"]


def test_address_of_the_inventory_finds_the_management_interface():
    box = boxes.hgx_h100()
    box.facts["routes"] = []
    box.netdev("eno2", "0000:03:00.0", addresses=["10.3.0.1/24"])
    result = run(["gpu-1"], {"gpu-1": box.done()}, {"gpu-1": {"ansible_host": "10.3.0.1"}})
    assert result["plan"]["hosts"]["gpu-1"]["management"] == {"netdev": "eno2", "address": "10.3.0.1"}


@pytest.mark.parametrize(
    ("transport", "variables", "port"),
    [
        ("ssh", {}, 22),
        ("ssh", {"ansible_port": "2222"}, 2222),
        ("local", {"ansible_connection": "ansible.builtin.ssh", "ansible_port": 2222}, 2222),
        ("local", {"ansible_port": 2222}, None),
        ("ssh", {"ansible_connection": "containers.podman.podman"}, None),
    ],
)
def test_a_firewall_leaves_the_inventorys_port_open_where_it_is_ssh(transport, variables, port):
    given = {"all": {**variables, "gpu_fabric_allow_tcp": [443], "gpu_fabric_admin_networks": ["192.0.2.0/24"]}}
    result = run(["gpu-1"], FACTS, given, transport=transport)
    assert bool(result.get("failed")) == (port is not None)
    assert port is None or f"gpu_fabric_allow_tcp: [443] lacks {port}" in result["msg"]


@pytest.mark.parametrize(("policy", "refused"), [("accept", False), ("drop", True)])
def test_the_policy_of_the_firewalls_role_is_asked_for(policy, refused):
    given = {"all": {"gpu_fabric_allow_tcp": [443], "security_groups_policy": policy}}
    assert bool(run(["gpu-1"], FACTS, given, transport="ssh").get("failed")) is refused


@pytest.mark.parametrize("name", ["gpu_node", "gpunodes", "GPU-Nodes", "gpu_nodse", "gpu_nodes_a", "gpu_nodes_rack12"])
def test_a_misspelt_group_is_not_taken_for_the_whole_inventory(name):
    groups = {"all": ["gpu-1", "jump"], "ungrouped": [], name: ["gpu-1"], "bastion": ["jump"]}
    result = run(["gpu-1", "jump"], FACTS, groups=groups)
    assert result["failed"] and "Nothing was changed" in result["msg"]
    told = f"every host would be of the rack, also jump, which is not in {name}. Allowed: a group gpu_nodes, in place"
    assert (
        f"inventory: there is no group gpu_nodes, so {told} of {name} or with it among its children." in result["msg"]
    )


def test_groups_of_nearly_the_same_name_are_all_named():
    groups = {"all": ["gpu-1", "gpu-2", "jump"], "gpu-nodes": ["gpu-1"], "GPU_Nodes": ["gpu-2"], "bastion": ["jump"]}
    told = run(["gpu-1"], FACTS, members=groups["all"], groups=groups)["msg"]
    assert "also jump, which is not in gpu-nodes or GPU_Nodes. Allowed:" in told


@pytest.mark.parametrize(
    "groups",
    [
        {"racks": ["gpu-1"], "bastion": ["jump"]},
        {"gpu_node": ["gpu-1", "jump"]},
        {"gpu_nodes_a": ["gpu-1"], "gpu_nodes_b": ["jump"]},
        {"gpu_nodes": ["gpu-1", "jump"], "gpu_node": ["gpu-1"]},
        {"gpu_node": [], "login": ["gpu-1", "jump"]},
    ],
)
def test_a_group_of_another_name_or_with_every_host_misleads_nobody(groups):
    groups = {"all": ["gpu-1", "jump"], "ungrouped": [], **groups}
    result = run(["gpu-1"], FACTS, members=["gpu-1", "jump"], groups=groups)
    assert not result.get("failed"), result.get("msg")


@pytest.mark.parametrize(
    ("tags", "skip", "said"),
    [
        (["rmda"], [], "--tags: 'rmda' is the tag of no layer. Allowed: rdma, or"),
        (["all"], ["securty", "benchmark"], "--skip-tags: 'securty' is the tag of no layer. Allowed: security, or"),
    ],
)
def test_a_misspelt_tag_is_refused(tags, skip, said):
    result = run(list(FACTS), FACTS, tags=tags, skip=skip)
    assert result["failed"] and said in result["msg"]


def test_tags_of_others_are_told_of_where_no_layer_is_meant():
    alone = run(list(FACTS), FACTS, tags=["storage"])
    assert "failed" not in alone and "--tags storage: no layer of this collection has such a tag" in alone["warned"][0]
    assert run(list(FACTS), FACTS, tags=["storage", "rdma"])["warned"] == []
    assert run(list(FACTS), FACTS)["warned"] == []


def test_tags_are_those_of_the_playbook():
    site = yaml.safe_load((ROOT / "playbooks/site.yml").read_text(encoding="utf-8"))
    assert set(tags_of(site)) - {"always"} == set(TAGS)


def tags_of(part):
    for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from tags_of(item)
    yield from part.get("tags", ()) if isinstance(part, dict) else ()
