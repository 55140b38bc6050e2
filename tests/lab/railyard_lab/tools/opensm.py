# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""opensm of one host: its ports come up and get the keys of the partitions. Other hosts have states of their own.

What it reads of its files is little; tests/unit/ibsim has the real one read them.
"""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import Any

from railyard_lab import ipoib
from railyard_lab import state as state_file
from railyard_lab.tools import _common

_RULE = re.compile(
    r"^\s*(?P<name>[\w-]*)\s*=\s*(?P<key>0x[0-9a-fA-F]+)\s*(?P<flags>[^:]*):\s*(?P<members>[^;]*);", re.M
)


def main(name: str, argv: list[str]) -> int:
    given = dict(zip(argv, argv[1:]))
    config, guid = given.get("--config") or given.get("-F"), given.get("--guid") or given.get("-g", "")
    log = Path(given.get("--log_file") or given.get("-f") or "/var/log/opensm.log")
    state = _common.snapshot()
    if "ib_umad" not in state["modules"]:
        _common.error("Error from osm_opensm_bind (0x2A): no umad device")
        return 1
    own = next((nic for nic in ipoib.ports(state).values() if f"0x{nic['node_guid']}" == guid), None)
    if own is None:
        _common.error(f"Could not find local port with guid {guid}")
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGTERM, signal.SIGINT})
    while True:
        sweep(_settings(config), guid)
        with log.open("a") as stream:
            stream.write("SUBNET UP\n")
        sys.stdout.flush()
        if signal.sigwait({signal.SIGHUP, signal.SIGTERM, signal.SIGINT}) != signal.SIGHUP:
            return 0


def _settings(config: str | None) -> dict[str, str]:
    lines = Path(config).read_text().splitlines() if config else []
    return dict(line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))


def sweep(settings: dict[str, str], guid: str) -> None:
    """Bring the host's ports up and fill their tables; keys keep their places, as with keep_pkey_indexes."""
    path = Path(settings.get("partition_config_file", "/etc/opensm/partitions.conf"))
    rules = partitions(path.read_text()) if path.exists() else {0x7FFF: "ALL=full"}
    with state_file.change() as state:
        own = next(nic for nic in ipoib.ports(state).values() if f"0x{nic['node_guid']}" == guid)
        if not state["sm"]["lid"]:
            state["sm"]["lid"] = own["lid"]
        for nic in ipoib.ports(state).values():
            mine = [key | 0x8000 for key, members in rules.items() if _is_member(nic, members, nic is own)]
            table = [key if key in mine else 0 for key in ipoib.pkeys(nic)]
            for key in mine:
                if key in table:
                    continue
                if 0 in table:
                    table[table.index(0)] = key
                else:
                    table.append(key)
            nic["pkeys"] = [f"{key:#06x}" for key in table]


def partitions(text: str) -> dict[int, str]:
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return {int(rule["key"], 16) & 0x7FFF: rule["members"] for rule in _RULE.finditer(text)}


def _is_member(nic: dict[str, Any], members: str, own: bool) -> bool:
    names = {item.split("=")[0].strip() for item in members.split(",")}
    return "ALL" in names or f"0x{nic['node_guid']}" in names or (own and "SELF" in names)
