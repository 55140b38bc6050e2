# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi topo and nvlink."""

from __future__ import annotations

import re
from typing import Any

from railyard_lab import catalogue, gpus
from railyard_lab import state as state_file

_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def topo(state: dict[str, Any], argv: list[str]) -> int:
    option = argv[0] if argv else "-m"
    if option not in ("-m", "--matrix", "-mp", "--matrix_pci"):
        print("Invalid combination of input arguments. Please run 'nvidia-smi topo -h' for help.\n")
        return 2
    nvlinks = option in ("-m", "--matrix")
    present = state_file.present_gpus(state)
    nics = [nic for nic in state["nics"] if nic["rdma"]] if "mlx5_ib" in state["modules"] else []
    nics.sort(key=lambda nic: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", nic["rdma"])])
    names = [f"GPU{index}" for index in range(len(present))] + [f"NIC{index}" for index in range(len(nics))]
    devices = [gpu["pci"] for gpu in present] + [nic["pci"] for nic in nics]
    tail = "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    print("\t\x1b[4m" + "\t".join(names) + tail + "\x1b[0m")
    for row, device in enumerate(devices):
        cells = []
        for column, other in enumerate(devices):
            if row == column:
                cells.append(" X ")
            elif nvlinks and row < len(present) and column < len(present):
                cells.append(_between(state, present[row], present[column]))
            else:
                cells.append(gpus.distance(state, device, other))
        line = f"{names[row]}\t" + "\t".join(cells)
        if row < len(present):
            numa = state["pci"][device]["numa_node"]
            cpus = state["cpulists"].get(str(numa)) or state["cpulists"]["0"]
            line += f"\t{cpus}\t{numa if numa >= 0 else 'N/A'}\t\tN/A"
        else:
            line += "\t\t\t\t"
        print(line)
    print(_LEGEND)
    if nics:
        print("NIC Legend:\n")
        for index, nic in enumerate(nics):
            print(f"  NIC{index}: {nic['rdma']}")
        print()
    return 0


def _between(state: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> str:
    links = min(len(gpus.active_links(one)), len(gpus.active_links(other)))
    return f"NV{links}" if links else gpus.distance(state, one["pci"], other["pci"])


def nvlink(state: dict[str, Any], argv: list[str]) -> int:
    if argv[:1] not in (["-s"], ["--status"]):
        print("Invalid combination of input arguments. Please run 'nvidia-smi nvlink -h' for help.\n")
        return 2
    for index, gpu in enumerate(state_file.present_gpus(state)):
        model = catalogue.GPUS[gpu["model"]]
        if not model["nvlinks"]:
            continue
        print(f"GPU {index}: {model['name']} (UUID: {gpu['uuid']})")
        for link in range(model["nvlinks"]):
            speed = "<inactive>" if link in gpu["links_down"] else f"{model['nvlink_gbs']} GB/s"
            print(f"\t Link {link}: {speed}")
    return 0
