# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Locks of other programs and the one of this collection: who holds one, and waiting.

Holders are never ended, lock files never removed.

Modules that write a host take turns by :func:`only_writer`: they compare, remember first values and write, and of two
that did so at once one would keep what the other had just written as what was there before. Whoever only reads (facts,
check mode) neither takes the lock nor waits for it.

``gpu-fabric-nic``, which boot and udev start, does not take it either. It may run because of the module that holds it
(which reset a card, or starts a service that systemd orders after the port's unit), and would wait for a module that
waits for it. Nor does it need to: it keeps no first values, reads a configuration that is replaced in one piece, and
writes what the module writes. The timer that takes a change of the management interface back has to strike whatever
else hangs, so it takes no lock; until it has, ``fabric_links`` refuses by itself to build upon that change.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import time
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import (
    STATE_DIRECTORY,
    Failure,
    make_directories,
)

#: How long a module waits for another one that writes the same host.
WAIT_S = 60
#: Emptied by a boot, as a lock may be.
RUNTIME_DIRECTORY = "/run/gpu_fabric"
# struct flock on Linux: type, whence, start, length, pid.
_FLOCK = "hhqqi4x"


class Holder(t.NamedTuple):
    path: str
    pid: int
    command: str
    #: Since when, where the holder left word.
    since: str = ""

    def __str__(self) -> str:
        who = f" by process {self.pid} ({self.command})" if self.pid else ""
        return f"{self.path} is held{who}{self.since and f' since {self.since}'}"


def holder(path: str) -> Holder | None:
    """Who holds a lock on ``path``: a record lock as dpkg and apt take it, or flock(2) as scripts do."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    # Nor does a file system that keeps no locks (NFS without its lock manager, some of sandboxes) tell of one.
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            return Holder(path, pid, command_of(pid))
        return _flock(descriptor, path)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _flock(descriptor: int, path: str) -> Holder | None:
    """Take flock(2) on an open file, until it is closed; where somebody else has it, return who."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _flock_pid(os.fstat(descriptor))
        return Holder(path, pid, command_of(pid))
    return None


def _flock_pid(found: os.stat_result) -> int:
    # 1: FLOCK  ADVISORY  WRITE 1234 00:2a:5678 0 EOF
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    pids: dict[str, int] = {}
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as stream:
            for line in stream:
                words = line.split()
                if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{found.st_ino}"):
                    pids[words[5].rpartition(":")[0]] = int(words[4])
    except (OSError, ValueError):
        return 0
    # Some file systems (overlayfs, btrfs) show another device there than stat does.
    return pids.get(device, next(iter(pids.values()), 0))


def command_of(pid: int) -> str:
    """The command line of a process, as a person would look for it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            words = stream.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return "command unknown"
    return " ".join(" ".join(words).split())[:200] or "command unknown"


def _until_free(
    ask: t.Callable[[], Holder | None],
    deadline_s: float,
    clock: t.Callable[[], float],
    sleep: t.Callable[[float], None],
) -> Holder | None:
    """Ask until nobody holds the lock, for ``deadline_s`` seconds at most; who holds it still."""
    end = clock() + deadline_s
    while True:
        held = ask()
        if held is None or clock() >= end:
            return held
        sleep(min(1.0, max(0.05, end - clock())))


def wait_for(
    paths: t.Sequence[str],
    deadline_s: float,
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
) -> None:
    """Wait until no lock is held, for ``deadline_s`` seconds at most."""
    held = _until_free(
        lambda: next((found for found in map(holder, paths) if found is not None), None), deadline_s, clock, sleep
    )
    if held is not None:
        raise Failure(
            f"{held}, for longer than {deadline_s:g} s. Let it end (unattended upgrades and cloud-init do so by "
            "themselves), then run this again; or allow more time with lock_timeout_s.",
            pid=held.pid,
            command=held.command,
        )


def lock_path() -> str:
    """The lock of this collection's writing modules on this host."""
    running = os.path.isdir(os.path.dirname(RUNTIME_DIRECTORY))
    return os.path.join(RUNTIME_DIRECTORY if running else STATE_DIRECTORY, "writer.lock")


@contextlib.contextmanager
def only_writer(
    name: str,
    check_mode: bool = False,
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
) -> t.Iterator[None]:
    """Be the only module of this collection that writes this host; ``name`` tells others who does.

    The kernel takes the lock back when the process ends, however it does. Commands that it runs do not inherit it.
    """
    if check_mode:
        yield
        return
    path = lock_path()
    make_directories(os.path.dirname(path))
    try:
        # Whoever may open the file may lock it: root alone.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise Failure(f"Cannot open the lock {path}: {exc.strerror}. It takes root to change a host: become") from exc
    try:
        try:
            held = _until_free(lambda: _flock(descriptor, path), WAIT_S, clock, sleep)
        except OSError as exc:
            raise Failure(
                f"Cannot lock {path}: {exc.strerror}. Nothing was changed: another run could not be told. The file "
                "system there keeps no locks; findmnt -T shows which it is, a tmpfs at /run has them"
            ) from exc
        if held is not None:
            held = _introduced(held, descriptor)
            raise Failure(
                f"Another run changes this host: {held}. It did not end within {WAIT_S:g} s, and nothing was changed. "
                "Let it come to its end, then run this again. Where it hangs, end that process; the lock goes with it",
                lock=path,
                pid=held.pid,
                command=held.command,
            )
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        # Only words for who has to wait: a file system that is full keeps the lock all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"module": name, "pid": os.getpid(), "since": since}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _introduced(held: Holder, descriptor: int) -> Holder:
    """The holder by what it wrote into its lock; its command line may be no more than that of an interpreter."""
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
        pid = held.pid or int(told["pid"])
        return Holder(held.path, pid, f"{told['module']}: {command_of(pid)}", str(told["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return held


__all__ = ("Holder", "command_of", "holder", "lock_path", "only_writer", "wait_for")
