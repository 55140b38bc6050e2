# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``rdma link`` and ``rdma dev`` of iproute2: text (``show``, ``-d``, the form before 5.1) and JSON (``-j``).

Value::

    {"links": [{"device", "port", "state", "phys_state", "netdev", "netdev_index", "subnet_prefix", "lid", "sm_lid",
                "lmc", "caps": [...], "extra", "host"}],
     "devices": [{"device", "node_type", "firmware", "node_guid", "sys_image_guid", "caps": [...], "extra", "host"}],
     "errors": [...], "partial": bool}

InfiniBand ports have lid, sm_lid, lmc and subnet_prefix and no netdev; RoCE ports the other way round.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    clean,
    failure,
    guid,
    holds_damage,
    integer,
    json_items,
    phys_state,
    port_state,
    prompt_command,
    split_hosts,
    split_lines,
    whole_netdev,
)

# link mlx5_0/1 state …   |   1/1: mlx5_0/1: state …
_ROW = re.compile(r"^\s*(?:link\s+|\d+/\d+:\s+)(?P<device>[^\s/]+)/(?P<port>\d+|-):?(?P<rest>\s.*)?$")
# 0: mlx5_0: node_type ca fw …
_DEVICE_ROW = re.compile(r"^\s*\d+:\s+(?P<device>[^\s/:]+):(?P<rest>\s+node_type\s.*)$")
_DEVICE_KEYS = {
    "fw": "firmware",
    "node_type": "node_type",
    "node_guid": "node_guid",
    "sys_image_guid": "sys_image_guid",
}
_CAPS = re.compile(r"^\s+caps:\s*<(?P<caps>[^>]*)>\s*$")
_ERROR = re.compile(
    r"NETLINK_RDMA|RTNETLINK|^(?:error|Error)\b|is not supported|Object \"link\" is unknown|Wrong device"
)
_INTEGERS = ("netdev_index", "lid", "sm_lid", "lmc")
_PREFIX = re.compile(r"^[0-9a-f]{4}(?::[0-9a-f]{4}){3}$")


def _native(text: str) -> bool:
    return bool(_ROW.match(text) or _DEVICE_ROW.match(text))


def _set(link: dict[str, Any], name: str, text: str) -> bool:
    """Put one pair of the tool's into the link; False where its value is none that the tool prints."""
    key = "phys_state" if name == "physical_state" else name
    value: Any
    if key == "state":
        value = port_state(text)
    elif key == "phys_state":
        value = phys_state(text)
    elif key in _INTEGERS:
        value = integer(text)
    elif key == "subnet_prefix":
        value = text.lower() if _PREFIX.match(text.lower()) else None
    elif key == "netdev":
        value = text
    else:
        link["extra"][name] = text
        return True
    if value is None:
        return False
    link[key] = value
    return True


def _whole(name: str, text: str) -> bool:
    """Does the last value of a cut line prove that nothing is missing?"""
    if name == "netdev":
        return whole_netdev(text)
    # ACTIVE begins ACTIVE_DEFER; no other state begins another.
    if name in ("state", "physical_state"):
        return text != "ACTIVE" and (port_state(text) or phys_state(text)) is not None
    return name == "subnet_prefix" and bool(_PREFIX.match(text))


def _read_row(line: Line, match: re.Match[str], problems: Problems) -> dict[str, Any] | None:
    rest = match.group("rest")
    if rest is None and not line.terminated:
        problems.cut(line)  # the port's number may lack digits
        return None
    link: dict[str, Any] = {"device": match.group("device"), "extra": {}}
    if match.group("port") != "-":
        link["port"] = int(match.group("port"))
    words = (rest or "").split()
    whole_to_the_end = line.terminated or (rest or "")[-1:].isspace()
    for position in range(0, len(words), 2):
        name = words[position]
        if position + 1 >= len(words):
            if line.terminated:
                problems.add(f"{link['device']}: '{name}' has no value.", line)
            break
        text = words[position + 1]
        last = position + 2 >= len(words)
        cut = last and not whole_to_the_end and not _whole(name, text)
        if not cut and not _set(link, name, text):
            problems.add(f"{link['device']}: '{text}' is no value of {name}.", line)
    # The last pair is the interface's, or the state of an InfiniBand port, which has none.
    if not line.terminated and "netdev" not in link and not {"subnet_prefix", "phys_state"} <= set(link):
        problems.cut(line)
    return link


def _set_device(device: dict[str, Any], name: str, text: str) -> bool:
    """The same for a pair of ``rdma dev``."""
    value = guid(text) if name.endswith("_guid") else text
    if name in _DEVICE_KEYS and value:
        device[_DEVICE_KEYS[name]] = value
    elif name not in _DEVICE_KEYS:
        device["extra"][name] = text
    return bool(value)


def _read_device_row(line: Line, match: re.Match[str], problems: Problems) -> dict[str, Any]:
    device: dict[str, Any] = {"device": match.group("device"), "extra": {}}
    words = match.group("rest").split()
    whole = line.terminated or match.group("rest")[-1:].isspace()
    if not line.terminated:
        problems.cut(line)
    for name, text in zip(words[::2], words[1::2]):
        cut = text is words[-1] and not whole and not (name.endswith("_guid") and guid(text))
        if not cut and not _set_device(device, name, text):
            problems.add(f"{device['device']}: '{text}' is no value of {name}.", line)
    return device


def _read_text(text: str, value: dict[str, Any], problems: Problems) -> None:
    for host, group in split_hosts(split_lines(text), native=_native):
        link: dict[str, Any] | None = None
        for line in group:
            match = None if line.damaged else _ROW.match(line.text)
            device = None if line.damaged or match else _DEVICE_ROW.match(line.text)
            caps = None if line.damaged else _CAPS.match(line.text)
            if line.blank:
                continue
            if line.damaged:
                problems.damaged(line)
                link = None
            elif match:
                link = _read_row(line, match, problems)
                if link is not None:
                    value["links"].append({**link, "host": host} if host else link)
                    link = value["links"][-1]
            elif device:
                link = _read_device_row(line, device, problems)
                value["devices"].append({**link, "host": host} if host else link)
                link = value["devices"][-1]
            elif caps and link is not None:
                link["caps"] = [cap.strip() for cap in caps.group("caps").split(",") if cap.strip()]
            elif _ERROR.search(line.text) or failure(line.text):
                value["errors"].append(line.text.strip())
                problems.add("rdma could not list the links.", line)
            elif prompt_command(line.text) is not None:
                link = None
            elif not line.terminated:
                problems.cut(line)
            elif link is not None and line.indented:
                name, _colon, rest = line.text.strip().partition(":")
                link["extra"][name] = rest.strip()


def _read_json(text: str, value: dict[str, Any], problems: Problems) -> None:
    items, whole = json_items(text)
    if not whole:
        problems.add("The JSON document ends early; only its whole elements were read.")
        value["partial"] = True
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("ifname"), str) or holds_damage(item):
            problems.add("An element of the list is no link.", text=str(item))
            continue
        link: dict[str, Any] = {"device": item["ifname"], "extra": {}}
        of_device = "node_type" in item and "port" not in item
        put = _set_device if of_device else _set
        if isinstance(item.get("port"), int):
            link["port"] = item["port"]
        for name, member in item.items():
            if name in ("ifname", "port", "ifindex"):
                continue
            if name == "caps" and isinstance(member, list):
                link["caps"] = [str(cap) for cap in member]
            elif isinstance(member, (list, dict)) or member is None:
                link["extra"][name] = member
            elif not put(link, name, str(member)):
                problems.add(f"{link['device']}: {member!r} is no value of {name}.", text=str(item))
        value["devices" if of_device else "links"].append(link)


def parse(text: str) -> Parsed:
    """Read the output of ``rdma link``, ``rdma dev`` or either with ``-j``; stderr may be mixed in."""
    problems = Problems()
    value: dict[str, Any] = {"links": [], "devices": [], "errors": [], "partial": False}
    cleaned = clean(text)
    if re.search(r"^\s*\[\s*(?:\{|\]|$)", cleaned, re.MULTILINE):
        _read_json(cleaned, value, problems)
    else:
        _read_text(cleaned, value, problems)
    value["partial"] = value["partial"] or len(problems) > 0
    if not value["links"] and not value["devices"] and not len(problems) and cleaned.strip() not in ("", "[]", "[ ]"):
        problems.add("There is no output of rdma link in this text.", text=cleaned.strip().split("\n")[0])
    return problems.result(value)
