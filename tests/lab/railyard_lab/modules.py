# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules: which exist on this host, which are loaded, and what loading one does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from railyard_lab import state as state_file

# name: (size in bytes, modules it needs, where it comes from)
KNOWN: dict[str, tuple[int, tuple[str, ...], str]] = {
    "mlxfw": (36864, (), "inbox"),
    "psample": (20480, (), "inbox"),
    "tls": (135168, (), "inbox"),
    "pci_hyperv_intf": (16384, (), "inbox"),
    "ib_core": (475136, (), "inbox"),
    "ib_uverbs": (200704, ("ib_core",), "inbox"),
    "ib_umad": (40960, ("ib_core",), "inbox"),
    "ib_cm": (147456, ("ib_core",), "inbox"),
    "iw_cm": (61440, ("ib_core",), "inbox"),
    "rdma_cm": (147456, ("iw_cm", "ib_cm", "ib_core"), "inbox"),
    "rdma_ucm": (36864, ("rdma_cm", "ib_uverbs", "ib_core"), "inbox"),
    "ib_ipoib": (163840, ("ib_cm", "ib_core"), "inbox"),
    "mlx5_core": (2179072, ("mlxfw", "psample", "tls", "pci_hyperv_intf"), "inbox"),
    "mlx5_ib": (487424, ("mlx5_core", "ib_uverbs", "ib_core"), "inbox"),
    "rdma_rxe": (196608, ("ib_uverbs", "ib_core"), "inbox"),
    "ib_iser": (53248, ("rdma_cm", "ib_core"), "inbox"),
    "ib_isert": (65536, ("rdma_cm", "ib_core"), "inbox"),
    "ib_srpt": (69632, ("rdma_cm", "ib_cm", "ib_core"), "inbox"),
    "rpcrdma": (421888, ("rdma_cm", "ib_core"), "inbox"),
    "nouveau": (2605056, (), "inbox"),
    "ixgbe": (434176, (), "inbox"),
    "mlx_compat": (69632, (), "ofed"),
    "knem": (53248, (), "ofed"),
    "nvidia": (104173568, (), "driver"),
    "nvidia_modeset": (1814528, ("nvidia",), "driver"),
    "nvidia_uvm": (2076672, ("nvidia",), "driver"),
    "nvidia_drm": (135168, ("nvidia_modeset", "nvidia"), "driver"),
    "nvidia_peermem": (16384, ("nvidia", "ib_core"), "driver"),
    "gdrdrv": (36864, ("nvidia",), "gdrdrv"),
}  # fmt: skip
# Parts of a Debian kernel that a playbook may ask for and that no stand-in depends on: loading them just succeeds.
ORDINARY = {
    "8021q", "bonding", "br_netfilter", "bridge", "configfs", "dummy", "ip_tables", "ip6_tables", "ipmi_devintf",
    "ipmi_si", "iptable_filter", "lp", "macvlan", "msr", "nf_conntrack", "nf_tables", "nfs", "nvme_rdma", "overlay",
    "sunrpc", "svcrdma", "tcp_bbr", "tun", "veth", "vfio", "vfio_pci", "xprtrdma",
}  # fmt: skip

DRIVER_MODULES = [name for name, (_size, _needs, origin) in KNOWN.items() if origin == "driver"]


def canonical(name: str) -> str:
    return name.replace("-", "_")


def available(state: dict[str, Any], name: str) -> bool:
    if name in ORDINARY:
        return True
    if name not in KNOWN:
        return False
    origin = KNOWN[name][2]
    if origin == "driver":
        return state["driver"]["installed"] is not None
    if origin == "ofed":
        return state["stack"]["kind"] == "doca"
    if origin == "gdrdrv":
        return any(entry[0] == "gdrdrv" and entry[2] == "installed" for entry in state["dkms"])
    return True


def version(state: dict[str, Any], name: str, loaded: bool) -> str | None:
    """What `modinfo -F version` says of the file (`loaded` false) or /sys/module of the module in the kernel."""
    if name in DRIVER_MODULES:
        return state["driver"]["loaded" if loaded else "installed"]
    if state["stack"]["kind"] == "doca" and (name.startswith(("mlx", "ib_", "rdma_", "iw_"))):
        return state["stack"]["version"]
    return None


def builtin(name: str) -> bool:
    from railyard_lab.interfaces import is_node, real_sysfs

    return is_node() and (real_sysfs() / "module" / name).is_dir()


def options(name: str) -> dict[str, str]:
    """`options NAME key=value …` of /etc/modprobe.d, later files over earlier ones as modprobe sorts them."""
    found: dict[str, str] = {}
    folder = state_file.root() / "etc/modprobe.d"
    for path in sorted(folder.glob("*.conf")) if folder.is_dir() else []:
        for line in path.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) > 2 and words[0] == "options" and canonical(words[1]) == name:
                found.update(word.split("=", 1) for word in words[2:] if "=" in word)
    return found


class LoadError(Exception):
    """What the kernel answers: text of the error number."""


def load(state: dict[str, Any], name: str) -> None:
    """Load a module and what it needs; raises LoadError as init_module(2) would fail."""
    if name in state["modules"] or builtin(name):
        return
    if not available(state, name):
        raise LookupError(name)
    if name in DRIVER_MODULES and not state_file.present_gpus(state) and name != "nvidia_modeset":
        state_file.log_kernel(state, "NVRM: No NVIDIA GPU found.")
        raise LoadError("No such device")
    if name == "nvidia_peermem" and (not has_peer_memory(state) or name in state.get("broken_modules", [])):
        # Built without the peer-memory symbols of the ib_core that runs, its init function gives EINVAL.
        raise LoadError("Invalid argument")
    if name in DRIVER_MODULES:
        loaded = state["driver"]["loaded"]
        if loaded and loaded != state["driver"]["installed"]:
            raise LoadError("Invalid argument")
    for needed in KNOWN.get(name, (0, (), ""))[1]:
        load(state, needed)
    state["modules"].append(name)
    given = options(name)
    if given:
        state["module_parameters"][name] = given
    if name == "nvidia":
        driver = state["driver"]
        driver["loaded"], driver["loaded_flavour"] = driver["installed"], driver["flavour"]
        state_file.log_kernel(state, "nvidia-nvlink: Nvlink Core is being initialized, major device number 235")
        state_file.log_kernel(state, f"NVRM: loading {version_line(driver)}")


def version_line(driver: dict[str, Any]) -> str:
    number = driver["loaded"]
    if driver["loaded_flavour"] == "open":
        return (
            f"NVIDIA UNIX Open Kernel Module for x86_64  {number}  Release Build  "
            "(dvs-builder@U22-I3-AE18-23-3)  Tue Sep 23 09:55:41 UTC 2025"
        )
    return f"NVIDIA UNIX x86_64 Kernel Module  {number}  Tue Sep 23 10:11:16 UTC 2025"


def has_peer_memory(state: dict[str, Any]) -> bool:
    return state["stack"]["kind"] == "doca"


def users(state: dict[str, Any], name: str) -> list[str]:
    return [other for other in state["modules"] if name in KNOWN.get(other, (0, (), ""))[1]]


def unload(state: dict[str, Any], name: str) -> None:
    """Raises LoadError where rmmod would: in use or not loaded."""
    if name not in state["modules"]:
        raise LookupError(name)
    if users(state, name):
        raise LoadError(f"Module {name} is in use by: {' '.join(users(state, name))}")
    if name in ("nvidia", "nvidia_uvm") and state["gpu_processes"]:
        raise LoadError(f"Module {name} is in use")
    state["modules"].remove(name)
    state["module_parameters"].pop(name, None)
    if name == "nvidia":
        state["driver"]["loaded"] = state["driver"]["loaded_flavour"] = None


def boot(state: dict[str, Any]) -> list[str]:
    """What a fresh kernel loads; returns the modules that /etc/modules-load.d names and that could not be loaded."""
    state["modules"] = []
    state["module_parameters"] = {}
    state["driver"]["loaded"] = state["driver"]["loaded_flavour"] = None
    if state["stack"]["kind"] == "doca":
        load(state, "mlx_compat")
    for name in ("mlx5_core", "mlx5_ib"):
        if any(nic["rdma"] for nic in state["nics"]):
            load(state, name)
    if any(nic["model"] == "x550" for nic in state["nics"]):
        load(state, "ixgbe")
    if rdma_core_installed():
        load_rdma_services(state)
    if state["driver"]["installed"] and state_file.present_gpus(state) and not blacklisted("nvidia"):
        for name in ("nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_drm"):
            load(state, name)
    return load_configured(state)


def blacklisted(name: str) -> bool:
    folder = state_file.root() / "etc/modprobe.d"
    pattern = re.compile(rf"^\s*blacklist\s+{re.escape(name)}\s*$", re.M)
    return folder.is_dir() and any(pattern.search(path.read_text(errors="replace")) for path in folder.glob("*.conf"))


def rdma_core_installed() -> bool:
    root = state_file.root()
    rules = ("lib/udev/rules.d/60-rdma-persistent-naming.rules", "usr/lib/udev/rules.d/60-rdma-persistent-naming.rules")
    return any((root / path).exists() for path in rules)


def load_rdma_services(state: dict[str, Any]) -> None:
    """What rdma-core's udev rules load for any mlx5 device."""
    for name in ("ib_umad", "rdma_ucm", "ib_ipoib"):
        load(state, name)


def load_configured(state: dict[str, Any]) -> list[str]:
    """Like systemd-modules-load: /etc over /run over /usr/lib, first name wins."""
    root = state_file.root()
    files: dict[str, Path] = {}
    for folder in ("usr/lib/modules-load.d", "run/modules-load.d", "etc/modules-load.d"):
        for path in (root / folder).glob("*.conf") if (root / folder).is_dir() else []:
            files[path.name] = path
    failed = []
    for _name, path in sorted(files.items()):
        for line in path.read_text(errors="replace").splitlines():
            name = canonical(line.strip())
            if not name or name.startswith(("#", ";")):
                continue
            try:
                load(state, name)
            except (LookupError, LoadError):
                failed.append(name)
    return failed
