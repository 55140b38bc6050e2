# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs every rule over every host and over the rack.

Rules are generators registered with the entries they may give. They are pure: facts in, findings out. A rule that
trips over facts it did not expect gives an ``RF-INTERNAL`` finding with its name, and the others still speak.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import typing as t
from pathlib import Path

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import (
    SEVERITIES,
    Entry,
    Finding,
    define,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    RunView,
    get,
    mapping,
    natural,
)

HostRule = t.Callable[[HostView], t.Iterator[Finding]]
RackRule = t.Callable[[RackView], t.Iterator[Finding]]
RunRule = t.Callable[[RunView], t.Iterator[Finding]]

INTERNAL = define(
    "engine",
    "RF-INTERNAL",
    title="A rule could not digest the facts",
    severity="warn",
    phase="diagnose",
    means="One of the collection's own rules stopped on facts of a shape it did not expect. The kind of fault it "
    "looks for was not checked on the named host; all other rules ran.",
    looks_at="The exception that the rule raised.",
    cause="Facts of an unexpected shape: a defect of the collection.",
    remedy="Report the finding together with the host's facts (ansible HOST -m railyard.gpu_fabric.fabric_facts).",
    check="The finding is gone once the rule or the parser behind the facts is mended.",
    source="plugins/plugin_utils/findings/engine.py",
)


class _Rule(t.NamedTuple):
    name: str
    function: t.Callable[[t.Any], t.Iterator[Finding]]
    ids: frozenset[str]


_HOST_RULES: list[_Rule] = []
_RACK_RULES: list[_Rule] = []
_RUN_RULES: list[_Rule] = []


def host_rule(*entries: Entry) -> t.Callable[[HostRule], HostRule]:
    """Register a rule that looks at one host; *entries* are what it may give."""

    def register(function: HostRule) -> HostRule:
        _HOST_RULES.append(_rule(function, entries))
        return function

    return register


def rack_rule(*entries: Entry) -> t.Callable[[RackRule], RackRule]:
    """Register a rule that compares hosts or reads what was recorded for the whole rack."""

    def register(function: RackRule) -> RackRule:
        _RACK_RULES.append(_rule(function, entries))
        return function

    return register


def run_rule(*entries: Entry) -> t.Callable[[RunRule], RunRule]:
    """Register a rule that looks at what a run did to one host; ``evaluate`` knows of no run and does not ask it."""

    def register(function: RunRule) -> RunRule:
        _RUN_RULES.append(_rule(function, entries))
        return function

    return register


def _rule(function: t.Callable[[t.Any], t.Iterator[Finding]], entries: tuple[Entry, ...]) -> _Rule:
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    return _Rule(name, function, frozenset(entry.id for entry in entries))


@functools.cache
def load_rules() -> tuple[tuple[_Rule, ...], tuple[_Rule, ...]]:
    """Import every rules_<area>.py beside this file; a new area needs its file and nothing else."""
    package = __name__.rpartition(".")[0]
    names = sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]))
    for name in names:
        if name.startswith("rules_"):
            importlib.import_module(f"{package}.{name}")
    return tuple(_HOST_RULES), tuple(_RACK_RULES)


def run_rules() -> tuple[_Rule, ...]:
    load_rules()
    return tuple(_RUN_RULES)


def remarks(view: RunView) -> list[dict[str, t.Any]]:
    """What is to be said of a host at the end of a run that applied layers to it, worst first."""
    found = [finding for rule in run_rules() for finding in _run(rule, view)]
    return [finding.as_dict() for finding in sorted(found, key=_order)]


def _run(rule: _Rule, view: HostView | RackView) -> list[Finding]:
    try:
        found = list(rule.function(view))
    except Exception as error:
        # The one place where any exception is met: it is turned into a finding that names the rule.
        return [
            INTERNAL.on(
                view,
                f"Rule {rule.name} stopped on the facts of {view.name or 'the rack'}: {type(error).__name__}: {error}",
                evidence=[f"{type(error).__name__}: {error}"],
            )
        ]
    strangers = sorted({finding.id for finding in found} - rule.ids)
    if strangers:
        found = [finding for finding in found if finding.id in rule.ids]
        found.append(INTERNAL.on(view, f"Rule {rule.name} gave {', '.join(strangers)}, which it does not declare"))
    return found


def evaluate(
    facts: dict[str, t.Any],
    plan: dict[str, t.Any] | None = None,
    intents: dict[str, t.Any] | None = None,
    rack: dict[str, t.Any] | None = None,
) -> list[dict[str, t.Any]]:
    """Findings about *facts* ({host: facts}) under *plan* and *intents*, worst first, in a stable order.

    *rack* is what a bundle recorded for the rack as a whole: ``{"nccl.log": text, ..., "vars": {...},
    "inventory": {"groups": {...}, "hosts": {...}}}``; None means that live hosts were read.
    """
    host_rules, rack_rules = load_rules()
    plan, intents = mapping(plan), mapping(intents)
    names = sorted(facts, key=natural)
    shared = get(plan, "rack")
    hosts = [
        HostView(name, facts[name], get(plan, "hosts", name), intents.get(name), rack is not None, shared)
        for name in names
    ]
    view = RackView(hosts, plan, rack)
    found: dict[tuple[str, ...], Finding] = {}
    for rule in host_rules:
        for host in hosts:
            for finding in _run(rule, host):
                found.setdefault(_identity(finding), finding)
    for rule in rack_rules:
        for finding in _run(rule, view):
            found.setdefault(_identity(finding), finding)
    return [finding.as_dict() for finding in sorted(found.values(), key=_order)]


def _identity(finding: Finding) -> tuple[str, ...]:
    return (finding.id, finding.host, finding.device, finding.message)


def _order(finding: Finding) -> tuple[t.Any, ...]:
    return (
        SEVERITIES.index(finding.severity),
        finding.id,
        natural(finding.host),
        natural(finding.device),
        finding.message,
    )
