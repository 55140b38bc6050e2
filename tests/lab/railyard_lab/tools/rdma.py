# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rdma of iproute2 6.1."""

from __future__ import annotations

import json
from typing import Any

from railyard_lab import ports, tree_rdma
from railyard_lab import state as state_file
from railyard_lab.tools import _common

PHYSICAL = {1: "SLEEP", 2: "POLLING", 3: "DISABLED", 5: "LINK_UP", 6: "LINK_ERROR_RECOVER"}
_VERSION = "rdma utility, iproute2-6.1.0"
_USAGE = """Usage: rdma [ OPTIONS ] OBJECT { COMMAND | help }
       rdma [ -f[orce] ] -b[atch] filename
where  OBJECT := { dev | link | resource | system | statistic | help }
       OPTIONS := { -V[ersion] | -d[etails] | -j[son] | -p[retty] -r[aw]}"""


def _link(state: dict[str, Any], nic: dict[str, Any], index: int) -> dict[str, Any]:
    port = ports.view(state, nic, _common.live(state))
    entry: dict[str, Any] = {"ifindex": index, "ifname": nic["rdma"], "port": 1}
    if port["link_layer"] == "InfiniBand":
        entry |= {"subnet_prefix": "fe80:0000:0000:0000", "lid": port["lid"], "sm_lid": port["sm_lid"], "lmc": 0}
    entry |= {"state": ports.STATES[port["state"]], "physical_state": PHYSICAL[port["phys_state"]]}
    if port["link_layer"] == "Ethernet" and port["interface"] is not None:
        entry |= {"netdev": nic["netdev"], "netdev_index": port["interface"].index}
    return entry


def _matches(word: str, full: str) -> bool:
    return bool(word) and full.startswith(word)


def main(name: str, argv: list[str]) -> int:
    options = {"-j": "json", "-json": "json", "--json": "json", "-p": "pretty", "-jp": "json pretty", "-d": "details",
               "-dj": "json details", "-jd": "json details", "-pj": "json pretty", "--pretty": "pretty"}  # fmt: skip
    chosen: set[str] = set()
    while argv and argv[0].startswith("-"):
        word = argv.pop(0)
        if word in ("-V", "-Version", "--Version"):
            print(_VERSION)
            return 0
        if word not in options:
            _common.error("Unknown option.")
            _common.error(_USAGE)
            return 1
        chosen |= set(options[word].split())
    if not argv or _matches(argv[0], "help"):
        _common.error(_USAGE) if not argv else print(_USAGE)
        return 0
    what, rest = argv[0], argv[1:]
    state = _common.snapshot()
    nics = sorted((nic for nic in state["nics"] if nic["rdma"]), key=lambda nic: nic["pci"])
    if "mlx5_ib" not in state["modules"]:
        nics = []
    if _matches(what, "dev") and rest[:1] == ["set"]:
        return _rename(rest[1:])
    if rest and _matches(rest[0], "show"):
        rest = rest[1:]
    wanted = rest[0].split("/")[0] if rest else None
    if wanted and wanted not in [nic["rdma"] for nic in nics]:
        _common.error("Wrong device name")
        return 1
    rows = [(index, nic) for index, nic in enumerate(nics) if wanted in (None, nic["rdma"])]
    if _matches(what, "dev"):
        return _devices(rows, chosen)
    if _matches(what, "link"):
        return _links(state, rows, chosen)
    if _matches(what, "system"):
        print('[{"netns":"shared","copy-on-fork":true}]' if "json" in chosen else "netns shared copy-on-fork on")
        return 0
    _common.error(f'Object "{what}" is unknown, try "rdma help".')
    return 1


def _dump(entries: list[dict[str, Any]], chosen: set[str]) -> int:
    print(json.dumps(entries, indent=4) if "pretty" in chosen else json.dumps(entries, separators=(",", ":")))
    return 0


def _devices(rows: list[tuple[int, dict[str, Any]]], chosen: set[str]) -> int:
    entries = [
        {
            "ifindex": index,
            "ifname": nic["rdma"],
            "node_type": "ca",
            "fw": nic["firmware"],
            "node_guid": tree_rdma.dotted(nic["node_guid"]),
            "sys_image_guid": tree_rdma.dotted(nic["sys_image_guid"]),
        }
        for index, nic in rows
    ]
    if "json" in chosen:
        return _dump(entries, chosen)
    for entry in entries:
        print(
            f"{entry['ifindex']}: {entry['ifname']}: node_type ca fw {entry['fw']} node_guid {entry['node_guid']} "
            f"sys_image_guid {entry['sys_image_guid']} "
        )
    return 0


def _links(state: dict[str, Any], rows: list[tuple[int, dict[str, Any]]], chosen: set[str]) -> int:
    entries = [_link(state, nic, index) for index, nic in rows]
    if "json" in chosen:
        return _dump(entries, chosen)
    for entry in entries:
        text = f"link {entry['ifname']}/1 "
        for key in ("subnet_prefix", "lid", "sm_lid", "lmc", "state", "physical_state", "netdev"):
            if key in entry:
                text += f"{key} {entry[key]} "
        print(text)
    return 0


def _rename(words: list[str]) -> int:
    """`rdma dev set OLD name NEW`"""
    if len(words) != 3 or words[1] != "name":
        _common.error("Usage: rdma dev set [DEV] name DEVNAME")
        return 1
    with state_file.change() as state:
        nic = state_file.nic_by(state, "rdma", words[0])
        if nic is None:
            _common.error("Wrong device name")
            return 1
        if state_file.nic_by(state, "rdma", words[2]) is not None:
            _common.error("error: File exists")
            return 1
        state["gid_tables"][words[2]] = state["gid_tables"].pop(words[0], [])
        nic["rdma"] = words[2]
    return 0
