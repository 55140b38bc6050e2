# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Routes, policy rules and the interface over which this run reached the host."""

from __future__ import annotations

import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import proc_net
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.netdevs import ip_json
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import ip_output
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["COMMANDS", "collect", "ssh"]

_ROUTES = {family: ("ip", "-j", f"-{family}", "route", "show", "table", "all") for family in (4, 6)}
_RULES = {family: ("ip", "-j", f"-{family}", "rule") for family in (4, 6)}
COMMANDS = (*_ROUTES.values(), *_RULES.values())
#: Routes of these kinds repeat what the addresses tell already.
_REPEATING = ("local", "broadcast", "multicast", "anycast")
_PARENTS = 32


def collect(source: Source) -> dict[str, Any]:
    found: dict[str, Any] = {}
    routes = _routes(source)
    if routes is not None:
        found["routes"] = routes
    rules = _rules(source)
    if rules is not None:
        found["rules"] = rules
    return found


def _routes(source: Source) -> Optional[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    answered = False
    for family, argv in _ROUTES.items():
        entries = ip_json(source, argv)
        if entries is None:
            continue
        answered = True
        for entry in entries:
            if entry.get("type", "unicast") in _REPEATING or entry.get("table") == "local" or "dst" not in entry:
                continue
            route = {"dst": _network(entry["dst"], family), "family": family, "table": str(entry.get("table", "main"))}
            for key, label in (("via", "gateway"), ("dev", "dev"), ("src", "prefsrc"), ("metric", "metric")):
                if label in entry:
                    route[key] = entry[label]
            if entry.get("type", "unicast") != "unicast":
                route["type"] = entry["type"]
            found.append(route)
    if answered:
        return found
    texts: tuple[tuple[str, ...], ...] = (("ip", "route", "show", "table", "all"), ("ip", "route"))
    for words in texts:
        output = source.run(words)
        if output is not None and output.rc == 0:
            return _routes_of_text(output.stdout)
    text = source.read("/proc/net/route")
    return proc_net.parse_proc_route(text) if text is not None else None


def _routes_of_text(text: str) -> list[dict[str, Any]]:
    keys = ("family", "table", "via", "dev", "src", "metric", "type")
    return [
        {"dst": _network(entry["dst"], entry["family"]), **{key: entry[key] for key in keys if key in entry}}
        for entry in ip_output.parse(text).value["routes"]
        if entry.get("type") not in _REPEATING and entry["table"] != "local"
    ]


def _rules_of_text(text: str) -> list[dict[str, Any]]:
    return [
        {"priority": entry["priority"], "from": entry["from"], "family": 4, "table": entry["table"]}
        for entry in ip_output.parse(text).value["rules"]
        if "table" in entry
    ]


def _network(destination: str, family: int) -> str:
    """`ip` leaves the length of a host route out."""
    if destination == "default" or "/" in destination:
        return destination
    return f"{destination}/{32 if family == 4 else 128}"


def _rules(source: Source) -> Optional[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    answered = False
    for family, argv in _RULES.items():
        entries = ip_json(source, argv)
        if entries is None:
            continue
        answered = True
        for entry in entries:
            origin = entry.get("src", "all")
            if "srclen" in entry:
                origin = f"{origin}/{entry['srclen']}"
            rule = {"priority": entry.get("priority"), "from": origin, "family": family}
            if "table" in entry:
                rule["table"] = str(entry["table"])
            found.append(rule)
    if answered:
        return found
    output = source.run(("ip", "rule"))
    return _rules_of_text(output.stdout) if output is not None and output.rc == 0 else None


def ssh(source: Source, netdevs: dict[str, Any], routes: list[dict[str, Any]]) -> Optional[dict[str, Any]]:
    """The interface to keep hands off: the one of this connection, else the one of the default route."""
    connection = source.environ.get("SSH_CONNECTION") or _inherited(source)
    fields = connection.split() if connection else []
    if len(fields) == 4:
        client, address = (field.split("%")[0] for field in (fields[0], fields[2]))
        found: dict[str, Any] = {"address": address, "client": client, "basis": "ssh_connection"}
        if re.fullmatch("[0-9]{1,5}", fields[3]):
            found["port"] = int(fields[3])
        for name, netdev in netdevs.items():
            if any(entry.split("/")[0] == address for entry in netdev.get("addresses", [])):
                found["netdev"] = name
                return found
        # Behind address translation the address is not the host's own.
        device = _default_device(routes)
        return {**found, "netdev": device, "basis": "default_route"} if device else found
    device = _default_device(routes)
    if device is None:
        return None
    found = {"netdev": device, "basis": "default_route"}
    addresses = netdevs.get(device, {}).get("addresses", [])
    if addresses:
        found["address"] = addresses[0].split("/")[0]
    return found


def _default_device(routes: list[dict[str, Any]]) -> Optional[str]:
    defaults = [
        route for route in routes if route["dst"] == "default" and route.get("table") == "main" and "dev" in route
    ]
    defaults.sort(key=lambda route: (route["family"], route.get("metric", 0)))
    return defaults[0]["dev"] if defaults else None


def _inherited(source: Source) -> Optional[str]:
    """sudo drops SSH_CONNECTION from the environment; the shell that sshd started still has it."""
    if not source.live:
        return None
    pid = "self"
    for _ in range(_PARENTS):
        environ = source.read(f"/proc/{pid}/environ", quiet=True) or ""
        for entry in environ.split("\0"):
            if entry.startswith("SSH_CONNECTION="):
                return entry.split("=", 1)[1]
        status = source.read(f"/proc/{pid}/status") or ""
        parents = [line.split()[1] for line in status.splitlines() if line.startswith("PPid:")]
        if not parents or parents[0] in ("0", "1"):
            return None
        pid = parents[0]
    return None
