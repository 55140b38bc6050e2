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
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import ours as system_file
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import MARK, Failure, StateFile, read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

DROP_IN = "/etc/default/grub.d/50-gpu-fabric.cfg"
GRUB_CONFIGS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
# A blank would make two arguments of one, and the others end or expand the shell string that GRUB reads.
_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*(?:"|$))+')
# What the kernel takes as often as it is given; of others, the last one counts.
_REPEATED = ("console", "earlycon", "hugepages", "hugepagesz", "memmap", "pci")
_ARGUMENT = re.compile(r"[A-Za-z0-9_][^\s\"'`$\\;&|<>]*")


def tokens(line: str) -> list[str]:
    """The arguments of a command line; double quotes hold blanks together, as the kernel has it."""
    return _TOKEN.findall(line)


def is_argument(token: str) -> bool:
    """Whether it can stand in the boot loader's configuration as it is."""
    return _ARGUMENT.fullmatch(token) is not None and token.isprintable()


def lacking(wanted: t.Sequence[str], line: t.Collection[str]) -> list[str]:
    return [token for token in wanted if token not in line]


def key(token: str) -> str:
    return token.partition("=")[0]


def overruled(wanted: t.Sequence[str], line: t.Sequence[str]) -> list[str]:
    """The wanted arguments that a later one of another value takes the effect of."""
    keys = [key(token) for token in wanted]
    found = []
    for token in wanted:
        if token not in line or key(token) in _REPEATED or keys.count(key(token)) > 1:
            continue
        later = [other for other in line[line.index(token) :] if key(other) == key(token)]
        if later[-1] != token:
            found.append(f"{later[-1]} stands after {token}")
    return found


def render(arguments: t.Sequence[str]) -> str:
    return (
        f"# {MARK}: changes made here are overwritten.\n"
        f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(arguments)}"\n'
    )


def added(text: str | None) -> list[str]:
    """What a drop-in adds, if it is ours."""
    if text is None or MARK not in text:
        return []
    line = next((line for line in text.splitlines() if line.startswith("GRUB_CMDLINE_LINUX=")), "")
    return [token for token in tokens(line.partition("=")[2].strip('"')) if token != "$GRUB_CMDLINE_LINUX"]


def grub_entries(text: str) -> list[list[str]]:
    """The arguments of every kernel of this system in a generated configuration, those for recovery left out.

    Memory tests, other systems on the disk and entries made by hand come from other scripts than those for Linux.
    """
    found, linux = [], True
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["###", "BEGIN"] and len(words) > 2:
            linux = "linux" in os.path.basename(words[2])
        elif words and words[0] in ("linux", "linux16", "linuxefi") and linux:
            found.append(words[2:])
    return [words for words in found if not {"single", "recovery", "rescue"} & set(words)]


def grubby_entries(text: str) -> list[list[str]]:
    """The arguments of every boot entry in what ``grubby --info=ALL`` prints."""
    found = []
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if name == "args" and equals:
            found.append(tokens(value.strip().strip('"')))
    return found


class Loader:
    """One way to give the next kernel its arguments."""

    #: How one sees that it started the running kernel; "": it does not show.
    trace = ""

    def __init__(self, cli: Cli, root: str, originals: StateFile) -> None:
        self._cli, self._root, self._originals = cli, root, originals

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def entries(self) -> list[list[str]]:
        """The arguments of each kernel that can be booted."""
        raise NotImplementedError

    def ours(self, recorded: t.Sequence[str]) -> list[str]:
        """What was added here, should the record of it be lost."""
        return list(recorded)

    def differs(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> bool:
        raise NotImplementedError

    def replaced(self, entries: t.Iterable[t.Sequence[str]], wanted: t.Sequence[str]) -> list[str]:
        """What of ``entries`` has its place taken by ``wanted``."""
        return []

    def write(self, wanted: t.Sequence[str], ours: t.Sequence[str], back: t.Sequence[str]) -> None:
        """Add ``wanted``, take away the rest of ``ours``, and give ``back`` what others had."""
        raise NotImplementedError


class Grub(Loader):
    """A drop-in that appends to what the other files of GRUB's defaults say."""

    trace = "BOOT_IMAGE="

    @staticmethod
    def generator(cli: Cli) -> list[str] | None:
        if cli.which("update-grub"):
            return ["update-grub"]
        tool = next((name for name in ("grub-mkconfig", "grub2-mkconfig") if cli.which(name)), None)
        return [tool, "-o", GRUB_CONFIGS[tool == "grub2-mkconfig"]] if tool else None

    def entries(self) -> list[list[str]]:
        return [entry for path in GRUB_CONFIGS for entry in grub_entries(read_text(self._path(path)) or "")]

    def ours(self, recorded: t.Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*recorded, *added(read_text(self._path(DROP_IN)))]))

    def differs(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> bool:
        # in any order: the file is not written anew, and the loader's configuration not generated, for nothing
        if set(added(read_text(self._path(DROP_IN)))) != set(wanted):
            return True
        return any(lacking(wanted, entry) for entry in self.entries())

    def write(self, wanted: t.Sequence[str], ours: t.Sequence[str], back: t.Sequence[str]) -> None:
        item = system_file(self._path(DROP_IN), render(wanted) if wanted else None)
        files = FileSet([item], self._cli, self._originals, check_mode=False)
        files.apply(files.plan())
        self._cli.run(self.generator(self._cli) or [], timeout_s=300)


class Grubby(Loader):
    """Boot entries of their own (BLS); the tool keeps what new kernels get in step.

    Of arguments that are one up to their ``=``, it leaves only the one that it was last told.
    """

    def entries(self) -> list[list[str]]:
        return grubby_entries(self._cli.run(["grubby", "--info=ALL"]).stdout)

    def differs(self, wanted: t.Sequence[str], ours: t.Sequence[str]) -> bool:
        gone = [token for token in ours if token not in wanted]
        return any(lacking(wanted, entry) or set(gone) & set(entry) for entry in self.entries())

    def replaced(self, entries: t.Iterable[t.Sequence[str]], wanted: t.Sequence[str]) -> list[str]:
        keys = {key(token) for token in wanted}
        return [token for entry in entries for token in entry if key(token) in keys and token not in wanted]

    def write(self, wanted: t.Sequence[str], ours: t.Sequence[str], back: t.Sequence[str]) -> None:
        gone = [token for token in ours if token not in wanted]
        command = ["grubby", "--update-kernel=ALL"]
        if gone:
            command.append(f"--remove-args={' '.join(gone)}")
        if wanted or back:
            command.append(f"--args={' '.join([*back, *wanted])}")
        if len(command) > 2:
            self._cli.run(command)


def choose(cli: Cli, root: str, originals: StateFile) -> Loader | None:
    if cli.which("grubby"):
        return Grubby(cli, root, originals)
    if Grub.generator(cli) and os.path.exists(os.path.join(root, "etc/default/grub")):
        return Grub(cli, root, originals)
    return None


class CommandLine:
    """The wanted arguments against the boot loader's and against those of the running kernel."""

    def __init__(
        self, arguments: t.Sequence[str], cli: Cli, state: StateFile, originals: StateFile, root: str = "/"
    ) -> None:
        bad = [token for token in arguments if not is_argument(token)]
        if bad:
            raise Failure(f"{bad[0]!r} is no argument of a kernel; wanted is one such as iommu=pt, without blanks")
        self.wanted = list(dict.fromkeys(arguments))
        self._state = state
        self._record = state.load()
        #: What was taken away earlier, and the kernel that ran then still had.
        self._leaving = list(self._record.get("leaving", []))
        self._loader = choose(cli, root, originals)
        recorded = list(self._record.get("arguments", []))
        if self._loader is None and (self.wanted or recorded):
            todo = f"Add {' '.join(self.wanted)} to the kernel's command line by hand, or empty " + (
                "gpu_fabric_kernel_cmdline and set gpu_fabric_iommu: untouched"
            )
            undo = f"Take {' '.join(recorded)} out of the kernel's command line by hand, then remove {state.path}"
            raise Failure(
                "No boot loader is known on this host: neither grubby nor update-grub with /etc/default/grub. "
                + (todo if self.wanted else undo)
            )
        self._ours = self._loader.ours(recorded) if self._loader else recorded
        self.booted = tokens(read_text(os.path.join(root, "proc/cmdline")) or "")
        self.changes = ChangeSet()
        self._entries = self._loader.entries() if self._loader else []
        #: What others had put there before; it stays when ours goes.
        self._foreign = [
            token
            for token in self.wanted
            if token not in self._ours and self._entries and all(token in entry for entry in self._entries)
        ]
        unknown = bool(self.wanted) and not self._entries
        if self._loader and (unknown or self._loader.differs(self._to_write, self._ours)):
            before = [token for token in self._ours if all(token in entry for entry in self._entries)]
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
        """What of ours it was started with, and the next one will not be."""
        ours = dict.fromkeys([*self._leaving, *self._ours])
        return [
            token
            for token in ours
            if token in self.booted and token not in self.wanted and not self._comes_again(token)
        ]

    def _comes_again(self, token: str) -> bool:
        """Whether others give the argument to every kernel."""
        times = min((entry.count(token) for entry in self._entries), default=0)
        return times > (token in self._ours)

    @property
    def doubts(self) -> list[str]:
        """Why the arguments may be without effect though they are written, one sentence each."""
        lines = [*self._entries, self.booted]
        beaten = dict.fromkeys(text for line in lines for text in overruled(self.wanted, line))
        found = [f"{text} on the kernel's command line, and the kernel goes by the last: remove it" for text in beaten]
        trace = self._loader.trace if self._loader else ""
        if trace and not any(token.startswith(trace) for token in self.booted):
            found += [
                f"The running kernel was not started by GRUB (its command line has no {trace}): where this host boots "
                f"by other means, {' '.join(arguments)} must be {done} there"
                for arguments, done in ((self.missing, "given"), (self.stale, "taken away"))
                if arguments
            ]
        return found

    def apply(self) -> None:
        assert self._loader is not None
        wanted, ours = self._to_write, self._ours
        keys = {key(token) for token in wanted}
        theirs = [token for token in self._loader.replaced(self._entries, wanted) if token not in ours]
        replaced = list(dict.fromkeys([*self._record.get("replaced", []), *theirs]))
        kept = [token for token in replaced if key(token) in keys]
        # Before anything changes: what a run that dies has written is known as ours.
        self._save(list(dict.fromkeys([*ours, *wanted])), replaced, self.stale)
        try:
            self._loader.write(wanted, ours, [token for token in replaced if token not in kept])
            self._verify()
        except Failure as exc:
            raise Failure(f"{str(exc).rstrip('.')}. {self._undo(replaced)}", **exc.details) from exc
        self._leaving, self._ours = self.stale, wanted
        self._save(wanted, kept, self.stale)

    def settle(self) -> None:
        """Forget what was taken away once a kernel runs that was started without it."""
        self._save(self._record.get("arguments", []), self._record.get("replaced", []), self.stale)

    def _save(self, arguments: t.Sequence[str], replaced: t.Sequence[str], leaving: t.Sequence[str]) -> None:
        parts = {"arguments": arguments, "replaced": replaced, "leaving": leaving}
        self._state.save({name: list(part) for name, part in parts.items() if part})

    def _verify(self) -> None:
        assert self._loader is not None
        self._entries = self._loader.entries()
        if self.wanted and not self._entries:
            raise Failure("The boot loader has no entry that starts a kernel of this system")
        for entry in self._entries:
            absent = lacking(self.wanted, entry)
            if absent:
                raise Failure(
                    f"The boot loader's entries lack {' '.join(absent)} after they were written: a kernel starts with "
                    f"{' '.join(entry)}. Look at later files of /etc/default/grub.d that replace GRUB_CMDLINE_LINUX, "
                    "and whether this system's GRUB reads that directory"
                )

    def _undo(self, replaced: t.Sequence[str]) -> str:
        assert self._loader is not None
        known = list(self._record.get("replaced", []))
        try:
            self._loader.write(self._ours, self._to_write, [token for token in replaced if token not in known])
        except Failure as exc:
            return f"Nor could it be taken back: {exc}"
        self._state.save(self._record)
        return "What was written is taken back"


__all__ = (
    "DROP_IN",
    "CommandLine",
    "Grub",
    "Grubby",
    "grub_entries",
    "grubby_entries",
    "is_argument",
    "lacking",
    "overruled",
    "render",
    "tokens",
)
