# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What a person reads of a change: a line for each setting of a port, one for a file that repeats settings. Pure."""

from __future__ import annotations

import difflib
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import Change, ChangeSet


def setting(netdev: str, name: str, before: t.Any, after: t.Any) -> str:
    """`ens1np0 pfc 0,0,0,0,0,0,0,0 -> 0,0,0,1,0,0,0,0`; of a map only the keys that change."""
    if isinstance(after, dict):
        present = before if isinstance(before, dict) else {}
        after = {key: value for key, value in after.items() if present.get(key) != value}
        before = {key: present.get(key) for key in after}
    return f"{netdev} {name} {_shown(before)} -> {_shown(after)}"


def _shown(value: t.Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(map(_shown, value))
    if isinstance(value, dict):
        return " ".join(f"{key}:{_shown(item)}" for key, item in value.items())
    return str(value)


def of(settings: list[str], files: ChangeSet) -> list[dict[str, str]]:
    """The module's ``diff``. Where no setting changes, files have drifted, and their lines are what there is to see."""
    parts = [f"{line}\n" for line in settings]
    parts += [_summary(change) if settings else _lines(change) for change in files]
    return [{"prepared": "".join(parts)}] if parts else []


def _summary(change: Change) -> str:
    before, after = change.before.splitlines(), change.after.splitlines()
    if len(before) <= 1 and len(after) <= 1:
        return f"{change.subject} {change.before.strip() or 'absent'} -> {change.after.strip() or 'absent'}\n"
    if not before or not after:
        return f"{change.subject}: {len(before) or len(after)} lines, {'new' if after else 'removed'}\n"
    signs = "".join(line[0] for line in _changed(before, after))
    return f"{change.subject}: {signs.count('+')} lines added, {signs.count('-')} removed\n"


def _lines(change: Change) -> str:
    before, after = change.before.splitlines(), change.after.splitlines()
    if not before or not after or (len(before) == len(after) == 1):
        return _summary(change)
    return "".join(f"{line}\n" for line in (f"--- {change.subject}", f"+++ {change.subject}", *_changed(before, after)))


def _changed(before: list[str], after: list[str]) -> list[str]:
    return list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]


__all__ = ("of", "setting")
