# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The tools that read and write a card's firmware settings: MFT's ``mlxconfig`` or mstflint's ``mstconfig``."""

from __future__ import annotations

import contextlib
import os
import tempfile
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig_arrays as arrays
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, CommandFailed, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import vpd
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_bytes, read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import mlxconfig, mlxfwreset

MELLANOX = "0x15b3"
#: Levels of mlxfwreset: the whole card through its PCI link, with the driver; along with a warm reboot of the host.
RESET_LEVEL, REBOOT_LEVEL = "3", "4"
_PAIRS = (("mlxconfig", "mlxfwreset"), ("mstconfig", "mstfwreset"))
#: A card answers in one to three seconds; a reset takes up to a minute.
_TIMEOUT_S, _RESET_TIMEOUT_S = 60.0, 300.0


class Way(t.NamedTuple):
    """How a card loads new settings: a class of disruption, and why it is not the mildest one."""

    need: str
    reason: str


class Tool:
    """Questions to the firmware of one host's cards, and orders."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        pair = next((pair for pair in _PAIRS if cli.which(pair[0])), None)
        if pair is None:
            raise Failure(
                "Neither mlxconfig (MFT, DOCA) nor mstconfig (package mstflint) is on this host; install one of them, "
                "or leave gpu_fabric_nic_firmware empty"
            )
        self.name, reset = pair
        self.reset_name = reset if cli.which(reset) else None

    def query(self, device: str, elements: t.Sequence[str] = ()) -> dict[str, dict[str, t.Any]]:
        """The card's parameters with ``default``, ``current`` and ``next``; JSON where the tool has it.

        With *elements* of arrays these alone, for among all parameters an array shows its bounds only.
        """
        words = arrays.rows(elements)
        answer = self._query_json(device, words)
        if answer is None:
            try:
                answer = self._checked([self.name, "-d", device, "-e", "q", *words]).stdout
            except CommandFailed as exc:
                raise Failure(
                    f"{device}: its firmware settings cannot be read: {exc}. See whether another tool works on the "
                    f"card, whether it is in recovery mode (flint -d {device} q) and, with Secure Boot, whether "
                    "mst start was run",
                    **exc.details,
                ) from exc
        parsed = mlxconfig.parse(answer)
        devices = parsed.value["devices"]
        parameters = devices[0]["parameters"] if len(devices) == 1 else {}
        if not any("next" in values for values in parameters.values()):
            told = "; ".join(problem.reason for problem in parsed.problems[:3]) or "it shows no parameter"
            raise Failure(f"{device}: the answer of {self.name} cannot be read: {told}", stdout=answer[:4000])
        if not any("current" in values for values in parameters.values()):
            raise Failure(
                f"{device}: its firmware does not tell which settings are in force, only those of the next boot; "
                "update the card's firmware, or leave gpu_fabric_nic_firmware empty",
                stdout=answer[:4000],
            )
        return dict(parameters)

    def _query_json(self, device: str, words: t.Sequence[str]) -> str | None:
        """The tool reads the file before it writes it, so that must hold JSON already."""
        handle, path = tempfile.mkstemp(prefix="gpu-fabric-", suffix=".json")
        try:
            with os.fdopen(handle, "w", encoding="ascii") as stream:
                stream.write("{}\n")
            argv = [self.name, "-d", device, "-e", "-j", path, "q", *words]
            result = self._cli.run(argv, check=False, timeout_s=_TIMEOUT_S)
            text = read_text(path) or ""
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        # An older tool does not know -j: it fails, or leaves the file as it is.
        return text if result.rc == 0 and "tlv_configuration" in text else None

    def rehearse(self, device: str, words: t.Mapping[str, str]) -> str | None:
        """Have the tool check a change without making it: its question is answered with no. The refusal, or None."""
        result = self._cli.run(
            [self.name, "-d", device, "set", *arrays.assignments(words)], check=False, stdin="n\n", timeout_s=_TIMEOUT_S
        )
        errors = mlxconfig.parse(result.stdout + result.stderr).value["errors"]
        refusals = [text for text in errors if "abort" not in text.lower()]
        if refusals:
            return "; ".join(refusals)
        asked = "Apply new Configuration" in result.stdout
        return None if asked else f"{result.command} did not ask: {(result.stdout + result.stderr).strip()[-300:]}"

    def set(self, device: str, words: t.Mapping[str, str]) -> None:
        """Write the settings of the next boot; *words* are values as the tool takes them."""
        self._checked([self.name, "-y", "-d", device, "set", *arrays.assignments(words)])

    def way(self, device: str) -> Way:
        """How this card loads new settings."""
        if self.reset_name is None:
            return Way("reboot", "the tool that resets cards is not on this host")
        result = self._cli.run([self.reset_name, "-d", device, "query"], check=False, timeout_s=_TIMEOUT_S)
        levels = mlxfwreset.parse(result.stdout).value["levels"]
        supported = {number for number, level in levels.items() if level["supported"]}
        if result.rc == 0 and RESET_LEVEL in supported:
            return Way("fwreset", "")
        if result.rc != 0 or RESET_LEVEL not in levels:
            said = _said(result) or "nothing of its levels"
            return Way("reboot", f"{self.reset_name} query says: {said}")
        if REBOOT_LEVEL in levels and REBOOT_LEVEL not in supported:
            return Way("powercycle", "the card supports neither a PCI reset nor one along with a warm reboot")
        return Way("reboot", f"the card supports no PCI reset ({self.reset_name} level {RESET_LEVEL})")

    def reset(self, device: str) -> None:
        """The level is given: a tool left to choose takes the mildest, which may load no settings."""
        argv = [str(self.reset_name), "-d", device, "-l", RESET_LEVEL, "-y", "reset"]
        try:
            self._checked(argv, _RESET_TIMEOUT_S)
        except Failure as exc:
            raise Failure(
                f"{device} was not reset: {exc}. Its new settings are written and in force after a reboot of the host",
                **exc.details,
            ) from exc

    def _checked(self, argv: list[str], timeout_s: float = _TIMEOUT_S) -> Result:
        """Fail on a status and on an error that the tool prints while it exits with 0."""
        result = self._cli.run(argv, check=False, timeout_s=timeout_s)
        if result.rc != 0 or _errors(result):
            raise CommandFailed(result, because=_said(result) or None)
        return result


def _errors(result: Result) -> list[str]:
    """From the first error on: what it is about follows on further lines, and how to use the tool behind them."""
    lines = [line.strip() for line in (result.stdout + "\n" + result.stderr).splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if line.startswith("-E-")), len(lines))
    return lines[first : first + 6]


def _said(result: Result) -> str:
    return "; ".join(_errors(result)) or result.stderr.strip() or result.stdout.strip()


class Pci:
    """What sysfs says about a card: its functions, its interfaces, whether it manages NVSwitches."""

    def __init__(self, root: str = "/") -> None:
        self._devices = os.path.join(root, "sys/bus/pci/devices")
        self._net = os.path.join(root, "sys/class/net")

    def _attribute(self, bdf: str, name: str) -> str:
        return (read_text(os.path.join(self._devices, bdf, name)) or "").strip()

    def obstacle(self, bdf: str) -> str | None:
        """Why this function is no card whose firmware may be set, or None."""
        if not os.path.isdir(os.path.join(self._devices, bdf)):
            return "there is no such PCI function on this host; addresses are written as lspci -D does, 0000:18:00.0"
        if self._attribute(bdf, "vendor") != MELLANOX:
            return f"it is no ConnectX or BlueField function (vendor {self._attribute(bdf, 'vendor')})"
        if os.path.exists(os.path.join(self._devices, bdf, "physfn")):
            return "it is a virtual function; its card belongs to another function or host"
        for function in self.functions(bdf):
            data = read_bytes_of(os.path.join(self._devices, function, "vpd"))
            if vpd.decode(data).get("sw_mng"):
                return f"{function} has SW_MNG in its VPD: it manages the NVSwitches and is not to be touched"
        return None

    def functions(self, bdf: str) -> list[str]:
        """The physical functions of the same card: one slot, one set of settings."""
        slot = bdf.rpartition(".")[0]
        names = os.listdir(self._devices) if os.path.isdir(self._devices) else []
        return sorted(
            name
            for name in names
            if name.rpartition(".")[0] == slot and not os.path.exists(os.path.join(self._devices, name, "physfn"))
        )

    def driven(self, functions: t.Collection[str]) -> set[str]:
        """Those of these functions that a driver runs: they show an interface or an RDMA device."""
        found = set()
        for function in functions:
            folder = os.path.join(self._devices, function)
            shown = any(os.path.isdir(os.path.join(folder, kind)) for kind in ("net", "infiniband"))
            if shown and os.path.exists(os.path.join(folder, "driver")):
                found.add(function)
        return found

    def netdevs(self, functions: t.Collection[str]) -> set[str]:
        """Interfaces of these functions and of their virtual functions."""
        found = set()
        for name in os.listdir(self._net) if os.path.isdir(self._net) else ():
            path = os.path.realpath(os.path.join(self._net, name, "device"))
            physical = os.path.join(path, "physfn")
            owner = os.path.realpath(physical) if os.path.exists(physical) else path
            # a subfunction's interface hangs below its function
            if set(owner.split(os.sep)) & set(functions):
                found.add(name)
        return found


def read_bytes_of(path: str) -> bytes:
    """A file of sysfs; nothing where the kernel does not let it be read, as the VPD of some cards."""
    try:
        return read_bytes(path) or b""
    except Failure:
        return b""


__all__ = ("Pci", "Tool", "Way")
