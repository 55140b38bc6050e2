# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room in the controller's kernel for so many systemds: settings that all containers draw on together."""

from __future__ import annotations

from pathlib import Path

PROC_SYS = Path("/proc/sys")

# setting → (what the controller keeps for itself, what one node takes). A systemd that gets no inotify instance dies.
NEEDS = {
    "fs/inotify/max_user_instances": (128, 16),
    "fs/inotify/max_user_watches": (65536, 4096),
}


class RoomError(RuntimeError):
    """The kernel did not take a value."""


def needed(nodes: int) -> dict[str, int]:
    return {setting: base + each * nodes for setting, (base, each) in NEEDS.items()}


def make(nodes: int, proc_sys: Path = PROC_SYS) -> dict[str, tuple[int, int]]:
    """Raise what is too low, never lower anything; returns setting → (before, after)."""
    raised = {}
    for setting, wanted in needed(nodes).items():
        path = proc_sys / setting
        before = int(path.read_text())
        if before >= wanted:
            continue
        try:
            path.write_text(f"{wanted}\n")
        except OSError as error:
            key = setting.replace("/", ".")
            raise RoomError(
                f"{nodes} nodes need {key}={wanted}, it is {before} and cannot be raised: {error.strerror}"
            ) from error
        raised[setting.replace("/", ".")] = (before, wanted)
    return raised
