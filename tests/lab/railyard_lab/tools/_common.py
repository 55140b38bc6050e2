# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every stand-in needs: the state, and the live interfaces beside it."""

from __future__ import annotations

import os
import sys
from typing import Any

from railyard_lab import interfaces
from railyard_lab import state as state_file


def snapshot() -> dict[str, Any]:
    """The state, brought up to date with the interfaces; a user who may not write sees it as it was last."""
    try:
        with state_file.reading() as state:
            return state
    except PermissionError:
        return state_file.load()


def live(state: dict[str, Any]) -> dict[str, interfaces.Interface]:
    return interfaces.current(state)


def error(text: str) -> None:
    print(text, file=sys.stderr)


def run_real(name: str, argv: list[str]) -> int | None:
    """Become the distribution's program of this name; None where there is none."""
    from railyard_lab import toolbox

    path = toolbox.real_path(name)
    if path is None:
        return None
    sys.stdout.flush()
    os.execv(str(path), [str(path), *argv])
    return None
