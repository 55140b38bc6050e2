# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``fabricmanager.log``, and the lines of Fabric Manager in a journal.

Value::

    {"records": [{"time", "level": "INFO"|"ERROR"|..., "thread", "message", "details"}],
     "version", "driver_version",
     "requests": [{"kind": "team setup"|"team release", "gpus", "allocation_bytes"}],
     "errors": [text], "mismatch": {"fabric_manager_version", "driver_version", "text"}, "started": true, "stopped":
      true}

A record may go on over several lines (``Message payload details``).  ``errors`` holds records of level ERROR and worse.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Line, Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

RECORD = re.compile(r"^\[([A-Z][a-z]{2} \d{1,2} \d{4} \d\d:\d\d:\d\d)\] \[([A-Z]+)\] \[tid (\d+)\] (.*)$")
_MISMATCH = re.compile(
    r"[Ff]abric [Mm]anager (?:NVIDIA GPU driver interface )?version (\d+(?:\.\d+)+) (?:don'?t|does ?n[o']t) match with "
    r"(?:the )?driver version (\d+(?:\.\d+)+)"
)
_SETUP = re.compile(r"Team setup request: Allocation Size:([0-9a-fA-F]+) Flags:\S+ Number of GPUs:(\d+) ")
_RELEASE = re.compile(r"Team release request: Team Handle:([0-9a-fA-F]+) Flags:")
_JOURNAL = re.compile(
    r"nv-fabricmanager\[\d+\]: (.*)$|(nvidia-fabricmanager\.service: .*|(?:Started|Stopped|Failed to start)"
    r" .*[Ff]abric ?[Mm]anager.*)$"
)
_BAD = frozenset({"ERROR", "FATAL", "CRITICAL", "ALERT", "EMERGENCY"})


def parse(text: str) -> Parsed:
    """Read Fabric Manager's log or journal."""
    problems = Problems()
    reader = _Reader()
    for line in read_lines(text, problems, prompts=False, barriers=True, own=RECORD):
        if line.damaged:
            reader.record = None
        elif not line.blank and not line.terminated:
            problems.cut(line)
        elif not line.blank:
            reader.read(line)
    if not reader.seen:
        problems.add("There is no line of Fabric Manager in this text.")
    return problems.result(reader.value)


class _Reader:
    def __init__(self) -> None:
        self.seen = False
        self.record: dict[str, Any] | None = None
        self.value: dict[str, Any] = {"records": [], "requests": [], "errors": []}

    def read(self, line: Line) -> None:
        match = RECORD.match(line.text)
        journal = None if match else _JOURNAL.search(line.text)
        if match:
            self.seen = True
            time, level, thread, message = match.groups()
            self.record = {"time": time, "level": level, "thread": int(thread), "message": message.strip()}
            self.value["records"].append(self.record)
            if level in _BAD:
                self.value["errors"].append(message.strip())
        elif journal:
            self.seen = True
            self.record = None
            message = (journal.group(1) or journal.group(2)).strip()
            self.value["records"].append({"message": message})
            if re.search(r"\bfail|FAILURE|\berror\b|don'?t match", message, re.IGNORECASE):
                self.value["errors"].append(message)
        elif self.record is not None:
            self.record.setdefault("details", []).append(line.text.strip())
        self._facts(line.text)

    def _facts(self, text: str) -> None:
        mismatch = _MISMATCH.search(text)
        if mismatch:
            self.value["mismatch"] = {
                "fabric_manager_version": mismatch.group(1),
                "driver_version": mismatch.group(2),
                "text": text.strip(),
            }
        setup, release = _SETUP.search(text), _RELEASE.search(text)
        if setup:
            self.value["requests"].append(
                {"kind": "team setup", "gpus": int(setup.group(2)), "allocation_bytes": int(setup.group(1), 16)}
            )
        elif release:
            self.value["requests"].append({"kind": "team release", "team": release.group(1)})
        version = re.search(r"Fabric Manager (?:Version|version):? (\d+(?:\.\d+)+)", text)
        if version:
            self.value.setdefault("version", version.group(1))
