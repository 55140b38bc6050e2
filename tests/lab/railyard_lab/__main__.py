# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys

from railyard_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
