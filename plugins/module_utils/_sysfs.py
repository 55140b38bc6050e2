# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""What every reader of sysfs needs: single attributes and places in the PCI tree."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["Place", "decimal", "integer", "link_name", "numa_node", "pci_sort_key", "place", "text"]

_BDF = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_ROOT = re.compile(r"^pci[0-9a-f]{4,8}:[0-9a-f]{2}$")


class Place(NamedTuple):
    """Where a device sits in the PCI tree."""

    bdf: str
    root: Optional[str]
    upstream: tuple[str, ...]
    directory: str


def text(source: Source, path: str) -> Optional[str]:
    """An attribute without its newline; None when it is absent, unreadable or empty."""
    value = source.read(path)
    return value.strip() or None if value is not None else None


def integer(source: Source, path: str) -> Optional[int]:
    """A decimal or 0x attribute; None when it is not one whole number."""
    value = text(source, path)
    if value is None:
        return None
    try:
        return int(value, 16 if value.lower().startswith("0x") else 10)
    except ValueError:
        return None


def decimal(value: Optional[str]) -> Optional[float]:
    """The leading number of an attribute such as `16.0 GT/s PCIe`."""
    match = re.match(r"\s*(\d+(?:\.\d+)?)", value or "")
    return float(match.group(1)) if match else None


def numa_node(source: Source, path: str) -> Optional[int]:
    """A NUMA node; firmware that does not tell one is recorded as -1 by the kernel, here None."""
    value = integer(source, path)
    return value if value is not None and value >= 0 else None


def link_name(source: Source, path: str) -> Optional[str]:
    """Last component of where a link leads: the driver of `…/driver`, the group of `…/iommu_group`."""
    target = source.realpath(path)
    return target.rsplit("/", 1)[1] if target and target != path else None


def place(realpath: Optional[str]) -> Optional[Place]:
    """The PCI function that a sysfs path belongs to.

    Sub-functions, virtual functions' netdevs and infiniband entries lie below their function, so the last PCI
    address on the way down is the function itself. Under VMBus the path to the host bridge is longer and its domain
    is made up by the hypervisor, but the tail looks the same.
    """
    if not realpath:
        return None
    parts = realpath.split("/")
    chain = [index for index, part in enumerate(parts) if _BDF.match(part)]
    if not chain:
        return None
    roots = [part for part in parts[: chain[0]] if _ROOT.match(part)]
    return Place(
        bdf=parts[chain[-1]],
        root=roots[-1] if roots else None,
        upstream=tuple(parts[index] for index in chain[:-1]),
        directory="/".join(parts[: chain[-1] + 1]),
    )


def pci_sort_key(bdf: str) -> tuple[int, int, int, int]:
    domain, bus, slot = bdf.split(":")
    device, function = slot.split(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)
