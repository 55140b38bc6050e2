# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ibdev2netdev_info: from a file, a bundle, the tool or sysfs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosts import live, write
from module_runs import run_module

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _capture
from ansible_collections.railyard.gpu_fabric.plugins.modules import ibdev2netdev_info

ROOT = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
SHARED = Path(os.environ.get("RAILYARD_SHARED") or ROOT.parent / "shared") / "corpus"
NO_SHARED = "no recorded outputs: ../shared/corpus is absent and RAILYARD_SHARED is not set"
CORPUS = sorted(path for folder in ("ibdev2netdev", "ibdev2netdev-v") for path in (SHARED / folder).glob("*"))

PLAIN = "mlx5_4 port 1 ==> ens4np0 (Up)\n"
VERBOSE = "0000:4a:00.0 mlx5_4 (MT4129 - MCX75310) ConnectX-7 fw 28.43.2566 port 1 (ACTIVE) ==> ens4np0 (Up)\n"


def rows(result):
    return [(row["device"], row["port"], row["netdev"], row["status"]) for row in result["mappings"]]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    def build(files=None, commands=None):
        source = live(tmp_path, files, commands)
        monkeypatch.setattr(_capture, "LiveSource", lambda: source)

    return build


@pytest.mark.parametrize("text", [PLAIN, VERBOSE], ids=["plain", "verbose"])
def test_a_file(tmp_path, text):
    path = tmp_path / "recorded"
    path.write_text(text, encoding="utf-8")
    result = run_module(ibdev2netdev_info.main, capture=str(path))
    assert rows(result) == [("mlx5_4", 1, "ens4np0", "up")]
    assert ("pci" in result["mappings"][0]) is (text == VERBOSE)
    assert result["origin"] == "recorded" and result["warned"] == []


def test_of_a_bundles_two_recordings_the_one_that_tells_more(tmp_path):
    write(tmp_path, {"gpu-01/ibdev2netdev.txt": PLAIN, "gpu-01/ibdev2netdev_v.txt": VERBOSE})
    result = run_module(ibdev2netdev_info.main, capture=str(tmp_path))
    assert result["mappings"][0]["firmware"] == "28.43.2566" and result["command"] == "ibdev2netdev -v"
    (tmp_path / "gpu-01" / "ibdev2netdev_v.txt").write_text("Traceback: no VPD\n", encoding="utf-8")
    result = run_module(ibdev2netdev_info.main, capture=str(tmp_path))
    assert rows(result) == [("mlx5_4", 1, "ens4np0", "up")] and result["command"] == "ibdev2netdev"


def test_the_tool(machine):
    machine({}, {"ibdev2netdev": f"printf '%s' '{VERBOSE}'"})
    result = run_module(ibdev2netdev_info.main)
    assert rows(result) == [("mlx5_4", 1, "ens4np0", "up")] and (result["origin"], result["rc"]) == ("tool", 0)


def test_without_the_tool_from_sysfs(machine):
    base = "/sys/class/infiniband"
    machine(
        {
            f"{base}/mlx5_4/fw_ver": "28.43.2566\n",
            f"{base}/mlx5_4/ports/1/state": "4: ACTIVE\n",
            f"{base}/mlx5_4/ports/1/link_layer": "Ethernet\n",
            f"{base}/mlx5_4/ports/1/gids/0": "fe80:0000:0000:0000:bace:f6ff:fe00:0d10\n",
            f"{base}/mlx5_4/ports/1/gid_attrs/ndevs/0": "ens4np0\n",
            f"{base}/mlx5_4/ports/1/gid_attrs/types/0": "RoCE v2\n",
            f"{base}/mlx5_bond_0/ports/1/state": "1: DOWN\n",
            f"{base}/mlx5_bond_0/ports/1/link_layer": "Ethernet\n",
            f"{base}/mlx5_bond_0/ports/1/gids/0": "fe80:0000:0000:0000:bace:f6ff:fe00:0e10\n",
            f"{base}/mlx5_bond_0/ports/1/gid_attrs/ndevs/0": "bond0\n",
            "/sys/class/net/ens4np0/carrier": "1\n",
            "/sys/class/net/bond0/carrier": "0\n",
        }
    )
    result = run_module(ibdev2netdev_info.main)
    assert (result["origin"], result["form"]) == ("sysfs", "sysfs")
    assert rows(result) == [("mlx5_4", 1, "ens4np0", "up"), ("mlx5_bond_0", 1, "bond0", "down")]
    assert [row["port_state"] for row in result["mappings"]] == ["active", "down"]
    assert result["mappings"][0]["firmware"] == "28.43.2566"


def test_a_machine_without_anything(machine):
    machine()
    result = run_module(ibdev2netdev_info.main)
    assert (result["mappings"], result["origin"], result["form"]) == ([], "none", "empty") and not result["failed"]
    assert "ibdev2netdev" in result["warned"][0]


@pytest.mark.skipif(not CORPUS, reason=NO_SHARED)
@pytest.mark.parametrize("path", CORPUS, ids=[f"{path.parent.name}/{path.name}" for path in CORPUS])
def test_every_recorded_output(path):
    result = run_module(ibdev2netdev_info.main, capture=str(path))
    parsed = ibdev2netdev_info.TOOL.parse(path.read_text(encoding="utf-8"))
    assert result["mappings"] == parsed.value["mappings"] and result["warned"] == [] and result["mappings"]
