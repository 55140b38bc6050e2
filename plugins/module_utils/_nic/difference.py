# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What a person reads of a change: a line for each setting of a port, one for a file that repeats settings. Pure."""

from __future__ import annotations

import difflib
import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import shown
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import Change, ChangeSet


def setting(netdev: str, name: str, before: t.Any, after: t.Any) -> str:
    """`ens1np0 pfc 0,0,0,0,0,0,0,0 -> 0,0,0,1,0,0,0,0`; of a map only the keys that change."""
    if isinstance(after, dict):
        present = before if isinstance(before, dict) else {}
        after = {key: value for key, value in after.items() if present.get(key) != value}
        before = {key: present.get(key) for key in after}
    return f"{netdev} {name} {shown(before)} -> {shown(after)}"


def kept(before: str, after: str) -> dict[tuple[str, str], str] | None:
    """The same of two versions of the file that the boot reads, by port and setting; None where one is no such file."""
    old, new = _entries(before), _entries(after)
    if old is None or new is None:
        return None
    lines = {}
    for netdev in dict.fromkeys([*new, *old]):
        one, other = old.get(netdev, {}), new.get(netdev, {})
        for name in dict.fromkeys([*other, *one]):
            if one.get(name) != other.get(name):
                pair = _differing(one.get(name), other.get(name))
                lines[netdev, name] = f"{netdev} {name} {shown(pair[0])} -> {shown(pair[1])} (at boot)"
    return lines


def _entries(text: str) -> dict[str, dict[str, t.Any]] | None:
    try:
        config = json.loads(text)
        entries = {
            str(port["netdev"]): {
                **{key: port[key] for key in port if key not in ("netdev", "settings")},
                **port["settings"],
            }
            for port in config["ports"]
        }
        return {**entries, "@host": dict(config.get("host", {}))}
    except (ValueError, KeyError, TypeError):
        return None


def _differing(before: t.Any, after: t.Any) -> tuple[t.Any, t.Any]:
    """Of two maps the keys that differ, each where it is."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return before, after
    return (
        {key: value for key, value in before.items() if after.get(key) != value},
        {key: value for key, value in after.items() if before.get(key) != value},
    )


def of(settings: dict[tuple[str, str], str], files: ChangeSet, config: str) -> list[dict[str, str]]:
    """The module's ``diff``. *settings*: the lines of what changes now; *config*: the file that the boot reads.

    Of a file that says nothing else than these lines the size of its change is enough. Any other that drifted by itself
    is shown.
    """
    at_boot = next((kept(change.before, change.after) for change in files if change.subject == config), None) or {}
    parts = [f"{line}\n" for line in {**at_boot, **settings}.values()]
    for change in files:
        said = bool(settings) or (change.subject == config and at_boot)
        parts.append(_summary(change) if said else _lines(change))
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
    """A unified diff without context. difflib's own takes lines that every port has for junk and shows too many."""
    lines = []
    for what, start, end, first, last in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what != "equal":
            lines.append(f"@@ -{start + 1},{end - start} +{first + 1},{last - first} @@")
            lines += [f"-{line}" for line in before[start:end]] + [f"+{line}" for line in after[first:last]]
    return lines


__all__ = ("of", "setting")
