# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Network interfaces: what sysfs tells of each, and its addresses from `ip` or procfs."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import proc_net
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import ip_output
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysfs import integer, link_name, place, text

__all__ = ["ADDRESSES", "collect", "ip_json"]

_CLASS = "/sys/class/net"
#: `-d` tells the kind of a virtual interface and the largest MTU, which sysfs does not.
ADDRESSES = ("ip", "-j", "-d", "addr")
_ARPHRD_ETHER, _ARPHRD_INFINIBAND, _ARPHRD_LOOPBACK = 1, 32, 772
#: Kinds that the plan tells apart; any other virtual interface is "other".
_KINDS = {"bond": "bond", "bridge": "bridge", "vlan": "vlan", "veth": "veth", "ipoib": "ipoib", "dummy": "other"}


def collect(source: Source) -> dict[str, Any]:
    links = {link["ifname"]: link for link in ip_json(source, ADDRESSES) or [] if "ifname" in link}
    names = [name for name in source.listdir(_CLASS) if source.isdir(f"{_CLASS}/{name}")]
    found = {name: _from_sysfs(source, name) for name in names}
    for name, link in links.items():
        _merge_link(found.setdefault(name, {}), link)
    if not links:
        _merge_fallbacks(source, found)
    for name, netdev in found.items():
        bond = _bond(source, name)
        if bond is not None:
            netdev["bond"] = bond
            netdev["kind"] = "bond"
    for name in source.listdir("/proc/net/bonding"):
        if name not in found:
            found[name] = {"kind": "bond", "bond": _bond(source, name)}
    for name, netdev in list(found.items()):
        if netdev.get("kind") == "bond":
            bond = netdev.get("bond") or {}
            speeds = bond.pop("member_speeds_mbps", {})
            for member in bond.get("members", []):
                found.setdefault(member, {}).setdefault("master", name)
                if member in speeds:
                    found[member].setdefault("speed_mbps", speeds[member])
    return found


def ip_json(source: Source, argv: tuple[str, ...]) -> Optional[list[dict[str, Any]]]:
    """What an `ip -j` command answers; None where there is no such answer."""
    output = source.run(argv)
    if output is None or output.rc != 0:
        return None
    try:
        value = json.loads(output.stdout or "[]")
    except ValueError as exc:
        # busybox' and old iproute2's `ip` have no JSON.
        source.note(" ".join(argv), f"no JSON: {exc}")
        return None
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else None


def _from_sysfs(source: Source, name: str) -> dict[str, Any]:
    base = f"{_CLASS}/{name}"
    found: dict[str, Any] = {}
    for key, attribute in (
        ("mac", "address"),
        ("operstate", "operstate"),
        ("duplex", "duplex"),
        ("port_name", "phys_port_name"),
        ("alias", "ifalias"),
    ):
        value = text(source, f"{base}/{attribute}")
        if value is not None:
            found[key] = value
    for key in ("mtu", "type", "ifindex"):
        number = integer(source, f"{base}/{key}")
        if number is not None:
            found[key] = number
    carrier = integer(source, f"{base}/carrier")
    if carrier is not None:
        found["carrier"] = bool(carrier)
    elif found.get("operstate") == "down":
        found["carrier"] = False  # the kernel refuses to tell while the interface is administratively down
    speed = integer(source, f"{base}/speed")
    if speed is not None and speed > 0:
        found["speed_mbps"] = speed
    for key, link in (("master", "master"), ("driver", "device/driver")):
        target = link_name(source, f"{base}/{link}")
        if target is not None:
            found[key] = target
    at = place(source.realpath(base))
    if at is not None:
        found["pci"] = at.bdf
    found["kind"] = _kind(source, name, found)
    return found


def _kind(source: Source, name: str, netdev: dict[str, Any]) -> str:
    base = f"{_CLASS}/{name}"
    if netdev.get("type") == _ARPHRD_LOOPBACK:
        return "loopback"
    for kind, directory in (("bond", "bonding"), ("bridge", "bridge")):
        if source.isdir(f"{base}/{directory}"):
            return kind
    if netdev.get("type") == _ARPHRD_INFINIBAND:
        return "ipoib"
    uevent = source.read(f"{base}/uevent") or ""
    if "DEVTYPE=vlan" in uevent:
        return "vlan"
    if source.exists(f"{base}/device"):
        return "vf" if source.exists(f"{base}/device/physfn") else "physical"
    return "other"


def _merge_link(netdev: dict[str, Any], link: dict[str, Any]) -> None:
    """Add what `ip` tells to what sysfs told; sysfs wins where both tell."""
    for key, label in (("mtu", "mtu"), ("ifindex", "ifindex"), ("mtu_max", "max_mtu"), ("mac", "address")):
        if link.get(label):
            netdev.setdefault(key, link[label])
    if "operstate" in link:
        netdev.setdefault("operstate", str(link["operstate"]).lower())
    if "master" in link:
        netdev.setdefault("master", link["master"])
    if isinstance(link.get("flags"), list):
        netdev["up"] = "UP" in link["flags"]
        netdev.setdefault("carrier", "LOWER_UP" in link["flags"])
    if link.get("link_type") == "infiniband":
        netdev.setdefault("type", _ARPHRD_INFINIBAND)
    elif link.get("link_type") == "ether":
        netdev.setdefault("type", _ARPHRD_ETHER)
    elif link.get("link_type") == "loopback":
        netdev.setdefault("type", _ARPHRD_LOOPBACK)
        netdev.setdefault("kind", "loopback")
    info = _mapping(link.get("linkinfo"))
    kind = info.get("info_kind")
    if kind:
        netdev["kind_name"] = kind
        if netdev.get("kind") in (None, "other"):
            netdev["kind"] = _KINDS.get(kind, "other")
        if kind == "vlan":
            netdev["vlan"] = {"id": _mapping(info.get("info_data")).get("id"), "link": link.get("link")}
    if "addr_info" in link:
        netdev["addresses"] = [
            f"{entry['local']}/{entry['prefixlen']}"
            for entry in link["addr_info"]
            if isinstance(entry, dict) and "local" in entry and "prefixlen" in entry
        ]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _merge_fallbacks(source: Source, found: dict[str, dict[str, Any]]) -> None:
    """Without `ip -j`: `ip` as text, of which a recording may hold any form; else the addresses of procfs."""
    addressed = False
    for argv in (("ip", "addr"), ("ip", "-br", "addr"), ("ip", "link"), ("ip", "-br", "link")):
        output = source.run(argv)
        if output is None or output.rc != 0:
            continue
        rows = ip_output.parse(output.stdout).value["interfaces"]
        for row in rows:
            netdev = found.setdefault(row["name"], {})
            _merge_text(netdev, row)
            if "addr" in argv:
                netdev.setdefault("addresses", row["addresses"])
        addressed = addressed or ("addr" in argv and bool(rows))
        if addressed and source.live:
            return
    if addressed:
        return
    for name, addresses in _from_procfs(source).items():
        found.setdefault(name, {})["addresses"] = addresses


def _merge_text(netdev: dict[str, Any], row: dict[str, Any]) -> None:
    for key in ("mtu", "mac", "operstate", "master"):
        if key in row:
            netdev.setdefault(key, row[key])
    if row.get("flags"):
        netdev.setdefault("up", "UP" in row["flags"])
        netdev.setdefault("carrier", "LOWER_UP" in row["flags"])
    if row.get("link_type") == "infiniband":
        netdev.setdefault("kind", "ipoib")
    kind = row.get("kind")
    netdev.setdefault("kind", _KINDS.get(kind, "other") if kind else _kind_by_name(row["name"], row.get("parent")))


def _kind_by_name(name: str, peer: Optional[str]) -> str:
    """Only for recordings that hold a name and nothing else; the names that container engines and udev give."""
    if name == "lo":
        return "loopback"
    if re.match(r"(flannel|vxlan|tunl|cilium|tailscale|wg)", name):
        return "other"  # overlay networks and tunnels
    if "." in name and name.rsplit(".", 1)[1].isdecimal():
        return "vlan"
    if peer is not None or re.match(r"(veth|cali|lxc(?!br))", name):
        return "veth"
    if re.match(r"(docker|virbr|br-|br\d|cni|lxdbr|lxcbr|podman)", name):
        return "bridge"
    if name.startswith("bond"):
        return "bond"
    if re.match(r"ib([psPc]?\d|s)", name):
        return "ipoib"
    if re.match(r"en.*v\d+$", name):
        return "vf"
    return "physical" if re.match(r"(en|eth|em|p\d+p)", name) else "other"


def _from_procfs(source: Source) -> dict[str, list[str]]:
    """IPv4 from the routing trie and the connected routes, IPv6 from the address table."""
    local = set()
    previous = ""
    for line in (source.read("/proc/net/fib_trie") or "").splitlines():
        if "/32 host LOCAL" in line and previous:
            local.add(previous)
        match = re.search(r"\|-- (\d+\.\d+\.\d+\.\d+)", line)
        if match:
            previous = match.group(1)
    found: dict[str, list[str]] = {}
    for route in proc_net.parse_proc_route(source.read("/proc/net/route") or ""):
        if route.get("via") or route["dst"] == "default":
            continue
        network = ipaddress.ip_network(route["dst"])
        for address in sorted(local):
            if ipaddress.ip_address(address) in network:
                found.setdefault(route["dev"], []).append(f"{address}/{network.prefixlen}")
    for line in (source.read("/proc/net/if_inet6") or "").splitlines():
        fields = line.split()
        if len(fields) == 6 and len(fields[0]) == 32:
            address = str(ipaddress.IPv6Address(int(fields[0], 16)))
            found.setdefault(fields[5], []).append(f"{address}/{int(fields[2], 16)}")
    return found


def _bond(source: Source, name: str) -> Optional[dict[str, Any]]:
    base = f"{_CLASS}/{name}/bonding"
    slaves = text(source, f"{base}/slaves")
    mode = text(source, f"{base}/mode")
    report = source.read(f"/proc/net/bonding/{name}")
    if mode is None and report is None:
        return None
    told = proc_net.parse_bonding(report or "")
    found: dict[str, Any] = {**told}
    if mode is not None:
        found["mode"] = mode.split()[0]
    if slaves is not None:
        found["members"] = slaves.split()
    found.setdefault("members", [])
    # In 802.3ad all members that are up carry traffic; in active-backup one does.
    active = text(source, f"{base}/active_slave")
    if active is not None:
        found["active"] = [active]
    return found
