# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The repository's builder is a program, not a package; its modules import each other by their plain names.
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "lab/repo")]
