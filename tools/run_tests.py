#!/usr/bin/env python3
"""Run tiers of tests one after another and close with one summary.

Usage: run_tests.py TIER [TIER ...]    with TIER one of lint, unit, molecule, site, slow, vm

Every tier's own runner prints as it goes. The last line counts what passed and failed over all tiers:
a lint command and a molecule scenario count one each, pytest counts its tests.
The exit status is 0 when nothing failed and something ran. However a run ends, no rack of the tests stays up.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import interruption

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv/bin"
# How much of the reasons the summary repeats; the runner's own output has all of it.
FAILURES_TOLD, LINES_TOLD = 10, 8


@dataclass
class Tally:
    """What one tier did."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # What the runner told about each that failed, by its name: a few lines, for the summary.
    failures: dict[str, list[str]] = field(default_factory=dict)

    def note(self, name: str, ok: bool, told: list[str] | None = None) -> None:
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            self.failures[name] = told or []


def environment() -> dict[str, str]:
    """The environment of every runner: our tools first, our checkout as the collection."""
    env = dict(os.environ)
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    env["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    env["ANSIBLE_COLLECTIONS_PATH"] = str(ROOT / "collections")
    env["ANSIBLE_NOCOLOR"] = "1"
    return env


def run(command: list[str], env: dict[str, str] | None = None) -> int:
    print(f"$ {' '.join(command)}", flush=True)
    return interruption.run(command, cwd=ROOT, env=env or environment()).returncode


def take_down(name: str) -> None:
    """Take down a rack that a run left up."""
    directory = ROOT / ".cache/lab/racks" / name
    if (directory / "rack.json").exists():
        command = [sys.executable, "-B", "-m", "lab_rack", "down", "--dir", str(directory)]
        subprocess.run(command, cwd=ROOT / "tests/lab", stdout=subprocess.DEVNULL, check=False)


def commands(tally: Tally, named: dict[str, list[str]]) -> None:
    for name, command in named.items():
        tally.note(name, run(command) == 0)


def lint(tally: Tally) -> None:
    named = {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "yamllint": ["yamllint", "--strict", "."],
        "ansible-lint": ["ansible-lint"],
    }
    if shutil.which("shellcheck"):
        scripts = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tools/*.sh"))]
        named["shellcheck"] = ["shellcheck", *scripts, ".ci/run"]
    else:
        print("lint: shellcheck is not installed (apt-get install shellcheck); shell scripts go unchecked")
    commands(tally, named)


def pytest(tally: Tally, folder: str, *options: str) -> None:
    """Run one pytest folder; its junit file gives the counts, so that no text is parsed."""
    with tempfile.TemporaryDirectory() as scratch:
        junit = Path(scratch) / "junit.xml"
        rc = run(["pytest", folder, f"--junitxml={junit}", *options])
        if not junit.exists():
            tally.note(f"pytest {folder} (exit {rc})", False)
            return
        suites = list(ET.parse(junit).getroot().iter("testsuite"))
    total = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")}
    bad = total["failures"] + total["errors"]
    tally.failed += bad
    tally.skipped += total["skipped"]
    tally.passed += total["tests"] - bad - total["skipped"]
    for suite in suites:
        for case in suite.iter("testcase"):
            for fault in (*case.iter("failure"), *case.iter("error")):
                tally.failures[f"{case.get('classname')}::{case.get('name')}"] = fault.get("message", "").splitlines()
    if rc not in (0, 1) or (rc == 1 and not bad):
        tally.note(f"pytest {folder} (exit {rc})", False)


def unit(tally: Tally) -> None:
    pytest(tally, "tests/unit")


# A line of molecule's recap: "rdma    : actions=5  successful=5 …  failed=0", in colours.
RECAP = re.compile(r"^(\w+)\s*:\s*actions=\d+\s.*\bfailed=(\d+)", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What tells the reason in molecule's output: a task of Ansible's, or a test and its assertion.
MOLECULE_FAILURE = re.compile(r"fatal: |FAILED |E  |ERROR|CRITICAL")


def molecule(tally: Tally) -> None:
    """All scenarios on one rack, which the default scenario makes and removes."""
    # molecule stops at the first scenario that fails; those it did not come to are run then.
    scenarios = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))
    left = set(scenarios)
    while left:
        ran = one_molecule(tally, sorted(set(scenarios) - left - {"default"}))
        if not ran & left:
            break
        left -= ran
    for scenario in sorted(left):
        tally.note(f"molecule {scenario} (did not run)", False)


def one_molecule(tally: Tally, excluded: list[str]) -> set[str]:
    """One run of molecule over all scenarios but *excluded*; those it came to, each noted in *tally*."""
    # The configuration is named, because molecule looks for it at the root of a git checkout only.
    command = ["molecule", "--base-config", str(ROOT / ".config/molecule/config.yml"), "test", "--all"]
    command += [f"--exclude={scenario}" for scenario in excluded]
    print(f"$ {' '.join(command)}", flush=True)
    runner = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = []
    try:
        for line in runner.stdout or ():
            lines.append(COLOUR.sub("", line))
            print(line, end="", flush=True)
        rc = runner.wait()
    finally:
        interruption.finish(runner)
        take_down("molecule")
    told = [line.lstrip(" │").rstrip() for line in lines]
    told = [line for line in told if MOLECULE_FAILURE.match(line)]
    recap = RECAP.findall("".join(lines).rpartition("SCENARIO RECAP")[2])
    failed = [scenario for scenario, count in recap if count != "0"]
    for scenario in dict(recap):
        tally.note(f"molecule {scenario}", scenario not in failed, told)
    if rc and not failed:
        tally.note(f"molecule test --all (exit {rc})", False, told)
    return set(dict(recap))


def site(tally: Tally) -> None:
    pytest(tally, "tests/site")


def slow(tally: Tally) -> None:
    pytest(tally, "tests/slow")


def vm(tally: Tally) -> None:
    pytest(tally, "tests/vm")


TIERS = {"lint": lint, "unit": unit, "molecule": molecule, "site": site, "slow": slow, "vm": vm}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in TIERS]
    if unknown or not names:
        print(__doc__)
        return 2
    interruption.arm()
    tallies: dict[str, tuple[Tally, float]] = {}
    try:
        for name in names:
            print(f"\n=== {name} ===", flush=True)
            tally, start = Tally(), time.monotonic()
            TIERS[name](tally)
            tallies[name] = (tally, time.monotonic() - start)
    except KeyboardInterrupt as signal:
        take_down(os.environ.get("RAILYARD_TEST_RACK", "site"))
        print(f"\nstopped by {signal} in {name}; no rack of the tests is up", flush=True)
        return 130

    print("\n=== summary ===")
    for name, (tally, seconds) in tallies.items():
        print(f"{name:10} {tally.passed:6} passed {tally.failed:4} failed {tally.skipped:4} skipped {seconds:7.0f} s")
        for number, (failure, told) in enumerate(tally.failures.items()):
            print(f"{'':10} FAILED {failure}")
            for line in told[:LINES_TOLD] if number < FAILURES_TOLD else ():
                print(f"{'':10}        {line[:200]}")
    passed, failed, skipped = (
        sum(getattr(tally, key) for tally, _ in tallies.values()) for key in ("passed", "failed", "skipped")
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
