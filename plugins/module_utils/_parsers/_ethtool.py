# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parsers of ``ethtool``'s answers share: text of several interfaces, or JSON (``--json``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Parsed,
    Problems,
    clean,
    holds_damage,
    json_items,
)

Reader = Callable[[str, dict[str, Any], Problems], None]

_JSON = re.compile(r"^\s*\[\s*(?:\{|\]|$)", re.MULTILINE)


def read(text: str, option: str, read_text: Reader, read_json: Reader) -> Parsed:
    """Value ``{"interfaces": [...], "errors": [...]}``, filled by the reader of the form that *text* has."""
    problems = Problems()
    value: dict[str, Any] = {"interfaces": [], "errors": []}
    cleaned = clean(text)
    if _JSON.search(cleaned):
        read_json(cleaned, value, problems)
    else:
        read_text(cleaned, value, problems)
        if not value["interfaces"] and not len(problems) and cleaned.strip():
            problems.add(f"There is no output of ethtool {option} in this text.")
    return problems.result(value)


def json_interfaces(text: str, problems: Problems) -> Iterator[dict[str, Any]]:
    """The whole elements of ``--json``, one for each interface; what else stands there is told."""
    items, whole = json_items(text)
    if not whole:
        problems.add("The JSON document ends early; only its whole elements were read.")
    for item in items:
        if isinstance(item, dict) and not holds_damage(item):
            yield item
        else:
            problems.add("An element of the list is no interface.", text=str(item))
