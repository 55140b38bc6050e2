"""How a run of many processes ends early: in order, once, and with what it started taken away.

Ctrl-C, SIGTERM and a terminal that is closed all mean the same: stop, then clean up. The first one raises
KeyboardInterrupt; more of them, also those that come to the whole process group, do not disturb the cleaning up.
"""

from __future__ import annotations

import signal
import subprocess
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 120


def arm() -> None:
    """From now on, the first of these signals raises KeyboardInterrupt."""
    for number in SIGNALS:
        signal.signal(number, _stop)


def _stop(number: int, _frame: FrameType | None) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def run(
    command: list[str], *, timeout: float | None = None, capture: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run, but a child that is stopped gets the time to clean up after itself."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} if capture else {}
    with subprocess.Popen(command, text=True, errors="replace", **pipes, **options) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except BaseException:
            finish(child)
            raise
    return subprocess.CompletedProcess(command, child.returncode, out or "", err or "")


def finish(child: subprocess.Popen[str]) -> None:
    """Ask a child to end and wait for it; insist after a while."""
    if child.poll() is None:
        child.terminate()
        try:
            child.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
