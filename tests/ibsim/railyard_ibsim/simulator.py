# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ibsim with a subnet manager, and the diagnostic tools on it.

Everything happens over unix sockets under a name of this run's own and in one scratch directory; no InfiniBand
hardware, kernel module or network is touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import types
import typing as t
from pathlib import Path

PACKAGES = {"ibsim": "ibsim-utils", "opensm": "opensm", "ibnetdiscover": "infiniband-diags"}
# Debian puts opensm and the tools where only root looks.
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
# The subnet manager would set every port to the fastest it supports, and with that repair a slow link.
_KEEP_RATES = "force_link_speed 0\nforce_link_speed_ext 0\nforce_link_width 0\nforce_log_flush TRUE\n"


#: How often a tool may end by a signal before that counts.
CRASHES = 3


class SimulatorError(RuntimeError):
    """The simulator or a tool did not do what was asked, with what it said."""


def lacking() -> str | None:
    """Why nothing can be simulated here; None where everything is installed."""
    packages = [package for tool, package in PACKAGES.items() if shutil.which(tool, path=_PATH) is None]
    if not packages:
        return None
    return f"no InfiniBand simulator: apt-get install {' '.join(packages)} (make setup does it for root)"


class Simulator:
    """A running fabric. *topology*: text for ibsim; *first*: the node to which the tools are attached.

    *settings*: further lines of the subnet manager's configuration.
    """

    def __init__(self, topology: str, first: str, scratch: Path, patience_s: float = 60, settings: str = "") -> None:
        self._topology, self._first, self._scratch, self._patience = topology, first, scratch, patience_s
        self._settings = settings
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Simulator:
        for name in ("cache", "tmp"):
            (self._scratch / name).mkdir(parents=True, exist_ok=True)
        net, config = self._scratch / "net.topo", self._scratch / "opensm.conf"
        net.write_text(self._topology, encoding="ascii")
        config.write_text(_KEEP_RATES + self._settings, encoding="ascii")
        nodes, ports = self._topology.count("guid=0x"), self._topology.count("\n[")
        self._environment = {
            **os.environ,
            "PATH": _PATH,
            "IBSIM_SOCKNAME": f"railyard-{os.getpid()}-{id(self):x}",
            "SIM_HOST": self._first,
            "OSM_CACHE_DIR": str(self._scratch / "cache"),
            "OSM_TMP_DIR": str(self._scratch / "tmp"),
        }
        try:
            # Room for ports without a cable, and for the management port of each switch.
            limits = ["-N", str(nodes + 1), "-S", str(nodes + 1), "-P", str(ports * 2 + nodes * 2 + 4096)]
            self._start("ibsim", "-s", *limits, str(net))
            self._await("ibsim", "Network simulator ready")
            self._start("ibsim-run", "opensm", "-F", str(config), "-f", str(self._scratch / "opensm.txt"))
            self._await("opensm", "SUBNET UP", self._scratch / "opensm.txt")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._stop()

    def start_manager(self, node: str, settings: str, said: str, *options: str) -> Path:
        """Another subnet manager at another node; returns its log when that has *said*."""
        config, log = self._scratch / f"opensm-{node}.conf", self._scratch / f"opensm-{node}.txt"
        config.write_text(_KEEP_RATES + settings, encoding="ascii")
        environment = {**self._environment, "SIM_HOST": node}
        for name in ("cache", "tmp"):
            (self._scratch / node / name).mkdir(parents=True)
            environment[f"OSM_{name.upper()}_DIR"] = str(self._scratch / node / name)
        self._start("ibsim-run", "opensm", "-F", str(config), "-f", str(log), *options, environment=environment)
        self._await("opensm", said, log)
        return log

    def signal_manager(self, number: int) -> None:
        """Send the first subnet manager a signal."""
        self._processes[1].send_signal(number)

    def _start(self, *argv: str, environment: dict[str, str] | None = None) -> None:
        name = argv[1] if argv[0] == "ibsim-run" else argv[0]
        with (self._scratch / f"{name}.log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment or self._environment,
                text=True,
                cwd=self._scratch,
            )
        self._processes.append(process)

    def _await(self, name: str, words: str, path: Path | None = None) -> None:
        path = path or self._scratch / f"{name}.log"
        deadline = time.monotonic() + self._patience
        while True:
            said = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            if words in said:
                return
            code = self._processes[-1].poll()
            if code is not None or time.monotonic() > deadline:
                why = f"ended with {code}" if code is not None else f"did not say {words!r} in {self._patience:g} s"
                raise SimulatorError(f"{name} {why}: {said[-2000:]}")
            time.sleep(0.05)

    def _stop(self) -> None:
        """End what this run started, the subnet manager first."""
        for process in reversed(self._processes):
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def console(self, command: str) -> None:
        """A command for ibsim's console; returns when ibsim answered."""
        log = self._scratch / "ibsim.log"
        before = len(log.read_text(errors="replace"))
        stdin = t.cast("t.IO[str]", self._processes[0].stdin)
        stdin.write(command + "\n")
        stdin.flush()
        deadline = time.monotonic() + self._patience
        # Warnings of the simulator may follow its prompt.
        while "sim> " not in (said := log.read_text(errors="replace")[before:]):
            if time.monotonic() > deadline:
                raise SimulatorError(f"ibsim did not answer {command!r}: {said[-2000:]}")
            time.sleep(0.02)
        if "\n#" in f"\n{said}":  # how the console complains
            raise SimulatorError(f"{command}: {said}")

    def count_errors(self, node: str, port: int, counter: str, value: int) -> None:
        self.console(f'PerformanceSet "{node}"[{port}] PortCounters.{counter}={value}')

    def run(self, *argv: str, codes: tuple[int, ...] = (0,)) -> str:
        """What a tool prints; *codes*: the exit statuses with which it did its work."""
        for _ in range(CRASHES):
            answer = subprocess.run(
                ["ibsim-run", *argv],
                env=self._environment,
                cwd=self._scratch,
                capture_output=True,
                text=True,
                timeout=self._patience,
                check=False,
            )
            # Where a sweep of opensm's meets a link that dies, the real tools may crash; that is not what is tested.
            if answer.returncode >= 0:
                break
        if answer.returncode not in codes:
            raise SimulatorError(f"{' '.join(argv)} ended with {answer.returncode}: {answer.stderr or answer.stdout}")
        return answer.stdout

    def recordings(self) -> dict[str, str]:
        """The fabric as a bundle records it: file name → text. ibqueryerrors ends with 1 where it found errors."""
        return {
            "ibnetdiscover.txt": self.run("ibnetdiscover"),
            "iblinkinfo.txt": self.run("iblinkinfo"),
            "ibqueryerrors.txt": self.run("ibqueryerrors", "-r", codes=(0, 1)),
        }


__all__ = ("PACKAGES", "Simulator", "SimulatorError", "lacking")
