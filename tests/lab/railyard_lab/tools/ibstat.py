# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""ibstat of infiniband-diags."""

from __future__ import annotations

from typing import Any

from railyard_lab import catalogue, ports, tree_rdma
from railyard_lab.tools import _common

LOGICAL = ["???", "Down", "Initializing", "Armed", "Active"]
PHYSICAL = [
    "No state change", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "PhyTest",
]  # fmt: skip


def _port(port: dict[str, Any], alone: bool) -> None:
    head, indent = ("", "") if alone else ("\t", "\t\t")
    print(f"{head}Port 1:")
    print(f"{indent}State: {LOGICAL[port['state']]}")
    print(f"{indent}Physical state: {PHYSICAL[port['phys_state']]}")
    print(f"{indent}Rate: {port['rate_gbps']}")
    print(f"{indent}Base lid: {port['lid']}")
    print(f"{indent}LMC: {port['lmc']}")
    print(f"{indent}SM lid: {port['sm_lid']}")
    print(f"{indent}Capability mask: 0x{port['capability_mask']:08x}")
    print(f"{indent}Port GUID: 0x{port['port_guid']}")
    print(f"{indent}Link layer: {port['link_layer']}")


def main(name: str, argv: list[str]) -> int:
    flags = {letter for word in argv if word.startswith("-") and not word.startswith("--") for letter in word[1:]}
    flags |= {{"--list_of_cas": "l", "--short": "s", "--port_list": "p"}.get(word, "") for word in argv}
    if "V" in flags or "--version" in argv:
        print("ibstat BUILD VERSION: 44.0")
        return 0
    words = [word for word in argv if not word.startswith("-")]
    state = _common.snapshot()
    if "ib_umad" not in state["modules"]:
        _common.error("ibpanic: [4242] main: can't init UMAD library: (No such file or directory)")
        return 255
    live = _common.live(state)
    nics = tree_rdma.devices(state) if "mlx5_ib" in state["modules"] else []
    if words:
        nics = [nic for nic in nics if nic["rdma"] == words[0]]
        if not nics:
            _common.error(f"ibpanic: [4242] main: '{words[0]}' IB device can't be found")
            return 255
    for nic in nics:
        port = ports.view(state, nic, live)
        if "p" in flags:
            print(f"0x{port['port_guid']}")
        elif "l" in flags:
            print(nic["rdma"])
        elif len(words) > 1 and "s" not in flags:
            if words[1] != "1":
                _common.error(f"ibwarn: [4242] ca_stat: CA: '{nic['rdma']}' has no port number {words[1]} - max (1)")
                _common.error(f"ibpanic: [4242] main: stat of IB device '{nic['rdma']}' failed")
                return 255
            print(f"CA: '{nic['rdma']}'")
            _port(port, alone=True)
        else:
            print(f"CA '{nic['rdma']}'")
            print(f"\tCA type: {catalogue.NICS[nic['model']]['hca_type']}")
            print("\tNumber of ports: 1")
            print(f"\tFirmware version: {nic['firmware']}")
            print("\tHardware version: 0")
            print(f"\tNode GUID: 0x{nic['node_guid']}")
            print(f"\tSystem image GUID: 0x{nic['sys_image_guid']}")
            if "s" not in flags:
                _port(port, alone=False)
    return 0
