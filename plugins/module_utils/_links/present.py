# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What the kernel has now, from the JSON of iproute2. Pure: JSON in, links out."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    Bond,
    Ipoib,
    Link,
    LinkError,
    Route,
    Rule,
)

# The commands whose answers present_links() takes, in its order of arguments.
QUERIES: dict[str, list[str]] = {
    "addresses": ["ip", "-json", "-details", "address", "show"],
    "routes4": ["ip", "-json", "-4", "route", "show", "table", "all"],
    "routes6": ["ip", "-json", "-6", "route", "show", "table", "all"],
    "rules4": ["ip", "-json", "-4", "rule", "show"],
    "rules6": ["ip", "-json", "-6", "rule", "show"],
}
# The kernel makes these itself for every address; they are nobody's setting.
KERNEL_TABLES = {"local", 255, "255"}
TABLE_NAMES = {"main": 254, "default": 253, "local": 255}


def load(text: str, query: str) -> list[dict[str, t.Any]]:
    """Parse one answer; iproute2 prints nothing at all for an empty list."""
    try:
        entries = json.loads(text) if text.strip() else []
    except ValueError as exc:
        raise LinkError(f"Cannot read the answer of {' '.join(QUERIES[query])}: {exc}") from exc
    return [entry for entry in entries if isinstance(entry, dict) and entry]


def table_number(value: t.Any) -> int:
    """Return the number of a table; names beyond the kernel's own stand for tables of others (-1)."""
    if value is None:
        return 254
    if value in TABLE_NAMES:
        return TABLE_NAMES[value]
    try:
        return int(value)
    except ValueError:
        return -1


def present_links(answers: t.Mapping[str, str]) -> dict[str, Link]:
    """Return every interface by name from the answers to QUERIES."""
    interfaces = load(answers["addresses"], "addresses")
    rules = [
        Rule(
            source=entry["src"] if not entry.get("srclen") else f"{entry['src']}/{entry['srclen']}",
            table=table_number(entry.get("table")),
            priority=int(entry["priority"]),
        )
        for query in ("rules4", "rules6")
        for entry in load(answers[query], query)
        if entry.get("src") not in (None, "all") and "priority" in entry
    ]
    routes: dict[str, set[Route]] = {}
    for query in ("routes4", "routes6"):
        for entry in load(answers[query], query):
            if entry.get("table") in KERNEL_TABLES or entry.get("type", "unicast") != "unicast" or "dev" not in entry:
                continue
            routes.setdefault(entry["dev"], set()).add(
                Route(
                    dst=entry["dst"],
                    via=entry.get("gateway"),
                    table=table_number(entry.get("table")),
                    src=entry.get("prefsrc"),
                )
            )
    links = {}
    for entry in interfaces:
        name = entry["ifname"]
        addresses = frozenset(
            f"{item['local']}/{item['prefixlen']}"
            for item in entry.get("addr_info", ())
            # Link-local and router-advertised addresses belong to the kernel.
            if item.get("scope") != "link" and not item.get("dynamic") and "local" in item
        )
        hosts = {address.split("/")[0] for address in addresses}
        links[name] = Link(
            netdev=name,
            mac=(entry.get("permaddr") or entry.get("address") or "").lower() or None,
            mtu=entry.get("mtu"),
            up="UP" in entry.get("flags", ()),
            addresses=addresses,
            routes=frozenset(routes.get(name, ())),
            rules=frozenset(rule for rule in rules if rule.source.split("/")[0] in hosts),
            bond=present_bond(entry, interfaces),
            ipoib=present_ipoib(entry),
        )
    return links


def present_bond(entry: dict[str, t.Any], interfaces: list[dict[str, t.Any]]) -> Bond | None:
    """Return what makes an interface a bond, None where it is none."""
    information = entry.get("linkinfo") or {}
    if information.get("info_kind") != "bond":
        return None
    data = information.get("info_data") or {}
    return Bond(
        mode=str(data.get("mode")),
        members=tuple(sorted(other["ifname"] for other in interfaces if other.get("master") == entry["ifname"])),
        miimon_ms=data.get("miimon"),
        lacp_rate=data.get("ad_lacp_rate"),
        xmit_hash_policy=data.get("xmit_hash_policy"),
    )


def present_ipoib(entry: dict[str, t.Any]) -> Ipoib | None:
    """Return what makes an interface IP over InfiniBand, None where it is none."""
    information = entry.get("linkinfo") or {}
    if information.get("info_kind") != "ipoib":
        return None
    data = information.get("info_data") or {}
    try:
        pkey: int | None = int(str(data.get("key")), 0)
    except ValueError:
        pkey = None
    return Ipoib(str(data.get("mode")), entry.get("link"), pkey)


__all__ = ("QUERIES", "present_links")
