# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``modinfo``, and how it and ``modprobe`` refuse.

Value::

    {"name", "filename", "version", "srcversion", "license", "vermagic", "kernel", "depends": [...], "firmware": [...],
     "aliases": [...], "parameters": {name: description}, "signer", "sig_key", "builtin": true,
     "in_tree": bool, "extra": {label: text},
     "errors": [{"kind": "not_found"|"not_inserted"|"key_rejected"|"other", "module", "reason", "text"}]}

``in_tree`` tells a module of the kernel's own package from one under ``updates``, ``extra`` or ``weak-updates``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems, first_output
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_FIELD = re.compile(r"^([a-z][a-z_]*):\s+(.*?)\s*$")
_EMPTY = re.compile(r"^(depends|intree|description|version):\s*$")
_SINGLE = frozenset(
    {"filename", "version", "srcversion", "license", "vermagic", "name", "signer", "sig_key", "description"}
)
_FIELDS = _SINGLE | {
    "author",
    "alias",
    "depends",
    "firmware",
    "intree",
    "retpoline",
    "parm",
    "parmtype",
    "sig_id",
    "sig_hashalgo",
    "signature",
    "softdep",
    "supported",
    "import_ns",
    "rhelversion",
    "suserelease",
    "file",
}
_ONCE = re.compile(r"^(filename|vermagic):")
_NOT_FOUND = re.compile(r"(?:modinfo|modprobe): (?:ERROR|FATAL): Module (\S+) not found")
_REFUSED = re.compile(r"modprobe: (?:ERROR|FATAL): could not insert '([^']+)': (.+?)\s*$")
_OUTSIDE = re.compile(r"/lib/modules/[^/]+/(?:updates|extra|weak-updates|extramodules)/")
_INSIDE = re.compile(r"/lib/modules/[^/]+/kernel/")


def parse(text: str) -> Parsed:
    """Read the output of ``modinfo MODULE`` or ``modprobe MODULE``."""
    problems = Problems()
    value: dict[str, Any] = {"errors": []}
    lines = read_lines(text, problems, labels=(*_FIELDS, "modinfo", "modprobe"))
    for line in first_output(lines, _ONCE, problems):
        if line.blank:
            continue
        error = _error(line.text)
        match = _FIELD.match(line.text)
        if error and (line.terminated or error["kind"] == "not_found"):
            value["errors"].append(error)
        elif not line.terminated:
            problems.cut(line)
        elif match and match.group(1) in _FIELDS:
            _field(value, match.group(1), match.group(2))
        elif _EMPTY.match(line.text):
            if line.text.startswith("depends:"):
                value["depends"] = []
        elif match and "filename" in value:
            value.setdefault("extra", {})[match.group(1)] = match.group(2)
    if len(value) == 1 and not value["errors"]:
        problems.add("There is no output of modinfo in this text.", text=lines[0].text if lines else "")
    return problems.result(value)


def _error(text: str) -> dict[str, Any] | None:
    missing = _NOT_FOUND.search(text)
    if missing:
        return {"kind": "not_found", "module": missing.group(1), "text": text.strip()}
    refused = _REFUSED.search(text)
    if refused:
        reason = refused.group(2)
        key = "key" in reason.lower()
        return {
            "kind": "key_rejected" if key else "not_inserted",
            "module": refused.group(1),
            "reason": reason,
            "text": text.strip(),
        }
    return None


def _field(value: dict[str, Any], key: str, text: str) -> None:
    if key == "filename":
        value["filename"] = text
        if text == "(builtin)":
            value["builtin"] = True
        elif _OUTSIDE.search(text):
            value["in_tree"] = False
        elif _INSIDE.search(text):
            value["in_tree"] = True
    elif key == "depends":
        value["depends"] = [name for name in text.split(",") if name]
    elif key == "alias":
        value.setdefault("aliases", []).append(text)
    elif key == "firmware":
        value.setdefault("firmware", []).append(text)
    elif key == "parm":
        name, _colon, description = text.partition(":")
        value.setdefault("parameters", {})[name] = description.strip()
    elif key == "vermagic":
        value["vermagic"] = text
        value["kernel"] = text.split(" ")[0]
    elif key in _SINGLE:
        value.setdefault(key, text)
    else:
        value.setdefault("extra", {})[key] = text
