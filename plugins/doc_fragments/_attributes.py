# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

from __future__ import annotations


class ModuleDocFragment:
    # What every module that only reads has in common.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    support: full
    description: Reads only, so that it does in C(check_mode) what it always does.
  diff_mode:
    support: N/A
    description: Changes nothing, so that there is no difference to show.
  idempotent:
    support: full
    description: Never reports a change.
"""
