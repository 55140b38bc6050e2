# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rack's name and network on this machine, which it shares with the racks of other checkouts.

The management bridge is the claim: it has the network's address and says in its alias whose it is. It is looked for
and made under one lock for the whole machine, so that two racks never take the same name or network; it is gone when
the machine restarts. Where a rack of another checkout has the name, this one's gets an ending; a rack whose checkout
is gone makes way.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import cables, layout, remains

LOCK = Path("/run/lock/railyard-lab")
ALIAS_LIMIT = 255  # the kernel's IFALIASZ, less its final zero


class Claim(NamedTuple):
    prefix: str  # the rack's name on this machine
    subnet: str
    changed: bool
    notes: list[str]  # what a person should know


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def alias_of(prefix: str, directory: Path) -> str:
    alias = f"{remains.MARK} {prefix} {directory}"
    if len(alias.encode()) > ALIAS_LIMIT or len(alias.split()) != 3:
        raise layout.LayoutError(f"{directory}: a rack's directory has no blanks and at most 200 characters.")
    return alias


def addresses() -> dict[str, list[str]]:
    """IPv4 addresses with their prefix length, by interface."""
    links = json.loads(cables.ip(["-json", "-4", "address", "show"]) or "[]")
    return {
        link["ifname"]: [f"{entry['local']}/{entry['prefixlen']}" for entry in link.get("addr_info", [])]
        for link in links
        if "ifname" in link
    }


def used_networks(own_bridge: str) -> list[str]:
    """What this machine routes or has an address in, the rack's own bridge excepted."""
    found = []
    for route in json.loads(cables.ip(["-json", "route", "show", "table", "all"]) or "[]"):
        if route["dst"] != "default" and route.get("dev") != own_bridge and route.get("type", "unicast") == "unicast":
            found.append(route["dst"])
    # A bridge that is down has an address and no route.
    return found + [text for name, texts in addresses().items() if name != own_bridge for text in texts]


def choose_prefix(name: str, directory: Path, before: Mapping[str, Any], present: list[remains.Mark]) -> str:
    """The rack's name on this machine: the one asked for, unless a rack of another checkout has it."""
    mine = next((mark for mark in present if mark.directory == str(directory)), None)
    if mine:
        return mine.prefix
    holder = next((mark for mark in present if mark.bridge == layout.bridge(name)), None)
    unmarked = holder is not None and not holder.directory and before.get("bridge") == holder.bridge
    if holder is None or unmarked:
        return name
    return f"{name}-{hashlib.sha256(str(directory).encode()).hexdigest()[:4]}"


def make_way(directory: Path, name: str, described: bool, environment: Mapping[str, str]) -> list[str]:
    """Take away what stands in the way and is nobody's any more; of what else was left behind, tell."""
    notes = []
    for mark in remains.marks():
        lost = mark.directory == str(directory) and not described
        if lost or (mark.abandoned and mark.bridge == layout.bridge(name)):
            remains.take_down(remains.at(Path(mark.directory)), [], environment)
            notes.append(f"A rack {mark.prefix} whose description is gone ({mark.directory}) was taken down.")
        elif mark.abandoned:
            notes.append(
                f"The rack {mark.prefix} of {mark.directory} is left behind by a checkout that is gone. To remove it, "
                f"in tests/lab: python3 -m lab_rack down --dir {mark.directory}"
            )
    return notes


def take(directory: Path, name: str, wanted: str, before: Mapping[str, Any], environment: Mapping[str, str]) -> Claim:
    """Claim a name and a network for the rack of `directory`, or find the claim that it has. Needs root."""
    layout.check_name(name)
    with machine_lock():
        directory.mkdir(parents=True, exist_ok=True)
        notes = make_way(directory, name, bool(before), environment)
        prefix = choose_prefix(name, directory, before, remains.marks())
        if prefix != name:
            notes.append(f"Another checkout has a rack {name} on this machine: this one's containers are {prefix}-….")
        bridge = layout.bridge(prefix)
        has = next((layout.network_of(text) for text in addresses().get(bridge, [])), "")
        others = used_networks(bridge)
        kept = before.get("subnet", "") or has
        if kept and not wanted and not layout.is_free(others, kept):
            notes.append(f"{kept}, where this rack was, is somebody else's by now: it moves.")
            kept = ""
        subnet = layout.choose_subnet(others, wanted or kept)
        alias = alias_of(prefix, directory)
        if has == subnet:
            cables.ip(["link", "set", bridge, "alias", alias])
            return Claim(prefix, subnet, False, notes)
        if has:
            # It serves packages at an address that is no longer its own.
            remains.end(remains.daemons(remains.at(directory)))
        cables.ip([], f"link del {bridge}\n", force=True)
        cables.ip([], cables.management_up(bridge, subnet, alias))
        return Claim(prefix, subnet, True, notes)
