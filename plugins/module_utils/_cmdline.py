# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The kernel's command line: what the boot loader gives it at the next boot, and what this kernel was started with.

Two ways are known: a drop-in of GRUB's defaults that appends (Debian, Ubuntu), and ``grubby``, which writes the boot
entries (RHEL and its kin).
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import (
    Failure,
    StateFile,
    read_text,
    remove,
    write_atomic,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

DROP_IN = "/etc/default/grub.d/50-gpu-fabric.cfg"
GRUB_CONFIGS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
# A blank would make two arguments of one, and the others end or expand the shell string that GRUB reads.
_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
_ARGUMENT = re.compile(r"^[A-Za-z0-9_][^\s\"'`$\\;&|<>]*$")


def tokens(line: str) -> list[str]:
    """The arguments of a command line; double quotes hold blanks together, as the kernel has it."""
    return _TOKEN.findall(line)


def lacking(wanted: t.Sequence[str], line: t.Collection[str]) -> list[str]:
    return [token for token in wanted if token not in line]


def render(arguments: t.Sequence[str]) -> str | None:
    if not arguments:
        return None
    return (
        "# Managed by railyard.gpu_fabric: changes made here are overwritten.\n"
        f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(arguments)}"\n'
    )


def added(text: str | None) -> set[str] | None:
    """What a drop-in of ours adds; None where there is none."""
    if text is None:
        return None
    line = next((line for line in text.splitlines() if line.startswith("GRUB_CMDLINE_LINUX=")), "")
    return set(tokens(line.partition("=")[2].strip('"'))) - {"$GRUB_CMDLINE_LINUX"}


def grub_entries(text: str) -> list[list[str]]:
    """The arguments of every kernel in a generated configuration, those for recovery left out."""
    lines = (line.split() for line in text.splitlines())
    found = [words[2:] for words in lines if words and words[0] in ("linux", "linux16", "linuxefi")]
    return [words for words in found if not {"single", "recovery", "rescue"} & set(words)]


def grubby_entries(text: str) -> list[list[str]]:
    """The arguments of every boot entry in what ``grubby --info=ALL`` prints."""
    found = []
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if key == "args" and equals:
            found.append(tokens(value.strip().strip('"')))
    return found


class Loader:
    """One way to give the next kernel its arguments."""

    def __init__(self, cli: Cli, root: str) -> None:
        self._cli, self._root = cli, root

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def entries(self) -> list[list[str]]:
        """The arguments of each kernel that can be booted."""
        raise NotImplementedError

    def differs(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> bool:
        raise NotImplementedError

    def write(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> None:
        raise NotImplementedError


class Grub(Loader):
    """A drop-in that appends to what the other files of GRUB's defaults say."""

    @staticmethod
    def generator(cli: Cli) -> list[str] | None:
        if cli.which("update-grub"):
            return ["update-grub"]
        tool = next((name for name in ("grub-mkconfig", "grub2-mkconfig") if cli.which(name)), None)
        return [tool, "-o", GRUB_CONFIGS[tool == "grub2-mkconfig"]] if tool else None

    def entries(self) -> list[list[str]]:
        return [entry for path in GRUB_CONFIGS for entry in grub_entries(read_text(self._path(path)) or "")]

    def differs(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> bool:
        # in any order: the file is not written anew, and the loader's configuration not generated, for nothing
        if added(read_text(self._path(DROP_IN))) != (set(wanted) or None):
            return True
        return any(lacking(wanted, entry) for entry in self.entries())

    def write(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> None:
        text = render(wanted)
        if text is None:
            remove(self._path(DROP_IN))
        else:
            write_atomic(self._path(DROP_IN), text)
        self._cli.run(self.generator(self._cli) or [], timeout_s=300)


class Grubby(Loader):
    """Boot entries of their own (BLS); the tool keeps what new kernels get in step."""

    def entries(self) -> list[list[str]]:
        return grubby_entries(self._cli.run(["grubby", "--info=ALL"]).stdout)

    def differs(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> bool:
        gone = [token for token in ours if token not in wanted]
        return any(lacking(wanted, entry) or set(gone) & set(entry) for entry in self.entries())

    def write(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> None:
        gone = [token for token in ours if token not in wanted]
        command = ["grubby", "--update-kernel=ALL"]
        if wanted:
            command.append(f"--args={' '.join(wanted)}")
        if gone:
            command.append(f"--remove-args={' '.join(gone)}")
        if len(command) > 2:
            self._cli.run(command)


def choose(cli: Cli, root: str) -> Loader | None:
    if cli.which("grubby"):
        return Grubby(cli, root)
    if Grub.generator(cli) and os.path.exists(os.path.join(root, "etc/default/grub")):
        return Grub(cli, root)
    return None


class CommandLine:
    """The wanted arguments against the boot loader's and against those of the running kernel."""

    def __init__(self, arguments: t.Sequence[str], cli: Cli, state: StateFile, root: str = "/") -> None:
        bad = [token for token in arguments if not _ARGUMENT.match(token)]
        if bad:
            raise Failure(f"{bad[0]!r} is no argument of a kernel, such as iommu=pt")
        self.wanted = list(dict.fromkeys(arguments))
        self._state = state
        self._ours: list[str] = list(state.load().get("arguments", []))
        self._loader = choose(cli, root)
        if self._loader is None and (self.wanted or self._ours):
            raise Failure(
                "No boot loader is known on this host: neither grubby nor update-grub with /etc/default/grub. Add "
                f"{' '.join(self.wanted) or 'nothing'} to the kernel's command line by hand, or empty "
                "gpu_fabric_kernel_cmdline and set gpu_fabric_iommu: untouched"
            )
        self.booted = tokens(read_text(os.path.join(root, "proc/cmdline")) or "")
        self.changes = ChangeSet()
        entries = self._loader.entries() if self._loader else []
        #: What others had put there before; it stays when ours goes.
        self._foreign = [
            token
            for token in self.wanted
            if token not in self._ours and entries and all(token in entry for entry in entries)
        ]
        if self._loader and self._loader.differs(self._to_write, self._ours):
            before = [token for token in self._ours if all(token in entry for entry in entries)]
            self.changes.compare("kernel command line at the next boot", before, self.wanted)
            if not len(self.changes):
                self.changes.compare("boot entries", "some without the arguments", self.wanted)

    @property
    def _to_write(self) -> list[str]:
        return [token for token in self.wanted if token not in self._foreign]

    @property
    def missing(self) -> list[str]:
        """What this kernel was not started with."""
        return lacking(self.wanted, self.booted)

    @property
    def stale(self) -> list[str]:
        """What it was started with, and is not wanted any more."""
        return [token for token in self._ours if token not in self.wanted and token in self.booted]

    def apply(self) -> None:
        assert self._loader is not None
        self._loader.write(self._to_write, self._ours)
        self._state.save({"arguments": self._to_write} if self._to_write else {})
        for entry in self._loader.entries():
            absent = lacking(self.wanted, entry)
            if absent:
                raise Failure(
                    f"The boot loader's entries lack {' '.join(absent)} after they were written: a kernel starts with "
                    f"{' '.join(entry)}. Look at later files of /etc/default/grub.d that replace GRUB_CMDLINE_LINUX"
                )


__all__ = ("DROP_IN", "CommandLine", "Grub", "Grubby", "grub_entries", "grubby_entries", "lacking", "render", "tokens")
