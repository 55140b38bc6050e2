# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces that are no longer what the host's network configuration takes them for."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
    mapping,
    natural,
)

RENAMED = define(
    "links",
    "RF-LINK-RENAMED",
    title="A network interface has another name than its configuration",
    severity="fail",
    phase="verify",
    means="The configuration names an interface that is not there under this name any more, so address and MTU are not "
    "applied: the rail is down, or the host is lost after the next boot.",
    looks_at="Names in netplan, networkd, NetworkManager and ifupdown files against the interfaces of the host; in a "
    "bundle with an earlier recording the name of each MAC address then and now.",
    cause="A driver or kernel update changed how udev names the port (ens1f0 becomes ens1f0np0 with OFED's driver), "
    "or a card moved to another slot.",
    remedy="Write the new name into the file named in the message, or pin the old one with a .link file that matches "
    "the MAC address; apply it over the console or with a roll-back timer.",
    check="ip -br addr shows the address on the interface; it is there again after a reboot.",
    source="systemd.net-naming-scheme(7); DESIGN: stable names by PCI path",
)

DEFAULT_ROUTE = define(
    "links",
    "RF-LINK-DEFAULT-ROUTE",
    title="The default route leaves through another interface than before",
    severity="fail",
    phase="verify",
    means="Traffic to everything outside the host's own subnets takes another way than in the earlier recording. "
    "Through a rail it reaches nobody; the host can be lost for its administrators.",
    looks_at="The preferred default route of the main table, now and in the earlier recording of the bundle.",
    cause="DHCP or a gateway on a rail added a default route with a better metric, or the old interface lost its "
    "configuration.",
    remedy="Remove the default route from the interface named first (netplan: dhcp4-overrides use-routes: false, "
    "NetworkManager: ipv4.never-default yes), and keep gateways of rails in their own routing tables.",
    check="ip route show default names the management interface first.",
    source="DESIGN: the management interface is never touched unasked",
)

# udev appends the port's name where the driver tells it.
_SUFFIX = re.compile(r"(np\d+|d\d+|s\d+)$")


def _names_by_mac(host: HostView) -> dict[str, str]:
    names: dict[str, list[str]] = {}
    for name, data in host.section("netdevs").items():
        mac, kind = mapping(data).get("mac"), mapping(data).get("kind")
        if isinstance(mac, str) and mac.strip("0:") and kind in ("physical", "ipoib", None):
            names.setdefault(mac.lower(), []).append(str(name))
    # Members of a bond have the bond's address; an address of several interfaces identifies none.
    return {mac: found[0] for mac, found in names.items() if len(found) == 1}


def _earlier(rack: RackView, name: str) -> HostView | None:
    facts = mapping(mapping(rack.outputs.get("before")).get("facts")).get(name)
    return HostView(name, facts) if facts else None


@rack_rule(RENAMED)
def renamed(rack: RackView) -> t.Iterator[Finding]:
    for host in rack.hosts:
        present = {str(name) for name in host.section("netdevs")}
        if not present:
            continue
        then = _names_by_mac(before) if (before := _earlier(rack, host.name)) else {}
        now = _names_by_mac(host)
        moved = {old: (now[mac], mac) for mac, old in then.items() if mac in now and now[mac] != old}
        files: dict[str, list[str]] = {}
        for path, names in sorted(host.section("link_config").items()):
            for name in names if isinstance(names, list) else []:
                files.setdefault(str(name), []).append(str(path))
        for old in sorted(set(files) - present - set(moved), key=natural):
            heirs = [name for name in sorted(present, key=natural) if _SUFFIX.sub("", name) == _SUFFIX.sub("", old)]
            if len(heirs) == 1:
                moved[old] = (heirs[0], "")
        for old, (new, mac) in moved.items():
            paths = files.get(old, [])
            where = f"; {', '.join(paths)} names {old}" if paths else ""
            yield RENAMED.on(
                host,
                f"{host.name}: interface {old} is now {new}{where}; one name in both wanted",
                device=new,
                evidence=[
                    f"{mac}: {old} before, {new} now" if mac else f"{new} is there, {old} is not",
                    *(f"{path}: {old}" for path in paths),
                ],
                remedy=f"Write {new} in place of {old} into {', '.join(paths)}, or pin {old} with a .link file that "
                "matches the MAC address; apply it over the console or with a roll-back timer."
                if paths
                else None,
                severity=None if paths else "warn",
            )


def _default(host: HostView) -> dict[str, t.Any]:
    routes = [
        route
        for route in dicts(host.get("routes"))
        if route.get("dst") == "default" and route.get("dev") and str(route.get("table", "main")) == "main"
    ]
    return min(routes, key=lambda route: (route.get("family", 4), route.get("metric") or 0), default={})


@rack_rule(DEFAULT_ROUTE)
def default_route_moved(rack: RackView) -> t.Iterator[Finding]:
    for host in rack.hosts:
        before = _earlier(rack, host.name)
        then, now = _default(before) if before else {}, _default(host)
        if not then or "routes" not in host.facts or then.get("dev") == now.get("dev"):
            continue
        seen = now.get("dev") or "no interface"
        if now.get("dev") in _heirs(rack, host, str(then["dev"])):
            continue  # the same interface under another name
        yield DEFAULT_ROUTE.on(
            host,
            f"{host.name}: the default route leaves through {seen}, {then['dev']} wanted as in the earlier recording",
            device=str(seen),
            evidence=[f"before: default via {then.get('via')} dev {then['dev']}"]
            + ([f"now: default via {now.get('via')} dev {now['dev']}"] if now else ["now: no default route"]),
        )


def _heirs(rack: RackView, host: HostView, old: str) -> list[str]:
    before = _earlier(rack, host.name)
    now = _names_by_mac(host)
    return [now[mac] for mac, name in (_names_by_mac(before) if before else {}).items() if name == old and mac in now]
