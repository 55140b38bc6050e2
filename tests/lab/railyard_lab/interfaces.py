# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's own network interfaces, as far as stand-ins must agree with them.

In a node they are real (`ip -j addr`, the real sysfs). Under RAILYARD_LAB_ROOT there are none: then `interfaces` of the
state says what they would be, and what it leaves out is a plugged port with the kernel's defaults.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from railyard_lab import state as state_file

IFF_UP, IFF_LOWER_UP = 0x1, 0x10000


class Interface(NamedTuple):
    name: str
    index: int
    mtu: int
    up: bool  # by the administrator
    carrier: bool
    mac: str
    addresses: tuple[tuple[str, int], ...]  # (address, prefix length), in the kernel's order
    master: str | None
    link: str | None  # the interface below, of a VLAN or macvlan
    real: bool


def real_sysfs() -> Path:
    """Where the kernel's sysfs can be seen once ours lies over it."""
    saved = Path("/run/gpu-fabric-lab/sys")
    return saved if (saved / "class").is_dir() else Path("/sys")


def real_ip() -> str:
    """iproute2's own program: on nodes with InfiniBand a stand-in lies before it in the path."""
    return next((path for path in ("/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip") if os.path.exists(path)), "ip")


def is_node() -> bool:
    return str(state_file.root()) == "/"


def current(state: dict[str, Any]) -> dict[str, Interface]:
    if is_node():
        return _live()
    return _simulated(state)


def exists(state: dict[str, Any], name: str) -> bool:
    """Whether there is such an interface, without asking for all that is known of all of them."""
    return (real_sysfs() / "class/net" / name).exists() if is_node() else name in _simulated(state)


def _live() -> dict[str, Interface]:
    answer = subprocess.run([real_ip(), "-j", "addr"], capture_output=True, text=True, check=False)
    found: dict[str, Interface] = {}
    for entry in json.loads(answer.stdout or "[]"):
        if "ifname" not in entry:
            continue
        flags = entry.get("flags", [])
        found[entry["ifname"]] = Interface(
            name=entry["ifname"],
            index=entry["ifindex"],
            mtu=entry["mtu"],
            up="UP" in flags,
            carrier="LOWER_UP" in flags,
            mac=entry.get("address", ""),
            addresses=tuple(
                (item["local"], item["prefixlen"]) for item in entry.get("addr_info", []) if "local" in item
            ),
            master=entry.get("master"),
            link=entry.get("link"),
            real=True,
        )
    return found


def _simulated(state: dict[str, Any]) -> dict[str, Interface]:
    found: dict[str, Interface] = {}
    names = [nic["netdev"] for nic in state["nics"] if nic["netdev"] and nic["link_layer"] == "Ethernet"]
    names += [name for name in state["interfaces"] if name not in names]
    for index, name in enumerate(names, start=2):
        given = state["interfaces"].get(name, {})
        nic = state_file.nic_by(state, "netdev", name)
        found[name] = Interface(
            name=name,
            index=index,
            mtu=given.get("mtu", 1500),
            up=given.get("up", True),
            carrier=given.get("up", True) and given.get("carrier", nic["cable"] if nic else True),
            mac=given.get("mac", nic["mac"] if nic else "02:00:00:00:00:01"),
            addresses=tuple((item.split("/")[0], int(item.split("/")[1])) for item in given.get("addresses", [])),
            master=given.get("master"),
            link=given.get("link"),
            real=False,
        )
    return found


def run_ip(*arguments: str) -> None:
    """Change a real interface; nothing to do where there are none."""
    if is_node():
        subprocess.run([real_ip(), *arguments], check=True, capture_output=True, text=True)


def attributes(name: str) -> list[str]:
    """Names in the kernel's directory of a real interface."""
    try:
        return sorted(os.listdir(f"/sys/devices/virtual/net/{name}"))
    except OSError:
        return []
