# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ethtool -l``: queues of an interface, as text or, from later releases, as ``--json``.

Value::

    {"interfaces": [{"netdev", "maximum": {"rx", "tx", "other", "combined"}, "current": {…}}], "errors": [...]}

``n/a`` leaves the member out.  Most drivers have ``combined`` ones only: a pair of a receive and a send queue each.
"""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._ethtool_limits import Limits

_READER = Limits("-l", "Channel parameters", "channel")


def parse(text: str) -> Parsed:
    """Read the output of ``ethtool -l``."""
    return _READER.parse(text)
