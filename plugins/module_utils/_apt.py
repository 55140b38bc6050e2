# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""apt and dpkg as commands: what is installed, what a transaction would do, doing it.

A transaction is worked out with apt itself on a private copy of apt's configuration and indexes, in which the wanted
sources, keys and pins stand already. So check mode foretells the real run even where the repository is not configured
yet, and a repository that cannot be reached or verified is refused before anything on the host is touched.
"""

from __future__ import annotations

import os
import re
import shutil
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, write_atomic
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import wait_for
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._packages import Installed, Move, satisfies

SOURCES = "/etc/apt/sources.list.d"
MAIN_SOURCES = "/etc/apt/sources.list"
KEYRINGS = "/etc/apt/keyrings"
PREFERENCES = "/etc/apt/preferences.d"
CONFIGURATION = "/etc/apt/apt.conf.d"
LISTS = "/var/lib/apt/lists"

_DPKG_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_LISTS_LOCK = f"{LISTS}/lock"
_ARCHIVES_LOCK = "/var/cache/apt/archives/lock"

_QUERY = "${Package}\\t${Version}\\t${db:Status-Status}\\t${db:Status-Want}\\n"
_INST = re.compile(r"^Inst (\S+?)(?::\S+)? (?:\[([^\]]+)\] )?\((\S+)")
_REMV = re.compile(r"^(?:Remv|Purg) (\S+?)(?::\S+)? \[([^\]]+)\]")
_UNFINISHED = ("half-installed", "unpacked", "half-configured")
# dpkg's journal: a file here was written by a dpkg that did not come to its end.
_JOURNAL = "/var/lib/dpkg/updates"

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    # Services are the roles' business: needrestart may list them, not restart a running job's daemon.
    "NEEDRESTART_MODE": "l",
    "UCF_FORCE_CONFFOLD": "1",
}


def parse_installed(text: str) -> dict[str, Installed]:
    """``dpkg-query``'s answer; of a package with several architectures, the first."""
    found: dict[str, Installed] = {}
    for line in text.splitlines():
        words = line.split("\t")
        if len(words) != 4 or words[2] == "not-installed":
            continue
        name, version, status, want = words
        found.setdefault(name, Installed(version, want == "hold", leftover=status == "config-files"))
    return found


def parse_unfinished(text: str) -> list[str]:
    """The packages of ``dpkg-query``'s answer that dpkg began and did not finish, as after a loss of power."""
    rows = [line.split("\t") for line in text.splitlines()]
    return sorted({row[0] for row in rows if len(row) == 4 and row[2] in _UNFINISHED})


def parse_simulation(text: str) -> list[Move]:
    """The packages that ``apt-get --simulate`` would install, change or remove, each once, by name."""
    moves: dict[str, Move] = {}
    for line in text.splitlines():
        match = _INST.match(line)
        if match is not None:
            moves[match.group(1)] = Move(match.group(1), match.group(2), match.group(3))
            continue
        match = _REMV.match(line)
        if match is not None:
            moves.setdefault(match.group(1), Move(match.group(1), match.group(2), None))
    return [moves[name] for name in sorted(moves)]


def parse_madison(text: str) -> dict[str, list[str]]:
    """The versions that sources offer, by package, the newest first."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) == 3 and words[2].endswith("Packages"):
            versions = found.setdefault(words[0], [])
            if words[1] not in versions:
                versions.append(words[1])
    return found


def complaints(result: Result) -> str:
    """apt's own words for why it failed, without its progress."""
    lines = (result.stdout + "\n" + result.stderr).splitlines()
    said = [line.strip() for line in lines if line.startswith(("E:", "W:", "Err:"))]
    # The line after Err: gives the reason.
    said += [
        after.strip() for line, after in zip(lines, lines[1:]) if line.startswith("Err:") and after.startswith("  ")
    ]
    # Which dependency cannot be met is said before, in a paragraph of its own.
    unmet = next(
        (number for number, line in enumerate(lines) if line.startswith("The following packages have unmet")), None
    )
    if unmet is not None:
        said += [line.strip() for line in lines[unmet + 1 : unmet + 9] if line.startswith(" ")]
    return " ".join(dict.fromkeys(said)) or result.stderr.strip() or result.stdout.strip()[-500:] or "no message"


class AptFailed(Failure):
    """apt's own words, without the options that keep it on its private state."""

    def __init__(self, purpose: str, result: Result) -> None:
        super().__init__(f"apt cannot {purpose}: {complaints(result)}", cmd=result.command, rc=result.rc)


class Apt:
    """The commands. ``root`` is where apt's files are, for tests."""

    def __init__(self, cli: Cli, root: str = "/", lock_timeout_s: float = 300) -> None:
        self._cli = cli
        self.root = root
        self._lock_timeout_s = lock_timeout_s
        # The private state, once there is one.
        self._options: list[str] = []
        #: Packages that dpkg began and did not finish, as of the last look.
        self.unfinished: list[str] = []

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def installed(self) -> dict[str, Installed]:
        told = self._cli.run(["dpkg-query", "--show", f"--showformat={_QUERY}"]).stdout
        journal = [name for name in _names(self.path(_JOURNAL)) if name.isdigit()]
        self.unfinished = parse_unfinished(told) or (["dpkg's journal"] if journal else [])
        return parse_installed(told)

    def is_older(self, one: str, other: str) -> bool:
        return self._cli.run(["dpkg", "--compare-versions", one, "lt", other], check=False).rc == 0

    # The private state

    def use_private_state(
        self, directory: str, files: t.Mapping[str, str | bytes | None], source: str | None, keyring: str | None
    ) -> None:
        """From here on, plan on a copy in which ``files`` (path → content, ``None``: gone) are as wanted."""
        copies = {SOURCES: "sources", PREFERENCES: "preferences"}
        for origin, name in copies.items():
            os.makedirs(os.path.join(directory, name))
            for entry in _names(self.path(origin)):
                _copy(os.path.join(self.path(origin), entry), os.path.join(directory, name, entry))
        main = os.path.join(directory, "sources.list")
        _copy(self.path(MAIN_SOURCES), main)
        lists = os.path.join(directory, "lists")
        os.makedirs(os.path.join(lists, "partial"))
        for entry in _names(self.path(LISTS)):
            if os.path.isfile(os.path.join(self.path(LISTS), entry)) and entry != "lock":
                os.symlink(os.path.join(self.path(LISTS), entry), os.path.join(lists, entry))
        os.makedirs(os.path.join(directory, "cache", "archives", "partial"))
        private_key = os.path.join(directory, "keyring.gpg")
        for path, content in files.items():
            if path == MAIN_SOURCES:
                target = main
            elif path == keyring:
                target = private_key
            elif os.path.dirname(path) in copies:
                target = os.path.join(directory, copies[os.path.dirname(path)], os.path.basename(path))
            else:
                continue
            if content is None:
                if os.path.exists(target):
                    os.unlink(target)
                continue
            if path == source and keyring is not None and isinstance(content, str):
                content = content.replace(self.path(keyring), private_key)
            write_atomic(target, content)
        self._options = [
            "-o",
            f"Dir::Etc::sourcelist={main}",
            "-o",
            f"Dir::Etc::sourceparts={os.path.join(directory, 'sources')}",
            "-o",
            f"Dir::Etc::preferencesparts={os.path.join(directory, 'preferences')}",
            "-o",
            f"Dir::State::lists={lists}",
            "-o",
            f"Dir::Cache={os.path.join(directory, 'cache')}",
            "-o",
            "Dir::Cache::pkgcache=",
            "-o",
            "Dir::Cache::srcpkgcache=",
            # The directory belongs to root alone.
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Debug::NoLocking=1",
        ]
        self._private_sources = os.path.join(directory, "sources")

    def refresh(self, source: str | None) -> None:
        """Fetch the indexes of one source file, or of all sources."""
        argv = ["apt-get", *self._options, "update", "-o", "APT::Update::Error-Mode=any"]
        if source is not None:
            path = os.path.join(self._private_sources, os.path.basename(source)) if self._options else self.path(source)
            # The other sources' indexes stay as they are.
            argv += ["-o", f"Dir::Etc::sourcelist={path}", "-o", "Dir::Etc::sourceparts=/dev/null"]
            argv += ["-o", "APT::Get::List-Cleanup=0"]
        if not self._options:
            self._wait(_LISTS_LOCK)
        result = self._cli.run(argv, check=False, timeout_s=600)
        # Older releases end with 0 although an index could not be fetched, and only warn.
        if result.rc != 0 or "Err:" in result.stdout or "Failed to fetch" in result.stderr:
            raise AptFailed("fetch the package indexes", result)

    def offered(self, names: t.Sequence[str]) -> dict[str, list[str]]:
        if not names:
            return {}
        return parse_madison(self._cli.run(["apt-cache", *self._options, "madison", *names], check=False).stdout)

    def resolve(self, wanted: t.Mapping[str, str], lenient: bool = False) -> list[str]:
        """``name=version`` for each wanted package, the newest version that the pin allows.

        With ``lenient``, a package that no source offers so is left to apt.
        """
        offered = self.offered(list(wanted))
        arguments, missing = [], []
        for name, pin in wanted.items():
            versions = offered.get(name, [])
            chosen = next((version for version in versions if satisfies(version, pin)), None)
            if not pin:
                # Its version is the sources' choice, and a virtual package has none.
                arguments.append(name)
            elif chosen is None:
                has = f"the sources have {', '.join(versions[:8])}" if versions else "no source has the package"
                missing.append(f"{name} {pin}: {has}")
            else:
                arguments.append(f"{name}={chosen}")
        if missing and not lenient:
            raise Failure("No source offers " + "; ".join(missing))
        return arguments

    def simulate(self, arguments: t.Sequence[str], recommends: bool) -> list[Move]:
        argv = [
            "apt-get",
            *self._options,
            "--simulate",
            *self._install_options(recommends, True),
            "install",
            *arguments,
        ]
        result = self._cli.run(argv, check=False)
        if result.rc != 0:
            raise AptFailed("work out the transaction", result)
        return parse_simulation(result.stdout)

    def orphans(self, leaving: t.Sequence[str]) -> set[str]:
        """What nothing needs any more once these have gone: installed as a dependency, and of nothing that stays."""
        argv = [
            "apt-get",
            *self._options,
            "--simulate",
            *self._install_options(False, True),
            "--auto-remove",
            "install",
        ]
        result = self._cli.run([*argv, *(f"{name}-" for name in leaving)], check=False)
        if result.rc != 0:
            raise AptFailed("work out what nothing needs any more", result)
        return {move.name for move in parse_simulation(result.stdout) if move.after is None}

    # Changing the host

    def indexes(self, source: str) -> list[str]:
        """The files in which apt keeps the indexes of one source file."""
        argv = ["apt-get", "indextargets", "--format", "$(FILENAME)|$(METAKEY)"]
        argv += ["-o", f"Dir::Etc::sourcelist={self.path(source)}", "-o", "Dir::Etc::sourceparts=/dev/null"]
        rows = [line.partition("|") for line in self._cli.run(argv, check=False).stdout.splitlines() if "|" in line]
        found = [name for name, _, _key in rows]
        for name, _, key in rows:
            stem, there, _suffix = name.rpartition(key.replace("/", "_"))
            found += [f"{stem}{release}" for release in ("InRelease", "Release", "Release.gpg") if there]
        return sorted(set(found))

    def leave_private_state(self) -> None:
        self._options = []

    def finish(self) -> None:
        """Let dpkg finish what it began. What lacks a dependency is left to the transaction that follows."""
        self._wait(*_DPKG_LOCKS)
        argv = ["dpkg", "--force-confdef", "--force-confold", "--configure", "--pending"]
        self._cli.run(argv, check=False, timeout_s=3600)

    def install(self, arguments: t.Sequence[str], recommends: bool, change_held: bool) -> None:
        argv = ["apt-get", *self._install_options(recommends, change_held), "install", *arguments]
        self._wait(*_DPKG_LOCKS, _ARCHIVES_LOCK)
        # A kernel module built on the host takes its time.
        result = self._cli.run(argv, check=False, timeout_s=3600)
        if result.rc != 0:
            raise AptFailed("make the transaction", result)

    def hold(self, names: t.Sequence[str], on: bool) -> None:
        if names:
            self._wait(*_DPKG_LOCKS)
            self._cli.run(["apt-mark", "hold" if on else "unhold", *names])

    def _install_options(self, recommends: bool, change_held: bool) -> list[str]:
        return [
            "--yes",
            "--quiet",
            "--purge",
            "--allow-downgrades",
            # Holds are judged by this module, on the whole transaction, and not by the resolver's retreat from them.
            "-o",
            "APT::Ignore-Hold=true",
            *(["--allow-change-held-packages"] if change_held else []),
            *(["--fix-broken"] if self.unfinished else []),
            *([] if recommends else ["--no-install-recommends"]),
            "-o",
            f"DPkg::Lock::Timeout={self._lock_timeout_s:g}",
            "-o",
            "Dpkg::Options::=--force-confdef",
            "-o",
            "Dpkg::Options::=--force-confold",
        ]

    def _wait(self, *paths: str) -> None:
        wait_for([self.path(path) for path in paths], self._lock_timeout_s)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _copy(origin: str, target: str) -> None:
    if os.path.isfile(origin):
        shutil.copyfile(origin, target)


__all__ = (
    "ENVIRONMENT",
    "KEYRINGS",
    "MAIN_SOURCES",
    "PREFERENCES",
    "SOURCES",
    "Apt",
    "complaints",
    "parse_installed",
    "parse_madison",
    "parse_simulation",
)
