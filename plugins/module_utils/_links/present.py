# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What the kernel has now, from the JSON of iproute2. Pure: JSON in, links out."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    MAIN_TABLE,
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
    # By number: rt_tables may have names for the tables, and the kernel knows only their numbers.
    "routes4": ["ip", "-N", "-json", "-4", "route", "show", "table", "all"],
    "routes6": ["ip", "-N", "-json", "-6", "route", "show", "table", "all"],
    "rules4": ["ip", "-N", "-json", "-4", "rule", "show"],
    "rules6": ["ip", "-N", "-json", "-6", "rule", "show"],
}
UNICAST = (None, "unicast", "1")
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
    """Return the number of a table, which is left out for the main one."""
    return MAIN_TABLE if value is None else TABLE_NAMES.get(value) or int(value)


def present_links(
    answers: t.Mapping[str, str], named: t.Mapping[str, t.Collection[Rule]] | None = None
) -> dict[str, Link]:
    """Return every interface by name from the answers to QUERIES.

    A rule belongs to the interface that has its source address; one in ``named`` also where the address is gone.
    """
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
            if entry.get("table") in KERNEL_TABLES or entry.get("type") not in UNICAST:
                continue
            for way in entry.get("nexthops", [entry]):
                routes.setdefault(way.get("dev", ""), set()).add(
                    Route(
                        dst=entry["dst"],
                        via=way.get("gateway"),
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
            mac=(entry.get("address") or "").lower() or None,
            mtu=entry.get("mtu"),
            up="UP" in entry.get("flags", ()),
            addresses=addresses,
            routes=frozenset(routes.get(name, ())),
            rules=frozenset(
                rule for rule in rules if rule.source.split("/")[0] in hosts or rule in (named or {}).get(name, ())
            ),
            bond=present_bond(entry, interfaces),
            ipoib=present_ipoib(entry),
            kind=(entry.get("linkinfo") or {}).get("info_kind"),
        )
    return links


def present_bond(entry: dict[str, t.Any], interfaces: list[dict[str, t.Any]]) -> Bond | None:
    """Return what makes an interface a bond, None where it is none."""
    information = entry.get("linkinfo") or {}
    if information.get("info_kind") != "bond":
        return None
    data = information.get("info_data") or {}
    members = {other["ifname"]: other.get("mtu") for other in interfaces if other.get("master") == entry["ifname"]}
    return Bond(
        mode=str(data.get("mode")),
        members=tuple(sorted(members)),
        other_mtus=tuple(sorted((name, mtu) for name, mtu in members.items() if mtu not in (None, entry.get("mtu")))),
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
