# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""show_gids of mlnx-tools (a shell script over sysfs)."""

from __future__ import annotations

from railyard_lab import ports, tree_rdma
from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    state = _common.snapshot()
    live = _common.live(state)
    print("DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV")
    print("---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---")
    count = 0
    for nic in tree_rdma.devices(state) if "mlx5_ib" in state["modules"] else []:
        if argv and nic["rdma"] not in argv[0].split():
            continue
        # `ls` sorts indexes as text: 0, 1, 10, 11, 2 …
        for entry in sorted(ports.view(state, nic, live)["gids"], key=lambda item: str(item["index"])):
            gid = entry["gid"]
            if gid in (ports.ZERO_GID, "fe80" + ports.ZERO_GID[4:]):
                continue
            version = next((word for word in ("v1", "v2") if entry["type"].endswith(word)), "")
            netdev = entry["netdev"] or ""
            start = f"{nic['rdma']}\t1\t{entry['index']}\t{gid}\t"
            if gid.startswith("0000"):
                digits = gid.replace(":", "")[-8:]
                address = ".".join(str(int(digits[i : i + 2], 16)) for i in range(0, 8, 2))
                print(f"{start}{address}  \t{version}\t{netdev}")
            else:
                print(f"{start}\t\t{version}\t{netdev}")
            count += 1
    print(f"n_gids_found={count}")
    return 0
