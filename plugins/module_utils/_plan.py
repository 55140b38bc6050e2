# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What a writing module changes: every object that differs, as one diff. Pure."""

from __future__ import annotations

import typing as t


class Change(t.NamedTuple):
    """One object that is not as wanted. Text as a person would read it; "" means: not there."""

    subject: str
    before: str
    after: str


class ChangeSet:
    """The changes of one module call, in the order in which they are made."""

    def __init__(self) -> None:
        self._changes: list[Change] = []

    def compare(self, subject: str, before: t.Any, after: t.Any) -> bool:
        """Note that ``subject`` goes from ``before`` to ``after``; return whether that is a change."""
        if before == after:
            return False
        self._changes.append(Change(subject, _text(before), _text(after)))
        return True

    def __iter__(self) -> t.Iterator[Change]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def subjects(self) -> list[str]:
        """What changes, each named once."""
        return list(dict.fromkeys(change.subject for change in self._changes))

    def diff(self) -> list[dict[str, str]]:
        """The changes as a module's ``diff`` result."""
        return [
            {
                "before_header": change.subject,
                "after_header": change.subject,
                "before": _lines(change.before),
                "after": _lines(change.after),
            }
            for change in self._changes
        ]


def _text(value: t.Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "".join(f"{key}: {_text(item)}\n" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "".join(f"{_text(item)}\n" for item in value)
    return str(value)


def _lines(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


__all__ = ("Change", "ChangeSet")
