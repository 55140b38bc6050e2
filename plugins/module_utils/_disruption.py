# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Classes of disruption: what a change costs a running host, from nothing to its power."""

from __future__ import annotations

import typing as t

#: Each one covers those before it.
CLASSES = ("none", "linkflap", "reload", "fwreset", "reboot", "powercycle")


def covers(limit: str, cost: str) -> bool:
    """Whether consent to *limit* is consent to *cost*."""
    return CLASSES.index(cost) <= CLASSES.index(limit)


def worst(costs: t.Iterable[str]) -> str:
    return max(costs, key=CLASSES.index, default="none")


__all__ = ("CLASSES", "covers", "worst")
