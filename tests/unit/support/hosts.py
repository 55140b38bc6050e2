# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts for tests: recorded ones of given files, live ones of a tree and stand-in commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Union

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import BundleSource, LiveSource


def write(root: Path, files: dict[str, Union[str, bytes]]) -> Path:
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def recorded(directory: Path, files: dict[str, Union[str, bytes]] | None = None, name: str = "gpu-01") -> BundleSource:
    """A bundle's host folder: `root/etc/nccl.conf`, `ibstat.txt`."""
    folder = directory / name
    folder.mkdir(exist_ok=True)
    write(folder, files or {})
    return BundleSource(str(folder))


def live(
    directory: Path,
    files: dict[str, Union[str, bytes]] | None = None,
    commands: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
) -> LiveSource:
    """A machine whose `/` is a folder and whose only tools are the given shell scripts."""
    root, tools = directory / "live-root", directory / "live-bin"
    root.mkdir(exist_ok=True)
    tools.mkdir(exist_ok=True)
    write(root, files or {})
    for name, script in (commands or {}).items():
        path = tools / name
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    return LiveSource(str(root), environ={"PATH": str(tools), **(environ or {})})


def link(root: Path, path: str, target: str) -> None:
    here = root / path.lstrip("/")
    here.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target, here)
