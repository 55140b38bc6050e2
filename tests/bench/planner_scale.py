#!/usr/bin/env python3
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan and judge a rack of many hosts on one core, and show that the time grows with the number of hosts.

usage: planner_scale.py [HOSTS]     prints `planner hosts=N seconds=S mib=M growth=G` and exits 1 over 20 s or 1 GiB.

growth is the time per host of the whole rack over that of a quarter of it: near 1 is linear.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT / "tests/unit/plugins/plugin_utils/planner")]

import boxes

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate

LIMIT_S, LIMIT_MIB = 20.0, 1024


def seconds(hosts: int) -> float:
    facts = {}
    for n in range(1, hosts + 1):
        box = boxes.hgx_h100()
        box.facts["netdevs"]["eno1"]["addresses"] = [f"10.{n >> 8}.{n & 255}.1/16"]
        facts[f"gpu-{n:04d}"] = box.facts
    intent = {"gpu_fabric_rail_ipv4_prefix": 20}
    intents = dict.fromkeys(facts, intent)
    started = time.process_time()
    plan = boxes.plan_rack(intents, facts, {host: {} for host in facts})
    plan["findings"] = evaluate(facts, plan, intents)
    return time.process_time() - started


def main() -> int:
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    quarter = seconds(hosts // 4)
    whole = seconds(hosts)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"planner hosts={hosts} seconds={whole:.1f} mib={mib} growth={whole / (4 * quarter):.2f}")
    return int(whole > LIMIT_S or mib > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
