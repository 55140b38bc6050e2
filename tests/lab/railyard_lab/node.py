# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's life: first boot, boot, watch."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from railyard_lab import interfaces, kernel_log, link, modules, mount, nvconfig, profile, qos, toolbox, tree, writes
from railyard_lab import state as state_file


def up(profile_name: str | None, host: str | None) -> None:
    with state_file.locked():
        first = not state_file.exists()
        if first:
            if not profile_name:
                raise SystemExit("railyard_lab: the first `node up` of a host needs --profile")
            state = profile.unfold(profile_name, host or os.uname().nodename)
        else:
            state = state_file.load()
            if profile_name and state["profile"] != profile_name:
                raise SystemExit(
                    f"railyard_lab: this disk belongs to a {state['profile']}, not a {profile_name}; "
                    "`node reset` makes it new"
                )
        fresh_boot = not mount.is_up() if interfaces.is_node() else True
        if fresh_boot:
            boot(state)
        if interfaces.is_node():
            if fresh_boot:
                mount.claim_interfaces(state)
                mount.lay_over(state)
        else:
            tree.clear()
        tree.sync(state)
        state_file.save(state)
        mount.device_nodes(state)
    if interfaces.is_node():
        _load_modules_by_stand_in()
    toolbox.refresh(quiet=True)


def _load_modules_by_stand_in() -> None:
    """systemd-modules-load asks the kernel itself, which has no modules here: it must ask the stand-in."""
    drop_in = Path("/etc/systemd/system/systemd-modules-load.service.d/gpu-fabric-lab.conf")
    text = (
        "[Service]\nExecStart=\n"
        f"Environment=PYTHONPATH={toolbox.package_parent()}\n"
        "ExecStart=/usr/bin/python3 -B -m railyard_lab modules-load\n"
    )
    if not drop_in.exists():
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        drop_in.write_text(text)
        subprocess.run(["systemctl", "--no-block", "daemon-reload"], capture_output=True, check=False)


def boot(state: dict[str, Any]) -> None:
    """Power on: settings that waited for it are in force, volatile ones are gone."""
    state["boot"] = {"count": state["boot"]["count"] + 1, "id": str(uuid.uuid4())}
    state["dmesg"] = []
    state["gid_tables"] = {}
    state["ipoib"] = {}
    state["persistence"] = False
    state["fabric_manager"].pop("trained", None)
    state["gpu_processes"] = []
    for nic in state["nics"]:
        if nic.get("nvconfig"):
            nvconfig.reset(nic)
        if nic.get("qos"):
            nic["qos"] = qos.factory()
        nic["flaps"] = 0
        nic |= link.factory()
    modules.boot(state)
    kernel_log.boot_messages(state)


def reset(profile_name: str, host: str | None) -> None:
    with state_file.locked():
        state = profile.unfold(profile_name, host or os.uname().nodename)
        boot(state)
        tree.sync(state)
        state_file.save(state)
    toolbox.refresh(quiet=True)


def sync() -> None:
    with state_file.change() as state:
        pass
    mount.device_nodes(state)


def _notify(text: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)


def watch() -> None:
    """Follow the kernel's interfaces, and what is written into the tree, for as long as the node lives."""
    monitor = subprocess.Popen([interfaces.real_ip(), "-o", "monitor", "link", "address"], stdout=subprocess.PIPE)
    assert monitor.stdout is not None
    descriptor = monitor.stdout.fileno()
    os.set_blocking(descriptor, False)
    written = writes.Watch()
    sync()
    written.follow(tree.writable(state_file.load()))
    _notify("READY=1")
    while monitor.poll() is None:
        select.select([descriptor, written.descriptor], [], [])
        # Changes come in bursts (an address, its routes, DAD): answer the burst once.
        quiet_until = time.monotonic() + 0.02
        while time.monotonic() < quiet_until:
            try:
                if not os.read(descriptor, 65536):
                    break
            except BlockingIOError:
                pass
            time.sleep(0.01)
        written.clear()
        try:
            sync()
            written.follow(tree.writable(state_file.load()))
        except (OSError, ValueError, KeyError) as error:
            print(f"railyard_lab: sync failed: {error}", file=sys.stderr, flush=True)
    raise SystemExit("railyard_lab: `ip monitor` ended")
