# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nft list ruleset`` and ``nft list table``.

Value::

    {"tables": [{"family", "name", "flags",
                 "chains": [{"name", "type", "hook", "priority", "policy", "device", "rules": [text]}],
                 "sets": [{"name", "kind": "set"|"map", "type", "flags": [...], "elements": [text]}]}],
     "errors": [text]}

Rules are the text as nft prints it, in order.  nft indents with tabs: a table's parts stand one deep, theirs two.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Line, Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_TABLE = re.compile(r"^table (?:(ip|ip6|inet|arp|bridge|netdev) )?(\S+) \{(?: # handle \d+)?\s*$")
_PART = re.compile(
    r"^\s+(chain|set|map|flowtable|counter|quota|limit|ct \w+|meter|secmark|synproxy) (\S+) \{(?: # handle"
    r" \d+)?\s*(\}?)\s*$"
)
_BASE = re.compile(
    r"^type (\w+) hook (\w+)(?: devices? (?:= )?(\"[^\"]+\"|\{[^}]*\}|\S+))? priority ([^;]+);(?: policy (\w+);)?"
)
_POLICY = re.compile(r"^policy (\w+);$")


def parse(text: str) -> Parsed:
    """Read the output of ``nft list ruleset``."""
    problems = Problems()
    reader = _Reader(problems)
    for line in read_lines(text, problems, prompts=False, barriers=True, own=re.compile(r"^\s|^table |^\}")):
        if not line.blank:
            reader.read(line)
    if reader.table is not None and not reader.hidden:
        problems.add("The text ends inside a table.", text=str(reader.table.get("name", "")))
    return problems.result({"tables": reader.tables, "errors": reader.errors})


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.tables: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.table: dict[str, Any] | None = None
        self.part: dict[str, Any] | None = None
        self.kind = ""
        self.hidden = False
        self.open = ""  # a statement whose closing brace is on a later line

    def read(self, line: Line) -> None:
        depth = self._depth(line.text)
        if line.damaged:
            self.open = ""
            if depth < 2:
                # The name of a chain or a table may be lost: what follows has no owner until the next one begins.
                self.part, self.kind = None, ""
            if depth < 1:
                self.table, self.hidden = None, True
            return
        text = line.text.strip()
        if not line.terminated and text != "}":
            self.problems.cut(line)
            return
        table, part = _TABLE.match(line.text), _PART.match(line.text)
        if table:
            self.table = {"family": table.group(1) or "ip", "name": table.group(2), "chains": [], "sets": []}
            self.tables.append(self.table)
            self.part, self.hidden, self.open = None, False, ""
        elif text.startswith("Error:") or text.startswith("netlink:"):
            self.errors.append(text)
        elif self.table is None:
            return
        elif part and not self.open:
            self._part(part.group(1), part.group(2), bool(part.group(3)))
        elif text == "}" and not self.open:
            if depth == 0:
                self.table = None
            self.part = None
        elif self.part is not None:
            self._statement(text)
        elif depth == 1 and text.startswith("flags "):
            self.table["flags"] = text[6:].rstrip(";")

    @staticmethod
    def _depth(text: str) -> int:
        """Tabs, or groups of four blanks where a copy expanded them."""
        head = text[: len(text) - len(text.lstrip(" \t"))].replace("    ", "\t").replace(" ", "")
        return len(head)

    def _part(self, kind: str, name: str, empty: bool) -> None:
        if self.table is None:
            return
        self.kind = kind
        self.part = {"name": name}
        if kind == "chain":
            self.part["rules"] = []
            self.table["chains"].append(self.part)
        elif kind in ("set", "map"):
            self.part["kind"] = kind
            self.table["sets"].append(self.part)
        if empty:
            self.part = None

    def _statement(self, text: str) -> None:
        text = f"{self.open} {text}" if self.open else text
        if text.count("{") > text.count("}"):
            self.open = text
            return
        self.open = ""
        part = self.part
        if part is None:
            return
        if self.kind == "chain":
            self._rule(part, text)
        elif self.kind in ("set", "map"):
            self._set(part, text)

    def _rule(self, chain: dict[str, Any], text: str) -> None:
        base, policy = _BASE.match(text), _POLICY.match(text)
        if base:
            chain["type"], chain["hook"] = base.group(1), base.group(2)
            if base.group(3):
                chain["device"] = base.group(3).strip('"')
            chain["priority"] = base.group(4).strip()
            if base.group(5):
                chain["policy"] = base.group(5)
        elif policy:
            chain["policy"] = policy.group(1)
        elif not text.startswith("#"):
            chain["rules"].append(re.sub(r"\s+# handle \d+$", "", text))

    @staticmethod
    def _set(found: dict[str, Any], text: str) -> None:
        elements = re.match(r"^elements = \{(.*)\}$", text)
        if elements:
            found["elements"] = [item.strip() for item in elements.group(1).split(",") if item.strip()]
        elif text.startswith("type ") or text.startswith("typeof "):
            found["type"] = text.partition(" ")[2].rstrip(";")
        elif text.startswith("flags "):
            found["flags"] = [flag.strip() for flag in text[6:].rstrip(";").split(",")]
