# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""What lspci tells of PCI functions, in the shape of the facts: names always, the rest where sysfs did not tell it."""

from __future__ import annotations

from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.pci import is_gpu, is_network, is_nvswitch
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import pci_sort_key

__all__ = ["merge"]

#: Without `-n`, lspci prints names instead of numbers.
_CLASSES = {
    "PCI bridge": "0604",
    "3D controller": "0302",
    "VGA compatible controller": "0300",
    "Ethernet controller": "0200",
    "Infiniband controller": "0207",
    "Bridge": "0680",
}
_VENDORS = {"NVIDIA Corporation": "10de", "Mellanox Technologies": "15b3"}
_SAME = (
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "driver",
    "numa_node",
    "iommu_group",
    "max_payload_bytes",
    "max_read_request_bytes",
    "relaxed_ordering",
    "acs",
)
_BRIDGE = "0604"


def merge(tools: Tools, devices: dict[str, Any]) -> dict[str, Any]:
    # Where sysfs told which functions matter, lspci adds no more; its bridges are not only those above them.
    complete = bool(devices)
    for key in ("lspci_vvv", "lspci_nn", "lspci"):
        for told in (tools.value(key) or {}).get("devices", []):
            _merge_one(told, devices, complete)
    return {bdf: devices[bdf] for bdf in sorted(devices, key=pci_sort_key)}


def _merge_one(told: dict[str, Any], devices: dict[str, Any], complete: bool) -> None:
    bdf = told.get("pci")
    if bdf is None:
        return
    device = {key: told[key] for key in _SAME if told.get(key) is not None}
    base = told.get("class") or _CLASSES.get(told.get("class_name", ""))
    if base is not None:
        device["class"] = f"{base}00"  # lspci leaves the programming interface out
    description = told.get("description", "")
    for name, vendor in _VENDORS.items():
        if description.startswith(name):
            device.setdefault("vendor", vendor)
            description = description[len(name) :].strip()
    if description:
        device["name"] = description
    if told.get("link"):
        device["link"] = {
            key: told["link"][key]
            for key in ("speed_gts", "width", "max_speed_gts", "max_width")
            if key in told["link"]
        }
    if told.get("vpd"):
        product = dict(told["vpd"])
        words = [product.get("product_name") or "", *(product.get("keywords") or {}).values()]
        product["sw_mng"] = any("SW_MNG" in word for word in words)
        device["vpd"] = product
    if told.get("gone"):
        device["gone"] = True  # the function answers with ones only: it fell off the bus
    known = devices.get(bdf)
    if known is None:
        if complete or not (is_gpu(device) or is_nvswitch(device) or is_network(device) or base == _BRIDGE):
            return
        known = devices[bdf] = {}
    for key, value in device.items():
        known.setdefault(key, value)
