# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lay the tree over /sys and /proc of a node.

A new directory cannot be made in sysfs, so whole areas are replaced: our tmpfs lies over /sys/class, /sys/bus,
/sys/devices and /sys/module, and what the kernel really has there is linked in (classes, buses, modules) or
bind-mounted to its old place (devices/system, devices/virtual: paths that programs compare).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from railyard_lab import interfaces, tree
from railyard_lab import state as state_file

RUN = Path("/run/gpu-fabric-lab")
MS_BIND, MS_REC = 0x1000, 0x4000
KEEP_IN_PLACE = ("system", "virtual")
AREAS = ("class", "bus", "devices", "module")


def _mount(source: str, target: Path, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    encode = lambda text: None if text is None else text.encode()  # noqa: E731
    if libc.mount(encode(source), encode(str(target)), encode(kind), flags, encode(data)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot mount {source} on {target}: {os.strerror(error)}")


def is_up() -> bool:
    return (RUN / "booted").exists()


def lay_over(state: dict[str, Any]) -> None:
    """Once per boot. Before anything in the node has opened /sys."""
    RUN.mkdir(parents=True, exist_ok=True)
    saved, built = RUN / "sys", RUN / "tree"
    saved.mkdir(exist_ok=True)
    built.mkdir(exist_ok=True)
    _mount("/sys", saved, flags=MS_BIND)
    _mount("gpu-fabric-lab", built, "tmpfs", data="mode=0755,size=64m")
    (built / "sys").mkdir()
    tree.sync(state)
    _link_real(saved, built)
    for area in AREAS:
        (built / "sys" / area).mkdir(parents=True, exist_ok=True)
        if area == "devices":
            for name in KEEP_IN_PLACE:
                place = built / "sys/devices" / name
                place.mkdir(exist_ok=True)
                _mount(str(saved / "devices" / name), place, flags=MS_BIND)
        _mount(str(built / "sys" / area), Path("/sys") / area, flags=MS_BIND | MS_REC)
    (built / "proc/driver").mkdir(parents=True, exist_ok=True)
    for name in ("driver", "cmdline", "modules"):
        target = Path("/proc") / name
        if target.exists():  # a kernel without loadable modules has no /proc/modules, and procfs takes no new names
            _mount(str(built / "proc" / name), target, flags=MS_BIND)
    (RUN / "booted").touch()


def _link_real(saved: Path, built: Path) -> None:
    ours = {"infiniband", "infiniband_mad", "infiniband_verbs", "net", "dmi"}
    for area, hidden in (("class", ours), ("bus", {"pci"}), ("module", set()), ("devices", set(KEEP_IN_PLACE))):
        for name in sorted(os.listdir(saved / area)):
            place = built / "sys" / area / name
            if name in hidden or place.is_symlink() or place.exists():
                continue
            if area == "devices" and name.startswith("pci"):
                continue  # the machine that runs the lab is not this machine
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(saved / area / name)


def device_nodes(state: dict[str, Any]) -> None:
    """/dev entries that programs look for; opening one fails, as there is no driver behind it."""
    if not interfaces.is_node():
        return
    wanted: dict[str, tuple[int, int]] = {}
    if "nvidia" in state["modules"]:
        wanted["nvidiactl"] = (195, 255)
        for index, _gpu in enumerate(state_file.present_gpus(state)):
            wanted[f"nvidia{index}"] = (195, index)
        for index, _switch in enumerate(state["nvswitches"]):
            wanted[f"nvidia-nvswitch{index}"] = (236, index)
    if "nvidia_uvm" in state["modules"]:
        wanted["nvidia-uvm"] = (234, 0)
    for number, _nic in enumerate([nic for nic in state["nics"] if nic["rdma"]]):
        for module, prefix, first in (("ib_uverbs", "uverbs", 192), ("ib_umad", "umad", 0)):
            if module in state["modules"] and "mlx5_ib" in state["modules"]:
                wanted[f"infiniband/{prefix}{number}"] = (231, first + number)
    note = RUN / "device-nodes"
    before = set(note.read_text().split()) if note.exists() else set()
    if before == set(wanted):
        return
    for name in before - set(wanted):
        (Path("/dev") / name).unlink(missing_ok=True)
    for name, (major, minor) in wanted.items():
        place = Path("/dev") / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            try:
                os.mknod(place, 0o020666, os.makedev(major, minor))
            except PermissionError:
                place.touch()
    note.write_text("\n".join(sorted(wanted)))


def claim_interfaces(state: dict[str, Any]) -> None:
    """Give plugged ports the address that is burnt into the card, and no trace of another one."""
    live = interfaces.current(state)
    for nic in state["nics"]:
        interface = live.get(nic["netdev"]) if nic["netdev"] else None
        if interface is None or not interface.real or interface.mac == nic["mac"]:
            continue
        interfaces.run_ip("link", "set", "dev", interface.name, "down")
        interfaces.run_ip("link", "set", "dev", interface.name, "address", nic["mac"])
        if interface.up:
            interfaces.run_ip("link", "set", "dev", interface.name, "up")
