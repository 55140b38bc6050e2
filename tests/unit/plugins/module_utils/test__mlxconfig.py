# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of firmware parameters in every spelling, and parameters in a card's own names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig_arrays as arrays
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
        ("true", "1", True),
        ("No", "DISABLED(0)", True),
        ("10", "0x10(16)", False),
        (16, "0x10(16)", True),
        ("0x10(16)", "0x10(16)", True),
    ],
)
def test_values_are_compared_by_meaning(wanted: object, shown: str, alike: bool) -> None:
    assert firmware.same(wanted, shown) is alike


@given(st.integers(0, 2**31), st.text(st.characters(categories=["L"]), min_size=1, max_size=12))
def test_what_is_given_to_the_tool_is_what_it_then_shows(number: int, label: str) -> None:
    shown = f"{label}({number})"
    assert firmware.argument(shown, shown) == str(number)
    assert firmware.same(firmware.argument(shown, shown), shown) and firmware.same(shown, shown)


@pytest.mark.parametrize(
    ("wanted", "shown", "given"),
    [
        (16, "8", "16"),
        ("0x10", "8", "0x10"),
        (True, "False(0)", "1"),
        ("no", "True(1)", "0"),
        ("IB", "ETH(2)", "IB"),
        ("ETH(2)", "IB(1)", "2"),
        # of these the tool reads every number in base 16
        (16, "0x0(0)", "0x10"),
        ("0x1f(31)", "0x0(0)", "0x1f"),
        ("00000010", "0x0(0)", "0xa"),
        ("0x00000010", "0x0(0)", "0x00000010"),
    ],
)
def test_values_are_given_to_the_tool_in_the_base_that_it_reads(wanted: object, shown: str, given: str) -> None:
    assert firmware.argument(wanted, shown) == given
    assert firmware.differences({"A": wanted}, {"A": parameter(shown)})[0].argument == given


@given(st.one_of(st.text(max_size=30), st.integers(), st.booleans(), st.none()), st.text(max_size=30))
def test_odd_values_are_no_traceback(wanted: object, shown: str) -> None:
    assert firmware.same(wanted, shown) in (True, False)
    assert isinstance(firmware.argument(wanted, shown), str)


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


def test_value_that_the_firmware_does_not_tell_is_refused_where_it_would_have_to_be_changed() -> None:
    card = {"A": {"default": "1", "next": "1"}, "B": {"default": "1", "current": "1"}}
    assert firmware.resolve({"A": 1}, [], card).refusals == [], "nothing is to be done about it"
    assert "A shows no value that is in force" in firmware.resolve({"A": 2}, [], card).refusals[0]
    assert "B shows no value of the next boot" in firmware.resolve({"B": 1}, [], card).refusals[0]
    assert firmware.resolve({"B": 1}, ["B"], card).skipped == ["B"] and firmware.pending(card) == {}


def an_array(name: str = "HOPS", last: int = 7, **shown: str) -> dict[str, dict[str, object]]:
    """An array, and those of its elements that the tool was asked for."""
    elements = {f"{name}[{index[1:]}]": parameter(value) for index, value in shown.items()}
    return {name: parameter(f"Array[0..{last}]"), **elements}


def test_an_array_is_set_by_its_elements_only() -> None:
    refusal = firmware.resolve({"HOPS": 1}, [], an_array()).refusals[0]
    assert refusal == "HOPS is an array; name its elements, as in [0] or [0..7] behind the name"
    assert "HOPS[3] shows no value" in firmware.resolve({"HOPS[3]": 1}, [], an_array()).refusals[0]


def test_elements_and_ranges_are_compared_one_by_one() -> None:
    card = an_array(_0="0", _1="4", _2="0", _3="0")
    found = firmware.resolve({"HOPS[0..2]": 4, "HOPS[3]": "0"}, [], card)
    assert found.settings == {"HOPS[0]": 4, "HOPS[1]": 4, "HOPS[2]": 4, "HOPS[3]": "0"} and not found.refusals
    assert [item.name for item in firmware.differences(found.settings, card)] == ["HOPS[0]", "HOPS[2]"]


def test_an_element_that_is_named_alone_counts_before_a_range() -> None:
    card = an_array(_0="0", _1="0", _2="0")
    for wanted in ({"HOPS[0..2]": 4, "HOPS[1]": 9}, {"HOPS[1]": 9, "HOPS[0..2]": 4}):
        assert firmware.resolve(wanted, [], card).settings == {"HOPS[0]": 4, "HOPS[1]": 9, "HOPS[2]": 4}
    found = firmware.resolve({"HOPS[0..1]": 4, "HOPS[1..2]": 9}, [], card)
    assert found.refusals == ["HOPS[1] is 4 in HOPS[0..1] and 9 in HOPS[1..2]; give it one value"]
    assert firmware.resolve({"HOPS[0..1]": 4, "HOPS[1..2]": 4}, [], card).refusals == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("HOPS[8]", "HOPS[8]: HOPS has the elements 0 to 7"),
        ("HOPS[6..8]", "HOPS[6..8]: HOPS has the elements 0 to 7"),
        ("SRIOV_EN[0]", "SRIOV_EN[0]: SRIOV_EN is no array (it is False(0)); name it without an index"),
        ("HOPZ[1]", "HOPZ[1] is no parameter of this card and firmware; the nearest that it has is HOPS"),
        ("HOPS[3..1]", "HOPS[3..1] shows no value; ask the tool for it (q HOPS[3..1])"),
    ],
)
def test_an_index_that_cannot_be_is_refused_by_name(name: str, told: str) -> None:
    card = {**an_array(), "SRIOV_EN": parameter("False(0)")}
    found = firmware.resolve({name: 1}, [], card)
    assert found.refusals == [told] and found.settings == {}


def test_arrays_of_a_port_and_behind_a_gate() -> None:
    card = {**an_array("HOPS_P1", _0="0"), **an_array("HOPS_P2", _0="0")}
    assert firmware.resolve({"HOPS[0]": 1, "HOPS_P2[0]": 2}, [], card).settings == {"HOPS_P1[0]": 1, "HOPS_P2[0]": 2}
    assert firmware.elements(["HOPS[0..1]", "NONE[0]", "HOPS[9]"], card) == [
        "HOPS_P1[0]", "HOPS_P1[1]", "HOPS_P2[0]", "HOPS_P2[1]",
    ]  # fmt: skip
    assert firmware.resolve({"NONE[0]": 1}, ["NONE[0]"], card).skipped == ["NONE[0]"]


def test_an_array_whose_first_index_is_one() -> None:
    card = {"SPLIT_PORT": parameter("Array[1..4]")}
    assert firmware.elements(["SPLIT_PORT[4]"], card) == ["SPLIT_PORT[4]"]
    assert "has the elements 1 to 4" in firmware.resolve({"SPLIT_PORT[0]": 1}, [], card).refusals[0]


@given(st.dictionaries(st.integers(0, 20), st.sampled_from(["1", "2"]), max_size=12))
def test_few_words_say_the_same_as_many(values: dict[int, str]) -> None:
    words = {f"A[{index}]": value for index, value in values.items()}
    told: dict[str, str] = {}
    for word in arrays.assignments(words):
        name, value = word.split("=")
        at = arrays.place(name)
        assert at
        told.update(dict.fromkeys(at.elements, value))
    assert told == words
    assert [name for row in arrays.rows(words) for name in (arrays.place(row) or arrays.Place("", 0, 0)).elements] == (
        list(words)
    )


def test_parameter_of_the_embedded_processor_waits_for_its_model() -> None:
    card = {"INTERNAL_CPU_MODEL": parameter("SEPARATED_HOST(0)")}
    wanted = {"INTERNAL_CPU_MODEL": "1", "INTERNAL_CPU_OFFLOAD_ENGINE": 1}
    assert firmware.resolve(wanted, [], card).deferred == {"INTERNAL_CPU_OFFLOAD_ENGINE": 1}
    refusals = firmware.resolve({"INTERNAL_CPU_OFFLOAD_ENGINE": 1}, [], card).refusals
    assert "shown only once INTERNAL_CPU_MODEL is in force" in refusals[0]


def test_near_name_is_told_whatever_its_case() -> None:
    found = firmware.resolve({"sriov_en": 1}, [], {"SRIOV_EN": parameter("False(0)")})
    assert "the nearest that it has is SRIOV_EN" in found.refusals[0]


def test_what_waits_is_what_will_differ_from_what_is_in_force() -> None:
    card = {"A": parameter("1", "0"), "B": parameter("0"), "C": parameter("2", "1")}
    assert firmware.pending(card) == {"A": ("0", "1"), "C": ("1", "2")}
    assert firmware.pending(card, {"A": "0", "B": "5"}) == {"B": ("0", "5"), "C": ("1", "2")}


@pytest.mark.parametrize(
    ("names", "way", "needed"),
    [
        ([], "fwreset", "none"),
        (["SRIOV_EN"], "fwreset", "fwreset"),
        (["SRIOV_EN"], "reboot", "reboot"),
        (["SRIOV_EN"], "powercycle", "powercycle"),
        (["SRIOV_EN", "INTERNAL_CPU_MODEL"], "fwreset", "powercycle"),
    ],
)
def test_what_brings_settings_into_force(names: list[str], way: str, needed: str) -> None:
    assert firmware.need(names, way) == needed


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
    assert not mlxfwreset.parse(text.replace("-Supported    ", "-Not supported")).value["levels"]["3"]["supported"]
    assert "3" not in mlxfwreset.parse(text[: text.index("-Supported")]).value["levels"]


@given(st.text(max_size=300))
def test_any_text_is_no_traceback(text: str) -> None:
    assert set(mlxfwreset.parse(text).value) == {"levels", "errors"}
    assert set(mlxreg.parse(text).value) == {"fields", "errors"}


def test_registers_are_read_from_their_table() -> None:
    text = "Sending access register...\n\nField Name   | Data\n=====\nroce_tx_window_en | 0x00000001\n====="
    assert mlxreg.parse(text).value["fields"] == {"roce_tx_window_en": 1}
