# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q``, whole or in part (``-d ECC``, ``grep -A``), of any driver version.

Value::

    {"driver_version", "cuda_version", "attached_gpus",
     "gpus": [{… keys of _nvidia_gpu.FIELDS …, "clock_events": [...], "processes": [{"pid", "type", "name",
      "used_mib"}],
               "mig_devices": [{"index", "gpu_instance_id", "compute_instance_id", "memory_total_mib"}],
               "not_available": [...], "extra": {"Section/Label": text}}],
     "failures": [{"kind", "text", "pci", ...}], "warnings": [...]}

Nesting is by indentation, so a line that cannot be read hides everything that may belong to it.
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
    TEXT_FIELDS,
    GpuRecord,
    bare,
    ecc_totals,
    is_absent,
    quantity,
    snake,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_ONCE = re.compile(r"^(=+NVSMI LOG|Attached GPUs\s*:)")
_LEAF = re.compile(r"^(\s*)(\S[^:]*?)\s*: (.*)$|^(\s*)(\S[^:]*?)\s*:\s*$")
_SECTION = re.compile(r"^(\s+)(\S[^:]*?)\s*$")
_TOP = {"driver version": "driver_version", "cuda version": "cuda_version"}
_PROCESS = {"type": "type", "name": "name"}
_MIG = {"index": "index", "gpu instance id": "gpu_instance_id", "compute instance id": "compute_instance_id"}


def parse(text: str) -> Parsed:
    """Read the output of ``nvidia-smi -q``."""
    problems = Problems()
    lines = list(first_output(read_lines(text, problems, labels=("gpu",), barriers=True), _ONCE, problems))
    failed, warned, used = failures(lines, problems)
    reader = _Reader(problems)
    for line in lines:
        if line.number not in used and not line.blank:
            reader.read(line)
    value = reader.result()
    failed.extend(failure for gpu in reader.gpus for failure in gpu.record.failures())
    value["failures"], value["warnings"] = failed, warned
    if not value["gpus"] and not failed:
        problems.add("There is no output of nvidia-smi -q in this text.", text=lines[0].text if lines else "")
    attached = value.get("attached_gpus")
    if attached != len(value["gpus"]):
        # -q -i, a GPU that does not answer or a cut: the place in the list is no index.
        for gpu in value["gpus"]:
            gpu.pop("index", None)
    if attached is not None and attached > len(value["gpus"]):
        problems.add(f"nvidia-smi says that {attached} GPUs are attached, but the text describes {len(value['gpus'])}.")
    return problems.result(value)


class _Gpu:
    """One GPU under construction."""

    def __init__(self, record: GpuRecord) -> None:
        self.record = record
        self.processes: list[dict[str, Any]] = []
        self.instances: dict[str, int] = {}
        self.mig_devices: list[dict[str, Any]] = []
        self.ecc: dict[tuple[str, str], str] = {}
        # Sums over a section are made only when all of it was seen.
        self.ecc_closed = False
        self.damaged = False

    def result(self) -> dict[str, Any]:
        if self.ecc_closed and not self.damaged:
            for key, total in ecc_totals(self.ecc).items():
                self.record.values.setdefault("ecc", {}).setdefault(key, total)
        values = self.record.result()
        if self.processes:
            values["processes"] = self.processes
        if self.mig_devices:
            values["mig_devices"] = self.mig_devices
        return values


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.top: dict[str, Any] = {}
        self.gpus: list[_Gpu] = []
        self.gpu: _Gpu | None = None
        self.log = False  # a first line of the tool was seen: text before it is a banner
        self.lost = False  # the line that named the GPU could not be read
        self.stack: list[tuple[int, str | None]] = []

    def read(self, line: Line) -> None:
        indent = len(line.text) - len(line.text.lstrip(" \t"))
        if line.damaged:
            self._barrier(indent)
            return
        header = _GPU.match(line.text)
        if header:
            self._start(header.group(1))
            return
        if indent == 0 and line.text.startswith("GPU ") and ":" in line.text and " : " not in line.text:
            self.problems.cut(line) if not line.terminated else self.problems.add("This names no GPU.", line)
            self._barrier(0)
            return
        leaf = _LEAF.match(line.text)
        section = None if leaf else _SECTION.match(line.text)
        if leaf:
            label = leaf.group(2) if leaf.group(2) is not None else leaf.group(5)
            if not line.terminated:
                self.problems.cut(line)
            elif indent == 0:
                self._top(label, leaf.group(3) or "")
            else:
                self._leaf(indent, label, (leaf.group(3) or "").strip(), line)
        elif section:
            if not line.terminated:
                self.problems.cut(line)
            else:
                self._section(indent, section.group(2))
        elif not line.terminated:
            self.problems.cut(line)

    def _barrier(self, indent: int) -> None:
        """A line that cannot be read: whatever is deeper than it may belong to it."""
        if self.gpu is not None:
            self.gpu.damaged = True
        if indent < 4:
            self.gpu, self.lost = None, True
        self._push(indent, None)

    def _start(self, address: str) -> None:
        self.gpu = _Gpu(GpuRecord(self.problems, index=len(self.gpus), pci=bus_id(address)))
        if self.lost:
            # A GPU before this one may be hidden, so its place in the list is unknown.
            self.gpu.record.values.pop("index")
        self.gpus.append(self.gpu)
        self.stack = []

    def _push(self, indent: int, label: str | None) -> None:
        while self.stack and self.stack[-1][0] >= indent:
            self.stack.pop()
        self.stack.append((indent, label))

    def _top(self, label: str, text: str) -> None:
        key = _TOP.get(label.lower())
        if key and not is_absent(text) and key not in self.top:
            self.top[key] = bare(text)
        elif label.lower() == "attached gpus" and integer(text) is not None:
            self.top["attached_gpus"] = integer(text)

    def _current(self) -> _Gpu | None:
        if self.gpu is None and not self.lost and not self.gpus:
            # A fragment (`-q | grep -A3 Fabric`) of a GPU that it does not name.
            self.problems.add("The values stand there without the GPU they belong to.")
            self.gpu = _Gpu(GpuRecord(self.problems))
            self.gpus.append(self.gpu)
        return self.gpu

    def _section(self, indent: int, label: str) -> None:
        if self.gpu is None and (self.lost or indent < 4):
            return
        self._close_ecc(indent, label)
        self._push(indent, label)
        if label.lower() == "mig device" and self.gpu is not None and indent == 4:
            self.gpu.mig_devices.append({})

    def _close_ecc(self, indent: int, label: str) -> None:
        if self.gpu is not None and self.gpu.ecc and indent == 4 and label.lower() != "ecc errors":
            self.gpu.ecc_closed = True

    def _leaf(self, indent: int, label: str, text: str, line: Line) -> None:
        if self.gpu is None and (self.lost or indent < 4):
            return
        gpu = self._current()
        if gpu is None:
            return
        self._close_ecc(indent, label)
        self._push(indent, label)
        labels = [name for _indent, name in self.stack]
        if None in labels or (indent >= 8 and len(labels) == 1):
            return
        path = [str(name) for name in labels]
        place = "/".join(path)
        head = path[0].lower()
        field = TEXT_FIELDS.get(place.lower())
        if field:
            gpu.record.put(field, text, line, place)
        elif head == "mig device":
            self._mig(gpu, path, text)
        elif head == "processes":
            self._process(gpu, path, text)
        elif head in ("clocks event reasons", "clocks throttle reasons"):
            gpu.record.clock_event(label, text)
            gpu.record.notice(text)
        elif head == "fabric" and len(path) == 3:
            gpu.record.fabric_health(label, text)
        elif head == "ecc errors" and len(path) > 2:
            gpu.ecc[(path[1].lower(), "/".join(snake(part) for part in path[2:]))] = text
            gpu.record.keep(place, text)
        else:
            gpu.record.notice(text)
            gpu.record.keep(place, text)

    @staticmethod
    def _mig(gpu: _Gpu, path: list[str], text: str) -> None:
        if not gpu.mig_devices:
            return
        device = gpu.mig_devices[-1]
        key = _MIG.get(path[-1].lower()) if len(path) == 2 else None
        if key and integer(text) is not None:
            device[key] = integer(text)
        elif [part.lower() for part in path[1:]] == ["fb memory usage", "total"] and quantity(text, "MiB") is not None:
            device["memory_total_mib"] = quantity(text, "MiB")

    @staticmethod
    def _process(gpu: _Gpu, path: list[str], text: str) -> None:
        label = path[-1].lower()
        if label in ("gpu instance id", "compute instance id"):
            if integer(text) is not None:
                gpu.instances[snake(label)] = int(integer(text) or 0)
        elif label == "process id":
            pid = integer(text)
            gpu.processes.append({"pid": pid, **gpu.instances} if pid is not None else dict(gpu.instances))
            gpu.instances = {}
        elif len(path) > 2 and gpu.processes:
            if label in _PROCESS and not is_absent(text):
                gpu.processes[-1][_PROCESS[label]] = text
            elif label == "used gpu memory" and quantity(text, "MiB") is not None:
                gpu.processes[-1]["used_mib"] = quantity(text, "MiB")

    def result(self) -> dict[str, Any]:
        return {**self.top, "gpus": [gpu.result() for gpu in self.gpus]}
