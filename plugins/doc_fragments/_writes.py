# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

from __future__ import annotations


class ModuleDocFragment:
    # What every module that writes a host has in common.
    DOCUMENTATION = r"""
options: {}
notes:
  - Modules of this collection that write a host take turns on it. One that finds another run at work waits for 60
    seconds, then fails with nothing changed and names the other's process; the lock is
    C(/run/gpu_fabric/writer.lock). Check mode does not wait.
attributes:
  check_mode:
    support: full
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    support: full
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)) in diff mode.
  idempotent:
    support: full
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
"""
