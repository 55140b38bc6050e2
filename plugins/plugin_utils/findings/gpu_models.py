# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the table of compatibility knows of a host's GPUs."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.compatibility import table
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, mapping


def gpu_rows(host: HostView) -> t.Iterator[tuple[str, str, dict[str, t.Any]]]:
    """(PCI address, model, generation) of each GPU whose device id the table knows."""
    for gpu in host.gpus:
        function = mapping(host.section("pci").get(gpu.get("pci")))
        try:
            number = int(str(function.get("device")), 16)
        except ValueError:
            continue
        for row in table()["gpu_generations"]:
            if int(row["first"], 16) <= number <= int(row["last"], 16):
                model = table()["gpu_models_by_device"].get(str(function["device"]).lower()) or gpu.get("name")
                yield str(gpu["pci"]), str(model or f"10de:{function['device']}"), row
                break
