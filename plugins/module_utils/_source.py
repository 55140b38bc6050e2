# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""The only reader of a host: its files, links and commands, live or from a support bundle."""

from __future__ import annotations

import concurrent.futures
import errno
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._bundle import bundle_name

__all__ = [
    "ANSWER_S",
    "COMMANDS_FILE",
    "TIMED_OUT",
    "BundleSource",
    "LiveSource",
    "Output",
    "Source",
    "bundle_name",
    "host_path",
]

#: More than any file that is read whole; a runaway log is cut here and noted.
READ_LIMIT = 16 * 1024 * 1024
#: In a host's folder of a bundle: exit status and words of each command, by the name of its output.
COMMANDS_FILE = "commands.json"
#: How long a command may take where its caller knows no better, in seconds. A busy host starts programs slowly, and an
#: answer that is lacking changes what is planned.
ANSWER_S = 60.0
#: Exit status of a command that was stopped because it did not answer; as timeout(1) has it.
TIMED_OUT = 124
#: A file that is not there, or an attribute that has no value now (a GID slot that is empty, the
#: speed of a port that is down, a device that went away): absent, not a defect of the reading.
_ABSENT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENODEV, errno.ENODATA, errno.EOPNOTSUPP, errno.ELOOP, errno.ESRCH}
    | {errno.EISDIR, errno.ENXIO}
)
_MAX_LINKS = 40
#: Where tools live that a non-login, non-root PATH lacks.
_TOOL_PATH = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/mellanox/iproute2/sbin",
)


class Output(NamedTuple):
    """What a command answered."""

    stdout: str
    stderr: str
    rc: int
    recorded: bool

    @property
    def text(self) -> str:
        """Both streams, for tools that say why on either. To a parser, a text without a last newline was cut off:

        a recording may be, but a command that ended by itself said its last line to the end, newline or not.
        """
        if self.recorded:
            return self.stdout
        return "".join(
            stream if stream.endswith("\n") else f"{stream}\n" for stream in (self.stdout, self.stderr) if stream
        )


class Source:
    """One host, as far as it can be read. Paths are absolute paths on that host."""

    #: True: the machine itself, now. False: what somebody recorded.
    live = False
    #: Name of the host where no file tells it (a bundle's folder name).
    name: Optional[str] = None
    #: Environment of this run; empty for a bundle.
    environ: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.unread: list[dict[str, str]] = []
        self._outputs: dict[tuple[str, ...], Optional[Output]] = {}
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    # --- files ---------------------------------------------------------------------------------

    def read(self, path: str, quiet: bool = False) -> Optional[str]:
        """Text of a file. `quiet`: not being allowed to read it is nothing to tell anybody."""
        data = self.read_bytes(path, READ_LIMIT + 1, quiet)
        if data is None:
            return None
        if len(data) > READ_LIMIT:
            self.note(path, f"only the first {READ_LIMIT} bytes were read")
            data = data[:READ_LIMIT]
        return data.decode("utf-8", "replace")

    def read_bytes(self, path: str, limit: int, quiet: bool = False) -> Optional[bytes]:
        located = self._locate(path)
        if located is None:
            return None
        try:
            with open(located, "rb", buffering=0) as handle:
                chunks: list[bytes] = []
                left = limit
                while left > 0:  # procfs and sysfs answer in pieces
                    chunk = handle.read(min(left, 1024 * 1024))
                    if not chunk:
                        break
                    chunks.append(chunk)
                    left -= len(chunk)
                return b"".join(chunks)
        except OSError as exc:
            if not quiet:
                self._note_error(path, exc)
            return None

    def exists(self, path: str) -> bool:
        located = self._locate(path)
        return located is not None and os.path.exists(located)

    def isdir(self, path: str) -> bool:
        located = self._locate(path)
        return located is not None and os.path.isdir(located)

    def listdir(self, path: str) -> list[str]:
        located = self._locate(path)
        if located is None:
            return []
        try:
            return sorted(os.listdir(located))
        except OSError as exc:
            self._note_error(path, exc)
            return []

    def realpath(self, path: str) -> Optional[str]:
        """The path with every link followed, as on the host; also where the end of a recorded link was not recorded."""
        raise NotImplementedError

    def _locate(self, path: str) -> Optional[str]:
        """Path on this machine from which `path` of the host is read."""
        raise NotImplementedError

    # --- commands ------------------------------------------------------------------------------

    def run(self, argv: Sequence[str], timeout: float = ANSWER_S) -> Optional[Output]:
        """Answer of a read-only command; asked once, however many sections want it."""
        key = tuple(argv)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._outputs:
                self._outputs[key] = self._run(key, timeout)
            return self._outputs[key]

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """`function` over `items`, at the same time where waiting for the host is what takes long."""
        return [function(item) for item in items]

    def prefetch(self, commands: Iterable[Sequence[str]], timeout: float = ANSWER_S) -> None:
        """Have slow commands under way before somebody waits for them."""

    def tool(self, name: str) -> Optional[str]:
        """Path of an installed tool; None where it is not installed or this source cannot know."""
        return None

    def recorded(self, prefix: str) -> list[str]:
        """Names of recorded outputs that begin with `prefix`; for outputs per device whose devices no file lists."""
        return []

    def read_recorded(self, name: str) -> Optional[str]:
        """A recorded output by its file name."""
        return None

    def _run(self, argv: tuple[str, ...], timeout: float) -> Optional[Output]:
        raise NotImplementedError

    # --- what could not be read ----------------------------------------------------------------

    def note(self, source: str, reason: str) -> None:
        entry = {"source": source, "reason": reason}
        if entry not in self.unread:
            self.unread.append(entry)

    def _note_error(self, path: str, exc: OSError) -> None:
        if exc.errno not in _ABSENT:
            self.note(path, exc.strerror or str(exc))


class LiveSource(Source):
    """This machine. In tests `root` stands in for `/`, and `environ["PATH"]` alone says which tools there are."""

    live = True

    def __init__(self, root: str = "/", environ: Optional[Mapping[str, str]] = None) -> None:
        super().__init__()
        self.root = os.path.abspath(root)
        self.environ = dict(os.environ if environ is None else environ)
        inherited = [entry for entry in self.environ.get("PATH", "").split(os.pathsep) if entry]
        self._path = os.pathsep.join(dict.fromkeys([*inherited, *(_TOOL_PATH if self.root == "/" else ())]))

    def _locate(self, path: str) -> Optional[str]:
        return path if self.root == "/" else _inside(self.root, path)

    def realpath(self, path: str) -> Optional[str]:
        if self.root != "/":
            return host_path(self.root, path)
        return os.path.realpath(path) if os.path.lexists(path) else None

    def tool(self, name: str) -> Optional[str]:
        return shutil.which(name, path=self._path)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        wanted = list(items)
        if len(wanted) < 2:
            return [function(item) for item in wanted]
        with concurrent.futures.ThreadPoolExecutor(max_workers=min(8, len(wanted))) as pool:
            return list(pool.map(function, wanted))

    def prefetch(self, commands: Iterable[Sequence[str]], timeout: float = ANSWER_S) -> None:
        for argv in commands:
            threading.Thread(target=self.run, args=(tuple(argv), timeout), daemon=True).start()

    def _run(self, argv: tuple[str, ...], timeout: float) -> Optional[Output]:
        tool = self.tool(argv[0])
        if tool is None:
            return None
        label = " ".join(argv)
        environ = {key: value for key, value in self.environ.items() if key not in ("LANG", "LANGUAGE")}
        environ.update(LC_ALL="C", PATH=self._path, PAGER="cat", SYSTEMD_PAGER="cat", TERM="dumb")
        try:
            process = subprocess.Popen(
                [tool, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environ,
                cwd="/",
                close_fds=True,
                start_new_session=True,
            )
        except OSError as exc:
            self.note(label, f"could not be started: {exc.strerror or exc}")
            return None
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _stop(process)
            reason = f"no answer within {timeout:g} s"
            self.note(label, reason)
            # What it printed so far is dropped: half an answer reads like a whole one.
            return Output("", reason, TIMED_OUT, False)
        return Output(stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"), process.returncode, False)


class BundleSource(Source):
    """One host's folder of a support bundle. Nothing outside the folder is ever read, whatever its links say."""

    live = False

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = os.path.abspath(directory)
        self.name = os.path.basename(self.directory)
        self._root = os.path.join(self.directory, "root")
        # Links inside it are followed as on the host; the folder itself must be a folder.
        self._linked = os.path.islink(self._root)
        if self._linked:
            self.note("root", "it is a link and not part of the recording; not followed")
        try:
            self._names = frozenset(os.listdir(self.directory))
        except OSError as exc:
            self._names = frozenset()
            self.note(self.directory, exc.strerror or str(exc))
        self._statuses = self._recorded_statuses()

    def _recorded_statuses(self) -> dict[str, int]:
        """Exit statuses where the recording has them; without them a command counts as having succeeded."""
        text = self.read_recorded(COMMANDS_FILE)
        if text is None:
            return {}
        try:
            commands = json.loads(text)
            return {name: int(command["rc"]) for name, command in commands.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            self.note(COMMANDS_FILE, f"not readable: {exc}")
            return {}

    def _locate(self, path: str) -> Optional[str]:
        return None if self._linked else _inside(self._root, path)

    def realpath(self, path: str) -> Optional[str]:
        return None if self._linked else host_path(self._root, path)

    def recorded(self, prefix: str) -> list[str]:
        names = (name for name in self._names if name.startswith(prefix))
        return sorted(name for name in names if os.path.isfile(os.path.join(self.directory, name)))

    def tool(self, name: str) -> Optional[str]:
        return next((path for path in (f"{folder}/{name}" for folder in _TOOL_PATH) if self.exists(path)), None)

    def read_recorded(self, name: str) -> Optional[str]:
        located = _inside(self.directory, "/" + name) if name in self._names else None
        if located is None or not os.path.isfile(located):
            return None
        try:
            with open(located, "rb") as handle:
                return handle.read(READ_LIMIT).decode("utf-8", "replace")
        except OSError as exc:
            self._note_error(name, exc)
            return None

    def _run(self, argv: tuple[str, ...], timeout: float) -> Optional[Output]:
        for name in bundle_name(argv):
            text = self.read_recorded(name)
            if text is not None:
                return Output(text, "", self._statuses.get(name, 0), True)
        return None


# --- links inside a tree that stands in for / ----------------------------------------------------


def host_path(root: str, path: str, seen: Optional[Callable[[str, str], None]] = None) -> Optional[str]:
    """`path` with links followed as if `root` were `/`; None where it, or a folder on the way to it, is not there.

    `seen` is told each link on the way and what it says.
    """
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    done: list[str] = []
    links = 0
    through_link = False
    while pending:
        part = pending.pop()
        if part == "..":
            if done:
                done.pop()
            continue
        here = os.path.join(root, *done, part)
        try:
            target = os.readlink(here)
        except OSError as exc:
            if exc.errno != errno.EINVAL and not through_link:
                return None
            done.append(part)
            continue
        if seen is not None:
            seen("/" + "/".join([*done, part]), target)
        links += 1
        if links > _MAX_LINKS:
            return None
        if target.startswith("/"):
            done = []
        # Past a link, the rest may be unrecorded: a copy keeps the link and not always what it leads to.
        through_link = through_link or not pending
        pending.extend(piece for piece in reversed(target.split("/")) if piece not in ("", "."))
    return "/" + "/".join(done)


def _inside(root: str, path: str) -> Optional[str]:
    resolved = host_path(root, path)
    return None if resolved is None else os.path.join(root, resolved.lstrip("/"))


def _stop(process: subprocess.Popen[Any]) -> None:
    """End a command that did not answer, and never wait on one that cannot be ended (a hung driver call)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass  # it ended meanwhile
    try:
        process.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
