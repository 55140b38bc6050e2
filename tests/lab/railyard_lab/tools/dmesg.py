# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dmesg of util-linux: the kernel log of this hardware."""

from __future__ import annotations

import json
import time

from railyard_lab import clock
from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    flags = {letter for word in argv if word.startswith("-") and not word.startswith("--") for letter in word[1:]}
    state = _common.snapshot()
    booted = time.time() - clock.uptime()
    if "J" in flags or "--json" in argv:
        entries = [{"pri": 6, "time": f"{when:12.6f}", "msg": text} for when, text in state["dmesg"]]
        print(json.dumps({"dmesg": entries}, indent=3))
        return 0
    for when, text in state["dmesg"]:
        prefix = f"[{when:12.6f}] "
        if "T" in flags or "--ctime" in argv:
            prefix = f"[{time.strftime('%a %b %e %H:%M:%S %Y', time.localtime(booted + when))}] "
        elif "t" in flags or "--notime" in argv:
            prefix = ""
        if "x" in flags or "--decode" in argv:
            prefix = f"kern  :{'err' if 'Xid' in text else 'info':<6}: " + prefix
        print(prefix + text)
    return 0
