# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q -x`` of every schema (``nvsmi_device_v8`` to ``v13``); a document that ends early gives what it
closed.

The value has the shape of ``nvidia_smi_q``, plus ``schema`` ("v12").
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    REPLACEMENT,
    Parsed,
    Problems,
    integer,
    split_lines,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_failures import bus_id, failures
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_gpu import (
    XML_FIELDS,
    GpuRecord,
    bare,
    ecc_totals,
    is_absent,
    quantity,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import decoded

_ROOT = "nvidia_smi_log"
_OPEN = re.compile(r"<\?xml|<!DOCTYPE nvidia_smi_log|<nvidia_smi_log[\s>]")
_SCHEMA = re.compile(r"nvsmi_device_(v\d+)\.dtd")
# Lists of every clock a GPU can run at: hundreds of values that no one asks for.
_SKIPPED = ("supported_clocks", "accounted_processes", "processes", "mig_devices", "supported_gpu_target_temp")
# Characters that XML 1.0 does not allow at all.
_FORBIDDEN = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def parse(text: str) -> Parsed:
    """Read the output of ``nvidia-smi -q -x``."""
    problems = Problems()
    value: dict[str, Any] = {"gpus": []}
    lines = split_lines(decoded(text))
    source = "\n".join(line.text for line in lines)
    start = _OPEN.search(source)
    end = source.find(f"</{_ROOT}>")
    outside = source[: start.start()] if start else source
    if end >= 0:
        outside += source[end + len(_ROOT) + 3 :]
    # The last line outside the document may be cut; one inside it has no say here.
    failing = [line for line in lines if line.text and line.text in outside]
    value["failures"], value["warnings"], _used = failures(failing, problems)
    if not start:
        if not value["failures"]:
            problems.add("There is no output of nvidia-smi -q -x in this text.", text=source[:80])
        return problems.result(value)
    document = source[start.start() : end + len(_ROOT) + 3] if end >= 0 else source[start.start() :]
    _read(document, value, problems)
    return problems.result(value)


def _read(document: str, value: dict[str, Any], problems: Problems) -> None:
    if "<!ENTITY" in document:
        problems.add("The document defines entities, which nvidia-smi never does; it was not read.", text="<!ENTITY")
        return
    schema = _SCHEMA.search(document)
    if schema:
        value["schema"] = schema.group(1)
    root, closed = _elements(_FORBIDDEN.sub(REPLACEMENT, document), problems)
    if root is None or root.tag != _ROOT:
        problems.add("The document is not that of nvidia-smi.", text=document[:80])
        return
    for key in ("driver_version", "cuda_version"):
        element = root.find(key)
        if element is not None and element in closed and _trusted(element, problems) and not is_absent(_text(element)):
            value[key] = bare(_text(element))
    attached = root.find("attached_gpus")
    count = integer(_text(attached)) if attached is not None and attached in closed else None
    if count is not None:
        value["attached_gpus"] = count
    for index, element in enumerate(root.findall("gpu")):
        gpu, failed = _gpu(element, index, closed, problems)
        value["gpus"].append(gpu)
        value["failures"].extend(failed)
    if count != len(value["gpus"]):
        # -q -i, a GPU that does not answer or a cut: the place in the list is no index.
        for gpu in value["gpus"]:
            gpu.pop("index", None)
    if count is not None and count > len(value["gpus"]):
        problems.add(
            f"nvidia-smi says that {count} GPUs are attached, but the document describes {len(value['gpus'])}."
        )


def _elements(document: str, problems: Problems) -> tuple[Element | None, set[Element]]:
    """The root and every element that was closed before the document ended or stopped being XML."""
    parser: Any = XMLPullParser(events=("start", "end"))
    root: Element | None = None
    closed: set[Element] = set()
    reason = ""
    try:
        parser.feed(document)
        parser.close()
    except ParseError as error:
        reason = f"The document ends early or is damaged ({error}); only what was closed before is read."
    try:
        for event, element in parser.read_events():
            if event == "start" and root is None:
                root = element
            elif event == "end":
                closed.add(element)
    except ParseError:
        pass  # the same error again, already in ``reason``
    if reason:
        problems.add(reason, text=document[-80:])
    return root, closed


def _text(element: Element) -> str:
    return (element.text or "").strip()


def _trusted(element: Element, problems: Problems) -> bool:
    damaged = REPLACEMENT in (element.text or "") or REPLACEMENT in element.tag
    if damaged:
        problems.add(
            "The element holds bytes that are not text, so it cannot be trusted.", text=f"<{element.tag}>{element.text}"
        )
    return not damaged


def _gpu(
    element: Element, index: int, closed: set[Element], problems: Problems
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    identity = element.get("id") or ""
    record = GpuRecord(problems, index=index)
    if identity and REPLACEMENT not in identity:
        record.values["pci"] = bus_id(identity)
    ecc: dict[tuple[str, str], str] = {}
    damaged = _leaves(element, "", closed, record, ecc, problems)
    section = element.find("ecc_errors")
    if section is not None and section in closed and not damaged:
        for key, total in ecc_totals(ecc).items():
            record.values.setdefault("ecc", {}).setdefault(key, total)
    values = record.result()
    for key, items in (("processes", _processes(element, closed)), ("mig_devices", _mig_devices(element, closed))):
        if items:
            values[key] = items
    return values, record.failures()


def _leaves(
    parent: Element,
    path: str,
    closed: set[Element],
    record: GpuRecord,
    ecc: dict[tuple[str, str], str],
    problems: Problems,
) -> bool:
    """Hand every closed leaf to the record; True when one of them could not be trusted.

    nvidia-smi never mixes text and elements: text between elements is what a spoiled tag leaves, and behind it nesting
    means nothing any more.
    """
    if len(parent) and _text(parent):
        return True
    damaged = False
    for child in parent:
        place = f"{path}{child.tag}"
        if len(child) and child.tag not in _SKIPPED:
            damaged |= _leaves(child, place + "/", closed, record, ecc, problems)
        elif child in closed and child.tag not in _SKIPPED:
            if _trusted(child, problems):
                _leaf(place, _text(child), record, ecc)
            else:
                damaged = True
        if (child.tail or "").strip():
            return True
    return damaged


def _leaf(place: str, text: str, record: GpuRecord, ecc: dict[tuple[str, str], str]) -> None:
    head, _slash, rest = place.partition("/")
    field = XML_FIELDS.get(place)
    if field:
        record.put(field, text, where=place)
        return
    if head in ("clocks_event_reasons", "clocks_throttle_reasons"):
        record.clock_event(rest, text)
        return
    if place.startswith("fabric/health/"):
        record.fabric_health(rest.partition("/")[2], text)
        return
    if head == "ecc_errors" and "/" in rest:
        period, _slash, counter = rest.partition("/")
        ecc[(period, counter)] = text
    record.notice(text)
    record.keep(place, text)


def _processes(element: Element, closed: set[Element]) -> list[dict[str, Any]]:
    found = []
    for info in element.findall("processes/process_info"):
        if info not in closed:
            continue
        cells = {child.tag: _text(child) for child in info if REPLACEMENT not in _text(child)}
        process: dict[str, Any] = {}
        for tag, key in (
            ("pid", "pid"),
            ("gpu_instance_id", "gpu_instance_id"),
            ("compute_instance_id", "compute_instance_id"),
        ):
            number = integer(cells.get(tag, ""))
            if number is not None:
                process[key] = number
        for tag, key in (("type", "type"), ("process_name", "name")):
            if not is_absent(cells.get(tag, "")):
                process[key] = cells[tag]
        used = quantity(cells.get("used_memory", ""), "MiB")
        if used is not None:
            process["used_mib"] = used
        found.append(process)
    return found


def _mig_devices(element: Element, closed: set[Element]) -> list[dict[str, Any]]:
    found = []
    for device in element.findall("mig_devices/mig_device"):
        if device not in closed:
            continue
        values: dict[str, Any] = {}
        for key in ("index", "gpu_instance_id", "compute_instance_id"):
            number = integer(device.findtext(key) or "")
            if number is not None:
                values[key] = number
        total = quantity(device.findtext("fb_memory_usage/total") or "", "MiB")
        if total is not None:
            values["memory_total_mib"] = total
        found.append(values)
    return found
