# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import kernel_conf

ACCEPT_RA = "ipv6/conf/{}/accept_ra"


def test_what_a_manager_leaves_behind_is_set_back(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_conf, "ROOT", str(tmp_path))
    path = tmp_path / ACCEPT_RA.format("rail0")
    path.parent.mkdir(parents=True)
    path.write_text("1\n")
    found = kernel_conf.found("rail0")
    assert found == {ACCEPT_RA: "1"}
    path.write_text("0\n")
    kernel_conf.give_back("rail0", {**found, "ipv4/conf/{}/forwarding": "1"})
    assert path.read_text().strip() == "1"
    assert not (tmp_path / "ipv4").exists(), "only what is known to be left behind is written"


def test_an_interface_that_has_gone_needs_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_conf, "ROOT", str(tmp_path))
    assert kernel_conf.found("gone0") == {}
    kernel_conf.give_back("gone0", {ACCEPT_RA: "1"})
    assert list(tmp_path.iterdir()) == []
