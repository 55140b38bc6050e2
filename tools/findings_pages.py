#!/usr/bin/env python3
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes docs/findings/: one page for each entry of the catalogue, and the index.

tools/findings_pages.py           write the pages
tools/findings_pages.py --check   exit 1 when a page is missing, differs or belongs to no entry
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import CATALOGUE, Entry
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import load_rules

AREAS = {
    "engine": "The engine itself",
    "host": "Access to the host",
    "driver": "GPU driver",
    "fabric_manager": "Fabric Manager and NVSwitch",
    "gpu": "GPUs",
    "pcie": "PCIe",
    "rdma": "RDMA ports and adapters",
    "links": "Interfaces and routes",
    "gpudirect": "GPUDirect RDMA",
    "roce": "RoCE",
    "nccl": "NCCL settings and logs",
    "limits": "Limits",
    "tuning": "Host tuning",
    "packaging": "Packages and repositories",
    "ofed": "OFED and the kernel",
    "firewall": "Firewall and security groups",
    "bench": "Launchers and benchmarks",
    "cabling": "Cables of an InfiniBand fabric",
    "rack": "Hosts against each other",
    "run": "The run itself",
    "intent": "Intent",
    "plan": "The plan",
}
VERDICT = {
    "fail": "stops the run",
    "warn": "is reported, the run goes on",
    "info": "is noted",
}


def fold(text: str) -> str:
    return textwrap.fill(text, width=100, break_long_words=False, break_on_hyphens=False)


def page(entry: Entry) -> str:
    facts = [
        f"- severity: `{entry.severity}` ({VERDICT[entry.severity]})",
        f"- phase: `{entry.phase}`",
        f"- area: {AREAS[entry.area]}",
    ]
    if entry.mended_by:
        facts.append(f"- mended by: `site.yml --tags {entry.mended_by}`")
    sections = [
        ("What it means", entry.means),
        ("Evidence looked at", entry.looks_at),
        ("Cause", entry.cause),
        ("Remedy", entry.remedy),
        ("How to check", entry.check),
        ("Source", entry.source),
    ]
    parts = [f"# {entry.id}", fold(entry.title + "."), "\n".join(facts)]
    parts += [f"## {title}\n\n{fold(text)}" for title, text in sections]
    return "\n\n".join(parts) + "\n"


def index(entries: list[Entry]) -> str:
    parts = [
        "# Findings",
        fold(
            "Every finding has a stable id, a severity, the phase in which it matters, the values seen and a remedy. "
            "These pages are rendered from the catalogue by tools/findings_pages.py; an entry stands beside its rule "
            "in plugins/plugin_utils/findings/rules_<area>.py."
        ),
    ]
    for area, title in AREAS.items():
        rows = [entry for entry in entries if entry.area == area]
        if rows:
            table = ["| finding | severity | phase | |", "|---|---|---|---|"]
            table += [f"| [{e.id}]({e.id}.md) | {e.severity} | {e.phase} | {e.title} |" for e in rows]
            parts.append(f"## {title}\n\n" + "\n".join(table))
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    load_rules()
    entries = [CATALOGUE[key] for key in sorted(CATALOGUE)]
    return {"index.md": index(entries), **{f"{entry.id}.md": page(entry) for entry in entries}}


def main() -> int:
    folder = ROOT / "docs" / "findings"
    wanted = pages()
    present = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    if "--check" in sys.argv[1:]:
        wrong = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
        for name in wrong:
            print(f"docs/findings/{name} is not what the catalogue says: run tools/findings_pages.py")
        return 1 if wrong else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in present.keys() - wanted.keys():
        (folder / name).unlink()
    for name, text in wanted.items():
        if present.get(name) != text:
            (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
