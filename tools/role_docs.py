#!/usr/bin/env python3
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write what is said once and shown twice: preflight's variables from the intent, and each README's table of variables.

tools/role_docs.py            write
tools/role_docs.py --check    say what is out of date, and end with 1 if anything is
"""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import OPTIONS, Option

BEGIN = "<!-- variables: written by tools/role_docs.py -->"
END = "<!-- end of variables -->"

# Beside the intent, which every role reads, the role's own.
_PREFLIGHT_OWN: dict[str, dict[str, t.Any]] = {
    "preflight_phases": {
        "type": "list",
        "elements": "str",
        "choices": ["preflight", "configure", "verify", "diagnose"],
        "default": ["preflight", "configure", "verify", "diagnose"],
        "description": "Phases whose findings count.",
    },
    "preflight_mending": {
        "type": "list",
        "elements": "str",
        "choices": ["nvidia", "cuda", "nccl", "ofed", "rdma", "security"],
        "default": ["nvidia", "cuda", "nccl", "ofed", "rdma", "security"],
        "description": "Tags of layers. What one of them sets right does not stop the run, applied or not.",
    },
}


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def dump(value: t.Any) -> str:
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True, default_flow_style=False)
    return "---\n" + text


def option_spec(option: Option) -> dict[str, t.Any]:
    """One variable of the intent as argument_specs has it."""
    spec: dict[str, t.Any] = {"type": option.kind}
    if option.kind == "list":
        spec["elements"] = option.elements or "str"
    if option.choices:
        spec["choices"] = list(option.choices)
    if option.default is not None:
        spec["default"] = option.default
    meaning = option.meaning if not option.unit else f"{option.meaning.rstrip('.')}, in {option.unit}."
    spec["description"] = meaning
    if not option.choices and option.kind not in ("bool", "dict"):
        spec["description"] = f"{meaning} Allowed is {option.allowed}."
    return spec


def preflight() -> dict[Path, str]:
    """argument_specs and defaults of the role that everything begins with."""
    options = {option.variable: option_spec(option) for option in OPTIONS} | _PREFLIGHT_OWN
    specs = {
        "argument_specs": {
            "main": {
                "short_description": "Facts, plan and findings of a rack, before anything is changed",
                "description": [
                    "Reads every host once, plans the whole rack, and stops with one message where a person has to act "
                    "first.",
                    "The intent is checked by the plan, which names every mistake at once.",
                ],
                "options": options,
            }
        }
    }
    defaults = {name: spec["default"] for name, spec in options.items() if "default" in spec}
    role = ROOT / "roles" / "preflight"
    return {role / "meta" / "argument_specs.yml": dump(specs), role / "defaults" / "main.yml": dump(defaults)}


def table(options: t.Mapping[str, t.Mapping[str, t.Any]]) -> str:
    rows = ["| variable | type | default | meaning |", "|---|---|---|---|"]
    for name, spec in options.items():
        kind = f"{spec['type']} of {spec['elements']}" if spec["type"] == "list" else spec["type"]
        default = f"`{_shown(spec['default'])}`" if "default" in spec else "unset"
        text = spec["description"]
        meaning = " ".join(text) if isinstance(text, list) else text
        if spec.get("choices"):
            meaning += " One of " + ", ".join(f"`{choice}`" for choice in spec["choices"]) + "."
        for mark in ("C(", "V(", "O("):
            meaning = _unmark(meaning, mark)
        rows.append(f"| `{name}` | {kind} | {default} | {meaning} |".replace("\n", " "))
    return "\n".join(rows)


def _shown(value: t.Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).strip().removesuffix("\n...") or '""'


def _unmark(text: str, mark: str) -> str:
    while mark in text:
        before, _, rest = text.partition(mark)
        inner, _, after = rest.partition(")")
        text = f"{before}`{inner}`{after}"
    return text


def readmes(specs: t.Mapping[Path, str]) -> dict[Path, str]:
    """Each README that has the marks, with its table."""
    found = {}
    for readme in sorted((ROOT / "roles").glob("*/README.md")):
        text = readme.read_text(encoding="utf-8")
        path = readme.parent / "meta" / "argument_specs.yml"
        if BEGIN not in text or END not in text:
            continue
        spec = yaml.safe_load(specs.get(path) or path.read_text(encoding="utf-8"))
        head, rest = text.split(BEGIN, 1)
        tail = rest.split(END, 1)[1]
        body = table(spec["argument_specs"]["main"]["options"])
        found[readme] = f"{head}{BEGIN}\n{body}\n{END}{tail}"
    return found


def main() -> int:
    wanted = preflight()
    wanted |= readmes(wanted)
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date' if '--check' in sys.argv else 'written'}")
        if "--check" not in sys.argv:
            path.write_text(wanted[path], encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
