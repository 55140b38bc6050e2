# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the planner noticed while deciding. Notes go into ``plan.hosts[h].notes``; a rule turns them into findings."""

from __future__ import annotations

import typing as t


class Note(t.NamedTuple):
    id: str
    device: str
    message: str
    evidence: list[str]
    remedy: str

    def as_dict(self) -> dict[str, t.Any]:
        return self._asdict()


def some(names: t.Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
