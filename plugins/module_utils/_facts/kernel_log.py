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
_JOURNAL = ("journalctl", "-k")
_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
COMMANDS = (_DMESG,)
#: A link that flaps for days fills the log; the last events are the ones that matter.
_LIMIT = 400


def collect(source: Source, tools: Tools) -> Optional[dict[str, Any]]:
    output = source.run(_DMESG)
    if output is None:
        return None if source.live else _kept(source, tools)
    if output.rc != 0:
        source.note("dmesg", output.stderr.strip() or f"exit status {output.rc}")
        return None
    return _last((tools.ask("dmesg", _DMESG, dmesg.parse) or {}).get("events", []))


def _kept(source: Source, tools: Tools) -> Optional[dict[str, Any]]:
    """The same messages where a recording has them from the journal or from syslog's files."""
    if source.run(_JOURNAL) is not None:
        return _last((tools.ask("journalctl -k", _JOURNAL, dmesg.parse) or {}).get("events", []))
    for path in _FILES:
        text = source.read(path)
        if text is not None:
            return _last(dmesg.parse(text).value.get("events", []))
    return None


def _last(events: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"events": events[-_LIMIT:]}
    if len(events) > _LIMIT:
        found["left_out"] = len(events) - _LIMIT
    return found
