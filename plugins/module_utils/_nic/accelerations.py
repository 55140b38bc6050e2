# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How the NIC itself recovers lost RoCE packets: the register ROCE_ACCL, through MFT's ``mlxreg``."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import KeyedKnob, Port, attribute
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.pcie import DEVICES
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import mlxreg

REGISTER = "ROCE_ACCL"
NVIDIA = "0x15b3"


class Accelerations(KeyedKnob):
    """The wanted accelerations only; the others keep what the firmware gave them."""

    name = "accelerations"
    optional = True

    def __init__(self, port: Port, cli: Cli, wanted: t.Collection[str]) -> None:
        self.pci, self.cli, self.wanted = port.pci, cli, wanted
        # The tools open whatever they are given; no other vendor's card is to be asked for its registers.
        vendor = (attribute(f"{DEVICES}/{port.pci}/vendor") or NVIDIA).strip()
        tools = ("mlxreg", "mstreg") if vendor == NVIDIA else ()
        self.tool = next((name for name in tools if cli.which(name)), None)

    def _fields(self) -> dict[str, int]:
        if self.tool is None or self.pci is None:
            return {}
        result = self.cli.run([self.tool, "-d", self.pci, "-y", "--reg_name", REGISTER, "--get"], check=False)
        return dict(mlxreg.parse(result.stdout).value["fields"]) if result.rc == 0 else {}

    def read(self) -> dict[str, bool] | None:
        fields = self._fields()
        names = {name: f"roce_{name}_en" for name in self.wanted}
        if not all(field in fields for field in names.values()):
            return None
        return {name: bool(fields[field]) for name, field in names.items()}

    def write(self, value: dict[str, bool]) -> None:
        fields = self._fields()
        words = [f"roce_{name}_en={int(on)}" for name, on in value.items()]
        # Later firmware takes a field only where its select bit is set along with it.
        selects = [f"roce_{name}_field_select" for name in value]
        words += [f"{select}=1" for select in selects if select in fields]
        argv = [str(self.tool), "-d", str(self.pci), "-y", "--reg_name", REGISTER, "--set", ",".join(words)]
        result = self.cli.run(argv, check=False)
        if result.rc != 0 or "-E-" in result.stdout:
            said = result.stderr.strip() or result.stdout.strip() or "no message"
            raise Failure(f"{self.pci}: {result.command} exited with {result.rc}: {said}")


__all__ = ("Accelerations",)
