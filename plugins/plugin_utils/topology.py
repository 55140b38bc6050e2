# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCIe distance between two functions, in the words of ``nvidia-smi topo``, from the bridges above them."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Function, Hca, Machine

# nearest first; the index is the rank
DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
# GPUDirect RDMA goes peer to peer up to here; beyond it the path crosses a host bridge.
NEAR = ("PIX", "PXB")
# What drivers before the split of NODE and SYS print for both.
OLD_DISTANCE = "SOC"


class Path(t.NamedTuple):
    """How far apart two functions are. hops breaks ties between equal distances."""

    distance: str
    hops: int

    @property
    def rank(self) -> tuple[int, int]:
        return (DISTANCES.index(self.distance), self.hops)

    @property
    def near(self) -> bool:
        return self.distance in NEAR


def between(a: Function, b: Function) -> Path | None:
    """The path from *a* to *b*; None where the host does not show one (no root and no NUMA node in common to compare).

    With a common bridge, at most one more bridge on either side is one switch (PIX), more are several (PXB). Without
    one the path goes through the CPU: same root complex PHB, same NUMA node NODE, otherwise SYS.
    """
    shared = 0
    for one, other in zip(a.upstream, b.upstream):
        if one != other:
            break
        shared += 1
    left, right = len(a.upstream) - shared, len(b.upstream) - shared
    if shared:
        return Path("PIX" if max(left, right) <= 1 else "PXB", left + right)
    if a.root and a.root == b.root:
        return Path("PHB", left + right)
    if a.numa_node is None or b.numa_node is None:
        return None
    return Path("NODE" if a.numa_node == b.numa_node else "SYS", left + right)


class Affinity:
    """Distances of one host between its GPUs and its HCAs, and whether they mean anything."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._paths: dict[tuple[str, str], Path | None] = {}
        self._reported = _smi_matrix(machine)

    def path(self, gpu_pci: str, hca: Hca) -> Path | None:
        key = (gpu_pci, hca.name)
        if key not in self._paths:
            machine = self._machine
            if not hca.pci or hca.pci not in machine.functions or gpu_pci not in machine.functions:
                reported = self._reported.get(key)
                self._paths[key] = Path("SYS" if reported == OLD_DISTANCE else reported, 0) if reported else None
            else:
                self._paths[key] = between(machine.function(gpu_pci), machine.function(hca.pci))
        return self._paths[key]

    def near(self, hca: Hca) -> list[str]:
        """GPUs (PCI) that reach *hca* without a host bridge."""
        found = []
        for gpu in self._machine.gpus:
            path = self.path(gpu.pci, hca)
            if path and path.near:
                found.append(gpu.pci)
        return found

    def known(self, hcas: t.Sequence[Hca]) -> bool:
        """Whether the host shows which of *hcas* belongs to which GPU.

        A hypervisor that presents every function beside every other says nothing about the hardware: a virtual
        machine counts only where it shows PCIe switches. On bare metal a difference between host bridges counts too,
        and a sole HCA needs none.
        """
        ranks = set()
        for hca in hcas:
            for gpu in self._machine.gpus:
                path = self.path(gpu.pci, hca)
                if path is None:
                    continue
                if path.near:
                    return True
                ranks.add(path.rank[0])
        if self._machine.virtual or self._machine.virtualization is None:
            return False
        return len(ranks) > 1 or (len(ranks) == 1 and len(hcas) == 1)

    def disagreements(self) -> list[tuple[str, str, str, str]]:
        """(GPU, HCA, from the PCI tree, from nvidia-smi topo) where the two differ."""
        found = []
        by_name = self._machine.hca_by_name
        for (gpu_pci, name), reported in self._reported.items():
            hca = by_name.get(name)
            path = self.path(gpu_pci, hca) if hca else None
            same = ("NODE", "SYS") if reported == OLD_DISTANCE else (reported,)
            if path and path.distance not in same:
                found.append((gpu_pci, name, path.distance, reported))
        return found


def _smi_matrix(machine: Machine) -> dict[tuple[str, str], str]:
    """nvidia-smi topo's GPU to NIC cells: {(GPU PCI, RDMA device): distance}."""
    topo = mapping(mapping(machine.facts.get("outputs")).get("nvidia_smi_topo"))
    by_index = {str(position if gpu.index is None else gpu.index): gpu.pci for position, gpu in enumerate(machine.gpus)}
    found = {}
    for index, cells in mapping(topo.get("gpu_nic")).items():
        pci = by_index.get(str(index))
        for name, cell in mapping(cells).items():
            if pci and name in machine.hca_by_name and (cell in DISTANCES or cell == OLD_DISTANCE):
                found[(pci, str(name))] = cell
    return found
