# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs, NICs and NVSwitches of a host under the PCIe switches and sockets where they are. Pure.

``tree`` returns a list of sockets::

    [{"numa": 0,
      "switches": [{"pci": "0000:16:00.0", "kind": "switch"|"root",
                    "devices": [{"kind": "gpu"|"nic"|"nvswitch", "pci", "label", "sub", "role", "rail", "gpu"}]}]}]
"""

from __future__ import annotations

import typing as t

Json = dict[str, t.Any]
KIND_ORDER = {"gpu": 0, "nic": 1, "nvswitch": 2}


def tree(facts: Json, plan: Json) -> list[Json]:
    """Group the devices that the facts and the plan name by socket and by the switch above them."""
    pci = facts.get("pci") or {}
    sockets: dict[t.Any, dict[str, list[Json]]] = {}
    for device in devices(facts, plan):
        node = pci.get(device["pci"]) or {}
        numa = node.get("numa_node")
        group = above(node, device["pci"])
        sockets.setdefault(numa, {}).setdefault(group, []).append(device)
    return [
        {
            "numa": numa,
            "switches": [
                {
                    "pci": group,
                    "kind": "root" if group.startswith("pci") else "switch",
                    "devices": sorted(found, key=lambda item: (KIND_ORDER[item["kind"]], item["pci"])),
                }
                for group, found in sorted(groups.items())
            ],
        }
        for numa, groups in sorted(sockets.items(), key=lambda item: (item[0] is None, item[0] or 0))
    ]


def above(node: Json, pci: str) -> str:
    """Return what a device shares with its neighbours: its switch's upstream port, else its root bus.

    A bridge chain is root port, switch upstream port, switch downstream port; a device right below a root port
    shares nothing but the root complex.
    """
    upstream = node.get("upstream") or []
    if len(upstream) >= 3:
        return str(upstream[-2])
    return str(node.get("root") or f"pci{pci[:7]}")


def devices(facts: Json, plan: Json) -> t.Iterator[Json]:
    rails = {rail.get("pci"): rail for rail in plan.get("rails") or ()}
    for position, gpu in enumerate(facts.get("gpus") or ()):
        if not gpu.get("pci"):
            # A recording may count GPUs without saying where they are.
            continue
        index = gpu.get("index")
        yield {
            "kind": "gpu",
            "pci": gpu["pci"],
            "label": f"GPU {position if index is None else index}",
            "sub": short_model(gpu.get("name")),
            "gpu": position if index is None else index,
        }
    for switch in facts.get("nvswitches") or ():
        if switch.get("pci"):
            yield {"kind": "nvswitch", "pci": switch["pci"], "label": "NVSwitch", "sub": ""}
    seen = set()
    for device in plan.get("devices") or ():
        # One card function may have several RDMA devices; a function is drawn once.
        address = device.get("pci")
        if not address or address in seen:
            continue
        seen.add(address)
        rail = rails.get(address)
        yield {
            "kind": "nic",
            "pci": address,
            "label": device.get("name") or device.get("netdev") or "NIC",
            "sub": device.get("netdev") or "",
            "role": device.get("role"),
            "reason": device.get("reason"),
            "rail": rail.get("rail") if rail else None,
            "gpu": rail.get("gpu") if rail else None,
            "up": port_up(facts, device, rail),
        }


def port_up(facts: Json, device: Json, rail: Json | None) -> bool | None:
    rdma = (facts.get("rdma_devices") or {}).get(device.get("name")) or {}
    ports = rdma.get("ports") or {}
    wanted = [ports.get(str(rail.get("port", 1)))] if rail else list(ports.values())
    states = [port["state"] for port in wanted if port and port.get("state")]
    return any(state == "active" for state in states) if states else None


def short_model(name: str | None) -> str:
    """``NVIDIA H100 80GB HBM3`` → ``H100``."""
    words = [word for word in (name or "").split() if word not in ("NVIDIA", "Tesla", "GeForce", "Graphics", "Device")]
    return words[0] if words else ""


__all__ = ("tree",)
