# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dmesg shows of this hardware."""

from __future__ import annotations

from typing import Any

from railyard_lab import catalogue


def boot_messages(state: dict[str, Any]) -> None:
    lines = [
        (0.0, "Linux version 6.1.0-32-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14) 12.2.0, "
              "GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.129-1 (2025-03-06)"),
        (0.0, f"Command line: {state['cmdline']}"),
        (0.482113, "iommu: Default domain type: Passthrough (set via kernel command line)"
                   if "iommu=pt" in state["cmdline"].split() else "iommu: Default domain type: Translated"),
    ]  # fmt: skip
    moment = 5.1
    for nic in sorted((item for item in state["nics"] if item["rdma"]), key=lambda item: item["pci"]):
        moment += 0.613
        link = state["pci"][nic["pci"]]["link"]
        bandwidth = catalogue.SPEEDS_GTS.get(link["gen"], 0.0) * link["width"] * (128 / 130 if link["gen"] > 2 else 0.8)
        lines.append((moment, f"mlx5_core {nic['pci']}: firmware version: {nic['firmware']}"))
        if link["width"]:
            limit = ""
            if link["width"] < link["max_width"] or link["gen"] < link["max_gen"]:
                capable = catalogue.SPEEDS_GTS[link["max_gen"]] * link["max_width"] * 128 / 130
                above = state["pci"][nic["pci"]]["path"][-1:] or [nic["pci"]]
                limit = (
                    f", limited by {catalogue.SPEEDS_GTS[link['gen']]:.1f} GT/s PCIe x{link['width']} link at {above[0]} "
                    f"(capable of {capable:.3f} Gb/s with {catalogue.SPEEDS_GTS[link['max_gen']]:.1f} GT/s PCIe "
                    f"x{link['max_width']} link)"
                )
            text = (
                f"({catalogue.SPEEDS_GTS[link['gen']]:.1f} GT/s PCIe x{link['width']} link)" if not limit else limit[2:]
            )
            lines.append((moment + 0.001, f"mlx5_core {nic['pci']}: {bandwidth:.3f} Gb/s available PCIe bandwidth "
                                          + (text if not limit else ", " + text).replace(" , ", ", ")))
        if nic["netdev"] and nic["link_layer"] == "Ethernet":
            lines.append((moment + 0.4, f"mlx5_core {nic['pci']} {nic['netdev']}: renamed from eth{len(lines)}"))
            lines.append((moment + 6.2, f"mlx5_core {nic['pci']} {nic['netdev']}: Link up"))
    state["dmesg"] = [[round(when, 6), text] for when, text in sorted(lines)] + state["dmesg"]
