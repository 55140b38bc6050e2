# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles are machines that could exist: whole PCIe trees, identifiers of their own, real numbering."""

from __future__ import annotations

import json
import re

import pytest

from railyard_lab import cli, profile

ALL = ["a100_8x200g", "b200_nvswitch_bridges", "cloud_vm", "hgx_h100_ib", "hgx_h100_roce", "pcie_1x100g"]


def test_the_six_profiles_are_there():
    assert profile.names() == ALL


@pytest.mark.parametrize("name", ALL)
def test_every_function_hangs_below_bridges_that_exist(name):
    state = profile.unfold(name, "gpu-01")
    for bdf, function in state["pci"].items():
        assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", bdf)
        for position, bridge in enumerate(function["path"]):
            assert state["pci"][bridge]["kind"] == "bridge"
            assert state["pci"][bridge]["path"] == function["path"][:position]
        if function["path"]:
            # A bus number below a bridge is larger than the bridge's own.
            assert int(bdf[5:7], 16) > int(function["path"][-1][5:7], 16)


@pytest.mark.parametrize("name", ALL)
def test_identifiers_differ_between_hosts_and_within_one(name):
    hosts = [profile.unfold(name, host) for host in ("gpu-01", "gpu-02", "gpu-03")]
    for key in ("mac", "node_guid"):
        values = [nic[key] for state in hosts for nic in state["nics"]]
        assert len(values) == len(set(values))
    uuids = [gpu["uuid"] for state in hosts for gpu in state["gpus"]]
    assert len(uuids) == len(set(uuids))
    assert hosts[0]["nics"][0]["mac"] == profile.unfold(name, "gpu-01")["nics"][0]["mac"]


def test_functions_of_one_card_share_their_system_image():
    state = profile.unfold("hgx_h100_roce", "gpu-01")
    first, second = (nic for nic in state["nics"] if nic["role"] == "storage")
    assert first["sys_image_guid"] == second["sys_image_guid"] == first["node_guid"] != second["node_guid"]


def test_numbering_has_gaps_and_does_not_follow_the_bus():
    state = profile.unfold("hgx_h100_roce", "gpu-01")
    rdma = sorted((nic["pci"], int(nic["rdma"].removeprefix("mlx5_"))) for nic in state["nics"] if nic["rdma"])
    numbers = [number for _, number in rdma]
    assert sorted(numbers) != numbers
    assert max(numbers) + 1 > len(numbers)


@pytest.mark.parametrize(
    ("name", "gpus", "rails", "layer"),
    [
        ("a100_8x200g", 8, 8, "Ethernet"),
        ("b200_nvswitch_bridges", 8, 8, "Ethernet"),
        ("cloud_vm", 8, 8, "Ethernet"),
        ("hgx_h100_ib", 8, 8, "InfiniBand"),
        ("hgx_h100_roce", 8, 8, "Ethernet"),
        ("pcie_1x100g", 4, 1, "Ethernet"),
    ],
)
def test_counts(name, gpus, rails, layer):
    state = profile.unfold(name, "gpu-01")
    compute = [nic for nic in state["nics"] if nic["rail"] is not None]
    assert (len(state["gpus"]), len(compute)) == (gpus, rails)
    assert {nic["link_layer"] for nic in compute} == {layer}
    assert sum(nic["role"] == "management" for nic in state["nics"]) == 1


def test_netdevs_tell_the_rack_what_to_plug_in(capsys):
    cli.main(["netdevs", "--profile", "hgx_h100_ib", "--host", "gpu-07"])
    ports = json.loads(capsys.readouterr().out)
    assert [port["name"] for port in ports if port["plugged"]][-3:] == ["enp41s0f0np0", "enp41s0f1np1", "eno1"]
    assert len([port for port in ports if port["plugged"] and port["link_layer"] == "InfiniBand"]) == 8
    assert all(len(port["name"]) <= 15 and re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", port["mac"]) for port in ports)
