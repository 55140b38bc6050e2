# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rings, channels, speed, negotiation and FEC: nothing unless asked for, never more than a card has."""

from __future__ import annotations

import boxes
import pytest
from boxes import plan_one
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError, resolve
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import FEC_OF_SPEED

OURS = {"rings", "channels", "link", "fec"}
SPEEDS = [25, 50, 100, 200, 400]
PORT = {
    "rings": {"rx": 1024, "tx": 1024, "rx_max": 8192, "tx_max": 4096},
    "channels": {"combined": 63, "combined_max": 63},
    "link_mode": {"autoneg": True, "supported_gbps": SPEEDS, "advertised_gbps": SPEEDS},
    "fec": {"configured": ["auto"], "active": ["rs"]},
}


def rack(**facts):
    """A box whose rails show what ethtool said of them."""
    box = boxes.hgx_h100()
    for name in boxes.H100_NAMES:
        box.facts["netdevs"][f"en{name}"] |= {**PORT, **facts}
    for data in box.facts["pci"].values():
        data["local_cpulist"] = "0-55,112-167" if data["numa_node"] == 0 else "56-111,168-223"
    return box


def ours(plan, netdev="enmlx5_15"):
    settings = next((port["settings"] for port in plan["nic_ports"] if port["netdev"] == netdev), {})
    return {name: value for name, value in settings.items() if name in OURS}


def changes(plan):
    return [change for change in plan["disruption"]["changes"] if change["what"].startswith("port ")]


def test_absent_means_untouched():
    plan = plan_one(rack())
    assert not any(ours(plan, port["netdev"]) for port in plan["nic_ports"]) and changes(plan) == []
    assert not {"rings", "channels", "link_fec"} & {*plan["tuning"]["reasons"], *plan["tuning"]["left_out"]}


def test_most_of_everything():
    plan = plan_one(rack(), rings="max", channels="auto")
    # four rails share the 112 CPUs of their NUMA node
    assert ours(plan) == {"rings": "max", "channels": 28}
    assert len(plan["nic_ports"]) == 8 and all(ours(plan, port["netdev"]) for port in plan["nic_ports"])
    assert plan["tuning"]["reasons"]["rings"] == "gpu_fabric_rings"
    assert changes(plan)[0] == {
        "what": "port enmlx5_15",
        "class": "linkflap",
        "reason": "enmlx5_15: rx ring 1024 to 8192, tx ring 1024 to 4096, channels 63 to 28; that interrupts the port",
    }


def test_channels_are_never_more_than_the_device_has():
    plan = plan_one(rack(channels={"combined": 8, "combined_max": 8}), channels="auto")
    assert ours(plan) == {"channels": 8} and changes(plan) == []


def test_numbers_as_told():
    plan = plan_one(rack(), rings={"rx": "2048"}, channels=16, link_speed_gbps=200, link_autoneg=False, link_fec="rs")
    assert ours(plan) == {
        "rings": {"rx": 2048},
        "channels": 16,
        "link": {"speed_gbps": 200, "autoneg": False},
        "fec": "rs",
    }
    assert "FEC auto to rs, negotiation off, speed to 200 Gb/s" in changes(plan)[0]["reason"]


def test_what_is_so_already_costs_nothing():
    now = {"autoneg": True, "supported_gbps": SPEEDS, "advertised_gbps": [200]}
    plan = plan_one(
        rack(link_mode=now), rings={"rx": 1024}, channels=63, link_speed_gbps=200, link_autoneg=True, link_fec="auto"
    )
    assert changes(plan) == []


@pytest.mark.parametrize(("rate", "costs"), [(200_000, False), (400_000, True)])
def test_a_forced_port_is_known_by_its_rate_where_it_lists_all_modes(rate, costs):
    box = rack(link_mode={"autoneg": False, "supported_gbps": SPEEDS, "advertised_gbps": SPEEDS}, speed_mbps=rate)
    assert bool(changes(plan_one(box, link_speed_gbps=200, link_autoneg=False))) == costs


def test_thresholds_follow_the_speed_that_is_given():
    full, half = (plan_one(rack(), **intent) for intent in ({}, {"link_speed_gbps": 200}))
    assert {rail["nominal_gbps"] for rail in half["rails"]} == {200.0}
    assert half["thresholds"]["ib_write_bw_gbps"]["0"] < full["thresholds"]["ib_write_bw_gbps"]["0"] / 1.8


def test_a_rail_finds_its_way_back_from_a_lower_speed():
    box = rack()
    for device in box.facts["rdma_devices"].values():
        device["ports"]["1"]["rate_gbps"] = 100.0
    assert ours(plan_one(box, link_speed_gbps=400)) == {"link": {"speed_gbps": 400}}


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        ({"rings": {"rx": 16384}}, "gpu_fabric_rings: rx 16384 is more than the device has (enmlx5_15, enmlx5_10, "
         "enmlx5_14 and 5 more). Allowed: at most rx 8192, or max."),
        ({"channels": 64}, "gpu_fabric_channels: 64 is more than the device has (enmlx5_15, enmlx5_10, enmlx5_14 and 5 "
         "more). Allowed: at most 63, or auto."),
        ({"link_speed_gbps": 800}, "800 is no speed of the port (enmlx5_15, enmlx5_10, enmlx5_14 and 5 more). Allowed: "
         "25, 50, 100, 200, 400, or none at all."),
        ({"link_fec": "baser"}, "gpu_fabric_link_fec: baser is not used at the port's 400 Gb/s (enmlx5_15, enmlx5_10, "
         "enmlx5_14 and 5 more). Allowed: auto, rs, llrs at that speed."),
        ({"rings": "more"}, "'more' is not allowed. Allowed: untouched, max, or a mapping of rx, tx or both to powers"),
        ({"rings": {"rx": 1000}}, "{'rx': 1000} is not allowed"),
        ({"rings": {}}, "{} is not allowed"),
        ({"channels": 0}, "0 is not allowed. Allowed: untouched, auto, or a number from 1 to 1024."),
        ({"link_speed_gbps": 300}, "300 is not allowed. Allowed: one of 1, 10, 25"),
        ({"link_autoneg": False}, "false without a speed to force the ports to. Allowed: false with"),
        ({"link_speed_gbps": 200, "link_fec": False}, "off with gpu_fabric_link_speed_gbps: 200. Allowed: auto, rs"),
        ({"link_fec": "rs", "fabric": "infiniband"}, "rs with gpu_fabric_fabric: infiniband. Allowed: Ethernet rails"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_can(intent, said):
    with pytest.raises(IntentError) as told:
        plan_one(rack(), **intent)
    assert said in str(told.value)


def test_without_an_answer_of_the_port_its_rate_counts():
    with pytest.raises(IntentError, match="Allowed: 1, 10, 25, 40, 50, 100, 200, 400, or none at all"):
        plan_one(boxes.hgx_h100(), link_speed_gbps=800)
    plan = plan_one(boxes.hgx_h100(), rings="max", channels="auto", link_fec="rs")
    assert ours(plan) == {"fec": "rs", "rings": "max"}
    assert plan["tuning"]["left_out"] == {"channels": "the CPUs near enmlx5_15 are not known"}


def test_a_port_that_does_not_answer_keeps_what_it_was_given():
    """Or one slow command would have the next run give first values back, and take links down for it."""
    intent = {"rings": "max", "channels": "auto", "link_speed_gbps": 200, "link_fec": "rs"}
    silent = rack()
    for name in boxes.H100_NAMES:
        for key in PORT:
            silent.facts["netdevs"][f"en{name}"].pop(key)
    assert plan_one(silent, **intent)["nic_ports"] == plan_one(rack(), **intent)["nic_ports"]


def test_infiniband_rails_are_left_alone():
    plan = plan_one(boxes.hgx_h100("InfiniBand"), rings={"rx": 8192}, link_fec="rs")
    assert not any(ours(plan, port["netdev"]) for port in plan["nic_ports"])
    assert plan["tuning"]["left_out"]["link_fec"] == "an InfiniBand port has its speed from the subnet manager"


def test_a_guest_has_rings_of_its_own_and_no_link():
    box = rack()
    box.facts["host"]["virtualization"] = "kvm"
    plan = plan_one(box, rings={"rx": 8192}, link_speed_gbps=200, link_fec="rs", compute_devices=list(boxes.H100_NAMES))
    assert ours(plan) == {"rings": {"rx": 8192}} and plan["rails"][0]["nominal_gbps"] == 400.0
    assert plan["tuning"]["left_out"]["link_speed_gbps"].endswith("its port is set where the physical one is")


def test_the_connection_of_the_run_is_not_cut():
    box = rack()
    box.facts["ssh"] = {"address": "10.0.0.11", "netdev": "enmlx5_15", "basis": "ssh_connection"}
    box.facts["netdevs"]["enmlx5_15"]["addresses"] = ["10.0.0.99/24"]
    plan = plan_one(box, link_fec="rs", management_interface="enmlx5_15", compute_devices=list(boxes.H100_NAMES))
    assert "enmlx5_15" in plan["protected_interfaces"]
    assert ours(plan) == {} and ours(plan, "enmlx5_10") == {"fec": "rs"}
    assert plan["tuning"]["left_out"]["link_fec"] == "enmlx5_15 carries the connection of this run"


def test_members_of_a_bond_are_set_each():
    box = rack()
    for name in ("member0", "member1"):
        box.netdev(name, "0000:18:00.0", master="bond7", **PORT)
    box.netdev("bond7", kind="bond", bond={"members": ["member0", "member1"], "mode": "802.3ad"})
    box.facts["rdma_devices"]["mlx5_15"]["ports"]["1"]["netdevs"] = ["bond7"]
    plan = plan_one(box, rings="max", compute_devices=list(boxes.H100_NAMES))
    assert ours(plan, "member0") == ours(plan, "member1") == {"rings": "max"}
    assert "bond7" not in {port["netdev"] for port in plan["nic_ports"]}


@given(
    st.sampled_from([None, *FEC_OF_SPEED]),
    st.sampled_from(["untouched", "auto", "rs", "baser", "llrs", "off"]),
    st.sampled_from([None, True, False]),
    st.sets(st.sampled_from(SPEEDS), min_size=1).map(sorted),
    st.sampled_from([*SPEEDS]),
)
def test_a_plan_never_has_what_a_port_cannot_do(speed, fec, autoneg, supported, rate):
    assume(rate in supported)
    box = rack(link_mode={"autoneg": True, "supported_gbps": supported, "advertised_gbps": supported})
    for device in box.facts["rdma_devices"].values():
        device["ports"]["1"]["rate_gbps"] = float(rate)
    given_values = {"link_speed_gbps": speed, "link_fec": fec, "link_autoneg": autoneg}
    at = speed or rate
    refused = (
        (speed is not None and speed not in supported)
        or fec not in ("untouched", *FEC_OF_SPEED[at])
        or (autoneg is False and speed is None)
    )
    try:
        plan = plan_one(box, compute_devices=list(boxes.H100_NAMES), **given_values)
    except IntentError as error:
        assert refused, str(error)
        assert all("Allowed: " in line for line in str(error).splitlines())
        return
    assert not refused
    link = {key: value for key, value in (("speed_gbps", speed), ("autoneg", autoneg)) if value is not None}
    wanted = {**({"link": link} if link else {}), **({"fec": fec} if fec != "untouched" else {})}
    assert ours(plan) == wanted


@given(
    st.dictionaries(st.sampled_from(["rx", "tx"]), st.integers(0, 20000)),
    st.integers(-5, 2000) | st.sampled_from(["auto", "max"]),
)
def test_sizes_and_counts(rings, channels):
    intent, problems = resolve({"gpu_fabric_rings": rings, "gpu_fabric_channels": channels})
    wrong = {problem.variable for problem in problems}
    sizes_ok = bool(rings) and all(64 <= size <= 16384 and bin(size).count("1") == 1 for size in rings.values())
    assert ("gpu_fabric_rings" not in wrong) == sizes_ok
    assert ("gpu_fabric_channels" not in wrong) == (channels == "auto" or channels in range(1, 1025))
    assert not sizes_ok or intent["gpu_fabric_rings"] == rings
