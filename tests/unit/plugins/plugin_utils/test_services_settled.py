# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.packages import services_settled

WANTED = {"nvidia-persistenced.service": "started", "nvidia-fabricmanager.service": "stopped"}
UP, DOWN = {"active": True, "enabled": True}, {"active": False, "enabled": False}


@pytest.mark.parametrize(
    ("persistenced", "manager", "settled"),
    [
        (UP, DOWN, True),
        (UP, None, True),
        (UP, UP, False),
        (UP, {"active": False, "enabled": True}, False),
        ({"active": True, "enabled": False}, DOWN, False),
        (DOWN, DOWN, False),
        (None, DOWN, False),
    ],
)
def test_settled(persistenced: t.Any, manager: t.Any, settled: bool) -> None:
    seen = {"nvidia-persistenced": persistenced, "nvidia-fabricmanager": manager}
    machine = types.SimpleNamespace(facts={"services": {name: unit for name, unit in seen.items() if unit}})
    assert services_settled(t.cast(t.Any, machine), WANTED) is settled
