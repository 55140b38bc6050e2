# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain table of ``nvidia-smi``, in the layouts of all drivers, and every way in which it fails instead.

Value::

    {"smi_version", "driver_version", "cuda_version",
     "gpus": [{"index", "name", "name_truncated": true, "pci", "persistence": bool, "driver_model", "display_active",
               "ecc_uncorrected_volatile", "ecc": {"enabled"}, "mig": bool, "mig_pending": bool,
               "fan_percent", "temperature_c", "performance_state", "power_w", "power_limit_w",
               "memory_used_mib", "memory_total_mib", "utilization_percent", "compute_mode", "unreadable": [...]}],
     "mig_devices": [{"gpu", "gpu_instance_id", "compute_instance_id", "device", "memory_used_mib",
      "memory_total_mib"}],
     "processes": [{"gpu", "gpu_instance_id", "compute_instance_id", "pid", "type", "name", "used_mib"}],
     "failures": [{"kind", "text", "pci", "gpu", "library_version", "reason"}],
     "warnings": [{"kind": "inforom_corrupted"|"other", "text", "pci"}]}

Kinds of failure: see ``_nvidia_failures``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    first_output,
    integer,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_failures import bus_id, failures
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_gpu import (
    boolean,
    is_absent,
    is_failed,
    quantity,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_VERSIONS = (
    ("smi_version", re.compile(r"NVIDIA-SMI (\d+(?:\.\d+)+)")),
    ("driver_version", re.compile(r"(?:Driver Version|KMD Version): (\d+(?:\.\d+)+)")),
    ("cuda_version", re.compile(r"CUDA (?:UMD )?Version: (\d+(?:\.\d+)+)")),
)
_ONCE = re.compile(r"^\s*\|\s*(NVIDIA-SMI)\s")
_BUS = re.compile(r"^\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])(?:\s+(\S+))?\s*$")
_NAME = re.compile(r"^\s*(\d+)\s+(\S.*?)(?:\s+(On|Off|N/A|ERR!|Enabled|Disabled|WDDM|TCC|MCDM))?\s*$")
_STATUS = re.compile(
    r"^\s*(N/A|ERR!|\d+%|\S+)\s+(N/A|ERR!|\d+C|\S+)\s+(N/A|ERR!|P\d+|\S+)\s+"
    r"(N/A|ERR!|\d+W)\s*/\s*(N/A|ERR!|\d+W)\s*$"
)
_MEMORY = re.compile(r"^\s*(\d+MiB|N/A|ERR!|Unknown Error)\s*/\s*(\d+MiB|N/A|ERR!|Unknown Error)\s*$")
_USE = re.compile(r"^\s*(\d+%|N/A|ERR!)\s+(\S.*?)\s*$")
_COMPUTE_MODES = ("Default", "E. Process", "E. Thread", "Prohibited", "N/A", "ERR!")
_MIG_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$")
_PROCESS = re.compile(
    r"^\|\s+(\d+)(?:\s+(N/A|\d+)\s+(N/A|\d+))?\s+(\d+)\s+([CGM+]{1,5})\s+(\S.*?)\s+(\d+MiB|N/A|\[?Insufficient"
    r" Permissions\]?)\s*\|$"
)


def parse(text: str) -> Parsed:
    """Read what ``nvidia-smi`` without arguments printed."""
    problems = Problems()
    lines = list(first_output(read_lines(text, problems, barriers=True), _ONCE, problems))
    failed, warned, used = failures(lines, problems)
    reader = _Reader(problems)
    for line in lines:
        if line.number not in used and not line.blank:
            reader.read(line)
    value = reader.result()
    if not reader.table and not failed:
        problems.add("There is no table of nvidia-smi in this text.", text=lines[0].text if lines else "")
    return problems.result({**value, "failures": failed, "warnings": warned})


class _Reader:
    """Which of the three tables a line stands in decides how it is read."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.table = False
        self.part = "gpus"
        self.value: dict[str, Any] = {"gpus": [], "mig_devices": [], "processes": []}
        self.gpu: dict[str, Any] | None = None
        self.row = 0
        self.mig: dict[str, Any] | None = None

    def read(self, line: Line) -> None:
        text = line.text.strip()
        if line.damaged:
            # Lines of one GPU belong together; with one of them spoiled the others have no owner.
            self.gpu = self.mig = None
            return
        if text[0] in "+|" and len(text) > 2 and set(text) <= set("+-=|"):
            self.gpu = self.mig = None
            return
        if not (text.startswith("|") and text.endswith("|") and len(text) > 2):
            # A row is whole when its right border is there.
            if text.startswith("|"):
                self.gpu = self.mig = None
                self.problems.cut(line) if not line.terminated else self.problems.add(
                    "The row has no right border.", line
                )
            elif not line.terminated and not text.startswith("+"):
                self.problems.cut(line)
            return
        if "NVIDIA-SMI" in text:
            self._versions(text)
        elif re.match(r"^\|\s*MIG devices:", text):
            self.part = "mig"
        elif re.match(r"^\|\s*(?:Processes:|Compute processes:)", text):
            self.part = "processes"
        elif self.part == "gpus":
            self._gpu_row(text[1:-1].split("|"), line)
        elif self.part == "mig":
            self._mig_row(text[1:-1].split("|"))
        else:
            self._process(text, line)

    def _versions(self, text: str) -> None:
        self.table = True
        for key, pattern in _VERSIONS:
            match = pattern.search(text)
            if match:
                self.value[key] = match.group(1)

    def _gpu_row(self, cells: list[str], line: Line) -> None:
        if len(cells) != 3:
            return
        bus = _BUS.match(cells[1])
        name = _NAME.match(cells[0])
        if bus and name:
            self.table = True
            self._identity(name, bus, cells[2], line)
        elif self.gpu is not None and self.row == 1:
            self.row = 2
            self._status(cells, line)
        elif self.gpu is not None and self.row == 2 and not cells[0].strip() and not cells[1].strip():
            word = cells[2].strip()
            self.row = 3
            self._flag("mig", word, line)
        elif bus or (name and self.gpu is None and re.match(r"^\s*\d+\s+\S.*(?:On|Off)\s*$", cells[0])):
            self.problems.add("This row of a GPU is not readable.", line)

    def _identity(self, name: re.Match[str], bus: re.Match[str], ecc: str, line: Line) -> None:
        gpu: dict[str, Any] = {"index": int(name.group(1)), "name": name.group(2), "pci": bus_id(bus.group(1))}
        self.gpu, self.row = gpu, 1
        self.value["gpus"].append(gpu)
        if is_failed(gpu["name"]):
            self._unreadable("name", gpu.pop("name"), line)
        elif gpu["name"].endswith("..."):
            gpu["name_truncated"] = True
        mode = name.group(3) or ""
        if mode in ("WDDM", "TCC", "MCDM"):
            gpu["driver_model"] = mode
        else:
            self._flag("persistence", mode, line)
        self._flag("display_active", bus.group(2) or "", line)
        word = ecc.strip()
        count = integer(word)
        if count is not None:
            gpu["ecc_uncorrected_volatile"] = count
        elif word in ("Off", "Disabled"):
            gpu["ecc"] = {"enabled": False}
        elif word in ("On", "Enabled"):
            # With MIG the counters are those of its devices; the cell only says that MIG is on.
            gpu["mig"] = True
        elif is_failed(word):
            self._unreadable("ecc_uncorrected_volatile", word, line)
        elif not is_absent(word):
            self.problems.add(f"The ECC cell of GPU {gpu['index']} is {word!r}.", line)

    def _flag(self, key: str, word: str, line: Line) -> None:
        if self.gpu is None or is_absent(word):
            return
        # MIG's star: the mode changes with the next reset.
        value = boolean(word.rstrip("*"))
        if value is not None:
            self.gpu[key] = value
            if word.endswith("*"):
                self.gpu[f"{key}_pending"] = not value
        elif is_failed(word):
            self._unreadable(key, word, line)
        else:
            self.problems.add(f"The {key} cell of GPU {self.gpu['index']} is {word!r}.", line)

    def _unreadable(self, key: str, word: str, line: Line) -> None:
        if self.gpu is not None:
            self.gpu.setdefault("unreadable", []).append(key)
            self.problems.add(f"nvidia-smi could not read {key} of GPU {self.gpu['index']}: {word}.", line)

    def _quantity(self, key: str, word: str, unit: str, line: Line) -> None:
        if self.gpu is None or is_absent(word):
            return
        value = None if is_failed(word) else quantity(word, unit)
        if value is not None:
            self.gpu[key] = float(value) if unit == "W" else value
        else:
            self._unreadable(key, word, line)

    def _status(self, cells: list[str], line: Line) -> None:
        if self.gpu is None:
            return
        status = _STATUS.match(cells[0])
        if status:
            fan, temperature, state, power, limit = status.groups()
            self._quantity("fan_percent", fan, "%", line)
            self._quantity("temperature_c", temperature, "C", line)
            if re.match(r"^P\d+$", state):
                self.gpu["performance_state"] = state
            elif is_failed(state):
                self._unreadable("performance_state", state, line)
            self._quantity("power_w", power, "W", line)
            self._quantity("power_limit_w", limit, "W", line)
        else:
            self.problems.add(f"Fan, temperature and power of GPU {self.gpu['index']} are not readable.", line)
        memory = _MEMORY.match(cells[1])
        if memory:
            self._quantity("memory_used_mib", memory.group(1), "MiB", line)
            self._quantity("memory_total_mib", memory.group(2), "MiB", line)
        elif not is_absent(cells[1]):
            self.problems.add(f"The memory use of GPU {self.gpu['index']} is not readable.", line)
        use = _USE.match(cells[2])
        if use:
            self._quantity("utilization_percent", use.group(1), "%", line)
            if use.group(2) in _COMPUTE_MODES[:4]:
                self.gpu["compute_mode"] = use.group(2)
        elif not is_absent(cells[2]):
            self.problems.add(f"The utilisation of GPU {self.gpu['index']} is not readable.", line)

    def _mig_row(self, cells: list[str]) -> None:
        if len(cells) < 2:
            return
        ids = _MIG_ROW.match(cells[0])
        memory = _MEMORY.match(cells[1])
        if ids:
            self.mig = {
                "gpu": int(ids.group(1)),
                "gpu_instance_id": int(ids.group(2)),
                "compute_instance_id": int(ids.group(3)),
                "device": int(ids.group(4)),
            }
            self.value["mig_devices"].append(self.mig)
            if memory:
                for key, word in zip(("memory_used_mib", "memory_total_mib"), memory.groups()):
                    if quantity(word, "MiB") is not None:
                        self.mig[key] = quantity(word, "MiB")

    def _process(self, text: str, line: Line) -> None:
        match = _PROCESS.match(text)
        if not match:
            if re.match(r"^\|\s+\d+\s.*\d", text):
                self.problems.add("This row of a process is not readable.", line)
            return
        gpu, instance, compute, pid, kind, name, used = match.groups()
        process: dict[str, Any] = {"gpu": int(gpu), "pid": int(pid), "type": kind, "name": name}
        for key, word in (("gpu_instance_id", instance), ("compute_instance_id", compute)):
            if word and integer(word) is not None:
                process[key] = integer(word)
        if quantity(used, "MiB") is not None:
            process["used_mib"] = quantity(used, "MiB")
        self.value["processes"].append(process)

    def result(self) -> dict[str, Any]:
        if self.table and self.part != "processes":
            self.problems.add("The text ends before the table of processes, so GPUs may be missing from it.")
        return self.value
