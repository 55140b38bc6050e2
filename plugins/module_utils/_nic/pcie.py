# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How much a function asks for in one PCIe read. Firmware of servers often leaves it at 512 bytes."""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import Knob, Port

# Device Control, eight bytes into the PCI Express capability; bits 14 to 12 are the size as a power of two from 128.
REGISTER = "CAP_EXP+08.w"
SIZES = {128 << step: step for step in range(6)}


class MaxReadRequest(Knob):
    """Maximum Read Request Size in bytes, through ``setpci``, which finds the capability wherever it is."""

    name = "max_read_request_bytes"
    optional = True

    def __init__(self, port: Port, cli: Cli) -> None:
        self.pci, self.cli = port.pci, cli

    def read(self) -> int | None:
        if self.pci is None or self.cli.which("setpci") is None:
            return None
        answer = self.cli.run(["setpci", "-s", self.pci, REGISTER], check=False)
        try:
            step = int(answer.stdout, 16) >> 12 & 7
        except ValueError:
            return None
        return 128 << step if step < len(SIZES) else None

    def write(self, value: int) -> None:
        if value not in SIZES:
            raise Failure(f"{self.pci}: {value} is no size of a PCIe read request; allowed are {sorted(SIZES)}")
        self.cli.run(["setpci", "-s", str(self.pci), f"{REGISTER}={SIZES[value] << 12:04x}:7000"])


__all__ = ("SIZES", "MaxReadRequest")
