# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dmesg shows of this hardware."""

from __future__ import annotations

from typing import Any

from railyard_lab import catalogue


def _lane_mbps(generation: int) -> int:
    """The kernel's PCIE_SPEED2MBS_ENC: whole megabits per lane after line coding."""
    return int(catalogue.SPEEDS_GTS[generation] * 1000 * (128 / 130 if generation > 2 else 0.8))


def pcie_bandwidth(state: dict[str, Any], bdf: str) -> str | None:
    """What a driver says of its device's link at probe (pcie_print_link_status)."""
    link = state["pci"][bdf]["link"]
    if not link["width"]:
        return None

    def rate(generation: int, width: int) -> str:
        return f"{_lane_mbps(generation) * width / 1000:.3f} Gb/s"

    def name(generation: int, width: int) -> str:
        return f"{catalogue.SPEEDS_GTS[generation]:.1f} GT/s PCIe x{width} link"

    now, best = (link["gen"], link["width"]), (link["max_gen"], link["max_width"])
    if now == best:
        return f"mlx5_core {bdf}: {rate(*now)} available PCIe bandwidth ({name(*now)})"
    above = (state["pci"][bdf]["path"] or [bdf])[-1]
    return (
        f"mlx5_core {bdf}: {rate(*now)} available PCIe bandwidth, limited by {name(*now)} at {above} "
        f"(capable of {rate(*best)} with {name(*best)})"
    )


def boot_lines(state: dict[str, Any]) -> list[list[Any]]:
    """What the kernel says of this hardware while it boots: `[[seconds, text]]`."""
    passthrough = "iommu=pt" in state["cmdline"].split()
    lines = [
        (0.0, "Linux version 6.1.0-32-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0, "
              "GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.129-1 (2025-03-06)"),
        (0.0, f"Command line: {state['cmdline']}"),
        (0.482113, "iommu: Default domain type: Passthrough (set via kernel command line)" if passthrough
                   else "iommu: Default domain type: Translated"),
    ]  # fmt: skip
    moment = 5.1
    rdma = sorted((nic for nic in state["nics"] if nic["rdma"]), key=lambda nic: nic["pci"])
    for number, nic in enumerate(rdma):
        moment += 0.613
        lines.append((moment, f"mlx5_core {nic['pci']}: firmware version: {nic['firmware']}"))
        bandwidth = pcie_bandwidth(state, nic["pci"])
        if bandwidth:
            lines.append((moment + 0.001, bandwidth))
        if nic["netdev"] and nic["link_layer"] == "Ethernet":
            lines.append((moment + 0.4, f"mlx5_core {nic['pci']} {nic['netdev']}: renamed from eth{number}"))
            lines.append((moment + 6.2, f"mlx5_core {nic['pci']} {nic['netdev']}: Link up"))
    lines.sort(key=lambda line: line[0])
    return [[round(when, 6), text] for when, text in lines]


def boot_messages(state: dict[str, Any]) -> None:
    state["dmesg"] = boot_lines(state) + state["dmesg"]


def retell(state: dict[str, Any], told: list[list[Any]]) -> None:
    """Let the log say what the boot would have said of the hardware as it is now, instead of `told`."""
    instead = {(when, text): line for (when, text), line in zip(told, boot_lines(state)) if [when, text] != line}
    state["dmesg"] = [instead.get((when, text), [when, text]) for when, text in state["dmesg"]]
