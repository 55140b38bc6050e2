# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mlxlink of MFT, the operational part."""

from __future__ import annotations

from railyard_lab import ports
from railyard_lab import state as state_file
from railyard_lab.tools import _common

GREEN, END = "\x1b[32m", "\x1b[0m"


def main(name: str, argv: list[str]) -> int:
    device = argv[argv.index("-d") + 1] if "-d" in argv[:-1] else None
    if device is None:
        print("-E- Device name is missing")
        return 1
    state = _common.snapshot()
    nic = state_file.find_nic(state, device)
    if nic is None or nic["vf"] or not nic["rdma"]:
        print(f"-E- Failed to open device: {device}")
        return 1
    port = ports.view(state, nic, _common.live(state))
    up = port["up"]
    unit = "IB-NDR" if port["link_layer"] == "InfiniBand" else f"{port['rate_gbps']}G"

    def line(label: str, value: str) -> None:
        print(f"{label:<35}: {value}")

    print("\nOperational Info\n----------------")
    line("State", "Active" if up else "Polling" if nic["cable"] is False else "Disable")
    line(
        "Physical state", ("LinkUp" if port["link_layer"] == "InfiniBand" else "ETH_AN_FSM_ENABLE") if up else "Polling"
    )
    line("Speed", unit if up else "N/A")
    line("Width", "4x" if up else "N/A")
    line("FEC", "Standard_RS-FEC - (544,514)" if up else "N/A")
    line("Loopback Mode", "No Loopback")
    line("Auto Negotiation", "ON")
    print("\nSupported Info\n--------------")
    line(
        "Enabled Link Speed (Ext.)", "0x00010000 (400G_4X)" if nic["rate_gbps"] == 400 else f"({nic['rate_gbps']}G_4X)"
    )
    line(
        "Supported Cable Speed (Ext.)",
        "0x00010000 (400G_4X)" if nic["rate_gbps"] == 400 else f"({nic['rate_gbps']}G_4X)",
    )
    print("\nTroubleshooting Info\n--------------------")
    line("Status Opcode", "0" if up else "1024" if not nic["cable"] else "1")
    line("Group Opcode", "N/A" if up else "MNG FW")
    line(
        "Recommendation",
        "No issue was observed" if up else "Cable is unplugged" if not nic["cable"] else "Port is closed by command",
    )
    print("\nTool Information\n----------------")
    line("Firmware Version", nic["firmware"])
    line("amBER Version", "3.5")
    line("MFT Version", "mft 4.30.1-8")
    return 0
