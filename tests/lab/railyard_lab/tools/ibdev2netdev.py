# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ibdev2netdev of OFED (a shell script over sysfs)."""

from __future__ import annotations

from typing import Any

from railyard_lab import catalogue, ports, tree_rdma
from railyard_lab.tools import _common

_USAGE = (
    "ibdev2netdev <options>\n-h, --help                print help message\n-v, --verbose             print more info"
)


def _product(nic: dict[str, Any]) -> tuple[str, str]:
    """Description and part number as the script finds them among the strings of the VPD."""
    model = catalogue.NICS[nic["model"]]
    if not model.get("product"):
        return "", "NA"
    # IFS=":" splits the strings that the script echoes; the description itself has no colon.
    return f"{model['product']:<15}", f"{model['part']:<11}"


def main(name: str, argv: list[str]) -> int:
    if argv[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    if len(argv) > 1 or (argv and argv != ["-v"]):
        print(_USAGE)
        return 255
    state = _common.snapshot()
    live = _common.live(state)
    if "mlx5_ib" not in state["modules"]:
        return 255
    for nic in tree_rdma.devices(state):
        port = ports.view(state, nic, live)
        interface = port["interface"]
        if not nic["netdev"] or (interface is None and port["link_layer"] == "Ethernet"):
            continue
        if port["link_layer"] == "InfiniBand" and "ib_ipoib" not in state["modules"]:
            continue
        up = bool(port["up"] and (interface is not None and interface.carrier))
        link = "Up" if up else "Down"
        if not argv:
            print(f"{nic['rdma']} port 1 ==> {nic['netdev']} ({link})")
            continue
        described, part = _product(nic)
        number = int(catalogue.NICS[nic["model"]]["device"], 16)
        print(
            f"{nic['pci']} {nic['rdma']} (MT{number} - {part}) {described} fw {nic['firmware']} "
            f"port 1 ({ports.STATES[port['state']]:<6}) ==> {nic['netdev']} ({link})"
        )
    return 0
