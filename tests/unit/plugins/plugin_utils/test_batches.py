# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever gpu_fabric_batch is, serial gets what it can take; what it cannot, the intent refuses."""

from __future__ import annotations

import typing as t

import pytest
from ansible.inventory.group import to_safe_group_name
from ansible.utils.helpers import pct_to_int
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.batches import batches, group
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import resolve


@pytest.mark.parametrize(
    ("value", "taken"),
    [(2, [2]), ("3", [3]), ("25%", ["25%"]), ([1, "25%", "100%"], [1, "25%", "100%"]), (["1", 2], [1, 2])],
)
def test_usable(value: t.Any, taken: list[t.Any]) -> None:
    assert batches(["all", group(value), "gpu_nodes"]) == taken
    assert resolve({"gpu_fabric_batch": value})[1] == []


@pytest.mark.parametrize("value", ["abc", 0, -1, True, "0%", "101%", "", [], [1, "x"], {"a": 1}, 1.5, [[1]]])
def test_unusable_is_the_whole_rack_for_serial_and_refused_by_the_intent(value: t.Any) -> None:
    assert batches([group(value)]) == ["100%"]
    problems = resolve({"gpu_fabric_batch": value})[1]
    assert [problem.variable for problem in problems] == ["gpu_fabric_batch"]
    assert "[1, 25%, 100%]" in problems[0].line("n1")


def test_nothing_said_is_the_whole_rack() -> None:
    assert batches(["all", "gpu_nodes"]) == ["100%"]


@pytest.mark.parametrize("value", [[1, "25%", "100%"], 4])
def test_a_groups_name_is_one(value: t.Any) -> None:
    assert to_safe_group_name(group(value), force=True) == group(value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4))
def test_serial_never_chokes(value: t.Any) -> None:
    assert all(pct_to_int(item, 16) >= 1 for item in batches([group(value)]))
