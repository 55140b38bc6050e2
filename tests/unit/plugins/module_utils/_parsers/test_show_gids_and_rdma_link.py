# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``show_gids`` and ``rdma link``."""

from __future__ import annotations

import pytest
from mutations import decode, fixture_files

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import rdma_link, show_gids

GIDS = {path.stem: decode(path.read_bytes()) for path in fixture_files("show_gids")}
LINKS = {path.name: decode(path.read_bytes()) for path in fixture_files("rdma_link")}


def test_gids_of_roce():
    value, problems = show_gids.parse(GIDS["roce"])
    assert [(row["index"], row.get("ipv4"), row["type"], row["netdev"]) for row in value["gids"]] == [
        (0, None, "RoCE v1", "ens1f0np0"),
        (1, None, "RoCE v2", "ens1f0np0"),
        (2, "10.224.0.11", "RoCE v1", "ens1f0np0"),
        (3, "10.224.0.11", "RoCE v2", "ens1f0np0"),
        (4, None, "RoCE v2", "bond0"),
    ]
    assert (value["count"], value["partial"], problems) == (5, False, ())


def test_gids_of_infiniband_have_no_roce_type():
    value, problems = show_gids.parse(GIDS["infiniband"])
    assert [(row["device"], row.get("version"), row.get("type"), row.get("netdev")) for row in value["gids"]] == [
        ("mlx5_1", "v1", None, None),
        ("mlx5_2", None, None, None),
    ]
    assert problems == ()


def test_blanks_instead_of_tabs_and_a_count_that_does_not_fit():
    value, problems = show_gids.parse(GIDS["spaces"])
    assert [(row["index"], row.get("ipv4"), row["netdev"]) for row in value["gids"]] == [
        (3, "10.224.0.12", "ens2f0np0"),
        (5, None, "ens2f0np0"),
    ]
    assert value["partial"] is True and "found 3" in problems[0].reason


def test_a_masked_gid_is_told():
    value, problems = show_gids.parse("mlx5_0\t1\t0\tfe80:0000:0000:0000:xxxx:xxxx:xxxx:xxxx\t\t\tv1\teth0\n")
    assert value["gids"] == [] and "xxxx" in problems[0].text


def test_the_address_is_the_gids_own():
    row = "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:0000:0000:0001\t0.0.0.1  \tv2\teth0\n"
    value, problems = show_gids.parse(row)
    assert "ipv4" not in value["gids"][0] and "0.0.0.1" in problems[0].reason


@pytest.mark.parametrize(
    ("tail", "lost"),
    [("10.224.0.1", "netdev"), ("10.224.0.11  \tv2\tens1f0", "netdev"), ("10.224.0.11  \tv", "version")],
)
def test_a_cut_row_keeps_what_is_whole(tail, lost):
    value, problems = show_gids.parse("mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0ae0:000b\t" + tail)
    row = value["gids"][0]
    assert lost not in row and row["ipv4"] == "10.224.0.11" and problems


def test_links_as_text():
    value, problems = rdma_link.parse(LINKS["text.txt"])
    assert value["links"][0] == {
        "device": "mlx5_0",
        "port": 1,
        "subnet_prefix": "fe80:0000:0000:0000",
        "lid": 12,
        "sm_lid": 1,
        "lmc": 0,
        "state": "active",
        "phys_state": "linkup",
        "extra": {},
    }
    assert [(link["device"], link["state"], link.get("netdev")) for link in value["links"][1:]] == [
        ("mlx5_1", "active", "ens1f0np0"),
        ("mlx5_2", "down", "ens1f1"),
        ("rxe0", "initializing", "eth0"),
    ]
    assert problems == ()


def test_text_and_json_say_the_same():
    value = rdma_link.parse(LINKS["links.json"]).value
    assert value["links"][0] == rdma_link.parse(LINKS["text.txt"]).value["links"][0]
    assert value["links"][1]["caps"] == ["CM", "IP_BASED_GIDS"]
    assert value["links"][1]["netdev_index"] == 4


def test_the_form_before_iproute2_5_1():
    links = rdma_link.parse(LINKS["old.txt"]).value["links"]
    assert [(link["device"], link["port"], link["state"]) for link in links] == [
        ("mlx5_0", 1, "armed"),
        ("mlx5_1", 1, "active"),
    ]


def test_capabilities():
    assert rdma_link.parse(LINKS["details.txt"]).value["links"][0]["caps"] == ["CM", "IP_BASED_GIDS"]


def test_no_link_is_no_problem_and_no_netlink_is_one():
    assert rdma_link.parse(LINKS["none.json"]) == (
        {"links": [], "devices": [], "errors": [], "partial": False},
        (),
    )
    assert rdma_link.parse("Failed to open NETLINK_RDMA socket\n").problems


@pytest.mark.parametrize(
    ("text", "netdev"),
    [
        ("link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens1f0 ", "ens1f0"),
        ("link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens1f0", None),
        ("link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0", "ens1f0np0"),
        ("link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev enp9", None),
    ],
)
def test_the_last_interface_counts_when_it_is_whole(text, netdev):
    value, problems = rdma_link.parse(text)
    assert value["links"][0].get("netdev") == netdev
    assert bool(problems) is (netdev is None)


def test_json_cut_between_elements():
    value, problems = rdma_link.parse(LINKS["links.json"][:200])
    assert [link["device"] for link in value["links"]] == ["mlx5_0"]
    assert value["partial"] is True and problems
