# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The links of one host: wanted, set by an earlier run, and present; and how the first become the last."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import kernel_conf, managers
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import (
    Delta,
    delta,
    ipoib_lacks,
    missing,
    removal,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    MAIN_TABLE,
    Link,
    LinkError,
    Route,
    wanted_ipoib,
    wanted_link,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.present import QUERIES, present_links


def read_answers(cli: Cli) -> dict[str, str]:
    """Ask the kernel. A host without IPv6 answers the second family with nothing."""
    return {query: cli.run(argv, check=not query.endswith("6")).stdout for query, argv in QUERIES.items()}


class Links:
    """The wanted, the saved and the present links, and how the first becomes the last."""

    def __init__(self, wanted: list[Link], cli: Cli, saved: StateFile) -> None:
        self.wanted = {link.netdev: link for link in wanted}
        self.cli = cli
        self.saved = saved
        self.record = self._read_record()
        # Links that were changed already when this run began, as they were before that.
        self.changed_before: dict[str, dict[str, t.Any]] = {}
        self.look_again()
        self.wanted = {name: replace(link, kind=self.found(name).kind) for name, link in self.wanted.items()}

    def _read_record(self) -> dict[str, dict[str, t.Any]]:
        record = self.saved.load()
        for name, entry in record.items():
            if not isinstance(entry, dict) or not all(isinstance(entry.get(key), dict) for key in ("before", "set")):
                raise LinkError(
                    f"Cannot read {self.saved.path}: {name} lacks `before` or `set`. It holds what this host was set to"
                    " before the collection changed it; mend it, or remove it to give that up."
                )
        return record

    def look_again(self) -> None:
        self.answers = read_answers(self.cli)
        ours = {name: self.ours(name) for name in self.record}
        named = {name: {*(link.rules if link else ())} for name, link in ours.items()}
        for name, link in self.wanted.items():
            named.setdefault(name, set()).update(link.rules)
        self.present = present_links(self.answers, named)

    def settle(self, limit_s: float, undone: bool = False) -> None:
        """Look until everything is as wanted, twice: a network manager answers first and sets its links up then.

        ``undone``: whether the manager also takes away the bonds that it made, when their files are gone.
        """
        end = time.monotonic() + limit_s
        calm = 0
        while True:
            self.look_again()
            calm = 0 if self._unsettled(undone) else calm + 1
            if calm == 2 or time.monotonic() >= end:
                return
            time.sleep(1)

    def _unsettled(self, undone: bool) -> bool:
        return any(missing(link, self.found(link.netdev)) for link in self.wanted.values()) or (
            undone and any(found.get("absent") for found in self._gone().values())
        )

    def found(self, netdev: str) -> Link:
        """The interface as it is; of a bond that is yet to be made, nothing."""
        return self.present.get(netdev) or Link(netdev=netdev, up=False)

    def refuse(self, protected: t.Collection[str]) -> None:
        """Name everything that keeps the links from being set, before anything is set."""
        errors = [
            f"{name} carries the connection of this run, and would lose what an earlier run gave it;"
            " connect over another interface"
            for name, found in self._gone().items()
            if name in protected and not found.get("management")
        ]
        for link in self.wanted.values():
            found = self.present.get(link.netdev)
            if link.netdev in protected and not link.management:
                errors += self._carrying(link, found)
            if link.bond:
                errors += self._bond_errors(link, protected)
            elif link.ipoib and link.ipoib.parent:
                errors += self._partition_errors(link)
            elif found is None:
                errors.append(f"{link.netdev} does not exist; the interfaces are {', '.join(sorted(self.present))}")
            elif link.mac and found.mac and link.mac != found.mac:
                errors.append(
                    f"{link.netdev} has the address {found.mac}, the plan was made for {link.mac};"
                    " gather the facts again"
                )
            errors += [*self._taken(link), *self._without_ipv6(link)]
        if errors:
            raise LinkError("No link was changed: " + "; ".join(errors))

    def _carrying(self, link: Link, found: Link | None) -> list[str]:
        if not link.bond:
            return [
                f"{link.netdev} carries the connection of this run and must not be a rail;"
                " name it in gpu_fabric_management_devices"
            ]
        # One that is to be made carries nothing yet, and one that is as wanted is not touched.
        changes = "; ".join(missing(link, found)) if found else ""
        if not changes:
            return []
        return [
            f"{link.netdev} carries the connection of this run, and would be changed ({changes});"
            " take that change out of gpu_fabric_bonds, or make it by hand at the console"
        ]

    def _taken(self, link: Link) -> t.Iterator[str]:
        """What another interface has: an address would be there twice, and a route would be taken from it."""
        found, tables = self.found(link.netdev), {rule.table for rule in link.rules}
        new = {(route.family, route.dst, route.table): route for route in link.routes - found.routes}
        for name, other in self.present.items():
            if name == link.netdev or name in (link.bond.members if link.bond else ()):
                continue
            leaving = self._leaving(name)
            hosts = {item.split("/")[0] for item in other.addresses - leaving.addresses}
            for item in sorted(link.addresses - found.addresses):
                if item.split("/")[0] in hosts:
                    yield f"{item}, wanted on {link.netdev}, is on {name}; take it away there, or plan another one"
            for route in sorted(other.routes - leaving.routes, key=Route.order):
                if (route.family, route.dst, route.table) in new:
                    yield (
                        f"{link.netdev} would take the route {route.describe()} from {name};"
                        f" leave out the gateway of {link.netdev}, or remove that route first"
                    )
                elif route.table in tables and route.table != MAIN_TABLE:
                    yield (
                        f"the routing table {route.table}, wanted for what {link.netdev} sends, has routes of {name}"
                        f" ({route.describe()}); move them to another table"
                    )

    def _leaving(self, netdev: str) -> Link:
        """What this run takes away from an interface, or sets on it anew."""
        return self.ours(netdev) or Link(netdev)

    def _without_ipv6(self, link: Link) -> t.Iterator[str]:
        six = sorted(item for item in link.addresses if ":" in item)
        if six and kernel_conf.ipv6_disabled(link.netdev):
            yield (
                f"{link.netdev} shall have {', '.join(six)}, and IPv6 is switched off on this host"
                " (net.ipv6.conf.all.disable_ipv6, or ipv6.disable=1 of the kernel); switch it on, or plan IPv4 alone"
            )

    def _bond_errors(self, link: Link, protected: t.Collection[str]) -> list[str]:
        bond, present = link.bond, self.present.get(link.netdev)
        assert bond is not None
        errors = []
        if present is not None and present.bond is None:
            errors.append(f"{link.netdev} is there and no bond; choose another name for the bond")
        elif present is not None and present.bond is not None:
            fixed = {"mode": (present.bond.mode, bond.mode), "lacp_rate": (present.bond.lacp_rate, bond.lacp_rate)}
            errors += [
                f"{link.netdev} has {key} {now}, wanted {wanted}; changing that takes the bond down:"
                f" remove it first (ip link delete {link.netdev})"
                for key, (now, wanted) in fixed.items()
                if wanted not in (None, now) and (key == "mode" or present.up)
            ]
        masters = {name: other.netdev for other in self.present.values() if other.bond for name in other.bond.members}
        for name in bond.members:
            member = self.present.get(name)
            if member is None:
                errors.append(f"{name}, a member of {link.netdev}, does not exist")
            elif name in protected and (present is None or present.bond is None or name not in present.bond.members):
                errors.append(f"{name} carries the connection of this run and cannot become a member of {link.netdev}")
            elif masters.get(name, link.netdev) != link.netdev:
                errors.append(f"{name}, wanted in {link.netdev}, is a member of {masters[name]}")
            elif member.addresses:
                errors.append(f"{name}, wanted in {link.netdev}, has addresses: {', '.join(sorted(member.addresses))}")
        return errors

    def _partition_errors(self, link: Link) -> list[str]:
        ipoib, present = link.ipoib, self.present.get(link.netdev)
        assert ipoib is not None
        parent = self.present.get(ipoib.parent or "")
        if parent is None or parent.ipoib is None:
            what = "does not exist" if parent is None else "is no IP over InfiniBand"
            return [f"{ipoib.parent}, over which {link.netdev} shall be, {what}"]
        if present is None:
            return []
        other = [text for text in ipoib_lacks(ipoib, present.ipoib) if not text.startswith("mode ")]
        return [f"{link.netdev} is there already as something else ({text})" for text in other]

    def ours(self, netdev: str) -> Link | None:
        entry = self.record.get(netdev)
        return wanted_link({"netdev": netdev, **entry["set"]}) if entry else None

    def _gone(self) -> dict[str, dict[str, t.Any]]:
        """Links of an earlier run that are wanted no more, with what they were before it."""
        return {
            name: entry["before"]
            for name, entry in self.record.items()
            if name not in self.wanted and name in self.present
        }

    def released(self) -> list[Link]:
        return [before(name, found) for name, found in self._gone().items() if not found.get("absent")]

    def deltas(self) -> list[Delta]:
        # A rule belongs to the host: where another interface wants it from now on, it stays.
        kept = frozenset(rule for link in self.wanted.values() for rule in link.rules)
        earlier = {name: self.ours(name) for name in self.record}
        ours = {name: replace(link, rules=link.rules - kept) for name, link in earlier.items() if link}
        return [
            *(
                removal(self.present[name], self._still_there(found.get("members", {})))
                for name, found in self._gone().items()
                if found.get("absent")
            ),
            *(
                delta(link, self.found(link.netdev), ours.get(link.netdev))
                for link in (*self.released(), *self.wanted.values())
            ),
        ]

    def managed(self, paths: t.Collection[str], manager: managers.Manager | None) -> list[Link]:
        """Management links of which the state, or one of the files at ``paths``, changes: that needs a way back."""
        return [
            link
            for link in (*self.released(), *self.wanted.values())
            if link.management
            and (missing(link, self.found(link.netdev)) or (manager and manager.renderer.path(link) in paths))
        ]

    def new_record(self) -> dict[str, t.Any]:
        record = {}
        for name, link in self.wanted.items():
            record[name] = {"before": self.before(link), "set": as_plan(link)}
        return record

    def before(self, link: Link) -> dict[str, t.Any]:
        """What a link was before the collection's first change, for the record."""
        known = self.record.get(link.netdev, {}).get("before") or self.changed_before.get(link.netdev)
        if not (known.get("absent") if known else link.netdev not in self.present):
            return known or as_found(self.present[link.netdev], link.management)
        members = link.bond.members if link.bond else ()
        # Let go by its bond, a member goes back to what it had when it joined: after a boot, that is the bond's.
        found = {name: as_found(self.found(name), management=False) for name in members}
        return {"absent": True, **({"members": {**found, **(known or {}).get("members", {})}} if members else {})}

    def give_back_kernel_conf(self) -> None:
        """Last of all, once the network manager has let go of the interface, or of a bond's members."""
        for name in self.record.keys() - self.wanted.keys():
            was = self.record[name].get("before", {})
            for netdev, found in ((name, was), *was.get("members", {}).items()):
                kernel_conf.give_back(netdev, found.get("kernel", {}))

    def _still_there(self, members: t.Mapping[str, dict[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        return {name: found for name, found in members.items() if name in self.present}

    def read_back(self) -> dict[str, Link]:
        self.look_again()
        lacks = [
            f"{name}: {text}"
            for name, link in self.wanted.items()
            for text in missing(link, self.present.get(name, Link(name)))
        ]
        if lacks:
            raise LinkError(f"The kernel did not take every setting: {'; '.join(lacks)}")
        return self.present


def as_found(link: Link, management: bool) -> dict[str, t.Any]:
    """Return what a link has before the first change, for the record: of a rail only what is not added but replaced."""
    if not management:
        kernel = kernel_conf.found(link.netdev)
        return {
            "mtu": link.mtu,
            "up": link.up,
            **({"ipoib": {"mode": link.ipoib.mode}} if link.ipoib else {}),
            **({"kernel": kernel} if kernel else {}),
        }
    # The kernel's own routes come and go with the addresses.
    routes = frozenset(route for route in link.routes if route.via)
    return {**as_plan(replace(link, routes=routes)), "up": link.up, "management": True}


def before(name: str, found: t.Mapping[str, t.Any]) -> Link:
    """Return a link as it was found; what an earlier version did not record stays as it is."""
    if found.get("management"):
        return wanted_link({"netdev": name, **found})
    # A link that was up may have been taken down by somebody else meanwhile; only our own raising is undone.
    return Link(
        netdev=name,
        mtu=found.get("mtu"),
        up=False if found.get("up") is False else None,
        ipoib=wanted_ipoib(found["ipoib"], name) if found.get("ipoib") else None,
    )


def as_bond(link: Link) -> dict[str, t.Any]:
    bond = link.bond
    assert bond is not None
    return {
        "mode": bond.mode,
        "members": list(bond.members),
        "miimon_ms": bond.miimon_ms,
        "lacp_rate": bond.lacp_rate,
        "xmit_hash_policy": bond.xmit_hash_policy,
    }


def as_ipoib(link: Link) -> dict[str, t.Any]:
    ipoib = link.ipoib
    assert ipoib is not None
    return {"mode": ipoib.mode, "parent": ipoib.parent, "pkey": f"{ipoib.pkey:#06x}" if ipoib.pkey else None}


def as_plan(link: Link) -> dict[str, t.Any]:
    """Return a link in the shape of the plan, for the record."""
    return {
        "mtu": link.mtu,
        "management": link.management,
        **({"bond": as_bond(link)} if link.bond else {}),
        **({"ipoib": as_ipoib(link)} if link.ipoib else {}),
        "addresses": sorted(link.addresses),
        "routes": [
            {"dst": route.dst, "via": route.via, "table": route.table, "src": route.src}
            for route in sorted(link.routes, key=Route.order)
        ],
        "rules": [{"from": rule.source, "table": rule.table, "priority": rule.priority} for rule in sorted(link.rules)],
    }


__all__ = ("Links", "as_plan")
