# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Distances by the PCI tree, and their use against what nvidia-smi says."""

from __future__ import annotations

import boxes
import pytest
from boxes import Box, notes, pairs, plan_one
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Function
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import DISTANCES, between

ROOT, UP, DOWN1, DOWN2, UP2, DOWN3 = (f"0000:0{n}:00.0" for n in range(6))


def function(*upstream, root="pci0000:00", numa=0):
    return Function("x", upstream=upstream, root=root, numa_node=numa)


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (function(ROOT, UP, DOWN1), function(ROOT, UP, DOWN2), "PIX"),
        (function(ROOT, UP, DOWN1, UP2, DOWN3), function(ROOT, UP, DOWN2), "PXB"),
        (function(ROOT, UP, DOWN1, UP2), function(ROOT, UP, DOWN2), "PXB"),
        (function(ROOT), function(ROOT), "PIX"),
        (function("0000:00:01.0"), function("0000:00:02.0"), "PHB"),
        (function(root="pci0000:00"), function(root="pci0000:00"), "PHB"),
        (function("0000:10:01.0", root="pci0000:10"), function("0000:20:01.0", root="pci0000:20"), "NODE"),
        (function("0000:10:01.0", root="pci0000:10"), function("0000:80:01.0", root="pci0000:80", numa=1), "SYS"),
    ],
)  # fmt: skip
def test_distances(a, b, distance):
    assert between(a, b).distance == distance
    assert between(b, a).distance == distance


def test_without_root_or_numa_nothing_is_known():
    assert between(function(root="", numa=None), function(root="", numa=None)) is None
    assert between(function(root="pci0001:00", numa=None), function(root="pci0002:00", numa=None)) is None


paths = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=4)


@given(paths, paths, st.sampled_from(["", "r", "s"]), st.sampled_from(["", "r", "s"]), st.sampled_from([None, 0, 1]))
def test_distance_is_symmetric_and_one_of_the_words(a, b, root_a, root_b, numa):
    one, other = function(*a, root=root_a, numa=numa), function(*b, root=root_b, numa=0)
    path = between(one, other)
    assert path == between(other, one)
    assert path is None or path.distance in DISTANCES


def topo(box, cells):
    """nvidia-smi topo's cells, one mapping per GPU."""
    box.facts["outputs"] = {"nvidia_smi_topo": {"gpu_nic": {str(n): row for n, row in enumerate(cells)}}}
    return box


def test_agreement_with_nvidia_smi_is_silent_and_disagreement_is_told():
    box = boxes.pcie_box(gpus=2)
    assert notes(plan_one(topo(box, [{"mlx5_0": "SYS"}, {"mlx5_0": "SYS"}]))) == []
    plan = plan_one(topo(box, [{"mlx5_0": "PIX"}, {"mlx5_0": "SYS"}]))
    note = next(note for note in plan["notes"] if note["id"] == "RF-PLAN-TOPOLOGY-DISAGREES")
    assert "0000:21:00.0 is SYS by the PCI tree and PIX by nvidia-smi" in note["message"]
    assert notes(plan_one(topo(box, [{"mlx5_0": "NODE"}, {"mlx5_0": "SYS"}]))) == ["RF-PLAN-TOPOLOGY-DIFFERS"]
    assert notes(plan_one(topo(box, [{"mlx5_0": "SOC"}, {"mlx5_0": "SOC"}]))) == []


def test_nvidia_smi_pairs_where_the_tree_was_not_recorded():
    port = {"state": "active", "rate_gbps": 400, "link_layer": "InfiniBand"}
    cells = {"0": {"mlx5_0": "SYS", "mlx5_1": "PIX"}, "1": {"mlx5_0": "PIX", "mlx5_1": "SYS"}}
    facts = {
        "gpus": [{"pci": "0000:1b:00.0", "index": 0}, {"pci": "0000:43:00.0", "index": 1}],
        "rdma_devices": {f"mlx5_{n}": {"board_id": "MT_1", "ports": {"1": port}} for n in (0, 1)},
        "outputs": {"nvidia_smi_topo": {"gpu_nic": cells}},
    }
    assert pairs(plan_one(facts)) == [(0, "mlx5_1", 0), (1, "mlx5_0", 1)]


def test_two_nics_and_two_gpus_under_one_switch_pair_one_to_one():
    box = Box()
    ports = box.switch(0x10, 4)
    box.gpu("0000:13:00.0", ports[0]).gpu("0000:14:00.0", ports[1])
    box.nic("mlx5_7", "0000:15:00.0", ports[2]).nic("mlx5_2", "0000:16:00.0", ports[3])
    assert pairs(plan_one(box.management())) == [(0, "mlx5_7", 0), (1, "mlx5_2", 1)]


def test_two_nics_for_each_gpu():
    box = Box()
    for n in range(4):
        ports = box.switch(0x10 + 0x10 * n, 3)
        box.gpu(f"0000:{0x13 + 0x10 * n:02x}:00.0", ports[0])
        for k in range(2):
            box.nic(f"mlx5_{7 - 2 * n - k}", f"0000:{0x14 + 0x10 * n + k:02x}:00.0", ports[1 + k], rate=200.0)
    plan = plan_one(box.management())
    assert pairs(plan) == [(n, f"mlx5_{7 - n}", n // 2) for n in range(8)]


def test_one_nic_for_two_gpus():
    box = Box()
    for n in range(4):
        ports = box.switch(0x10 + 0x10 * n, 3)
        box.gpu(f"0000:{0x13 + 0x10 * n:02x}:00.0", ports[0]).gpu(f"0000:{0x14 + 0x10 * n:02x}:00.0", ports[1])
        box.nic(f"mlx5_{n}", f"0000:{0x15 + 0x10 * n:02x}:00.0", ports[2])
    plan = plan_one(box.management())
    assert [rail["gpus"] for rail in plan["rails"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [rail["rail"] for rail in plan["rails"]] == [0, 1, 2, 3]
    assert plan["confidence"] == "high"


def test_a_gpu_does_not_take_the_nic_of_its_neighbour():
    """GPU 0 lost its NIC and reaches its neighbour's across two switches."""
    box = Box()
    above = ("0000:10:01.0", "0000:11:00.0")
    left, right = (*above, "0000:12:00.0", "0000:13:00.0"), (*above, "0000:12:01.0", "0000:14:00.0")
    box.gpu("0000:15:00.0", (*left, "0000:13:01.0")).gpu("0000:16:00.0", (*right, "0000:14:01.0"))
    box.nic("mlx5_1", "0000:17:00.0", (*right, "0000:14:02.0"))
    rail = plan_one(box.management())["rails"][0]
    assert (rail["gpu"], rail["distance"], rail["gpus"]) == (1, "PIX", [1, 0])


def test_names_do_not_matter():
    """The same host under other device names gets the same rails by PCI address."""
    plan = plan_one(boxes.hgx_h100())
    box = boxes.hgx_h100()
    renamed = {
        f"rocep{n}": device for n, (_, device) in enumerate(sorted(box.facts["rdma_devices"].items(), reverse=True))
    }
    box.facts["rdma_devices"] = renamed
    other = plan_one(box)
    assert [rail["pci"] for rail in other["rails"]] == [rail["pci"] for rail in plan["rails"]]
    assert [rail["ipv4"] for rail in other["rails"]] == [rail["ipv4"] for rail in plan["rails"]]


def test_a_host_that_lost_a_nic_keeps_its_numbers_by_the_layout_of_its_like():
    """2 NICs and 2 GPUs under each switch: alone, the host cannot tell which of the two is gone."""

    def build(skip=()):
        box = Box(product="Example 2x2")
        for group, bus in enumerate((0x10, 0x30)):
            ports = box.switch(bus, 4)
            for n in range(2):
                box.gpu(f"0000:{bus + 3 + n:02x}:00.0", ports[n])
                if (group, n) not in skip:
                    box.nic(f"mlx5_{2 * group + n}", f"0000:{bus + 6 + n:02x}:00.0", ports[2 + n])
        return box.management().done()

    rack = boxes.rack({"gpu-01": build(), "gpu-02": build(), "gpu-03": build(skip={(0, 0)})})
    rails = rack["hosts"]["gpu-03"]["rails"]
    assert [(rail["rail"], rail["hca"]) for rail in rails] == [(1, "mlx5_1"), (2, "mlx5_2"), (3, "mlx5_3")]
    assert rails[0]["ipv4"].startswith("10.224.1.")
    assert "RF-PLAN-RAIL-MISSING" in notes(rack["hosts"]["gpu-03"])
