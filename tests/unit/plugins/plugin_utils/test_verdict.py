# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.verdict import judge, message, sentence


def finding(**more: t.Any) -> dict[str, t.Any]:
    usual = {
        "id": "RF-LINK-RATE",
        "severity": "fail",
        "phase": "preflight",
        "host": "gpu-02",
        "device": "mlx5_3",
        "message": "200 Gb/s, 400 wanted",
        "evidence": ["rate: 200 Gb/sec (4X HDR)"],
        "cause": "A bad cable.",
        "remedy": "Reseat the cable.",
        "mended_by": "",
    }
    return {**usual, **more}


@pytest.mark.parametrize(
    ("change", "mending", "stops", "warns"),
    [
        ({}, [], 1, 0),
        ({"severity": "warn"}, [], 0, 1),
        ({"severity": "info"}, [], 0, 0),
        ({"phase": "verify"}, [], 0, 0),
        ({"mended_by": "rdma"}, ["rdma"], 0, 1),
        ({"mended_by": "rdma"}, ["nccl"], 1, 0),
    ],
)
def test_what_stops_a_run(change: dict[str, str], mending: list[str], stops: int, warns: int) -> None:
    judged = judge([finding(**change)], ["preflight"], mending)
    assert (len(judged.stops), len(judged.warnings)) == (stops, warns)


def test_one_message_says_it_all() -> None:
    text = message([finding(), finding(host="", device="", id="RF-RACK")], unchanged=True)
    assert text.splitlines() == [
        "2 findings stop this run. Nothing was changed on any host.",
        "1. RF-LINK-RATE on gpu-02 mlx5_3: 200 Gb/s, 400 wanted",
        "    seen: rate: 200 Gb/sec (4X HDR)",
        "    cause: A bad cable.",
        "    remedy: Reseat the cable.",
        "2. RF-RACK on the rack: 200 Gb/s, 400 wanted",
        "    seen: rate: 200 Gb/sec (4X HDR)",
        "    cause: A bad cable.",
        "    remedy: Reseat the cable.",
    ]


def test_a_warning_says_who_mends_it() -> None:
    assert sentence(finding(mended_by="rdma")).endswith("The rdma layer sets this right.")
