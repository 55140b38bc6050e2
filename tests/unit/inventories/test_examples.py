"""The example inventories load, and what they ask for is a valid intent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import resolve

ROOT = Path(__file__).resolve().parents[3]


def hostvars(name: str) -> dict[str, dict]:
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "-i", f"inventories/{name}", "--list"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    inventory = json.loads(listed.stdout)
    assert "WARNING" not in listed.stderr
    members = inventory["gpu_nodes"]["hosts"]
    return {host: inventory["_meta"]["hostvars"][host] for host in members}


@pytest.mark.parametrize(("name", "count"), [("example_rack_roce", 8), ("example_rack_ib", 16)])
def test_example_is_a_valid_intent(name: str, count: int) -> None:
    hosts = hostvars(name)
    assert len(hosts) == count
    for host, variables in hosts.items():
        intent, problems = resolve(variables)
        assert problems == [], (host, problems)
        assert intent["gpu_fabric_expected_gpus"] == 8


def test_node_numbers_are_unique() -> None:
    numbers = [variables["gpu_fabric_node_id"] for variables in hostvars("example_rack_roce").values()]
    assert len(set(numbers)) == len(numbers)
