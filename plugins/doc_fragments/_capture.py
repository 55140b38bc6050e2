# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

from __future__ import annotations


class ModuleDocFragment:
    # Options of the modules that read a recorded output instead of the host.
    DOCUMENTATION = r"""
options:
  capture:
    description:
      - Read what was recorded instead of asking the host.
      - A file is one recorded output, whatever its name. Warnings, banners and prompts in it are passed over; what was
        cut off or damaged is left out and told in RV(ignore:problems).
      - A folder is one host's folder of a support bundle, as C(playbooks/collect.yml) writes it, or a whole bundle, in
        which O(host) names the host.
    type: path
  host:
    description: The host whose folder of the bundle O(capture) is read. Not needed when the bundle holds one host.
    type: str
"""
