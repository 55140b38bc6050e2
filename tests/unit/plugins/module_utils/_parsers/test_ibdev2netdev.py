# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibdev2netdev`` and ``ibdev2netdev -v``."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import decode, differences, fixture_files

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import ibdev2netdev

FIXTURES = {path.stem: decode(path.read_bytes()) for path in fixture_files("ibdev2netdev")}


def rows(value):
    return [(row["device"], row["port"], row.get("netdev"), row.get("status")) for row in value["mappings"]]


def test_plain():
    value, problems = ibdev2netdev.parse(FIXTURES["plain"])
    assert rows(value) == [
        ("mlx5_0", 1, "ens1f0np0", "up"),
        ("mlx5_1", 1, "ens1f1np1", "down"),
        ("mlx5_10", 1, "ibs20", "down"),
        ("mlx5_bond_0", 1, "bond0", "up"),
        ("mlx4_0", 2, "ib1", "na"),
        ("mlx5_3", 1, "enp3s0f0_4", "up"),
        ("mlx5_3", 1, "enp3s0f0_5", "down"),
    ]
    assert (value["form"], value["partial"], problems) == ("plain", False, ())


def test_verbose_with_free_text_that_looks_like_the_tools_own():
    value, problems = ibdev2netdev.parse(FIXTURES["verbose"])
    first = value["mappings"][0]
    assert first == {
        "device": "mlx5_0",
        "port": 1,
        "netdev": "ens1f0np0",
        "status": "up",
        "pci": "0000:18:00.0",
        "hca_type": "MT4129",
        "part_id": "MCX755106AS-HEAT",
        "description": "NVIDIA ConnectX-7 HHHL adapter card, 200GbE / NDR200 IB (default mode), dual-port fw update"
        " port QSFP112",
        "firmware": "28.43.2566",
        "port_state": "active",
    }
    assert (value["form"], problems) == ("verbose", ())


def test_what_the_tool_could_not_read_is_absent():
    value, _problems = ibdev2netdev.parse(FIXTURES["verbose"])
    assert value["mappings"][2] == {
        "device": "mlx5_2",
        "port": 1,
        "netdev": "enp42s0f0v0",
        "status": "down",
        "pci": "0000:2a:00.2",
        "hca_type": "MT4126",
        "firmware": "22.41.1000",
        "port_state": "initializing",
    }
    assert value["mappings"][3] == {"device": "mlx5_3", "port": 1, "netdev": "eth9", "status": "na"}
    assert value["mappings"][4]["pci"] == "10000:05:00.0"


def test_old_kernels_print_no_status():
    assert rows(ibdev2netdev.parse(FIXTURES["old_kernel"]).value) == [
        ("mlx5_0", 1, "ib0", None),
        ("mlx5_1", 1, "ib1", None),
    ]


def test_prompts_and_comments():
    value, problems = ibdev2netdev.parse(FIXTURES["prompt_and_comments"])
    assert rows(value) == [("mlx5_0", 1, "ens1np0", "up"), ("mlx5_1", 1, "ibp9s0", "down")]
    assert [row["comment"] for row in value["mappings"]] == ["# rail 0", "# rail 1, IPoIB unused"]
    assert problems == ()


def test_verbose_without_address_and_with_a_remark():
    text = (
        "mlx4_0 (mt26428 - MT1037X01146) KESTREL        QDR             fw 2.9.1000 port 1 (ACTIVE) ==> ib0 (Up)\n"
        "0000:b8:00.1 m13 (MT4121 - 7359059    ) CX556A, (EDR)   fw 20.26.4012 port 1 (INIT  ) ==> ib4 (Up) (o2ib)\n"
    )
    value, problems = ibdev2netdev.parse(text)
    first, second = value["mappings"]
    assert (first["hca_type"], first["description"], first["firmware"]) == (
        "mt26428",
        "KESTREL        QDR",
        "2.9.1000",
    )
    assert (second["part_id"], second["description"], second["comment"]) == ("7359059", "CX556A, (EDR)", "(o2ib)")
    assert (second["netdev"], second["status"], problems) == ("ib4", "up", ())


def test_hosts_of_a_parallel_shell():
    value, _problems = ibdev2netdev.parse(FIXTURES["pdsh"])
    assert [(row["host"], row["status"]) for row in value["mappings"]] == [("n1", "up"), ("n2", "down")]


def test_a_missing_tool_is_told():
    value, problems = ibdev2netdev.parse(FIXTURES["no_such_command"])
    assert value["mappings"] == [] and value["errors"] and problems


@pytest.mark.parametrize(
    "text",
    [
        "mlx5_0 port 1 ==> ens1f0np0 (Up",
        "mlx5_0 port 1 ==> ens1f0np0",
        "mlx5_0 port 1 ==> ens1f0n",
        "mlx5_0 port 1 <===> ib",
        "mlx5_0 port",
        "0000:18:00.0 mlx5_0 (MT4129 - MCX755106AS-HEAT) Conn",
    ],
)
def test_a_cut_row_is_no_row(text):
    value, problems = ibdev2netdev.parse("mlx5_9 port 1 ==> ib9 (Up)\n" + text)
    assert rows(value) == [("mlx5_9", 1, "ib9", "up")]
    assert value["partial"] is True and problems[0].text == text


@pytest.mark.parametrize("text", ["mlx5_0 port one ==> ib0 (Up)\n", "mlx5_0 port 1 ==> ib 0 (Up)\n"])
def test_a_row_that_the_tool_does_not_print_is_told(text):
    value, problems = ibdev2netdev.parse(text)
    assert value["mappings"] == [] and problems


def test_an_unknown_status_is_absent():
    value, problems = ibdev2netdev.parse("mlx5_0 port 1 ==> ib0 (Dormant)\n")
    assert rows(value) == [("mlx5_0", 1, "ib0", None)] and "Dormant" in problems[0].reason


def test_html_copied_from_a_ticket():
    assert rows(ibdev2netdev.parse("mlx5_0 port 1 ==&gt; ib0 (Up)\n").value) == [("mlx5_0", 1, "ib0", "up")]


WORD = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
# What a card's VPD holds: anything printable, on one line.
VPD = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="#"), max_size=40)
STATUS = st.sampled_from(["Up", "Down", "NA"])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(WORD, st.integers(1, 4), WORD, STATUS, VPD), min_size=1, max_size=6), st.integers(0, 10**6))
def test_any_description_is_read_and_a_cut_never_differs(devices, offset):
    text = "".join(
        f"0000:18:00.{n} {device} (MT4129 - MCX75) {vpd} fw 28.43.2566 port {port} (ACTIVE) ==> {netdev} ({status})\n"
        for n, (device, port, netdev, status, vpd) in enumerate(devices)
    )
    value = ibdev2netdev.parse(text).value
    assert rows(value) == [(device, port, netdev, status.lower()) for device, port, netdev, status, _vpd in devices]
    assert {row["firmware"] for row in value["mappings"]} == {"28.43.2566"}
    cut = ibdev2netdev.parse(text[: offset % len(text)])
    assert list(differences(cut.value, value)) == []
