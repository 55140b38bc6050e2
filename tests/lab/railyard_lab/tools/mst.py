# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mst of MFT: start, stop, status, status -v."""

from __future__ import annotations

from typing import Any

from railyard_lab import catalogue, interfaces
from railyard_lab import state as state_file
from railyard_lab.tools import _common

_USAGE = "    Usage:\n        mst {start|stop|status|restart|version} [-v]"


def _cards(state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Device path and NIC of every Mellanox function."""
    found = []
    for nic in sorted(state["nics"], key=lambda item: item["pci"]):
        name = state_file.mst_name(state, nic)
        if name:
            found.append((f"/dev/mst/{name}", nic))
    return found


def main(name: str, argv: list[str]) -> int:
    command = argv[0] if argv else ""
    state = _common.snapshot()
    if command in ("start", "restart"):
        with state_file.change() as fresh:
            fresh["mst_started"] = True
        print("Starting MST (Mellanox Software Tools) driver set")
        print("Loading MST PCI module - Success")
        print("[warn] mst_pciconf is already loaded, skipping" if state.get("mst_started") else
              "Loading MST PCI configuration module - Success")  # fmt: skip
        print("Create devices")
        print("Unloading MST PCI module (unused) - Success")
        return 0
    if command == "stop":
        with state_file.change() as fresh:
            fresh["mst_started"] = False
        print("Stopping MST (Mellanox Software Tools) driver set")
        print("Unloading MST PCI configuration module - Success")
        return 0
    if command == "version":
        print("mst, mft 4.30.1-8, built on Dec 10 2024, 12:02:11. Git SHA Hash: N/A")
        return 0
    if command != "status":
        print(_USAGE)
        return 1
    started = bool(state.get("mst_started"))
    print("MST modules:\n------------")
    print("    MST PCI module is not loaded")
    print(f"    MST PCI configuration module {'loaded' if started else 'is not loaded'}\n")
    if "-v" in argv[1:]:
        _verbose(state, started)
        return 0
    print("MST devices:\n------------")
    if not started:
        print("\tNo MST devices were found or MST modules are not loaded.\n\tYou may need to run 'mst start'.")
        return 0
    for path, nic in _cards(state):
        print(f"{path:<33}- PCI configuration cycles access.")
        domain, bus, rest = nic["pci"].split(":")
        device, function = rest.split(".")
        print(
            f"{'':<35}domain:bus:dev.fn={domain}:{bus}:{device}.{function} addr.reg=88 data.reg=92 cr_bar.gw_offset=-1"
        )
        print(f"{'':<35}Chip revision is: 00")
    return 0


def _verbose(state: dict[str, Any], started: bool) -> None:
    print("PCI devices:\n------------")
    print(f"{'DEVICE_TYPE':<24}{'MST':<30}{'PCI':<10}{'RDMA':<16}{'NET':<40}{'NUMA':<6}")
    live = interfaces.current(state)
    for path, nic in _cards(state):
        model = catalogue.NICS[nic["model"]]
        kind = f"{model['type']}(rev:0)"
        net = f"net-{nic['netdev']}" if nic["netdev"] in live or nic["link_layer"] == "InfiniBand" else ""
        numa = state["pci"][nic["pci"]]["numa_node"]
        place = path if started else "NA"
        print(f"{kind:<24}{place:<30}{nic['pci'].removeprefix('0000:'):<10}{nic['rdma'] or '':<16}{net:<40}{numa:<6}\n")
