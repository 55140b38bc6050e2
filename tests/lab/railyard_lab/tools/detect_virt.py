# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd-detect-virt: what this machine would answer were it not a container."""

from __future__ import annotations

from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    quiet = bool({"-q", "--quiet"} & set(argv))
    answer = _common.snapshot()["virtualization"]
    if {"-c", "--container"} & set(argv):
        answer = "none"
    if {"-r", "--chroot", "--private-users", "--cvm"} & set(argv):
        return 1
    if not quiet:
        print(answer)
    return 0 if answer != "none" else 1
