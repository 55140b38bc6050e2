#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_benchmark
short_description: Measure links and collectives of one host against its thresholds
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Runs perftest, iperf3 and nccl-tests as they are installed, in the environment as it is shipped, and compares what
    they report with the plan's thresholds.
  - A rack takes three calls per host. V(serve) starts the servers that the neighbour needs, V(links) measures towards
    the next host, V(collective) runs one all-reduce over the GPUs of the host.
  - Measuring changes nothing, so the task never reports a change. A value below its threshold does not fail the task
    either; RV(results) says so, and the play fails when the report is written.
  - In check mode nothing is started or measured.
attributes:
  check_mode:
    support: full
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    support: none
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)) in diff mode.
options:
  stage:
    description: Which part to do.
    type: str
    choices: [serve, links, collective]
    required: true
  plan:
    description: The host's C(benchmark) of the plan.
    type: dict
    required: true
  seconds:
    description: How long each link is measured.
    type: int
    default: 3
  max_bytes:
    description: Largest message of the collective, as nccl-tests spells it.
    type: str
    default: 8G
  gpu_processes:
    description: Processes that use GPUs; while there are any nothing is measured, since both would suffer.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Measure the rails towards the next host
  railyard.gpu_fabric.fabric_benchmark:
    stage: links
    plan: "{{ gpu_fabric_plan.hosts[inventory_hostname].benchmark }}"
"""

RETURN = r"""
results:
  description: One entry per measurement.
  returned: success
  type: list
  elements: dict
  contains:
    test: {description: "V(ib_write_bw), V(iperf3) or V(nccl_all_reduce).", type: str}
    subject: {description: What was measured., type: str, sample: mlx5_0}
    rail: {description: "Number of the rail, of V(ib_write_bw).", type: int}
    peer: {description: The other host., type: str}
    unit: {description: "Unit of value and threshold, V(Gb/s) or V(GB/s).", type: str}
    value: {description: What was reached., type: float}
    threshold: {description: What must be reached., type: float}
    verdict: {description: "V(pass), V(fail) or V(not_run).", type: str}
    detail: {description: The reason for the verdict., type: str}
    command: {description: The command line., type: str}
"""

import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _benchmark as bench
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure

GBPS = "Gb/s"
GBYTES = "GB/s"


class Benchmark:
    """The measurements of one host."""

    def __init__(self, params: dict[str, t.Any]) -> None:
        self.cli = Cli()
        self.plan = params["plan"]
        self.seconds = params["seconds"]
        self.max_bytes = params["max_bytes"]
        self.results: list[bench.Result] = []
        self.started: list[str] = []

    def serve(self) -> None:
        """Start one server per rail and one of iperf3, each for one client, each ended by systemd if none comes."""
        if self.plan["peer"] is None:
            return
        units = {"gpu-fabric-bench-iperf3": bench.iperf3_command(self.plan["iperf3"], self.seconds)}
        for entry in self.plan["serve"]:
            units[f"gpu-fabric-bench-rail{entry['rail']}"] = bench.perftest_command(entry, self.seconds)
        # One that waits from an earlier, broken run holds the port and would answer with the old settings.
        self.cli.run(["systemctl", "stop", "--quiet", *(f"{unit}.service" for unit in units)], check=False)
        # The clients go through the rails one after another, so the last server waits for all before it.
        patience = 60 + (self.seconds + 10) * len(units)
        for unit, command in units.items():
            if self.cli.which(command[0]) is None:
                continue
            self.cli.run(
                ["systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--property=RuntimeMaxSec={patience}",
                 "--property=LimitMEMLOCK=infinity", *command]
            )  # fmt: skip
            self.started.append(unit)

    def note(
        self,
        test: str,
        subject: str,
        unit: str,
        command: list[str],
        value: float | None,
        threshold: t.Any,
        problem: str,
        peer: str | None = None,
        rail: int | None = None,
    ) -> None:
        verdict, detail = bench.judge(value, threshold, problem)
        self.results.append(
            bench.Result(test, subject, peer, unit, value, threshold, verdict, detail, shlex.join(command), rail)
        )

    def missing(
        self, test: str, subject: str, unit: str, tool: str, peer: str | None = None, rail: int | None = None
    ) -> bool:
        """Note a tool that is not installed as a measurement that was not made."""
        if self.cli.which(tool):
            return False
        self.results.append(
            bench.Result(test, subject, peer, unit, None, None, bench.NOT_RUN, f"{tool} is not installed", "", rail)
        )
        return True

    def links(self) -> None:
        peer, address = self.plan["peer"], self.plan["peer_address"]
        if peer is None:
            self.skip("there is no other host to measure against")
            return
        if not self.missing("iperf3", "management", GBPS, "iperf3", peer):
            command = bench.iperf3_command(self.plan["iperf3"], self.seconds, address)
            done = self.cli.run(command, check=False)
            value, error = bench.iperf3_gbps(done.stdout)
            problem = error or bench.tool_problem(done.rc, done.stdout, done.stderr)
            threshold = self.plan["iperf3"]["threshold_gbps"]
            self.note("iperf3", "management", GBPS, command, value, threshold, problem, peer)
        for entry in self.plan["measure"]:
            if self.missing("ib_write_bw", entry["hca"], GBPS, "ib_write_bw", peer, entry["rail"]):
                continue
            command = bench.perftest_command(entry, self.seconds, address)
            done = self.cli.run(command, check=False)
            problem = bench.tool_problem(done.rc, done.stdout, done.stderr)
            value = None if done.rc else bench.perftest_gbps(done.stdout)
            self.note(
                "ib_write_bw", entry["hca"], GBPS, command, value, entry["threshold_gbps"], problem, peer, entry["rail"]
            )

    def collective(self) -> None:
        gpus = self.plan["nccl"]["gpus"]
        if not gpus or self.missing("nccl_all_reduce", f"{gpus} GPUs", GBYTES, "all_reduce_perf"):
            return
        command = bench.nccl_command(gpus, self.max_bytes)
        done = self.cli.run(command, check=False, timeout_s=600)
        value, wrong = bench.nccl_busbw(done.stdout)
        problem = wrong or bench.tool_problem(done.rc, done.stdout, done.stderr)
        if done.rc:
            value = None
        threshold = self.plan["nccl"]["threshold_gbytes_s"]
        self.note("nccl_all_reduce", f"{gpus} GPUs", GBYTES, command, value, threshold, problem)

    def skip(self, reason: str) -> None:
        self.results.append(bench.Result("all", "host", None, "", None, None, bench.NOT_RUN, reason, ""))


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "stage": {"type": "str", "choices": ["serve", "links", "collective"], "required": True},
            "plan": {"type": "dict", "required": True},
            "seconds": {"type": "int", "default": 3},
            "max_bytes": {"type": "str", "default": "8G"},
            "gpu_processes": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    benchmark = Benchmark(module.params)
    try:
        if module.check_mode:
            benchmark.skip("check mode")
        elif module.params["gpu_processes"]:
            benchmark.skip(f"GPU processes run: {', '.join(module.params['gpu_processes'])}")
        else:
            getattr(benchmark, module.params["stage"])()
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(
        changed=False, results=[result._asdict() for result in benchmark.results], started=benchmark.started
    )


if __name__ == "__main__":
    main()
