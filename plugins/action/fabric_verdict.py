# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import verdict
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import remarks as remarks_of
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RunView, get

display = Display()


class ActionModule(ActionBase):
    """Documented in plugins/modules/fabric_verdict.py. Runs on the controller and touches no host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _valid, args = self.validate_argument_spec(
            argument_spec={
                "findings": {"type": "list", "elements": "dict", "default": []},
                "applied": {"type": "list", "elements": "str", "default": []},
                "hosts": {"type": "list", "elements": "str", "default": []},
                "phases": {"type": "list", "elements": "str", "default": ["preflight"]},
                "mending": {"type": "list", "elements": "str", "default": []},
                "removing": {"type": "bool", "default": False},
                "unchanged": {"type": "bool", "default": False},
            }
        )
        found = args["findings"]
        if args["hosts"]:
            found = verdict.spoken_by(found, (task_vars or {})["inventory_hostname"], args["hosts"])
        remarks = [] if args["removing"] else _remarks(task_vars or {}, args["applied"])
        for remark in remarks:
            display.warning(verdict.sentence(remark))
        judged = verdict.judge(found, args["phases"], args["mending"], args["removing"])
        for finding in judged.warnings:
            display.warning(verdict.sentence(finding))
        result: dict[str, t.Any] = {
            "changed": False,
            "stops": [f"{finding['id']} {finding['host']} {finding['device']}" for finding in judged.stops],
            "warnings_count": len(judged.warnings),
            "remarks": remarks,
        }
        if judged.stops:
            result.update(failed=True, msg=verdict.message(judged.stops, args["unchanged"]))
        return result


def _remarks(task_vars: t.Mapping[str, t.Any], applied: t.Sequence[str]) -> list[dict[str, t.Any]]:
    """What the host's tasks that registered these results leave to be said; nothing where none of them ran."""
    results = {name: task_vars[name] for name in applied if task_vars.get(name)}
    host = task_vars.get("inventory_hostname", "")
    facts = (task_vars.get("ansible_facts") or {}).get("gpu_fabric")
    planned = get(task_vars.get("gpu_fabric_plan"), "hosts", host)
    return remarks_of(RunView(host, facts, planned, results)) if results and facts and planned else []
