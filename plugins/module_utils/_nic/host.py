# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Run-time settings of the host as a whole: CPUs, memory, PCIe bridges, and the interrupts of a port."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cpus import cpu_list, cpu_set
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import (
    INFINIBAND,
    NET,
    KeyedKnob,
    Knob,
    Port,
    write_file,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.pcie import AccessControl

CPUS = "/sys/devices/system/cpu"
HUGEPAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
IRQS = "/proc/irq"


class Governor(Knob):
    """The frequency governor of every CPU; virtual machines have none."""

    name = "cpu_governor"
    optional = True

    def _files(self) -> list[str]:
        names = os.listdir(CPUS) if os.path.isdir(CPUS) else []
        paths = [os.path.join(CPUS, name, "cpufreq/scaling_governor") for name in names if name.strip("cpu").isdigit()]
        return [path for path in sorted(paths) if os.path.exists(path)]

    def read(self) -> str | None:
        """One word, or all that there are; a CPU that is taken offline meanwhile counts for nothing."""
        found = {(read_text(path) or "").strip() for path in self._files()} - {""}
        return " ".join(sorted(found)) or None

    def write(self, value: str) -> None:
        for path in self._files():
            offered = (read_text(os.path.join(os.path.dirname(path), "scaling_available_governors")) or value).split()
            # what several CPUs had apart is not remembered for each; the first word stands for all
            word = value.split()[0]
            if word not in offered:
                raise Failure(f"{path}: {word} is not offered by this driver; it has {', '.join(offered)}")
            write_file(path, word)


class Hugepages(Knob):
    """Transparent huge pages; the kernel shows the words it knows with the chosen one in brackets."""

    name = "transparent_hugepages"
    optional = True

    def read(self) -> str | None:
        words = (read_text(HUGEPAGES) or "").split()
        return next((word.strip("[]") for word in words if word.startswith("[")), None)

    def write(self, value: str) -> None:
        write_file(HUGEPAGES, value)


class IrqAffinity(KeyedKnob):
    """The CPUs that may serve a port's interrupts, as a list such as ``0-55,112-167``.

    First values are lists by interrupt, of those that were moved: together they say too little to be given back.
    """

    name = "irq_affinity"
    optional = True
    rivals = "irqbalance"

    def __init__(self, port: Port) -> None:
        self.folder = os.path.join(INFINIBAND if port.netdev == port.hca else NET, port.netdev, "device/msi_irqs")

    def _lists(self) -> dict[str, str]:
        """The CPUs of each interrupt, by its number."""
        numbers = sorted(filter(str.isdigit, os.listdir(self.folder)), key=int) if os.path.isdir(self.folder) else []
        lists = {number: read_text(self._file(number)) for number in numbers}
        return {number: cpus.strip() for number, cpus in lists.items() if cpus is not None}

    @staticmethod
    def _file(number: str) -> str:
        return os.path.join(IRQS, number, "smp_affinity_list")

    def _moved(self, wanted: t.Any) -> dict[str, str]:
        """The interrupts that must move, with their new lists."""
        lists = self._lists()
        if isinstance(wanted, dict):
            return {number: cpus for number, cpus in wanted.items() if lists.get(number, cpus) != cpus}
        return {number: wanted for number, cpus in lists.items() if not cpu_set(cpus) <= cpu_set(wanted)}

    def read(self) -> str | None:
        return cpu_list(frozenset().union(*map(cpu_set, self._lists().values()))) or None

    def first(self, present: t.Any, wanted: t.Any) -> t.Any:
        lists = self._lists()
        return {number: lists[number] for number in self._moved(wanted)}

    def write(self, value: t.Any) -> None:
        for number, cpus in self._moved(value).items():
            write_file(self._file(number), cpus)

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        return not self._moved(wanted)


def host_knobs(wanted: t.Mapping[str, t.Any]) -> list[Knob]:
    return [Governor(), Hugepages(), AccessControl(wanted.get("acs_control") or {})]


__all__ = ("Governor", "Hugepages", "IrqAffinity", "cpu_list", "cpu_set", "host_knobs")
