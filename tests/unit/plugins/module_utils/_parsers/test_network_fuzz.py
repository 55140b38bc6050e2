# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No text whatsoever makes a parser raise or answer in another shape."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import check_shape, decode, fixture_files

PARSERS = "ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers."
MODULES = (
    "dcb",
    "ethtool",
    "ethtool_channels",
    "ethtool_driver",
    "ethtool_features",
    "ethtool_fec",
    "ethtool_module",
    "ethtool_rings",
    "ethtool_stats",
    "ibdev2netdev",
    "iblinkinfo",
    "ibnetdiscover",
    "ibqueryerrors",
    "ibstat",
    "ibstatus",
    "ibswinfo",
    "ibv_devinfo",
    "mlnx_qos",
    "mlxconfig",
    "mst_status",
    "ofed_info",
    "perfquery",
    "rdma_link",
    "show_gids",
)
RECORDINGS = {module: [decode(path.read_bytes()) for path in fixture_files(module)] for module in MODULES}
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def shuffled_lines(draw, texts):
    """Lines of real outputs in any order, some cut or with strange characters in them."""
    lines = [line for text in texts for line in text.split("\n")]
    picked = draw(st.lists(st.sampled_from(lines), max_size=30))
    spoiled = []
    for line in picked:
        if draw(st.integers(0, 5)) == 0 and line:
            at = draw(st.integers(0, len(line) - 1))
            line = line[:at] + draw(st.text(max_size=3)) + line[at + draw(st.integers(0, 2)) :]
        spoiled.append(line)
    return draw(st.sampled_from(["\n", "\r\n"])).join(spoiled) + draw(st.sampled_from(["", "\n"]))


@pytest.mark.parametrize("module", MODULES)
def test_any_text(module):
    parse = importlib.import_module(PARSERS + module).parse

    @QUICK
    @given(st.one_of(st.text(max_size=300), st.text(alphabet="\t\n :=>()[]{}'\"/.,0x-#*CAPortmlx5_", max_size=300)))
    def run(text):
        check_shape(parse(text))

    run()


@pytest.mark.parametrize("module", MODULES)
def test_lines_in_any_order(module):
    parse = importlib.import_module(PARSERS + module).parse

    @QUICK
    @given(shuffled_lines(RECORDINGS[module]))
    def run(text):
        check_shape(parse(text))

    run()


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "text", ["", "\n", "\r", "\ufeff", "\ufffd", "\x00", "\x1b[", "[", "{", "[{", None, b"\xff\xfe"]
)
def test_next_to_nothing(module, text):
    check_shape(importlib.import_module(PARSERS + module).parse(text))
