# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of the lab's stand-in packages: what their maintainer scripts would do to hardware and kernel."""

from __future__ import annotations

from typing import Any

from railyard_lab import modules

INSIDE_FAULT = "RAILYARD_LAB_INSIDE_FAULT"  # set in the environment of packages that a fault installs
DRIVER_LOAD_ORDER = ("nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_drm")


def install_driver(state: dict[str, Any], version: str, flavour: str, library: bool) -> None:
    driver = state["driver"]
    driver["installed"], driver["flavour"] = version, flavour
    if library:
        driver["library"] = version
    if driver["loaded"] is None and not modules.blacklisted("nvidia"):
        for name in DRIVER_LOAD_ORDER:
            try:
                modules.load(state, name)
            except modules.LoadError:
                return


def remove_driver(state: dict[str, Any]) -> None:
    # Loaded code stays in the kernel until somebody unloads it or the host restarts.
    state["driver"].update(installed=None, flavour=None, library=None)


def set_stack(state: dict[str, Any], kind: str, version: str | None) -> None:
    """OFED's postinst replaces the RDMA modules; the stand-in does not ask for openibd's restart."""
    state["stack"] = {"kind": kind, "version": version if kind == "doca" else None}
    if kind == "doca":
        modules.load(state, "mlx_compat")
    elif "mlx_compat" in state["modules"]:
        state["modules"].remove("mlx_compat")
        if "nvidia_peermem" in state["modules"]:
            state["modules"].remove("nvidia_peermem")


def set_dkms(state: dict[str, Any], action: str, name: str, version: str) -> None:
    state["dkms"] = [entry for entry in state["dkms"] if entry[:2] != [name, version]]
    if action != "remove":
        state["dkms"].append([name, version, action])


def refresh_kernel(state: dict[str, Any]) -> None:
    """rdma-core's udev rules answer a coldplug trigger, which its postinst makes."""
    if modules.rdma_core_installed() and any(nic["rdma"] for nic in state["nics"]):
        modules.load_rdma_services(state)
