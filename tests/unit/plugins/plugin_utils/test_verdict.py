# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.verdict import judge, message, sentence, spoken_by


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


def test_no_finding_stops_a_removal() -> None:
    judged = judge([finding(), finding(severity="warn"), finding(severity="info")], ["preflight"], [], removing=True)
    assert (judged.stops, len(judged.warnings)) == ([], 2)


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


def test_a_message_that_names_the_place_is_not_told_it_again() -> None:
    assert sentence(finding(message="gpu-02: mlx5_3 runs at 200 Gb/s", remedy="")) == (
        "RF-LINK-RATE: gpu-02: mlx5_3 runs at 200 Gb/s"
    )
    assert sentence(finding(message="gpu-02 is slow", remedy="")) == "RF-LINK-RATE on mlx5_3: gpu-02 is slow"


def test_each_host_answers_for_itself_and_the_first_for_the_rack() -> None:
    found = [finding(host=host) for host in ("gpu-01", "gpu-02", "gpu-09", "")]
    hosts = ["gpu-01", "gpu-02"]
    answers = {host: [item["host"] for item in spoken_by(found, host, hosts)] for host in hosts}
    assert answers == {"gpu-01": ["gpu-01", "gpu-09", ""], "gpu-02": ["gpu-02"]}


def test_a_warning_says_what_helps() -> None:
    assert sentence(finding()).endswith("400 wanted. Remedy: Reseat the cable.")


def test_a_warning_says_who_mends_it() -> None:
    assert sentence(finding(mended_by="rdma")).endswith("400 wanted. The rdma layer sets this right.")


def test_what_a_layer_would_set_right_is_not_spoken_of_where_it_goes() -> None:
    assert judge([finding(mended_by="rdma")], ["preflight"], ["rdma"], removing=True) == ([], [])
