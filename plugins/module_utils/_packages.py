# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""A set of packages: what is wanted, what a transaction would do, what it may not do. Pure; of no package manager."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure

# A transaction that was not asked for one may not bring another kernel: the next boot would be without drivers.
PROTECTED = (
    "linux-image-*",
    "linux-modules-*",
    "linux-image",
    "kernel",
    "kernel-core",
    "kernel-modules*",
    "proxmox-kernel-*",
)


class Repository(t.NamedTuple):
    """Where packages come from, and the key that they are signed with."""

    name: str
    url: str
    suite: str = "/"
    components: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    key: str | None = None
    key_url: str | None = None
    key_file: str | None = None
    key_fingerprints: tuple[str, ...] = ()


class Pin(t.NamedTuple):
    """Packages, as globs, that stay at a version, a glob too."""

    packages: tuple[str, ...]
    version: str
    priority: int = 1001

    def covers(self, name: str, version: str) -> bool:
        return fnmatch.fnmatchcase(version, self.version) and self.names(name)

    def names(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.packages)


class Move(t.NamedTuple):
    """One package of a transaction. ``before`` of ``None``: it is new; ``after`` of ``None``: it goes."""

    name: str
    before: str | None
    after: str | None


class Request(t.NamedTuple):
    """What is wanted of this host's packages, under one name."""

    name: str
    packages: dict[str, str]
    repository: Repository | None = None
    remove: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    hold: bool = False
    protected: tuple[str, ...] = PROTECTED
    recommends: bool = False

    def asks_for(self, move: Move) -> bool:
        """Whether a change was asked for: of a package that is named, or of a family coming to its pinned version."""
        if move.name in self.packages or self.removes(move.name):
            return True
        return move.after is not None and any(pin.covers(move.name, move.after) for pin in self.pins)

    def removes(self, name: str) -> bool:
        return name not in self.packages and any(fnmatch.fnmatchcase(name, pattern) for pattern in self.remove)


class Installed(t.NamedTuple):
    version: str
    held: bool
    # Only what its configuration left: removed, not purged.
    leftover: bool = False


def satisfies(version: str, pin: str) -> bool:
    """Whether a version is the wanted one: exactly, as a glob, or the same upstream version at any revision."""
    if not pin or version == pin:
        return True
    if any(mark in pin for mark in "*?["):
        return fnmatch.fnmatchcase(version, pin)
    return upstream(version) == pin or version.partition(":")[2] == pin


def upstream(version: str) -> str:
    """``1:580.95.05-0ubuntu1`` → ``580.95.05``."""
    without_epoch = re.sub(r"^\d+:", "", version)
    return without_epoch.rpartition("-")[0] or without_epoch


def covered(request: Request, installed: t.Mapping[str, Installed]) -> list[str]:
    """The installed packages that the request speaks of: those it names and those its pins cover."""
    return [
        name
        for name, present in sorted(installed.items())
        if not present.leftover
        and (name in request.packages or any(pin.covers(name, present.version) for pin in request.pins))
        and not request.removes(name)
    ]


def refusals(
    request: Request,
    moves: t.Sequence[Move],
    installed: t.Mapping[str, Installed],
    ours: t.Container[str],
    leaving: t.Container[str],
    is_older: t.Callable[[str, str], bool],
) -> list[str]:
    """Why a transaction may not be made: what it would do beyond what was asked. One sentence each.

    ``ours`` are the packages that this request has held so far, ``leaving`` those that are taken back.
    """
    found = []
    for move in moves:
        present = installed.get(move.name)
        change = f"{move.name} {move.before or 'absent'} → {move.after or 'removed'}"
        if present is not None and present.held and move.name not in ours:
            found.append(
                f"{change}: it is held, and not by this collection. "
                f"Release it with: apt-mark unhold {move.name}; or ask for the version that is held"
            )
        elif request.asks_for(move) or (move.after is None and move.name in leaving):
            continue
        elif present is not None and present.held:
            found.append(f"{change}: it is held for another part of the stack, which has to change its version itself")
        elif any(fnmatch.fnmatchcase(move.name, pattern) for pattern in request.protected):
            found.append(f"{change}: the request is about {_listed(request)}, and may not change the kernel")
        elif move.after is None:
            found.append(f"{change}: nothing asks for its removal. Name it under remove if it is to go")
        elif move.before is not None and is_older(move.after, move.before):
            found.append(f"{change}: a downgrade that nothing asks for")
    return found


def _listed(request: Request) -> str:
    names = list(request.packages) or list(request.remove)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def checked(request: Request) -> Request:
    """Refuse what cannot be meant, before anything is looked at."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", request.name):
        raise Failure(f"name: {request.name!r} must be lower-case letters, digits and dashes: it names files")
    for name in request.packages:
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]*", name):
            raise Failure(f"packages: {name!r} is no package's name")
    for pattern in request.remove:
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.*?-]{2,}", pattern):
            raise Failure(f"remove: {pattern!r} is no package's name or glob, or would match too much")
    repository = request.repository
    if repository is None:
        return request
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", repository.name):
        raise Failure(
            f"repository.name: {repository.name!r} must be lower-case letters, digits and dashes: it names files"
        )
    if not re.fullmatch(r"(https?|file)://?[^\s]+|file:/[^\s]+", repository.url):
        raise Failure(
            f"repository.url: {repository.url!r} must begin with https://, http:// or file:/ and have no blanks"
        )
    if not re.fullmatch(r"[^\s]+", repository.suite):
        raise Failure(f"repository.suite: {repository.suite!r} must be one word, or '/' for a flat repository")
    given = [key for key in ("key", "key_url", "key_file") if getattr(repository, key)]
    if len(given) != 1:
        raise Failure(
            f"repository: exactly one of key, key_url and key_file is needed, not {', '.join(given) or 'none'}. "
            "A repository without a key is never trusted."
        )
    for text in repository.key_fingerprints:
        if not re.fullmatch(r"([0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})", text.replace(" ", "")):
            raise Failure(
                f"repository.key_fingerprints: {text!r} is no fingerprint, which has 40 or 64 hexadecimal digits"
            )
    if repository.key_url and repository.key_url.startswith("http://") and not repository.key_fingerprints:
        raise Failure(
            f"repository.key_url: {repository.key_url} is not https, so key_fingerprints is needed to know the key"
        )
    return request


__all__ = (
    "PROTECTED",
    "Installed",
    "Move",
    "Pin",
    "Repository",
    "Request",
    "checked",
    "covered",
    "refusals",
    "satisfies",
    "upstream",
)
