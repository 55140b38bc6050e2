# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one vocabulary of a GPU, whichever form of nvidia-smi it was read from.

``FIELDS`` says for every value of a GPU where ``-q -x`` (element path), ``-q`` (label path) and ``--query-gpu``
(column)
keep it and of what type it is; ``GpuRecord`` turns the tool's cells into typed values.  A cell that says "not
applicable" leaves its key absent (named in ``not_available``); a cell that says "I failed" (``ERR!``) is a problem.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Problems,
    integer,
    number,
    pci_address,
)

_ABSENT = frozenset(
    {
        "",
        "n/a",
        "not supported",
        "not available",
        "not found",
        "requested functionality has been deprecated",
        "unknown",
        "-",
    }
)
_FAILED = frozenset(
    {
        "err!",
        "error",
        "unknown error",
        "gpu is lost",
        "insufficient permissions",
        "gpu requires reset",
        "function not found",
        "timeout",
        "driver not loaded",
        "in use",
    }
)


def bare(text: str) -> str:
    """The cell without blanks and without the brackets that CSV puts around non-values."""
    text = text.strip()
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def is_absent(text: str) -> bool:
    return bare(text).lower() in _ABSENT


def is_failed(text: str) -> bool:
    return bare(text).lower() in _FAILED


# --query-remapped-rows prints its switches as numbers.
_TRUE = frozenset({"enabled", "yes", "on", "active", "true", "1"})
_FALSE = frozenset({"disabled", "no", "off", "not active", "false", "0"})
# What a cell says that stands for the state of the whole GPU.
_STATES = {"gpu is lost": "gpu_lost", "gpu requires reset": "gpu_requires_reset"}


def boolean(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def quantity(text: str, unit: str = "") -> float | int | None:
    """``81559 MiB``, ``432.78 W``, ``16x``, ``5``: the number, when the unit is the expected one or absent."""
    match = re.match(r"^([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%/]*)$", text.strip())
    if not match or match.group(2) not in ("", unit):
        return None
    return number(match.group(1)) if "." in match.group(1) else integer(match.group(1))


def device_id(text: str) -> str | None:
    """``0x233510DE`` (device, vendor) → ``10de:2335``."""
    match = re.match(r"^(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})$", text.strip())
    return f"{match.group(2)}:{match.group(1)}".lower() if match else None


def snake(label: str) -> str:
    """A label or a dotted column name as one snake_case word."""
    label = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", label.strip())
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


class Field(NamedTuple):
    key: str  # dots make nested mappings
    kind: str
    xml: tuple[str, ...]
    text: tuple[str, ...]
    csv: tuple[str, ...]


def _f(key: str, kind: str, xml: str = "", text: str = "", csv: str = "") -> Field:
    return Field(key, kind, *(tuple(part for part in places.split("|") if part) for places in (xml, text, csv)))


_LINK = "pci/pci_gpu_link_info/pcie_gen/"
_GEN = "PCI/GPU Link Info/PCIe Generation/"

FIELDS: tuple[Field, ...] = (
    _f("index", "int", csv="index"),
    _f("pci", "pci", "pci/pci_bus_id", "PCI/Bus Id", "pci.bus_id|gpu_bus_id"),
    _f("name", "text", "product_name", "Product Name", "name|gpu_name"),
    _f("uuid", "text", "uuid", "GPU UUID", "uuid|gpu_uuid"),
    _f("serial", "text", "serial", "Serial Number", "serial|gpu_serial"),
    _f("brand", "text", "product_brand", "Product Brand"),
    _f("architecture", "text", "product_architecture", "Product Architecture"),
    _f("device_id", "device_id", "pci/pci_device_id", "PCI/Device Id", "pci.device_id"),
    _f("subsystem_id", "device_id", "pci/pci_sub_system_id", "PCI/Sub System Id", "pci.sub_device_id"),
    _f("minor_number", "int", "minor_number", "Minor Number"),
    _f("module_id", "int", "gpu_module_id|platformInfo/module_id", "Module ID|GPU Module ID|Platform Info/Module Id"),
    _f("vbios", "text", "vbios_version", "VBIOS Version", "vbios_version"),
    _f("gsp_firmware", "text", "gsp_firmware_version", "GSP Firmware Version"),
    _f("part_number", "text", "gpu_part_number", "GPU Part Number"),
    _f("board_part_number", "text", "board_part_number", "Board Part Number"),
    _f("compute_capability", "text", csv="compute_cap"),
    _f("persistence", "bool", "persistence_mode", "Persistence Mode", "persistence_mode"),
    _f("addressing_mode", "text", "addressing_mode", "Addressing Mode", "addressing_mode"),
    _f("mig", "bool", "mig_mode/current_mig", "MIG Mode/Current", "mig.mode.current"),
    _f("mig_pending", "bool", "mig_mode/pending_mig", "MIG Mode/Pending", "mig.mode.pending"),
    _f("c2c", "bool", "c2c_mode", "GPU C2C Mode", "c2c.mode"),
    _f(
        "virtualization_mode",
        "text",
        "gpu_virtualization_mode/virtualization_mode",
        "GPU Virtualization Mode/Virtualization Mode",
    ),
    _f(
        "recovery_action",
        "text",
        "gpu_recovery_action",
        "GPU Recovery Action",
        "gpu_recovery_action",
    ),
    _f(
        "reset_required",
        "bool",
        "gpu_reset_status/reset_required",
        "GPU Reset Status/Reset Required",
        "reset_status.reset_required",
    ),
    _f("compute_mode", "text", "compute_mode", "Compute Mode", "compute_mode"),
    _f("performance_state", "text", "performance_state", "Performance State", "pstate"),
    _f("memory_total_mib", "MiB", "fb_memory_usage/total", "FB Memory Usage/Total", "memory.total"),
    _f("memory_used_mib", "MiB", "fb_memory_usage/used", "FB Memory Usage/Used", "memory.used"),
    _f("memory_free_mib", "MiB", "fb_memory_usage/free", "FB Memory Usage/Free", "memory.free"),
    _f("memory_reserved_mib", "MiB", "fb_memory_usage/reserved", "FB Memory Usage/Reserved", "memory.reserved"),
    _f("bar1_total_mib", "MiB", "bar1_memory_usage/total", "BAR1 Memory Usage/Total"),
    _f("utilization_percent", "%", "utilization/gpu_util", "Utilization/GPU", "utilization.gpu"),
    _f("temperature_c", "C", "temperature/gpu_temp", "Temperature/GPU Current Temp|Temperature/GPU", "temperature.gpu"),
    _f("memory_temperature_c", "C", "temperature/memory_temp", "Temperature/Memory Current Temp", "temperature.memory"),
    _f(
        "power_w",
        "W",
        "gpu_power_readings/power_draw|power_readings/power_draw",
        "GPU Power Readings/Power Draw|Power Readings/Power Draw",
        "power.draw",
    ),
    _f(
        "average_power_w",
        "W",
        "gpu_power_readings/average_power_draw",
        "GPU Power Readings/Average Power Draw",
        "power.draw.average",
    ),
    _f(
        "instant_power_w",
        "W",
        "gpu_power_readings/instant_power_draw",
        "GPU Power Readings/Instantaneous Power Draw",
        "power.draw.instant",
    ),
    _f(
        "power_limit_w",
        "W",
        "gpu_power_readings/current_power_limit|gpu_power_readings/power_limit|power_readings/power_limit",
        "GPU Power Readings/Current Power Limit|Power Readings/Power Limit|GPU Power Readings/Power Limit",
        "power.limit",
    ),
    _f("fabric_state", "text", "fabric/state", "Fabric/State", "fabric.state"),
    _f("fabric_status", "text", "fabric/status", "Fabric/Status", "fabric.status"),
    _f("fabric_clique_id", "int", "fabric/cliqueId|fabric/clique_id", "Fabric/CliqueId", "fabric.cliqueId"),
    _f("fabric_cluster_uuid", "text", "fabric/clusterUuid", "Fabric/ClusterUUID", "fabric.clusterUuid"),
    _f("ecc.enabled", "bool", "ecc_mode/current_ecc", "ECC Mode/Current", "ecc.mode.current"),
    _f("ecc.pending", "bool", "ecc_mode/pending_ecc", "ECC Mode/Pending", "ecc.mode.pending"),
    _f("ecc.corrected_volatile", "int", csv="ecc.errors.corrected.volatile.total"),
    _f("ecc.corrected_aggregate", "int", csv="ecc.errors.corrected.aggregate.total"),
    _f("ecc.uncorrected_volatile", "int", csv="ecc.errors.uncorrected.volatile.total"),
    _f("ecc.uncorrected_aggregate", "int", csv="ecc.errors.uncorrected.aggregate.total"),
    _f(
        "ecc.sram_threshold_exceeded",
        "bool",
        "ecc_errors/aggregate/sram_threshold_exceeded",
        "ECC Errors/Aggregate/SRAM Threshold Exceeded",
    ),
    _f(
        "remapped_rows.correctable",
        "int",
        "remapped_rows/remapped_row_corr",
        "Remapped Rows/Correctable Error",
        "remapped_rows.correctable",
    ),
    _f(
        "remapped_rows.uncorrectable",
        "int",
        "remapped_rows/remapped_row_unc",
        "Remapped Rows/Uncorrectable Error",
        "remapped_rows.uncorrectable",
    ),
    _f(
        "remapped_rows.pending",
        "bool",
        "remapped_rows/remapped_row_pending",
        "Remapped Rows/Pending",
        "remapped_rows.pending",
    ),
    _f(
        "remapped_rows.failure",
        "bool",
        "remapped_rows/remapped_row_failure",
        "Remapped Rows/Remapping Failure Occurred",
        "remapped_rows.failure",
    ),
    _f(
        "retired_pages.pending",
        "bool",
        "retired_pages/pending_retirement",
        "Retired Pages/Pending Page Blacklist|Retired Pages/Pending",
        "retired_pages.pending",
    ),
    _f("pcie.generation", "int", _LINK + "current_link_gen", _GEN + "Current", "pcie.link.gen.current"),
    _f("pcie.max_generation", "int", _LINK + "max_link_gen", _GEN + "Max", "pcie.link.gen.max"),
    _f(
        "pcie.device_generation",
        "int",
        _LINK + "device_current_link_gen",
        _GEN + "Device Current",
        "pcie.link.gen.gpucurrent",
    ),
    _f("pcie.device_max_generation", "int", _LINK + "max_device_link_gen", _GEN + "Device Max", "pcie.link.gen.gpumax"),
    _f("pcie.host_max_generation", "int", _LINK + "max_host_link_gen", _GEN + "Host Max", "pcie.link.gen.hostmax"),
    _f(
        "pcie.width",
        "x",
        "pci/pci_gpu_link_info/link_widths/current_link_width",
        "PCI/GPU Link Info/Link Width/Current",
        "pcie.link.width.current",
    ),
    _f(
        "pcie.max_width",
        "x",
        "pci/pci_gpu_link_info/link_widths/max_link_width",
        "PCI/GPU Link Info/Link Width/Max",
        "pcie.link.width.max",
    ),
    _f("pcie.replays", "int", "pci/replay_counter", "PCI/Replays Since Reset"),
)

XML_FIELDS = {place: field for field in FIELDS for place in field.xml}
TEXT_FIELDS = {place.lower(): field for field in FIELDS for place in field.text}
CSV_FIELDS = {place: field for field in FIELDS for place in field.csv}


def typed(kind: str, text: str) -> Any:
    """The typed value of a cell; None when the text is not of that kind."""
    text = bare(text)
    if kind == "text":
        return text or None
    if kind == "int":
        return integer(text)
    if kind == "bool":
        return boolean(text)
    if kind == "pci":
        return pci_address(text)
    if kind == "device_id":
        return device_id(text)
    value = quantity(text, kind)
    return float(value) if kind == "W" and value is not None else value


class GpuRecord:
    """Collects the values of one GPU."""

    def __init__(self, problems: Problems, **known: Any) -> None:
        self.problems = problems
        self.values: dict[str, Any] = dict(known)
        self.not_available: list[str] = []
        self.extra: dict[str, Any] = {}
        self.clock_events: list[str] = []
        self._state: dict[str, str] = {}

    def put(self, field: Field, text: str, line: Line | None = None, where: str = "") -> None:
        """Keep one cell; the first place that has a value wins."""
        *parents, leaf = field.key.split(".")
        target = self.values
        for parent in parents:
            target = target.setdefault(parent, {})
        if leaf in target:
            return
        if is_absent(text):
            # Where a key has several places, another one may hold the value.
            if field.key not in self.not_available and len(field.xml) < 2 and len(field.text) < 2:
                self.not_available.append(field.key)
            return
        value = None if is_failed(text) else typed(field.kind, text)
        if value is None:
            what = f"{where or field.key} of GPU {self.values.get('pci') or self.values.get('index', '?')}"
            if is_failed(text):
                self.notice(text)
                reason = f"nvidia-smi could not read {what}: {text.strip()}."
            else:
                reason = f"{what} is {text.strip()!r}, which is no {field.kind}."
            self.problems.add(reason, line, text if line is None else None)
            return
        target[leaf] = value
        if field.key in self.not_available:
            self.not_available.remove(field.key)

    def notice(self, text: str) -> None:
        """A cell may say that the GPU itself is lost."""
        kind = _STATES.get(bare(text).lower())
        if kind and not self._state:
            self._state = {"kind": kind, "text": bare(text)}

    def failures(self) -> list[dict[str, Any]]:
        """The failure that the cells of this GPU tell, as ``_nvidia_failures`` has it."""
        if not self._state:
            return []
        known: dict[str, Any] = {
            name: self.values[key] for name, key in (("pci", "pci"), ("gpu", "index")) if key in self.values
        }
        return [{**self._state, **known}]

    def keep(self, name: str, text: str) -> None:
        """Keep what has no name here under the tool's own label."""
        if is_absent(text):
            return
        if name in self.extra:
            present = self.extra[name]
            self.extra[name] = [*present, text] if isinstance(present, list) else [present, text]
        else:
            self.extra[name] = text

    def clock_event(self, label: str, text: str) -> None:
        """One reason for which clocks are held down."""
        name = re.sub(r"^clocks_(?:event|throttle)_reasons?_", "", snake(label))
        name = {"gpu_idle": "idle", "display_clocks_setting": "display_clock_setting"}.get(name, name)
        if text.strip().lower() == "active" and name not in self.clock_events:
            self.clock_events.append(name)

    def fabric_health(self, label: str, text: str) -> None:
        if not is_absent(text):
            self.values.setdefault("fabric_health", {})[snake(label)] = bare(text)

    def result(self) -> dict[str, Any]:
        values = {key: value for key, value in self.values.items() if value != {}}
        if self.clock_events:
            values["clock_events"] = self.clock_events
        if self.not_available:
            values["not_available"] = sorted(self.not_available)
        if self.extra:
            values["extra"] = self.extra
        return values


def ecc_totals(counters: dict[tuple[str, str], str]) -> dict[str, int]:
    """Corrected and uncorrected totals out of the counters of ``ECC Errors``, whose names changed with the generations.

    ``counters``: (``volatile`` or ``aggregate``, counter path in snake case) → text.  A total exists only where each of
    its parts could be read.
    """
    totals: dict[str, int] = {}
    for period in ("volatile", "aggregate"):
        for word, names in (
            ("corrected", ("correctable", "single_bit")),
            ("uncorrected", ("uncorrectable", "double_bit")),
        ):
            cells = {
                name: text
                for (when, name), text in counters.items()
                if when == period
                and not is_absent(text)
                and "threshold" not in name
                and any(re.search(rf"(?:^|[_/]){part}", name) for part in names)
            }
            if any(name.endswith("/total") for name in cells):
                cells = {name: text for name, text in cells.items() if name.endswith("/total")}
            numbers = [integer(text) for text in cells.values()]
            if numbers and all(value is not None for value in numbers):
                totals[f"{word}_{period}"] = sum(value for value in numbers if value is not None)
    return totals
