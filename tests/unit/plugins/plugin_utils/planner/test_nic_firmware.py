# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Firmware settings of the rails' cards: which cards, which settings, why, and whether anything is left to do."""

from __future__ import annotations

import json

import boxes
import pytest
from boxes import notes, plan_one

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import tuning
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nic_firmware import RECORD

FIRST = "0000:18:00.0"
NOTHING = {"cards": [], "reasons": {}, "left_out": {}, "disruption": "none", "disruption_reason": ""}


def firmware(box, **intent):
    return plan_one(box, **intent)["nic_firmware"]


def shown(current, coming=None):
    return {"default": current, "current": current, "next": coming or current}


def test_nothing_is_planned_unless_asked_for():
    assert firmware(boxes.hgx_h100()) == {"run": False, **NOTHING}


def test_settings_go_to_the_rails_cards_only():
    plan = firmware(boxes.hgx_h100(), nic_firmware={"SRIOV_EN": False})
    assert len(plan["cards"]) == 8 and plan["run"]
    assert plan["cards"][0] == {"device": FIRST, "functions": [], "settings": {"SRIOV_EN": False}, "optional": []}
    assert "0000:29:00.0" not in [card["device"] for card in plan["cards"]], "storage is not ours"
    assert plan["reasons"] == {"SRIOV_EN": "set in gpu_fabric_nic_firmware"}


@pytest.mark.parametrize(
    ("fabric", "layer", "value"), [("roce", "Ethernet", "ETH"), ("infiniband", "InfiniBand", "IB")]
)
def test_link_type_follows_an_explicit_fabric(fabric, layer, value):
    plan = firmware(boxes.hgx_h100(layer), fabric=fabric)
    assert plan["cards"][0]["settings"] == {"LINK_TYPE": value} and plan["cards"][0]["optional"] == ["LINK_TYPE"]


def test_cards_of_the_other_link_type_are_set_only_where_they_are_named():
    box = boxes.hgx_h100("InfiniBand")
    named = firmware(box, fabric="roce", compute_devices=list(boxes.H100_NAMES))
    assert len(named["cards"]) == 8 and named["cards"][0]["settings"] == {"LINK_TYPE": "ETH"}
    assert FIRST not in [card["device"] for card in firmware(box, fabric="roce")["cards"]]


def test_recommended_profile_follows_the_rest_of_the_intent():
    for dscp, cnp, mask in ((26, 48, 8), (34, 46, 16)):
        plan = firmware(
            boxes.hgx_h100(), nic_firmware_profile="recommended", roce_dscp=dscp, roce_cnp_dscp=cnp,
            nic_firmware={"ATS_ENABLED": None, "DCBX_WILLING_P1": 1},
        )  # fmt: skip
        wanted = plan["cards"][0]["settings"]
        assert (wanted["CNP_DSCP"], wanted["CNP_802P_PRIO"], wanted["ROCE_CC_PRIO_MASK"]) == (cnp, cnp >> 3, mask)
        assert "ATS_ENABLED" not in wanted and wanted["DCBX_WILLING_P1"] == 1
        assert "DCBX_WILLING_P1" not in plan["cards"][0]["optional"] and "DCBX_WILLING" in plan["cards"][0]["optional"]
        assert set(plan["reasons"]) == set(wanted)
    lean = firmware(boxes.hgx_h100("InfiniBand"), nic_firmware_profile="recommended", roce_profile="none")
    assert lean["cards"][0]["settings"] == {"ATS_ENABLED": 0}
    grace = boxes.hgx_h100()
    grace.facts["host"]["architecture"] = "aarch64"
    assert firmware(grace, nic_firmware_profile="recommended", roce_profile="none")["cards"] == []
    direct = boxes.hgx_h100()
    direct.function("0000:19:00.0", *tuning.DATA_DIRECT, "0200", (), 0)
    assert firmware(direct, nic_firmware_profile="recommended", roce_profile="none")["cards"] == []


def test_hidden_settings_bring_their_gate():
    plan = firmware(boxes.hgx_h100(), nic_firmware={"PCI_WR_ORDERING": "per_mkey"})
    assert plan["cards"][0]["settings"]["ADVANCED_PCI_SETTINGS"] == 1
    assert "PCI_WR_ORDERING" in plan["reasons"]["ADVANCED_PCI_SETTINGS"]


def test_functions_of_one_card_are_one():
    box = boxes.dgx_a100()
    for device in box.facts["rdma_devices"].values():
        if device["pci"] in ("0000:0b:00.0", "0000:0c:00.0"):
            device["sys_image_guid"] = "a088c2030000cafe"
    plan = firmware(box, nic_firmware={"SRIOV_EN": 0})
    card = next(card for card in plan["cards"] if card["device"] == "0000:0b:00.0")
    assert card["functions"] == ["0000:0c:00.0"] and len(plan["cards"]) == 7


def test_chips_of_one_board_are_cards_of_their_own():
    """The mezzanine of an HGX H100 has four chips and one serial number."""
    box = boxes.hgx_h100()
    for function in box.facts["pci"].values():
        if function["vendor"] == "15b3" and "vpd" not in function:
            function["vpd"] = {"serial": "X1XX00X0000", "part_number": "SN00X00000"}
    assert len(firmware(box, nic_firmware={"SRIOV_EN": 0})["cards"]) == 8
    for device in box.facts["rdma_devices"].values():
        device["sys_image_guid"] = "0000:0000:0000:0000"
    assert len(firmware(box, nic_firmware={"SRIOV_EN": 0})["cards"]) == 8, "which says nothing"


def test_port_beside_a_rail_that_others_use_keeps_what_the_profile_would_set():
    box = boxes.hgx_h100()
    box.nic("mlx5_99", "0000:18:00.1", netdev="ens99", addresses=["10.9.0.11/24"], rate=100.0)
    profile = {"nic_firmware_profile": "recommended", "fabric": "roce", "compute_devices": list(boxes.H100_NAMES)}
    shared, alone = firmware(box, **profile, nic_firmware={"DCBX_IEEE": 1})["cards"][:2]
    assert {"LINK_TYPE_P1", "CNP_DSCP_P1", "LLDP_NB_DCBX_P1", "ATS_ENABLED", "DCBX_IEEE"} <= set(shared["settings"])
    assert not [name for name in shared["settings"] if name.endswith("_P2") or name == "LINK_TYPE"]
    assert "LINK_TYPE_P1" in shared["optional"] and "LINK_TYPE" in alone["settings"]
    named = firmware(box, **profile, nic_firmware={"LINK_TYPE": "ETH"})["cards"][0]["settings"]
    assert "LINK_TYPE" in named and "LINK_TYPE_P1" not in named, "what is asked for by name is for the whole card"
    box.facts["rdma_devices"]["mlx5_99"]["ports"]["1"]["state"] = "down"
    box.facts["netdevs"]["ens99"]["addresses"] = []
    assert "LINK_TYPE" in firmware(box, **profile)["cards"][0]["settings"], "nobody uses it"


def test_card_that_carries_the_connection_is_left_alone_and_told():
    box = boxes.hgx_h100()
    box.nic("mlx5_99", "0000:18:00.1", netdev="ens99", addresses=["10.9.0.11/24"], rate=None, state="down")
    box.facts["ssh"] = {"address": "10.9.0.11", "netdev": "ens99", "client": "10.9.0.1", "basis": "ssh_connection"}
    plan = plan_one(box, nic_firmware={"SRIOV_EN": 0}, management_interface="ens99")
    assert "ens99 on it carries this run's connection" in plan["nic_firmware"]["left_out"][FIRST]
    assert FIRST not in [card["device"] for card in plan["nic_firmware"]["cards"]]
    assert len(plan["nic_firmware"]["cards"]) == 7
    assert [note for note in notes(plan) if note == "RF-PLAN-NIC-FIRMWARE"]


def test_bridges_and_guests_are_left_alone():
    plan = firmware(boxes.hgx_b200(), nic_firmware={"SRIOV_EN": 0})
    assert len(plan["cards"]) == 8 and not [c for c in plan["cards"] if c["device"].startswith("0000:05:")]
    guest = firmware(boxes.kvm(), nic_firmware={"SRIOV_EN": 0})
    assert guest["cards"] == [] and not guest["run"] and len(guest["left_out"]) == 8


def test_module_is_spared_where_the_facts_show_all_in_force():
    box = boxes.hgx_h100()
    cards = [card["device"] for card in firmware(box, nic_firmware={"SRIOV_EN": 0})["cards"]]
    box.facts["nic_config"] = {device: {"SRIOV_EN": shown("False(0)"), "OTHER": shown("1", "2")} for device in cards}
    assert not firmware(box, nic_firmware={"SRIOV_EN": 0})["run"]
    assert firmware(box, nic_firmware={"SRIOV_EN": 1})["run"]
    assert "fwreset" not in [
        item["class"] for item in plan_one(box, nic_firmware={"SRIOV_EN": 0})["disruption"]["changes"]
    ]
    costs = plan_one(box, nic_firmware={"SRIOV_EN": 1})["disruption"]
    assert costs["worst"] == "fwreset" and costs["changes"][-1]["reason"].startswith("SRIOV_EN of 0000:18:00.0")
    box.facts["nic_config"][FIRST]["SRIOV_EN"] = shown("True(1)", "False(0)")
    assert firmware(box, nic_firmware={"SRIOV_EN": 0})["run"], "it waits for a reset"
    box.facts["nic_config"][FIRST]["SRIOV_EN"] = shown("False(0)")
    assert firmware(box, nic_firmware={"SRIOV_EN": 0, "NO_SUCH": 1})["run"], "the module is to refuse it by name"


def test_what_was_changed_once_is_given_back():
    box = boxes.hgx_h100()
    box.facts["files"] = {RECORD: json.dumps({FIRST: {"SRIOV_EN": "False(0)"}})}
    assert firmware(box)["run"] and firmware(box)["cards"] == []
    assert firmware(box, state="absent", nic_firmware={"SRIOV_EN": 1}) == {"run": True, **NOTHING}
    box.facts["nic_config"] = {
        card["device"]: {"SRIOV_EN": shown("True(1)")} for card in firmware(box, nic_firmware={"SRIOV_EN": 1})["cards"]
    }
    assert not firmware(box, nic_firmware={"SRIOV_EN": 1})["run"]
    box.facts["files"] = {RECORD: "no JSON"}
    assert firmware(box)["run"]
