# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IP over InfiniBand, partitions and the subnet manager: planned from intent and facts, refused by name."""

from __future__ import annotations

import copy
import ipaddress
import typing as t

import boxes
import pytest
from boxes import plan_one, rack
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import wanted_links
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import ib_networks, opensm
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError, resolve

POOL = {"ipv4": "10.240.0.0/16"}
STORAGE = {"pkey": 0x8005, "name": "storage", "rails": [0], "ipv4": "10.241.0.0/24"}


def host(number: int = 1, table: dict[str, str] | None = None, mtu: int = 4096, sm_lid: int = 1, **nic: t.Any) -> dict:
    """A node of eight InfiniBand rails, with what a subnet manager gave its ports."""
    box = boxes.hgx_h100("InfiniBand", **nic)
    table = {"0": "ffff", "1": "8005"} if table is None else table
    for position, device in enumerate(box.facts["rdma_devices"].values()):
        port = device["ports"]["1"]
        if port["link_layer"] == "InfiniBand":
            guid = f"a088c203{number:04x}{position:04x}"
            words = ":".join(guid[at : at + 4] for at in range(0, 16, 4))
            port |= {
                "gids": [{"index": 0, "gid": f"fe80:0000:0000:0000:{words}", "type": "IB"}],
                "pkey_table": dict(table),
                "active_mtu_bytes": mtu,
                "sm_lid": sm_lid,
                "lid": number * 100 + position,
            }
    return box.done()


def ids(plan: dict[str, t.Any]) -> list[str]:
    return [
        note["id"]
        for note in plan["notes"]
        if note["id"].startswith(("RF-PLAN-PKEY", "RF-PLAN-IPOIB", "RF-PLAN-NCCL-PKEY"))
    ]


def refused(facts: dict[str, t.Any], **intent: t.Any) -> str:
    with pytest.raises(IntentError) as error:
        rack(facts, **intent)
    return str(error.value)


def test_without_the_intent_nothing_is_touched():
    plan = plan_one(host())
    assert plan["ipoib"] == [] and plan["opensm"]["run"] is False and ids(plan) == []
    assert "ib_ipoib" not in plan["modules"]["load"] and "NCCL_IB_PKEY" not in plan["nccl_env"]


def test_each_rail_has_a_subnet_and_each_node_its_number_in_all_of_them():
    plans = rack({"gpu-01": host(1), "gpu-02": host(2)}, ipoib={**POOL, "ipv6": "fd00:240::/48"})["hosts"]
    for number, plan in enumerate(plans.values(), start=1):
        assert [link["addresses"] for link in plan["ipoib"]] == [
            [f"10.240.{rail}.{10 + number}/24", f"{ipaddress.ip_address(f'fd00:240:0:{rail}::{10 + number:x}')}/64"]
            for rail in range(8)
        ]
        assert {link["mtu"] for link in plan["ipoib"]} == {4092}
        assert {link["ipoib"]["mode"] for link in plan["ipoib"]} == {"datagram"}
        assert "ib_ipoib" in plan["modules"]["load"]


def test_one_chosen_rail_takes_the_first_subnet_and_the_others_are_left_alone():
    (link,) = plan_one(host(), ipoib={**POOL, "rails": [3]})["ipoib"]
    assert (link["rail"], link["addresses"], link["netdev"]) == (3, ["10.240.0.11/24"], f"en{boxes.H100_NAMES[3]}")


@pytest.mark.parametrize(("active", "wanted"), [(4096, 4092), (2048, 2044), (None, 2044)])
def test_datagram_mtu_is_the_ports_less_four_bytes(active: int | None, wanted: int):
    facts = host()
    for device in facts["rdma_devices"].values():
        device["ports"]["1"]["active_mtu_bytes"] = active
    assert {link["mtu"] for link in plan_one(facts, ipoib=POOL)["ipoib"]} == {wanted}


def test_ports_that_wait_for_the_collections_own_manager_get_what_its_groups_carry():
    waiting = host(state="initializing", sm_lid=0)
    assert {link["mtu"] for link in plan_one(waiting, ipoib=POOL, opensm_nodes=["gpu-01"])["ipoib"]} == {4092}
    assert {link["mtu"] for link in plan_one(waiting, ipoib=POOL)["ipoib"]} == {2044}


def test_more_than_the_port_carries_stops_the_run_with_both_values():
    plan = rack({"gpu-01": host(mtu=2048)}, ipoib={**POOL, "rails": [0], "mtu": 4092})
    (finding,) = [f for f in evaluate({"gpu-01": host(mtu=2048)}, plan, {}) if f["id"] == "RF-PLAN-IPOIB-MTU"]
    assert finding["severity"] == "fail" and "4092" in finding["message"] and "2044" in finding["message"]


def test_partition_has_an_interface_over_the_ports_which_comes_first():
    port, child = plan_one(host(), ib_partitions=[STORAGE])["ipoib"]
    assert port["addresses"] == [] and port["mtu"] is None
    assert child["netdev"] == f"{port['netdev']}.8005" and child["addresses"] == ["10.241.0.11/24"]
    assert child["ipoib"] == {"mode": "datagram", "parent": port["netdev"], "pkey": "0x8005"}
    assert [link.netdev for link in wanted_links([port, child])] == [port["netdev"], child["netdev"]]


def test_partition_without_a_pool_has_no_interface():
    assert plan_one(host(), ib_partitions=[{"pkey": "0x8005"}])["ipoib"] == []


@pytest.mark.parametrize(
    ("table", "seen"), [({"0": "ffff"}, "0xffff"), ({"0": "ffff", "1": "0005"}, "0x0005"), ({"0": "7fff"}, "0x7fff")]
)
def test_port_without_the_key_stops_the_run_and_names_both(table: dict[str, str], seen: str):
    facts = {"gpu-01": host(table=table)}
    plan = rack(facts, ib_partitions=[STORAGE])
    (finding,) = [f for f in evaluate(facts, plan, {}) if f["id"] == "RF-PLAN-PKEY"]
    assert finding["severity"] == "fail" and "0x8005" in finding["message"] and seen in finding["message"]
    assert "0xa088c20300010000" in finding["remedy"], finding["remedy"]
    assert plan["hosts"]["gpu-01"]["ipoib"] == []


def test_key_that_this_run_brings_stops_nothing_and_a_port_that_is_down_has_no_say():
    plan = plan_one(host(table={"0": "ffff"}), ib_partitions=[STORAGE], opensm_nodes=["gpu-01"])
    assert ids(plan) == ["RF-PLAN-PKEY-PENDING"] and len(plan["ipoib"]) == 2
    plan = plan_one(host(table={"0": "ffff"}, state="initializing"), ib_partitions=[STORAGE])
    assert ids(plan) == [] and len(plan["ipoib"]) == 2


def test_nccl_takes_an_index_only_where_the_default_partition_is_limited():
    wide = {**STORAGE, "rails": "all", "ipv4": "10.241.0.0/16"}
    assert "NCCL_IB_PKEY" not in plan_one(host(), ib_partitions=[wide])["nccl_env"]
    limited = host(table={"0": "7fff", "3": "8005"})
    plan = plan_one(limited, ib_partitions=[wide])
    # The index, not the key.
    assert plan["nccl_env"]["NCCL_IB_PKEY"] == "3" and "0x8005" in plan["nccl_reasons"]["NCCL_IB_PKEY"]
    assert "NCCL_IB_PKEY" not in plan_one(limited, ib_partitions=[STORAGE])["nccl_env"], "one rail is not all rails"
    assert plan_one(limited, ib_partitions=[wide], nccl_env={"NCCL_IB_PKEY": 2})["nccl_env"]["NCCL_IB_PKEY"] == "2"
    odd = copy.deepcopy(limited)
    odd["rdma_devices"][boxes.H100_NAMES[5]]["ports"]["1"]["pkey_table"] = {"0": "7fff", "2": "8005"}
    plan = plan_one(odd, ib_partitions=[wide])
    assert "NCCL_IB_PKEY" not in plan["nccl_env"] and ids(plan) == ["RF-PLAN-NCCL-PKEY"]


def test_bootstrap_interface_of_nccl_stays_the_management_one():
    with_ipoib = plan_one(host(), ipoib=POOL, ib_partitions=[STORAGE])["nccl_env"]
    assert with_ipoib["NCCL_SOCKET_IFNAME"] == plan_one(host())["nccl_env"]["NCCL_SOCKET_IFNAME"] == "=eno1"


def test_members_are_admitted_and_ports_of_one_fabric_answer_for_their_own_addresses_only():
    plan = plan_one(host(), ipoib=POOL, ib_partitions=[STORAGE])
    allowed = [ipaddress.ip_network(net) for net in plan["firewall"]["members"]]
    for link in plan["ipoib"]:
        assert any(ipaddress.ip_interface(item) in net for item in link["addresses"] for net in allowed)
        assert link["netdev"] in plan["firewall"]["rail_interfaces"]
        key = f"net.ipv4.conf.{link['netdev'].replace('.', '/')}.arp_ignore"
        # The partition has one interface on this host, and nobody beside it to answer for.
        assert (key in plan["sysctl"]) == ("parent" not in link["ipoib"])


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        ({"ipoib": {**POOL, "mode": "connected"}}, "mode is connected, and mlx5_15 (mlx5_core) has enhanced IP over"),
        ({"ipoib": {"rails": [0]}}, "no pool"),
        ({"ipoib": {**POOL, "mtu": 65520}}, "gpu_fabric_ipoib.mtu: 65520 is not allowed"),
        ({"ipoib": {**POOL, "mode": "fast"}}, "gpu_fabric_ipoib.mode: 'fast' is not allowed"),
        ({"ipoib": {**POOL, "rails": [0, 0]}}, "gpu_fabric_ipoib.rails: [0, 0] is not allowed"),
        ({"ipoib": {**POOL, "rail": 0}}, "gpu_fabric_ipoib.rail: no such key; the nearest is rails"),
        ({"ipoib": {"ipv4": "10.240.0.1/16"}}, "gpu_fabric_ipoib.ipv4: '10.240.0.1/16' is not allowed"),
        ({"ipoib": {"ipv4": "10.240.0.0/16", "ipv4_prefix": 8}}, "gpu_fabric_ipoib.ipv4_prefix: 8 is not allowed"),
        ({"ipoib": {"ipv4": "10.240.0.0/22"}}, "10.240.0.0/22 holds 4 subnets of /24, 8 rails need 8"),
        ({"ipoib": {"ipv4": "10.0.0.0/16"}}, "10.0.0.0/24 of IP over InfiniBand overlaps gpu-01's eno1 10.0.0.11/24"),
        ({"ipoib": POOL, "ib_partitions": [{**STORAGE, "ipv4": "10.240.9.0/24"}]}, "overlaps 10.240.0.0/16"),
        ({"ib_partitions": [{"name": "x"}]}, "gpu_fabric_ib_partitions[0].pkey: missing"),
        ({"ib_partitions": [{"pkey": 0}]}, "0x0000 names no partition"),
        ({"ib_partitions": [{"pkey": 0x8000}]}, "0x8000 names no partition"),
        ({"ib_partitions": [{"pkey": 0x7FFF}]}, "0x7fff is the default partition"),
        ({"ib_partitions": [{"pkey": 0xFFFF}]}, "0xffff is the default partition"),
        ({"ib_partitions": [{"pkey": 0x0005}]}, "0x0005 lacks the bit of full membership"),
        ({"ipoib": {5: "x", "ipv4": "10.240.0.0/16"}}, "gpu_fabric_ipoib[5]: no such key"),
        ({"ib_partitions": [{"pkey": 8001}]}, "cannot talk to each other; write 0x8001"),
        ({"ib_partitions": [{"pkey": "5"}]}, "cannot talk to each other; write 0x8005"),
        ({"ib_partitions": [{"pkey": 0x18005}]}, "0x18005 is no 16-bit number"),
        ({"ib_partitions": [{"pkey": -1}]}, "-1 is no 16-bit number"),
        ({"ib_partitions": [{"pkey": "eight"}]}, "gpu_fabric_ib_partitions[0].pkey: 'eight' is no key"),
        ({"ib_partitions": [{"pkey": True}]}, "gpu_fabric_ib_partitions[0].pkey: True is no key"),
        ({"ib_partitions": [{"pkey": 0x8005}, {"pkey": "0x8005"}]}, "0x8005 is that of gpu_fabric_ib_partitions[0]"),
        (
            {"ib_partitions": [{"pkey": 0x8005, "name": "a b"}]},
            "[0].name: 'a b' is not allowed",
        ),
        (
            {"ib_partitions": [{"pkey": 0x8005, "name": "Default"}]},
            "[0].name: 'Default' is not",
        ),
        (
            {"ib_partitions": [{"pkey": 0x8005, "members": ["gpu-01"]}]},
            "[0].members[0]: 'gpu-01' is no port's",
        ),
        ({"ib_partitions": ["0x8005"]}, "gpu_fabric_ib_partitions[0]: '0x8005' is no mapping"),
        ({"opensm_nodes": ["gpu-01", "gpu-77"]}, "gpu-77 is no host of the rack"),
        ({"opensm_nodes": ["gpu-01", "gpu-01"]}, "gpu-01 stands 2 times"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(intent: dict[str, t.Any], said: str):
    assert said in refused({"gpu-01": host()}, **intent)


def test_all_that_is_wrong_with_networks_is_told_at_once():
    partitions = [
        {"pkey": 5, "mtu": 1},
        {**STORAGE, "ipv4": "10.240.9.0/24"},
        {"pkey": 0x8006, "ipv4": "10.240.8.0/24"},
    ]
    told = refused({"gpu-01": host()}, ipoib=POOL, ib_partitions=partitions)
    for said in (
        "gpu_fabric_ib_partitions[0].pkey: 0x0005 lacks the bit",
        "gpu_fabric_ib_partitions[0].mtu: 1 is not allowed",
        "10.240.9.0/24 overlaps 10.240.0.0/16 of gpu_fabric_ipoib",
        "10.240.8.0/24 overlaps 10.240.0.0/16 of gpu_fabric_ipoib",
    ):
        assert told.count(said) == 1, told


def test_hosts_of_an_ethernet_fabric_are_refused():
    ethernet = {"gpu-01": boxes.hgx_h100().done()}
    assert "gpu-01 has Ethernet rails, which need no subnet manager" in refused(ethernet, opensm_nodes=["gpu-01"])
    assert "no host has InfiniBand rails (gpu-01: roce)" in refused(ethernet, ipoib=POOL)


def test_name_that_no_interface_can_have_is_refused():
    facts = host(netdev="ibP2p154s0f1np1")
    assert "ibP2p154s0f1np1.8005 has 20 characters" in refused({"gpu-01": facts}, ib_partitions=[STORAGE])


def test_connected_mode_is_left_to_nics_that_offer_it():
    facts = host()
    for device in facts["rdma_devices"].values():
        device["driver"] = "mlx4_core"
    plan = plan_one(facts, ipoib={**POOL, "mode": "connected"}, fabric="infiniband")
    assert {(link["mtu"], link["ipoib"]["mode"]) for link in plan["ipoib"]} == {(65520, "connected")}


def test_rail_without_an_interface_is_named_and_the_module_is_loaded():
    plan = plan_one(host(netdev=""), ipoib={**POOL, "rails": [0]})
    assert plan["ipoib"] == [] and ids(plan) == ["RF-PLAN-IPOIB"] and "ib_ipoib" in plan["modules"]["load"]


# The subnet manager


def managed(facts: dict[str, t.Any], **intent: t.Any) -> dict[str, dict[str, t.Any]]:
    plans = rack(facts, opensm_nodes=["gpu-02", "gpu-01"], **intent)["hosts"]
    return {name: plan["opensm"] for name, plan in plans.items()}


def text_of(plan: dict[str, t.Any], path: str) -> str:
    return next(entry["content"] for entry in plan["files"] if entry["path"] == path)


def test_order_of_the_list_is_the_order_of_priorities_and_other_hosts_run_none():
    plans = managed({f"gpu-0{n}": host(n, sm_lid=0, state="initializing") for n in (1, 2, 3)})
    assert [plans[f"gpu-0{n}"]["priority"] for n in (1, 2, 3)] == [13, 14, None]
    assert "sm_priority 14\n" in text_of(plans["gpu-02"], opensm.CONFIG)
    assert [plan["run"] for plan in plans.values()] == [True, True, False]
    assert plans["gpu-02"]["ports"] == [{"rail": 0, "hca": "mlx5_15", "port": 1, "guid": "0xa088c20300020000"}]
    states = plans["gpu-02"]["units"]
    assert states["gpu-fabric-opensm@0xa088c20300020000.service"] == "started"
    assert sorted(states.values()).count("stopped") == 7
    # One that the host ran before would manage the same port; what it does at boot is its owner's.
    assert states["opensm.service"] == states["opensmd.service"] == "paused" and len(states) == 10


def test_one_instance_per_subnet_or_at_the_rails_that_are_named():
    facts = host()
    for position, name in enumerate(boxes.H100_NAMES):
        gid = facts["rdma_devices"][name]["ports"]["1"]["gids"][0]
        gid["gid"] = gid["gid"].replace("fe80:0000:0000:0000", f"fec0:0000:0000:{position // 4:04x}")
    assert [port["rail"] for port in plan_one(facts, opensm_nodes=["gpu-01"])["opensm"]["ports"]] == [0, 4]
    plan = plan_one(facts, opensm_nodes=["gpu-01"], opensm_rails=[2, 7])
    assert [port["rail"] for port in plan["opensm"]["ports"]] == [2, 7]


def test_default_partition_has_every_port_as_a_full_member_and_low_bits_name_the_others():
    intent, problems = resolve(
        {
            "gpu_fabric_ib_partitions": [STORAGE, {"pkey": 0x800B, "mtu": 2044}],
            "gpu_fabric_ipoib": {**POOL, "mtu": 4092},
        }
    )
    assert problems == []
    assert opensm.partitions(ib_networks.read(intent)).splitlines() == [
        "Default=0x7fff, ipoib, mtu=5 : ALL=full ;",
        "storage=0x0005, ipoib, mtu=5 : ALL=full ;",
        "partition-800b=0x000b, ipoib, mtu=4 : ALL=full ;",
    ]
    assert "Default=0x7fff, ipoib, mtu=4 :" in opensm.partitions([], small_mtu=True)


def test_cost_is_that_of_a_take_over_and_jobs_of_the_whole_rack_count():
    none = managed({f"gpu-0{n}": host(n, sm_lid=0, state="initializing") for n in (1, 2)})
    assert {plan["disruption"] for plan in none.values()} == {"none"}
    busy = host(1, sm_lid=9)
    busy["gpu_processes"] = [{"pid": 4242, "name": "python3"}]
    other = managed({"gpu-01": busy, "gpu-02": host(2, sm_lid=9)})["gpu-02"]
    assert other["disruption"] == "linkflap" and "LID 9" in other["disruption_reason"]
    assert other["gpu_processes"] == ["gpu-01: 4242 python3"]
    # Port 200 is that of the first of the list.
    standby = managed({"gpu-01": host(1, sm_lid=200), "gpu-02": host(2, sm_lid=200)})["gpu-01"]
    assert (standby["disruption"], standby["gpu_processes"]) == ("none", [])


def test_partition_that_goes_cuts_off_and_one_that_comes_does_not():
    facts = {"gpu-01": host(1), "gpu-02": host(2)}
    for number in (1, 2):
        plan = managed(facts, ib_partitions=[STORAGE])[f"gpu-0{number}"]
        facts[f"gpu-0{number}"]["files"] = {
            path: text_of(plan, path).strip() for path in (opensm.CONFIG, opensm.PARTITION_FILE)
        }
    same = managed(facts, ib_partitions=[STORAGE])["gpu-02"]
    more = managed(facts, ib_partitions=[STORAGE, {"pkey": 0x8006}])["gpu-02"]
    less = managed(facts)["gpu-02"]
    assert (same["disruption"], more["disruption"], less["disruption"]) == ("none", "none", "linkflap")
    assert "0x0005" in less["disruption_reason"]


def test_host_that_leaves_the_list_or_the_fabric_gives_everything_back():
    facts = host()
    facts["files"] = {opensm.CONFIG: "sm_priority 14"}
    for intent in ({}, {"opensm_nodes": ["gpu-01"], "state": "absent"}):
        plan = plan_one(facts, **intent)["opensm"]
        assert plan["run"] and not plan["wanted"] and set(plan["units"].values()) == {"stopped"}
        assert plan["files"] and all(entry == {"path": entry["path"], "original": True} for entry in plan["files"])


def test_port_without_a_manager_stops_no_run_that_brings_one():
    facts = {"gpu-01": host(state="initializing", sm_lid=0)}
    for nodes, mended in (([], ""), (["gpu-01"], "rdma")):
        found = evaluate(facts, rack(facts, opensm_nodes=nodes), {})
        assert {f["mended_by"] for f in found if f["id"] == "RF-PORT-NO-SM"} == {mended}


# Any intent

keys = st.one_of(
    st.integers(-2, 0x10002),
    st.sampled_from([0x8001, 0x8005, 0xFFFE, 0xFFFF, 0x7FFF, 0x8000, "0x8009", "0xZZ", "", None, True, 3.5, []]),
)
pools = st.sampled_from(
    [None, "", "10.241.0.0/24", "10.242.0.0/16", "10.243.0.0/30", "10.0.0.0/8", "fd00::/48", "x", 7]
)
entries = st.fixed_dictionaries(
    {"pkey": keys},
    optional={
        "name": st.one_of(st.none(), st.text(max_size=8), st.just("storage")),
        "rails": st.one_of(st.just("all"), st.lists(st.integers(-1, 9), max_size=3), st.just({})),
        "ipv4": pools,
        "ipv4_prefix": st.one_of(st.none(), st.integers(0, 40), st.just("24")),
        "ipv6": pools,
        "mtu": st.one_of(st.just("auto"), st.sampled_from([2044, 4092, 65520, 0, "x"])),
        "mode": st.sampled_from(["datagram", "connected", ""]),
        "members": st.one_of(st.just("all"), st.just(["0xa088c20300010000"]), st.just([1]), st.none()),
    },
)


@given(st.lists(entries, max_size=3), st.sampled_from([{}, POOL, {"ipv4": "10.0.0.0/8"}]))
@settings(max_examples=100, deadline=None)
def test_partitions_are_refused_with_a_name_or_become_links_that_the_module_takes(partitions, ipoib):
    facts = host(table={"0": "ffff"})
    try:
        plan = plan_one(facts, ib_partitions=partitions, ipoib=ipoib, opensm_nodes=["gpu-01"])
    except IntentError as error:
        assert "gpu_fabric_ib_partitions" in str(error) or "gpu_fabric_ipoib" in str(error)
        return
    links = wanted_links(plan["ipoib"])
    addresses = [address for link in links for address in link.addresses]
    assert len(set(addresses)) == len(addresses)
    for link in links:
        assert link.mtu is None or 1280 <= link.mtu <= 4092
        if link.ipoib.parent:
            assert 0x8001 <= link.ipoib.pkey <= 0xFFFE and link.netdev == f"{link.ipoib.parent}.{link.ipoib.pkey:04x}"
    conf = text_of(plan["opensm"], opensm.PARTITION_FILE)
    assert conf.count("Default=0x7fff") == 1 and conf.count(" ;\n") == len(partitions) + 1
