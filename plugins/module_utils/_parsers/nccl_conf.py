# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``/etc/nccl.conf`` and ``~/.nccl.conf`` exactly as NCCL's own reader (``setEnvFile`` in ``param.cc``) takes them.

Value::

    {"settings": {NAME: value},          # what NCCL exports; of a name given twice the first counts
     "faults": [{"kind", "name", "value", "text"}]}

NCCL splits each line at its first ``=`` and takes both sides verbatim: no trimming, quotes, ``export``, ``$VAR`` or
comment
behind a value.  Each line on which the author evidently expected otherwise is a fault, and a problem:

``quoted_value`` the quotes are part of the value; a number in quotes is read as 0
``trailing_blank`` ``leading_blank`` ``blank_before_equals`` ``export_prefix`` part of the value or of the name
``inline_comment`` part of the value
``variable_expansion`` not expanded
``carriage_return`` part of the value before NCCL 2.30.3
``indented_comment`` no comment: a line with ``=`` sets a variable nobody reads
``no_equals`` the line is ignored
``duplicate`` the line is ignored, the first one counts
``bad_name`` no variable that anything reads
``too_long`` cut off by NCCL
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    DAMAGED_REASON,
    REPLACEMENT,
    TEXT_LIMIT,
    Line,
    Parsed,
    Problems,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import decoded

_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_LINE_LIMIT = 4095
_VALUE_LIMIT = 1023

_REASONS = {
    "quoted_value": "The quotes are part of the value; NCCL reads a quoted number as 0.",
    "trailing_blank": "The blank at the end is part of the value.",
    "leading_blank": "The blank in front is part of the name, so this sets a variable that nobody reads.",
    "blank_before_equals": "The blank before = is part of the name, so this sets a variable that nobody reads.",
    "blank_after_equals": "The blank after = is part of the value.",
    "export_prefix": "export is part of the name, so this sets a variable that nobody reads.",
    "inline_comment": "There are no comments behind a value: this one is part of it.",
    "variable_expansion": "NCCL expands no variables: the text is taken as it stands.",
    "carriage_return": "The line ends with a carriage return, which is part of the value before NCCL 2.30.3.",
    "indented_comment": "A comment begins in the first column only.",
    "no_equals": "The line has no =, so NCCL ignores it.",
    "duplicate": "The variable was set further up, so NCCL ignores this line.",
    "bad_name": "The name is none that a program can have meant.",
    "too_long": "The line is longer than NCCL reads.",
}


def parse(text: str, strips_carriage_return: bool = False) -> Parsed:
    """Read an ``nccl.conf``.  ``strips_carriage_return``: as NCCL 2.30.3 and later do."""
    problems = Problems()
    settings: dict[str, str] = {}
    faults: list[dict[str, Any]] = []
    whole = decoded(text) if isinstance(text, str) else bytes(text).decode("utf-8", "replace")
    pieces = whole.split("\n")
    terminated = pieces[-1] == ""
    if terminated:
        pieces.pop()
    for number, piece in enumerate(pieces, 1):
        line = Line(number, piece, terminated or number < len(pieces))
        if REPLACEMENT in piece:
            problems.add(DAMAGED_REASON, line)
            continue
        if not line.terminated and piece.strip() and not piece.startswith("#"):
            problems.add("The last line has no newline: NCCL reads it, but a recording may have been cut here.", line)
        found = _read(line, settings, strips_carriage_return)
        for fault in found:
            faults.append(fault)
            problems.add(_REASONS[fault["kind"]], line)
    return problems.result({"settings": settings, "faults": faults})


def _read(line: Line, settings: dict[str, str], strips: bool) -> list[dict[str, Any]]:
    """Do what NCCL does with one line, and tell where that is not what the line looks like."""
    text = line.text
    kinds: list[str] = []
    if text.endswith("\r"):
        if strips:
            text = text[:-1]
        else:
            kinds.append("carriage_return")
    shown = text.rstrip("\r")
    if len(text) > _LINE_LIMIT:
        kinds.append("too_long")
        text = text[:_LINE_LIMIT]
    if text.startswith("#") or not shown:
        return []
    if shown.lstrip().startswith("#"):
        return [_fault("indented_comment", "", "", shown)]
    name, equals, value = text.partition("=")
    if not equals:
        # NCCL passes over blank lines too, and so would anyone.
        return [_fault("no_equals", shown.strip(), "", shown)] if shown.strip() else []
    kinds.extend(_name_faults(name))
    if len(value) > _VALUE_LIMIT:
        kinds.append("too_long")
        value = value[:_VALUE_LIMIT]
    kinds.extend(_value_faults(value.rstrip("\r")))
    if name in settings:
        kinds.append("duplicate")
    elif name:
        settings[name] = value
    return [_fault(kind, name, value, shown) for kind in dict.fromkeys(kinds)]


def _fault(kind: str, name: str, value: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "value": value, "text": text[:TEXT_LIMIT]}


def _name_faults(name: str) -> list[str]:
    if _NAME.match(name):
        return []
    if re.match(r"^\s*export\s", name):
        return ["export_prefix"]
    kinds = []
    if name != name.lstrip():
        kinds.append("leading_blank")
    if name != name.rstrip():
        kinds.append("blank_before_equals")
    if not _NAME.match(name.strip()):
        kinds.append("bad_name")
    return kinds


def _value_faults(value: str) -> list[str]:
    kinds = []
    # A list is exact with "==", so a leading = is part of a good value.
    if value != value.lstrip():
        kinds.append("blank_after_equals")
    if re.search(r"\s#", value):
        kinds.append("inline_comment")
    elif value != value.rstrip():
        kinds.append("trailing_blank")
    if '"' in value or "'" in value:
        kinds.append("quoted_value")
    if re.search(r"\$\{?[A-Za-z_]", value):
        kinds.append("variable_expansion")
    return kinds
