# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Losses of links since boot that the collection's own settings brought about."""

from __future__ import annotations

from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import bounces
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect"]


def collect(source: Source) -> dict[str, Any]:
    if not source.exists(bounces.RECORD):
        return {}
    ports = bounces.of_boot(source.read(bounces.RECORD), (source.read(bounces.BOOT_ID) or "").strip())
    return {
        name: {"pci": entry.get("pci"), "downs": entry["downs"]}
        for name, entry in ports.items()
        if isinstance(entry, dict) and isinstance(entry.get("downs"), int)
    }
