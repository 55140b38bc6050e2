# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles' own variables are judged by their specifications, all at once, with the nearest name."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.role_variables import (
    Role,
    allowed,
    judge,
    refusal,
    unread_limits,
)

WALL = Role(
    "wall",
    {
        "gpu_fabric_state": {"type": "str", "choices": ["present"]},
        "wall_policy": {"type": "str", "choices": ["drop", "accept"], "description": "What happens."},
        "wall_log": {"type": "bool", "description": "Log it."},
        "wall_wait_s": {"type": "int", "description": "How long, in seconds. Allowed is a number from 0 to 60."},
        "wall_path": {"type": "str", "description": ["The file.", 'Allowed is an absolute path or "".']},
        "wall_parts": {"type": "list", "elements": "str", "choices": ["a", "b"], "description": "Which."},
    },
    frozenset({"wall_done"}),
)
TALL = Role("wall_tall", {"wall_tall_height": {"type": "int", "description": "How high."}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wall_policy", "accept"),
        ("wall_log", True),
        ("wall_log", "no"),
        ("wall_wait_s", 0),
        ("wall_wait_s", "60"),
        ("wall_path", "/etc/wall.conf"),
        ("wall_path", ""),
        ("wall_parts", ["b"]),
        ("wall_parts", []),
    ],
)
def test_what_is_allowed(name: str, value: t.Any) -> None:
    assert refusal(WALL.options[name], value) == ""


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("wall_policy", "foo", "'foo' is not allowed. Allowed: one of drop, accept."),
        ("wall_policy", 7, "7 is not allowed"),
        ("wall_log", "maybe", "'maybe' is not allowed. Allowed: true or false."),
        ("wall_wait_s", "-5", "'-5' is not allowed. Allowed: a number from 0 to 60."),
        ("wall_wait_s", 61, "61 is not allowed"),
        ("wall_wait_s", "soon", "'soon' is not allowed"),
        ("wall_wait_s", None, "None is not allowed"),
        ("wall_path", "etc/wall.conf", "'etc/wall.conf' is not allowed. Allowed: an absolute path or \"\"."),
        ("wall_path", "/etc/", "'/etc/' is not allowed"),
        ("wall_parts", ["a", "c"], "item 'c' is not allowed. Allowed: a list, each item one of a, b."),
    ],
)
def test_what_is_not_is_said_with_what_is(name: str, value: t.Any, says: str) -> None:
    problems, strangers = judge([WALL, TALL], {name: value}, "gpu_fabric_")
    assert strangers == []
    assert [problem.line("n1") for problem in problems] and says in problems[0].line("n1")
    assert problems[0].line("n1").startswith(f"n1: {name}: ")


def test_a_typing_error_is_refused_with_the_nearest_name() -> None:
    problems, strangers = judge([WALL, TALL], {"wall_polcy": "accept", "wall_tall_hight": 3}, "gpu_fabric_")
    assert [(problem.variable, problem.message.rpartition(" ")[2]) for problem in problems] == [
        ("wall_polcy", "wall_policy"),
        ("wall_tall_hight", "wall_tall_height"),
    ]
    assert strangers == []


def test_what_is_far_from_every_name_is_told_but_not_refused() -> None:
    """Another role of the site may have variables that begin so."""
    assert judge([WALL, TALL], {"wall_colour_of_mine": 1}, "gpu_fabric_") == ([], ["wall_colour_of_mine"])


def test_names_that_the_roles_set_themselves_and_those_of_others_are_passed_over() -> None:
    given = {"wall_done": {"changed": True}, "gpu_fabric_sate": "x", "ansible_host": "h", "wallpaper": 1}
    assert judge([WALL, TALL], given, "gpu_fabric_") == ([], [])


def test_a_limit_that_nobody_checks_is_seen() -> None:
    assert unread_limits({"type": "str", "description": "A name. Allowed is a nice one."})
    assert not unread_limits(WALL.options["wall_path"])
    assert allowed(TALL.options["wall_tall_height"]) == "a number"
