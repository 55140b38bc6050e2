# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The network managers' files on the host: those that the links need, and those of earlier runs, which go."""

from __future__ import annotations

import glob
import os
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import ORIGINAL, PRESENT, Wanted
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import managers


def wanted_files(contents: t.Mapping[str, str], mode: int) -> list[Wanted]:
    """Return what a FileSet is to bring about. In files that are needed no more stands what somebody else had there."""
    needed = [Wanted(path, PRESENT, text, mode=mode) for path, text in contents.items()]
    return needed + [Wanted(path, ORIGINAL) for path in stale_files(contents)]


def stale_files(keep: t.Collection[str]) -> list[str]:
    """Files of ours that no wanted link needs, whichever manager they were written for."""
    directories = [manager.renderer.DIRECTORY for manager in managers.MANAGERS.values()]
    directories += sorted(glob.glob(f"{managers.MANAGERS['networkd'].renderer.DIRECTORY}/*.network.d"))
    stale = []
    for directory in directories:
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            path = os.path.join(directory, name)
            ours = "gpu-fabric-" in name and path not in keep and not os.path.isdir(path)
            if ours and (read_text(path) or "").startswith(managers.HEADER):
                stale.append(path)
    return stale


__all__ = ("stale_files", "wanted_files")
