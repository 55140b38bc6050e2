# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on a managed host gives the same answers with every Python that such a host may have.

Interpreters are looked for on the path and among pyenv's; RAILYARD_PYTHONS adds directories of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sysfs_trees import MACHINES, build

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / "collections"
MINORS = (9, 10, 11, 12, 13)

GATHER = """
import json, sys
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import LiveSource
# A host without any tool: nothing is on its path.
print(json.dumps(gather(LiveSource(sys.argv[1], {"PATH": "/nonexistent"})), sort_keys=True))
"""
COMPILE = """
import pathlib, sys
paths = [path for folder in sys.argv[1:] for path in pathlib.Path(folder).rglob("*.py")]
for path in paths:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
print(len(paths))
"""


def interpreter(minor: int) -> str | None:
    folders = [*os.environ.get("RAILYARD_PYTHONS", "").split(os.pathsep), *os.environ["PATH"].split(os.pathsep)]
    folders += [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin"))]
    for folder in filter(None, folders):
        found = shutil.which(f"python3.{minor}", path=folder)
        # A shim of pyenv's is there for versions that it will not start.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


@pytest.fixture(params=MINORS, ids=lambda minor: f"python3.{minor}")
def python(request: pytest.FixtureRequest) -> str:
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"python3.{request.param} is not on this machine (RAILYARD_PYTHONS can name its folder)")
    return found


def run(python: str, program: str, *arguments: str) -> str:
    # Isolated from this test's environment: the standard library and the collection are all it has.
    start = f"import sys; sys.path.append({str(COLLECTIONS)!r})\n"
    command = [python, "-I", "-W", "error", "-c", start + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_facts_of_every_machine_are_the_same(python: str, tmp_path: Path) -> None:
    for name, machine in MACHINES.items():
        root = tmp_path / name
        build(machine(), root)
        facts = json.loads(run(python, GATHER, str(root)))
        assert facts["rdma_devices"] or name == "no_rdma"
        assert facts == json.loads(run(sys.executable, GATHER, str(root))), name


def test_all_that_runs_there_compiles(python: str) -> None:
    folders = [str(ROOT / "plugins/modules"), str(ROOT / "plugins/module_utils")]
    assert int(run(python, COMPILE, *folders)) > 100


def test_modules_run_as_ansible_sends_them(python: str, tmp_path: Path) -> None:
    host = tmp_path / "rack-7" / "gpu-01"
    host.mkdir(parents=True)
    (host / "ibstat.txt").write_text(
        "CA 'mlx5_3'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n"
        "\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tLink layer: Ethernet\n"
    )
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
    }
    for module in ("fabric_facts", "ibstat_info"):
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible"), "localhost", "-i", "localhost,", "-c", "local",
                "-e", f"ansible_python_interpreter={python}",
                "-m", f"railyard.gpu_fabric.{module}", "-a", f"capture={host.parent}",
            ],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "mlx5_3" in done.stdout
        assert "400.0" in done.stdout
