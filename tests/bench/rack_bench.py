#!/usr/bin/env python3
"""What a converged run costs: remote executions per host, and wall time against a run that only gathers setup facts.

usage: rack_bench.py     NODES sets the size of the rack (4)

Starts a lab rack of its own, provisions it and takes it down again. Prints one line each for the whole site and for
``--tags rdma``; what it is doing goes to standard error. Ratios are taken in one run on one rack, each time the median
of several, so they hold on a slow machine as on a fast one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/site"), str(ROOT / "tools")]
# Beside the rack of the tests, which may run at the same time.
os.environ.setdefault("RAILYARD_TEST_RACK", "bench")

import interruption
from rack import LIMIT_S, Rack, Run

ROUNDS = 3
CASES: dict[str, tuple[str, ...]] = {"site": (), "rdma": ("--tags", "rdma")}
STARTED = time.monotonic()


class Failed(Exception):
    """A run that did not succeed; the message says which and what it said."""


def say(text: str) -> None:
    print(f"bench {time.monotonic() - STARTED:4.0f} s: {text}", file=sys.stderr, flush=True)


def good(what: str, run: Run) -> Run:
    if run.rc:
        raise Failed(f"{what} failed: {run.describe()}")
    return run


def seconds(rack: Rack, what: str, command: list[str]) -> float:
    """Median wall time of a command; one that fails ends the benchmark."""
    times = []
    for number in range(1, ROUNDS + 1):
        start = time.monotonic()
        done = interruption.run(command, cwd=ROOT, env=rack.environment(), capture=True, timeout=LIMIT_S)
        if done.returncode:
            raise Failed(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}".rstrip())
        times.append(time.monotonic() - start)
        say(f"{what}, {number} of {ROUNDS}: {times[-1]:.1f} s")
    return statistics.median(times)


def measure(rack: Rack) -> None:
    say("provisioning it once, so that what is measured changes nothing")
    good("The first run of site.yml", rack.site())
    setup = seconds(
        rack, "ansible -m setup", ["ansible", "-i", "inventories/lab", "gpu_nodes", "-m", "ansible.builtin.setup"]
    )
    for name, arguments in CASES.items():
        words = " ".join(["site.yml", *arguments])
        say(f"counting the remote executions of {words}")
        run, counts = rack.remote_executions(*arguments)
        good(words, run)
        wall = seconds(rack, words, ["ansible-playbook", "site.yml", "-i", "inventories/lab", *arguments])
        print(f"{name} remote_executions_per_host={max(counts.values())} wall_vs_setup={wall / setup:.1f}", flush=True)


def main() -> int:
    nodes = os.environ.get("NODES", "4")
    if not nodes.isdecimal():
        print(f"bench: NODES is {nodes!r}; it is the number of nodes, as in NODES=16", file=sys.stderr)
        return 2
    interruption.arm()
    rack = Rack(nodes=int(nodes))
    say(f"starting a rack of {nodes} nodes")
    try:
        with rack.standing():
            measure(rack)
    except KeyboardInterrupt as signal:
        say(f"stopped by {signal}; the rack is down")
        return 130
    except (Failed, AssertionError, subprocess.SubprocessError, OSError) as error:
        say(f"{error}\nThe rack is down.")
        return 1
    say("the rack is down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
