# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress
import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import intent as intents
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import verdict
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.plan import plan_rack

# A phase judges what it and the phases before it find.
PHASES = {"preflight": ["preflight"], "verify": ["preflight", "configure", "verify"]}


class ActionModule(ActionBase):
    """Documented in plugins/modules/fabric_plan.py. Runs on the controller and touches no host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _valid, args = self.validate_argument_spec(
            argument_spec={
                "phase": {"type": "str", "choices": sorted(PHASES)},
                "group": {"type": "str", "default": "gpu_nodes"},
            }
        )
        task_vars = task_vars or {}
        play = list(task_vars.get("ansible_play_hosts_all") or [task_vars["inventory_hostname"]])
        # A host that went away during the run still has the facts of its better days: it takes no part any more.
        live = set(task_vars.get("ansible_play_hosts") or play)
        groups = task_vars.get("groups", {})
        members = list(groups.get(args["group"]) or groups.get("all") or play)
        variables, facts, connection, problems = {}, {}, {}, []
        for host in dict.fromkeys([*play, *members]):
            hostvars = task_vars["hostvars"][host]
            number, _ = _value(hostvars, "gpu_fabric_node_id")
            connection[host] = {"address": _address(host, hostvars), "node_id": number}
            if host not in play:
                continue
            if groups.get(args["group"]) and hostvars.get("group_names") == ["ungrouped"]:
                problems.append((host, _no_group(args["group"])))
            variables[host] = {}
            for name in (name for name in hostvars if name.startswith(intents.PREFIX) and name not in intents.RESERVED):
                variables[host][name], reason = _value(hostvars, name)
                if reason:
                    problems.append((host, _no_value(name, reason)))
            found = (hostvars.get("ansible_facts") or {}).get("gpu_fabric")
            if found and host in live:
                facts[host] = found
        plan: dict[str, t.Any] = {}
        try:
            plan = plan_rack(variables, facts, connection)
        except intents.IntentError as error:
            problems += error.problems
        if problems:
            lines = intents.lines(problems)
            head = (
                f"{len(lines)} value{'s' if len(lines) != 1 else ''} of the intent cannot be used. Nothing was changed."
            )
            return {"changed": False, "failed": True, "msg": "\n".join([head, *lines])}
        resolved = {host: intents.resolve(variables[host])[0] for host in facts}
        plan["findings"] = evaluate(facts, plan, resolved)
        result: dict[str, t.Any] = {"changed": False, "plan": plan, "ansible_facts": {"gpu_fabric_plan": plan}}
        if args["phase"]:
            judged = verdict.judge(plan["findings"], PHASES[args["phase"]], [])
            if judged.stops:
                result.update(failed=True, msg=verdict.message(judged.stops, args["phase"] == "preflight"))
        return result


def _value(hostvars: t.Mapping[str, t.Any], name: str) -> tuple[t.Any, str]:
    """A variable with every template in it resolved, or why that fails."""
    try:
        return _plain(hostvars[name]) if name in hostvars else None, ""
    except AnsibleError as error:
        return None, " ".join(str(error).split())


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, t.Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _address(host: str, hostvars: t.Mapping[str, t.Any]) -> str:
    """The address by which the inventory reaches a host; empty where it gives a name only."""
    for candidate in (_value(hostvars, "ansible_host")[0], host):
        try:
            return str(ipaddress.ip_address(str(candidate)))
        except ValueError:
            continue
    return ""


def _no_value(name: str, reason: str) -> intents.Problem:
    option = intents.BY_NAME.get(name)
    return intents.Problem(name, f"has no value: {reason}", option.allowed if option else "a known variable")


def _no_group(group: str) -> intents.Problem:
    return intents.Problem("inventory", "the host is in no group", f"hosts of the group {group}, or of another group")
