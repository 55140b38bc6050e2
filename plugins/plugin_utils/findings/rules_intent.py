# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Intent that has no effect or cannot be used, as recorded with a bundle."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RackView, dicts, mapping

NO_EFFECT = define(
    "intent",
    "RF-INTENT-NO-EFFECT",
    title="The intent has no effect: nothing would be installed",
    severity="fail",
    phase="verify",
    means="A run with these variables and this inventory ends green and changes nothing that was meant: a variable is "
    "misspelt, or a play's hosts pattern matches no host.",
    looks_at="Variable names against all that are known, hosts patterns of the recorded plays against the groups of "
    "the inventory.",
    cause="A typing error in a variable or a group name; Ansible ignores both.",
    remedy="Correct the names given in the message. The collection itself refuses unknown gpu_fabric_* variables and "
    "hosts that are in no group.",
    check="ansible-playbook site.yml --list-hosts names the hosts; the report has a result for each of them.",
    source="https://github.com/kubernetes-sigs/kubespray/issues/11944",
)

REFUSED = define(
    "intent",
    "RF-INTENT-REFUSED",
    title="The intent cannot be used",
    severity="fail",
    phase="preflight",
    means="No plan can be made: a variable has a value that is not allowed, or values contradict each other.",
    looks_at="All gpu_fabric_* variables, their types, ranges and how they fit the rack.",
    cause="Bad values in group or host variables.",
    remedy="Correct the variables named in the evidence.",
    check="ansible-playbook playbooks/preflight.yml makes a plan.",
    source="plugins/plugin_utils/intent.py",
)


def _unmatched(rack: RackView) -> list[tuple[str, list[str]]]:
    """(pattern, groups there are) of plays that match no host."""
    groups = mapping(rack.inventory.get("groups"))
    names = {*groups, *mapping(rack.inventory.get("hosts")), "all", "localhost"}
    if not groups:
        return []
    found = []
    for play in dicts(rack.outputs.get("plays")):
        pattern = play.get("hosts")
        parts = pattern if isinstance(pattern, list) else str(pattern or "").replace(":", ",").split(",")
        plain = [str(part).strip().lstrip("&") for part in parts if not str(part).strip().startswith("!")]
        # Patterns with wildcards or templates are Ansible's to judge.
        if plain and not any(part in names or any(c in part for c in "*~[{") for part in plain):
            found.append((", ".join(plain), sorted(name for name in groups if name not in ("all", "ungrouped"))))
    return found


@rack_rule(NO_EFFECT)
def no_effect(rack: RackView) -> t.Iterator[Finding]:
    misspelt = mapping(rack.outputs.get("misspelt"))
    unmatched = _unmatched(rack)
    if not misspelt and not unmatched:
        return
    parts = [
        f"variable {name} is not known" + (f" ({near} is meant?)" if near else "")
        for name, near in sorted(misspelt.items())
    ]
    parts += [
        f"play pattern {pattern} matches no host (groups: {', '.join(groups) or 'none'})"
        for pattern, groups in unmatched
    ]
    first = next(iter(sorted(misspelt)), "") or unmatched[0][0]
    yield NO_EFFECT.on(
        "",
        "; ".join(parts) + "; known variables and matching hosts wanted: nothing would be installed",
        device=first,
        evidence=[
            *(f"vars.yml: {name}: {rack.variables.get(name)}" for name in sorted(misspelt)),
            *(f"hosts: {pattern}" for pattern, _groups in unmatched),
        ],
    )


@rack_rule(REFUSED)
def refused(rack: RackView) -> t.Iterator[Finding]:
    lines = rack.outputs.get("refused")
    if isinstance(lines, list) and lines:
        yield REFUSED.on(
            "",
            f"No plan can be made: {lines[0]}" + (f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""),
            device="intent",
            evidence=[str(line) for line in lines[:12]],
        )
