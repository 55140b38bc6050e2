# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rack's one process: serves packages on the management network and plugs cables into nodes that boot.

A node writes the identifier of its boot into `nodes/<name>/boot`; a new one means a new, empty network namespace,
whoever restarted it: the engine, `lab_power`, or a `reboot` inside.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import cables, engine

LOG = logging.getLogger("lab")
POLL_S = 0.1
UNPLUGGED = "unplugged"  # beside a node's boot file: interfaces whose cable a fault has pulled
PLUG_TRIES = 5


class PackageHandler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # apt pipelines

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug("http %s " + format, self.client_address[0], *args)


class PackageServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def serve_packages(address: str, port: int, directory: Path) -> PackageServer:
    server = PackageServer((address, port), functools.partial(PackageHandler, directory=str(directory)))
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


class Plugger:
    """Watches boots."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rack: dict[str, Any] = {}
        self.rack_stamp = 0.0
        self.boots: dict[str, str] = {}
        self.tries: dict[str, int] = {}

    def load(self) -> None:
        stamp = (self.directory / "rack.json").stat().st_mtime
        if stamp != self.rack_stamp:
            self.rack = json.loads((self.directory / "rack.json").read_text())
            self.rack_stamp = stamp

    def step(self) -> None:
        self.load()
        for index, node in enumerate(self.rack["nodes"]):
            name = node["name"]
            try:
                boot = (self.directory / "nodes" / name / "boot").read_text().strip()
            except FileNotFoundError:
                continue
            if not boot or self.boots.get(name) == boot:
                continue
            self.plug(index, node, boot)

    def plug(self, index: int, node: dict[str, Any], boot: str) -> None:
        name = node["name"]
        pid = engine.pid_of(self.rack["engine"], node["container"])
        if not pid:  # an old file: the node is off; a new boot writes a new identifier
            self.settle(name, boot)
            return
        started = time.monotonic()
        try:
            cables.plug(self.rack, index, pid)
            unplugged = self.directory / "nodes" / name / UNPLUGGED
            if unplugged.exists():
                cables.switch_carrier(self.rack, name, json.loads(unplugged.read_text()), up=False)
        except cables.CableError as error:
            LOG.warning("%s: %s", name, error)
            self.settle(name, boot)
            return
        self.boots[name] = boot
        LOG.info("%s: booted as process %d, %d cables plugged in %.2f s", name, pid, len(node["nics"]),
                 time.monotonic() - started)  # fmt: skip

    def settle(self, name: str, boot: str) -> None:
        """Give a boot that cannot be served a few more tries, then leave it."""
        self.tries[boot] = self.tries.get(boot, 0) + 1
        if self.tries[boot] >= PLUG_TRIES:
            self.boots[name] = boot


def run(directory: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    plugger = Plugger(directory)
    plugger.load()
    (directory / "www").mkdir(exist_ok=True)
    serve_packages(plugger.rack["gateway"], plugger.rack["port"], directory / "www")
    (directory / "daemon.pid").write_text(f"{os.getpid()}\n")
    LOG.info("serving %s on %s", directory / "www", plugger.rack["repository_url"])
    while True:
        try:
            plugger.step()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            LOG.error("%s: %s", type(error).__name__, error)
        time.sleep(POLL_S)


def running_pid(directory: Path) -> int:
    """The daemon's process id; 0 when none of ours lives (the id may have been reused)."""
    try:
        pid = int((directory / "daemon.pid").read_text())
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return 0
    return pid if b"lab_rack" in argv and os.fsencode(str(directory)) in argv else 0


def start(directory: Path, environment: dict[str, str]) -> bool:
    """Start the daemon unless it runs; returns when its server answers."""
    if running_pid(directory):
        return False
    rack = json.loads((directory / "rack.json").read_text())
    lab = Path(__file__).resolve().parent.parent
    with (directory / "daemon.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab_rack", "daemon", "run", "--dir", str(directory)],
            cwd=lab,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((rack["gateway"], rack["port"])) == 0:
                return True
        time.sleep(0.05)
    tail = (directory / "daemon.log").read_text().splitlines()[-1:]
    raise engine.EngineError(f"The rack daemon does not answer on {rack['repository_url']}: {' '.join(tail)}")
