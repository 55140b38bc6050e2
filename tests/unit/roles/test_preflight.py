# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What roles pass before they disrupt a host, and what stops bad intent, in real runs on the controller."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import nccl_conf

ROOT = pathlib.Path(__file__).parents[3]
PLAYBOOK = pathlib.Path(sys.executable).with_name("ansible-playbook")
pytestmark = pytest.mark.skipif(not PLAYBOOK.exists(), reason="needs ansible-playbook beside the interpreter")

GATE = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        gpu_fabric: "{{ {} if processes is none else {'gpu_processes': processes} }}"
        cacheable: true
    - ansible.builtin.import_role:
        name: railyard.gpu_fabric.preflight
        tasks_from: gate
"""


def play(
    tmp_path: pathlib.Path, playbook: str | pathlib.Path, hosts: dict[str, t.Any], *options: str
) -> dict[str, t.Any]:
    """Run a playbook and return what its last tasks said: host → failure message, ``None`` where it came through."""
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"gpu_nodes": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}))
    if isinstance(playbook, str):
        target = tmp_path / "play.yml"
        target.write_text(playbook)
    else:
        target = playbook
    environ = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_HOME": str(tmp_path / "home"),
    }
    argv = [str(PLAYBOOK), str(target), "-i", str(inventory), *options]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, cwd=ROOT)
    said = json.loads(done.stdout[done.stdout.index("{") :])
    messages: dict[str, t.Any] = dict.fromkeys(hosts)
    for host, result in results(said):
        if result.get("failed"):
            messages[host] = result["msg"]
    (tmp_path / "said.json").write_text(json.dumps(said))
    return messages


def results(said: dict[str, t.Any]) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """(host, result) of every task of a run."""
    for played in said["plays"]:
        for task in played["tasks"]:
            yield from task["hosts"].items()


def node(disruption: str, allowed: str, processes: list[dict[str, t.Any]] | None = None) -> dict[str, t.Any]:
    return {
        "gate_class": disruption,
        "gate_reason": "driver 570.1 is loaded, 580.2 is wanted",
        "gpu_fabric_allow_disruption": allowed,
        "processes": processes,
    }


def test_gate(tmp_path: pathlib.Path) -> None:
    job = [{"pid": 4711, "name": "python3", "gpu_uuid": "GPU-1", "used_mib": 10}]
    said = play(
        tmp_path,
        GATE,
        {
            "calm": node("none", "none", job),
            "forbidden": node("reload", "linkflap"),
            "allowed": node("reload", "reboot", []),
            "driverless": node("linkflap", "linkflap"),
            "busy": node("reload", "reload", job),
        },
    )
    assert said["calm"] is None and said["allowed"] is None
    assert said["driverless"] is None, "nothing is known of processes where there is no driver"
    assert said["forbidden"].startswith("forbidden: driver 570.1 is loaded, 580.2 is wanted.")
    assert "gpu_fabric_allow_disruption=reload" in said["forbidden"]
    assert "python3 (pid 4711)" in said["busy"] and "Drain the host first" in said["busy"]


def test_one_hosts_mistake_stops_the_rack_with_all_mistakes(tmp_path: pathlib.Path) -> None:
    hosts = {"gpu-01": {}, "gpu-02": {"gpu_fabric_mtuu": 9000, "gpu_fabric_fabric": "token-ring"}}
    said = play(tmp_path, ROOT / "playbooks/preflight.yml", hosts, "--check")
    message = said["gpu-01"] or said["gpu-02"]
    assert "gpu-02: gpu_fabric_mtuu: no such variable" in message
    assert "gpu-02: gpu_fabric_fabric: 'token-ring' is not allowed" in message
    assert "Nothing was changed" in message


def test_variables_of_all_roles_are_checked_before_any_role(tmp_path: pathlib.Path) -> None:
    hosts = {
        "gpu-01": {"security_groups_polcy": "accept", "rdma_links": {"changed": False}},
        "gpu-02": {"rdma_rollback_s": -5, "nccl_conf_path": "etc/nccl.conf"},
    }
    bad = ("-e", "security_groups_policy=foo", "-e", "gpu_fabric_batch=abc")
    message = next(filter(None, play(tmp_path, ROOT / "playbooks/site.yml", hosts, "--check", *bad).values()))
    assert message.startswith("5 values of the intent cannot be used. Nothing was changed.")
    for line in (
        "gpu-01, gpu-02: security_groups_policy: 'foo' is not allowed. Allowed: one of drop, accept.",
        "gpu-01: security_groups_polcy: no such variable; the nearest is security_groups_policy.",
        "gpu-02: rdma_rollback_s: -5 is not allowed. Allowed: a number from 0 to 3600.",
        "gpu-02: nccl_conf_path: 'etc/nccl.conf' is not allowed. Allowed: an absolute path.",
        "gpu-01, gpu-02: gpu_fabric_batch: 'abc' is not allowed. Allowed: a number of hosts from 1, a share",
    ):
        assert line in message


def test_batches_that_disagree_are_refused(tmp_path: pathlib.Path) -> None:
    hosts = {"gpu-01": {"gpu_fabric_batch": [1, "100%"]}, "gpu-02": {}}
    message = next(filter(None, play(tmp_path, ROOT / "playbooks/site.yml", hosts, "--check").values()))
    assert "gpu-01: gpu_fabric_batch: [1, '100%'] here, None on other hosts" in message


REMOVAL = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        gpu_fabric: {gpu_processes: "{{ processes }}"}
        cacheable: true
    - ansible.builtin.set_fact:
        gpu_fabric_plan:
          findings:
            - {id: RF-GPU-FELL-OFF-BUS, severity: fail, phase: preflight, host: broken, device: "0000:18:00.0",
               message: "GPU fell off the bus", evidence: [], cause: "", remedy: "Power cycle."}
    - ansible.builtin.include_role:
        name: railyard.gpu_fabric.preflight
        tasks_from: "{{ item }}"
      loop: [removal, verdict]
"""


def test_a_broken_gpu_does_not_stop_a_removal_and_a_job_does(tmp_path: pathlib.Path) -> None:
    job = [{"pid": 4711, "name": "python3", "gpu_uuid": "GPU-1", "used_mib": 10}]
    idle = {"processes": [], "gpu_fabric_state": "absent"}
    assert play(tmp_path, REMOVAL, {"broken": idle, "sound": idle}) == {"broken": None, "sound": None}
    said = play(tmp_path, REMOVAL, {"broken": {**idle, "gpu_fabric_state": "present"}})
    assert "RF-GPU-FELL-OFF-BUS" in said["broken"]
    said = play(tmp_path, REMOVAL, {"busy": {**idle, "processes": job}})
    assert "python3 (pid 4711)" in said["busy"] and "Drain the host first" in said["busy"]


def test_batches_of_the_inventory_reach_the_play(tmp_path: pathlib.Path) -> None:
    """As site.yml hands them on: serial knows no variable of any host."""
    tasks = yaml.safe_load((ROOT / "roles/preflight/tasks/plan.yml").read_text())
    site = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    provision = next(play for play in site if play["name"] == "Provision")
    told = {"ansible.builtin.fail": {"msg": "{{ ansible_play_batch | join(' ') }}"}, "ignore_errors": True}
    plays = [
        {
            "hosts": "all",
            "gather_facts": False,
            "tasks": [task for task in tasks if "ansible.builtin.group_by" in task],
        },
        {"hosts": "all", "gather_facts": False, "serial": provision["serial"], "tasks": [told]},
    ]
    hosts = {f"gpu-0{number}": {"gpu_fabric_batch": [1, "50%", "100%"]} for number in range(1, 5)}
    assert play(tmp_path, yaml.safe_dump(plays), hosts) == {
        "gpu-01": "gpu-01", "gpu-02": "gpu-02 gpu-03", "gpu-03": "gpu-02 gpu-03", "gpu-04": "gpu-04",
    }  # fmt: skip


@pytest.mark.parametrize(
    "role",
    sorted(path.parent.parent.name for path in ROOT.glob("roles/*/vars/main.yml") if "_unplanned" in path.read_text()),
)
def test_a_role_without_a_plan_says_what_comes_first(tmp_path: pathlib.Path, role: str):
    playbook = f"""
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role:
        name: railyard.gpu_fabric.{role}
        rolespec_validate: false
"""
    # A role that went on would install here.
    said = play(tmp_path, playbook, {"gpu-1": {}}, "--check")
    assert f"{role} works by the plan of the rack, and there is none" in said["gpu-1"]
    done = [result for _, result in results(json.loads((tmp_path / "said.json").read_text()))]
    assert [result for result in done if not result.get("failed") and not result.get("skipped")] == []


@pytest.mark.parametrize("name", ["preflight", "site"])
@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            {"gpu_nodes": {"hosts": {}}, "gpu_node": {"hosts": {"gpu-1": {}}}},
            ("group gpu_nodes has no host", "gpu_node."),
        ),
        ({"all": {"hosts": {}}}, ("The inventory has no host", "none")),
    ],
)
def test_a_rack_without_hosts_is_refused(tmp_path: pathlib.Path, name: str, groups: dict, said: tuple[str, str]):
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps(groups))
    environ = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(tmp_path / "home")}
    argv = [str(PLAYBOOK), str(ROOT / "playbooks" / f"{name}.yml"), "-i", str(inventory)]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, cwd=ROOT)
    text = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert all(words in text for words in said), text


REMARKS = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        gpu_fabric: {files: {/etc/nccl.conf: "{{ written }}"}}
        cacheable: true
    - ansible.builtin.set_fact:
        gpu_fabric_plan: {hosts: {gpu-1: {nccl_env: {NCCL_IB_TC: "138"}, nccl_reasons: {}}}}
    - ansible.builtin.command: "true"
      register: rdma_nics
    - ansible.builtin.command: "true"
      register: nccl_configured
      when: with_nccl | bool
    - ansible.builtin.import_role:
        name: railyard.gpu_fabric.preflight
        tasks_from: remarks
        rolespec_validate: false
    - ansible.builtin.assert:
        that: preflight_remarks.remarks | map(attribute='id') == expected
        fail_msg: "{{ preflight_remarks | to_json }}"
"""


@pytest.mark.parametrize(
    ("with_nccl", "state", "expected"),
    [(False, "present", ["RF-RUN-LEFT-BEHIND"]), (True, "present", []), (False, "absent", [])],
)
def test_the_end_of_a_run_tells_what_other_layers_kept(
    tmp_path: pathlib.Path, with_nccl: bool, state: str, expected: list[str]
) -> None:
    written = f"{nccl_conf.HEADER}NCCL_IB_TC=106\n"
    given = {"with_nccl": with_nccl, "gpu_fabric_state": state, "expected": expected, "written": written}
    assert play(tmp_path, REMARKS, {"gpu-1": given}) == {"gpu-1": None}


def test_the_names_of_the_results_are_those_that_the_layers_register() -> None:
    """site.yml asks for them under the tags of these layers, and a name that no task registers would say nothing."""
    (task,) = yaml.safe_load((ROOT / "roles/preflight/tasks/remarks.yml").read_text())
    names = task["railyard.gpu_fabric.fabric_verdict"]["applied"]
    found = {}
    for path in ROOT.glob("roles/*/tasks/*.yml"):
        for entry in yaml.safe_load(path.read_text()) or ():
            if entry.get("register") in names:
                found[entry["register"]] = path.parents[1].name
    assert found == {
        "nccl_configured": "nccl",
        "rdma_links": "rdma",
        "rdma_nics": "rdma",
        "security_groups_table": "security_groups",
    }
    site = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    block = next(play for play in site if play["name"].startswith("Prove"))["tasks"][0]["block"]
    first = block[0]
    assert first["ansible.builtin.import_role"]["tasks_from"] == "remarks"
    assert sorted(first["tags"]) == ["nccl", "rdma", "security"]
