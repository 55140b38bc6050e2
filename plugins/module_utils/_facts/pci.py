# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""PCI: GPUs, NVSwitches, network functions and every bridge above them."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import pci_config, vpd
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import (
    Place,
    decimal,
    integer,
    link_name,
    numa_node,
    pci_sort_key,
    place,
    text,
)

__all__ = ["MELLANOX", "NVIDIA", "collect", "is_gpu", "is_network", "is_nvswitch"]

NVIDIA = "10de"
MELLANOX = "15b3"
_DEVICES = "/sys/bus/pci/devices"
#: Extended configuration space of one function.
_CONFIG_BYTES = 4096


def is_gpu(device: dict[str, Any]) -> bool:
    """A display or 3D controller of NVIDIA's; its audio and USB functions are none."""
    return device.get("vendor") == NVIDIA and device.get("class", "")[:4] in ("0300", "0302")


def is_nvswitch(device: dict[str, Any]) -> bool:
    return device.get("vendor") == NVIDIA and device.get("class", "")[:4] == "0680"


def is_network(device: dict[str, Any]) -> bool:
    return device.get("class", "")[:2] == "02"


def collect(source: Source) -> dict[str, Any]:
    places = _places(source)
    devices: dict[str, dict[str, Any]] = {}
    for bdf, at in places.items():
        identity = _identity(source, at)
        if is_gpu(identity) or is_nvswitch(identity) or is_network(identity):
            devices[bdf] = identity
    for bdf in list(devices):
        for bridge in places[bdf].upstream:
            if bridge not in devices:
                above = places.get(bridge) or place(places[bdf].directory.split(bridge, 1)[0] + bridge)
                if above is not None:
                    places[bridge] = above
                    devices[bridge] = _identity(source, above)
    wanted = sorted(devices, key=pci_sort_key)
    # Reading vital product data takes a card tens of milliseconds, so the cards are asked at the same time.
    details = source.map(lambda bdf: _details(source, places[bdf], devices[bdf]), wanted)
    return {bdf: {**devices[bdf], **detail} for bdf, detail in zip(wanted, details)}


def _places(source: Source) -> dict[str, Place]:
    """All functions. A recording may hold only the class links, which lead to their functions as well."""
    paths = [f"{_DEVICES}/{name}" for name in source.listdir(_DEVICES)]
    if not paths:
        for topic in ("infiniband", "net"):
            base = f"/sys/class/{topic}"
            paths.extend(f"{base}/{name}/device" for name in source.listdir(base))
            paths.extend(f"{base}/{name}" for name in source.listdir(base))
    places: dict[str, Place] = {}
    for path in paths:
        at = place(source.realpath(path))
        if at is not None:
            places.setdefault(at.bdf, at)
    return places


def _hexadecimal(source: Source, path: str) -> Optional[str]:
    value = text(source, path)
    return value.lower()[2:] if value and value.lower().startswith("0x") else None


def _identity(source: Source, at: Place) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("vendor", "device", "class", "subsystem_vendor", "subsystem_device"):
        value = _hexadecimal(source, f"{at.directory}/{name}")
        if value is not None:
            found[name] = value
    found["upstream"] = list(at.upstream)
    if at.root is not None:
        found["root"] = at.root
    return found


def _details(source: Source, at: Place, device: dict[str, Any]) -> dict[str, Any]:
    here = at.directory
    found: dict[str, Any] = {"driver": link_name(source, f"{here}/driver"), "physfn": _physical(source, here)}
    if source.exists(f"{here}/numa_node"):
        found["numa_node"] = numa_node(source, f"{here}/numa_node")
    for name, value in (
        ("local_cpulist", text(source, f"{here}/local_cpulist")),
        ("iommu_group", link_name(source, f"{here}/iommu_group")),
        ("iommu_group_type", text(source, f"{here}/iommu_group/type")),
        ("sriov_numvfs", integer(source, f"{here}/sriov_numvfs")),
        ("sriov_totalvfs", integer(source, f"{here}/sriov_totalvfs")),
    ):
        if value is not None:
            found[name] = value
    link = _link(source, here)
    if link:
        found["link"] = link
    errors = _errors(source, here)
    if errors:
        found["aer"] = errors
    registers = pci_config.decode(source.read_bytes(f"{here}/config", _CONFIG_BYTES) or b"")
    acs = registers.pop("acs", None)
    if acs is not None and (acs["capable"] or device.get("class", "").startswith("0604")):
        found["acs"] = acs
    found.update(registers)
    if device.get("vendor") == MELLANOX and is_network(device) and found["physfn"] is None:
        product = vpd.decode(source.read_bytes(f"{here}/vpd", vpd.LIMIT) or b"")
        if product:
            found["vpd"] = product
    return found


def _physical(source: Source, here: str) -> Optional[str]:
    at = place(source.realpath(f"{here}/physfn"))
    return at.bdf if at is not None else None


def _link(source: Source, here: str) -> dict[str, Any]:
    """Speed and width now and at most. A function without a link (`Unknown`, width 0 or 255) has none of them."""
    found: dict[str, Any] = {}
    for name, attribute in (("speed_gts", "current_link_speed"), ("max_speed_gts", "max_link_speed")):
        speed = decimal(text(source, f"{here}/{attribute}"))
        if speed:
            found[name] = speed
    for name, attribute in (("width", "current_link_width"), ("max_width", "max_link_width")):
        width = integer(source, f"{here}/{attribute}")
        if width and width < 255:
            found[name] = width
    return found


def _errors(source: Source, here: str) -> dict[str, int]:
    """Totals of the AER counters that the kernel keeps per function."""
    found: dict[str, int] = {}
    for severity in ("correctable", "nonfatal", "fatal"):
        for line in (source.read(f"{here}/aer_dev_{severity}") or "").splitlines():
            name, _, count = line.rpartition(" ")
            if name.startswith("TOTAL_ERR") and count.isdecimal():
                found[severity] = int(count)
    return found
