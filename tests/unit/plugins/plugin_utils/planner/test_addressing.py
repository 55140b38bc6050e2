# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses: in their subnets, unique, and the same whoever takes part in the run."""

from __future__ import annotations

import ipaddress

import boxes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.addressing import AddressPlan, node_numbers
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError, defaults


def intent(**values):
    return defaults() | {f"gpu_fabric_{name}": value for name, value in values.items()}


def small(rails=2, **more):
    """A host with few rails, which is quick to plan."""
    box = boxes.Box(product=f"Example {rails}")
    for n in range(rails):
        first, second = box.switch(0x10 + 0x10 * n, 2)
        box.gpu(f"0000:{0x13 + 0x10 * n:02x}:00.0", first).nic(
            f"mlx5_{n}", f"0000:{0x14 + 0x10 * n:02x}:00.0", second, **more
        )
    return box.management().done()


SMALL = {count: small(count) for count in (1, 2, 3)}


def addresses(plan):
    return {(h, r["rail"]): r["ipv4"] for h, p in plan["hosts"].items() for r in p["rails"]}


def test_subnet_per_rail():
    plan = boxes.rack({"gpu-01": small(), "gpu-02": small()})
    assert addresses(plan) == {
        ("gpu-01", 0): "10.224.0.11/24",
        ("gpu-01", 1): "10.224.1.11/24",
        ("gpu-02", 0): "10.224.0.12/24",
        ("gpu-02", 1): "10.224.1.12/24",
    }
    assert plan["rack"]["subnets"][1] == {"rail": 1, "ipv4": "10.224.1.0/24", "ipv6": None}
    link = plan["hosts"]["gpu-02"]["links"][1]
    assert (link["netdev"], link["mtu"], link["addresses"], link["routes"], link["rules"]) == (
        "enmlx5_1", 9000, ["10.224.1.12/24"], [], [],
    )  # fmt: skip


def test_dual_stack_and_ipv6_only():
    plan = boxes.rack({"gpu-01": small()}, rail_ipv6="fd00:224::/48")
    assert plan["hosts"]["gpu-01"]["links"][1]["addresses"] == ["10.224.1.11/24", "fd00:224:0:1::b/64"]
    only = boxes.rack({"gpu-01": small()}, rail_ipv4="", rail_ipv6="fd00:224::/48")["hosts"]["gpu-01"]
    assert only["rails"][1]["ipv4"] is None and only["rails"][1]["ipv6"] == "fd00:224:0:1::b/64"
    assert only["nccl_env"]["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"
    assert only["nccl_env"]["NCCL_IB_ADDR_RANGE"] == "fd00:224::/48"
    assert "net.ipv6.conf.enmlx5_0.accept_ra" not in only["sysctl"]


def test_flat_mode_has_arp_settings_rules_and_tables():
    plan = boxes.rack({"gpu-01": small(), "gpu-02": small()}, rail_mode="flat")
    assert list(addresses(plan).values()) == ["10.224.0.11/24", "10.224.0.12/24", "10.224.0.19/24", "10.224.0.20/24"]
    host = plan["hosts"]["gpu-02"]
    link = host["links"][1]
    assert link["rules"] == [{"from": "10.224.0.20/32", "table": 1001, "priority": 1001}]
    assert link["routes"] == [{"dst": "10.224.0.0/24", "src": "10.224.0.20", "table": 1001}]
    assert host["sysctl"]["net.ipv4.conf.enmlx5_1.arp_ignore"]["value"] == "2"
    assert host["sysctl"]["net.ipv4.conf.enmlx5_1.arp_announce"]["value"] == "2"
    assert host["sysctl"]["net.ipv4.conf.enmlx5_1.rp_filter"]["value"] == "2"
    assert not [key for key in host["sysctl"] if ".conf.all." in key]


def test_flat_addresses_do_not_move_with_the_rails_of_others():
    facts = {"gpu-01": small(1), "gpu-02": small(4)}
    both = addresses(boxes.rack(facts, rail_mode="flat"))
    alone = addresses(boxes.rack({"gpu-02": facts["gpu-02"]}, {"gpu-01": {}, "gpu-02": {}}, rail_mode="flat"))
    assert alone == {key: value for key, value in both.items() if key[0] == "gpu-02"}
    packed = addresses(boxes.rack({"gpu-01": small(), "gpu-02": small()}, rail_mode="flat", expected_rails=2))
    assert list(packed.values())[-1] == "10.224.0.14/24"


@given(
    rails=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    expected=st.lists(st.one_of(st.none(), st.integers(3, 12)), min_size=4, max_size=4),
    taking=st.sets(st.integers(0, 3), min_size=1),
)
@settings(max_examples=25, deadline=None)
def test_flat_addresses_are_the_same_in_any_run(rails, expected, taking):
    names = [f"gpu-{n}" for n in range(len(rails))]
    facts = {name: SMALL[count] for name, count in zip(names, rails)}
    intents = {
        name: {"gpu_fabric_rail_mode": "flat"} | ({"gpu_fabric_expected_rails": count} if count else {})
        for name, count in zip(names, expected)
    }
    connection = {name: {"expected_rails": count} for name, count in zip(names, expected)}
    whole = addresses(boxes.plan_rack(intents, facts, connection))
    some = [name for position, name in enumerate(names) if position in taking] or names[:1]
    part = addresses(
        boxes.plan_rack({n: intents[n] for n in some}, {n: facts[n] for n in some}, connection),
    )
    assert part == {key: value for key, value in whole.items() if key[0] in some}


def test_flat_mode_refuses_more_rails_than_it_keeps_addresses_for():
    with pytest.raises(IntentError, match=r"gpu_fabric_expected_rails: a host has 9 rails, .*flat keeps 8"):
        boxes.rack({"gpu-01": small(9)}, rail_mode="flat")
    plan = boxes.rack({"gpu-01": small(9), "gpu-02": small(1)}, rail_mode="flat", expected_rails=9)
    assert addresses(plan)[("gpu-02", 0)] == "10.224.0.20/24"


def test_subnets_are_those_of_the_rack_whoever_takes_part():
    plan = boxes.rack({"gpu-01": small(2)}, {"gpu-01": {}, "gpu-02": {}}, expected_rails=4)
    assert len(plan["rack"]["subnets"]) == 4
    assert "10.224.0.0/22" in plan["hosts"]["gpu-01"]["firewall"]["members"]


def test_routed_31_gives_each_port_a_link_of_its_own():
    plan = boxes.rack({"gpu-01": small(), "gpu-02": small()}, rail_mode="routed_31")
    assert addresses(plan)[("gpu-02", 1)] == "10.224.1.5/31"
    rail = plan["hosts"]["gpu-02"]["rails"][1]
    assert rail["ipv4_gateway"] == "10.224.1.4"
    assert ipaddress.ip_interface(rail["ipv4"]).network == ipaddress.ip_network("10.224.1.4/31")
    link = plan["hosts"]["gpu-02"]["links"][1]
    assert {"dst": "10.224.0.0/24", "via": "10.224.1.4", "src": "10.224.1.5", "table": 1001} in link["routes"]
    assert {"dst": "10.224.1.0/24", "via": "10.224.1.4", "src": "10.224.1.5", "table": 1001} in link["routes"]


def test_gateways_route_the_other_rails():
    link = boxes.rack({"gpu-01": small()}, rail_gateways=True)["hosts"]["gpu-01"]["links"][1]
    assert {"dst": "10.224.0.0/24", "via": "10.224.1.1", "src": "10.224.1.11", "table": 1001} in link["routes"]


def test_ipv6_is_routed_by_source_as_ipv4_is():
    flat = {"rail_mode": "flat", "rail_ipv6": "fd00:224::/48"}
    link = boxes.rack({"gpu-01": small()}, rail_ipv4="", **flat)["hosts"]["gpu-01"]["links"][1]
    assert link["rules"] == [{"from": "fd00:224::c/128", "table": 1001, "priority": 1001}]
    # a preferred source would fail until duplicate address detection is through
    assert link["routes"] == [{"dst": "fd00:224::/64", "table": 1001}]
    both = boxes.rack({"gpu-01": small()}, **flat)["hosts"]["gpu-01"]["links"][1]
    assert [rule["from"] for rule in both["rules"]] == ["10.224.0.12/32", "fd00:224::c/128"]
    plan = boxes.rack({"gpu-01": small()}, rail_ipv6="fd00:224::/48", rail_gateways=True)["hosts"]["gpu-01"]
    assert {"dst": "fd00:224::/64", "via": "fd00:224:0:1::1", "table": 1001} in plan["links"][1]["routes"]
    assert plan["rails"][1]["ipv6_gateway"] == "fd00:224:0:1::1"


def test_routed_31_gives_ipv6_links_of_two_addresses():
    plan = boxes.rack({"gpu-01": small()}, rail_mode="routed_31", rail_ipv6="fd00:224::/48")["hosts"]["gpu-01"]
    assert (plan["rails"][1]["ipv6"], plan["rails"][1]["ipv6_gateway"]) == ("fd00:224:0:1::3/127", "fd00:224:0:1::2")
    assert {"dst": "fd00:224::/64", "via": "fd00:224:0:1::2", "table": 1001} in plan["links"][1]["routes"]


def test_given_subnets():
    plan = boxes.rack({"gpu-01": small()}, rail_subnets=["10.9.8.0/24", "10.7.6.0/24", "10.5.4.0/24"])
    assert list(addresses(plan).values()) == ["10.9.8.11/24", "10.7.6.11/24"]


def test_numbers_do_not_depend_on_who_takes_part():
    facts = {f"gpu-{n}": small() for n in (1, 2, 3, 10)}
    inventory = {host: {} for host in facts}
    whole = addresses(boxes.rack(facts, inventory))
    for host in facts:
        alone = addresses(boxes.rack({host: facts[host]}, inventory))
        assert alone == {key: value for key, value in whole.items() if key[0] == host}
    # natural order: gpu-10 is the fourth
    assert whole[("gpu-10", 0)] == "10.224.0.14/24"


def test_given_numbers_win_and_must_differ():
    facts = {"gpu-01": small(), "gpu-02": small()}
    connection = {"gpu-01": {"node_id": 7}, "gpu-02": {}}
    plan = boxes.plan_rack({"gpu-01": {"gpu_fabric_node_id": 7}, "gpu-02": {}}, facts, connection)
    assert plan["hosts"]["gpu-01"]["rails"][0]["ipv4"] == "10.224.0.17/24"
    with pytest.raises(IntentError, match=r"gpu_fabric_node_id.*both number 2"):
        boxes.plan_rack({"gpu-01": {"gpu_fabric_node_id": 2}, "gpu-02": {}}, facts, {})


@pytest.mark.parametrize(
    ("variables", "hosts", "name"),
    [
        ({}, 250, "gpu_fabric_rail_ipv4_prefix"),
        ({"rail_ipv4": "10.224.0.0/24"}, 1, "gpu_fabric_rail_ipv4"),
        ({"rail_subnets": ["10.9.8.0/24"]}, 1, "gpu_fabric_rail_subnets"),
        ({"rail_mode": "flat"}, 125, "gpu_fabric_rail_ipv4_prefix"),
        ({"rail_mode": "routed_31"}, 129, "gpu_fabric_rail_ipv4_prefix"),
        ({"expected_rails": 1}, 1, "gpu_fabric_expected_rails"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(variables, hosts, name):
    inventory = {f"gpu-{n}": {} for n in range(1, hosts + 1)}
    with pytest.raises(IntentError, match=name):
        boxes.rack({"gpu-1": small()}, inventory, **variables)


@pytest.mark.parametrize(
    ("facts", "connection", "words"),
    [
        (small(), {"gpu-01": {"address": "10.224.1.9"}}, "10.224.1.9"),
        (
            small() | {"netdevs": small()["netdevs"] | {"docker0": {"kind": "bridge", "addresses": ["10.224.0.1/16"]}}},
            {},
            "docker0",
        ),
    ],
)
def test_rails_must_not_overlap_what_is_there(facts, connection, words):
    with pytest.raises(IntentError, match="gpu_fabric_rail_ipv4: the rails'.*overlaps.*" + words):
        boxes.rack({"gpu-01": facts}, connection)


def test_an_address_that_the_plan_gave_before_does_not_stand_in_its_own_way():
    first = boxes.rack({"gpu-01": small()})
    facts = small()
    for link in first["hosts"]["gpu-01"]["links"]:
        facts["netdevs"][link["netdev"]]["addresses"] = link["addresses"]
    assert boxes.rack({"gpu-01": facts}) == first
    excluded = boxes.rack({"gpu-01": facts}, exclude_devices=["mlx5_0"])
    assert [rail["hca"] for rail in excluded["hosts"]["gpu-01"]["rails"]] == ["mlx5_1"]


def test_rack_wide_values_must_agree():
    facts = {"gpu-01": small(), "gpu-02": small()}
    with pytest.raises(IntentError, match="gpu_fabric_mtu: differs within the rack: 4200 on gpu-02; 9000 on gpu-01"):
        boxes.plan_rack({"gpu-01": {}, "gpu-02": {"gpu_fabric_mtu": 4200}}, facts, {})


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("nccl_version", "2.28.3", "2.27.7"),
        ("fabric", "roce", "auto"),
        ("fabric_lb", "ecmp", "auto"),
        ("roce_buffer_size", [1, 2, 3, 4, 5, 6, 7, 8], []),
        ("roce_priority_to_buffer", [0, 0, 0, 1, 0, 0, 0, 0], []),
        ("report_dir", "a", "b"),
    ],
)
def test_what_hosts_must_share_is_refused_where_it_differs(name, one, other):
    intents = {"gpu-01": {f"gpu_fabric_{name}": one}, "gpu-02": {f"gpu_fabric_{name}": other}}
    with pytest.raises(IntentError, match=f"gpu_fabric_{name}: differs within the rack"):
        boxes.plan_rack(intents, {"gpu-01": SMALL[2], "gpu-02": SMALL[2]}, {})


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("driver_version", "580.95.05", "570.1"),
        ("cuda_version", "13.0", "12.8"),
        ("rdma_stack", "inbox", "doca"),
    ],
)
def test_what_hosts_had_better_share_is_told_where_it_differs(name, one, other):
    facts = {"gpu-01": SMALL[2], "gpu-02": SMALL[2]}
    intents = {"gpu-01": {f"gpu_fabric_{name}": one}, "gpu-02": {f"gpu_fabric_{name}": other}}
    told = [n for h in boxes.plan_rack(intents, facts, {})["hosts"].values() for n in h["notes"]]
    assert [n["device"] for n in told if n["id"] == "RF-PLAN-INTENT-DIFFERS"] == [f"gpu_fabric_{name}"]
    same = boxes.plan_rack(dict.fromkeys(facts, intents["gpu-01"]), facts, {})
    assert not [n for h in same["hosts"].values() for n in h["notes"] if n["id"] == "RF-PLAN-INTENT-DIFFERS"]


def test_order_of_keys_makes_no_difference():
    intents = {"gpu-01": {"gpu_fabric_roce_ets": {3: 90, 0: 10}}, "gpu-02": {"gpu_fabric_roce_ets": {0: 10, 3: 90}}}
    assert boxes.plan_rack(intents, {"gpu-01": SMALL[2], "gpu-02": SMALL[2]}, {})["rack"]["hosts"] == list(intents)


def test_provider_addresses_in_a_guest_stay():
    box = boxes.kvm()
    box.facts["netdevs"]["enmlx5_3"]["addresses"] = ["172.20.3.9/24"]
    plan = boxes.plan_one(box)
    assert plan["rails"][3]["ipv4"] == "172.20.3.9/24"
    assert 3 not in [link["rail"] for link in plan["links"]]
    assert plan["qos"] == {}
    # what the plan itself gave is ours on the next run, too
    box.facts["netdevs"]["enmlx5_4"]["addresses"] = ["10.224.4.11/24"]
    assert 4 in [link["rail"] for link in boxes.plan_one(box)["links"]]


@given(
    mode=st.sampled_from(["subnet_per_rail", "flat", "routed_31"]),
    rails=st.integers(1, 16),
    hosts=st.integers(1, 40),
    prefix=st.integers(18, 26),
    six=st.booleans(),
    gateways=st.booleans(),
)
def test_addresses_are_unique_in_the_rack_and_inside_their_subnet(mode, rails, hosts, prefix, six, gateways):
    plan = AddressPlan(
        intent(
            rail_mode=mode, rail_ipv4_prefix=prefix, rail_ipv6="fd00:224::/48" if six else "", rail_gateways=gateways
        ),
        rails,
        hosts,
    )
    if plan.problems:
        assert all("does not fit" in problem.message or "flat keeps 8" in problem.message for problem in plan.problems)
        return
    seen = set()
    nets = [ipaddress.ip_network(item) for item in plan.networks()]
    for node in range(1, hosts + 1):
        for rail in range(rails):
            address = plan.address(node, rail)
            for text in filter(None, (address.ipv4, address.ipv6)):
                interface = ipaddress.ip_interface(text)
                assert interface.ip not in seen
                seen.add(interface.ip)
                assert any(interface.ip in net for net in nets)
                if interface.version == 4 and mode != "routed_31":
                    assert interface.ip not in (interface.network.network_address, interface.network.broadcast_address)
            for own, gateway in ((address.ipv4, address.ipv4_gateway), (address.ipv6, address.ipv6_gateway)):
                assert (gateway is not None) == (own is not None and (gateways or mode == "routed_31"))
                if gateway:
                    assert ipaddress.ip_address(gateway) in ipaddress.ip_interface(own).network
                    assert ipaddress.ip_address(gateway) not in seen or mode == "routed_31"


@given(st.sets(st.from_regex(r"(gpu|node)-?[0-9]{1,3}[a-b]?", fullmatch=True), min_size=1, max_size=20))
def test_numbers_are_the_place_in_natural_order(hosts):
    numbers, problems = node_numbers(hosts, {})
    assert problems == []
    assert sorted(numbers.values()) == list(range(1, len(hosts) + 1))
