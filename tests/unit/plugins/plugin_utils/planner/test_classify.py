# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Roles of devices: machine types, overrides, and everything that tends to mislead."""

from __future__ import annotations

import boxes
import pytest
from boxes import Box, notes, pairs, plan_one, roles


def hcas(plan):
    return plan["nccl_env"].get("NCCL_IB_HCA")


def test_every_device_has_a_role_a_reason_and_a_confidence():
    plan = plan_one(boxes.hgx_h100())
    assert {device["name"] for device in plan["devices"]} == {*boxes.H100_NAMES, "mlx5_0", "mlx5_1", "eno1"}
    assert all(d["role"] and d["reason"] and d["confidence"] in ("low", "medium", "high") for d in plan["devices"])


@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
def test_h100_rails_follow_the_gpus_not_the_device_numbers(layer):
    plan = plan_one(boxes.hgx_h100(layer))
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert pairs(plan) == [(rail, name, rail) for rail, name in enumerate(boxes.H100_NAMES)]
    assert {rail["distance"] for rail in plan["rails"]} == {"PIX"}
    assert plan["confidence"] == "high"
    assert roles(plan)["mlx5_0"] == roles(plan)["mlx5_1"] == "storage"
    assert plan["fabric"] == {"Ethernet": "roce", "InfiniBand": "infiniband"}[layer]


def test_a100_storage_card_at_the_rate_of_the_rails_and_near_gpus_is_not_a_rail():
    plan = plan_one(boxes.dgx_a100())
    assert [name for _, name, _ in pairs(plan)] == [f"mlx5_{n}" for n in (0, 1, 2, 3, 6, 7, 8, 9)]
    assert [gpu for _, _, gpu in pairs(plan)] == list(range(8))
    assert roles(plan)["mlx5_4"] == "storage"
    assert "another model" in next(d["reason"] for d in plan["devices"] if d["name"] == "mlx5_4")


@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
def test_b200_bridges_are_left_alone(layer):
    plan = plan_one(boxes.hgx_b200(layer))
    assert hcas(plan) == "=" + ",".join(f"mlx5_{n}:1" for n in range(4, 12))
    assert [role for name, role in roles(plan).items() if name in ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")] == [
        "nvswitch_bridge"
    ] * 4
    assert "ib_umad" in plan["modules"]["load"]


def test_gb200_pairs_within_the_socket():
    plan = plan_one(boxes.gb200())
    assert pairs(plan) == [(0, "mlx5_1", 0), (1, "mlx5_2", 1), (2, "mlx5_3", 2), (3, "mlx5_4", 3)]
    assert {rail["distance"] for rail in plan["rails"]} == {"NODE"}
    assert plan["confidence"] == "medium"
    assert roles(plan)["mlx5_0"] == "management"


@pytest.mark.parametrize("box", [boxes.hyperv, boxes.kvm])
def test_a_guest_that_hides_its_tree_gets_no_invented_pairs(box):
    plan = plan_one(box())
    assert len(plan["rails"]) == 8
    assert all(rail["gpu"] is None and rail["gpus"] == [] and rail["distance"] is None for rail in plan["rails"])
    assert plan["affinity_known"] is False
    assert "RF-PLAN-AFFINITY-UNKNOWN" in notes(plan)


def test_hyperv_fast_path_of_the_management_interface_is_management():
    plan = plan_one(boxes.hyperv())
    assert roles(plan)["mlx5_an0"] == "management"
    assert plan["nccl_env"]["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_guest_that_shows_pcie_switches_is_paired():
    box = Box(virtualization="kvm")
    for n in range(2):
        first, second = box.switch(0x10 + 0x10 * n, 2)
        box.gpu(f"0000:{0x13 + 0x10 * n:02x}:00.0", first, None).nic(
            f"mlx5_{n}", f"0000:{0x14 + 0x10 * n:02x}:00.0", second, None
        )
    assert pairs(plan_one(box.management())) == [(0, "mlx5_0", 0), (1, "mlx5_1", 1)]


def test_one_nic_serves_all_gpus():
    plan = plan_one(boxes.pcie_box())
    assert hcas(plan) == "=mlx5_0:1"
    assert sorted(plan["rails"][0]["gpus"]) == [0, 1, 2, 3]
    assert plan["confidence"] == "high"


def test_second_port_that_no_card_uses_is_no_rail():
    box = boxes.pcie_box()
    box.nic(
        "mlx5_1",
        "0000:a1:00.1",
        ("0000:a0:03.0",),
        1,
        rate=40.0,
        state="down",
        board="MT_0000000359",
        hca_type="MT4125",
    )
    plan = plan_one(box)
    assert hcas(plan) == "=mlx5_0:1"
    assert roles(plan)["mlx5_1"] == "unused"
    assert hcas(plan_one(box, expected_rails=2)) == "=mlx5_0:1,mlx5_1:1"


def test_a_port_that_is_down_on_one_card_only_stays_a_rail():
    box = Box()
    for n in range(4):
        first, second = box.switch(0x10 + 0x10 * n, 2)
        box.gpu(f"0000:{0x13 + 0x10 * n:02x}:00.0", first)
        for port in range(2):
            down = n == 2 and port == 1
            shown = {"rate": 10.0, "state": "down"} if down else {"rate": 200.0}
            box.nic(f"mlx5_{2 * n + port}", f"0000:{0x14 + 0x10 * n:02x}:00.{port}", second, **shown)
    plan = plan_one(box.management())
    assert [gpu for _, _, gpu in pairs(plan)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert plan["rails"][5]["nominal_gbps"] == 200.0
    assert "its port is down" in next(d["reason"] for d in plan["devices"] if d["name"] == "mlx5_5")


def test_down_rail_keeps_its_role_number_and_threshold():
    box = boxes.hgx_h100()
    port = box.facts["rdma_devices"]["mlx5_13"]["ports"]["1"]
    port.update(state="down", phys_state="polling", rate_gbps=10.0)
    plan = plan_one(box)
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert plan["rails"][3]["hca"] == "mlx5_13"
    assert plan["thresholds"]["ib_write_bw_gbps"]["3"] == 384.0


def test_wrong_rate_does_not_lower_the_threshold():
    box = boxes.hgx_h100()
    box.facts["rdma_devices"]["mlx5_13"]["ports"]["1"]["rate_gbps"] = 200.0
    plan = plan_one(box)
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert plan["thresholds"]["ib_write_bw_gbps"]["3"] == 384.0


def test_missing_nic_leaves_its_number_free():
    plan = plan_one(boxes.hgx_h100(skip=[3]))
    assert [rail["rail"] for rail in plan["rails"]] == [0, 1, 2, 4, 5, 6, 7]
    assert plan["rails"][3]["hca"] == boxes.H100_NAMES[4]
    assert "RF-PLAN-RAIL-MISSING" in notes(plan)


def test_missing_gpu_leaves_its_rail_in_place_without_a_gpu():
    plan = plan_one(boxes.hgx_h100(lost_gpus=[3]))
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert pairs(plan)[3] == (3, "mlx5_13", None)
    assert "its GPU is not shown" in next(d["reason"] for d in plan["devices"] if d["name"] == "mlx5_13")


@pytest.mark.parametrize(
    ("box", "confidence"),
    [(boxes.hgx_h100(), "high"), (boxes.dgx_a100(), "medium"), (boxes.hgx_h100(skip=[3]), "medium")],
)
def test_confidence_falls_with_what_had_to_be_assumed(box, confidence):
    assert plan_one(box)["confidence"] == confidence


def test_more_like_nics_near_gpus_than_gpus_is_asked_about():
    box = boxes.hgx_h100()
    above = box.facts["pci"]["0000:18:00.0"]["upstream"]
    box.nic("mlx5_2", "0000:19:00.0", [*above[:-1], "0000:17:02.0"], 0)
    plan = plan_one(box)
    assert plan["confidence"] == "low" and "RF-PLAN-LOW-CONFIDENCE" in notes(plan)
    assert plan_one(box, exclude_devices=["mlx5_2"])["confidence"] == "high"
    assert plan_one(box, expected_rails=9)["confidence"] == "high"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_cards_of_another_board_are_still_rails(count):
    box = boxes.hgx_h100()
    for name in boxes.H100_NAMES[:count]:
        box.facts["rdma_devices"][name]["board_id"] = "MT_0000000840"
    plan = plan_one(box)
    assert hcas(plan) == boxes.H100_ROCE_LIST and plan["confidence"] == "high"


def test_front_end_nic_of_the_rails_model_is_told_by_the_default_route():
    box = boxes.hgx_h100()
    box.facts["routes"] = [{"dst": "default", "dev": "enmlx5_2", "via": "10.0.0.1", "family": 4}]
    box.nic("mlx5_2", "0000:2a:00.0", ("0000:27:01.0",), 0, addresses=["10.0.0.9/24"])
    plan = plan_one(box)
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert roles(plan)["mlx5_2"] == "management"


def test_idle_front_end_nic_of_the_rails_model_is_told_by_the_pcie_tree():
    box = boxes.hgx_h100()
    box.nic("mlx5_2", "0000:2a:00.0", ("0000:27:01.0",), 0, addresses=["10.0.9.9/24"])
    plan = plan_one(box)
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert roles(plan)["mlx5_2"] == "storage"


def test_front_end_nic_that_nothing_tells_apart_stops():
    plan = plan_one(boxes.kvm(front_end=True))
    assert plan["confidence"] == "low"
    note = next(note for note in plan["notes"] if note["id"] == "RF-PLAN-LOW-CONFIDENCE")
    assert "gpu_fabric_compute_devices" in note["remedy"]
    told = plan_one(boxes.kvm(front_end=True), management_devices=["mlx5_0"])
    assert hcas(told) == "=" + ",".join(f"mlx5_{n}:1" for n in range(1, 9))
    assert told["confidence"] == "medium"


@pytest.mark.parametrize(
    "item",
    ["mlx5_8", "0000:18:00.0", "18:00.0", "0xa088c2030000abcd", "a088:c203:0000:abcd", "MT_0000000999", "enmlx5_8"],
)
def test_override_by_name_address_guid_board_or_interface(item):
    box = boxes.kvm()
    box.nic("mlx5_8", "0000:18:00.0", (), None, guid="a088c2030000abcd", board="MT_0000000999", device="101e")
    plan = plan_one(box, exclude_devices=[item])
    assert roles(plan)["mlx5_8"] == "unused"
    assert f"{item} is in gpu_fabric_exclude_devices" == next(
        d["reason"] for d in plan["devices"] if d["name"] == "mlx5_8"
    )
    only = plan_one(box, compute_devices=[item])
    assert hcas(only) == "=mlx5_8:1"


def test_override_cannot_make_a_bridge_a_rail():
    plan = plan_one(boxes.hgx_b200(), compute_devices=["mlx5_0"])
    assert "RF-PLAN-BRIDGE-OVERRIDE" in notes(plan)
    assert roles(plan)["mlx5_0"] == "nvswitch_bridge"
    assert "mlx5_0" not in plan["nccl_env"]["NCCL_IB_HCA"].split(":")[0]


def test_override_that_names_no_device_of_the_host_is_told():
    assert "RF-PLAN-OVERRIDE-UNMATCHED" in notes(plan_one(boxes.hgx_h100(), compute_devices=["mlx5_77"]))


@pytest.mark.parametrize("variable", ["exclude_devices", "storage_devices", "management_devices"])
def test_device_that_no_host_of_the_rack_has_is_told_once(variable):
    facts = {"gpu-01": boxes.hgx_h100().done(), "gpu-02": boxes.kvm().done()}
    plan = boxes.rack(facts, **{variable: ["mlx5_77"]})
    told = [n for h in plan["hosts"].values() for n in h["notes"] if n["id"] == "RF-PLAN-OVERRIDE-UNMATCHED"]
    assert [note["message"] for note in told] == [
        f"gpu_fabric_{variable} names mlx5_77, which no device of gpu-01, gpu-02 is"
    ]
    # without the whole rack nobody can tell
    part = boxes.rack(facts, {"gpu-01": {}, "gpu-02": {}, "gpu-03": {}}, **{variable: ["mlx5_77"]})
    assert "RF-PLAN-OVERRIDE-UNMATCHED" not in notes(part["hosts"]["gpu-01"])


def test_device_that_one_host_of_the_rack_has_is_enough():
    more = boxes.hgx_h100()
    more.nic("mlx5_77", "0000:e7:00.0", more.switch(0xE6, 1)[0])
    facts = {"gpu-01": boxes.hgx_h100().done(), "gpu-02": more.done()}
    for name in ("mlx5_77", "0000:e7:00.0", "enmlx5_77"):
        plan = boxes.rack(facts, exclude_devices=[name])
        assert not [h for h in plan["hosts"].values() if "RF-PLAN-OVERRIDE-UNMATCHED" in notes(h)], name


def test_stray_link_layer_among_rails_is_excluded_and_told():
    box = boxes.hgx_h100("InfiniBand")
    box.facts["rdma_devices"]["mlx5_13"]["ports"]["1"]["link_layer"] = "Ethernet"
    plan = plan_one(box)
    assert "mlx5_13" not in hcas(plan)
    note = next(note for note in plan["notes"] if note["id"] == "RF-PLAN-MIXED-LINK-LAYER")
    assert "mlx5_13" in note["message"] and "LINK_TYPE" in note["remedy"]


def test_ethernet_cards_of_the_rails_model_beside_complete_infiniband_rails_are_storage():
    box = boxes.hgx_h100("InfiniBand")
    for n, bus in ((2, "0000:19:00.0"), (3, "0000:9b:00.0")):
        above = box.facts["pci"][f"0000:{'18' if n == 2 else '9a'}:00.0"]["upstream"]
        box.nic(f"mlx5_{n}", bus, [*above[:-1], f"{above[-1][:-4]}02.0"], n // 3, addresses=[f"10.20.9.{n}/24"])
    plan = plan_one(box)
    assert hcas(plan) == boxes.H100_ROCE_LIST and plan["confidence"] == "high" and notes(plan) == []
    assert roles(plan)["mlx5_2"] == roles(plan)["mlx5_3"] == "storage"


def test_two_models_with_a_nic_for_every_gpu_each_are_asked_about():
    box = Box()
    for n in range(4):
        ports = box.switch(0x10 + 0x10 * n, 3)
        box.gpu(f"0000:{0x13 + 0x10 * n:02x}:00.0", ports[0])
        for k in range(2):
            box.nic(f"mlx5_{2 * n + k}", f"0000:{0x14 + 0x10 * n + k:02x}:00.0", ports[1 + k], board=f"MT_{k}")
    box.management()
    assert plan_one(box)["confidence"] == "low"
    assert hcas(plan_one(box, compute_devices=["MT_0"])) == "=mlx5_0:1,mlx5_2:1,mlx5_4:1,mlx5_6:1"
    assert len(plan_one(box, expected_rails=8)["rails"]) == 8


def test_half_and_half_link_layers_stop_unless_the_intent_says_which():
    box = boxes.hgx_h100("InfiniBand")
    for name in boxes.H100_NAMES[4:]:
        box.facts["rdma_devices"][name]["ports"]["1"]["link_layer"] = "Ethernet"
    assert plan_one(box)["confidence"] == "low"
    told = plan_one(box, fabric="infiniband", expected_rails=4)
    assert hcas(told) == "=" + ",".join(f"{name}:1" for name in boxes.H100_NAMES[:4])


def test_virtual_functions_twins_and_software_devices_are_no_rails():
    box = boxes.hgx_h100()
    first = tuple(box.facts["pci"]["0000:18:00.0"]["upstream"])
    box.nic("mlx5_20", "0000:18:00.1", first, physfn="0000:18:00.0", device="101e")
    box.nic("mlx5_15_dma", "0000:18:00.2", first, netdev="")
    port = {"state": "active", "link_layer": "Ethernet", "netdevs": ["eno1"]}
    soft = {"software": True, "driver": "rdma_rxe", "parent_netdev": "eno1", "ports": {"1": port}}
    box.facts["rdma_devices"]["rxe0"] = soft
    plan = plan_one(box, allow_software_rdma=True)
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert (roles(plan)["mlx5_20"], roles(plan)["mlx5_15_dma"], roles(plan)["rxe0"]) == (
        "vf",
        "data_direct",
        "software",
    )


def test_software_devices_are_rails_only_when_allowed_and_not_over_management():
    assert plan_one(boxes.rxe_guest())["rails"] == []
    plan = plan_one(boxes.rxe_guest(), allow_software_rdma=True)
    assert hcas(plan) == "=rxe0:1,rxe1:1"
    assert roles(plan) == {"ens2": "management", "rxe0": "compute", "rxe1": "compute", "rxe2": "software"}
    assert plan["modules"]["gpudirect"] == "none"
    assert "rdma_rxe" in plan["modules"]["load"]
    assert plan["qos"] == {}


def test_ipoib_interface_that_is_down_does_not_matter():
    box = boxes.hgx_h100("InfiniBand")
    for netdev in box.facts["netdevs"].values():
        netdev.update(operstate="down", carrier=False)
    assert hcas(plan_one(box)) == boxes.H100_ROCE_LIST


def test_members_of_a_bond_and_their_lag_device():
    box = Box()
    box.gpu("0000:1b:00.0", ("0000:18:01.0",))
    box.nic("mlx5_bond_0", "0000:18:00.0", ("0000:17:01.0",), netdev="bond1", rate=400.0)
    box.facts["netdevs"]["bond1"].update(kind="bond", bond={"members": ["ens1f0np0", "ens1f1np1"], "mode": "802.3ad"})
    for port in range(2):
        box.netdev(f"ens1f{port}np{port}", f"0000:18:00.{port}", master="bond1")
    plan = plan_one(box.management())
    assert hcas(plan) == "=mlx5_bond_0:1"
    assert plan["nccl_env"]["NCCL_IB_QPS_PER_CONNECTION"] == "4"
    assert "mlx5_bond_0" in plan["nccl_reasons"]["NCCL_IB_QPS_PER_CONNECTION"]
    # QoS is set where the ports are
    assert sorted(plan["qos"]) == ["ens1f0np0", "ens1f1np1"]
    assert [port["hca"] for port in plan["nic_ports"]] == ["mlx5_bond_0"] * 2
    # and costs what the gravest of them costs
    mask = [False] * 3 + [True] + [False] * 4
    box.facts["qos"] = {"ens1f0np0": {"pfc": mask}, "ens1f1np1": {"pfc": [False] * 8}}
    (change,) = plan_one(box)["disruption"]["changes"]
    assert (change["what"], change["class"]) == ("rail 0 bond1", "linkflap") and "ens1f1np1" in change["reason"]
    box.facts["qos"]["ens1f1np1"]["pfc"] = mask
    assert plan_one(box)["disruption"]["changes"] == []


def test_bond_of_the_management_interface_makes_its_members_management():
    box = boxes.hgx_h100()
    box.nic("mlx5_2", "0000:2a:00.0", ("0000:27:01.0",), 0, rate=100.0, master="bond0")
    box.netdev("bond0", kind="bond", addresses=["10.0.0.5/24"], bond={"members": ["enmlx5_2"]})
    box.facts["routes"] = [{"dst": "default", "dev": "bond0", "via": "10.0.0.1", "family": 4}]
    plan = plan_one(box)
    assert roles(plan)["mlx5_2"] == roles(plan)["bond0"] == "management"
    assert plan["protected_interfaces"] == ["bond0", "enmlx5_2"]


def test_only_hca_that_carries_management_is_asked_about():
    box = boxes.pcie_box()
    box.facts["routes"] = [{"dst": "default", "dev": "enmlx5_0", "via": "10.0.0.1", "family": 4}]
    plan = plan_one(box)
    assert plan["rails"] == []
    assert "RF-PLAN-LOW-CONFIDENCE" in notes(plan)
    told = plan_one(box, compute_devices=["mlx5_0"])
    assert hcas(told) == "=mlx5_0:1"
    # its address is the host's own: the rail keeps it
    assert told["links"] == []


def test_rail_with_a_stray_default_route_stays_a_rail():
    box = boxes.hgx_h100()
    box.facts["routes"].append({"dst": "default", "dev": "enmlx5_15", "family": 6, "metric": 1024})
    assert hcas(plan_one(box)) == boxes.H100_ROCE_LIST


def test_without_gpu_facts_the_fastest_alike_devices_are_the_fabric():
    devices = {}
    for n in range(12):
        slow, down = n in (1, 2, 7, 8), n in (2, 8)
        port = {
            "state": "down" if down else "active",
            "rate_gbps": 40.0 if down else 100.0 if slow else 400.0,
            "link_layer": "Ethernet" if slow else "InfiniBand",
        }
        devices[f"mlx5_{n}"] = {"hca_type": "MT4125" if slow else "MT4129", "ports": {"1": port}}
    plan = plan_one({"rdma_devices": devices})
    assert hcas(plan) == "=" + ",".join(f"mlx5_{n}:1" for n in (0, 3, 4, 5, 6, 9, 10, 11))
    assert plan["confidence"] == "medium"


def test_no_fabric_at_all():
    plan = plan_one(boxes.no_fabric())
    assert (plan["fabric"], plan["rails"], plan["links"], plan["qos"]) == ("none", [], [], {})
    assert list(plan["nccl_env"]) == ["NCCL_SOCKET_IFNAME"]


def test_a_rack_without_any_link_still_has_its_rails():
    box = boxes.hgx_h100()
    for device in box.facts["rdma_devices"].values():
        device["ports"]["1"].update(state="down", phys_state="polling", rate_gbps=40.0)
    plan = plan_one(box)
    assert hcas(plan) == boxes.H100_ROCE_LIST
    assert set(plan["thresholds"]["ib_write_bw_gbps"].values()) == {None}


def test_like_cards_of_a_guest_are_told_apart_by_the_rate_at_which_they_run():
    box = boxes.kvm(front_end=True)
    box.facts["rdma_devices"]["mlx5_2"]["ports"]["1"]["rate_gbps"] = 100.0
    plan = plan_one(box)
    assert hcas(plan) == "=" + ",".join(f"mlx5_{n}:1" for n in (0, 1, 3, 4, 5, 6, 7, 8))
    assert plan["confidence"] == "medium"


def test_a_fabric_that_is_not_there_is_told():
    plan = plan_one(boxes.hgx_h100(), fabric="infiniband")
    assert plan["rails"] == [] and "RF-PLAN-FABRIC" in notes(plan)


def test_fabric_none_leaves_the_hcas_alone():
    assert plan_one(boxes.hgx_h100(), fabric="none")["rails"] == []
