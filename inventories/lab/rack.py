#!/usr/bin/env python3
# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory of the lab rack that is up, as `playbooks/lab.yml` described it in .cache/lab/rack.json.

RAILYARD_LAB_NAME chooses another rack than the default one. How a node is reached stands in group_vars/gpu_nodes.yml.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

CACHE = Path(__file__).resolve().parents[2] / ".cache/lab"
INTERFACES = Path("/sys/class/net")
DEFAULT_NAME = "railyard"
BOOT_CHARACTERS = 8


def rack_directory(name: str) -> Path:
    return CACHE if name == DEFAULT_NAME else CACHE / "racks" / name


def read_word(path: Path, otherwise: str = "") -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return otherwise


def standing(rack: dict[str, Any], directory: Path) -> bool:
    """Whether the rack's network is there and its own: after a restart of the machine another rack may have it."""
    bridge = INTERFACES / rack["bridge"]
    owner = read_word(bridge / "ifalias").split()[-1:]
    return bridge.exists() and owner in ([], [str(directory)])


def down(name: str) -> dict[str, Any]:
    """One node that cannot be reached, for a reason that Ansible then prints."""
    extra = "" if name == DEFAULT_NAME else f" -e lab_name={name}"
    message = f"the lab rack is down; start it: ansible-playbook playbooks/lab.yml -e lab_state=up{extra}"
    return {"gpu_nodes": {"hosts": ["gpu-01"], "vars": {"lab_down": message}}, "_meta": {"hostvars": {}}}


def up(rack: dict[str, Any], directory: Path) -> dict[str, Any]:
    hostvars = {}
    for node in rack["nodes"]:
        boot = read_word(directory / "nodes" / node["name"] / "boot", "none")
        hostvars[node["name"]] = {
            "lab_address": node["address"],
            "lab_container": node["container"],
            "lab_profile": node["profile"],
            # Connections that ssh keeps open belong to one boot: after a reset or a power cycle they lead nowhere.
            "lab_boot": boot[:BOOT_CHARACTERS],
        }
    variables = {
        "lab_engine": rack["engine"],
        "lab_ssh_directory": str(directory / "ssh"),
        "lab_subnet": rack["subnet"],
        "lab_repository_url": rack["repository_url"],
        "lab_repository_fingerprint": read_word(directory / "www/nvidia/lab-nvidia.fingerprint"),
    }
    return {"gpu_nodes": {"hosts": list(hostvars), "vars": variables}, "_meta": {"hostvars": hostvars}}


def main() -> int:
    if sys.argv[1:2] == ["--host"]:
        print("{}")
        return 0
    name = os.environ.get("RAILYARD_LAB_NAME", DEFAULT_NAME)
    directory = rack_directory(name)
    description = directory / "rack.json"
    rack = json.loads(description.read_text()) if description.exists() else None
    found = up(rack, directory) if rack and standing(rack, directory) else down(name)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
