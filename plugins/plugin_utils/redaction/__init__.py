# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replace what identifies a rack in a support bundle. Pure.

The same original always has the same replacement, whatever file and spelling it stands in, so the bundle can still be
diagnosed: addresses of one subnet stay in one subnet, equal GUIDs stay equal, a GID still holds its interface's
address. Replacements follow from a key that is made for one bundle and not kept.
"""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.redaction.redactor import Redactor

__all__ = ("Redactor",)
