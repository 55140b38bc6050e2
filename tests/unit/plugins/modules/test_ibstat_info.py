# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ibstat_info: from a file, a bundle, the tool or sysfs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosts import live, write
from module_runs import run_module

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _capture
from ansible_collections.railyard.gpu_fabric.plugins.modules import ibstat_info

ROOT = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
SHARED = Path(os.environ.get("RAILYARD_SHARED") or ROOT.parent / "shared") / "corpus"
NO_SHARED = "no recorded outputs: ../shared/corpus is absent and RAILYARD_SHARED is not set"
CORPUS = sorted(path for folder in ("ibstat", "ibstat-l") for path in (SHARED / folder).glob("*"))

ONE = """CA 'mlx5_4'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.43.2566
\tHardware version: 0
\tNode GUID: 0xb8cef60300000d10
\tSystem image GUID: 0xb8cef60300000d10
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 44
\t\tLMC: 0
\t\tSM lid: 1
\t\tCapability mask: 0xa751e848
\t\tPort GUID: 0xb8cef60300000d10
\t\tLink layer: InfiniBand
"""
DEVICE = "/sys/class/infiniband/mlx5_4"
SYSFS = {
    f"{DEVICE}/fw_ver": "28.43.2566\n",
    f"{DEVICE}/hca_type": "MT4129\n",
    f"{DEVICE}/hw_rev": "0\n",
    f"{DEVICE}/node_type": "1: CA\n",
    f"{DEVICE}/node_guid": "b8ce:f603:0000:0d10\n",
    f"{DEVICE}/sys_image_guid": "b8ce:f603:0000:0d10\n",
    f"{DEVICE}/ports/1/state": "4: ACTIVE\n",
    f"{DEVICE}/ports/1/phys_state": "5: LinkUp\n",
    f"{DEVICE}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    f"{DEVICE}/ports/1/lid": "0x2c\n",
    f"{DEVICE}/ports/1/sm_lid": "0x1\n",
    f"{DEVICE}/ports/1/lid_mask_count": "0\n",
    f"{DEVICE}/ports/1/cap_mask": "0xa751e848\n",
    f"{DEVICE}/ports/1/link_layer": "InfiniBand\n",
    f"{DEVICE}/ports/1/gids/0": "fe80:0000:0000:0000:b8ce:f603:0000:0d10\n",
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    def build(files=None, commands=None):
        source = live(tmp_path, files, commands)
        monkeypatch.setattr(_capture, "LiveSource", lambda: source)

    return build


def test_a_file_of_any_name(tmp_path):
    path = tmp_path / "from-the-customer"
    path.write_text(ONE, encoding="utf-8")
    result = run_module(ibstat_info.main, capture=str(path))
    assert result["cas"][0]["ports"][0]["base_lid"] == 44
    assert (result["origin"], result["changed"], result["failed"]) == ("recorded", False, False)
    assert result["problems"] == [] and result["warned"] == []


def test_a_cut_file_warns_with_the_line(tmp_path):
    path = tmp_path / "ibstat.txt"
    path.write_text(ONE[: ONE.index("Rate: 400") + len("Rate: 4")], encoding="utf-8")
    result = run_module(ibstat_info.main, capture=str(path))
    assert "rate_gbps" not in result["cas"][0]["ports"][0] and result["partial"] is True
    assert any("line 11" in text and "Rate: 4" in text for text in result["warned"])


@pytest.mark.parametrize("name", ["ibstat.txt", "ibstat_l.txt"])
def test_a_host_of_a_bundle(tmp_path, name):
    text = ONE if name == "ibstat.txt" else "mlx5_4\n"
    write(tmp_path, {f"gpu-01/{name}": text, "gpu-02/uname_r.txt": "6.8.0\n", "inventory.ini": "gpu-01\n"})
    for options in ({"capture": str(tmp_path), "host": "gpu-01"}, {"capture": str(tmp_path / "gpu-01")}):
        result = run_module(ibstat_info.main, **options)
        assert [ca["name"] for ca in result["cas"]] == ["mlx5_4"]
        assert result["origin"] == "recorded" and result["command"].startswith("ibstat")


def test_not_recorded_is_not_healthy(tmp_path):
    write(tmp_path, {"gpu-02/uname_r.txt": "6.8.0\n"})
    result = run_module(ibstat_info.main, capture=str(tmp_path))
    assert (result["cas"], result["origin"]) == ([], "none")
    assert "was recorded" in result["warned"][0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"capture": "BUNDLE"}, ["gpu-01, gpu-02", "host"]),
        ({"capture": "BUNDLE", "host": "gpu-07"}, ["gpu-07", "gpu-01, gpu-02"]),
        ({"capture": "BUNDLE", "host": "../etc"}, ["../etc"]),
        ({"capture": "BUNDLE/gpu-01/ibstat.txt", "host": "gpu-01"}, ["gpu-01", "no bundle"]),
        ({"capture": "BUNDLE/absent.txt"}, ["absent.txt", "No such file"]),
        ({"host": "gpu-01"}, ["gpu-01", "capture"]),
    ],
)
def test_options_that_lead_nowhere(tmp_path, options, words):
    write(tmp_path, {"gpu-01/ibstat.txt": ONE, "gpu-02/ibstat.txt": ONE, "before/ibstat.txt": ONE})
    options = {key: value.replace("BUNDLE", str(tmp_path)) for key, value in options.items()}
    result = run_module(ibstat_info.main, **options)
    assert result["failed"] is True
    assert all(word in result["msg"] for word in words)


def test_the_tool_and_sysfs_say_the_same(machine):
    machine(SYSFS, {"ibstat": f"cat <<'END'\n{ONE}END"})
    told = run_module(ibstat_info.main)
    assert (told["origin"], told["rc"], told["command"]) == ("tool", 0, "ibstat")
    machine(SYSFS, {"ibstat": "echo 'ibpanic: [17] main: can not init UMAD library' >&2; exit 255"})
    read = run_module(ibstat_info.main)
    assert (read["origin"], read["rc"], len(read["errors"])) == ("sysfs", 255, 1)
    port, same = read["cas"][0]["ports"][0], told["cas"][0]["ports"][0]
    assert (port.pop("rate_text"), same.pop("rate_text")) == ("400 Gb/sec (4X NDR)", "400")
    assert read["cas"] == told["cas"]


def test_a_panic_behind_good_devices(machine):
    panic = "ibpanic: [17] main: stat of IB device 'mlx5_5' failed: No such file or directory"
    machine({}, {"ibstat": f"cat <<'END'\n{ONE}END\necho \"{panic}\" >&2; exit 255"})
    result = run_module(ibstat_info.main)
    assert [ca["name"] for ca in result["cas"]] == ["mlx5_4"] and result["failed_devices"] == ["mlx5_5"]
    assert result["partial"] is True and result["rc"] == 255 and panic in result["warned"][0]


def test_a_machine_without_anything(machine):
    machine()
    result = run_module(ibstat_info.main)
    assert (result["cas"], result["origin"], result["failed"]) == ([], "none", False)
    assert "ibstat" in result["warned"][0] and "/sys/class/infiniband" in result["warned"][0]


@pytest.mark.skipif(not CORPUS, reason=NO_SHARED)
@pytest.mark.parametrize("path", CORPUS, ids=[f"{path.parent.name}/{path.name}" for path in CORPUS])
def test_every_recorded_output(path):
    result = run_module(ibstat_info.main, capture=str(path))
    parsed = ibstat_info.TOOL.parse(path.read_text(encoding="utf-8"))
    assert result["cas"] == parsed.value["cas"] and result["failed"] is False
    assert len(result["warned"]) == len(parsed.problems)
