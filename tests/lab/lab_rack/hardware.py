# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cables a node of a profile needs, asked of the hardware stand-ins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LAB = Path(__file__).resolve().parent.parent


class HardwareError(RuntimeError):
    """The stand-ins know no such profile or fault; the message carries their words."""


def lab(*arguments: str) -> str:
    argv = [sys.executable, "-B", "-m", "railyard_lab", *arguments]
    done = subprocess.run(argv, cwd=LAB, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise HardwareError(f"railyard_lab {' '.join(arguments)}: {last}")
    return done.stdout


def network_of(port: dict[str, Any], index: int) -> str:
    """The switch on which a port hangs: one per rail, one per storage port, one for every management port.

    All InfiniBand ports are one fabric, and hear each other's broadcasts.
    """
    role = port["role"]
    if port["link_layer"] == "InfiniBand":
        return "infiniband"
    if role == "management":
        return "frontend"
    rail = port.get("rail")
    kind = "rail" if role == "compute" else role
    return f"{kind}{rail if rail is not None else index}"


def cables(ports: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The interfaces to plug in."""
    seen: dict[str, int] = {}
    found = []
    for port in ports:
        index = seen.get(port["role"], 0)
        seen[port["role"]] = index + 1
        if port.get("plugged", True):
            found.append({"name": port["name"], "mac": port["mac"], "network": network_of(port, index)})
    return found


def nics_of(profile: str, host: str) -> list[dict[str, str]]:
    return cables(json.loads(lab("netdevs", "--profile", profile, "--host", host)))
