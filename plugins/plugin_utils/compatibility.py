# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compatibility table (data/compatibility.json): what goes with what, as data."""

from __future__ import annotations

import functools
import json
import re
import typing as t
from pathlib import Path

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Gpu, Machine

_MODEL = re.compile(r"\b([ABH]\d{2,3})\b")


@functools.cache
def table() -> dict[str, t.Any]:
    return json.loads((Path(__file__).parent / "data" / "compatibility.json").read_text(encoding="utf-8"))


def generation(gpu: Gpu) -> dict[str, t.Any] | None:
    """The row of a GPU's generation, by PCI device id."""
    try:
        device = int(gpu.device, 16)
    except ValueError:
        return None
    for row in table()["gpu_generations"]:
        if int(row["first"], 16) <= device <= int(row["last"], 16):
            return row
    return None


def model(machine: Machine) -> str:
    """A100, H100 … as thresholds name it; empty where it is not known or hosts mix models."""
    found = set()
    for gpu in machine.gpus:
        named = _MODEL.search(gpu.name)
        found.add(named.group(1) if named else table()["gpu_models_by_device"].get(gpu.device, ""))
    return found.pop() if len(found) == 1 else ""


def is_pcie_card(machine: Machine) -> bool:
    """GPUs without NVSwitch between them: the tables of NVLink boxes do not hold for them."""
    return not machine.nvswitches and not any(f.sw_mng for f in machine.functions.values())
