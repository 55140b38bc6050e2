# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Firmware settings of network cards: default, current and at the next boot."""

from __future__ import annotations

from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.pci import MELLANOX, is_network
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import mlxconfig
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect"]

#: A card answers in one to three seconds.
_TIMEOUT_S = 60.0


def collect(source: Source, tools: Tools, pci: dict[str, Any]) -> dict[str, Any]:
    """By PCI address. Never asks the functions that manage NVSwitches: a wrong word there takes NVLink down."""
    if not source.live:
        names = [name[len("mlxconfig_") :].rsplit(".", 1)[0] for name in source.recorded("mlxconfig_")]
        answers = {name: _ask(source, tools, "mlxconfig", name) for name in names}
    else:
        tool = next((name for name in ("mlxconfig", "mstconfig") if source.tool(name) is not None), None)
        if tool is None:
            source.note("mlxconfig", "not installed, so that the firmware settings of the cards are not known")
            return {}
        cards = [
            bdf
            for bdf, device in pci.items()
            if device.get("vendor") == MELLANOX
            and is_network(device)
            and device.get("physfn") is None
            and bdf.endswith(".0")
            and not device.get("vpd", {}).get("sw_mng")
        ]
        answers = dict(zip(cards, source.map(lambda bdf: _ask(source, tools, tool, bdf), cards)))
    found: dict[str, Any] = {}
    for name, answer in answers.items():
        for device in (answer or {}).get("devices", []):
            parameters = {
                key: {label: value for label, value in values.items() if label != "new"}
                for key, values in device.get("parameters", {}).items()
            }
            if parameters:
                found[device.get("pci") or name] = parameters
    return found


def _ask(source: Source, tools: Tools, tool: str, device: str) -> Any:
    if source.live:
        argv: tuple[str, ...] = (tool, "-d", device, "-e", "q")
        return tools.ask(" ".join(argv), argv, mlxconfig.parse, _TIMEOUT_S)
    for argv in ((tool, "-d", device, "-j", "q"), (tool, "-d", device, "-e", "q")):
        answer = tools.ask(" ".join(argv), argv, mlxconfig.parse)
        if answer is not None:
            return answer
    return None
