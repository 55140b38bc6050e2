# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How nvidia-smi says that it failed, or that a GPU is sick; any of its subcommands may print these lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Line, Problems, pci_address

# kind → pattern; the first that matches names the failure.
_FAILURES = (
    ("driver_library_mismatch", r"Driver/library version mismatch"),
    ("smi_library_mismatch", r"Mismatch in versions between nvidia-smi and NVML"),
    (
        "library_not_found",
        r"couldn'?t find (?:the )?libnvidia-ml|NVML: (?:NVML )?Shared Library (?:couldn'?t be )?Not Found"
        r"|libnvidia-ml\.so.*(?:cannot open|not found)",
    ),
    (
        "driver_not_loaded",
        r"couldn'?t communicate with the NVIDIA driver|NVML: Driver Not Loaded"
        r"|NVML: Driver is not loaded",
    ),
    (
        "insufficient_permissions",
        r"NVML: Insufficient Permissions|do not have permission to communicate with the NVIDIA driver",
    ),
    ("blocked_by_operating_system", r"GPU access blocked by the operating system"),
    ("initialize_failed", r"Failed to initialize NVML|Failed to properly initialize NVML"),
    (
        "gpu_lost",
        r"Unable to determine the device handle|GPU is lost\b.*(?:Reboot|recover)|NVML: GPU is lost",
    ),
    ("gpu_requires_reset", r"GPU requires reset\b"),
    ("system_not_initialized", r"system (?:is )?not yet initiali[sz]ed"),
    ("no_devices", r"No devices (?:were )?found"),
    (
        "command_not_found",
        r"nvidia-smi\W?:? (?:command )?not found|nvidia-smi: No such file|Command .nvidia-smi. not found",
    ),
    (
        "invalid_option",
        r"Field \"[^\"]*\" is not a valid field to query|Invalid combination of input arguments"
        r"|is not a valid option",
    ),
    ("timed_out", r"nvidia-smi.*timed? ?out|timeout: (?:sending signal|failed to run).*nvidia-smi"),
    ("crashed", r"^(?:.*nvidia-smi.*)?\b(?:Segmentation fault|Bus error|Aborted|Killed)\b(?: +\(core dumped\))?"),
)
# Last words of these messages; a message that ends so is whole without a newline behind it.
_ENDS = (
    "version mismatch",
    "No devices were found",
    ": Unknown Error",
    ": Not Found",
    "Insufficient Permissions",
    "Driver Not Loaded",
    "between nvidia-smi and NVML.",
    "installed and running.",
    "by the operating system",
    "(core dumped)",
)
_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _FAILURES)

# The bus id as nvidia-smi prints it here may be malformed ("000:BA:80.0"): the trailing colon proves that it is whole.
_HANDLE = re.compile(
    r"for GPU\s*(?:\d+:\s+)?([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2}\.[0-9A-Fa-f])(?=[:\s])(?::\s*(.*))?",
    re.IGNORECASE,
)
_NUMBERED_HANDLE = re.compile(r"device handle for GPU(\d+): (\D.*)$", re.IGNORECASE)
_LIBRARY = re.compile(r"NVML library version: ([0-9][0-9.]*)\s*$")
_QUOTED_FIELD = re.compile(r"Field \"([^\"]*)\" is not a valid field")
_INFOROM = re.compile(r"WARNING:\s*infoROM is corrupted at gpu ([0-9A-Fa-f:.]+)", re.IGNORECASE)
_WHOLE_BUS_ID = re.compile(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$")


def bus_id(text: str) -> str:
    """The normalised PCI address, or the text as reported (lower case) where it is not one."""
    return pci_address(text) or text.strip().lower()


def failures(lines: Iterable[Line], problems: Problems) -> tuple[list[dict[str, Any]], list[dict[str, Any]], set[int]]:
    """(failures, warnings, numbers of the lines that hold them)."""
    failed: list[dict[str, Any]] = []
    warned: list[dict[str, Any]] = []
    used: set[int] = set()
    for line in lines:
        text = line.text.strip()
        if not text or line.damaged or text.startswith(("|", "+", "<")):
            continue
        library = _LIBRARY.search(text)
        if library and failed and failed[-1]["kind"] == "driver_library_mismatch":
            used.add(line.number)
            if line.terminated:
                failed[-1]["library_version"] = library.group(1)
            else:
                problems.cut(line)
        elif text.upper().startswith("WARNING:"):
            used.add(line.number)
            warned.append(_warning(line, problems))
        else:
            kind = _kind(text)
            if kind:
                used.add(line.number)
                failure = _failure(kind, line, problems)
                if failure:
                    failed.append(failure)
    return failed, warned, used


def _kind(text: str) -> str | None:
    for kind, pattern in _COMPILED:
        if pattern.search(text):
            # In a listing or a table these words fill one field and say nothing about the run as a whole.
            return None if kind == "gpu_requires_reset" and (" : " in text or "," in text) else kind
    return None


def _failure(kind: str, line: Line, problems: Problems) -> dict[str, Any] | None:
    text = line.text.strip()
    if not line.terminated and not text.endswith(_ENDS):
        # Words may be missing, and with them what kind of failure this is.
        problems.cut(line)
        return None
    failure: dict[str, Any] = {"kind": kind}
    handle = _HANDLE.search(text)
    numbered = None if handle else _NUMBERED_HANDLE.search(text)
    if handle:
        failure["pci"] = bus_id(handle.group(1))
    elif numbered:
        failure["gpu"] = int(numbered.group(1))
        failure["reason"] = numbered.group(2).rstrip(".")
    field = _QUOTED_FIELD.search(text)
    if field:
        failure["field"] = field.group(1)
    if handle and handle.group(2):
        failure["reason"] = handle.group(2).strip().rstrip(".")
    failure["text"] = text
    return failure


def _warning(line: Line, problems: Problems) -> dict[str, Any]:
    warning: dict[str, Any] = {"kind": "other", "text": line.text.strip()}
    inforom = _INFOROM.search(line.text)
    if inforom or "inforom" in line.text.lower():
        warning["kind"] = "inforom_corrupted"
    if inforom:
        # The function digit ends a bus id, so a whole one needs no newline behind it.
        if _WHOLE_BUS_ID.match(inforom.group(1)):
            warning["pci"] = bus_id(inforom.group(1))
        else:
            problems.add("The bus id of the warning is not whole.", line)
    elif not line.terminated:
        problems.cut(line)
    return warning
