# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ibv_devinfo and ibv_devices of rdma-core."""

from __future__ import annotations

import ipaddress
from typing import Any

from railyard_lab import catalogue, ports, tree_rdma
from railyard_lab.tools import _common

STATES = {1: "PORT_DOWN", 2: "PORT_INIT", 3: "PORT_ARMED", 4: "PORT_ACTIVE"}
PHYSICAL = {2: "POLLING", 3: "DISABLED", 5: "LINK_UP", 6: "LINK_ERROR_RECOVERY"}
# Rate in Gb/s: width (name, code), speed (name, code).
LANES = {
    10: ("4X (2)", "2.5 Gbps (1)"), 25: ("1X (1)", "25.0 Gbps (32)"), 40: ("4X (2)", "10.0 Gbps (4)"),
    50: ("2X (16)", "25.0 Gbps (32)"), 100: ("4X (2)", "25.0 Gbps (32)"), 200: ("4X (2)", "50.0 Gbps (64)"),
    400: ("4X (2)", "100.0 Gbps (128)"), 800: ("4X (2)", "200.0 Gbps (256)"),
}  # fmt: skip
_LIMITS = """\
\tmax_mr_size:\t\t\t0xffffffffffffffff
\tpage_size_cap:\t\t\t0xfffffffffffff000
\tmax_qp:\t\t\t\t131072
\tmax_qp_wr:\t\t\t32768
\tdevice_cap_flags:\t\t0x21361c36
\t\t\t\t\tBAD_PKEY_CNTR
\t\t\t\t\tBAD_QKEY_CNTR
\t\t\t\t\tAUTO_PATH_MIG
\t\t\t\t\tCHANGE_PHY_PORT
\t\t\t\t\tPORT_ACTIVE_EVENT
\t\t\t\t\tSYS_IMAGE_GUID
\t\t\t\t\tRC_RNR_NAK_GEN
\t\t\t\t\tMEM_WINDOW
\t\t\t\t\tXRC
\t\t\t\t\tMEM_MGT_EXTENSIONS
\t\t\t\t\tMEM_WINDOW_TYPE_2B
\t\t\t\t\tRAW_IP_CSUM
\t\t\t\t\tMANAGED_FLOW_STEERING
\tmax_sge:\t\t\t30
\tmax_sge_rd:\t\t\t30
\tmax_cq:\t\t\t\t16777216
\tmax_cqe:\t\t\t4194303
\tmax_mr:\t\t\t\t16777216
\tmax_pd:\t\t\t\t8388608
\tmax_qp_rd_atom:\t\t\t16
\tmax_ee_rd_atom:\t\t\t0
\tmax_res_rd_atom:\t\t2097152
\tmax_qp_init_rd_atom:\t\t16
\tmax_ee_init_rd_atom:\t\t0
\tatomic_cap:\t\t\tATOMIC_HCA (1)
\tmax_ee:\t\t\t\t0
\tmax_rdd:\t\t\t0
\tmax_mw:\t\t\t\t16777216
\tmax_raw_ipv6_qp:\t\t0
\tmax_raw_ethy_qp:\t\t0
\tmax_mcast_grp:\t\t\t2097152
\tmax_mcast_qp_attach:\t\t240
\tmax_total_mcast_qp_attach:\t503316480
\tmax_ah:\t\t\t\t2147483647
\tmax_fmr:\t\t\t0
\tmax_srq:\t\t\t8388608
\tmax_srq_wr:\t\t\t32767
\tmax_srq_sge:\t\t\t31
\tmax_pkeys:\t\t\t128
\tlocal_ca_ack_delay:\t\t16"""


def _dotted(guid: str) -> str:
    return tree_rdma.dotted(guid)


def _gid(entry: dict[str, Any], roce: bool) -> str:
    address = ipaddress.IPv6Address(entry["gid"])
    mapped = address.ipv4_mapped
    text = f"::ffff:{mapped}" if mapped else str(address)
    if not roce:
        return f"\t\t\tGID[{entry['index']:3d}]:\t\t{entry['gid']}"
    if entry["type"] == "RoCE v2":
        return f"\t\t\tGID[{entry['index']:3d}]:\t\t{text}, RoCE v2"
    return f"\t\t\tGID[{entry['index']:3d}]:\t\t{entry['gid']}, RoCE v1"


def _device(state: dict[str, Any], nic: dict[str, Any], verbose: bool) -> None:
    port = ports.view(state, nic, _common.live(state))
    model = catalogue.NICS[nic["model"]]
    roce = port["link_layer"] == "Ethernet"
    print(f"hca_id:\t{nic['rdma']}")
    print("\ttransport:\t\t\tInfiniBand (0)")
    print(f"\tfw_ver:\t\t\t\t{nic['firmware']}")
    print(f"\tnode_guid:\t\t\t{_dotted(nic['node_guid'])}")
    print(f"\tsys_image_guid:\t\t\t{_dotted(nic['sys_image_guid'])}")
    print("\tvendor_id:\t\t\t0x02c9")
    print(f"\tvendor_part_id:\t\t\t{int(model['device'], 16)}")
    print("\thw_ver:\t\t\t\t0x0")
    print(f"\tboard_id:\t\t\t{nic['psid']}")
    print("\tphys_port_cnt:\t\t\t1")
    if verbose:
        print(_LIMITS)
    print("\t\tport:\t1")
    print(f"\t\t\tstate:\t\t\t{STATES[port['state']]} ({port['state']})")
    print("\t\t\tmax_mtu:\t\t4096 (5)")
    print(f"\t\t\tactive_mtu:\t\t{port['active_mtu']} ({ports.MTU_CODES[port['active_mtu']]})")
    print(f"\t\t\tsm_lid:\t\t\t{port['sm_lid']}")
    print(f"\t\t\tport_lid:\t\t{port['lid']}")
    print(f"\t\t\tport_lmc:\t\t0x{port['lmc']:02x}")
    print(f"\t\t\tlink_layer:\t\t{port['link_layer']}")
    if verbose:
        width, speed = LANES.get(port["rate_gbps"], LANES[100])
        print("\t\t\tmax_msg_sz:\t\t0x40000000")
        print(f"\t\t\tport_cap_flags:\t\t0x{0x04010000 if roce else port['capability_mask']:08x}")
        print("\t\t\tport_cap_flags2:\t0x0000")
        print(f"\t\t\tmax_vl_num:\t\t{'invalid value (0)' if roce else '4 (3)'}")
        print("\t\t\tbad_pkey_cntr:\t\t0x0")
        print("\t\t\tqkey_viol_cntr:\t\t0x0")
        print("\t\t\tsm_sl:\t\t\t0")
        print(f"\t\t\tpkey_tbl_len:\t\t{1 if roce else 128}")
        print(f"\t\t\tgid_tbl_len:\t\t{255 if roce else 8}")
        print(f"\t\t\tsubnet_timeout:\t\t{0 if roce else 18}")
        print("\t\t\tinit_type_reply:\t0")
        print(f"\t\t\tactive_width:\t\t{width}")
        print(f"\t\t\tactive_speed:\t\t{speed}")
        print(f"\t\t\tphys_state:\t\t{PHYSICAL[port['phys_state']]} ({port['phys_state']})")
        for entry in port["gids"]:
            print(_gid(entry, roce))
    print()


def main(name: str, argv: list[str]) -> int:
    state = _common.snapshot()
    usable = {"mlx5_ib", "ib_uverbs"} <= set(state["modules"])
    nics = sorted((nic for nic in state["nics"] if nic["rdma"]), key=lambda nic: nic["pci"]) if usable else []
    if name == "ibv_devices":
        print("    device          \t   node GUID")
        print("    ------          \t----------------")
        for nic in nics:
            print(f"    {nic['rdma']:<16s}\t{nic['node_guid']}")
        return 0
    verbose = listing = False
    wanted = None
    words = iter(argv)
    for word in words:
        if word in ("-v", "--verbose"):
            verbose = True
        elif word in ("-l", "--list"):
            listing = True
        elif word in ("-d", "--ib-dev"):
            wanted = next(words, None)
        elif word.startswith("--ib-dev="):
            wanted = word.split("=", 1)[1]
        elif word in ("-i", "--ib-port"):
            next(words, None)
    if listing:
        print(f"{len(nics)} HCA{'s' if len(nics) != 1 else ''} found:")
        for nic in nics:
            print(f"\t{nic['rdma']}")
        print()
        return 0
    if wanted is not None:
        nics = [nic for nic in nics if nic["rdma"] == wanted]
        if not nics:
            _common.error(f"IB device '{wanted}' wasn't found")
            return 255
    if not nics:
        _common.error("No IB devices found")
        return 255
    for nic in nics:
        _device(state, nic, verbose)
    return 0
