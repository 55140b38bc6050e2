# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The management interface as the intent has it: planned where asked for, refused where it would cut the host off."""

from __future__ import annotations

import typing as t

import boxes
import pytest
from boxes import plan_one, rack

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError


def test_interface_is_left_alone_without_the_intent():
    assert plan_one(boxes.hgx_h100())["management_link"] is None


def test_interface_gets_what_the_intent_says_and_stays_protected():
    plan = plan_one(
        boxes.hgx_h100(), management_link={"addresses": ["192.0.2.5/24"], "gateway": "192.0.2.1", "mtu": 1500}
    )
    link = plan["management_link"]
    assert link["netdev"] == plan["management"]["netdev"] in plan["protected_interfaces"]
    assert link["management"] is True
    assert link["mtu"] == 1500
    assert link["addresses"] == ["192.0.2.5/24"]
    assert link["routes"] == [{"dst": "default", "via": "192.0.2.1"}]
    assert link["netdev"] not in [rail["netdev"] for rail in plan["links"]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mtu": 9000}, ".addresses: missing"),
        ({"addresses": []}, ".addresses: [] is not allowed"),
        ({"addresses": ["192.0.2.5"]}, ".addresses[0]: '192.0.2.5' is not allowed"),
        ({"addresses": ["192.0.2.0/24"]}, ".addresses[0]: '192.0.2.0/24' is not allowed"),
        ({"addresses": ["192.0.2.255/24"]}, ".addresses[0]: '192.0.2.255/24' is not allowed"),
        ({"addresses": ["127.0.0.5/24"]}, ".addresses[0]: '127.0.0.5/24' is not allowed"),
        ({"addresses": ["224.0.0.5/24"]}, ".addresses[0]: '224.0.0.5/24' is not allowed"),
        ({"addresses": ["fe80::5/64"]}, ".addresses[0]: 'fe80::5/64' is not allowed"),
        ({"addresses": ["10.224.1.200/25"]}, "overlaps the rails' 10.224.1.0/24"),
        ({"addresses": ["192.0.2.5/24"], "gateway": "198.51.100.1"}, ".gateway: 198.51.100.1 is in no network"),
        ({"addresses": ["192.0.2.5/24"], "gateway": "192.0.2.5"}, "the interface's own address"),
        ({"addresses": ["192.0.2.5/24"], "gateway": "192.0.2.0"}, "192.0.2.0 is no host's address"),
        ({"addresses": ["192.0.2.5/24", "192.0.2.5/16"]}, ".addresses[1]: 192.0.2.5 stands there already"),
        ({"addresses": ["172.17.5.5/24"]}, "172.17.5.5/24 overlaps docker0's 172.17.0.1/16"),
        ({"addresses": ["192.0.2.5/24"], "gateway": "router"}, ".gateway: 'router' is no address"),
        ({"addresses": ["192.0.2.5/24"], "mtu": 100}, ".mtu: 100 is not allowed"),
        ({"addresses": ["192.0.2.5/24"], "mtu": 9900}, ".mtu: 9900, and eno1 allows 9600 at most"),
        ({"addresses": ["192.0.2.5/24"], "adresses": []}, ".adresses: no such key; the nearest is addresses"),
    ],
)
def test_intent_that_would_cut_the_host_off_is_refused(given: dict[str, t.Any], said: str):
    with pytest.raises(IntentError, match="gpu_fabric_management_link") as refused:
        box = boxes.hgx_h100().netdev("docker0", "", "bridge", ["172.17.0.1/16"])
        box.facts["netdevs"]["eno1"]["mtu_max"] = 9600
        plan_one(box, management_link=given)
    assert said in str(refused.value)


FACTS = {name: boxes.hgx_h100().done() for name in ("gpu-01", "gpu-02")}
LINK = {"addresses": ["192.0.2.5/24"]}


def test_one_address_for_two_hosts_is_refused():
    with pytest.raises(IntentError, match=r"gpu-02: gpu_fabric_management_link: 192.0.2.5/24 .* is gpu-01's"):
        rack(FACTS, management_link=LINK)


@pytest.mark.parametrize("other", ["gpu-02", "gpu-09"])
def test_an_address_at_which_another_host_is_reached_is_refused(other: str):
    facts = {"gpu-01": FACTS["gpu-01"]}
    with pytest.raises(IntentError, match=f"is {other}'s"):
        rack(facts, {other: {"address": "192.0.2.5"}}, management_link=LINK)
    assert rack(facts, {"gpu-01": {"address": "192.0.2.5"}}, management_link=LINK)


def test_a_link_of_two_hosts_needs_no_broadcast_address():
    assert plan_one(boxes.hgx_h100(), management_link={"addresses": ["192.0.2.4/31", "192.0.2.9/32"]})


def test_router_that_announces_itself_can_be_the_gateway():
    given = {"addresses": ["2001:db8::5/64"], "gateway": "fe80::1"}
    assert plan_one(boxes.hgx_h100(), management_link=given)["management_link"]["routes"][0]["via"] == "fe80::1"


def test_addresses_of_an_interface_that_nobody_knows_are_refused():
    box = boxes.hgx_h100()
    box.facts["routes"], box.facts["netdevs"] = [], {}
    with pytest.raises(IntentError, match=r"gpu_fabric_management_link: nothing tells .* gpu_fabric_management_interf"):
        plan_one(box, management_link=LINK)


def test_interface_that_is_a_bond_of_the_intent_has_its_addresses_from_there():
    box = boxes.hgx_h100().netdev("eno8", "0000:03:00.0")
    bonds = {"bond0": {"members": ["eno8"], "mode": "active-backup", "addresses": ["192.0.2.6/24"]}}
    with pytest.raises(IntentError, match=r"managed through bond0, which gpu_fabric_bonds gives its addresses"):
        plan_one(box, management_interface="bond0", management_link=LINK, bonds=bonds)
