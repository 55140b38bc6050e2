"""A lab rack of the tests' own, and playbook runs against it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import interruption

BIN = Path(sys.executable).parent
# The terminal of a plain `ansible-playbook` never sees this rack: it has its own name.
NAME = os.environ.get("RAILYARD_TEST_RACK", "site")
LIMIT_S = 1800
DIRECTORY = ROOT / ".cache/lab/racks" / NAME
EXEC = re.compile(r"^<([^>]+)> SSH: EXEC ssh", re.MULTILINE)


@dataclass
class Run:
    """One ansible-playbook run, as its JSON callback tells it."""

    rc: int
    stdout: str
    stderr: str
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def stats(self) -> dict[str, dict[str, int]]:
        return self.data.get("stats", {})

    def results(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(host, task, result) of every task."""
        return [
            (host, task["task"]["name"], result)
            for play in self.data.get("plays", [])
            for task in play["tasks"]
            for host, result in task["hosts"].items()
        ]

    def changes(self) -> set[tuple[str, str]]:
        return {(host, task) for host, task, result in self.results() if result.get("changed")}

    def messages(self) -> str:
        """Everything that a failed task, or a warning, says to the person."""
        failed = [str(result.get("msg", "")) for _, _, result in self.results() if result.get("failed")]
        return "\n".join([*failed, self.stderr])

    def describe(self) -> str:
        """What to read when a run did not do what it should."""
        failed = [
            f"{host}: {task}: {result.get('msg') or result.get('stderr') or result}"
            for host, task, result in self.results()
            if result.get("failed") or result.get("unreachable")
        ]
        tail = "" if self.data else self.stdout[-3000:]
        return "\n".join([f"exit status {self.rc}", *failed, str(self.stats), self.stderr[-3000:], tail])


def findings(run: Run) -> list[dict]:
    """What a preflight run reports, by its own result."""
    return [
        finding
        for _, _, result in run.results()
        for finding in ((result.get("ansible_facts") or {}).get("gpu_fabric_plan") or {}).get("findings", [])
        if finding["severity"] in ("fail", "warn")
    ]


def places(found: list[dict]) -> set[tuple[str, str, str]]:
    return {(finding["id"], finding.get("host") or "", finding.get("device") or "") for finding in found}


def take_down(directory: Path) -> None:
    """Take a rack down without Ansible, which an interruption may have left in the middle of something."""
    command = [sys.executable, "-B", "-m", "lab_rack", "down", "--dir", str(directory)]
    subprocess.run(command, cwd=ROOT / "tests/lab", stdout=subprocess.DEVNULL, check=True)


class Rack:
    """The rack, by its playbooks. ``nodes`` and ``profile`` hold from ``up`` or ``reset`` on."""

    #: Whether this session has to do with a rack that it must take down.
    started = False

    def __init__(self, nodes: int = 4, profile: str = "hgx_h100_roce") -> None:
        self.nodes, self.profile = nodes, profile

    @property
    def hosts(self) -> list[str]:
        return [f"gpu-{number:02}" for number in range(1, self.nodes + 1)]

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "RAILYARD_LAB_NAME": NAME,
            **more,
        }

    def playbook(self, playbook: str, *arguments: str, inventory: str | None = "inventories/lab", **env: str) -> Run:
        command = ["ansible-playbook", playbook, *(["-i", inventory] if inventory else []), *arguments]
        done = interruption.run(command, cwd=ROOT, env=self.environment(**env), capture=True, timeout=LIMIT_S)
        try:
            data = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            data = {}
        return Run(done.returncode, done.stdout, done.stderr, data)

    def lab(self, **variables: Any) -> Run:
        Rack.started = True
        given = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        run = self.playbook("playbooks/lab.yml", "-e", f"lab_name={NAME}", *given, inventory=None)
        assert run.rc == 0, run.describe()
        return run

    def up(self) -> None:
        self.lab(lab_state="up", lab_nodes=self.nodes, lab_profile=self.profile)

    def reset(self) -> None:
        self.lab(lab_state="reset", lab_nodes=self.nodes, lab_profile=self.profile)

    def down(self) -> None:
        take_down(DIRECTORY)

    @contextmanager
    def standing(self) -> Iterator[Rack]:
        """The rack, which goes down whatever happens: a failure, an interruption, a start that comes half way."""
        try:
            self.up()
            yield self
        finally:
            self.down()

    def site(self, *arguments: str, **env: str) -> Run:
        return self.playbook("site.yml", *arguments, **env)

    def converge(self) -> Run:
        run = self.site()
        assert run.rc == 0, run.describe()
        return run

    def inside(self, host: str) -> list[str]:
        """How a command is put into a node: through the engine, past ssh and Ansible, so that a test sees the node."""
        rack = json.loads((DIRECTORY / "rack.json").read_text())
        container = next(node["container"] for node in rack["nodes"] if node["name"] == host)
        return [rack["engine"], "exec", container]

    def shell(self, host: str, script: str) -> str:
        """What a script in a node prints."""
        done = subprocess.run(
            [*self.inside(host), "sh", "-c", script],
            env=self.environment(**self.engine_environment()), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{host}: {script}: {done.stderr}"
        return done.stdout

    @staticmethod
    def engine_environment() -> dict[str, str]:
        conf = ROOT / ".cache/containers.conf"
        return {"CONTAINERS_CONF": str(conf)} if conf.exists() else {}

    def remote_executions(self, *arguments: str) -> tuple[Run, Counter[str]]:
        """Run the site and count, per host, how often a process was started there over ssh."""
        command = ["ansible-playbook", "site.yml", "-i", "inventories/lab", "-vvv", *arguments]
        env = self.environment(ANSIBLE_STDOUT_CALLBACK="default")
        done = interruption.run(command, cwd=ROOT, env=env, capture=True, timeout=LIMIT_S)
        return Run(done.returncode, done.stdout, done.stderr), Counter(EXEC.findall(done.stdout))


# What makes up the state of a node, as text. Times and process numbers are none of it.
STATE = r"""
find /etc /usr/local /var/lib/gpu_fabric -xdev ! -name '*.pyc' ! -path /etc/resolv.conf ! -path /etc/mtab \
    \( -type f -exec cksum {} + -o -type l -printf '%p -> %l\n' \) 2>/dev/null | sort
dpkg-query -W -f '${Package} ${Version} ${Status}\n'
apt-mark showhold
ip -o address show | sed 's/ valid_lft.*//'
ip -o link show | sed 's/ qlen.*//; s/state [A-Z]* //'
ip rule show; ip route show table all
nft list ruleset
systemctl list-unit-files --state=enabled --no-legend | awk '{print $1}'
cat /proc/sys/net/core/rmem_max /proc/sys/kernel/numa_balancing 2>/dev/null
lsmod | awk '{print $1}' | sort
"""


def node_state(rack: Rack, host: str) -> list[str]:
    return [line for line in rack.shell(host, STATE).splitlines() if line.strip()]
