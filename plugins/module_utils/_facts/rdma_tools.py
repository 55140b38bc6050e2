# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""What the tools tell of RDMA devices, in the shape of the facts: it fills what sysfs did not tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["merge"]

_NAME = re.compile(r"^[A-Za-z][\w.-]*$")
_IBSTAT_CA = (
    ("ca_type", "hca_type"),
    ("firmware", "firmware"),
    ("node_guid", "node_guid"),
    ("system_image_guid", "sys_image_guid"),
)
_IBSTAT_PORT = ("state", "phys_state", "rate_gbps", "rate_text", "link_layer", "lmc", "sm_lid", "capability_mask")


def merge(source: Source, tools: Tools, devices: dict[str, Any], netdevs: dict[str, Any]) -> None:
    """sysfs wins: a tool may be older than the state, or show only what its library can open."""
    if not devices:
        for name in _listed(source):
            devices[name] = {"ports": {}}
    _ibstat(tools.value("ibstat") or {}, devices)
    for told in (tools.value("ibstatus") or {}).get("ports", []):
        if told.get("device") and told.get("port") is not None:
            port = _port(devices, told["device"], told["port"])
            _fill(port, ((key, told.get(key)) for key in _IBSTAT_PORT))
            _fill(port, [("lid", told.get("base_lid"))])
    for key in ("ibdev2netdev_v", "ibdev2netdev"):
        _ibdev2netdev((tools.value(key) or {}).get("mappings", []), devices, netdevs)
    for key in ("rdma_link", "rdma_link_text"):
        _rdma_link((tools.value(key) or {}).get("links", []), devices)
    _ibv_devinfo((tools.value("ibv_devinfo") or {}).get("devices", []), devices)
    _show_gids((tools.value("show_gids") or {}).get("gids", []), devices)


def _listed(source: Source) -> list[str]:
    output = source.run(("ls", "/sys/class/infiniband")) if not source.live else None
    words = output.stdout.split() if output is not None else []
    return [word for word in words if _NAME.match(word)]


def _fill(entry: dict[str, Any], pairs: Iterable[tuple[str, Any]]) -> None:
    for key, value in pairs:
        if value is not None:
            entry.setdefault(key, value)


def _port(devices: dict[str, Any], name: str, number: Any) -> dict[str, Any]:
    device = devices.setdefault(name, {"ports": {}})
    return device["ports"].setdefault(str(number), {})


def _ibstat(value: dict[str, Any], devices: dict[str, Any]) -> None:
    for ca in value.get("cas", []):
        if not ca.get("name"):
            continue
        device = devices.setdefault(ca["name"], {"ports": {}})
        _fill(device, ((key, ca.get(label)) for label, key in _IBSTAT_CA))
        for told in ca.get("ports", []):
            if told.get("port") is None:
                continue
            port = _port(devices, ca["name"], told["port"])
            _fill(port, ((key, told.get(key)) for key in _IBSTAT_PORT))
            _fill(port, [("lid", told.get("base_lid"))])


def _ibdev2netdev(mappings: list[dict[str, Any]], devices: dict[str, Any], netdevs: dict[str, Any]) -> None:
    known = {name for name, _, port in _ports(devices) if port.get("netdevs")}
    for row in mappings:
        name = row.get("device")
        if not name or row.get("port") is None:
            continue
        device = devices.setdefault(name, {"ports": {}})
        _fill(
            device,
            [("pci", row.get("pci")), ("hca_type", row.get("hca_type")), ("firmware", row.get("firmware"))],
        )
        port = _port(devices, name, row["port"])
        _fill(port, [("state", row.get("port_state"))])
        netdev = row.get("netdev")
        if netdev is None:
            continue
        if name not in known and netdev not in port.setdefault("netdevs", []):
            port["netdevs"].append(netdev)
        if row.get("status") in ("up", "down"):
            _fill(netdevs.setdefault(netdev, {}), [("operstate", row["status"]), ("pci", device.get("pci"))])


def _ports(devices: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, device in devices.items():
        for number, port in device.get("ports", {}).items():
            yield name, number, port


def _rdma_link(links: list[dict[str, Any]], devices: dict[str, Any]) -> None:
    for link in links:
        if not link.get("device") or link.get("port") is None:
            continue
        port = _port(devices, link["device"], link["port"])
        _fill(port, ((key, link.get(key)) for key in ("state", "phys_state", "lid", "sm_lid", "lmc")))
        # A port with a LID in the tool's words is InfiniBand; one with an interface is not.
        if link.get("lid") is not None or link.get("subnet_prefix") is not None:
            _fill(port, [("link_layer", "InfiniBand")])
        elif link.get("netdev"):
            _fill(port, [("link_layer", "Ethernet")])
        if link.get("netdev") and not port.get("netdevs"):
            port["netdevs"] = [link["netdev"]]


def _ibv_devinfo(rows: list[dict[str, Any]], devices: dict[str, Any]) -> None:
    for row in rows:
        if not row.get("device"):
            continue
        device = devices.setdefault(row["device"], {"ports": {}})
        for key in ("transport", "firmware", "node_guid", "sys_image_guid", "board_id"):
            _fill(device, [(key, row.get(key))])
        for told in row.get("ports", []):
            if told.get("port") is None:
                continue
            port = _port(devices, row["device"], told["port"])
            for key in ("state", "phys_state", "lid", "sm_lid", "lmc", "link_layer", "max_mtu_bytes"):
                _fill(port, [(key, told.get(key))])
            if told.get("active_mtu_bytes") is not None:
                port["active_mtu_bytes"] = told["active_mtu_bytes"]  # the card's own word, not derived


def _show_gids(rows: list[dict[str, Any]], devices: dict[str, Any]) -> None:
    full = {(name, number) for name, number, port in _ports(devices) if port.get("gids")}
    for row in rows:
        name, number = row.get("device"), row.get("port")
        if not name or number is None or (name, str(number)) in full:
            continue
        port = _port(devices, name, number)
        port.setdefault("gids", []).append(
            {key: row[key] for key in ("index", "gid", "type", "netdev", "ipv4") if row.get(key) is not None}
        )
        if row.get("netdev"):
            # Only a RoCE GID belongs to an Ethernet interface.
            if row.get("type"):
                _fill(port, [("link_layer", "Ethernet")])
            if row["netdev"] not in port.setdefault("netdevs", []):
                port["netdevs"].append(row["netdev"])
