# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from test_cables import rack

SCRIPT = Path(__file__).resolve().parents[3] / "inventories/lab/rack.py"


@pytest.fixture
def inventory(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("lab_inventory", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CACHE", tmp_path)
    monkeypatch.setattr(module, "INTERFACES", tmp_path / "net")
    monkeypatch.setattr(module.sys, "argv", ["rack.py", "--list"])
    monkeypatch.delenv("RAILYARD_LAB_NAME", raising=False)
    return module


def bridge(tmp_path, described, directory) -> None:
    """The rack's network, as the kernel shows it."""
    path = tmp_path / "net" / described["bridge"] / "ifalias"
    path.parent.mkdir(parents=True)
    path.write_text(f"railyard-lab {described['prefix']} {directory}\n")


def test_a_rack_that_is_down_says_how_to_start_it(inventory, capsys):
    assert inventory.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gpu_nodes"]["hosts"] == ["gpu-01"]
    assert "playbooks/lab.yml -e lab_state=up" in found["gpu_nodes"]["vars"]["lab_down"]


def test_nodes_and_their_boots_are_listed(inventory, capsys, tmp_path):
    (tmp_path / "rack.json").write_text(json.dumps(rack()))
    bridge(tmp_path, rack(), tmp_path)
    (tmp_path / "nodes/gpu-01").mkdir(parents=True)
    (tmp_path / "nodes/gpu-01/boot").write_text("0123456789abcdef\n")
    inventory.main()
    found = json.loads(capsys.readouterr().out)
    hostvars = found["_meta"]["hostvars"]
    assert found["gpu_nodes"]["hosts"] == ["gpu-01", "gpu-02"]
    assert hostvars["gpu-01"]["lab_address"] == "10.89.250.11"
    assert hostvars["gpu-01"]["lab_boot"] == "01234567"
    assert hostvars["gpu-02"]["lab_boot"] == "none"
    assert found["gpu_nodes"]["vars"]["lab_repository_url"] == "http://10.89.250.1:8080"


def test_another_rack_is_chosen_by_name(inventory, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("RAILYARD_LAB_NAME", "second")
    (tmp_path / "racks/second").mkdir(parents=True)
    (tmp_path / "racks/second/rack.json").write_text(json.dumps(rack(3, name="second")))
    bridge(tmp_path, rack(3, name="second"), tmp_path / "racks/second")
    inventory.main()
    hostvars = json.loads(capsys.readouterr().out)["_meta"]["hostvars"]
    assert hostvars["gpu-03"]["lab_container"] == "second-gpu-03"


@pytest.mark.parametrize("owner", ["", "/another/checkout/.cache/lab"])
def test_a_rack_whose_network_is_gone_or_another_racks_is_down(inventory, capsys, tmp_path, owner):
    (tmp_path / "rack.json").write_text(json.dumps(rack()))
    if owner:
        bridge(tmp_path, rack(), owner)
    inventory.main()
    assert "lab_down" in json.loads(capsys.readouterr().out)["gpu_nodes"]["vars"]


def test_inventory_and_rack_agree_on_the_default_name(inventory):
    from lab_rack import layout

    assert inventory.DEFAULT_NAME == layout.DEFAULT_NAME
