# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""show_gids_info: from a file, the tool or sysfs."""

from __future__ import annotations

import pytest
from hosts import live
from module_runs import run_module

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _capture
from ansible_collections.railyard.gpu_fabric.plugins.modules import show_gids_info

GID = "0000:0000:0000:0000:0000:ffff:0ae0:000b"
TEXT = (
    "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"
    "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    f"mlx5_4\t1\t3\t{GID}\t10.224.0.11  \tv2\tens4np0\n"
    "n_gids_found=1\n"
)
PORT = "/sys/class/infiniband/mlx5_4/ports/1"
ROW = {
    "device": "mlx5_4",
    "port": 1,
    "index": 3,
    "gid": GID,
    "ipv4": "10.224.0.11",
    "version": "v2",
    "type": "RoCE v2",
    "netdev": "ens4np0",
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    def build(files=None, commands=None):
        source = live(tmp_path, files, commands)
        monkeypatch.setattr(_capture, "LiveSource", lambda: source)

    return build


def test_a_file(tmp_path):
    path = tmp_path / "show_gids.txt"
    path.write_text(TEXT, encoding="utf-8")
    result = run_module(show_gids_info.main, capture=str(path))
    assert (result["gids"], result["count"], result["problems"]) == ([ROW], 1, [])


def test_the_tool_and_sysfs_say_the_same(machine):
    files = {
        f"{PORT}/link_layer": "Ethernet\n",
        f"{PORT}/gids/0": "0000:0000:0000:0000:0000:0000:0000:0000\n",
        f"{PORT}/gids/3": f"{GID}\n",
        f"{PORT}/gid_attrs/types/3": "RoCE v2\n",
        f"{PORT}/gid_attrs/ndevs/3": "ens4np0\n",
    }
    machine(files)
    read = run_module(show_gids_info.main)
    assert (read["origin"], read["gids"]) == ("sysfs", [ROW])
    machine(files, {"show_gids": f"cat <<'END'\n{TEXT}END"})
    assert run_module(show_gids_info.main)["gids"] == read["gids"]


def test_a_machine_without_anything(machine):
    machine()
    result = run_module(show_gids_info.main)
    assert (result["gids"], result["origin"]) == ([], "none") and result["warned"]
