# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of firmware parameters in every spelling, and parameters in a card's own names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import mlxfwreset, mlxreg


def parameter(shown: str, current: str | None = None, **more: object) -> dict[str, object]:
    return {"default": shown, "current": current or shown, "next": shown, **more}


@pytest.mark.parametrize(
    ("wanted", "shown", "alike"),
    [
        (2, "ETH(2)", True),
        ("ETH", "ETH(2)", True),
        ("eth", "ETH(2)", True),
        ("2", "ETH(2)", True),
        ("ETH(2)", "ETH(2)", True),
        ("IB", "ETH(2)", False),
        (True, "True(1)", True),
        (False, "True(1)", False),
        ("yes", "True(1)", True),
        ("0x10", "16", True),
        ("16", "0x10", True),
        ("08", "8", True),
        ("per_mkey", "per_mkey(0)", True),
        ("16", "Array[0..7]", False),
        (1, "0", False),
    ],
)
def test_values_are_compared_by_meaning(wanted: object, shown: str, alike: bool) -> None:
    assert firmware.same(wanted, shown) is alike


@given(st.integers(0, 2**31), st.text(st.characters(categories=["L"]), min_size=1, max_size=12))
def test_what_is_given_to_the_tool_is_what_it_then_shows(number: int, label: str) -> None:
    shown = f"{label}({number})"
    assert firmware.argument(shown) == str(number)
    assert firmware.same(firmware.argument(shown), shown) and firmware.same(shown, shown)


@given(st.one_of(st.text(max_size=30), st.integers(), st.booleans(), st.none()), st.text(max_size=30))
def test_odd_values_are_no_traceback(wanted: object, shown: str) -> None:
    assert firmware.same(wanted, shown) in (True, False)
    assert isinstance(firmware.argument(wanted), str)


def test_name_without_port_stands_for_all_and_one_with_a_port_counts_before_it() -> None:
    card = {"CNP_DSCP_P1": parameter("48"), "CNP_DSCP_P2": parameter("48"), "SRIOV_EN": parameter("False(0)")}
    found = firmware.resolve({"CNP_DSCP": 40, "CNP_DSCP_P2": 44, "SRIOV_EN": 1}, [], card)
    assert found.settings == {"CNP_DSCP_P1": 40, "CNP_DSCP_P2": 44, "SRIOV_EN": 1} and found.refusals == []
    both = firmware.resolve({"CNP_DSCP": 1, "CNP_DSCP_P1": 2, "CNP_DSCP_P2": 3}, [], card)
    assert both.settings == {"CNP_DSCP_P1": 2, "CNP_DSCP_P2": 3} and both.refusals == []


def test_card_without_a_link_type_is_ethernet() -> None:
    card = {"SRIOV_EN": parameter("False(0)")}
    assert firmware.resolve({"LINK_TYPE": "ETH", "LINK_TYPE_P1": 2}, [], card) == ({}, {}, [], [])
    assert "LINK_TYPE is no parameter" in firmware.resolve({"LINK_TYPE": "IB"}, [], card).refusals[0]


def test_read_only_parameter_that_is_as_wanted_is_no_fault() -> None:
    card = {"MODEL": parameter("A(0)", read_only=True)}
    assert firmware.resolve({"MODEL": "A"}, [], card).refusals == []
    assert "MODEL is read only (it is A(0))" in firmware.resolve({"MODEL": "B"}, [], card).refusals


def test_what_waits_is_what_will_differ_from_what_is_in_force() -> None:
    card = {"A": parameter("1", "0"), "B": parameter("0"), "C": parameter("2", "1")}
    assert firmware.pending(card) == {"A": ("0", "1"), "C": ("1", "2")}
    assert firmware.pending(card, {"A": "0", "B": "5"}) == {"B": ("0", "5"), "C": ("1", "2")}


@pytest.mark.parametrize(
    ("names", "resettable", "needed"),
    [
        ([], True, "none"),
        (["SRIOV_EN"], True, "fwreset"),
        (["SRIOV_EN"], False, "reboot"),
        (["SRIOV_EN", "INTERNAL_CPU_MODEL"], True, "powercycle"),
    ],
)
def test_what_brings_settings_into_force(names: list[str], resettable: bool, needed: str) -> None:
    assert firmware.need(names, resettable) == needed


def test_levels_of_reset_are_those_of_their_section() -> None:
    text = (
        "Reset-levels:\n"
        "0: Driver, PCI link, network link will remain up                       -Not Supported\n"
        "3: Driver restart and PCI reset                                        -Supported     (default)\n"
        "\nReset-types (relevant only for reset-levels 1,3,4):\n"
        "3: ARM only reset                                                      -Not Supported\n"
    )
    levels = mlxfwreset.parse(text).value["levels"]
    assert (levels["3"]["supported"], levels["3"]["default"], levels["0"]["supported"]) == (True, True, False)
    assert "3" not in mlxfwreset.parse(text[: text.index("-Supported")]).value["levels"]


@given(st.text(max_size=300))
def test_any_text_is_no_traceback(text: str) -> None:
    assert set(mlxfwreset.parse(text).value) == {"levels", "errors"}
    assert set(mlxreg.parse(text).value) == {"fields", "errors"}


def test_registers_are_read_from_their_table() -> None:
    text = "Sending access register...\n\nField Name   | Data\n=====\nroce_tx_window_en | 0x00000001\n====="
    assert mlxreg.parse(text).value["fields"] == {"roce_tx_window_en": 1}
