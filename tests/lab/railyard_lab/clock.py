# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time since the node came up."""

from __future__ import annotations

import time

from railyard_lab import state as state_file


def uptime() -> float:
    """Seconds since this node's boot, which is when its tree was built; the machine's own where there is none."""
    mark = state_file.root() / "run/gpu-fabric-lab/booted"
    try:
        return max(0.0, time.time() - mark.stat().st_mtime)
    except OSError:
        return time.monotonic()
