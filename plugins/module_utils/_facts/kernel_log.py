# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""The kernel log, as far as it concerns GPUs, RDMA and PCIe."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import dmesg
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["COMMANDS", "collect"]

_DMESG = ("dmesg",)
COMMANDS = (_DMESG,)
#: A link that flaps for days fills the log; the last events are the ones that matter.
_LIMIT = 400


def collect(source: Source, tools: Tools) -> Optional[dict[str, Any]]:
    output = source.run(_DMESG)
    if output is None:
        return None
    if output.rc != 0:
        source.note("dmesg", output.stderr.strip() or f"exit status {output.rc}")
        return None
    events = (tools.ask("dmesg", _DMESG, dmesg.parse) or {}).get("events", [])
    found: dict[str, Any] = {"events": events[-_LIMIT:]}
    if len(events) > _LIMIT:
        found["left_out"] = len(events) - _LIMIT
    return found
