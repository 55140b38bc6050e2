# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bonds for storage and front-end networks, as the intent names them; rails that are bonds are found in the facts."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import interface_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem

VARIABLE = interface_checks.BONDS
MODES = ("802.3ad", "active-backup")
KEYS = ("members", "mode", "addresses", "gateway", "mtu", "lacp_rate", "xmit_hash_policy")
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")


def problems(intent: Intent) -> list[Problem]:
    """What cannot be meant, bond by bond."""
    found: list[Problem] = []
    taken: dict[str, str] = {}
    for name, given in intent[VARIABLE].items():
        if not _NAME.match(str(name)) or not isinstance(given, t.Mapping):
            found.append(Problem(VARIABLE, f"{name!r}: {given!r}", "interface names, each with members and mode"))
            continue
        found += [Problem(VARIABLE, f"{name} has no {key}", ", ".join(KEYS)) for key in given if key not in KEYS]
        if given.get("mode") not in MODES:
            found.append(Problem(VARIABLE, f"mode of {name} is {given.get('mode')!r}", " or ".join(MODES)))
        members = given.get("members")
        if not isinstance(members, (list, tuple)) or not members:
            found.append(Problem(VARIABLE, f"members of {name} is {members!r}", "a list of interfaces"))
        for member in map(str, members if isinstance(members, (list, tuple)) else ()):
            if member in taken or member == name:
                shown = f"{member} is in {taken.get(member, name)} and in {name}"
                found.append(Problem(VARIABLE, shown, "each interface in one bond, and once"))
            taken[member] = str(name)
        mtu = given.get("mtu")
        if mtu is not None and (isinstance(mtu, bool) or not isinstance(mtu, int) or not 1280 <= mtu <= 9978):
            found.append(Problem(VARIABLE, f"mtu of {name} is {mtu!r}", "a number from 1280 to 9978 bytes"))
        addresses = given.get("addresses")
        if addresses is not None and not isinstance(addresses, (list, tuple)):
            found.append(Problem(VARIABLE, f"addresses of {name} is {addresses!r}", "a list of addresses"))
            continue
        for item in addresses or ():
            if interface_checks.interface(item) is None:
                allowed = "hosts' addresses with prefix lengths"
                found.append(Problem(VARIABLE, f"{item!r} in addresses of {name}", allowed))
    return found


def for_host(intent: Intent) -> list[dict[str, t.Any]]:
    """plan.hosts[h].bonds, entries of fabric_links."""
    links = []
    for name, given in sorted(intent[VARIABLE].items()):
        lacp = given["mode"] == "802.3ad"
        options = {
            "lacp_rate": given.get("lacp_rate") or ("fast" if lacp else None),
            # Flows of one pair of hosts spread over the members only if their ports count.
            "xmit_hash_policy": given.get("xmit_hash_policy") or ("layer3+4" if lacp else None),
        }
        links.append(
            {
                "netdev": name,
                "bond": {
                    "members": [str(member) for member in given["members"]],
                    "mode": given["mode"],
                    **{key: value for key, value in options.items() if value},
                },
                "mtu": given.get("mtu"),
                "addresses": [str(item) for item in given.get("addresses") or ()],
                "routes": interface_checks.default_routes(given),
                "rules": [],
            }
        )
    return links
