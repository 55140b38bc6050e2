# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""The kernel log, as far as it concerns GPUs, RDMA and PCIe."""

from __future__ import annotations

import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect"]

_CONCERNS = re.compile(
    r"NVRM|nvidia|nouveau|nvswitch|gdrdrv|mlx[45]|infiniband|\bib_|rdma|pcieport|AER:|PCIe bandwidth|Unknown symbol"
    r"|disagrees about version|module verification|Lockdown|iommu|DMAR",
    re.IGNORECASE,
)
_LIMIT = 500


def collect(source: Source, tools: Tools) -> Optional[dict[str, Any]]:
    output = source.run(("dmesg",))
    if output is None:
        return None
    if output.rc != 0:
        source.note("dmesg", output.stderr.strip() or f"exit status {output.rc}")
        return None
    events: list[dict[str, Any]] = []
    for line in output.stdout.splitlines():
        if line[:1].isspace() and events and events[-1]["open"]:
            events[-1]["text"] += "\n" + line
        elif _CONCERNS.search(line):
            events.append({"text": line, "open": True})
        elif events:
            events[-1]["open"] = False
    return {"events": [{"text": event["text"]} for event in events[-_LIMIT:]]}
