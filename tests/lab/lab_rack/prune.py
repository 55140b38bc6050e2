# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forget images and repositories that no rack uses any more; each change to their inputs leaves one of each behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from . import engine

REPOSITORY = "localhost/railyard-lab"


def rack_directories(cache: Path) -> list[Path]:
    """Directories of the racks that are described, the default one and the others."""
    return [path.parent for path in (cache / "rack.json", *sorted(cache.glob("racks/*/rack.json"))) if path.exists()]


def in_use(cache: Path) -> tuple[set[str], set[str]]:
    """Hashes of the images and of the repositories that racks refer to."""
    images, repositories = set(), set()
    for directory in rack_directories(cache):
        images.add(json.loads((directory / "rack.json").read_text())["image"].rsplit(":", 1)[1])
        www = directory / "www"
        if www.is_symlink():
            repositories.add(www.readlink().parent.name)
    return images, repositories


def leftovers(cache: Path) -> list[Path]:
    images, repositories = in_use(cache)
    found = [path for path in sorted(cache.glob("images/*")) if path.name not in images]
    return found + [path for path in sorted(cache.glob("repositories/*")) if path.name not in repositories]


def prune(cache: Path, engine_name: str) -> list[str]:
    """Remove them. Of the engine's images, which all checkouts share, only those that this one has made."""
    removed = []
    for path in leftovers(cache):
        if path.parent.name == "images" and not forgotten(engine_name, f"{REPOSITORY}:{path.name}"):
            continue
        shutil.rmtree(path)
        removed.append(str(path))
    return removed


def forgotten(engine_name: str, image: str) -> bool:
    """Remove an image; False: a container still uses it."""
    if engine.run([engine_name, "image", "inspect", image]).returncode:
        return True
    return engine.run([engine_name, "rmi", image]).returncode == 0
