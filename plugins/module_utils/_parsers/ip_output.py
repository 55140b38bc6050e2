# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ip addr``, ``ip link``, ``ip route`` and ``ip rule`` of iproute2: text, brief (``-br``) and JSON (``-j``).

Value::

    {"interfaces": [{"name", "index", "parent": "if10", "flags": [...], "mtu", "operstate": "up", "link_type": "ether",
                     "mac", "master", "kind": "bond", "addresses": ["10.0.0.5/24", ...]}],
     "routes": [{"dst": "default"|cidr, "type", "via", "dev", "table": "main", "src", "metric", "scope", "protocol",
                 "family": 4|6, "flags": ["onlink"], "nexthops": [{"via", "dev", "weight"}]}],
     "rules": [{"priority", "from", "to", "table", "iif", "oif", "fwmark", "action", "not": true}]}

What kind of answer it is shows in its lines; an answer of one kind leaves the other lists empty.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Line, Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._lenient_json import load
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import (
    decoded,
    last_word_cut,
    read_lines,
)

_STATES = "UP|DOWN|UNKNOWN|DORMANT|LOWERLAYERDOWN|TESTING|NOTPRESENT"
_BRIEF = re.compile(rf"^([^\s@:]+)(?:@(\S+))?\s+({_STATES})(?:\s+(.*))?$")
_LINK = re.compile(r"^(\d+): ([^\s@:]+)(?:@(\S+))?: <([A-Z0-9_,-]*)>(.*)$")
_LINK_LAYER = re.compile(r"^\s+link/(\S+)(?: ([0-9a-fA-F:]{2,}))?")
_INET = re.compile(r"^\s+inet6? (\S+)(?: peer (\S+))?")
_RULE = re.compile(r"^(\d+):\s+(not )?from (\S+)(.*)$")
_MAC = re.compile(r"^[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5,19}$")
_TYPES = frozenset(
    {"unicast", "local", "broadcast", "multicast", "blackhole", "unreachable", "prohibit", "throw", "anycast", "nat"}
)
# Words of a route that a value follows.
_VALUED = frozenset(
    {"via", "dev", "table", "src", "metric", "scope", "proto", "pref", "mtu", "advmss", "expires", "weight"}
)
_NUMBERS = frozenset({"metric", "mtu"})
_KEYS = {"proto": "protocol"}
_OWN = re.compile(
    rf"^\d+:\s|^\s+(?:inet6?|link/|nexthop) |^[^\s:]+\s+(?:{_STATES})(?:\s|$)"
    r"|^(?:(?:unicast|local|broadcast|multicast|blackhole|unreachable|prohibit) )?(?:default|[0-9a-f.:/]+) "
    r"(?:dev|via|proto) "
)


def parse(text: str) -> Parsed:
    """Read an answer of ``ip``."""
    problems = Problems()
    value: dict[str, Any] = {"interfaces": [], "routes": [], "rules": []}
    plain = decoded(text)
    start = re.search(r"^\s*\[\s*[{\]]", plain, re.MULTILINE) if isinstance(plain, str) else None
    if start and not re.search(r"^\d+: |^\s+inet6? ", plain, re.MULTILINE):
        _json(plain[start.start() :], value, problems)
        return problems.result(value)
    reader = _Reader(value, problems)
    lines = read_lines(text, problems, barriers=True, own=_OWN)
    for line in lines:
        if line.damaged:
            if not line.text.startswith((" ", "\t")):
                reader.current = reader.route = None
        elif not line.blank:
            reader.read(line)
    if not any(value.values()) and any(not line.blank for line in lines):
        problems.add("There is no answer of ip in this text.", text=lines[0].text)
    return problems.result(value)


def prefix(text: str) -> str | None:
    """A destination or interface address as iproute2 prints it; None when it is none."""
    if text in ("default", "all", "any"):
        return text
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return None
    return text


class _Reader:
    def __init__(self, value: dict[str, Any], problems: Problems) -> None:
        self.value = value
        self.problems = problems
        self.current: dict[str, Any] | None = None
        self.route: dict[str, Any] | None = None

    def read(self, line: Line) -> None:
        text, cut = last_word_cut(line)
        if cut:
            self.problems.cut(line)
        brief, link, rule = _BRIEF.match(text), _LINK.match(text), _RULE.match(text)
        if link:
            self._link(link)
        elif line.text[:1] in (" ", "\t"):
            if self.current is not None:
                self._detail(text)
            elif self.route is not None and not cut and text.strip().startswith("nexthop "):
                words = text.split()
                hop = {word: words[n + 1] for n, word in enumerate(words[:-1]) if word in ("via", "dev", "weight")}
                self.route.setdefault("nexthops", []).append(hop)
        elif rule:
            if not cut:
                self._rule(rule, line)
        elif brief:
            self._brief(brief)
        else:
            self._route(text, line, cut)

    def _link(self, match: re.Match[str]) -> None:
        index, name, parent, flags, rest = match.groups()
        entry: dict[str, Any] = {"name": name, "index": int(index), "flags": flags.split(",") if flags else []}
        if parent:
            entry["parent"] = parent
        words = rest.split()
        for word, following in zip(words, words[1:]):
            if word == "mtu" and following.isdigit():
                entry["mtu"] = int(following)
            elif word == "state":
                entry["operstate"] = following.lower()
            elif word == "master":
                entry["master"] = following
        entry["addresses"] = []
        self.current = entry
        self.value["interfaces"].append(entry)

    def _detail(self, text: str) -> None:
        if self.current is None:
            return
        layer, inet = _LINK_LAYER.match(text), _INET.match(text)
        if layer:
            self.current["link_type"] = layer.group(1)
            if layer.group(2) and _MAC.match(layer.group(2)):
                self.current["mac"] = layer.group(2).lower()
        elif inet:
            address = inet.group(1)
            if inet.group(2):
                self.current.setdefault("peers", []).append(inet.group(2))
            if prefix(address):
                self.current["addresses"].append(address)
        else:
            word = text.split()[0] if text.split() else ""
            if word in ("bond", "vlan", "vxlan", "bridge", "veth", "ipoib", "macvlan", "dummy", "tun", "vrf"):
                self.current["kind"] = word
            elif word in ("bond_slave", "bridge_slave"):
                self.current["port_of"] = word.partition("_")[0]

    def _brief(self, match: re.Match[str]) -> None:
        name, parent, state, rest = match.groups()
        entry: dict[str, Any] = {"name": name, "operstate": state.lower(), "addresses": []}
        if parent:
            entry["parent"] = parent
        for word in (rest or "").split():
            if word.startswith("<") and word.endswith(">"):
                entry["flags"] = word[1:-1].split(",")
            elif _MAC.match(word):
                entry["mac"] = word.lower()
            elif "/" in word and prefix(word):
                entry["addresses"].append(word)
        self.current = None
        self.value["interfaces"].append(entry)

    def _rule(self, match: re.Match[str], line: Line) -> None:
        priority, negated, source, rest = match.groups()
        entry: dict[str, Any] = {"priority": int(priority), "from": source}
        if negated:
            entry["not"] = True
        words = rest.split()
        for word, following in zip(words, words[1:]):
            if word == "lookup":
                entry["table"] = following
            elif word in ("to", "iif", "oif", "fwmark", "sport", "dport", "ipproto"):
                entry[word] = following
        last = words[-1] if words else ""
        if last in ("unreachable", "blackhole", "prohibit"):
            entry["action"] = last
        if "table" not in entry and "action" not in entry:
            self.problems.add("The rule names no table.", line)
            return
        self.value["rules"].append(entry)

    def _route(self, text: str, line: Line, cut: bool) -> None:
        self.route = None
        words = text.split()
        kind = words.pop(0) if words and words[0] in _TYPES else ""
        destination = prefix(words[0]) if words else None
        if destination in (None, "all", "any") or not ({"dev", "via", "nexthop", "proto"} & set(words) or kind):
            return
        if cut:
            # Behind the cut there may be a table or a metric, without which this is another route.
            return
        entry: dict[str, Any] = {"dst": destination}
        if kind:
            entry["type"] = kind
        position = 1
        while position < len(words):
            word = words[position]
            if word in _VALUED and position + 1 < len(words):
                following = words[position + 1]
                if word == "via" and following in ("inet", "inet6") and position + 2 < len(words):
                    position += 1
                    following = words[position + 1]
                key = _KEYS.get(word, word)
                if key not in entry:
                    entry[key] = int(following) if word in _NUMBERS and following.isdigit() else following
                position += 2
            else:
                if word in ("onlink", "linkdown", "dead", "pervasive", "offload"):
                    entry.setdefault("flags", []).append(word)
                position += 1
        entry.setdefault("table", "main")
        entry["family"] = 6 if any(":" in str(entry.get(key, "")) for key in ("dst", "via", "src")) else 4
        if entry["dst"] == "default" and "via" not in entry and entry.get("pref"):
            entry["family"] = 6
        self.current, self.route = None, entry
        self.value["routes"].append(entry)


def _json(text: str, value: dict[str, Any], problems: Problems) -> None:
    end = text.rfind("]")
    document, good = load(text[: end + 1] if end >= 0 else text, whole_objects=True)
    if not good:
        document, good = load(text, whole_objects=True)
    if not good:
        problems.add("The document ends early or is damaged; only what stands before that is read.", text=text[-80:])
    entries = document if isinstance(document, list) else []
    # An entry that is not closed may lack the key that makes it another one (the table of a route).
    for entry in entries if good else entries[:-1]:
        if not isinstance(entry, dict):
            continue
        if "ifname" in entry:
            value["interfaces"].append(_json_interface(entry))
        elif "dst" in entry and ("dev" in entry or "type" in entry or "nexthops" in entry):
            value["routes"].append(_json_route(entry))
        elif "priority" in entry and "table" in entry:
            value["rules"].append(_json_rule(entry))


def _json_interface(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": entry["ifname"], "addresses": []}
    for name, key in (
        ("ifindex", "index"),
        ("mtu", "mtu"),
        ("master", "master"),
        ("link_type", "link_type"),
        ("link", "parent"),
    ):
        if isinstance(entry.get(name), (int, str)):
            found[key] = entry[name]
    if isinstance(entry.get("operstate"), str):
        found["operstate"] = entry["operstate"].lower()
    if isinstance(entry.get("flags"), list):
        found["flags"] = entry["flags"]
    if isinstance(entry.get("address"), str) and _MAC.match(entry["address"]):
        found["mac"] = entry["address"].lower()
    information = entry.get("linkinfo")
    if isinstance(information, dict) and isinstance(information.get("info_kind"), str):
        found["kind"] = information["info_kind"]
    for address in entry.get("addr_info") or []:
        if (
            isinstance(address, dict)
            and isinstance(address.get("local"), str)
            and isinstance(address.get("prefixlen"), int)
        ):
            found["addresses"].append(f"{address['local']}/{address['prefixlen']}")
    return found


def _json_route(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"dst": entry["dst"]}
    names = {
        "type": "type",
        "gateway": "via",
        "dev": "dev",
        "prefsrc": "src",
        "metric": "metric",
        "scope": "scope",
        "protocol": "protocol",
    }
    for name, key in names.items():
        if isinstance(entry.get(name), (int, str)):
            found[key] = entry[name]
    via = entry.get("via")
    if isinstance(via, dict) and isinstance(via.get("host"), str):
        found["via"] = via["host"]
    if entry.get("flags"):
        found["flags"] = entry["flags"]
    found["table"] = str(entry.get("table", "main"))
    found["family"] = 6 if any(":" in str(found.get(key, "")) for key in ("dst", "via", "src")) else 4
    return found


def _json_rule(entry: dict[str, Any]) -> dict[str, Any]:
    source = str(entry.get("src", "all"))
    if isinstance(entry.get("srclen"), int):
        source += f"/{entry['srclen']}"
    found: dict[str, Any] = {"priority": entry["priority"], "from": source, "table": str(entry["table"])}
    if isinstance(entry.get("dst"), str):
        found["to"] = entry["dst"] + (f"/{entry['dstlen']}" if isinstance(entry.get("dstlen"), int) else "")
    for name in ("iif", "oif", "fwmark"):
        if isinstance(entry.get(name), str):
            found[name] = entry[name]
    return found
