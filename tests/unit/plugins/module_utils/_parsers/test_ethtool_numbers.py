# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ethtool prints of rings, channels and FEC comes back as it was; what is cut off is absent, never changed."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    ethtool_channels,
    ethtool_fec,
    ethtool_rings,
)

QUICK = settings(max_examples=60, deadline=None)
NUMBERS = st.none() | st.integers(0, 65535)
KINDS = {
    ethtool_rings: ("Ring parameters", {"RX:\t\t": "rx", "RX Mini:\t": "rx_mini", "TX:\t\t": "tx"}),
    ethtool_channels: ("Channel parameters", {"RX:\t\t": "rx", "Other:\t\t": "other", "Combined:\t": "combined"}),
}
SIDES = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=2, max_size=2)
ENCODINGS = st.lists(st.sampled_from(["Auto", "Off", "RS", "BaseR", "BASER", "LLRS"]), max_size=3, unique_by=str.lower)


def shown(parser, maximum, current):
    title, labels = KINDS[parser]
    lines = [f"{title} for eth0:", "Pre-set maximums:"]
    for index, values in enumerate((maximum, current)):
        lines += ["Current hardware settings:"] * index
        lines += [f"{label}{'n/a' if value is None else value}" for label, value in zip(labels, values)]
    return "\n".join(lines) + "\n"


def expected(parser, values):
    return {key: value for key, value in zip(KINDS[parser][1].values(), values) if value is not None}


@QUICK
@given(st.sampled_from(list(KINDS)), SIDES, st.data())
def test_numbers(parser, sides, data):
    text = shown(parser, *sides)
    interface = {"netdev": "eth0", "maximum": expected(parser, sides[0]), "current": expected(parser, sides[1])}
    assert parser.parse(text).value["interfaces"] == [interface]
    part = parser.parse(text[: data.draw(st.integers(0, len(text)))]).value["interfaces"]
    for section in ("maximum", "current"):
        assert part == [] or part[0][section].items() <= interface[section].items()


@QUICK
@given(ENCODINGS, ENCODINGS, st.data())
def test_encodings(configured, active, data):
    text = (
        f"FEC parameters for eth0:\nSupported/Configured FEC encodings:{''.join(f' {name}' for name in configured)}\n"
        f"Active FEC encoding:{''.join(f' {name}' for name in active) or ' None'}\n"
    )
    document = json.dumps([{"ifname": "eth0", "config": configured, "active": active or ["None"]}])
    interface = {
        "netdev": "eth0",
        "configured": [name.lower() for name in configured],
        "active": [name.lower() for name in active],
    }
    assert ethtool_fec.parse(text).value["interfaces"] == ethtool_fec.parse(document).value["interfaces"] == [interface]
    part = ethtool_fec.parse(text[: data.draw(st.integers(0, len(text)))]).value["interfaces"]
    assert part == [] or part[0].items() <= interface.items()
