# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Which interfaces the host's network configuration names, by file: the names alone, for such files hold secrets."""

from __future__ import annotations

import re

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect", "named"]

#: Directory, ending of the names.
_PLACES = (
    ("/etc/netplan", (".yaml", ".yml")),
    ("/etc/systemd/network", (".network",)),
    ("/etc/network", ("interfaces",)),
    ("/etc/network/interfaces.d", ("",)),
    ("/etc/sysconfig/network-scripts", ("",)),
    ("/etc/NetworkManager/system-connections", (".nmconnection",)),
)
_WORD = r"""["']?(?P<name>[\w.@-]+)["']?"""
_SAID = re.compile(
    rf"""^(?:iface\s+{_WORD}\s+inet6?\b)|^(?:DEVICE|interface-name)\s*=\s*{_WORD.replace("name", "device")}\s*$""",
    re.MULTILINE,
)
_MATCHED = re.compile(r"^\[Match\]\s*\n(?:[^\[]*\n)??Name=(.*)$", re.MULTILINE)
_SECTION = re.compile(r"^(\s*)ethernets:\s*$")
_KEY = re.compile(rf"^(\s+){_WORD}:\s*(?:\{{.*)?$")


def collect(source: Source) -> dict[str, list[str]]:
    found = {}
    for directory, endings in _PLACES:
        for entry in source.listdir(directory):
            path = f"{directory}/{entry}"
            if entry.endswith(endings) and not source.isdir(path):
                names = named(path, source.read(path) or "")
                if names:
                    found[path] = names
    return found


def named(path: str, text: str) -> list[str]:
    """Interfaces that a file configures by name; patterns and entries that go by address are no names."""
    if path.startswith("/etc/netplan/"):
        names = _netplan(text)
    elif path.endswith(".network"):
        names = [word for match in _MATCHED.finditer(text) for word in match.group(1).split()]
    else:
        names = [match["name"] or match["device"] for match in _SAID.finditer(text)]
    return list(dict.fromkeys(name for name in names if name != "lo" and re.fullmatch(r"[\w.@-]+", name)))


def _netplan(text: str) -> list[str]:
    """Keys of ``ethernets``, except those that only label a match by MAC address or driver."""
    names: list[str] = []
    inside = depth = -1
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        section = _SECTION.match(line)
        if section is not None:
            inside, depth = indent, -1
        elif inside >= 0 and indent <= inside:
            inside = -1
        elif inside >= 0:
            key = _KEY.match(line)
            depth = indent if depth < 0 else depth
            if key is not None and indent == depth:
                names.append(key["name"])
            elif line.strip().startswith("match:") and names:
                names.pop()
    return names
