# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bonds for storage and front-end networks, as the intent names them; rails that are bonds are found in the facts."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import interface_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem, at, unknown_keys

VARIABLE = interface_checks.BONDS
MODES = ("802.3ad", "active-backup")
KEYS = ("members", "mode", "addresses", "gateway", "mtu", "lacp_rate", "xmit_hash_policy")
OPTIONS = {
    "lacp_rate": ("slow", "fast"),
    "xmit_hash_policy": ("layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"),
}
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,14}$")


class Bond(t.NamedTuple):
    """One bond as far as it is in good form; members and addresses by their place in the intent."""

    name: str
    members: dict[str, int]
    addresses: dict[str, int]
    gateways: list[str]
    mtu: int | None

    @property
    def interfaces(self) -> list[interface_checks.Interface]:
        return [ipaddress.ip_interface(item) for item in self.addresses]


def read(intent: Intent) -> tuple[list[Bond], list[Problem]]:
    """The bonds, and all that cannot be meant, whatever host it is for."""
    found: list[Bond] = []
    problems: list[Problem] = []
    taken: dict[str, str] = {}
    for name, given in intent[VARIABLE].items():
        named = bool(_NAME.match(str(name)))
        if not named:
            allowed = "names such as bond0: a letter, then letters, digits, _, . and -, at most 15 in all"
            problems.append(Problem(VARIABLE, f"{name!r} is no interface's name", allowed))
        if not isinstance(given, t.Mapping):
            problems.append(Problem(VARIABLE, f"{given!r} is no mapping", ", ".join(KEYS), at(str(name))))
            continue
        bond, wrong = _read(str(name), given, taken)
        problems += wrong
        found += [bond] if named else []
    return found, problems


def _read(name: str, given: t.Mapping[str, t.Any], taken: dict[str, str]) -> tuple[Bond, list[Problem]]:
    where = at(name)
    found = unknown_keys(VARIABLE, where, given, KEYS)
    found += _choices(where, given)
    members, wrong = _members(name, given.get("members"), taken)
    own, ill = interface_checks.addresses(VARIABLE, where, given.get("addresses"))
    mtu, odd = interface_checks.mtu(VARIABLE, where, given.get("mtu"))
    faults = interface_checks.gateway_problems(VARIABLE, where, given, list(own), whole=not ill)
    gateways = [] if faults else [str(item) for item in interface_checks.gateways(given)]
    return Bond(name, members, own, gateways, mtu), [*found, *wrong, *ill, *odd, *faults]


def _choices(where: str, given: t.Mapping[str, t.Any]) -> t.Iterator[Problem]:
    mode = given.get("mode")
    if mode not in MODES:
        message = "missing" if mode is None else f"{mode!r} is not allowed"
        yield Problem(VARIABLE, message, " or ".join(MODES), f"{where}.mode")
    for key, allowed in OPTIONS.items():
        if given.get(key) not in (None, *allowed):
            yield Problem(VARIABLE, f"{given[key]!r} is not allowed", ", ".join(allowed), f"{where}.{key}")
    if given.get("lacp_rate") and mode in MODES and mode != "802.3ad":
        yield Problem(VARIABLE, f"mode {mode} has none", "lacp_rate with mode 802.3ad", f"{where}.lacp_rate")


def _members(name: str, given: t.Any, taken: dict[str, str]) -> tuple[dict[str, int], list[Problem]]:
    if not isinstance(given, (list, tuple)) or not given:
        message = "missing" if given is None else f"{given!r} is not allowed"
        return {}, [Problem(VARIABLE, message, "a list of interfaces", at(name, "members"))]
    found: dict[str, int] = {}
    problems = []
    for place, member in enumerate(given):
        owner = name if member == name else taken.get(str(member))
        if not isinstance(member, str) or not member.strip():
            told = (f"{member!r} is no interface's name", "names of interfaces")
        elif owner == name and member in found:
            told = (f"{member} stands there already", "each interface once")
        elif owner == name:
            told = (f"{member} is the bond itself", "other interfaces")
        elif owner:
            told = (f"{member} is a member of {owner}, too", "each interface in one bond")
        else:
            found[member], taken[member] = place, name
            continue
        problems.append(Problem(VARIABLE, *told, at(name, "members", place)))
    return found, problems


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
