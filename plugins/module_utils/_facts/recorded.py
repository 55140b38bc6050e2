# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Texts of a bundle by name, for what has no facts of its own (an `apt update`, a `modprobe` that failed)."""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.files import redact
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import COMMANDS_FILE, Source

__all__ = ["collect"]

#: Longer ones are read by their own section, not as text.
_LIMIT = 262144


def collect(source: Source) -> dict[str, str]:
    found = {}
    for name in source.recorded(""):
        if name == COMMANDS_FILE:
            continue
        text = source.read_recorded(name)
        if text is not None and len(text) <= _LIMIT:
            found[name.rsplit(".", 1)[0]] = redact(text)
    return found
