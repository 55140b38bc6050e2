# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bonds of the intent: planned as links with all that their mode needs, refused where they cannot be meant."""

from __future__ import annotations

import typing as t

import boxes
import pytest
from boxes import plan_one

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError

LACP = {"members": ["ens6f0"], "mode": "802.3ad"}


def with_front_end() -> boxes.Box:
    box = boxes.hgx_h100()
    for position, name in enumerate(("ens6f0", "ens6f1", "ens7f0", "ens7f1")):
        box.netdev(name, f"0000:{0xE0 + position:02x}:00.0")
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
    lacp, backup = plan_one(with_front_end(), bonds=given)["bonds"]
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
        ({"bond0": None}, "'bond0': None"),
        ({"bond 0": {"members": ["a"], "mode": "802.3ad"}}, "'bond 0'"),
        ({"bond0": {"members": ["a"], "mode": "lacp"}}, "mode of bond0 is 'lacp'"),
        ({"bond0": {"mode": "802.3ad"}}, "members of bond0 is None"),
        ({"bond0": {"members": ["a"], "mode": "802.3ad"}, "bond1": {"members": ["a"], "mode": "802.3ad"}}, "a is in"),
        ({"bond0": {"members": ["a"], "mode": "802.3ad", "mtu": "9k"}}, "mtu of bond0 is '9k'"),
        ({"bond0": {"members": ["a"], "mode": "802.3ad", "addresses": ["192.0.2.5"]}}, "'192.0.2.5' in addresses"),
        ({"bond0": {"members": ["a"], "mode": "802.3ad", "adress": "x"}}, "bond0 has no adress"),
        ({"bond0": LACP | {"lacp_rate": "quick"}}, "lacp_rate of bond0 is 'quick'"),
        ({"bond0": LACP | {"mode": "active-backup", "lacp_rate": "fast"}}, "lacp_rate of bond0 with mode"),
        ({"bond0": LACP | {"xmit_hash_policy": "l3"}}, "xmit_hash_policy of bond0"),
        ({"bond0": LACP | {"gateway": "router"}}, "gateway of bond0 is 'router'"),
        ({"bond0": LACP | {"gateway": "192.0.2.1"}}, "in no network of its addresses (none)"),
        ({"bond0": LACP | {"addresses": ["192.0.2.5/24"], "gateway": "198.51.100.1"}}, "in no network"),
        ({"bond0": LACP | {"addresses": ["192.0.2.5/24"], "gateway": "192.0.2.5"}}, "the bond's own address"),
        ({"a-name-too-long0": LACP}, "'a-name-too-long0'"),
        ({"lo": LACP}, "lo is an interface of another kind"),
        ({"eno1": LACP}, "eno1 is an interface of another kind"),
        ({"bond0": LACP | {"members": ["eno1"]}}, "eno1 of bond0 is the management interface"),
        ({"bond0": LACP | {"members": ["ens9"]}}, "ens9 of bond0 is not there"),
        ({"bond0": LACP | {"members": ["enmlx5_15"]}}, "enmlx5_15 of bond0 is a rail"),
        (
            {"bond0": LACP | {"addresses": ["10.224.3.9/24"]}},
            "10.224.3.9/24 of bond0 overlaps the rails' 10.224.3.0/24",
        ),
    ],
)
def test_bonds_that_cannot_be_meant_are_refused_by_name(given: dict[str, t.Any], said: str):
    with pytest.raises(IntentError, match="gpu_fabric_bonds") as refused:
        plan_one(with_front_end(), bonds=given)
    assert said in str(refused.value)
