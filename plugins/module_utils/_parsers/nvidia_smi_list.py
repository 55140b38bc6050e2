# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -L``.

Value::

    {"gpus": [{"index", "name", "uuid", "mig_devices": [{"profile", "device", "uuid"}]}],
     "failures": [...], "warnings": [...]}
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems, first_output
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_failures import failures
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

# The closing parenthesis proves that the line is whole.
GPU = re.compile(r"^\s*GPU (\d+): (\S.*?)\s*\(UUID: ((?:GPU|MIG)-[^()\s]+)\)\s*$")
_ONCE = re.compile(r"^\s*(GPU \d+): ")
_GPU_NO_UUID = re.compile(r"^\s*GPU (\d+): (\S.*?)\s*$")
_MIG = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^()]+)\)\s*$")


def parse(text: str) -> Parsed:
    """Read the output of ``nvidia-smi -L``."""
    problems = Problems()
    lines = list(first_output(read_lines(text, problems, barriers=True), _ONCE, problems))
    failed, warned, used = failures(lines, problems)
    gpus: list[dict[str, Any]] = []
    current: dict[str, Any] | None = None
    for line in lines:
        if line.blank or line.number in used:
            continue
        if line.damaged:
            # A GPU's line may be among the damaged ones: what follows may not belong to the GPU before it.
            current = None
            continue
        gpu = GPU.match(line.text)
        mig = _MIG.match(line.text)
        if gpu:
            current = {"index": int(gpu.group(1)), "name": gpu.group(2), "uuid": gpu.group(3)}
            gpus.append(current)
        elif mig and current is not None:
            device = {"profile": mig.group(1), "device": int(mig.group(2)), "uuid": mig.group(3)}
            current.setdefault("mig_devices", []).append(device)
        elif not line.terminated:
            problems.cut(line)
        elif _GPU_NO_UUID.match(line.text):
            match = _GPU_NO_UUID.match(line.text)
            problems.add("The line of this GPU has no UUID.", line)
            current = {"index": int(match.group(1))} if match else None
            if current:
                gpus.append(current)
    if not gpus and not failed:
        problems.add("There is no output of nvidia-smi -L in this text.", text=lines[0].text if lines else "")
    return problems.result({"gpus": gpus, "failures": failed, "warnings": warned})
