# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nobody is locked out: the port and the interface of the run's own connection stay open and untouched."""

from __future__ import annotations

import boxes
import pytest
from boxes import plan_one, rack, roles
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError


def over_ssh(port: int | None = 22, netdev: str = "eno1", client: str = "192.0.2.9") -> boxes.Box:
    box = boxes.hgx_h100()
    box.facts["ssh"] = {"address": "10.0.0.11", "netdev": netdev, "client": client, "basis": "ssh_connection"}
    if port:
        box.facts["ssh"]["port"] = port
    return box


@pytest.mark.parametrize("allowed", [[], [2222], [80, 443]])
def test_a_firewall_without_the_connections_port_is_refused(allowed):
    with pytest.raises(IntentError, match=r"gpu_fabric_allow_tcp: \[.*\] lacks 22, the port .*Allowed: ports with 22"):
        plan_one(over_ssh(), allow_tcp=allowed)


def test_the_port_that_sshd_told_counts_before_the_inventorys():
    facts = {"gpu-01": over_ssh(port=2222).done()}
    assert rack(facts, {"gpu-01": {"port": 22}}, allow_tcp=[2222])["hosts"]
    with pytest.raises(IntentError, match="lacks 2222"):
        rack(facts, {"gpu-01": {"port": 22}}, allow_tcp=[22])


def test_the_inventorys_port_counts_where_the_host_does_not_tell():
    facts = {"gpu-01": boxes.hgx_h100().done()}
    with pytest.raises(IntentError, match=r"lacks 2222.*inventory"):
        rack(facts, {"gpu-01": {"port": 2222}}, admin_networks=["192.0.2.0/24"])
    assert rack(facts, {"gpu-01": {"port": 2222}}, admin_networks=["192.0.2.0/24"], allow_tcp=[2222])["hosts"]


def test_an_unknown_client_needs_administration_networks():
    facts = {"gpu-01": boxes.hgx_h100().done()}
    with pytest.raises(IntentError, match="gpu_fabric_admin_networks: empty"):
        rack(facts, {"gpu-01": {"port": 22}})
    assert rack(facts, {"gpu-01": {"port": 22}}, admin_networks=["192.0.2.0/24"])["hosts"]


@pytest.mark.parametrize("intent", [{"firewall": "none"}, {"state": "absent"}])
def test_without_a_firewall_no_port_is_asked_for(intent):
    assert plan_one(over_ssh(), allow_tcp=[], **intent)


def test_a_firewall_that_only_counts_locks_nobody_out():
    for box, connection in ((over_ssh(), {}), (boxes.hgx_h100(), {"port": 22})):
        facts = {"gpu-01": box.done()}
        assert rack(facts, {"gpu-01": {**connection, "firewall_policy": "accept"}}, allow_tcp=[443])["hosts"]
        with pytest.raises(IntentError, match="lock you out"):
            rack(facts, {"gpu-01": {**connection, "firewall_policy": "drop"}}, allow_tcp=[443])


def test_a_run_from_a_host_of_the_rack_comes_in_on_every_port():
    facts = {"gpu-01": over_ssh(client="10.0.0.12").done(), "gpu-02": boxes.hgx_h100().done()}
    reached = {"gpu-01": {"address": "10.0.0.11"}, "gpu-02": {"address": "10.0.0.12"}}
    wall = rack(facts, reached, allow_tcp=[443])["hosts"]["gpu-01"]["firewall"]
    assert any("10.0.0.12" in net for net in wall["members"])
    with pytest.raises(IntentError, match="lacks 22"):
        rack(facts, {**reached, "gpu-02": {"address": "10.0.0.13"}}, allow_tcp=[443])


@given(st.lists(st.integers(1, 65535), max_size=4), st.integers(1, 65535))
def test_a_plan_with_a_firewall_always_lets_its_run_in_again(allowed, port):
    try:
        wall = plan_one(over_ssh(port=port), allow_tcp=allowed)["firewall"]
    except IntentError:
        assert port not in allowed
    else:
        assert port in wall["tcp"] and "192.0.2.9/32" in wall["admin"]


def test_a_management_interface_that_the_host_lacks_is_refused():
    with pytest.raises(IntentError, match=r"gpu_fabric_management_interface: the host has no eno9.*eno1"):
        plan_one(boxes.hgx_h100(), management_interface="eno9")


def test_a_management_bond_of_the_intent_need_not_be_there_yet():
    bonds = {"bond0": {"members": ["eno8", "eno9"], "mode": "active-backup"}}
    box = boxes.hgx_h100().netdev("eno8", "0000:03:00.0").netdev("eno9", "0000:03:00.1")
    assert plan_one(box, management_interface="bond0", bonds=bonds)


def test_the_connections_interface_is_protected_beside_the_named_one():
    plan = plan_one(over_ssh(netdev="enmlx5_15"), management_interface="eno1")
    assert plan["protected_interfaces"] == ["enmlx5_15", "eno1"]
    assert roles(plan)["mlx5_15"] == "management"
    assert "enmlx5_15" not in [link["netdev"] for link in plan["links"]]


@pytest.mark.parametrize(
    ("client", "intent", "said"),
    [
        ("10.224.1.200", {}, "gpu_fabric_rail_ipv4: 10.224.1.0/24 holds 10.224.1.200, from where this run comes"),
        ("fd00:0:0:3::9", {"rail_ipv6": "fd00::/48"}, "gpu_fabric_rail_ipv6: fd00:0:0:3::/64 holds fd00:0:0:3::9"),
        (
            "198.51.100.9",
            {"bonds": {"bond0": {"members": ["eno8"], "mode": "active-backup", "addresses": ["198.51.100.5/24"]}}},
            "gpu_fabric_bonds: 198.51.100.5/24 holds 198.51.100.9",
        ),
    ],
)
def test_a_network_that_takes_the_answers_to_the_administrator_is_refused(client, intent, said):
    box = over_ssh(client=client).netdev("eno8", "0000:03:00.0")
    with pytest.raises(IntentError) as refused:
        plan_one(box, **intent)
    assert said in str(refused.value)
    assert plan_one(over_ssh(client="fe80::9%eno1"), state="present")


def test_a_network_over_infiniband_does_not_take_them_either():
    box = boxes.hgx_h100(layer="InfiniBand")
    box.facts["ssh"] = {"address": "10.0.0.11", "netdev": "eno1", "client": "10.240.2.9", "basis": "ssh_connection"}
    with pytest.raises(IntentError, match=r"gpu_fabric_ipoib: 10\.240\.2\.0/24 holds 10\.240\.2\.9"):
        plan_one(box, ipoib={"ipv4": "10.240.0.0/16"})
