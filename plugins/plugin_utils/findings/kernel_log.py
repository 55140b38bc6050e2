# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel log as rules read it, whichever way it came into the facts."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers.dmesg import unstamped
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, dicts, short_bdf


def events(host: HostView) -> list[dict[str, t.Any]]:
    return dicts(host.get("kernel_log", "events"))


_UPTIME = re.compile(r"^(?:<\d+>|\w+\s*:\w+\s*: )?\[\s*(\d+\.\d+)\]")


def stamped(host: HostView) -> list[tuple[float | None, str]]:
    """The log's lines as in ``text``, each with the seconds since boot, where the log says them."""
    recorded = host.recorded("dmesg") or host.recorded("journalctl_k")
    if recorded is not None:
        found: list[tuple[float | None, str]] = []
        for line in recorded.splitlines():
            if line.strip():
                match = _UPTIME.match(line)
                found.append((float(match[1]) if match else None, unstamped(line.rstrip())))
        return found
    lines = []
    for event in events(host):
        line, moment = event.get("text") or event.get("message") or event.get("line"), event.get("uptime_s")
        if isinstance(line, str):
            lines += [(moment if isinstance(moment, (int, float)) else None, part) for part in line.splitlines()]
    return lines


def text(host: HostView) -> list[str]:
    """The log's lines without time stamps: the recorded log, or the events that the facts kept."""
    return [line for _moment, line in stamped(host)]


def lines_with(host: HostView, pattern: str) -> list[str]:
    wanted = re.compile(pattern, re.IGNORECASE)
    return [line for line in text(host) if wanted.search(line)]


def lines_about(host: HostView, pci: str) -> list[str]:
    """Lines that name a PCI address, with an indented continuation line after each."""
    wanted = re.compile(
        r"(?<![0-9a-f])" + re.escape(short_bdf(pci).rpartition(".")[0]) + r"(?![0-9a-f])", re.IGNORECASE
    )
    found: list[str] = []
    taking = False
    for line in text(host):
        if wanted.search(line):
            found.append(line)
            taking = True
        elif taking and line[:1].isspace():
            found.append(line.strip())
        else:
            taking = False
    return found
