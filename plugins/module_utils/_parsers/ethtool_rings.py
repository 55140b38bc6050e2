# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool -g``: ring sizes, as text or as ``--json``.

Value::

    {"interfaces": [{"netdev", "maximum": {"rx", "rx_mini", "rx_jumbo", "tx", …}, "current": {…}}], "errors": [...]}

``n/a`` leaves the member out; switches such as ``tx_push`` are booleans.
"""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._ethtool_limits import Limits

_READER = Limits("-g", "Ring parameters", "ring")


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool -g``."""
    return _READER.parse(text)
