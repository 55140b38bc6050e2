# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names for cached things: a hash over what they are made of."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable
from pathlib import Path

_SKIP = {"__pycache__", ".pytest_cache", ".ruff_cache"}


def files_of(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file() and not _SKIP.intersection(p.parts))


def content_hash(paths: Iterable[Path], extra: Iterable[str] = ()) -> str:
    """Hash names, modes and bytes of `paths` (files or trees), and the strings of `extra`."""
    digest = hashlib.sha256()
    for root in paths:
        for path in files_of(root):
            relative = path.relative_to(root.parent).as_posix()
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            digest.update(f"{relative}\0{executable}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for text in extra:
        digest.update(f"\0{text}".encode())
    return digest.hexdigest()[:16]
