# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bonds of the intent: planned as links with all that their mode needs, refused where they cannot be meant."""

from __future__ import annotations

import typing as t

import boxes
import pytest
from boxes import plan_one, rack

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError

LACP = {"members": ["ens6f0"], "mode": "802.3ad"}


def with_front_end() -> boxes.Box:
    box = boxes.hgx_h100()
    for position, name in enumerate(("ens6f0", "ens6f1", "ens7f0", "ens7f1")):
        box.netdev(name, f"0000:{0xE0 + position:02x}:00.0", mtu_max=9600)
    return box


def test_no_bond_without_the_intent():
    assert plan_one(boxes.hgx_h100())["bonds"] == []


def test_lacp_bond_gets_rate_and_hash_and_a_backup_bond_neither():
    given = {
        "bond1": {"members": ["ens7f0", "ens7f1"], "mode": "active-backup"},
        "bond0": {
            "members": ["ens6f0", "ens6f1"],
            "mode": "802.3ad",
            "mtu": 9000,
            "addresses": ["192.0.2.5/24"],
            "gateway": "192.0.2.1",
        },
    }
    box = with_front_end()
    box.facts["routes"] = []
    lacp, backup = plan_one(box, bonds=given)["bonds"]
    assert lacp == {
        "netdev": "bond0",
        "bond": {
            "members": ["ens6f0", "ens6f1"],
            "mode": "802.3ad",
            "lacp_rate": "fast",
            "xmit_hash_policy": "layer3+4",
        },
        "mtu": 9000,
        "addresses": ["192.0.2.5/24"],
        "routes": [{"dst": "default", "via": "192.0.2.1"}],
        "rules": [],
    }
    # The module takes one of its choices or nothing at all.
    assert backup["bond"] == {"members": ["ens7f0", "ens7f1"], "mode": "active-backup"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bond0": None}, ".bond0: None is no mapping"),
        ({"bond 0": {"members": ["a"], "mode": "802.3ad"}}, "gpu_fabric_bonds: 'bond 0' is no interface's name"),
        (
            {"bond0": {"members": ["a"], "mode": "lacp"}},
            ".bond0.mode: 'lacp' is not allowed. Allowed: 802.3ad or active-backup",
        ),
        ({"bond0": {"mode": "802.3ad"}}, ".bond0.members: missing. Allowed: a list of interfaces"),
        (
            {"bond0": {"members": ["a"], "mode": "802.3ad"}, "bond1": {"members": ["a"], "mode": "802.3ad"}},
            ".bond1.members[0]: a is a member of bond0, too",
        ),
        ({"bond0": {"members": ["a"], "mode": "802.3ad", "mtu": "9k"}}, ".bond0.mtu: '9k' is not allowed"),
        (
            {"bond0": {"members": ["a"], "mode": "802.3ad", "addresses": ["192.0.2.5"]}},
            ".bond0.addresses[0]: '192.0.2.5' is",
        ),
        (
            {"bond0": {"members": ["a"], "mode": "802.3ad", "adress": "x"}},
            ".bond0.adress: no such key; the nearest is addresses",
        ),
        ({"bond0": LACP | {"lacp_rate": "quick"}}, ".bond0.lacp_rate: 'quick' is not allowed. Allowed: slow, fast"),
        (
            {"bond0": LACP | {"mode": "active-backup", "lacp_rate": "fast"}},
            ".bond0.lacp_rate: mode active-backup has none",
        ),
        ({"bond0": LACP | {"xmit_hash_policy": "l3"}}, ".bond0.xmit_hash_policy: 'l3' is not allowed"),
        ({"bond0": LACP | {"gateway": "router"}}, ".bond0.gateway: 'router' is no address"),
        ({"bond0": LACP | {"gateway": "192.0.2.1"}}, "in no network of the addresses (none)"),
        ({"bond0": LACP | {"addresses": ["192.0.2.5/24"], "gateway": "198.51.100.1"}}, "in no network"),
        ({"bond0": LACP | {"addresses": ["192.0.2.5/24"], "gateway": "192.0.2.5"}}, "the interface's own address"),
        ({"bond0": LACP | {"addresses": ["192.0.2.5/24"], "gateway": "192.0.2.255"}}, "is no host's address"),
        ({"bond0": LACP | {"addresses": ["192.0.2.5/24"], "gateway": "fe80::1"}}, "fe80::1 is IPv6, and no address"),
        ({"bond0": LACP | {"addresses": ["192.0.2.5/24"], "gateway": "192.0.2.1"}}, "default route is over eno1"),
        (
            {"bond0": LACP | {"addresses": ["2001:db8::5/64"], "gateway": ["fe80::1", "2001:db8::1"]}},
            ".bond0.gateway: two of IPv6",
        ),
        ({"bond0": LACP | {"mtu": 9900}}, ".bond0.mtu: 9900, and ens6f0 allows 9600 at most"),
        ({"bond0": LACP | {"addresses": ["192.0.2.0/24"]}}, ".bond0.addresses[0]: '192.0.2.0/24' is not allowed"),
        (
            {"bond0": LACP | {"addresses": ["192.0.2.5/24", "192.0.2.5/16"]}},
            ".bond0.addresses[1]: 192.0.2.5 stands there already",
        ),
        ({"bond0": LACP | {"addresses": ["10.0.0.77/24"]}}, "10.0.0.77/24 overlaps eno1's 10.0.0.11/24"),
        ({"bond0": LACP | {"members": ["ens6f0", "ens6f0"]}}, ".bond0.members[1]: ens6f0 stands there already"),
        (
            {
                "bond0": LACP | {"addresses": ["192.0.2.5/24"]},
                "bond1": LACP | {"members": ["ens7f0"], "addresses": ["192.0.2.6/25"]},
            },
            ".bond1.addresses[0]: 192.0.2.6/25 is in a network of bond bond0",
        ),
        (
            {
                "bond0": LACP | {"addresses": ["2001:db8::5/64"], "gateway": "fe80::1"},
                "bond1": LACP | {"members": ["ens7f0"], "addresses": ["fd00::6/64"], "gateway": "fd00::1"},
            },
            ".bond1.gateway: fd00::1 beside that of bond bond0",
        ),
        ({"a-name-too-long0": LACP}, "'a-name-too-long0'"),
        ({"lo": LACP}, ".lo: it is an interface of another kind"),
        ({"eno1": LACP}, ".eno1: it is an interface of another kind"),
        ({"bond0": LACP | {"members": ["eno1"]}}, ".bond0.members[0]: eno1 is the management interface"),
        ({"bond0": LACP | {"members": ["ens9"]}}, ".bond0.members[0]: ens9 is not there. Allowed: one of"),
        ({"bond0": LACP | {"members": ["enmlx5_15"]}}, ".bond0.members[0]: enmlx5_15 is a rail"),
        (
            {"bond0": LACP | {"addresses": ["10.224.3.9/24"]}},
            ".bond0.addresses[0]: 10.224.3.9/24 overlaps the rails' 10.224.3.0/24",
        ),
    ],
)
def test_bonds_that_cannot_be_meant_are_refused_by_name(given: dict[str, t.Any], said: str):
    with pytest.raises(IntentError, match="gpu_fabric_bonds") as refused:
        plan_one(with_front_end(), bonds=given)
    assert said in str(refused.value)


def test_every_mistake_of_every_bond_is_told_at_once_and_once():
    given = {
        "bond0": {
            "members": ["ens6f0", "ens9", "ens6f0", 5],
            "mod": "802.3ad",
            "mode": "lacp",
            "mtu": 99,
            "addresses": ["192.0.2.5", "10.224.3.9/24", "198.51.100.5/24"],
            "gateway": "router",
        },
        "bond1": {"members": ["eno1", "ens7f0"], "mode": "active-backup", "addresses": ["198.51.100.6/24"]},
    }
    with pytest.raises(IntentError) as refused:
        plan_one(with_front_end(), bonds=given, management_link={"mtu": 5})
    told = [line.partition(". Allowed")[0].removeprefix("gpu-01: ") for line in str(refused.value).splitlines()]
    assert sorted(told) == [
        "gpu_fabric_bonds.bond0.addresses[0]: '192.0.2.5' is not allowed",
        "gpu_fabric_bonds.bond0.addresses[1]: 10.224.3.9/24 overlaps the rails' 10.224.3.0/24",
        "gpu_fabric_bonds.bond0.gateway: 'router' is no address",
        "gpu_fabric_bonds.bond0.members[1]: ens9 is not there",
        "gpu_fabric_bonds.bond0.members[2]: ens6f0 stands there already",
        "gpu_fabric_bonds.bond0.members[3]: 5 is no interface's name",
        "gpu_fabric_bonds.bond0.mod: no such key; the nearest is mode",
        "gpu_fabric_bonds.bond0.mode: 'lacp' is not allowed",
        "gpu_fabric_bonds.bond0.mtu: 99 is not allowed",
        "gpu_fabric_bonds.bond1.addresses[0]: 198.51.100.6/24 is in a network of bond bond0",
        "gpu_fabric_bonds.bond1.members[0]: eno1 is the management interface",
        "gpu_fabric_management_link.addresses: missing",
        "gpu_fabric_management_link.mtu: 5 is not allowed",
    ]


@pytest.mark.parametrize("addresses", [["192.0.2.5"], "192.0.2.5/24", ["192.0.2.5", "198.51.100.5/24"]])
def test_of_a_gateway_beside_bad_addresses_only_the_form_is_judged(addresses: t.Any):
    given = {"addresses": addresses, "gateway": "192.0.2.1"}
    for intent in ({"bonds": {"bond0": LACP | given}}, {"management_link": given}):
        with pytest.raises(IntentError) as refused:
            plan_one(with_front_end(), **intent)
        assert "in no network" not in str(refused.value) and ".addresses" in str(refused.value)


def test_the_form_of_bonds_is_told_along_with_mistakes_elsewhere():
    with pytest.raises(IntentError) as refused:
        plan_one(with_front_end(), bonds={"bond0": {"mode": "x"}}, mtu=1, ipoib={"rail": 0})
    text = str(refused.value)
    for said in ("gpu_fabric_mtu: 1", "gpu_fabric_bonds.bond0.members: missing", "gpu_fabric_ipoib.rail: no such key"):
        assert text.count(said) == 1, text


def test_router_that_announces_itself_can_be_the_gateway():
    given = {"bond0": LACP | {"addresses": ["2001:db8::5/64"], "gateway": "fe80::1"}}
    [bond] = plan_one(with_front_end(), bonds=given)["bonds"]
    assert bond["routes"] == [{"dst": "default", "via": "fe80::1"}]


def test_bond_of_both_families_has_a_gateway_of_each():
    given = {"addresses": ["192.0.2.5/24", "2001:db8::5/64"], "gateway": ["192.0.2.1", "fe80::1"]}
    box = with_front_end()
    box.facts["routes"] = []
    [bond] = plan_one(box, bonds={"bond0": LACP | given})["bonds"]
    assert [route["via"] for route in bond["routes"]] == given["gateway"]
    link = plan_one(box, management_link=given)["management_link"]
    assert [route["via"] for route in link["routes"]] == given["gateway"]


def test_address_that_a_bond_has_already_is_no_conflict_with_itself():
    box = with_front_end()
    box.netdev("bond0", "", "bond", ["192.0.2.5/24"], bond={"mode": "802.3ad", "members": ["ens6f0"], "active": []})
    box.facts["netdevs"]["ens6f0"]["master"] = "bond0"
    assert plan_one(box, bonds={"bond0": LACP | {"addresses": ["192.0.2.5/24"]}})["bonds"]


def test_one_address_for_the_bonds_of_two_hosts_is_refused():
    facts = dict.fromkeys(("gpu-01", "gpu-02"), with_front_end().done())
    with pytest.raises(IntentError, match=r"gpu-02: gpu_fabric_bonds: 192.0.2.5/24 in addresses of bond0 is gpu-01's"):
        rack(facts, bonds={"bond0": LACP | {"addresses": ["192.0.2.5/24"]}})
