# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""nv-fabricmanager: a small daemon that trains the NVSwitch fabric, or says why it cannot."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from railyard_lab import state as state_file

LOG = "var/log/fabricmanager.log"
PID = "run/nvidia-fabricmanager/nv-fabricmanager.pid"


def _log(level: str, text: str) -> None:
    path = state_file.root() / LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%b %d %Y %H:%M:%S", time.localtime())
    with path.open("a") as handle:
        handle.write(f"[{stamp}] [{level}] [tid {os.getpid()}] {text}\n")


def refusal(state: dict[str, Any]) -> str | None:
    """Why Fabric Manager does not start here, in its own words."""
    own, driver = state["fabric_manager"]["version"], state["driver"]["loaded"]
    if not driver or "nvidia" not in state["modules"]:
        return (
            "fabric manager don't have access permissions to NVIDIA driver or driver is not loaded: "
            "failed to initialize NVML"
        )
    bridges = [nic for nic in state["nics"] if nic["sw_mng"]]
    if bridges and "ib_umad" not in state["modules"]:
        return "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
    if not state["nvswitches"] and not bridges:
        return "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
    if own != driver:
        return (
            f"fabric manager NVIDIA GPU driver interface version {own} don't match with driver version {driver}. "
            "Please update with matching NVIDIA driver package."
        )
    return None


def main(name: str, argv: list[str]) -> int:
    state = state_file.load()
    if {"-v", "--version"} & set(argv):
        print(f"Fabric Manager version is : {state['fabric_manager']['version']}")
        return 0
    if {"-h", "--help"} & set(argv):
        print("\n    NVIDIA Fabric Manager\n    Runs as a background process to configure the NVSwitches to form\n"
              "    a single memory fabric among all participating GPUs.\n\n    Usage: nv-fabricmanager [options]\n")  # fmt: skip
        return 0
    why = refusal(state)
    if why:
        _log("ERROR", why)
        print(why, file=sys.stderr)
        return 1
    version = state["fabric_manager"]["version"]
    _log("INFO", f"Fabric Manager version {version} is running with the following configuration options")
    _log("INFO", "LOG_LEVEL=4")
    _log("INFO", f"Connected to {max(len(state['nvswitches']), 1)} node(s)")
    if any(nic["sw_mng"] for nic in state["nics"]):
        _log("INFO", "Detected NVL5+ system")
    _log("INFO", f"Dumping all the detected NVLink connections, {len(state_file.present_gpus(state))} GPU(s)")
    _log("INFO", "Successfully configured all the available NVSwitches to route GPU NVLink traffic. "
                 "NVLink Peer-to-Peer support will be enabled once the GPUs are successfully registered with the NVLink fabric.")  # fmt: skip
    with state_file.change() as fresh:
        fresh["fabric_manager"]["trained"] = version
    _daemonize()
    return 0


def _daemonize() -> None:
    pid_file: Path = state_file.root() / PID
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)  # leave only when the daemon has written its PID file
        return
    os.setsid()
    pid_file.write_text(f"{os.getpid()}\n")
    os.close(writer)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)

    def stop(*_: Any) -> None:
        _log("INFO", "Fabric Manager is shutting down")
        pid_file.unlink(missing_ok=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while True:
        signal.pause()
