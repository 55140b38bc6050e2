# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import verdict

display = Display()


class ActionModule(ActionBase):
    """Documented in plugins/modules/fabric_verdict.py. Runs on the controller and touches no host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _valid, args = self.validate_argument_spec(
            argument_spec={
                "findings": {"type": "list", "elements": "dict", "required": True},
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
        judged = verdict.judge(found, args["phases"], args["mending"], args["removing"])
        for finding in judged.warnings:
            display.warning(verdict.sentence(finding))
        result: dict[str, t.Any] = {
            "changed": False,
            "stops": [f"{finding['id']} {finding['host']} {finding['device']}" for finding in judged.stops],
            "warnings_count": len(judged.warnings),
        }
        if judged.stops:
            result.update(failed=True, msg=verdict.message(judged.stops, args["unchanged"]))
        return result
