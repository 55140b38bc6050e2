# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Files of a managed host: read, written atomically, removed; and the state the collection keeps there."""

from __future__ import annotations

import contextlib
import errno
import grp
import json
import os
import pwd
import stat
import tempfile
import typing as t

STATE_DIRECTORY = "/var/lib/gpu_fabric"


class Failure(Exception):
    """Something cannot be read, written or brought about; the message says what, why and what to do."""

    def __init__(self, message: str, **details: t.Any) -> None:
        super().__init__(message)
        self.details = details


def read_text(path: str) -> str | None:
    """The content of a file, ``None`` where there is none. Bytes that are not UTF-8 survive a round trip."""
    data = read_bytes(path)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def read_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as exc:
        raise Failure(f"Cannot read {path}: {exc.strerror}") from exc


def write_atomic(
    path: str, content: str | bytes, mode: int = 0o644, uid: int | None = None, gid: int | None = None
) -> None:
    """Replace ``path`` by ``content`` so that a reader sees the old file or the new one, never half of it."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    # A link is followed: the file it names is replaced, the link stays.
    path = os.path.realpath(path)
    directory = os.path.dirname(path)
    temporary = None
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=directory)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            if uid is not None or gid is not None:
                os.fchown(stream.fileno(), -1 if uid is None else uid, -1 if gid is None else gid)
            os.fsync(stream.fileno())
        _replace(temporary, path, data)
        temporary = None
    except OSError as exc:
        raise Failure(f"Cannot write {path}: {exc.strerror}") from exc
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _replace(temporary: str, path: str, data: bytes) -> None:
    try:
        os.replace(temporary, path)
    except OSError as exc:
        # A file that is itself a mount point (a container's /etc/hosts) can only be written in place.
        if exc.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        with open(path, "wb") as stream:
            stream.write(data)
        os.unlink(temporary)


def remove(path: str) -> None:
    """Remove a file, a link or an empty directory; that it is gone already is no failure."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise Failure(f"Cannot remove {path}: {exc.strerror}") from exc


class Attributes(t.NamedTuple):
    """Who owns a file, and its permission bits."""

    uid: int
    gid: int
    mode: int

    def __str__(self) -> str:
        return f"{_name(self.uid, pwd.getpwuid, 'pw_name')}:{_name(self.gid, grp.getgrgid, 'gr_name')} {self.mode:04o}"


def _name(number: int, lookup: t.Callable[[int], t.Any], field: str) -> str:
    try:
        return str(getattr(lookup(number), field))
    except KeyError:
        return str(number)


def attributes_of(path: str) -> Attributes | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise Failure(f"Cannot read {path}: {exc.strerror}") from exc
    return Attributes(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))


def uid_of(owner: str) -> int:
    return _number(owner, "user", lambda name: pwd.getpwnam(name).pw_uid)


def gid_of(group: str) -> int:
    return _number(group, "group", lambda name: grp.getgrnam(name).gr_gid)


def _number(name: str, kind: str, lookup: t.Callable[[str], int]) -> int:
    try:
        return int(name) if name.isdigit() else lookup(name)
    except KeyError:
        raise Failure(f"There is no {kind} {name!r} on this host") from None


class StateFile:
    """One JSON object that outlives a run: what was there before the collection's first change."""

    def __init__(self, name: str, directory: str = STATE_DIRECTORY) -> None:
        self.path = os.path.join(directory, name)

    def load(self) -> dict[str, t.Any]:
        text = read_text(self.path)
        if text is None:
            return {}
        try:
            value = json.loads(text)
        except ValueError as exc:
            raise Failure(
                f"Cannot read {self.path}: {exc}. It holds what this host was set to before the collection changed it; "
                "mend it, or remove it to give that up."
            ) from exc
        if not isinstance(value, dict):
            raise Failure(f"Cannot read {self.path}: a JSON object was expected, not {type(value).__name__}")
        return value

    def save(self, value: t.Mapping[str, t.Any]) -> None:
        """Write ``value`` where it differs; an empty one removes the file, and the last file its directory."""
        if not value:
            remove(self.path)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self.path))
        elif value != self.load():
            write_atomic(self.path, json.dumps(value, indent=2, sort_keys=True) + "\n", mode=0o600)


MARK = "Managed by railyard.gpu_fabric"


class FirstContents:
    """What somebody else had in a file of a name of ours: kept before it is written over, given back with absent."""

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._records = dict(state.load())

    def wanted(self, path: str, present: str | None, text: str | None) -> str | None:
        """What the file shall hold: ours, or, where we want none, what is there from others or was there first."""
        if text is not None:
            return text
        return present if present is not None and MARK not in present else self._records.get(path)

    def keep(self, path: str, present: str | None) -> None:
        """To be called before ours is written to ``path``."""
        if present is not None and MARK not in present:
            self._records[path] = present
            self._state.save(self._records)

    def forget(self, path: str) -> None:
        """To be called when nothing of ours is in ``path`` any more."""
        if self._records.pop(path, None) is not None:
            self._state.save(self._records)


class Folders:
    """The directories that were made for files of ours: they go again, once they hold nothing."""

    def __init__(self, directory: str = STATE_DIRECTORY) -> None:
        self._state = StateFile("folders.json", directory)

    def remember(self, path: str) -> None:
        """Note which directories are to be made before ``path`` can be written."""
        made = set(self._state.load().get("made", []))
        folder = os.path.dirname(os.path.realpath(path))
        while not os.path.isdir(folder):
            made.add(folder)
            folder = os.path.dirname(folder)
        if made:
            self._state.save({"made": sorted(made)})

    def prune(self) -> None:
        made = list(self._state.load().get("made", []))
        for folder in sorted(made, key=len, reverse=True):
            if os.path.isdir(folder) and not os.listdir(folder):
                remove(folder)
            if not os.path.isdir(folder):
                made.remove(folder)
        self._state.save({"made": made} if made else {})


__all__ = (
    "STATE_DIRECTORY",
    "Attributes",
    "Failure",
    "FirstContents",
    "Folders",
    "StateFile",
    "attributes_of",
    "gid_of",
    "read_bytes",
    "read_text",
    "remove",
    "uid_of",
    "write_atomic",
)
