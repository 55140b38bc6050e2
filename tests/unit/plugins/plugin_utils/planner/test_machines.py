# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From sysfs trees to rails: the machine types of tests/unit/support and the profiles of the lab, read by the facts."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import boxes
import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import BundleSource

ROOT = Path(__file__).resolve().parents[5]
sys.path.insert(0, str(ROOT / "tests" / "unit"))
trees = importlib.import_module("support.sysfs_trees.machines")
bundle = importlib.import_module("support.sysfs_trees.bundle")
profile = importlib.import_module("railyard_lab.profile")

H100 = ["mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"]
EIGHT = list(range(8))
# machine: (rails' devices, GPU of each rail, roles of the others)
EXPECTED = {
    "dgx_a100": ([f"mlx5_{n}" for n in EIGHT], EIGHT, {"mlx5_8": "bond", "mlx5_9": "storage", "bond0": "bond"}),
    "hgx_h100": (H100, EIGHT, {"mlx5_1": "storage", "mlx5_2": "unused", "mlx5_6": "storage", "mlx5_7": "unused"}),
    "hgx_h200": (H100, EIGHT, {"mlx5_1": "storage", "mlx5_2": "unused", "mlx5_6": "storage", "mlx5_7": "unused"}),
    "hgx_h100_two_nics": ([f"mlx5_{n}" for n in range(10, 26)], [n // 2 for n in range(16)], {"mlx5_1": "storage"}),
    "hgx_b200": (H100, EIGHT, {f"mlx5_{n}": "nvswitch_bridge" for n in (20, 21, 22, 23)}),
    "gb200": ([f"mlx5_{n}" for n in range(4)], [0, 1, 2, 3], {"mlx5_10": "storage", "mlx5_11": "storage"}),
    "hyperv_guest": ([f"mlx5_ib{n}" for n in EIGHT], [None] * 8, {"eth0": "management"}),
    "kvm_guest": ([f"mlx5_{n}" for n in EIGHT], [None] * 8, {}),
    "pcie_box": (["mlx5_0"], [0], {"mlx5_1": "unused", "mlx5_2": "vf", "mlx5_3": "vf"}),
    "no_rdma": ([], [], {"eno1": "management"}),
}


def test_every_machine_type_has_an_expectation():
    assert set(EXPECTED) == set(trees.MACHINES)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_machine_types(name, tmp_path):
    devices, gpus, others = EXPECTED[name]
    folder = bundle.build_bundle(trees.MACHINES[name](), tmp_path / name)
    plan = boxes.plan_one(gather(BundleSource(str(folder))))
    assert [rail["hca"] for rail in plan["rails"]] == devices
    assert [rail["gpu"] for rail in plan["rails"]] == gpus
    found = boxes.roles(plan)
    assert {device: found.get(device) for device in others} == others
    assert all(device["reason"] for device in plan["devices"])
    assert plan["nccl_env"].get("NCCL_IB_HCA", "=") == "=" + ",".join(f"{device}:1" for device in devices)
    assert plan["confidence"] != "low"


@pytest.fixture
def lab_facts(tmp_path, monkeypatch):
    """Facts of a lab node of a profile, from the tree that the lab would show."""

    def facts(name):
        monkeypatch.setenv("RAILYARD_LAB_ROOT", str(tmp_path / "root"))
        monkeypatch.setenv("RAILYARD_LAB_STATE", str(tmp_path / "state.json"))
        node, tree = importlib.import_module("railyard_lab.node"), importlib.import_module("railyard_lab.tree")
        state = profile.unfold(name, "gpu-01")
        node.boot(state)
        (tree.base() / "sys").mkdir(parents=True)
        tree.sync(state)
        return gather(BundleSource(str(tmp_path)))

    return facts


@pytest.mark.parametrize("name", profile.names())
def test_lab_profiles(name, lab_facts):
    nics = profile.load(name)["nics"]
    compute = sorted((nic for nic in nics if nic["role"] == "compute"), key=lambda nic: nic["rail"])
    plan = boxes.plan_one(lab_facts(name))
    assert plan["nccl_env"]["NCCL_IB_HCA"] == "=" + ",".join(f"{nic['rdma']}:1" for nic in compute)
    for rail, nic in zip(plan["rails"], compute):
        # IPoIB interfaces are there once ib_ipoib is loaded
        assert rail["netdev"] == nic["netdev"] or rail["link_layer"] == "InfiniBand"
    found = boxes.roles(plan)
    for nic in nics:
        # how a node is reached is not in the tree
        if nic["role"] not in ("compute", "management"):
            assert found[nic["rdma"]] == nic["role"], nic
