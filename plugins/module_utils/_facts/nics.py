# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Settings of interfaces that sysfs does not show, from `ethtool`: pause frames; where they are asked for, or of a
recording, rings, channels, link modes and FEC, too."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    ethtool,
    ethtool_channels,
    ethtool_driver,
    ethtool_fec,
    ethtool_rings,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["merge", "parse_pause"]

_PAUSE = re.compile(r"^(Autonegotiate|RX|TX):\s+(on|off)\b", re.MULTILINE)


def parse_pause(text: str) -> Parsed:
    """`ethtool -a`: global pause frames, which exclude priority flow control."""
    return Parsed({key.lower(): state == "on" for key, state in _PAUSE.findall(text)}, ())


def merge(
    source: Source, tools: Tools, netdevs: dict[str, Any], fabric: dict[str, str], port_settings: bool = False
) -> None:
    """Live, RoCE ports only, and no more than pause frames unless *port_settings* are wanted: the rest costs four
    commands a port, and the plan leaves it alone."""
    if source.live:
        if source.tool("ethtool") is None:
            return
        names = [name for name, link_layer in fabric.items() if link_layer == "Ethernet"]
        settings = source.map(lambda name: _pause(source, tools, name), names)
        if port_settings:
            members = [member for name in names for member in _members(netdevs, name)]
            names += members
            settings += [{} for _ in members]
            more = source.map(lambda name: _port(source, tools, name), names)
            settings = [{**one, **other} for one, other in zip(settings, more)]
    else:
        names = sorted({*fabric, *_recorded(source)})
        settings = [{**_settings(source, tools, name), **_pause(source, tools, name)} for name in names]
    for name, found in zip(names, settings):
        if found:
            netdev = netdevs.setdefault(name, {})
            for key, value in found.items():
                netdev.setdefault(key, value)


def _members(netdevs: dict[str, Any], name: str) -> list[str]:
    """A bond has no port of its own."""
    return list(netdevs.get(name, {}).get("bond", {}).get("members", []))


def _recorded(source: Source) -> list[str]:
    found = []
    for name in source.recorded("ethtool_"):
        netdev = re.sub(r"^ethtool_(?:[a-zA-Z]_)?", "", name).rsplit(".", 1)[0]
        # `ethtool_i.txt` was recorded without the name of its interface.
        if len(netdev) > 1:
            found.append(netdev)
    return found


def _settings(source: Source, tools: Tools, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    told = _ask(source, tools, "-i", name, ethtool_driver.parse)
    for key, label in (("driver", "driver"), ("driver_version", "version"), ("firmware", "firmware"), ("pci", "pci")):
        if told.get(label):
            found[key] = told[label]
    found.update(_port(source, tools, name))
    link = _first(_ask(source, tools, None, name, ethtool.parse))
    for key in ("speed_mbps", "duplex"):
        if key in link:
            found[key] = link[key]
    if "link" in link:
        found["carrier"] = link["link"]
    return found


def _port(source: Source, tools: Tools, name: str) -> dict[str, Any]:
    """Rings and channels with what the device has at most, link modes, FEC."""
    found: dict[str, Any] = {}
    for key, option, parse, sides in (
        ("rings", "-g", ethtool_rings.parse, ("rx", "tx")),
        ("channels", "-l", ethtool_channels.parse, ("combined",)),
    ):
        numbers = _first(_ask(source, tools, option, name, parse))
        current, maximum = numbers.get("current", {}), numbers.get("maximum", {})
        sizes = {
            **{side: current[side] for side in sides if side in current},
            **{f"{side}_max": maximum[side] for side in sides if side in maximum},
        }
        if sizes:
            found[key] = sizes
    link = _first(_ask(source, tools, None, name, ethtool.parse))
    if "autoneg" in link and link.get("supported_link_modes"):
        found["link_mode"] = {
            "autoneg": link["autoneg"],
            "supported_gbps": ethtool.speeds_of(link["supported_link_modes"]),
            "advertised_gbps": ethtool.speeds_of(link.get("advertised_link_modes", [])),
        }
    fec = _first(_ask(source, tools, "--show-fec", name, ethtool_fec.parse))
    if "configured" in fec:
        found["fec"] = {key: fec[key] for key in ("configured", "active") if key in fec}
    return found


def _first(answer: dict[str, Any]) -> dict[str, Any]:
    return (answer.get("interfaces") or [{}])[0]


def _pause(source: Source, tools: Tools, name: str) -> dict[str, Any]:
    pause = _ask(source, tools, "-a", name, parse_pause)
    return {"pause": pause} if "rx" in pause and "tx" in pause else {}


def _ask(source: Source, tools: Tools, option: Any, name: str, parse: Any) -> dict[str, Any]:
    argv = ("ethtool", option, name) if option else ("ethtool", name)
    output = source.run(argv)
    if output is None or output.rc != 0:  # the driver has no such settings
        return {}
    return tools.ask(" ".join(argv), argv, parse) or {}
