# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ibstatus of infiniband-diags (a shell script over sysfs)."""

from __future__ import annotations

from railyard_lab import ports, tree_rdma
from railyard_lab.tools import _common


def main(name: str, argv: list[str]) -> int:
    state = _common.snapshot()
    live = _common.live(state)
    nics = tree_rdma.devices(state) if "mlx5_ib" in state["modules"] else []
    if not nics:
        _common.error("Fatal error:  No InfiniBand devices found or InfiniBand stack not loaded" if argv else
                      "Fatal error:  device '*': sys files not found (/sys/class/infiniband/*/ports)")  # fmt: skip
        return 1
    for word in argv:
        device = word.split(":")[0]
        if device not in [nic["rdma"] for nic in nics]:
            print(f"Fatal error:  device '{device}': sys files not found (/sys/class/infiniband/{device}/ports)")
            return 1
    wanted = {word.split(":")[0] for word in argv}
    for nic in nics:
        if wanted and nic["rdma"] not in wanted:
            continue
        port = ports.view(state, nic, live)
        gid = next((entry["gid"] for entry in port["gids"] if entry["index"] == 0), ports.ZERO_GID)
        print(f"Infiniband device '{nic['rdma']}' port 1 status:")
        print(f"\tdefault gid:\t {gid}")
        print(f"\tbase lid:\t 0x{port['lid']:x}")
        print(f"\tsm lid:\t\t 0x{port['sm_lid']:x}")
        print(f"\tstate:\t\t {port['state']}: {ports.STATES[port['state']]}")
        print(f"\tphys state:\t {port['phys_state']}: {ports.PHYSICAL[port['phys_state']]}")
        print(f"\trate:\t\t {port['rate_text']}")
        print(f"\tlink_layer:\t {port['link_layer']}")
        print()
    return 0
