# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container engine: which one is here, and what it needs on this machine.

Engines stumble over machines that are containers themselves: crun cannot raise a limit, runc wants other defaults.
Nothing of that is assumed. `probe` starts the node image with the engine as it is, then with one concession after the
other, and the first that works is written down.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ENGINES = ("podman", "docker")
PROBE_TIMEOUT_S = 60
REMOVALS = 4


class EngineError(RuntimeError):
    """No engine, or one that cannot run a node; the message says what to install or shows the engine's words."""


def run(argv: list[str], env: Mapping[str, str] | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=timeout, env={**os.environ, **(env or {})}
    )


def environment(directory: Path) -> dict[str, str]:
    """What podman is told on this machine: the probe's concession, which lies in the checkout's .cache."""
    for parent in (directory, *directory.parents):
        if parent.name == ".cache":
            conf = parent / "containers.conf"
            return {"CONTAINERS_CONF": str(conf)} if conf.exists() else {}
    return {}


def detect(wanted: str = "") -> dict[str, str]:
    """The engine to use: `wanted`, or the first that is installed and answers."""
    reasons = []
    for engine in (wanted,) if wanted else ENGINES:
        if not shutil.which(engine):
            reasons.append(f"{engine}: not installed")
            continue
        fields = "{{.Version.Version}}" if engine == "podman" else "{{.ServerVersion}}"
        try:
            answer = run([engine, "info", "--format", fields])
        except subprocess.TimeoutExpired:
            reasons.append(f"{engine} info: no answer in 60 s")
            continue
        if answer.returncode == 0 and answer.stdout.strip():
            return {"engine": engine, "version": answer.stdout.strip()}
        reasons.append(f"{engine} info: {(answer.stderr.strip() or 'no version').splitlines()[-1]}")
    raise EngineError(
        f"No container engine answers ({'; '.join(reasons)}). Install podman (apt-get install podman runc)."
    )


# In the kernel's order (include/uapi/linux/capability.h), without the last three, which older engines do not know.
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
)  # fmt: skip

LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}


def limits(ceiling: int = 0) -> list[str]:
    """The limits of this process as `--ulimit` values, none above `ceiling`: no container here can have more."""
    found = []
    for name, number in LIMITS.items():
        hard = resource.getrlimit(number)[1]
        if ceiling and (hard == resource.RLIM_INFINITY or hard > ceiling):
            hard = ceiling
        if hard != resource.RLIM_INFINITY:
            found.append(f"{name}={hard}:{hard}")
    return found


def capabilities() -> list[str]:
    """What this machine may give at all, by name: docker's --privileged insists on everything that it knows of."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapBnd:"):
            mask = int(line.split()[1], 16)
            return [name for number, name in enumerate(CAPABILITIES) if mask >> number & 1]
    return []


def concessions(engine: str) -> Iterator[dict[str, Any]]:
    """From none to many. The engine's monitor may hold lower limits than this process, hence the ceilings.

    runtime: instead of the engine's own; ulimits: instead of its defaults; capabilities: instead of --privileged.
    """
    runtimes = [name for name in ("runc", "crun") if shutil.which(name)] if engine == "podman" else []
    for allowed in ([], capabilities()) if engine == "docker" else ([],):
        for runtime in ("", *runtimes):
            for ulimits in ([], limits(), limits(32768), limits(1000)):
                yield {"runtime": runtime, "ulimits": ulimits, "capabilities": allowed}


def run_arguments(engine: str, concession: Mapping[str, Any]) -> list[str]:
    """How `run` is told; the modules of lab_start_*.yml say the same in their own words."""
    argv = [f"--ulimit={text}" for text in concession["ulimits"]]
    if concession["runtime"] and engine == "docker":
        argv.append(f"--runtime={concession['runtime']}")
    if not concession["capabilities"]:
        return [*argv, "--privileged"]
    argv += [f"--cap-add={name}" for name in concession["capabilities"]]
    return [*argv, "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"]


def global_arguments(engine: str, concession: Mapping[str, Any]) -> list[str]:
    """Podman takes the runtime before the verb."""
    return [f"--runtime={concession['runtime']}"] if concession["runtime"] and engine == "podman" else []


def describe(concession: Mapping[str, Any]) -> str:
    words = [concession["runtime"] or "default runtime", *concession["ulimits"]]
    return " ".join([*words, *(["own capabilities"] if concession["capabilities"] else [])])


def reason(answer: subprocess.CompletedProcess[str]) -> str:
    """The line in which an engine says what went wrong; docker adds advice after it."""
    lines = [line for line in answer.stderr.splitlines() if line.strip()]
    named = [line for line in lines if "error" in line.lower()]
    return (named or lines or [f"exit code {answer.returncode}"])[-1]


def probe(engine: str, image: str) -> dict[str, Any]:
    """The first concession under which `image` starts."""
    errors = []
    for concession in concessions(engine):
        argv = [engine, *global_arguments(engine, concession), "run", "--rm", "--network=none"]
        answer = run([*argv, *run_arguments(engine, concession), image, "/bin/true"], timeout=PROBE_TIMEOUT_S)
        if answer.returncode == 0:
            return dict(concession)
        errors.append(f"{describe(concession)}: {reason(answer)}")
    raise EngineError(f"{engine} starts no container on this machine: " + "; ".join(errors))


def containers_conf(concession: Mapping[str, Any]) -> str:
    """Podman's configuration for a concession; empty where none is needed."""
    lines = []
    if concession["ulimits"]:
        lines += ["[containers]", f"default_ulimits = {json.dumps(concession['ulimits'])}"]
    if concession["runtime"]:
        lines += ["[engine]", f'runtime = "{concession["runtime"]}"']
    if not lines:
        return ""
    return "\n".join(["# Found by the lab's probe of this machine; remove it to probe again.", *lines, ""])


def pid_of(engine: str, container: str) -> int:
    """The container's process 1 as seen from here; 0: it is not running."""
    answer = run([engine, "inspect", "--type=container", "--format", "{{.State.Pid}}", container])
    return int(answer.stdout.strip() or 0) if answer.returncode == 0 else 0


def answers(engine: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether the engine is here at all; one that is installed and does not answer has no container either."""
    return shutil.which(engine) is not None and run([engine, "ps", "--quiet"], env).returncode == 0


def inspect_all(engine: str, env: Mapping[str, str] | None = None, label: str = "railyard.lab") -> list[dict[str, Any]]:
    """The containers that have a label, running or not, as the engine describes them; by itself: those of all racks."""
    listed = run([engine, "ps", "--all", "--quiet", "--filter", f"label={label}"], env)
    if listed.returncode != 0:
        raise EngineError(f"{engine} ps: {reason(listed)}")
    if not listed.stdout.split():
        return []
    # One that went away in the meantime makes the status bad and the answer no worse.
    answer = run([engine, "inspect", "--type=container", *listed.stdout.split()], env)
    return json.loads(answer.stdout or "[]")


def containers_of(engine: str, rack_name: str) -> list[dict[str, Any]]:
    """The rack's containers, running or not: name, node, running, spec."""
    if not rack_name:
        raise EngineError("A rack without a name has no containers.")
    found = []
    for entry in inspect_all(engine, label=f"railyard.lab={rack_name}"):
        labels = entry["Config"]["Labels"] or {}
        found.append(
            {
                "name": entry["Name"].lstrip("/"),
                "node": labels.get("railyard.node", ""),
                "spec": labels.get("railyard.spec", ""),
                "running": bool(entry["State"]["Running"]),
            }
        )
    return sorted(found, key=lambda c: c["name"])


def remove(engine: str, names: list[str], env: Mapping[str, str] | None = None) -> None:
    """Remove containers at once, all in one call."""
    if not names:
        return
    at_once = ["--time", "0"] if engine == "podman" else []
    left = list(names)
    # On a busy machine processes that were killed take longer to go than podman waits for them.
    for _ in range(REMOVALS):
        answer = run([engine, "rm", "--force", *at_once, *left], env, timeout=60 + 20 * len(left))
        left = sorted({entry["Name"].lstrip("/") for entry in inspect_all(engine, env)} & set(names))
        if not left:
            return
        time.sleep(5)
    raise EngineError(f"{engine} rm leaves {', '.join(left)}: {reason(answer)}")


def write_if_changed(path: Path, text: str, mode: int = 0o644) -> bool:
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return True
