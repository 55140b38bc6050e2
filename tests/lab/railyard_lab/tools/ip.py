# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ip of iproute2 for interfaces of IP over InfiniBand; everything else is the distribution's program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from railyard_lab import interfaces, ipoib
from railyard_lab import state as state_file
from railyard_lab.tools import _common

EINVAL, ENOTUNIQ = "Invalid argument", "Name not unique on network"


def main(name: str, argv: list[str]) -> int:
    words = [word for word in argv if not word.startswith("-")]
    options = {word.lstrip("-") for word in argv if word.startswith("-")}
    if state_file.exists():
        state = state_file.load()
        if words[:2] in (["link", "add"], ["link", "set"]):
            done = _change(state, words[1], words[2:])
            if done is not None:
                return done
        elif options & {"j", "json"} and words[:1] in (["link"], ["address"], ["addr"], ["a"]):
            return _show(state, argv, bool(options & {"d", "details"}))
        elif words[:1] == ["link"] and words[1:2] in (["del"], ["delete"]):
            return _delete(words[-1], argv)
    sys.stdout.flush()
    os.execv(interfaces.real_ip(), ["ip", *argv])
    return 127


def _refuse(reason: str) -> int:
    _common.error(f"RTNETLINK answers: {reason}")
    return 2


def _change(state: dict[str, Any], verb: str, words: list[str]) -> int | None:
    """What ib_ipoib does itself; None: the kernel's own drivers do it."""
    given = dict(zip(words, words[1:]))
    if given.get("type") == "ipoib":
        return _add(state, given) if verb == "add" else _mode(given.get("dev", words[0]), given.get("mode", ""))
    name = given.get("dev", words[0] if words else "")
    if verb == "set" and "mtu" in given and (name in ipoib.ports(state) or name in ipoib.children(state)):
        wanted, limit = int(given["mtu"]), ipoib.group_mtu(state)
        if wanted > 4096 - ipoib.ENCAPSULATION:
            return _refuse(EINVAL)
        # The administrator's wish is kept, and what the group allows is set, without a word.
        interfaces.run_ip("link", "set", "dev", name, "mtu", str(min(wanted, limit)))
        return 0
    return None


def _add(state: dict[str, Any], given: dict[str, str]) -> int:
    parent, name, mode = given.get("link", ""), given.get("name", ""), given.get("mode", "datagram")
    key = int(given.get("pkey", "0"), 0)
    nic = ipoib.ports(state).get(parent)
    taken = [ipoib.DEFAULT_PKEY, *(int(item["pkey"], 16) for item in ipoib.children(state).values()
                                   if item["parent"] == parent)]  # fmt: skip
    if not ipoib.loaded(state) or nic is None or key & 0x7FFF == 0 or mode != "datagram":
        return _refuse(EINVAL)
    if key | 0x8000 in taken:
        return _refuse(ENOTUNIQ)
    done = subprocess.run([interfaces.real_ip(), "link", "add", "link", parent, "name", name, "type", "macvlan",
                           "mode", "bridge"], check=False)  # fmt: skip
    if done.returncode == 0:
        with state_file.change() as changed:
            entry = {"parent": parent, "pkey": f"{key | 0x8000:#06x}", "mode": mode}
            changed.setdefault("ipoib", {})[name] = entry
    return done.returncode


def _mode(name: str, mode: str) -> int:
    """mlx5 has enhanced IP over InfiniBand: datagrams only."""
    return 0 if mode == "datagram" else _refuse(EINVAL)


def _delete(name: str, argv: list[str]) -> int:
    done = subprocess.run([interfaces.real_ip(), *argv], check=False)
    if done.returncode == 0:
        with state_file.change() as state:
            state.get("ipoib", {}).pop(name, None)
    return done.returncode


def _show(state: dict[str, Any], argv: list[str], details: bool) -> int:
    answer = subprocess.run([interfaces.real_ip(), *argv], stdout=subprocess.PIPE, text=True, check=False)
    try:
        entries = json.loads(answer.stdout or "[]")
    except ValueError:
        entries = None
    if isinstance(entries, list):
        known = {*ipoib.ports(state), *ipoib.children(state)}
        shown = [
            _as_infiniband(state, entry, details) if entry.get("ifname") in known else entry
            for entry in entries
            if ipoib.loaded(state) or entry.get("ifname") not in known
        ]
        print(json.dumps(shown, separators=(",", ":")))
    else:
        print(answer.stdout, end="")
    return answer.returncode


def _as_infiniband(state: dict[str, Any], entry: dict[str, Any], details: bool) -> dict[str, Any]:
    name = entry["ifname"]
    nic = ipoib.port_of(state, name)
    assert nic is not None
    for key in ("link_index", "link_netnsid", "linkinfo", "permaddr"):
        entry.pop(key, None)
    entry |= {"link_type": "infiniband", "address": ipoib.address(nic, ipoib.pkey(state, name))}
    entry["broadcast"] = ipoib.broadcast(ipoib.pkey(state, name))
    if not ipoib.joined(state, name):
        entry["flags"] = [flag for flag in entry.get("flags", []) if flag != "LOWER_UP"]
        if "UP" in entry["flags"]:
            entry["flags"].insert(0, "NO-CARRIER")
        entry["operstate"] = "DOWN"
    if details:
        data = {"key": f"{ipoib.pkey(state, name):#06x}", "mode": ipoib.mode(state, name), "umcast": "0000"}
        entry |= {"min_mtu": 0, "max_mtu": 65520, "linkinfo": {"info_kind": "ipoib", "info_data": data}}
    return entry
