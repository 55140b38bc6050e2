# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of `lab.yml` at a time: the lock belongs to the ansible-playbook process and dies with it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

WAIT_S = 600
POLL_S = 0.5


class LockError(RuntimeError):
    """Another run holds the lab for too long."""


def parent_of(pid: int) -> int:
    # The command name may hold spaces and brackets; what follows the last one is fixed.
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def started(pid: int) -> str:
    """When the process started, in clock ticks: with its id it names one process for good. Empty: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""


def playbook_process() -> int:
    """The outermost ansible-playbook above this process, or its parent where there is none."""
    found, pid = os.getppid(), os.getppid()
    while pid > 1:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(part.endswith(b"ansible-playbook") for part in argv):
            found = pid
        pid = parent_of(pid)
    return found


def holder(text: str) -> str:
    """`pid start` of the living process that holds the lock; empty: free."""
    pid = text.split()[0] if text.split() else ""
    return text.strip() if pid.isdigit() and text.strip() == f"{pid} {started(int(pid))}" else ""


def take(path: Path) -> bool:
    """Wait for the lock and take it for the run; False: the run has it already."""
    pid = playbook_process()
    own = f"{pid} {started(pid)}"
    deadline = time.monotonic() + WAIT_S
    path.parent.mkdir(parents=True, exist_ok=True)
    current = ""
    while time.monotonic() < deadline:
        # The file lock guards reading and writing only; what it says lasts as long as the process that it names.
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            current = holder(file.read())
            if current == own:
                return False
            if not current:
                file.truncate(0)
                file.write(own + "\n")
                return True
        time.sleep(POLL_S)
    raise LockError(f"Another lab.yml (process {current.split()[0]}) has held the lab for {WAIT_S} s; wait for it.")
