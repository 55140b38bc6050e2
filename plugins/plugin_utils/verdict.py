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


def judge(
    findings: t.Iterable[Finding], phases: t.Container[str], mending: t.Container[str], removing: bool = False
) -> Verdict:
    """Sort the findings of these phases. One that a layer of this run mends does not stop the run, it is announced.

    Nor does any stop a removal: a host with a broken part can be given back as well as a sound one. What a layer would
    set right is not spoken of then, for it goes with the layer.
    """
    stops, warnings = [], []
    for finding in findings:
        if finding["phase"] not in phases or finding["severity"] == "info":
            continue
        if removing and finding.get("mended_by"):
            continue
        if not removing and finding["severity"] == "fail" and finding.get("mended_by") not in mending:
            stops.append(finding)
        else:
            warnings.append(finding)
    return Verdict(stops, warnings)


def spoken_by(findings: t.Iterable[Finding], host: str, hosts: t.Sequence[str]) -> list[Finding]:
    """The findings for which a host of the run answers: its own; the first also for those of no host of the run."""
    speaks_for_rack = bool(hosts) and host == hosts[0]
    return [
        finding
        for finding in findings
        if finding.get("host") == host or (speaks_for_rack and finding.get("host") not in hosts)
    ]


def headline(finding: Finding) -> str:
    """Id, place and message; a message that says the place itself needs it said once only."""
    message = str(finding["message"])
    parts = [part for part in (finding.get("host"), finding.get("device")) if part]
    place = " ".join(part for part in parts if part not in message) if parts else "the rack"
    return f"{finding['id']} on {place}: {message}" if place else f"{finding['id']}: {message}"


def paragraph(finding: Finding) -> str:
    """One finding for a person: where, what, seen, cause, remedy."""
    lines = [headline(finding)]
    lines += [f"    seen: {line}" for line in finding.get("evidence", ())]
    if finding.get("cause"):
        lines.append(f"    cause: {finding['cause']}")
    if finding.get("remedy"):
        lines.append(f"    remedy: {finding['remedy']}")
    return "\n".join(lines)


def sentence(finding: Finding) -> str:
    """One finding on one line, for a warning."""
    if finding.get("mended_by"):
        ending = f". The {finding['mended_by']} layer sets this right."
    else:
        ending = f". Remedy: {finding['remedy']}" if finding.get("remedy") else ""
    return f"{headline(finding).rstrip('.') if ending else headline(finding)}{ending}"


def message(stops: t.Sequence[Finding], unchanged: bool) -> str:
    """The one message with which a run stops."""
    count = "1 finding stops" if len(stops) == 1 else f"{len(stops)} findings stop"
    head = f"{count} this run." + (" Nothing was changed on any host." if unchanged else "")
    return "\n".join([head, *(f"{number}. {paragraph(item)}" for number, item in enumerate(stops, 1))])


__all__ = ("Verdict", "judge", "message", "paragraph", "sentence", "spoken_by")
