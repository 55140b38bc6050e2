# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's reading of its environment: files as its own parser takes them, device lists as it matches them."""

from __future__ import annotations

import os
import re
from typing import Any

from railyard_lab import state as state_file

LINE_MAX, VALUE_MAX = 4095, 1023


def read(environment: dict[str, str] | None = None) -> dict[str, str]:
    """Process environment, `$NCCL_CONF_FILE` or `~/.nccl.conf`, /etc/nccl.conf: the first definition counts."""
    found = dict(os.environ if environment is None else environment)
    home = found.get("HOME", "/root").lstrip("/")
    first = found.get("NCCL_CONF_FILE") or str(state_file.root() / home / ".nccl.conf")
    for path in (first, str(state_file.root() / "etc/nccl.conf")):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as handle:
                text = handle.read()
        except OSError:
            continue
        for name, value in parse(text):
            found.setdefault(name, value)
    return found


def parse(text: str) -> list[tuple[str, str]]:
    """Verbatim: nothing is trimmed, quotes stay, `#` counts in the first column only."""
    pairs = []
    for line in text.split("\n"):
        line = line.rstrip("\r")[:LINE_MAX]
        if line.startswith("#") or "=" not in line:
            continue
        name, value = line.split("=", 1)
        pairs.append((name, value[:VALUE_MAX]))
    return pairs


def number(environment: dict[str, str], name: str, default: int) -> int:
    """strtoll with base 0: leading digits count, anything else is 0."""
    text = environment.get(name)
    if not text:
        return default
    found = re.match(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text)
    if not found:
        return 0
    digits = found.group(2)
    value = int(digits, 16) if digits.lower().startswith("0x") else int(digits, 8 if digits.startswith("0") else 10)
    return -value if found.group(1) == "-" else value


def match(names: list[tuple[str, int]], pattern: str | None) -> list[tuple[str, int]]:
    """Which `(device, port)` a list as of NCCL_IB_HCA or NCCL_SOCKET_IFNAME chooses; order is the list's own."""
    if not pattern:
        return names
    exclude = pattern.startswith("^")
    if exclude:
        pattern = pattern[1:]
    exact = pattern.startswith("=")
    if exact:
        pattern = pattern[1:]
    wanted = []
    for item in pattern.split(","):
        parts = item.split(":")
        wanted.append((parts[0], int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else -1))

    def fits(name: tuple[str, int]) -> bool:
        return any(
            (name[0] == device if exact else name[0].startswith(device)) and port in (-1, name[1])
            for device, port in wanted
        )

    return [name for name in names if fits(name) != exclude]


def network(state: dict[str, Any], environment: dict[str, str], active: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """NICs that NCCL would use, of those whose ports are active."""
    chosen = match([(nic["rdma"], 1) for nic in active], environment.get("NCCL_IB_HCA"))
    names = [name for name, _port in chosen]
    return [nic for nic in active if nic["rdma"] in names][:32]
