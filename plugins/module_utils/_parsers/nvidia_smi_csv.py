# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi --query-gpu=… --format=csv[,noheader][,nounits]`` and ``--query-compute-apps`` with any set of columns.

Value::

    {"columns": ["pci.bus_id", ...],            # as queried, without units
     "gpus": [{… keys of _nvidia_gpu.FIELDS …, "clock_events", "not_available", "extra": {column: text}}],
     "processes": [{"pid", "name", "used_mib", "gpu_uuid", "pci"}],
     "retired_pages": [{column: text}], "driver_version", "count", "failures": [...], "warnings": [...]}

Without a header the columns must be given (``columns``), or only cells that speak for themselves (bus id, UUID) are
read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    integer,
    pci_address,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_failures import failures
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_gpu import (
    CSV_FIELDS,
    GpuRecord,
    bare,
    is_absent,
    is_failed,
    quantity,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_COLUMN = re.compile(r"^([A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)(?: \[([A-Za-z%]+)\])?$")
# Columns whose names have no dot and no underscore: a header of these alone is still a header.
_PLAIN = frozenset(
    {"index", "name", "uuid", "serial", "count", "timestamp", "pstate", "pid", "hostname", "utilization"}
)
_APPS = frozenset({"pid", "process_name", "used_gpu_memory", "used_memory"})
_UUID = re.compile(r"^(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def parse(text: str, columns: Sequence[str] | None = None) -> Parsed:
    """Read a CSV answer; ``columns`` are the names given to ``--query-gpu`` when there is no header."""
    problems = Problems()
    lines = read_lines(text, problems, barriers=True)
    failed, warned, used = failures(lines, problems)
    value: dict[str, Any] = {"columns": [], "gpus": [], "processes": [], "failures": failed, "warnings": warned}
    names = [re.sub(r" \[[A-Za-z%]+\]$", "", name.strip()) for name in columns or ()]
    titled: list[str] = []
    lost = False
    rows = 0
    for line in lines:
        if line.blank or line.number in used:
            continue
        if line.damaged:
            lost = True
            continue
        header = _header(line.text)
        if header and (not titled or _known(header)):
            # Further down: a loop that prints its header again, or another query.
            if not line.terminated:
                problems.cut(line)
                break
            names, titled = header, titled or header
            continue
        cells = [cell.strip() for cell in line.text.split(",")]
        if names and len(cells) >= len(names) > 0:
            cells = _join(cells, names)
        if names and len(cells) == len(names) and (len(names) > 1 or _plausible(names[0], cells[0])):
            rows += 1
            _row(names, cells, line, value, problems)
        elif names and not line.terminated:
            problems.cut(line)
            _row(names, [*cells[:-1]], line._replace(terminated=True), value, problems, partial=True)
        elif names and rows:
            problems.add(f"The row has {len(cells)} cells, the header {len(names)}.", line)
        elif not names and not lost and _nameless(cells, line, value, problems):
            rows += 1
    value["columns"] = titled or names
    # Asked for processes, an idle machine answers with the header alone.
    idle = "pid" in (names or ()) and lines[-1].terminated
    idle = idle or ("retired_pages.address" in (names or ()) and lines[-1].terminated)
    if not rows and not failed and not value["gpus"] and not idle:
        reason = (
            "The answer has a header but no row." if names else "There is no CSV answer of nvidia-smi in this text."
        )
        problems.add(reason, text=lines[0].text if lines else "")
    return problems.result(value)


def _header(text: str) -> list[str] | None:
    """The column names when the line is a header."""
    names = []
    for cell in text.split(","):
        match = _COLUMN.match(cell.strip())
        if not match:
            return None
        names.append(match.group(1))
    telling = sum(1 for name in names if name in _PLAIN or "." in name or "_" in name)
    return names if telling and (telling == len(names) or len(names) > 2) else None


def _known(names: list[str]) -> bool:
    """Whether these are columns rather than cells that look like some (``python3.10``)."""
    known = sum(1 for name in names if name in CSV_FIELDS or name in _PLAIN or name in _APPS)
    return 2 * known > len(names)


def _join(cells: list[str], names: list[str]) -> list[str]:
    """Names of processes may hold commas: give the surplus back to that column."""
    surplus = len(cells) - len(names)
    wide = next((n for n, name in enumerate(names) if name in ("process_name", "name", "gpu_name")), None)
    if surplus <= 0 or wide is None:
        return cells
    return [*cells[:wide], ", ".join(cells[wide : wide + surplus + 1]), *cells[wide + surplus + 1 :]]


def _plausible(name: str, cell: str) -> bool:
    """Whether a lone cell can be of its column: a banner's line has no comma either."""
    if name in ("driver_version", "vbios_version"):
        return bool(re.match(r"^[0-9A-F][0-9A-Fa-f.]+$", cell)) or is_absent(cell) or is_failed(cell)
    field = CSV_FIELDS.get(name)
    if field and field.kind == "text":
        return True
    return bool(re.match(r"^[\w.:%+/\[\] -]+$", cell))


def _whole(name: str, cell: str) -> bool:
    """Whether a cell at the end of a cut text proves that it is whole."""
    bracketed = cell.startswith("[") and cell.endswith("]")
    if bracketed or re.search(r"\d (?:MiB|W|%|us|MHz)$", cell) or _UUID.match(cell):
        return True
    return name == "pci.bus_id" and pci_address(cell) is not None


def _row(
    names: list[str], cells: list[str], line: Line, value: dict[str, Any], problems: Problems, partial: bool = False
) -> None:
    pairs = list(zip(names, cells))
    # The last cell may be cut; a closing bracket or a unit proves that it is whole.
    if not line.terminated and not _whole(names[-1], cells[-1]):
        problems.cut(line)
        pairs.pop()
    if _APPS & set(names) and "pid" in names:
        _process(pairs, line, value, problems)
    elif "retired_pages.address" in names:
        # A row for each page, not for each GPU.
        value.setdefault("retired_pages", []).append({name: cell for name, cell in pairs if not is_absent(cell)})
    else:
        _gpu(pairs, line, value, problems)


def _gpu(pairs: list[tuple[str, str]], line: Line, value: dict[str, Any], problems: Problems) -> None:
    record = GpuRecord(problems)
    for name, cell in pairs:
        if name == "driver_version":
            if not is_absent(cell) and not is_failed(cell):
                value.setdefault("driver_version", cell)
                record.extra[name] = cell
            continue
        if name == "count":
            count = integer(cell)
            if count is not None:
                value["count"] = count
            continue
        field = CSV_FIELDS.get(name)
        if field:
            record.put(field, cell, line, name)
        elif name.startswith(("clocks_event_reasons.", "clocks_throttle_reasons.")):
            record.clock_event(name.partition(".")[2], cell)
            record.keep(name, cell)
        elif name.startswith("fabric.health."):
            record.fabric_health(name.rpartition(".")[2], cell)
        elif is_failed(cell):
            record.notice(cell)
            problems.add(f"nvidia-smi could not read {name}: {cell}.", line)
        else:
            record.keep(name, cell)
    result = record.result()
    if result:
        value["gpus"].append(result)
    value["failures"].extend(record.failures())


def _process(pairs: list[tuple[str, str]], line: Line, value: dict[str, Any], problems: Problems) -> None:
    process: dict[str, Any] = {}
    for name, cell in pairs:
        if is_absent(cell) or is_failed(cell):
            continue
        if name == "pid":
            process["pid"] = integer(cell)
        elif name in ("process_name", "name"):
            process["name"] = cell
        elif name in ("used_gpu_memory", "used_memory"):
            process["used_mib"] = quantity(cell, "MiB")
        elif name in ("gpu_bus_id", "pci.bus_id"):
            process["pci"] = pci_address(cell)
        elif name == "gpu_uuid":
            process["gpu_uuid"] = cell
        elif name == "gpu_name":
            process["gpu_name"] = cell
        elif name in ("gpu_serial", "serial"):
            process["gpu_serial"] = cell
    bad = [key for key, item in process.items() if item is None]
    for key in bad:
        problems.add(f"The {key} of this process is not readable.", line)
        del process[key]
    if process:
        value["processes"].append(process)


def _nameless(cells: list[str], line: Line, value: dict[str, Any], problems: Problems) -> bool:
    """A row without column names: only what speaks for itself."""
    gpu: dict[str, Any] = {}
    whole = cells if line.terminated else cells[:-1]
    for cell in whole:
        if pci_address(cell) and re.match(r"^[0-9A-Fa-f]{4,8}:", cell):
            gpu["pci"] = pci_address(cell)
        elif _UUID.match(cell):
            gpu["uuid"] = cell
    if not gpu:
        return False
    if integer(whole[0]) is not None:
        gpu["index"] = integer(whole[0])
    gpu["extra"] = {"cells": [bare(cell) for cell in whole]}
    problems.add("The answer has no header and the queried columns are not known; only bus ids and UUIDs were read.")
    if not line.terminated:
        problems.cut(line)
    value["gpus"].append(gpu)
    return True
