# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Settings of interfaces that sysfs does not show, from `ethtool`: pause frames; of a recording all that it holds."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    ethtool,
    ethtool_driver,
    ethtool_rings,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["merge", "parse_pause"]

_PAUSE = re.compile(r"^(Autonegotiate|RX|TX):\s+(on|off)\b", re.MULTILINE)


def parse_pause(text: str) -> Parsed:
    """`ethtool -a`: global pause frames, which exclude priority flow control."""
    return Parsed({key.lower(): state == "on" for key, state in _PAUSE.findall(text)}, ())


def merge(source: Source, tools: Tools, netdevs: dict[str, Any], fabric: dict[str, str]) -> None:
    """Live, pause frames of RoCE ports only: sysfs tells the driver, and the plan leaves rings alone."""
    if source.live:
        if source.tool("ethtool") is None:
            return
        names = [name for name, link_layer in fabric.items() if link_layer == "Ethernet"]
        settings = source.map(lambda name: _pause(source, tools, name), names)
    else:
        names = sorted({*fabric, *_recorded(source)})
        settings = [{**_settings(source, tools, name), **_pause(source, tools, name)} for name in names]
    for name, found in zip(names, settings):
        if found:
            netdev = netdevs.setdefault(name, {})
            for key, value in found.items():
                netdev.setdefault(key, value)


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
    rings = (_ask(source, tools, "-g", name, ethtool_rings.parse).get("interfaces") or [{}])[0]
    current, maximum = rings.get("current", {}), rings.get("maximum", {})
    sizes = {
        **{key: current[key] for key in ("rx", "tx") if key in current},
        **{f"{key}_max": maximum[key] for key in ("rx", "tx") if key in maximum},
    }
    if sizes:
        found["rings"] = sizes
    link = (_ask(source, tools, None, name, ethtool.parse).get("interfaces") or [{}])[0]
    for key in ("speed_mbps", "duplex"):
        if key in link:
            found[key] = link[key]
    if "link" in link:
        found["carrier"] = link["link"]
    return found


def _pause(source: Source, tools: Tools, name: str) -> dict[str, Any]:
    pause = _ask(source, tools, "-a", name, parse_pause)
    return {"pause": pause} if "rx" in pause and "tx" in pause else {}


def _ask(source: Source, tools: Tools, option: Any, name: str, parse: Any) -> dict[str, Any]:
    argv = ("ethtool", option, name) if option else ("ethtool", name)
    output = source.run(argv)
    if output is None or output.rc != 0:  # the driver has no such settings
        return {}
    return tools.ask(" ".join(argv), argv, parse) or {}
