# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mlxfwreset (MFT) and mstfwreset (mstflint): load new firmware settings without a reboot."""

from __future__ import annotations

import sys
from typing import Any

from railyard_lab import nvconfig, qos
from railyard_lab import state as state_file

_QUERY = """
Reset-levels:
0: Driver, PCI link, network link will remain up ("live-Patch")        -Not Supported
1: Only ARM side will not remain up ("Immediate reset").               -Not Supported
3: Driver restart and PCI reset                                        -Supported     (default)
4: Warm Reboot                                                         -Supported     

Reset-types (relevant only for reset-levels 1,3,4):
0: Full chip reset                                                     -Supported     (default)
1: Phy-less reset (keep network port active during reset)              -Not Supported 
2: NIC only reset (for SoC devices)                                    -Not Supported 
3: ARM only reset                                                      -Not Supported 
4: ARM OS shut down                                                    -Not Supported 

Reset-sync (relevant only for reset-level 3):
0: Tool is the owner                                                   -Supported     (default)
1: Driver is the owner                                                 -Not Supported 
"""


def main(name: str, argv: list[str]) -> int:
    device, yes, command = None, False, None
    words = iter(argv)
    for word in words:
        if word in ("-d", "--device"):
            device = next(words, None)
        elif word in ("-y", "--yes"):
            yes = True
        elif word in ("-l", "--level", "-t", "--type", "--sync", "-m", "--mst_flags"):
            next(words, None)
        elif not word.startswith("-"):
            command = {"q": "query", "r": "reset"}.get(word, word)
    if device is None or command is None:
        print(f"usage: {name} -d DEVICE [-y] <query|reset>", file=sys.stderr)
        return 2
    state = state_file.load()
    nic = state_file.find_nic(state, device)
    if nic is None or not nic.get("nvconfig"):
        print(f"-E- Device {device} does not exist or is not supported")
        return 1
    if command == "query":
        print(_QUERY)
        return 0
    if command != "reset":
        print(f"-E- Unknown command {command}")
        return 1
    print(f"\nRequested reset level for device, {device}:\n\n3: Driver restart and PCI reset ")
    print("Continue with reset?[y/N] ", end="", flush=True)
    if yes:
        print("y")
    elif sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print("\n-E- Operation aborted")
        return 1
    return _reset(nic)


def _reset(nic: dict[str, Any]) -> int:
    print("-I- Sending Reset Command To Fw             -Done")
    print("-I- Stopping Driver                         -Done")
    print("-I- Resetting PCI                           -Done")
    with state_file.change() as state:
        for other in nvconfig.same_card(state, nic):
            nvconfig.reset(other)
            other["flaps"] += 1
            if other["link_layer"] == "Ethernet":
                other["qos"] = qos.factory()
            else:
                other.pop("qos", None)
            state_file.log_kernel(state, f"mlx5_core {other['pci']}: firmware version: {other['firmware']}")
    print("-I- Starting Driver                         -Done")
    print("-I- Restarting MST                          -Done")
    print("-I- FW was loaded successfully.")
    return 0
