# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dkms: status of the modules which the stand-in packages registered."""

from __future__ import annotations

import os

from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    state = _common.snapshot()
    if argv[:1] == ["--version"]:
        print("dkms-3.0.10")
        return 0
    if argv[:1] != ["status"]:
        done = _common.run_real("dkms", argv)
        if done is None:
            _common.error(f"Error! Unknown action specified: {' '.join(argv)}")
        return 1
    wanted = [word.split("/")[0] for word in argv[1:] if not word.startswith("-")]
    for index, word in enumerate(argv):
        if word == "-m" and index + 1 < len(argv):
            wanted = [argv[index + 1].split("/")[0]]
    for module, version, status in sorted(state["dkms"]):
        if wanted and module not in wanted:
            continue
        if status == "add":
            print(f"{module}/{version}: added")
        else:
            print(f"{module}/{version}, {os.uname().release}, {os.uname().machine}: {status}")
    return 0
