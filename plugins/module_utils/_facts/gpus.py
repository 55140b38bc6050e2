# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""GPUs: present on the bus, and as nvidia-smi sees them."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.pci import is_gpu, is_nvswitch
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import ANSWERS, Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import TIMED_OUT, Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import pci_sort_key

__all__ = ["collect", "hangs", "nvswitches", "processes", "smi"]

#: The first that answers wins; a recording may hold several, each telling a part.
_QUERIES = ("nvidia_smi_xml", "nvidia_smi_q", "nvidia_smi_csv", "nvidia_smi_list", "nvidia_smi")
#: Kept out of the facts: text for people, not values for rules.
_VERBOSE = ("extra", "not_available", "processes", "mig_devices", "unreadable", "name_truncated")


def smi(tools: Tools) -> list[dict[str, Any]]:
    """Answers of nvidia-smi that say something, the fullest first."""
    return [value for value in (tools.value(key) for key in _QUERIES) if value is not None]


def hangs(source: Source) -> bool:
    """Whether the driver leaves nvidia-smi without an answer, as it does when a GPU fell off the bus in its hands."""
    output = source.run(ANSWERS["nvidia_smi_xml"].argv, ANSWERS["nvidia_smi_xml"].timeout)
    return output is not None and output.rc == TIMED_OUT


def collect(tools: Tools, pci: dict[str, Any]) -> list[dict[str, Any]]:
    """In PCI order, as nvidia-smi lists them. A GPU that only the bus knows has little more than its address."""
    found: dict[str, dict[str, Any]] = {}
    unplaced: list[dict[str, Any]] = []
    for bdf, device in pci.items():
        if is_gpu(device):
            found[bdf] = {"pci": bdf}
            if device.get("numa_node") is not None or "numa_node" in device:
                found[bdf]["numa_node"] = device["numa_node"]
            if device.get("name"):
                found[bdf]["pci_name"] = device["name"]
    on_bus = sorted(found, key=pci_sort_key)
    for value in smi(tools):
        # nvidia-smi lists in the order of the bus: as many answers as there are GPUs are those GPUs.
        whole = len(value["gpus"]) == len(on_bus) and not any("pci" in gpu for gpu in value["gpus"])
        for position, gpu in enumerate(value["gpus"]):
            known = {key: told for key, told in gpu.items() if key not in _VERBOSE}
            # nvidia-smi -q lists in the order of its indices and does not print them; one that is lost leaves a gap.
            if value.get("attached_gpus") in (None, len(value["gpus"])) and not value["failures"]:
                known.setdefault("index", position)
            if gpu.get("name_truncated"):
                known.pop("name", None)
            if whole:
                known["pci"] = on_bus[position]
            entry = _entry(found, unplaced, known)
            for key, told in known.items():
                entry.setdefault(key, told)
    return [found[bdf] for bdf in sorted(found, key=pci_sort_key)] + unplaced


def _entry(found: dict[str, dict[str, Any]], unplaced: list[dict[str, Any]], known: dict[str, Any]) -> dict[str, Any]:
    """Where the values of a GPU belong; an answer without addresses (`-L`, a section cut out) goes by its index."""
    if "pci" in known:
        return found.setdefault(known["pci"], {"pci": known["pci"]})
    for entry in (*found.values(), *unplaced):
        if "index" in known and entry.get("index") == known["index"]:
            return entry
    unplaced.append({})
    return unplaced[-1]


def nvswitches(pci: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"pci": bdf} for bdf, device in pci.items() if is_nvswitch(device)]


def processes(tools: Tools) -> Optional[list[dict[str, Any]]]:
    """Compute processes; None where nvidia-smi did not answer, which is not the same as none running."""
    listed = tools.value("nvidia_smi_processes")
    if listed is not None and not listed["failures"]:
        return [
            {key: process[key] for key in ("pid", "name", "gpu_uuid", "used_mib", "pci") if key in process}
            for process in listed["processes"]
        ]
    for value in smi(tools):
        if value["failures"] or not any("processes" in gpu for gpu in value["gpus"]):
            continue
        return [
            {**process, **({"gpu_uuid": gpu["uuid"]} if "uuid" in gpu else {})}
            for gpu in value["gpus"]
            for process in gpu.get("processes", [])
        ]
    return None
