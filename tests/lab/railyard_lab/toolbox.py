# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which stand-in tools a node has, and their place in the path."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any, NamedTuple

from railyard_lab import state as state_file

PLACE = "usr/local/sbin"
# Programs of packages that are stand-ins themselves lie where units and people expect them.
OWN_PLACES = {"nvidia-smi": "usr/bin", "nv-fabricmanager": "usr/bin", "opensm": "usr/sbin"}
REAL_PLACES = ("usr/sbin", "usr/bin", "sbin", "bin")


class Tool(NamedTuple):
    group: str
    module: str  # in railyard_lab.tools


TOOLS: dict[str, Tool] = {
    "rdma": Tool("base", "rdma"),
    "dcb": Tool("base", "dcb"),
    "ethtool": Tool("base", "ethtool"),
    "modprobe": Tool("base", "kmod"),
    "rmmod": Tool("base", "kmod"),
    "lsmod": Tool("base", "kmod"),
    "modinfo": Tool("base", "kmod"),
    "dmesg": Tool("base", "dmesg"),
    "systemd-detect-virt": Tool("base", "detect_virt"),
    "lspci": Tool("pciutils", "pciutils"),
    "setpci": Tool("pciutils", "pciutils"),
    "ibv_devinfo": Tool("shadow", "ibverbs"),
    "ibv_devices": Tool("shadow", "ibverbs"),
    "ibstat": Tool("infiniband-diags", "ibstat"),
    "ibstatus": Tool("infiniband-diags", "ibstatus"),
    "ib_write_bw": Tool("shadow", "perftest"),
    "ib_read_bw": Tool("shadow", "perftest"),
    "ib_send_bw": Tool("shadow", "perftest"),
    "ib_write_lat": Tool("shadow", "perftest"),
    "ib_read_lat": Tool("shadow", "perftest"),
    "ib_send_lat": Tool("shadow", "perftest"),
    "mstconfig": Tool("shadow", "mlxconfig"),
    "mstfwreset": Tool("shadow", "mlxfwreset"),
    "mstlink": Tool("shadow", "mlxlink"),
    "mlxconfig": Tool("mft", "mlxconfig"),
    "mlxfwreset": Tool("mft", "mlxfwreset"),
    "mlxlink": Tool("mft", "mlxlink"),
    "mst": Tool("mft", "mst"),
    "mlnx_qos": Tool("mlnx-tools", "mlnx_qos"),
    "show_gids": Tool("mlnx-tools", "show_gids"),
    "ofed_info": Tool("ofed", "ofed_info"),
    "ibdev2netdev": Tool("ofed", "ibdev2netdev"),
    "nvidia-smi": Tool("driver", "nvidia_smi"),
    "nv-fabricmanager": Tool("fabricmanager", "fabricmanager"),
    "all_reduce_perf": Tool("nccl-tests", "nccl_tests"),
    "all_gather_perf": Tool("nccl-tests", "nccl_tests"),
    "reduce_scatter_perf": Tool("nccl-tests", "nccl_tests"),
    "alltoall_perf": Tool("nccl-tests", "nccl_tests"),
    "mpirun": Tool("nccl-tests", "mpirun"),
    "dkms": Tool("dkms", "dkms"),
    "ip": Tool("ipoib", "ip"),
    "opensm": Tool("opensm", "opensm"),
}

# The package lies on a read-only mount, so its bytecode is kept elsewhere: a tool starts in a fifth of the time.
_SCRIPT = """#!/usr/bin/python3 -IS
import sys
sys.pycache_prefix = "/run/gpu-fabric-lab/bytecode"
sys.path.insert(0, {package!r})
from railyard_lab.toolbox import run
run({name!r})
"""
_MARK = "from railyard_lab.toolbox import run"


def package_parent() -> str:
    return str(Path(__file__).resolve().parent.parent)


def write(directory: Path, name: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / name
    text = _SCRIPT.format(package=package_parent(), name=name)
    if target.exists() and target.read_text(errors="replace") == text:
        return
    target.write_text(text)
    target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def run(name: str) -> None:
    """Body of every stand-in script: find the module, run it, leave as a C program would on a closed pipe."""
    import importlib

    module = importlib.import_module(f"railyard_lab.tools.{TOOLS[name].module}")
    try:
        code = module.main(name, sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _is_stand_in(path: Path) -> bool:
    try:
        return _MARK in path.read_text(errors="replace")[:400]
    except OSError:
        return False


def real_path(name: str) -> Path | None:
    """The distribution's own program of this name."""
    root = state_file.root()
    for folder in REAL_PLACES:
        path = root / folder / name
        if path.is_file() and not _is_stand_in(path):
            return path
    return None


def wanted(state: dict[str, Any]) -> set[str]:
    from railyard_lab import ipoib

    names = set(state["enabled_tools"])
    for name, tool in TOOLS.items():
        group = tool.group
        if (
            (group == "base")
            or (group == "shadow" and real_path(name) is not None)
            or (group in ("mft", "mlnx-tools") and group in state["preinstalled"])
            or (group in ("mlnx-tools", "ofed") and state["stack"]["kind"] == "doca")
            or (group == "driver" and state["driver"]["library"])
            or (group == "fabricmanager" and state["fabric_manager"]["version"])
            or (group == "dkms" and (state["dkms"] or real_path(name) is not None))
            or (group == "ipoib" and ipoib.ports(state))
            or (group == "opensm" and (state_file.root() / "var/lib/dpkg/info/opensm.list").exists())
            or (group == "nccl-tests" and state["nccl"] and state["driver"]["library"])
        ):
            names.add(name)
    return names


def refresh(quiet: bool = False) -> None:
    if not state_file.exists():
        print("railyard_lab: no state yet, nothing to refresh", file=sys.stderr)
        return
    from railyard_lab import packages

    with state_file.change() as state:
        packages.refresh_kernel(state)
        names = wanted(state)
    for name in TOOLS:
        directory = state_file.root() / OWN_PLACES.get(name, PLACE)
        target = directory / name
        if name in names:
            write(directory, name)
        elif target.is_file() and _is_stand_in(target):
            target.unlink()
    if not quiet:
        print("\n".join(sorted(names)))
