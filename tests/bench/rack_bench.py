#!/usr/bin/env python3
"""What a converged run costs: remote executions per host, and wall time against a run that only gathers setup facts.

Prints one line each for the whole site and for ``--tags rdma``. Ratios are taken in one run on one rack, each time the
median of several, so they hold on a slow machine as on a fast one. NODES sets the size of the rack (4).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/site"))

from rack import Rack

ROUNDS = 3
CASES: dict[str, tuple[str, ...]] = {"site": (), "rdma": ("--tags", "rdma")}


def seconds(rack: Rack, command: list[str]) -> float:
    """Median wall time of a command; one that fails ends the benchmark."""
    times = []
    for _ in range(ROUNDS):
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=rack.environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        times.append(time.monotonic() - start)
    return statistics.median(times)


def main() -> None:
    rack = Rack(nodes=int(os.environ.get("NODES", "4")))
    rack.up()
    rack.converge()
    setup = seconds(rack, ["ansible", "-i", "inventories/lab", "gpu_nodes", "-m", "ansible.builtin.setup"])
    for name, arguments in CASES.items():
        _, counts = rack.remote_executions(*arguments)
        wall = seconds(rack, ["ansible-playbook", "site.yml", "-i", "inventories/lab", *arguments])
        print(f"{name} remote_executions_per_host={max(counts.values())} wall_vs_setup={wall / setup:.1f}", flush=True)
    rack.down()


if __name__ == "__main__":
    main()
