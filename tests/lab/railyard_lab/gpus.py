# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the NVIDIA driver knows of the GPUs at this moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from railyard_lab import catalogue
from railyard_lab import state as state_file

# Newest CUDA that a driver branch speaks.
CUDA = {"535": "12.2", "550": "12.4", "555": "12.5", "560": "12.6", "570": "12.8", "575": "12.9", "580": "13.0",
        "590": "13.1", "595": "13.2"}  # fmt: skip

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


def cuda_version(driver: str) -> str:
    return CUDA.get(driver.split(".")[0], "13.0")


def failure(state: dict[str, Any]) -> tuple[str, int] | None:
    """What NVML cannot do, and the exit status of nvidia-smi for it."""
    driver = state["driver"]
    if "nvidia" not in state["modules"] or not driver["loaded"]:
        return NO_DRIVER, 9
    if driver["library"] != driver["loaded"]:
        short = ".".join(driver["library"].split(".")[:2])
        return f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}", 18
    if not state_file.present_gpus(state):
        return "No devices were found", 6
    return None


def bus_id(bdf: str) -> str:
    """`00000000:1B:00.0`: eight digits of domain, capital letters."""
    return "0000" + bdf.upper()


def process_alive(pid_file: str) -> bool:
    path: Path = state_file.root() / pid_file
    try:
        pid = int(path.read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return False
    return True


def persistence(state: dict[str, Any]) -> bool:
    return state["persistence"] or process_alive("run/nvidia-persistenced/nvidia-persistenced.pid")


def fabric(state: dict[str, Any], gpu: dict[str, Any]) -> tuple[str, str]:
    """State and status of a GPU's registration with the NVLink fabric."""
    model = catalogue.GPUS[gpu["model"]]
    switched = state["nvswitches"] or any(nic["sw_mng"] for nic in state["nics"])
    if not model["fabric"] or not switched:
        return "N/A", "N/A"
    if state["fabric_manager"].get("trained") == state["driver"]["loaded"]:
        return "Completed", "Success"
    return "In Progress", "N/A"


def active_links(gpu: dict[str, Any]) -> list[int]:
    return [link for link in range(catalogue.GPUS[gpu["model"]]["nvlinks"]) if link not in gpu["links_down"]]


def distance(state: dict[str, Any], first: str, second: str) -> str:
    """How two PCI functions reach each other, in the words of `nvidia-smi topo`."""
    one, other = state["pci"][first], state["pci"][second]
    common = 0
    for left, right in zip(one["path"], other["path"]):
        if left != right:
            break
        common += 1
    if common:
        return "PIX" if max(len(one["path"]), len(other["path"])) - common <= 1 else "PXB"
    if (one["path"] or [first])[0][:7] == (other["path"] or [second])[0][:7]:
        return "PHB"
    return "NODE" if one["numa_node"] == other["numa_node"] else "SYS"
