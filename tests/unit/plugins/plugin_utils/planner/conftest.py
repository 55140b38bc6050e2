# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes ``from boxes import …`` work in the planner's tests, which pytest imports without packages."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

# The machine that runs this may be busy with other things; a slow example is not a wrong one.
settings.register_profile("planner", deadline=None)
settings.load_profile("planner")
sys.path.insert(0, str(Path(__file__).resolve().parent))
