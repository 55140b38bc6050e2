# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import json
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import report

FILES: dict[str, t.Callable[[dict[str, t.Any]], str]] = {
    "report.html": report.render_html,
    "report.json": lambda data: json.dumps(data, indent=1, sort_keys=True, default=str) + "\n",
    "junit.xml": report.render_junit,
}


class Ends(t.NamedTuple):
    """Hosts that did not come to the end of the run: those whose own fault that is, and why; and the others."""

    failures: dict[str, str]
    stopped: list[str]


def ends(hostvars: t.Any, hosts: t.Sequence[str], outcomes: t.Sequence[str]) -> Ends:
    """Tell hosts that failed from hosts that the run left behind because others did."""
    left = [host for host in hosts if not hostvars[host].get("gpu_fabric_run_complete")]
    errors = {host: error for host in left if (error := error_of(hostvars[host], outcomes))}
    read = [host for host in left if (hostvars[host].get("ansible_facts") or {}).get("gpu_fabric")]
    if errors and len(left) == len(hosts):
        return Ends(errors, [host for host in read if host not in errors])
    lost = "The host did not complete the run: a task on it failed or its connection was lost."
    return Ends({**dict.fromkeys(read, lost), **errors}, [])


def error_of(variables: t.Mapping[str, t.Any], outcomes: t.Sequence[str]) -> str:
    """What the first failed one of these registered results says."""
    results = [variables.get(name) or {} for name in outcomes]
    return next((str(result.get("msg") or "") for result in results if result.get("failed")), "")


class ActionModule(ActionBase):
    """Documented in plugins/modules/fabric_report.py. Runs on the controller and touches no host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _valid, args = self.validate_argument_spec(
            argument_spec={
                "directory": {"type": "path", "required": True},
                "title": {"type": "str", "default": "GPU fabric"},
                "hosts": {"type": "list", "elements": "str", "required": True},
                "complete": {"type": "bool", "default": True},
                "outcomes": {"type": "list", "elements": "str", "default": []},
                "remarks": {"type": "str", "default": ""},
            }
        )
        data = self.gather((task_vars or {}).get("hostvars", {}), args)
        texts = {name: render(data) for name, render in FILES.items()}
        directory = Path(args["directory"]).absolute()
        if not self._task.check_mode:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                for name, text in texts.items():
                    (directory / name).write_text(text, encoding="utf-8", errors="replace")
            except OSError as exc:
                raise AnsibleActionFail(
                    f"Cannot write the report to {directory}: {exc.strerror}; set gpu_fabric_report_dir"
                ) from exc
        return {
            # The report is the record of this run, not state of a host: writing it is no change.
            "changed": False,
            "path": str(directory / "report.html"),
            "verdict": data["verdict"],
            "counts": data["counts"],
            "failed_hosts": [name for name, host in data["hosts"].items() if host["state"] != "ok"],
        }

    @staticmethod
    def gather(hostvars: t.Any, args: dict[str, t.Any]) -> dict[str, t.Any]:
        """Collect what the run left in the hosts' variables."""
        facts, results, plan = {}, {}, {}
        remarks: list[dict[str, t.Any]] = []
        for host in args["hosts"]:
            variables = hostvars[host]
            found = (variables.get("ansible_facts") or {}).get("gpu_fabric")
            if found:
                facts[host] = found
            plan = plan or variables.get("gpu_fabric_plan") or {}
            results[host] = variables.get("gpu_fabric_benchmark_results") or []
            remarks += (variables.get(args["remarks"]) or {}).get("remarks") or []
        findings = next(
            (
                hostvars[host]["gpu_fabric_findings"]
                for host in args["hosts"]
                if hostvars[host].get("gpu_fabric_findings") is not None
            ),
            plan.get("findings", []),
        )
        ended = ends(hostvars, args["hosts"], args["outcomes"]) if args["complete"] else Ends({}, [])
        return report.build(
            facts,
            plan,
            [*findings, *remarks],
            results,
            unreachable=[host for host in args["hosts"] if host not in facts],
            failures=ended.failures,
            stopped=ended.stopped,
            created=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            title=args["title"],
        )
