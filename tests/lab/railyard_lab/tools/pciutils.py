# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""lspci and setpci: the distribution's own, over our tree; nothing is stood in for."""

from __future__ import annotations

from railyard_lab import interfaces, tree
from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    _common.snapshot()
    where = [] if interfaces.is_node() else ["-O", f"sysfs.path={tree.base()}/sys/bus/pci"]
    if _common.run_real(name, [*where, *argv]) is None:
        _common.error(f"-bash: {name}: command not found")
    return 127
