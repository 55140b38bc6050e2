"""The nodes of the scenarios' rack, and how to look into one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import testinfra

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / ".cache/lab/racks" / os.environ.get("RAILYARD_LAB_NAME", "molecule")


def nodes() -> list[dict]:
    return json.loads((LAB / "rack.json").read_text())["nodes"]


def connect(node: dict) -> testinfra.host.Host:
    options = f"-o UserKnownHostsFile={LAB / 'ssh/known_hosts'} -o StrictHostKeyChecking=yes"
    return testinfra.get_host(
        f"ssh://root@{node['address']}", ssh_identity_file=str(LAB / "ssh/id_ed25519"), ssh_extra_args=options
    )
