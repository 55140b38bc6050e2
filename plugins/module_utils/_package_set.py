# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""One package transaction on an apt host: planned in full, then made, then read back."""

from __future__ import annotations

import os
import tempfile
import typing as t
import urllib.error
import urllib.request

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _apt
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._apt_sources import (
    render_preferences,
    render_source,
    render_unattended,
    without_repository,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import (
    DISPLACED,
    PRESENT,
    FileSet,
    Wanted,
    ours,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import (
    Failure,
    StateFile,
    read_bytes,
    read_text,
    remove,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._openpgp import dearmor, fingerprints
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._packages import (
    Installed,
    Move,
    Repository,
    Request,
    covered,
    refusals,
    satisfies,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

# Dependencies of sets that are gone, which other sets still need.
LEFT = "@left"


def fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bytes(answer.read(1 << 20))
    except (OSError, ValueError, urllib.error.URLError) as exc:
        raise Failure(f"Cannot fetch the repository's key from {url}: {getattr(exc, 'reason', exc)}") from exc


def backend(lock_timeout_s: float, cli: Cli | None = None) -> _apt.Apt:
    """The host's package manager. There is one so far; another one gives what :class:`Apt` gives."""
    cli = cli or Cli(_apt.ENVIRONMENT)
    missing = [name for name in ("apt-get", "apt-cache", "apt-mark", "dpkg-query") if cli.which(name) is None]
    if missing:
        raise Failure(
            f"This host has no {', '.join(missing)}: packages can be managed on Debian and Ubuntu only so far. "
            "On another distribution, install them by its own means and leave this layer out with --skip-tags."
        )
    return _apt.Apt(cli, lock_timeout_s=lock_timeout_s)


class PackageSet:
    """The wanted packages against dpkg's."""

    def __init__(self, request: Request, apt: _apt.Apt, state: StateFile, absent: bool = False) -> None:
        self._request = request
        self._apt = apt
        self._state = state
        self._absent = absent
        self._records: dict[str, t.Any] = state.load()
        self._record: dict[str, t.Any] = self._records.get(request.name, {})
        self._installed = apt.installed()
        self._unfinished = apt.unfinished
        self._source = request.repository and f"{_apt.SOURCES}/{request.repository.name}.sources"
        self._keyring = request.repository and f"{_apt.KEYRINGS}/{request.repository.name}.gpg"
        self.changes = ChangeSet()
        self.moves: list[Move] = []
        self._arguments: list[str] = []
        # Refreshes that the plan needed, and the host will need as well: a source file, or None for all.
        self._refreshes: list[str | None] = []
        self._stale: list[str] = []
        wanted = self._wanted_files()
        # Keys and pins first: no source without its key, no package without its pin.
        ordered = sorted(wanted, key=lambda path: path == self._source)
        originals = StateFile("files.json", os.path.dirname(state.path))
        known = {path: first for one in self._records.values() for path, first in self._kept_there(one).items()}
        self._files = FileSet([wanted[path] for path in ordered], Cli(), originals, check_mode=False, known=known)
        self._steps = self._files.plan()
        self._names = {item.path: path for path, item in wanted.items()}
        changing = {self._names[step.path]: step.content for step in self._steps}
        #: What each file holds once the set is as wanted.
        self._contents = {**{path: read_text(wanted[path].path) for path in ordered}, **changing}
        self._different = list(changing)
        self.changes.compare("packages that dpkg left unfinished", self._unfinished, [])
        self._note_files()
        self._plan()

    @property
    def changed_paths(self) -> list[str]:
        return list(self._different)

    @property
    def held(self) -> list[str]:
        return list(self._held)

    @property
    def versions(self) -> dict[str, str]:
        after = self._after()
        return {name: after[name].version for name in self._request.packages if name in after}

    # What is wanted

    def _wanted_files(self) -> dict[str, Wanted]:
        request, name = self._request, self._request.name
        patterns = [*request.packages, *(pattern for pin in request.pins for pattern in pin.packages)]
        texts: dict[str, str | None] = {
            f"{_apt.PREFERENCES}/{name}": render_preferences([pin._asdict() for pin in request.pins]),
            f"{_apt.CONFIGURATION}/52{name}-unattended": render_unattended(
                list(dict.fromkeys(patterns)) if request.hold else []
            ),
        }
        if self._absent:
            return self._own({**self._given_back(), **dict.fromkeys(texts)})
        # One with another name, or none, is wanted now: the earlier one goes.
        if request.repository is None or request.repository.name != self._record.get("repository"):
            texts.update(self._source_left())
        if request.repository is None or self._source is None or self._keyring is None:
            return self._own(texts)
        repository = request.repository
        # Bytes that are no text survive, as in every file that is read and written here.
        texts[self._keyring] = self._key(repository).decode("utf-8", "surrogateescape")
        texts[self._source] = render_source(
            repository.url,
            repository.suite,
            repository.components,
            repository.architectures,
            self._apt.path(self._keyring),
        )
        return {**self._without_stale(repository, texts), **self._own(texts)}

    def _own(self, texts: t.Mapping[str, str | None]) -> dict[str, Wanted]:
        """Files under our own names; without a text, what somebody else had there comes back."""
        return {path: ours(self._apt.path(path), text) for path, text in texts.items()}

    def _kept_there(self, record: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """First contents by the record of an earlier version: it held those of others, and its keyring has no mark."""
        stale, name = record.get("stale", {}), record.get("repository")
        if not name or isinstance(stale, list):
            return {}
        attributes = [os.geteuid(), os.getegid(), 0o644]
        others = {path: {"content": text, "attributes": attributes} for path, text in stale.items()}
        return {self._apt.path(path): first for path, first in {f"{_apt.KEYRINGS}/{name}.gpg": None, **others}.items()}

    def _given_back(self) -> dict[str, str | None]:
        """The source goes with the last set that uses it, and what it displaced comes back."""
        left = self._source_left()
        return {**left, **dict.fromkeys(self._record.get("stale", ()))} if left else {}

    def _source_left(self) -> dict[str, str | None]:
        """The files of the source that this set alone has used so far, to be removed."""
        name = self._record.get("repository")
        if not name or any(self._shares(one) for key, one in self._records.items() if key != self._request.name):
            return {}
        return {f"{_apt.SOURCES}/{name}.sources": None, f"{_apt.KEYRINGS}/{name}.gpg": None}

    def _without_stale(self, repository: Repository, own: t.Container[str]) -> dict[str, Wanted]:
        """Other source files that name the repository as well: apt refuses two entries that disagree on the key."""
        found: dict[str, Wanted] = {}
        directory = self._apt.path(_apt.SOURCES)
        names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
        paths = [_apt.MAIN_SOURCES, *(f"{_apt.SOURCES}/{name}" for name in names)]
        for path in paths:
            if path in own or not path.endswith((".list", ".sources")):
                continue
            text = read_text(self._apt.path(path))
            kept = text and without_repository(path, text, repository.url, repository.suite)
            if text and kept != text:
                real = self._apt.path(path)
                found[path] = Wanted(real, DISPLACED) if kept is None else Wanted(real, PRESENT, kept)
                self._stale.append(path)
        return found

    def _key(self, repository: Repository) -> bytes:
        """The repository's keyring, and that it holds the keys it should."""
        source = repository.key_url or repository.key_file or "key"
        present = read_bytes(self._apt.path(self._keyring)) if self._keyring else None
        if repository.key_url and present and self._record.get("key_url") == repository.key_url:
            data = present
        elif repository.key_url:
            data = fetch(repository.key_url)
        elif repository.key_file:
            found = read_bytes(self._apt.path(repository.key_file))
            if found is None:
                raise Failure(f"repository.key_file: there is no {repository.key_file} on this host")
            data = found
        else:
            data = (repository.key or "").encode()
        try:
            binary = dearmor(data)
            found_prints = fingerprints(binary)
        except ValueError as exc:
            raise Failure(f"The key of repository {repository.name}, from {source}, cannot be used: {exc}") from exc
        wanted = [text.replace(" ", "").upper() for text in repository.key_fingerprints]
        if wanted and sorted(wanted) != sorted(found_prints):
            raise Failure(
                f"The key of repository {repository.name}, from {source}, is {', '.join(found_prints)}, "
                f"not {', '.join(wanted)}. Where the vendor has changed its key, change key_fingerprints; "
                "else do not trust it."
            )
        return binary

    def _note_files(self) -> None:
        for change in self._files.changes:
            path = self._names.get(change.subject, change.subject)
            if not path.startswith(_apt.KEYRINGS) or path not in self._different:
                self.changes.compare(path, change.before, change.after)
            elif not self.changes.compare(path, _key_text(change.before), _key_text(change.after)):
                self.changes.compare(path, "", "the same keys, renewed")

    # The transaction

    def _plan(self) -> None:
        request = self._request
        needed = {} if self._absent else self._needed()
        removed = self._removed()
        dependencies = self._dependencies() if self._absent else []
        if needed or removed or dependencies:
            with tempfile.TemporaryDirectory(prefix="gpu-fabric-apt-") as directory:
                # What is taken back needs no source, and the entries that come back with it may not work.
                files = {} if self._absent else self._contents
                self._apt.use_private_state(directory, files, self._source, self._keyring)
                if dependencies:
                    removed = sorted({*removed, *self._apt.orphans(removed) & set(dependencies)})
                if needed or removed:
                    self._work_out(needed, removed)
                self._apt.leave_private_state()
            ours = set(self._record.get("held", ()))
            refused = refusals(request, self.moves, self._installed, ours, removed, self._apt.is_older)
            if refused:
                raise Failure("This transaction is refused, and nothing was changed: " + "; ".join(refused) + ".")
        elif self._source in self._different and not self._absent:
            # Nothing to install, but later transactions need the source: it has to work.
            with tempfile.TemporaryDirectory(prefix="gpu-fabric-apt-") as directory:
                self._apt.use_private_state(directory, self._contents, self._source, self._keyring)
                self._refresh(self._source)
                self._apt.leave_private_state()
        self.changes.compare(
            "packages",
            [f"{move.name} {move.before}" for move in self.moves if move.before is not None],
            [f"{move.name} {move.after}" for move in self.moves if move.after is not None],
        )
        self._plan_holds()

    def _needed(self) -> dict[str, str]:
        return {
            name: pin
            for name, pin in self._request.packages.items()
            if name not in self._installed
            or self._installed[name].leftover
            or not satisfies(self._installed[name].version, pin)
        }

    def _removed(self) -> list[str]:
        if self._absent:
            gone = self._record.get("installed", ())
            return [name for name in gone if name in self._installed and not self._installed[name].leftover]
        return [
            name
            for name, present in sorted(self._installed.items())
            if self._request.removes(name) and not present.leftover
        ]

    def _dependencies(self) -> list[str]:
        """What came to this host only because this set, or one that is gone, needed it, and no other set names."""
        named = {name for key, record in self._records.items() if key != self._request.name
                 for name in (*record.get("installed", ()), *record.get("packages", ()))}  # fmt: skip
        came = {*self._record.get("dependencies", ()), *self._records.get(LEFT, {}).get("dependencies", ())}
        return [
            name
            for name in sorted(came - named)
            if name in self._installed and not self._installed[name].leftover and not self._installed[name].held
        ]

    def _work_out(self, needed: dict[str, str], removed: list[str]) -> None:
        """Ask apt what it would do, with the indexes at hand first, then with fresh ones."""
        if needed and self._source is not None and ({self._source, self._keyring} & set(self._different)):
            self._refresh(self._source)
        first: Failure | None = None
        for scope in self._scopes(bool(needed)):
            if scope is not False:
                try:
                    self._refresh(t.cast("str | None", scope))
                except Failure as exc:
                    raise Failure(f"{first}; and with fresh indexes: {exc}" if first else str(exc)) from exc
            try:
                self._simulate(needed, removed)
                return
            except Failure as exc:
                first = first or exc
                last = exc
        raise last

    def _scopes(self, refreshable: bool) -> list[str | bool | None]:
        scopes: list[str | bool | None] = [False]
        if refreshable:
            if self._source is not None and self._source not in self._refreshes:
                scopes.append(self._source)
            scopes.append(None)
        return scopes

    def _refresh(self, scope: str | None) -> None:
        self._apt.refresh(scope)
        self._refreshes.append(scope)

    def _simulate(self, needed: dict[str, str], removed: list[str]) -> None:
        # Named with the version they have, pinned packages stay while others move.
        kept = [
            f"{name}={self._installed[name].version}"
            for name, pin in self._request.packages.items()
            if pin and name not in needed and not self._absent
        ]
        followers = self._apt.resolve(self._followers(needed), lenient=True) if needed else []
        self._arguments = [*self._apt.resolve(needed), *followers, *kept, *(f"{name}-" for name in removed)]
        self.moves = self._apt.simulate(self._arguments, self._request.recommends)

    def _followers(self, needed: t.Container[str]) -> dict[str, str]:
        """What we hold as part of the family and the pins now want at another version: it moves with the rest."""
        return {
            name: pin.version
            for name in self._record.get("held", ())
            for pin in self._request.pins
            if name in self._installed and name not in needed and not self._request.removes(name)
            if pin.names(name) and not pin.covers(name, self._installed[name].version)
        }

    # Holds

    def _after(self) -> dict[str, Installed]:
        """The packages as the transaction leaves them. One that moves loses its hold."""
        after = dict(self._installed)
        for move in self.moves:
            if move.after is None:
                after.pop(move.name, None)
            else:
                after[move.name] = Installed(move.after, False)
        return after

    def _plan_holds(self) -> None:
        after = self._after()
        held_before = set(self._record.get("held", ())) - set(self._record.get("held_before", ()))
        self._held = covered(self._request, after) if self._request.hold and not self._absent else []
        self._to_hold = [name for name in self._held if not after[name].held]
        self._to_release = [
            name for name in sorted(held_before - set(self._held)) if name in after and after[name].held
        ]
        was_held = [name for name in self._held if name in self._installed and self._installed[name].held]
        self.changes.compare("held packages", sorted([*was_held, *self._to_release]), self._held)

    # Making it so

    def apply(self) -> None:
        # The record first: a run that is cut off later still knows what is its own.
        self._files.keep()
        self._save(done=False)
        # Its indexes go with a source, which apt itself would do at its next update.
        indexes = [
            index
            for path in self._different
            if path.startswith(_apt.SOURCES) and self._contents[path] is None
            for index in self._apt.indexes(path)
        ]
        self._files.apply(self._steps)
        for index in indexes:
            remove(index)
        if self._unfinished:
            self._apt.finish()
        for scope in dict.fromkeys(self._refreshes):
            self._apt.refresh(scope)
        if self.moves:
            held = any(self._installed[move.name].held for move in self.moves if move.name in self._installed)
            self._apt.install(self._arguments, self._request.recommends, change_held=held)
        self._apt.hold(self._to_release, False)
        self._apt.hold(self._to_hold, True)
        self._read_back()
        self._save(done=True)

    def _read_back(self) -> None:
        found = self._apt.installed()
        if self._apt.unfinished:
            raise Failure(
                f"dpkg left {', '.join(self._apt.unfinished)} unfinished, and could not finish it now;"
                " see what `dpkg --configure --pending` says on the host"
            )
        wrong = []
        for move in self.moves:
            present = found.get(move.name)
            version = None if present is None or present.leftover else present.version
            if version != move.after:
                wrong.append(f"{move.name} is {version or 'absent'}, not {move.after or 'absent'}")
        wrong += [f"{name} is not held" for name in self._held if not found[name].held]
        if wrong:
            raise Failure("After the transaction, " + "; ".join(wrong) + ".")

    def _save(self, done: bool) -> None:
        if self._absent:
            if done:
                self._forget()
            return
        repository = self._request.repository
        brought = [
            move.name
            for move in self.moves
            if move.after is not None and move.before is None and self._request.asks_for(move)
        ]
        dependencies = [move.name for move in self.moves if move.before is None and move.name not in brought]
        others = {
            name for key, one in self._records.items() if key != self._request.name for name in one.get("held", ())
        }
        record = {
            "packages": sorted(self._request.packages),
            "repository": repository.name if repository else None,
            "key_url": repository.key_url if repository else None,
            # Files of others that name the repository: what they held is kept with the other first contents.
            "stale": sorted({*self._record.get("stale", ()), *self._stale}),
            # What this set brought to the host: what goes again with state absent.
            "installed": sorted({*self._record.get("installed", ()), *brought}),
            "dependencies": sorted({*self._record.get("dependencies", ()), *dependencies}),
            # A hold of somebody else's stays when ours go.
            "held_before": [
                name
                for name, present in sorted(self._installed.items())
                if name in self._record.get("held_before", ())
                or (name in self._held and present.held and name not in {*self._record.get("held", ()), *others})
            ],
            "held": self._held if done else sorted({*self._record.get("held", ()), *self._held}),
        }
        self._record = {
            key: value for key, value in record.items() if value or key in ("repository", "key_url", "stale")
        }
        self._records = {**self._records, self._request.name: self._record}
        self._state.save(self._records)

    def settle(self) -> None:
        """Keep no record of what is as it was before, though this call had nothing to change."""
        self._files.settle()
        if self._absent:
            self._forget()

    def _shares(self, record: t.Mapping[str, t.Any]) -> bool:
        """Whether another set uses the same source."""
        return bool(record.get("repository")) and record.get("repository") == self._record.get("repository")

    def _forget(self) -> None:
        """Drop the record. Dependencies that other sets still need are remembered until the last set goes."""
        left = self._dependencies()
        heir = next(
            (one for key, one in self._records.items() if key != self._request.name and self._shares(one)), None
        )
        if heir is not None and self._record.get("stale"):
            heir["stale"] = sorted({*heir.get("stale", ()), *self._record["stale"]})
        self._records.pop(self._request.name, None)
        self._records.pop(LEFT, None)
        still = [name for name in left if name in self._after()]
        if self._records and still:
            self._records[LEFT] = {"dependencies": still}
        self._state.save(self._records)


def _key_text(text: str) -> str:
    if not text:
        return ""
    try:
        return "".join(f"key {text}\n" for text in fingerprints(text.encode("utf-8", "surrogateescape")))
    except ValueError as exc:
        return f"unusable: {exc}\n"


__all__ = ("PackageSet", "fetch")
