# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpu_fabric_batch``: how many hosts at a time, as Ansible's ``serial`` takes it. Pure.

Ansible reads ``serial`` before any task and ends with a traceback over one that it cannot use, so the playbook gets
only what can be; the plan says what is wrong with the rest. It reads it without any host's variables, too: what an
inventory says is handed on to the next play as the name of a group.
"""

from __future__ import annotations

import json
import re
import typing as t

ALLOWED = "a number of hosts from 1, a share such as 25%, or a list of them such as [1, 25%, 100%]"
ALL = ["100%"]
GROUP = "gpu_fabric_batch_"
_SHARE = re.compile(r"^([1-9][0-9]?|100)%\Z")
_COUNT = re.compile(r"0*[1-9][0-9]{0,8}")


def fitted(value: t.Any) -> t.Any:
    """The value in its exact type, or None where it does not fit."""
    if isinstance(value, (list, tuple)):
        items = [_item(item) for item in value]
        return items if items and None not in items else None
    return _item(value)


def _item(value: t.Any) -> int | str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 1 else None
    text = str(value).strip() if isinstance(value, str) else ""
    if _COUNT.fullmatch(text):
        return int(text)
    return text if _SHARE.match(text) else None


def group(value: t.Any) -> str:
    """The name of the group that says it: a name takes letters and digits only."""
    found = fitted(value)
    chosen = ALL if found is None else found if isinstance(found, list) else [found]
    return GROUP + json.dumps(chosen).encode().hex()


def batches(groups: t.Iterable[str]) -> list[t.Any]:
    """What a run goes by, from the names of all groups: the whole rack at once where none says it."""
    for name in groups:
        if name.startswith(GROUP):
            return list(json.loads(bytes.fromhex(name.removeprefix(GROUP))))
    return list(ALL)


__all__ = ("ALL", "ALLOWED", "batches", "fitted", "group")
