# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inotify: which of the tree's files a host writes, so that they soon read as the kernel would show them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

IN_CLOSE_WRITE = 0x8
IN_NONBLOCK = os.O_NONBLOCK


class Watch:
    """A descriptor that becomes readable when one of the files was written and closed."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._libc.inotify_init1(IN_NONBLOCK)
        if self.descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"inotify_init1: {os.strerror(number)}")

    def follow(self, paths: Iterable[Path]) -> None:
        """Follow these files; those that are followed already stay so, and those that are not there are left out."""
        for path in paths:
            self._libc.inotify_add_watch(self.descriptor, os.fsencode(path), IN_CLOSE_WRITE)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 65536):
                pass
