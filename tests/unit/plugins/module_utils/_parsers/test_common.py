# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every parser relies on."""

from __future__ import annotations

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import _common as common


def test_lines_know_whether_they_are_whole():
    lines = common.split_lines("\ufeffone\r\n\x1b[4mtwo\x1b[0m\nthr")
    assert [(line.number, line.text, line.terminated) for line in lines] == [
        (1, "one", True),
        (2, "two", True),
        (3, "thr", False),
    ]
    assert common.split_lines("") == []
    assert common.split_lines(None) == []


def test_a_cut_between_cr_and_lf_leaves_a_whole_line():
    assert common.split_lines("Rate: 400\r")[-1].terminated


def test_a_cut_escape_sequence_is_no_text():
    assert common.split_lines("GPU0\x1b[4")[0].text == "GPU0"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ops@node-7:~$ ibdev2netdev", "ibdev2netdev"),
        ("[root@node-7 ~]# ibstat mlx5_0", "ibstat mlx5_0"),
        ("root@node-7:/etc/nccl# rdma link", "rdma link"),
        ("(base) ops@node-7:~$ ibstat", "ibstat"),
        ("$ ibstat -l", "ibstat -l"),
        ("# ibstat", "ibstat"),
        ("mlx5_0 port 1 ==> ens1f0np0 (Up)", None),
        ("\tRate: 400", None),
        ("CA 'mlx5_0'", None),
    ],
)
def test_prompts(text, command):
    assert common.prompt_command(text) == command


def _native(text):
    return text.lstrip().startswith(("CA ", "State:", "Rate:"))


def test_prefixes_of_a_parallel_shell_are_taken_off():
    lines = common.split_lines("motd\nn1: CA 'mlx5_0'\nn2: CA 'mlx5_0'\nn1: \tRate: 400\nn2: logout\n")
    groups = common.split_hosts(lines, native=_native)
    assert [(host, [line.text for line in group]) for host, group in groups] == [
        ("n1", ["CA 'mlx5_0'", "\tRate: 400"]),
        ("n2", ["CA 'mlx5_0'", "logout"]),
    ]


def test_the_tools_own_labels_are_no_host_names():
    lines = common.split_lines("State: Active\nRate: 400\nLMC: 0\n")
    assert common.split_hosts(lines, native=_native) == [(None, lines)]
    assert common.split_hosts(lines, ("State", "Rate", "LMC")) == [(None, lines)]
    assert common.split_hosts(lines, ("State", "LMC")) == [(None, lines)], "one line of three is no prefix"


@pytest.mark.parametrize(
    "text", ["-----\nn[1-2] (2)\n-----\nCA 'a0'\n", "n[1-2] | CHANGED | rc=0 >>\nCA 'a0'\n"], ids=["clush", "ad-hoc"]
)
def test_headings_of_folded_output_name_the_host(text):
    groups = common.split_hosts(common.split_lines(text), native=_native)
    assert [(host, [line.text for line in group]) for host, group in groups] == [("n[1-2]", ["CA 'a0'"])]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0xB8CEF60300ABCDEF", "b8cef60300abcdef"),
        ("b8ce:f603:00ab:cdef", "b8cef60300abcdef"),
        ("b8:ce:f6:03:00:ab:cd:ef", "b8cef60300abcdef"),
        ("0xb8cef60300abcde", None),
        ("", None),
    ],
)
def test_guid(text, wanted):
    assert common.guid(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("18:00.0", "0000:18:00.0"),
        ("00000000:8F:00.0", "0000:8f:00.0"),
        ("0009:06:00.0", "0009:06:00.0"),
        ("10000:00:02.0", "10000:00:02.0"),
        ("0000:18:00", None),
    ],
)
def test_pci_address(text, wanted):
    assert common.pci_address(text) == wanted


def test_states_of_every_tool_become_one_vocabulary():
    assert {common.port_state(t) for t in ("Active", "4: ACTIVE", "PORT_ACTIVE (4)", "ACTIVE")} == {"active"}
    assert {common.port_state(t) for t in ("Initializing", "2: INIT", "PORT_INIT (2)")} == {"initializing"}
    assert {common.phys_state(t) for t in ("LinkUp", "5: LinkUp", "LINK_UP (5)")} == {"linkup"}
    assert common.port_state("Activ") is None
    assert common.phys_state("Link") is None


def test_numbers_are_whole_or_nothing():
    assert common.integer("0x33bf") == 13247
    assert common.integer("12a") is None
    assert common.number("2.5") == 2.5
    assert common.number("nan") is None
    assert common.number("9" * 50) is None


def test_endless_problems_are_counted_and_not_kept():
    problems = common.Problems()
    for number in range(common.PROBLEM_LIMIT + 7):
        problems.add("Unreadable.", common.Line(number, "x", True))
    listed = problems.result(None).problems
    assert len(listed) == common.PROBLEM_LIMIT + 1 and listed[-1].reason.startswith("7 more")


def test_json_items_of_a_cut_array_are_the_whole_ones():
    assert common.json_items('warning: x\n[{"a": 1}, {"b": [2, 3]}]\n$ ') == ([{"a": 1}, {"b": [2, 3]}], True)
    assert common.json_items('[{"a": 1}, {"b": [2, 3') == ([{"a": 1}], False)
    assert common.json_items("[1, 23") == ([1], False)
    assert common.json_items("no document") == ([], False)
