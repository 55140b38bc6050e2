# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""However a session ends, what it started ends with it: fixtures are torn down, and no rack of the tests stays up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import interruption


def pytest_configure() -> None:
    interruption.arm()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    rack = sys.modules.get("rack")
    # Not the rack of another session of this checkout, which may be in the middle of its tests.
    if rack is not None and rack.Rack.started and (rack.DIRECTORY / "rack.json").exists():
        rack.take_down(rack.DIRECTORY)
