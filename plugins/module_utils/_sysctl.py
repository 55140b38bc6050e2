# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Kernel parameters: one sysctl.d file, the values in force, and the files that win over ours at boot."""

from __future__ import annotations

import errno
import os
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet, Step, ours
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile, conf_files, read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

# systemd-sysctl's order of precedence: a file masks those of the same name further down.
DIRECTORIES = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@*-]*")


class Override(t.NamedTuple):
    """A file that gives a key another value at boot than ours does."""

    key: str
    value: str
    wanted: str
    path: str


class Unavailable(t.NamedTuple):
    """A key that cannot be set here: this kernel or this namespace has no such interface."""

    key: str
    reason: str


def segments(key: str) -> tuple[str, ...]:
    """The path of a key below /proc/sys, by sysctl.d(5): the first separator used is the separator."""
    first = re.search(r"[./]", key)
    if first is not None and first.group() == ".":
        return tuple(part.replace("/", ".") for part in key.split("."))
    # A slash may stand before the first part, and several between two.
    return tuple(part for part in key.split("/") if part)


def canonical(key: str) -> str:
    """One spelling for each key: dots, or slashes where a part of it (a VLAN's name) has a dot."""
    parts = segments(key)
    return "/".join(parts) if any("." in part for part in parts) else ".".join(parts)


def squeeze(value: t.Any) -> str:
    """A value as the kernel and a person's file agree on it: one blank between its words."""
    return " ".join(str(value).split())


def parse(text: str) -> list[tuple[str, str]]:
    """The assignments of a sysctl.d file in order, keys canonical. Exclusions (``-key``) and junk give none."""
    found = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;" or "=" not in stripped:
            continue
        key, value = stripped.split("=", 1)
        # The leading dash says that a failure does not matter.
        found.append((canonical((key[1:] if key.startswith("-") else key).strip()), squeeze(value)))
    return found


def render(settings: t.Mapping[str, str], unavailable: t.Container[str] = ()) -> str:
    """Our file. A key that is not there now may not spoil the others at boot: it gets a dash."""
    lines = ["# Managed by railyard.gpu_fabric: changes made here are overwritten.\n"]
    lines += [f"{'-' if key in unavailable else ''}{key} = {value}\n" for key, value in settings.items()]
    return "".join(lines)


def boot_order(root: str = "/") -> list[str]:
    """The files that systemd-sysctl reads, in the order in which it applies them."""
    return conf_files(DIRECTORIES, root)


def overrides(own: str, settings: t.Mapping[str, str], root: str = "/") -> list[Override]:
    """The keys of ours to which another file gives another value at boot. The last file that names a key wins."""
    name = os.path.basename(own)
    winners: dict[str, tuple[str, str]] = {}
    for path in boot_order(root):
        # Files that sort before ours lose to it; ours itself is the measure.
        if os.path.basename(path) <= name:
            continue
        text = read_text(os.path.join(root, path.lstrip("/"))) or ""
        for key, value in parse(text):
            winners[key] = (value, path)
    return [
        Override(key, winners[key][0], value, winners[key][1])
        for key, value in settings.items()
        if key in winners and winners[key][0] != value
    ]


class Kernel:
    """The values in force, below /proc/sys."""

    def __init__(self, root: str = "/proc/sys") -> None:
        self._root = root

    def _path(self, key: str) -> str:
        return os.path.join(self._root, *segments(key))

    def read(self, key: str) -> str | None:
        try:
            with open(self._path(key), encoding="utf-8", errors="replace") as stream:
                return squeeze(stream.read())
        except OSError:
            return None

    def obstacle(self, key: str) -> str | None:
        """Why a key cannot be set here, ``None`` where it can."""
        path = self._path(key)
        if not os.path.exists(path):
            return f"{path} does not exist in this kernel or network namespace"
        if os.path.isdir(path):
            return f"{path} is a directory"
        if not os.access(path, os.W_OK):
            return f"{path} is read-only here, as in a container"
        return None

    def write(self, key: str, value: str) -> str | None:
        """Set a key and read it back. Returns why the kernel does not let it be set here."""
        path = self._path(key)
        try:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(value + "\n")
        except OSError as exc:
            if exc.errno in (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT):
                return f"{path} cannot be written here: {exc.strerror}"
            raise Failure(
                f"The kernel refuses {key} = {value!r}: {exc.strerror}; the value in force is {self.read(key)!r}. "
                "Correct the value, or remove the key by setting it to null in gpu_fabric_sysctl."
            ) from exc
        taken = self.read(key)
        if taken != value:
            raise Failure(
                f"The kernel kept {key} = {taken!r} when {value!r} was written. "
                "Ask for a value that it takes in gpu_fabric_sysctl."
            )
        return None


class SysctlSet:
    """The wanted settings against the file and the kernel."""

    def __init__(
        self,
        path: str,
        settings: t.Mapping[str, t.Any],
        kernel: Kernel,
        state: StateFile,
        originals: StateFile,
        root: str = "/",
    ) -> None:
        own = os.path.join(root, DIRECTORIES[0].lstrip("/"))
        if os.path.dirname(path) != own or not path.endswith(".conf"):
            raise Failure(f"{path} is not read at boot: give the file a name in {own} that ends in .conf")
        self._path = path
        self._root = root
        self._kernel = kernel
        self._state = state
        self._originals = originals
        self._settings = _checked(settings)
        self._saved: dict[str, dict[str, str]] = state.load()
        self._original = dict(self._saved.get(path, {}))
        self.unavailable: list[Unavailable] = []
        self._set: dict[str, str] = {}
        self._restore: dict[str, str] = {}
        for key, value in self._settings.items():
            reason = kernel.obstacle(key)
            if reason is not None and kernel.read(key) != value:
                self.unavailable.append(Unavailable(key, reason))
        files, _steps = self._file()
        self.changes: ChangeSet = files.changes
        self._plan()

    def _file(self) -> tuple[FileSet, list[Step]]:
        text = render(self._settings, {item.key for item in self.unavailable}) if self._settings else None
        files = FileSet([ours(self._path, text)], Cli(), self._originals, check_mode=False)
        return files, files.plan()

    def _plan(self) -> None:
        missing = {item.key for item in self.unavailable}
        for key, value in self._settings.items():
            if key not in missing and self._compare(key, value):
                self._set[key] = value
        for key, value in self._original.items():
            if key not in self._settings and self._kernel.obstacle(key) is None and self._compare(key, value):
                self._restore[key] = value

    def _compare(self, key: str, value: str) -> bool:
        return self.changes.compare(f"{key} (in force)", self._kernel.read(key), value)

    @property
    def changed_keys(self) -> list[str]:
        """Keys whose value in force changes."""
        return [*self._set, *self._restore]

    @property
    def reverted(self) -> dict[str, str]:
        """Keys dropped from the set, with the value from before the first change."""
        return dict(self._restore)

    def overrides(self) -> list[Override]:
        return overrides(self._path, self._settings, self._root)

    def apply(self) -> None:
        earlier = dict(self._original)
        # What was in force is on disk before anything changes.
        for key in self._set:
            present = self._kernel.read(key)
            if present is not None:
                self._original.setdefault(key, present)
        self._save()
        before: dict[str, str | None] = {}
        try:
            for key, value in {**self._restore, **self._set}.items():
                before[key] = self._kernel.read(key)
                reason = self._kernel.write(key, value)
                if reason is not None:
                    self.unavailable.append(Unavailable(key, reason))
            files, steps = self._file()
            files.apply(steps)
        except Failure as exc:
            raise Failure(f"{str(exc).rstrip('.')}. {self._take_back(before, earlier)}") from exc
        self._original = {key: value for key, value in self._original.items() if key in self._settings}
        self._save()

    def _take_back(self, before: t.Mapping[str, str | None], earlier: t.Mapping[str, str]) -> str:
        """One value that the kernel refuses leaves all others as they were."""
        left = []
        for key, value in reversed(list(before.items())):
            try:
                stays = value is not None and self._kernel.read(key) != value and self._kernel.write(key, value)
            except Failure:
                stays = "refused"
            if stays:
                left.append(key)
        self._original = {key: value for key, value in self._original.items() if key in earlier or key in left}
        self._save()
        if left:
            return f"Not set back either: {', '.join(left)}"
        return "Every parameter has the value that it had before this call, and the file is as it was"

    def _save(self) -> None:
        rest = {path: keys for path, keys in self._saved.items() if path != self._path}
        self._saved = {**rest, self._path: self._original} if self._original else rest
        self._state.save(self._saved)


def fault(key: t.Any, value: t.Any) -> str | None:
    """Why a setting cannot be meant, whatever the kernel; ``None`` where it can."""
    if not isinstance(key, str) or not _KEY.fullmatch(key) or ".." in key or "*" in key or not re.search(r"[./]", key):
        return f"{key!r} is no kernel parameter's name, such as net.core.rmem_max"
    line = str(value).strip().replace("\t", " ") if isinstance(value, (str, int, float)) else ""
    if not line or not line.isprintable():
        return f"{key}: {value!r} is not a kernel parameter's value: one line of text or a number"
    return None


def spelling(value: t.Any) -> str:
    """A value as it is written to the kernel."""
    return squeeze(int(value) if isinstance(value, bool) else value)


def _checked(settings: t.Mapping[str, t.Any]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for key, value in settings.items():
        reason = fault(key, value)
        if reason is not None:
            raise Failure(reason)
        name, text = canonical(key), spelling(value)
        if checked.get(name, text) != text:
            raise Failure(f"{name} is given twice, with {checked[name]!r} and {text!r}")
        checked[name] = text
    return checked


__all__ = (
    "DIRECTORIES",
    "Kernel",
    "Override",
    "SysctlSet",
    "Unavailable",
    "boot_order",
    "canonical",
    "fault",
    "overrides",
    "parse",
    "render",
    "segments",
    "spelling",
    "squeeze",
)
