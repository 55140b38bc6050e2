# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Lock files of other programs: who holds one, and waiting. Holders are never ended, lock files never removed."""

from __future__ import annotations

import fcntl
import os
import struct
import time
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure

# struct flock on Linux: type, whence, start, length, pid.
_FLOCK = "hhqqi4x"


class Holder(t.NamedTuple):
    path: str
    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.path} is held by process {self.pid} ({self.command})" if self.pid else f"{self.path} is held"


def holder(path: str) -> Holder | None:
    """Who holds a lock on ``path``: a record lock as dpkg and apt take it, or flock(2) as scripts do."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            return Holder(path, pid, command_of(pid))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _flock_pid(os.fstat(descriptor).st_ino)
            return Holder(path, pid, command_of(pid))
        return None
    finally:
        os.close(descriptor)


def _flock_pid(inode: int) -> int:
    # 1: FLOCK  ADVISORY  WRITE 1234 00:2a:5678 0 EOF
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as stream:
            for line in stream:
                words = line.split()
                if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
                    return int(words[4])
    except (OSError, ValueError):
        return 0
    return 0


def command_of(pid: int) -> str:
    """The command line of a process, as a person would look for it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            words = stream.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return "command unknown"
    return " ".join(" ".join(words).split())[:200] or "command unknown"


def wait_for(
    paths: t.Sequence[str],
    deadline_s: float,
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
) -> None:
    """Wait until no lock is held, for ``deadline_s`` seconds at most."""
    end = clock() + deadline_s
    while True:
        held = next((found for found in map(holder, paths) if found is not None), None)
        if held is None:
            return
        if clock() >= end:
            raise Failure(
                f"{held}, for longer than {deadline_s:g} s. Let it end (unattended upgrades and cloud-init do so by "
                "themselves), then run this again; or allow more time with lock_timeout_s.",
                pid=held.pid,
                command=held.command,
            )
        sleep(min(1.0, max(0.05, end - clock())))


__all__ = ("Holder", "command_of", "holder", "wait_for")
