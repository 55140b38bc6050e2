"""Every tag alone, on a rack that was never touched: it applies its layer and fails on no host."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site"))

from rack import Rack

TAGS = ("preflight", "ofed", "nvidia", "cuda", "nccl", "rdma", "security", "benchmark", "report")


@pytest.fixture(scope="module")
def rack():
    rack = Rack(nodes=2)
    rack.up()
    yield rack
    rack.down()


@pytest.mark.parametrize("tag", TAGS)
def test_tag_alone_on_a_fresh_rack(rack: Rack, tag: str) -> None:
    rack.reset()
    run = rack.site("--tags", tag)
    assert run.rc == 0, run.describe()
    assert all(host["failures"] == host["unreachable"] == 0 for host in run.stats.values()), run.describe()
    layers = {task.split(" : ")[0].rpartition(".")[2] for _, task in run.changes()}
    expected = {"nvidia": "nvidia_driver", "security": "security_groups"}.get(tag, tag)
    assert layers <= {expected}, f"--tags {tag} changed {layers}"


@pytest.mark.parametrize(
    ("profile", "hcas"),
    [
        ("hgx_h100_roce", 8),
        ("hgx_h100_ib", 8),
        ("a100_8x200g", 8),
        ("b200_nvswitch_bridges", 8),
        ("pcie_1x100g", 1),
        ("cloud_vm", 8),
    ],
)
def test_profile_converges_and_lists_its_hcas(profile: str, hcas: int) -> None:
    rack = Rack(nodes=2, profile=profile)
    rack.reset()
    run = rack.converge()
    assert run.rc == 0, run.describe()
    assert rack.converge().changes() == set()
    value = rack.shell("gpu-01", "sed -n 's/^NCCL_IB_HCA=//p' /etc/nccl.conf").strip()
    assert value.startswith("=")
    assert len(value[1:].split(",")) == hcas
