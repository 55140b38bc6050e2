# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Lists of CPUs as the kernel writes them: ``0-55,112-167``. Pure."""

from __future__ import annotations

import typing as t


def cpu_set(text: str) -> frozenset[int]:
    """The CPUs of a list; what is no part of a list counts for nothing."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if first.isdigit() and (not dash or last.isdigit()):
            cpus.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(cpus)


def cpu_list(cpus: t.Collection[int]) -> str:
    """The list of these CPUs, in their order."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


__all__ = ("cpu_list", "cpu_set")
