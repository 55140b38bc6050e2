# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rails against leaves, without any tool: links as the parsers give them."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.cabling import (
    Cabling,
    Degraded,
    Misplaced,
    Missing,
    OtherPlan,
    Slot,
    Unsettled,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.fabric_graph import Fabric, Place


class Plant:
    """*hosts* with *rails* each, one leaf per rail and group; `at` is where each slot's cable ends."""

    def __init__(self, hosts: int, rails: int, group: int) -> None:
        self.slots = {
            f"{host:08x}{rail:08x}": Slot(f"n{host}", f"mlx5_{rail}", rail)
            for host in range(hosts)
            for rail in range(rails)
        }
        self.guids = {slot: guid for guid, slot in self.slots.items()}
        self.at = {
            slot: (f"leaf-{int(slot.host[1:]) // group}-{slot.rail}", int(slot.host[1:]) % group + 1)
            for slot in self.slots.values()
        }
        self.rate = dict.fromkeys(self.slots.values(), (4, "NDR"))

    def slot(self, host: int, rail: int) -> Slot:
        return self.slots[f"{host:08x}{rail:08x}"]

    def swap(self, one: Slot, other: Slot) -> None:
        self.at[one], self.at[other] = self.at[other], self.at[one]

    def discovered(self, shuffle: int | None = None) -> dict:
        rows = []
        for slot, (leaf, port) in self.at.items():
            width, speed = self.rate[slot]
            ca = {"type": "ca", "lid": 1, "port": 1, "guid": self.guids[slot], "description": f"{slot.host} {slot.hca}"}
            switch = {"type": "switch", "lid": 2, "port": port, "guid": leaf, "description": leaf}
            rows.append({**ca, "width": width, "speed": speed, "peer": switch})
            rows.append({**switch, "width": width, "speed": speed, "peer": ca})
        if shuffle is not None:
            random.Random(shuffle).shuffle(rows)
        return {"links": rows, "nodes": []}

    def cabling(self, complete: bool = True, shuffle: int | None = None) -> Cabling:
        fabric = Fabric(self.discovered(shuffle), complete=complete)
        return Cabling(fabric, self.slots, self.slots.values())


@pytest.mark.parametrize(
    ("hosts", "rails", "group"), [(1, 8, 8), (2, 8, 8), (3, 2, 8), (16, 4, 4), (9, 8, 4), (2, 1, 1)]
)
def test_a_fabric_as_it_should_be_has_no_observation(hosts, rails, group):
    assert Plant(hosts, rails, group).cabling().observations() == []


def test_all_rails_of_a_host_on_one_leaf_is_a_plan_too():
    plant = Plant(12, 4, 12)
    for slot in plant.at:
        host = int(slot.host[1:])
        plant.at[slot] = (f"leaf-{host // 3}", host % 3 * 4 + slot.rail)
    assert plant.cabling().observations() == []


def test_several_rails_share_a_leaf():
    plant = Plant(8, 8, 8)
    for slot, (_leaf, port) in plant.at.items():
        plant.at[slot] = (f"leaf-{slot.rail // 4}", port * 4 + slot.rail % 4)
    plant.swap(plant.slot(2, 1), plant.slot(2, 2))  # the same leaf: no fault
    assert plant.cabling().observations() == []
    plant.swap(plant.slot(5, 3), plant.slot(5, 4))
    found = plant.cabling().observations()
    assert [(o.end.slot, o.wanted.node) for o in found] == [(plant.slot(5, 3), "leaf-0"), (plant.slot(5, 4), "leaf-1")]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_two_cables_swapped_are_found_with_their_places(data):
    """Whatever the size, the order of the rows, and whether the two are of one host, of one rail, or of two groups."""
    group = data.draw(st.integers(4, 6))
    plant = Plant(group * data.draw(st.integers(1, 3)), data.draw(st.integers(3, 8)), group)
    slots = list(plant.slots.values())
    one, other = data.draw(st.sampled_from(slots)), data.draw(st.sampled_from(slots))
    places = dict(plant.at)
    plant.swap(one, other)
    found = plant.cabling(shuffle=data.draw(st.integers(0, 99))).observations()
    if places[one][0] == places[other][0]:
        assert found == []  # both are where their rail belongs
        return
    assert {o.end.slot: o.wanted for o in found} == {one: Place(*places[one]), other: Place(*places[other])}
    assert {o.partner.slot for o in found} == {one, other}


def test_three_cables_in_a_ring_are_three_moves():
    plant = Plant(8, 4, 8)
    a, b, c = plant.slot(0, 0), plant.slot(0, 1), plant.slot(0, 2)
    plant.at[a], plant.at[b], plant.at[c] = plant.at[b], plant.at[c], plant.at[a]
    found = plant.cabling().observations()
    assert {o.end.slot: o.wanted.node for o in found} == {a: "leaf-0-0", b: "leaf-0-1", c: "leaf-0-2"}
    assert all(isinstance(o, Misplaced) and o.partner is None for o in found)


def test_two_hosts_disagree_and_neither_is_blamed():
    plant = Plant(2, 8, 8)
    plant.swap(plant.slot(0, 2), plant.slot(0, 3))
    found = plant.cabling().observations()
    assert [(type(o), o.rail, [end.slot.host for end in o.ends]) for o in found] == [
        (Unsettled, 2, ["n0", "n1"]),
        (Unsettled, 3, ["n0", "n1"]),
    ]


def test_a_fabric_of_another_plan_is_one_observation():
    plant = Plant(16, 4, 16)
    dice = random.Random(7)
    places = list(plant.at.values())
    dice.shuffle(places)
    plant.at = dict(zip(plant.at, places))
    assert [type(o) for o in plant.cabling().observations()] == [OtherPlan]


def test_missing_links_and_hosts():
    plant = Plant(8, 4, 8)
    del plant.at[plant.slot(3, 1)]
    for rail in range(4):
        del plant.at[plant.slot(6, rail)]
    found = plant.cabling().observations()
    assert [(type(o), [s.host for s in o.slots], o.whole_host) for o in found] == [
        (Missing, ["n3"], False),
        (Missing, ["n6"] * 4, True),
    ]
    assert found[0].port.node == "leaf-0-1"
    assert plant.cabling(complete=False).observations() == []


def test_rails_that_are_fabrics_of_their_own_are_not_missed():
    plant = Plant(8, 4, 8)
    for slot in [slot for slot in plant.at if slot.rail != 2]:
        del plant.at[slot]
    assert plant.cabling().observations() == []


def test_slow_links_against_the_host_and_old_hosts_against_nobody():
    plant = Plant(8, 4, 8)
    for rail in range(4):
        plant.rate[plant.slot(5, rail)] = (4, "HDR")  # an older host
    plant.rate[plant.slot(1, 3)] = (2, "NDR")
    plant.rate[plant.slot(2, 0)] = (4, "EDR")
    found = plant.cabling().observations()
    assert [(type(o), o.slot, o.link.gbps, o.gbps) for o in found] == [
        (Degraded, plant.slot(1, 3), 200.0, 400.0),
        (Degraded, plant.slot(2, 0), 100.0, 400.0),
    ]


def test_a_whole_host_below_what_both_ends_could_do():
    plant = Plant(8, 2, 8)
    for rail in range(2):
        plant.rate[plant.slot(5, rail)] = (4, "HDR")
    cabling = plant.cabling()
    cabling.fabric.links[Place(plant.guids[plant.slot(5, 0)], 1)].remark = "Could be 106.25 Gbps"
    assert [(o.slot, o.basis) for o in cabling.observations()] == [(plant.slot(5, 0), "as most ports of the leaf")]


def test_cost_grows_with_the_fabric_not_with_its_square():
    def seconds(hosts: int) -> float:
        plant = Plant(hosts, 8, 32)
        start = time.process_time()
        assert plant.cabling().observations() == []
        return time.process_time() - start

    seconds(64)
    assert seconds(1024) < 40 * max(seconds(128), 0.01)  # eight times the size; the square would be 64 times the cost


def test_a_rail_that_few_hosts_have_is_not_missed_on_the_others():
    plant = Plant(8, 4, 8)
    for host in range(5):
        del plant.at[plant.slot(host, 1)]
    assert plant.cabling().observations() == []


def test_a_pair_on_one_host_is_joined_before_pairs_of_two_hosts():
    plant = Plant(8, 4, 8)
    plant.swap(plant.slot(2, 1), plant.slot(2, 2))
    plant.swap(plant.slot(1, 1), plant.slot(3, 2))
    pairs = {(o.end.slot, o.partner.slot) for o in plant.cabling().observations()}
    assert (plant.slot(2, 1), plant.slot(2, 2)) in pairs
    assert (plant.slot(1, 1), plant.slot(3, 2)) in pairs


def test_a_place_that_is_taken_is_not_named():
    plant = Plant(8, 4, 8)
    plant.at[plant.slot(3, 1)] = ("leaf-0-0", 20)
    plant.at[plant.slot(4, 1)] = ("leaf-0-1", 4)  # where n3 has its other cables
    (found,) = plant.cabling().observations()
    assert (found.end.slot, found.wanted) == (plant.slot(3, 1), Place("leaf-0-1", None))


def linkinfo(lids: tuple[int, int]) -> dict:
    """Two switches of one name, of which the second has an adapter; iblinkinfo names peers by LID and description."""
    port = {"lid": lids[1], "port": 7, "state": "active", "peer": {"lid": 9, "port": 1, "description": "n1 mlx5_0"}}
    peer = {"lid": lids[1], "port": 7, "description": "switch"}
    return {
        "nodes": [
            {"type": "switch", "guid": "s1", "description": "switch", "ports": [{"lid": lids[0], "port": 1}]},
            {"type": "switch", "guid": "s2", "description": "switch", "ports": [port]},
            {"type": "ca", "description": "n1 mlx5_0", "ports": [{"lid": 9, "port": 1, "guid": "c", "peer": peer}]},
        ]
    }


def test_peers_are_found_by_lid_and_never_by_a_name_that_two_nodes_have():
    assert Fabric(linkinfo=linkinfo((3, 4))).links[Place("c", 1)].peer == Place("s2", 7)
    assert Fabric(linkinfo=linkinfo((0, 0))).links[Place("c", 1)].peer is None
