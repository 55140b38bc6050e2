# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Firewalls: what filters packets now, and who manages it."""

from __future__ import annotations

import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["COMMANDS", "collect", "parse_zones"]

_RULESET = ("nft", "list", "ruleset")
_ZONES = ("firewall-cmd", "--list-all-zones")
COMMANDS = (_RULESET,)
_TABLE = re.compile(r"^table (\S+) (\S+) \{", re.MULTILINE)
#: More than a rule set of this size is another program's, and no rule reads it.
_LIMIT = 262144


def collect(source: Source, services: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    output = source.run(_RULESET)
    if output is not None:
        if output.rc == 0:
            tables = [f"{family} {name}" for family, name in _TABLE.findall(output.stdout)]
            found["nftables"] = {"ruleset": output.stdout[:_LIMIT], "tables": tables}
        else:
            source.note("nft list ruleset", output.stderr.strip() or f"exit status {output.rc}")
    legacy = [
        f"{family}:{table}"
        for family, path in (("ipv4", "/proc/net/ip_tables_names"), ("ipv6", "/proc/net/ip6_tables_names"))
        for table in (source.read(path) or "").split()
    ]
    if legacy:
        found["iptables_legacy"] = legacy
    firewalld = _firewalld(source, services)
    if firewalld is not None:
        found["firewalld"] = firewalld
    ufw = re.search(r"^ENABLED=(\w+)", source.read("/etc/ufw/ufw.conf") or "", re.MULTILINE)
    if ufw is not None:
        found["ufw"] = {"active": ufw.group(1) == "yes"}
    elif not source.live:
        status = source.run(("ufw", "status"))
        if status is not None and "Status:" in status.stdout:
            found["ufw"] = {"active": "Status: active" in status.stdout}
    return found


def _firewalld(source: Source, services: dict[str, Any]) -> Optional[dict[str, Any]]:
    unit = services.get("firewalld")
    if source.live and (unit is None or not unit.get("active")):
        return {"active": False} if unit is not None else None
    output = source.run(_ZONES)
    if output is None or not output.stdout.strip():
        return {"active": bool(unit["active"])} if unit is not None and "active" in unit else None
    return {"active": True, "zones": parse_zones(output.stdout)}


def parse_zones(text: str) -> dict[str, Any]:
    """`firewall-cmd --list-all[-zones]`: a name, ` (active)` where the zone has interfaces or sources, settings."""
    zones: dict[str, Any] = {}
    current: dict[str, Any] = {}
    for line in text.splitlines():
        head = re.match(r"^([\w.-]+)(?: \(([\w, -]+)\))?\s*$", line)
        if head is not None:
            current = zones.setdefault(head.group(1), {"active": "active" in (head.group(2) or "")})
            continue
        setting = re.match(r"^\s+([\w-]+):[ \t]*(.*)$", line)
        if setting is None or not zones:
            continue
        key, value = setting.group(1).replace("-", "_"), setting.group(2).strip()
        current[key] = value if key in ("target", "masquerade", "forward", "icmp_block_inversion") else value.split()
    return zones
