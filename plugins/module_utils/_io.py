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


def conf_files(directories: t.Sequence[str], root: str = "/") -> list[str]:
    """The ``*.conf`` of ``directories`` in the order of their names; a name in one hides it in those after it."""
    chosen: dict[str, str] = {}
    for directory in directories:
        folder = os.path.join(root, directory.lstrip("/"))
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.endswith(".conf") and not os.path.isdir(os.path.join(folder, name)):
                chosen.setdefault(name, os.path.join(directory, name))
    return [chosen[name] for name in sorted(chosen)]


def write_atomic(
    path: str, content: str | bytes, mode: int = 0o644, uid: int | None = None, gid: int | None = None
) -> None:
    """Replace ``path`` by ``content`` so that a reader sees the old file or the new one, never half of it."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    obstacle = no_file(path)
    if obstacle is not None:
        raise Failure(f"Cannot write {path}: {obstacle}")
    # A link is followed: the file it names is replaced, the link stays.
    path = os.path.realpath(path)
    directory = os.path.dirname(path)
    temporary = None
    make_directories(directory)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=directory)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            _keep_labels(path, temporary)
            os.fchmod(stream.fileno(), mode)
            if uid is not None or gid is not None:
                os.fchown(stream.fileno(), -1 if uid is None else uid, -1 if gid is None else gid)
            os.fsync(stream.fileno())
        _replace(temporary, path, data)
        temporary = None
    except OSError as exc:
        raise Failure(f"Cannot write {path}: {_because(exc)}") from exc
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def no_file(path: str) -> str | None:
    """What stands where a file is to be; ``None`` where one is or can be made. A device must never be replaced."""
    if not os.path.exists(path) or os.path.isfile(path):
        return None
    kind = "a directory" if os.path.isdir(path) else "a device, a socket or a pipe"
    target = os.path.realpath(path)
    said = f"it is a link to {target}, {kind}" if os.path.islink(path) else f"{kind} of that name is there"
    return f"a file is wanted, but {said}. Remove it, or have the file elsewhere"


def make_directories(path: str) -> None:
    """Make ``path`` and what is above it, for everybody to look into whatever this process' umask says."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    try:
        for folder in reversed(missing):
            os.mkdir(folder)
            os.chmod(folder, 0o755)
    except OSError as exc:
        raise Failure(f"Cannot make the directory {missing[0]}: {_because(exc)}") from exc


def _because(exc: OSError) -> str:
    """Why, and what root can look at where the kernel's word alone does not lead there."""
    hint = {
        errno.EACCES: "; it takes root: become",
        errno.EPERM: "; it may be immutable, which lsattr shows and chattr -i ends",
        errno.EROFS: "; findmnt shows which one, dmesg whether an error made it so",
        errno.ENOSPC: "; df and df -i show what is full",
    }
    return f"{exc.strerror}{hint.get(exc.errno or 0, '')}"


def _keep_labels(path: str, temporary: str) -> None:
    """Give the file that replaces ``path`` its SELinux label and access list, where it has any."""
    for name in ("security.selinux", "system.posix_acl_access"):
        with contextlib.suppress(OSError):
            os.setxattr(temporary, name, os.getxattr(path, name))


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
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        raise Failure(f"Cannot remove {path}: {_because(exc)}") from exc


def remove_empty(folder: str) -> None:
    """Remove a directory that holds nothing any more; any other, and none, is left as it is."""
    if os.path.isdir(folder) and not os.listdir(folder):
        remove(folder)


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


#: What the members of a record are, by its name, for those that are read without looking: somebody may have edited one.
MEMBERS: dict[str, tuple[type, ...]] = {
    "file_sets.json": (list,),
    "files.json": (dict, type(None)),
    "folders.json": (list,),
    "kernel_cmdline.json": (list,),
    "modules.json": (list,),
    "packages.json": (dict,),
    "sysctl.json": (dict,),
}


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
        expected = MEMBERS.get(os.path.basename(self.path), (object,))
        for name, member in value.items():
            if not isinstance(member, expected):
                raise Failure(
                    f"Cannot read {self.path}: {name} is {str(member)[:80]!r}, which the collection does not write. "
                    "Mend it, or remove the file to give up what this host was set to before the collection changed it."
                )
        return value

    def save(self, value: t.Mapping[str, t.Any]) -> None:
        """Write ``value`` where it differs; an empty one removes the file, and the last file its directory."""
        if not value:
            remove(self.path)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self.path))
        elif value != self.load():
            write_atomic(self.path, json.dumps(value, indent=2, sort_keys=True) + "\n", mode=0o600)


#: Stands in the first line of what this collection writes where the format has comments.
MARK = "Managed by railyard.gpu_fabric"
#: That line, where a comment begins with a hash.
HEADER = f"# {MARK}; changes are overwritten.\n"


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

    def claim(self, top: str) -> None:
        """Take ``top`` and all directories below it for made by us, as an earlier version did without a note."""
        made = {folder for folder, _, _ in os.walk(top)} | set(self._state.load().get("made", []))
        if made:
            self._state.save({"made": sorted(made)})

    def prune(self) -> None:
        made = list(self._state.load().get("made", []))
        for folder in sorted(made, key=len, reverse=True):
            remove_empty(folder)
            if not os.path.isdir(folder):
                made.remove(folder)
        self._state.save({"made": made} if made else {})


__all__ = (
    "HEADER",
    "MARK",
    "STATE_DIRECTORY",
    "Attributes",
    "Failure",
    "Folders",
    "StateFile",
    "attributes_of",
    "conf_files",
    "gid_of",
    "make_directories",
    "no_file",
    "read_bytes",
    "read_text",
    "remove",
    "remove_empty",
    "uid_of",
    "write_atomic",
)
