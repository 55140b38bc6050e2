# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes `tests/unit/support` importable: `from sysfs_trees import …`; no test goes by the clock."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# A busy machine must not fail an example for being slow.
settings.register_profile("railyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("railyard")

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))
