# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress
import pathlib
import re
import typing as t

import yaml
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import intent as intents
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import role_variables, scope, verdict
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.plan import plan_rack

_ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"
_REGISTERED = re.compile(r"^\s*register:\s*(\w+)", re.MULTILINE)
SSH = ("ssh", "smart", "paramiko", "paramiko_ssh", "libssh")
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
        variables: dict[str, dict[str, t.Any]] = {}
        facts, connection = {}, {}
        problems: list[tuple[str, intents.Problem]] = [
            ("", told)
            for told in (
                *scope.misspelt_group(args["group"], groups),
                *scope.misspelt_tags(_tags(task_vars, "run"), "--tags"),
                *scope.misspelt_tags(_tags(task_vars, "skip"), "--skip-tags"),
            )
        ]
        roles = _roles()
        strangers: set[str] = set()
        batch: dict[str, str] = {}
        for host in dict.fromkeys([*play, *members]):
            hostvars = task_vars["hostvars"][host]
            number, _ = _value(hostvars, "gpu_fabric_node_id")
            connection[host] = {"address": _address(host, hostvars), "node_id": number, "port": self._port(hostvars)}
            connection[host]["expected_rails"], _ = _value(hostvars, "gpu_fabric_expected_rails")
            connection[host]["firewall_policy"], _ = _value(hostvars, "security_groups_policy")
            if host not in play:
                continue
            if groups.get(args["group"]) and hostvars.get("group_names") == ["ungrouped"]:
                problems.append((host, scope.no_group(args["group"])))
            variables[host] = {}
            for name in (name for name in hostvars if name.startswith(intents.PREFIX) and name not in intents.RESERVED):
                variables[host][name], reason = _value(hostvars, name)
                if reason:
                    problems.append((host, _no_value(name, reason)))
            of_roles = role_variables.judge(roles, _of_roles(hostvars, roles), intents.PREFIX)
            problems += [(host, problem) for problem in of_roles.problems]
            strangers |= set(of_roles.strangers)
            batch.setdefault(repr(variables[host].get("gpu_fabric_batch")), host)
            found = (hostvars.get("ansible_facts") or {}).get("gpu_fabric")
            if found and host in live:
                facts[host] = found
        if len(batch) > 1:
            problems += [(host, _no_batch(value, batch)) for value, host in batch.items()]
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
        if strangers:
            self._display.warning(
                f"{', '.join(sorted(strangers))}: begins as variables of this collection's roles do, and none of them "
                "reads it."
            )
        if scope.names_no_layer(_tags(task_vars, "run")):
            self._display.warning(
                f"--tags {','.join(_tags(task_vars, 'run'))}: no layer of this collection has such a tag, so none is "
                f"applied. Its tags are {', '.join(scope.TAGS)}."
            )
        resolved = {host: intents.resolve(variables[host])[0] for host in facts}
        plan["findings"] = evaluate(facts, plan, resolved)
        result: dict[str, t.Any] = {"changed": False, "plan": plan, "ansible_facts": {"gpu_fabric_plan": plan}}
        if args["phase"]:
            judged = verdict.judge(plan["findings"], PHASES[args["phase"]], [])
            if judged.stops:
                result.update(failed=True, msg=verdict.message(judged.stops, args["phase"] == "preflight"))
        return result

    def _port(self, hostvars: t.Mapping[str, t.Any]) -> int | None:
        """The port by which the inventory reaches a host by SSH; None where it is reached otherwise."""
        kind = str(_value(hostvars, "ansible_connection")[0] or self._connection.transport).rpartition(".")[2]
        port = str(_value(hostvars, "ansible_port")[0] or _value(hostvars, "ansible_ssh_port")[0] or 22)
        return int(port) if kind in SSH and re.fullmatch("[0-9]{1,5}", port) else None


def _tags(task_vars: t.Mapping[str, t.Any], which: str) -> list[str]:
    """The tags that this run was told to *run* or to *skip*."""
    return [str(tag) for tag in task_vars.get(f"ansible_{which}_tags") or ()]


def _roles() -> list[role_variables.Role]:
    """Every role of the collection by its specification."""
    found = []
    for path in sorted(_ROLES.glob("*/meta/argument_specs.yml")):
        options: dict[str, t.Any] = {}
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            options.update(entry.get("options") or {})
        tasks = (task.read_text(encoding="utf-8") for task in path.parents[1].glob("tasks/*.yml"))
        own = frozenset(name for text in tasks for name in _REGISTERED.findall(text))
        found.append(role_variables.Role(path.parents[1].name, options, own))
    return found


def _of_roles(hostvars: t.Mapping[str, t.Any], roles: t.Iterable[role_variables.Role]) -> dict[str, t.Any]:
    """The variables that begin as the roles' do. One that has no value yet is the role's to judge."""
    prefixes = tuple(f"{role.name}_" for role in roles)
    found = {}
    for name in hostvars:
        if name.startswith(prefixes) and not name.startswith(intents.PREFIX):
            value, reason = _value(hostvars, name)
            if not reason:
                found[name] = value
    return found


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


def _no_batch(value: str, batch: t.Iterable[str]) -> intents.Problem:
    others = " and ".join(other for other in batch if other != value)
    return intents.Problem("gpu_fabric_batch", f"{value} here, {others} on other hosts", "one value for the whole rack")
