# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The catalogue of findings: what each id means, once, as data.

An entry is defined beside the rule that gives it (``rules_<area>.py``); its page under ``docs/findings/`` is rendered
from it by ``tools/findings_pages.py``, so text and rule cannot drift apart.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

SEVERITIES = ("fail", "warn", "info")
PHASES = ("preflight", "configure", "verify", "diagnose")
_ID = re.compile(r"^RF(-[A-Z0-9]+)+$")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One verdict about one device of one host, in the shape of docs/architecture.md."""

    id: str
    severity: str
    phase: str
    host: str
    device: str
    message: str
    evidence: tuple[str, ...]
    cause: str
    remedy: str
    mended_by: str

    def as_dict(self) -> dict[str, t.Any]:
        data = dataclasses.asdict(self)
        data["evidence"] = list(self.evidence)
        return data


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known about a finding before any host is looked at."""

    id: str
    area: str
    title: str
    severity: str
    phase: str
    means: str
    looks_at: str
    cause: str
    remedy: str
    check: str
    source: str
    # The tag of the layer whose run sets the value right by itself; empty: a person has to act first.
    mended_by: str = ""

    @property
    def page(self) -> str:
        return f"docs/findings/{self.id}.md"

    def on(
        self,
        host: t.Any,
        message: str,
        *,
        device: str | None = None,
        evidence: t.Iterable[str] = (),
        remedy: str | None = None,
        cause: str | None = None,
        severity: str | None = None,
        mended_by: str | None = None,
    ) -> Finding:
        """The finding on *host* (a view, a name, or "" for the rack as a whole)."""
        return Finding(
            id=self.id,
            severity=severity or self.severity,
            phase=self.phase,
            host=str(getattr(host, "name", host) or ""),
            device=device or "",
            message=" ".join(message.split()),
            evidence=tuple(_clip(line) for line in evidence if line),
            cause=" ".join((cause or self.cause).split()),
            remedy=" ".join((remedy or self.remedy).split()),
            mended_by=self.mended_by if mended_by is None else mended_by,
        )


def _clip(line: t.Any, limit: int = 400) -> str:
    text = str(line).rstrip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


CATALOGUE: dict[str, Entry] = {}


def define(area: str, id_: str, **fields: str) -> Entry:
    """Enter a finding; a second definition of an id is a programming error and says so at import."""
    if not _ID.match(id_):
        raise ValueError(f"{id_} is no finding id")
    if id_ in CATALOGUE:
        raise ValueError(f"{id_} is defined twice")
    entry = Entry(id=id_, area=area, **{key: " ".join(text.split()) for key, text in fields.items()})
    if entry.severity not in SEVERITIES or entry.phase not in PHASES:
        raise ValueError(f"{id_}: severity {entry.severity!r} or phase {entry.phase!r} is not known")
    CATALOGUE[id_] = entry
    return entry
