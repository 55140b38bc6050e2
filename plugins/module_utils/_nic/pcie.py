# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Registers of PCIe functions, in their configuration space as sysfs shows it; no tool is needed on the host."""

from __future__ import annotations

import os
import struct
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import pci_config
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_bytes
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import KeyedKnob, Knob, Port, attribute

DEVICES = "/sys/bus/pci/devices"
LOCKDOWN = "/sys/kernel/security/lockdown"
# Device Control, eight bytes into the PCI Express capability; bits 14 to 12 are the size as a power of two from 128.
DEVICE_CONTROL, READ_REQUEST_MASK = 8, 0x7000
SIZES = {128 << step: step for step in range(6)}
# ACS Control, six bytes into its extended capability. Source validation, request and completion redirect and upstream
# forwarding are what sends peers' traffic up to the host bridge.
ACS_CONTROL, ACS_REDIRECT = 6, 0x1D


class ConfigSpace:
    """The configuration space of one function."""

    def __init__(self, bdf: str) -> None:
        self.bdf = bdf
        self.path = os.path.join(DEVICES, bdf, "config")

    def _data(self) -> bytes:
        return read_bytes(self.path) or b""

    def device_control(self) -> int | None:
        """Offset of Device Control; None where the kernel does not show it, as to a user other than root."""
        offset = pci_config.capability(self._data(), pci_config.CAP_EXPRESS) if os.path.exists(self.path) else None
        return None if offset is None else offset + DEVICE_CONTROL

    def acs_control(self) -> int | None:
        data = self._data()
        found = (offset for identity, offset in pci_config.extended(data) if identity == pci_config.ECAP_ACS)
        offset = next(found, None) if len(data) >= 0x104 else None
        return None if offset is None else offset + ACS_CONTROL

    def word(self, offset: int) -> int | None:
        data = self._data()
        return struct.unpack_from("<H", data, offset)[0] if offset + 2 <= len(data) else None

    def write(self, offset: int, value: int) -> None:
        try:
            with open(self.path, "r+b", buffering=0) as stream:
                stream.seek(offset)
                stream.write(struct.pack("<H", value))
        except OSError as exc:
            raise Failure(
                f"Cannot write {value:04x} at {offset:#x} of {self.path}: {exc.strerror}. A kernel in lockdown (secure "
                "boot) refuses it"
            ) from exc


def locked_down() -> bool:
    """Whether the kernel guards itself against root, as with secure boot; it shows its modes with one in brackets."""
    return any(f"[{mode}]" in (attribute(LOCKDOWN) or "") for mode in ("integrity", "confidentiality"))


class MaxReadRequest(Knob):
    """How much a function asks for in one read, in bytes. Firmware of servers often leaves it at 512."""

    name = "max_read_request_bytes"
    optional = True

    def __init__(self, port: Port) -> None:
        self.space = ConfigSpace(port.pci) if port.pci else None

    def _register(self) -> tuple[int, int] | None:
        offset = self.space.device_control() if self.space else None
        word = self.space.word(offset) if self.space and offset is not None else None
        return None if offset is None or word is None else (offset, word)

    def read(self) -> int | None:
        register = self._register()
        step = register[1] >> 12 & 7 if register else len(SIZES)
        return 128 << step if step < len(SIZES) else None

    def sealed(self) -> bool:
        return locked_down()

    def write(self, value: int) -> None:
        register = self._register()
        if value not in SIZES or self.space is None or register is None:
            where = self.space.bdf if self.space else "no function"
            raise Failure(f"{where}: {value} is no size of a PCIe read request; allowed are {sorted(SIZES)}")
        offset, word = register
        self.space.write(offset, word & ~READ_REQUEST_MASK | SIZES[value] << 12)


class AccessControl(KeyedKnob):
    """ACS of the bridges that are named: their control words, by address."""

    name = "acs_control"
    optional = True

    def __init__(self, bridges: t.Collection[str]) -> None:
        self.bridges = {bdf: ConfigSpace(bdf) for bdf in bridges}

    def read(self) -> dict[str, int] | None:
        found = {}
        for bdf, space in self.bridges.items():
            offset = space.acs_control()
            word = space.word(offset) if offset is not None else None
            if word is not None:
                found[bdf] = word
        return found or None

    def refusal(self, wanted: t.Any) -> str:
        return "the kernel is in lockdown, as with secure boot, and lets nobody write it" if locked_down() else ""

    def write(self, value: dict[str, int]) -> None:
        present = self.read() or {}
        for bdf, wanted in value.items():
            offset = self.bridges[bdf].acs_control()
            if offset is not None and present.get(bdf) != wanted:
                self.bridges[bdf].write(offset, wanted)

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        """Only bits that redirect count; bridges without ACS have nothing to redirect with."""
        return all(word & ACS_REDIRECT == wanted.get(bdf, 0) & ACS_REDIRECT for bdf, word in (present or {}).items())


__all__ = ("ACS_REDIRECT", "DEVICES", "SIZES", "AccessControl", "ConfigSpace", "MaxReadRequest")
