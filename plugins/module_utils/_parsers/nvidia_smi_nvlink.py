# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi nvlink -s`` (``--status``).

Value::

    {"gpus": [{"index", "name", "uuid", "links": [{"link", "active": bool, "speed_gbytes_s"}], "note"}],
     "failures": [...], "warnings": [...]}

The text is empty on a machine whose GPUs have no NVLink.  The printed speed is the raw signalling rate of one
direction.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_failures import failures
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers.nvidia_smi_list import GPU

# "GB/s" and ">" end a link's line, so a whole one needs no newline behind it.
_LINK = re.compile(r"^\s+Link (\d+): (?:([0-9]+(?:\.[0-9]+)?) GB/s|<?(inactive|disabled|Off)>?)\s*$", re.IGNORECASE)
_NOTE = re.compile(
    r"^\s*(?:NVML: )?(Unable to retrieve NVLink .*|.*all links are in-?active.*|Not supported.*)$", re.IGNORECASE
)


def parse(text: str) -> Parsed:
    """Read the output of ``nvidia-smi nvlink -s``."""
    problems = Problems()
    lines = read_lines(text, problems, barriers=True)
    failed, warned, used = failures(lines, problems)
    gpus: list[dict[str, Any]] = []
    current: dict[str, Any] | None = None
    for line in lines:
        if line.blank or line.number in used:
            continue
        if line.damaged:
            if not line.text.lstrip("\ufffd").startswith((" ", "\t")) or line.text.startswith("\ufffd"):
                current = None
            continue
        gpu = GPU.match(line.text)
        link = _LINK.match(line.text)
        note = _NOTE.match(line.text)
        if gpu:
            current = {"index": int(gpu.group(1)), "name": gpu.group(2), "uuid": gpu.group(3), "links": []}
            gpus.append(current)
        elif link and not line.terminated and link.group(3) and not line.text.rstrip().endswith(">"):
            problems.cut(line)
        elif link and current is not None:
            entry: dict[str, Any] = {"link": int(link.group(1)), "active": link.group(2) is not None}
            if link.group(2):
                entry["speed_gbytes_s"] = float(link.group(2))
            current["links"].append(entry)
        elif note and line.terminated and current is not None:
            current["note"] = note.group(1).strip()
        elif not line.terminated:
            problems.cut(line)
        elif current is not None and line.indented:
            problems.add("This is no line of an NVLink.", line)
    if not gpus and not failed and any(not line.blank for line in lines):
        problems.add("There is no output of nvidia-smi nvlink -s in this text.", text=lines[0].text)
    return problems.result({"gpus": gpus, "failures": failed, "warnings": warned})
