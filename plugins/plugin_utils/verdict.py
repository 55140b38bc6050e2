# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From findings to what a run does about them: go on, warn, or stop with one message. Pure."""

from __future__ import annotations

import typing as t

Finding = t.Mapping[str, t.Any]


class Verdict(t.NamedTuple):
    stops: list[Finding]
    warnings: list[Finding]


def judge(findings: t.Iterable[Finding], phases: t.Container[str], mending: t.Container[str]) -> Verdict:
    """Sort the findings of these phases. One that a layer of this run mends does not stop the run, it is announced."""
    stops, warnings = [], []
    for finding in findings:
        if finding["phase"] not in phases or finding["severity"] == "info":
            continue
        if finding["severity"] == "fail" and finding.get("mended_by") not in mending:
            stops.append(finding)
        else:
            warnings.append(finding)
    return Verdict(stops, warnings)


def paragraph(finding: Finding) -> str:
    """One finding for a person: where, what, seen, cause, remedy."""
    where = " ".join(part for part in (finding.get("host"), finding.get("device")) if part) or "the rack"
    lines = [f"{finding['id']} on {where}: {finding['message']}"]
    lines += [f"    seen: {line}" for line in finding.get("evidence", ())]
    if finding.get("cause"):
        lines.append(f"    cause: {finding['cause']}")
    if finding.get("remedy"):
        lines.append(f"    remedy: {finding['remedy']}")
    return "\n".join(lines)


def sentence(finding: Finding) -> str:
    """One finding on one line, for a warning."""
    where = " ".join(part for part in (finding.get("host"), finding.get("device")) if part) or "the rack"
    mended = f" The {finding['mended_by']} layer sets this right." if finding.get("mended_by") else ""
    return f"{finding['id']} on {where}: {finding['message']}{mended}"


def message(stops: t.Sequence[Finding], unchanged: bool) -> str:
    """The one message with which a run stops."""
    count = "1 finding stops" if len(stops) == 1 else f"{len(stops)} findings stop"
    head = f"{count} this run." + (" Nothing was changed on any host." if unchanged else "")
    return "\n".join([head, *(f"{number}. {paragraph(item)}" for number, item in enumerate(stops, 1))])


__all__ = ("Verdict", "judge", "message", "paragraph", "sentence")
