# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded outputs beside the checkout: each one's facts, and every mutation of each.

An expectation is written by hand from the file; the index's own last column says in words what it is about.
"""

from __future__ import annotations

import importlib

import pytest
from mutations import NO_SHARED, check_all, corpus_files, corpus_rows, decode, fixture_files, shared_root

PARSERS = "ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers."
TOOLS = {
    "ibstat": "ibstat",
    "ibstat-l": "ibstat",
    "ibstatus": "ibstatus",
    "ibv_devinfo": "ibv_devinfo",
    "ibdev2netdev": "ibdev2netdev",
    "ibdev2netdev-v": "ibdev2netdev",
    "show_gids": "show_gids",
    "rdma-link": "rdma_link",
    "ethtool": "ethtool",
    "ethtool-i": "ethtool_driver",
    "ethtool-m": "ethtool_module",
    "ethtool-S": "ethtool_stats",
    "mlnx_qos": "mlnx_qos",
    "mlxconfig": "mlxconfig",
    "mst-status": "mst_status",
    "mst-status-v": "mst_status",
    "ofed_info-s": "ofed_info",
    "iblinkinfo": "iblinkinfo",
    "ibnetdiscover-p": "ibnetdiscover",
    "perfquery-x": "perfquery",
    "ibswinfo": "ibswinfo",
}
MODULES = sorted(
    {*TOOLS.values(), "dcb", "ethtool_channels", "ethtool_fec", "ethtool_rings", "ethtool_features", "ibqueryerrors"}
)
needs_shared = pytest.mark.skipif(shared_root() is None, reason=NO_SHARED)


def parser(module):
    return importlib.import_module(PARSERS + module).parse


def ports(value):
    """(device, port, state, physical state, rate, link layer, LID, SM LID) of every port, as far as known."""
    keys = ("port", "state", "phys_state", "rate_gbps", "link_layer", "base_lid", "sm_lid")
    return [(ca.get("name"), *(port.get(key) for key in keys)) for ca in value["cas"] for port in ca["ports"]]


def mappings(value):
    return [(row["device"], row["port"], row["netdev"], row["status"]) for row in value["mappings"]]


def verbose(value):
    keys = ("device", "pci", "hca_type", "part_id", "description", "firmware", "port_state", "netdev", "status")
    return [tuple(row.get(key) for key in keys) for row in value["mappings"]]


def links(value):
    keys = ("device", "port", "state", "phys_state", "netdev", "lid", "sm_lid", "lmc", "subnet_prefix")
    return [tuple(row.get(key) for key in keys) for row in value["links"]]


def check(path):
    def decorate(function):
        EXPECTED[path] = function
        return function

    return decorate


EXPECTED = {}


@check("ibstat/a100-azure-sriov-vf-8x-ibpanic-tail.txt")
def _(value, problems):
    lids = [13247, 13246, 13259, 13276, 13301, 13300, 13302, 13305]
    assert ports(value) == [
        (f"mlx5_{n}", 1, "active", "linkup", 200.0, "InfiniBand", lid, 1) for n, lid in enumerate(lids)
    ]
    assert {ca["ca_type"] for ca in value["cas"]} == {"MT4124"}
    assert value["cas"][0]["node_guid"] == "00155dfffeb554eb"
    assert value["cas"][0]["system_image_guid"] == "b83fd20300ef6204"
    assert value["partial"] is True
    assert value["failed_devices"] == ["mlx5_8"]
    assert any("mlx5_8" in problem.text for problem in problems)


@check("ibstat/h100-12ca-mixed-cx7-cx6-all-eth-active.txt")
def _(value, problems):
    slow = {"mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"}
    names = [f"mlx5_{n}" for n in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9)]
    assert ports(value) == [
        (name, 1, "active", "linkup", 100.0 if name in slow else 400.0, "Ethernet", 0, 0) for name in names
    ]
    assert {ca["name"] for ca in value["cas"] if ca["ca_type"] == "MT4125"} == slow
    assert sum(ca["ca_type"] == "MT4129" for ca in value["cas"]) == 8
    assert value["cas"][1]["ports"][0]["port_guid"] == "0" * 16
    assert not problems and value["partial"] is False


@check("ibstat/h100-ib-storage-ports-down-disabled.txt")
def _(value, problems):
    rails = [row for row in ports(value) if row[5] == "InfiniBand"]
    assert len(rails) == 8
    assert {row[2:5] + row[7:] for row in rails} == {("active", "linkup", 400.0, 334)}
    storage = {row[0]: row[2:5] for row in ports(value) if row[5] == "Ethernet"}
    down = ("down", "disabled", 40.0)
    # The index counts four as down; in the recording the first of them is up.
    assert storage == {"mlx5_1": ("active", "linkup", 100.0), "mlx5_2": down, "mlx5_7": down, "mlx5_8": down}
    assert not problems


@check("ibstat/h100-8x-ndr-spaces-indent.txt")
def _(value, problems):
    compute = [row for row in ports(value) if row[5] == "InfiniBand"]
    assert {row[2:5] + row[7:] for row in compute} == {("active", "linkup", 400.0, 1)}
    assert [row[0] for row in compute] == [f"mlx5_{n}" for n in (0, 1, 4, 5, 6, 7, 8, 9)]
    assert ports(value)[-1][:6] == ("mlx5_bond_0", 1, "active", "linkup", 200.0, "Ethernet")
    assert not problems


@check("ibstat/cx6-ib-vf-down-linkup-lid65535.txt")
def _(value, problems):
    assert ports(value) == [("mlx5_7", 1, "down", "linkup", 200.0, "InfiniBand", 65535, 1)]
    assert value["cas"][0]["ca_type"] == "MT4124"
    assert not problems


@check("ibstat/mlx4-dual-port-one-disabled-with-ibwarn.txt")
def _(value, problems):
    assert ports(value) == [
        ("mlx4_0", 1, "down", "disabled", 10.0, "InfiniBand", 38, 13),
        ("mlx4_0", 2, "active", "linkup", 56.0, None, None, None),
    ]
    assert (value["cas"][0]["ca_type"], value["cas"][0]["number_of_ports"]) == ("MT4099", 2)
    assert len(value["debug_messages"]) == 4 and not value["errors"]
    assert value["partial"] is True and problems


@check("ibstat/cx4-ib-plus-mlx5-bond-0.txt")
def _(value, problems):
    assert ports(value) == [
        ("mlx5_2", 1, "active", "linkup", 100.0, "InfiniBand", 13, 1),
        ("mlx5_3", 1, "active", "linkup", 40.0, "InfiniBand", 38, 36),
        ("mlx5_bond_0", 1, "active", "linkup", 10.0, "Ethernet", 0, 0),
    ]
    assert [ca["ports"][0]["lmc"] for ca in value["cas"]] == [0, 1, 0]
    assert value["cas"][2]["ca_type"] == "MT4117"
    assert not problems


@check("ibstat/cx7-200-eth-plus-cx6dx-down.txt")
def _(value, problems):
    assert ports(value) == [
        ("mlx5_0", 1, "active", "linkup", 200.0, "Ethernet", 0, 0),
        ("mlx5_1", 1, "active", "linkup", 200.0, "Ethernet", 0, 0),
        ("mlx5_10", 1, "down", "disabled", None, None, None, None),
    ]
    assert value["cas"][0]["system_image_guid"] == value["cas"][1]["system_image_guid"]
    assert value["cas"][2]["ca_type"] == "MT4125"
    assert value["partial"] is True and problems


@check("ibstat/no-devices-empty-output.txt")
@check("ibstat-l/no-devices-empty-output.txt")
def _(value, problems):
    assert value["cas"] == [] and value["form"] == "empty"


@check("ibstat/named-ca-not-found-ibpanic.txt")
def _(value, problems):
    assert value["cas"] == [] and value["failed_devices"] == ["mlx5_0"] and len(value["errors"]) == 1
    assert problems


@check("ibstat/mlx4-dual-port-initializing-and-polling.txt")
def _(value, problems):
    assert ports(value) == [
        ("mlx4_0", 1, "initializing", "linkup", 40.0, "InfiniBand", 0, 0),
        ("mlx4_0", 2, "down", "polling", 10.0, "InfiniBand", 0, 0),
    ]
    assert value["cas"][0]["ca_type"] == "MT4103" and not problems


@check("ibstat/mlx5-initializing-no-ca-type-line.txt")
def _(value, problems):
    assert ports(value) == [("mlx5_0", 1, "initializing", "linkup", 100.0, "InfiniBand", 65535, 0)]
    assert "ca_type" not in value["cas"][0]
    assert "ca type" in problems[0].reason


@check("ibstat/irdma-empty-type-and-hw-version.txt")
def _(value, problems):
    assert ports(value) == [("irdma0", 1, "active", "linkup", 25.0, None, 1, 0)]
    assert "ca_type" not in value["cas"][0] and "hardware" not in value["cas"][0]
    assert value["cas"][0]["firmware"] == "1.71"
    assert value["partial"] is True


@check("ibstat/rxe0-rate-10-fdr10-suffix.txt")
def _(value, problems):
    assert ports(value)[0][:5] == ("rxe0", 1, "active", "linkup", 10.0)
    assert value["cas"][0]["ports"][0]["rate_text"] == "10 (FDR10)"


@check("ibstat/rxe0-rate-2.5-wifi.txt")
def _(value, problems):
    assert ports(value)[0][:5] == ("rxe0", 1, "active", "linkup", 2.5)


@check("ibstat/rxe0-aws-trailing-space-zero-image-guid.txt")
def _(value, problems):
    assert ports(value) == [("rxe0", 1, "active", "linkup", 100.0, "Ethernet", 0, 0)]
    assert value["cas"][0]["system_image_guid"] == "0" * 16 and not problems


@check("ibstat/pdsh-prefixed-sleep.txt")
def _(value, problems):
    seen = [(ca["host"], ca["ports"][0]["phys_state"]) for ca in value["cas"]]
    assert seen == [("compute-1-8", "sleep"), ("compute-1-12", "sleep"), ("compute-1-14", "sleep")]
    assert value["form"] == "filtered"


@check("ibstatus/a100-8x-hdr-azure.txt")
def _(value, problems):
    rails = [port for port in value["ports"] if port["link_layer"] == "InfiniBand"]
    assert [port["device"] for port in rails] == [f"mlx5_{n}" for n in range(8)]
    assert {(port["state"], port["phys_state"], port["rate_gbps"], port["speed"]) for port in rails} == {
        ("active", "linkup", 200.0, "HDR")
    }
    assert rails[0]["base_lid"] == 13247 and not problems


@check("ibstatus/cx-eth-100-edr-label.txt")
def _(value, problems):
    keys = ("device", "state", "phys_state", "rate_gbps", "link_layer")
    assert [tuple(port[key] for key in keys) for port in value["ports"]] == [
        ("mlx5_0", "active", "linkup", 100.0, "Ethernet"),
        ("mlx5_1", "active", "linkup", 100.0, "Ethernet"),
    ]
    assert not problems


@check("ibstatus/no-devices-fatal-error.txt")
def _(value, problems):
    assert value["ports"] == [] and value["errors"] == ["Fatal error: No devices"] and problems


@check("ibv_devinfo/cx6dx-eth-port-down.txt")
def _(value, problems):
    first, second = value["devices"]
    assert (first["device"], first["vendor_part_id"], first["transport"]) == ("mlx5_12", 4125, "infiniband")
    port = first["ports"][0]
    assert (port["state"], port["link_layer"], port["active_mtu_bytes"]) == ("down", "Ethernet", 1024)
    assert (second["device"], second["ports"]) == ("mlx5_13", []) and problems


@check("ibv_devinfo/rxe0-no-link-layer.txt")
def _(value, problems):
    port = value["devices"][0]["ports"][0]
    assert (value["devices"][0]["device"], port["state"], port["active_mtu_bytes"]) == ("rxe0", "active", 1024)
    assert "link_layer" not in port and "board_id" not in value["devices"][0]


@check("ibv_devinfo/siw0-iwarp.txt")
def _(value, problems):
    device = value["devices"][0]
    assert (device["device"], device["transport"]) == ("siw0", "iwarp")
    assert (device["ports"][0]["state"], device["ports"][0]["link_layer"]) == ("active", "Ethernet")


@check("ibv_devinfo/hfi1-opa-long-board-id.txt")
def _(value, problems):
    device = value["devices"][0]
    assert (device["device"], device["vendor_id"]) == ("hfi1_0", "0x1175")
    assert device["board_id"].startswith("Cornelis Omni-Path") and device["board_id"].endswith("100 Series")
    port = device["ports"][0]
    assert (port["state"], port["lid"], port["sm_lid"]) == ("active", 6, 5) and not problems


@check("ibdev2netdev/dgx-spark-two-down-with-prompt.txt")
def _(value, problems):
    assert mappings(value) == [
        ("rocep1s0f0", 1, "enp1s0f0np0", "up"),
        ("rocep1s0f1", 1, "enp1s0f1np1", "down"),
        ("roceP2p1s0f0", 1, "enP2p1s0f0np0", "up"),
        ("roceP2p1s0f1", 1, "enP2p1s0f1np1", "down"),
    ]
    assert not problems


@check("ibdev2netdev/azure-mlx5-an0.txt")
def _(value, problems):
    assert mappings(value) == [("mlx5_an0", 1, "enP45424s1", "up")] and not problems


@check("ibdev2netdev/a100-many-vfs-mixed-names.txt")
def _(value, problems):
    rows = {row[0]: row[2:] for row in mappings(value)}
    assert len(value["mappings"]) == 16
    assert [name for name, row in rows.items() if row[1] == "up"] == ["mlx5_2", "mlx5_4", "mlx5_6"]
    assert rows["mlx5_20"] == ("ibp141s0v0", "down") and rows["mlx5_26"] == ("ibp141s0v6", "down")
    assert rows["mlx5_4"] == ("enp97s0f0", "up") and not problems


@check("ibdev2netdev/h100-imbue-column-t-comments.txt")
def _(value, problems):
    rows = mappings(value)
    assert len(rows) == 12
    infiniband = [row for row in rows if row[2].startswith("ib")]
    assert len(infiniband) == 8 and {row[3] for row in infiniband} == {"down"}
    ethernet = {row[0]: row[3] for row in rows if row[2].startswith("en")}
    assert ethernet == {"mlx5_1": "up", "mlx5_2": "down", "mlx5_7": "up", "mlx5_8": "down"}
    assert value["mappings"][0]["comment"] == "# CX-7 1/8 infiniband" and not problems


@check("ibdev2netdev/bond-without-bond-name-two-devs-one-netdev.txt")
def _(value, problems):
    rows = {row[0]: row[2:] for row in mappings(value)}
    assert len(rows) == 12
    assert rows["mlx5_3"] == rows["mlx5_9"] == ("bond0", "up")
    assert {name for name, row in rows.items() if row[1] == "down"} == {"mlx5_4", "mlx5_10"} and not problems


@check("ibdev2netdev/rocex-guid-names-bond.txt")
def _(value, problems):
    assert mappings(value) == [
        ("rocexb8cef603004c55d4", 1, "enp1s0f0", "up"),
        ("rocexb8cef603004c55d5", 1, "enp1s0f1", "up"),
        ("rocexb83fd203007e2a7a", 1, "bond0", "up"),
    ]


@check("ibdev2netdev/hrn3-huawei-bond.txt")
def _(value, problems):
    assert mappings(value) == [("hrn3_bond_0", 1, "bond0", "up"), ("mlx5_bond_0", 1, "bond1", "up")]


@check("ibdev2netdev-v/cx4-pf-and-4-vfs.txt")
def _(value, problems):
    board = ("MT1523X00383", "CX456A - ConnectX-4 QSFP", "12.23.1020", "active")
    rows = verbose(value)
    assert rows[:2] == [(f"mlx5_{n}", f"0000:02:00.{n}", "MT4115", *board, f"enp2s0f{n}", "up") for n in (0, 1)]
    assert rows[2:] == [
        (f"mlx5_{n}", f"0000:02:00.{function}", "MT4116", None, None, "12.23.1020", "down", f"enp2s0f{n}", "down")
        for n, function in ((2, 5), (3, 6), (4, 7), (5, 2))
    ]
    assert not problems


@check("ibdev2netdev-v/cx6-hdr-commas-in-description.txt")
def _(value, problems):
    rows = verbose(value)
    assert [row[7] for row in rows] == ["p5p1", "p4p1", "p2p1", "p3p1"]
    assert {row[2:4] + row[5:7] + row[8:] for row in rows} == {
        ("MT4123", "MCX653105A-HDAT", "20.28.1002", "active", "up")
    }
    assert {row[4] for row in rows} == {"ConnectX-6 VPI adapter card, HDR IB (200Gb/s) and 200GbE, single-port QSFP56"}
    assert not problems


@check("ibdev2netdev-v/cx5-ib-two-pf-four-vf.txt")
def _(value, problems):
    rows = {row[0]: row[5:7] for row in verbose(value)}
    assert rows["mlx5_0"] == ("16.26.4012", "active") and rows["mlx5_1"] == ("16.27.2008", "active")
    assert {rows[f"mlx5_{n}"] for n in (2, 3, 4)} == {("16.26.4012", "down")} and not problems


@check("show_gids/bond-roce-v1-v2-tabs.txt")
def _(value, problems):
    entry = next(gid for gid in value["gids"] if gid["index"] == 3)
    assert (entry["device"], entry["type"], entry["ipv4"], entry["netdev"]) == (
        "mlx5_bond_0",
        "RoCE v2",
        "10.96.83.26",
        "bond0",
    )
    assert [gid.get("ipv4") for gid in value["gids"]] == [None, None, "10.96.83.26", "10.96.83.26"]
    assert not problems


@check("show_gids/rxe-like-rdma0-name.txt")
def _(value, problems):
    entry = next(gid for gid in value["gids"] if gid["index"] == 3)
    assert (entry["device"], entry["type"], entry["netdev"]) == ("mlx5_0", "RoCE v2", "rdma0")
    assert entry["ipv4"] == "192.168.211.242" and not problems


@check("rdma-link/cx5-ib-subnet-prefix-lid.txt")
def _(value, problems):
    assert links(value) == [("mlx5_0", 1, "active", "linkup", None, 2, 2, 0, "fe80:0000:0000:0000")] and not problems


@check("rdma-link/cx6-ib-mixed-disabled-and-eth.txt")
def _(value, problems):
    rows = {row[0]: row for row in links(value)}
    assert {name: rows[name][5] for name in ("mlx5_0", "mlx5_2", "mlx5_6", "mlx5_8")} == {
        "mlx5_0": 3,
        "mlx5_2": 35,
        "mlx5_6": 4,
        "mlx5_8": 36,
    }
    assert {rows[f"mlx5_{n}"][2:4] for n in (1, 3, 5, 7)} == {("down", "disabled")}
    assert rows["mlx5_4"] == ("mlx5_4", 1, "active", "linkup", "enp97s0f0", None, None, None, None) and not problems


@check("rdma-link/siw-veth.txt")
def _(value, problems):
    assert [row[0:1] + row[4:5] for row in links(value)] == [("siw_0", "veth2"), ("siw_1", "veth3")]


@check("rdma-link/no-module-netlink-error.txt")
def _(value, problems):
    assert value["links"] == [] and value["errors"] and problems


@check("rdma-link/rocep-polling-trailing-space.txt")
def _(value, problems):
    assert links(value)[0][:5] == ("rocep9s0", 1, "down", "polling", "benic8p1")


@check("rdma-link/bnxt-re-trailing-space.txt")
def _(value, problems):
    assert [(row[0], row[2], row[4]) for row in links(value)] == [
        ("bnxt_re0", "active", "ens26np0"),
        ("bnxt_re1", "down", "ens27np1"),
    ]


@check("mlnx_qos/dscp-trust-mapping-excerpt.txt")
def _(value, problems):
    assert value["trust"] == "dscp" and value["dcbx"] == "os"
    assert value["dscp_to_priority"] == {str(dscp): dscp // 8 for dscp in range(64)} and not problems


@check("mst-status/cx4-minimal.txt")
def _(value, problems):
    assert [device["mst"] for device in value["devices"]] == ["/dev/mst/mt4115_pciconf0"]


@check("mst-status-v/bf3-dpu-multi-netdev-numa-minus1.txt")
def _(value, problems):
    keys = ("rdma", "pci", "netdevs", "numa_node", "mst")
    assert [tuple(device[key] for key in keys) for device in value["devices"]] == [
        (["mlx5_1"], "0000:03:00.1", ["p1", "pf1hpf", "en3f1pf1sf0"], None, "/dev/mst/mt41692_pciconf0.1"),
        (["mlx5_0"], "0000:03:00.0", ["pf0hpf", "en3f0pf0sf0", "p0"], None, "/dev/mst/mt41692_pciconf0"),
    ]


@check("mst-status-v/cx2-empty-columns.txt")
def _(value, problems):
    first, second = value["devices"]
    assert first["mst"] == "/dev/mst/mt26428_pciconf0" and "pci" not in first and "rdma" not in first
    assert (second["mst"], second["pci"]) == ("/dev/mst/mt26428_pci_cr0", "0000:02:00.0")
    assert (second["rdma"], second["netdevs"]) == (["mlx4_0"], ["ib0"]) and "numa_node" not in second


@check("mlxconfig/cx6-set-next-boot-new.txt")
def _(value, problems):
    parameters = value["devices"][0]["parameters"]
    assert parameters["BOOT_VLAN"] == {"next": "1", "new": "0"}
    assert parameters["BOOT_UNDI_NETWORK_WAIT"] == {"next": "0", "new": "30"}
    assert value["applied"] is True and "reboot" in value["messages"][0]
    assert value["devices"][0]["pci"] == "0000:c2:00.0" and not problems


@check("mlxconfig/cx6lx-query-e-three-columns.txt")
def _(value, problems):
    parameters = value["devices"][0]["parameters"]
    assert len(parameters) == 10
    assert all(entry["default"] == entry["current"] == entry["next"] for entry in parameters.values())
    assert not any(entry["modified"] for entry in parameters.values())


@check("mlxconfig/e-query-star-next-boot-differs.txt")
def _(value, problems):
    parameters = value["devices"][0]["parameters"]
    assert parameters["KEEP_IB_LINK_UP_P2"] == {
        "default": "False(0)",
        "current": "True(1)",
        "next": "True(1)",
        "modified": True,
    }
    assert parameters["MEMIC_SIZE_LIMIT"]["next"] == "DISABLED(0)" and parameters["MEMIC_SIZE_LIMIT"]["modified"]
    assert not parameters["KEEP_LINK_UP_ON_BOOT_P2"]["modified"]


@check("ethtool/link-partner-block.txt")
def _(value, problems):
    port = value["interfaces"][0]
    assert (port["netdev"], port["speed_mbps"], port["duplex"], port["link"]) == ("eth0", 100, "full", True)
    assert port["supported_link_modes"][-1] == "1000baseT/Full" and len(port["supported_link_modes"]) == 6
    assert len(port["partner_link_modes"]) == 4 and not problems


@check("ethtool-i/mlx5-cx4lx-inbox-418.txt")
def _(value, problems):
    assert (value["driver"], value["version"], value["firmware"]) == ("mlx5_core", "5.0-0", "14.23.1020")
    assert (value["psid"], value["pci"]) == ("MT_2420110034", "0000:af:00.0") and not problems


@check("ethtool-i/mlx4-en.txt")
def _(value, problems):
    assert (value["driver"], value["version"], value["firmware"]) == ("mlx4_en", "4.0-0", "2.42.5000")
    assert value["pci"] == "0000:83:00.0" and "psid" not in value


@check("ethtool-m/module-sfp28-lr-rx-los.txt")
def _(value, problems):
    assert value["part_number"] == "SFP-10/25GLR-31"
    assert (value["lanes"]["1"]["bias_ma"], value["lanes"]["1"]["rx_power_dbm"]) == (51.494, -40.0)
    assert value["flags"]["laser_rx_power_low_alarm"] is True and "laser_rx_power_low_alarm" in value["raised"]


@check("ethtool-S/mlx5-cx4lx-418-head.txt")
def _(value, problems):
    assert (value["counters"]["rx_packets"], value["counters"]["tx_packets"]) == (845320277, 896117891)


@check("ethtool-S/bnx2x-colon-in-key.txt")
def _(value, problems):
    assert value["counters"]["[0]: rx_bytes"] == 209487403324 and value["counters"]["[1]: rx_bytes"] == 207561754146


@check("ofed_info-s/doca-internal-with-colon.txt")
def _(value, problems):
    assert value["version"] == "25.11-1.2.3"


@check("iblinkinfo/edr-sb7700-ca-and-switch.txt")
def _(value, problems):
    adapters = [node for node in value["nodes"] if node["type"] == "ca"]
    assert [(node["ports"][0]["speed"], node["ports"][0]["state"]) for node in adapters] == [("EDR", "active")] * 2
    switch = value["nodes"][2]
    assert [(port["lid"], port["port"], port["state"], port["phys_state"]) for port in switch["ports"]] == [
        (2, n, "down", "polling") for n in range(1, 7)
    ]
    assert adapters[0]["ports"][0]["peer"] == {"description": "MF0;SB7700:MSB7700/U1", "lid": 2, "port": 17}


@check("iblinkinfo/qdr-4x-glued-to-speed.txt")
def _(value, problems):
    active = [port for node in value["nodes"] for port in node["ports"] if port["state"] == "active"]
    assert [(port["lid"], port["speed"], port["rate_gbps"]) for port in active] == [(8, "QDR", 40.0), (12, "QDR", 40.0)]
    assert [port["peer"]["lid"] for port in active] == [3, 3]
    down = [(port["lid"], port["port"]) for node in value["nodes"] for port in node["ports"] if port["state"] == "down"]
    assert down == [(3, 1), (3, 2), (3, 3), (3, 28)]


@check("ibnetdiscover-p/edr-unknown-speed.txt")
def _(value, problems):
    assert len(value["links"]) == 9
    linked = [link for link in value["links"] if "peer" in link]
    # The index counts six links; seven rows of the recording have a peer.
    assert len(linked) == 7 and {link["speed"] for link in linked} == {"EDR"}
    loose = [(link["lid"], link["port"], link.get("speed")) for link in value["links"] if "peer" not in link]
    assert loose == [(2052, 37, None), (1781, 80, "SDR")]


@check("perfquery-x/edr-switch-two-ports.txt")
def _(value, problems):
    assert [port["port"] for port in value["ports"]] == [1, 2]
    assert value["ports"][0]["counters"]["SymbolErrorCounter"] == 0
    assert value["ports"][0]["counters"]["PortXmitWait"] == 22730501 and not problems


@check("ibswinfo/edr-unmanaged-fan-error.txt")
def _(value, problems):
    assert (value["part_number"], value["firmware"], value["temperature_c"]) == ("MSB7790-ES2F", "11.2008.2102", 45)
    assert value["fan_status"] == "ERROR" and len(value["fans"]) == 8
    assert [psu["fan_status"] for psu in value["psus"]] == ["OK", "OK"]


ROWS = corpus_rows(*TOOLS)
FILES = [*corpus_files(*TOOLS)]


@needs_shared
@pytest.mark.parametrize(("path", "facts"), ROWS, ids=[path for path, _facts in ROWS])
def test_facts_of_the_index(path, facts):
    assert path in EXPECTED, f"{path} has no expectation here; its facts: {facts}"
    parse = parser(TOOLS[path.split("/")[0]])
    result = parse(decode((shared_root() / "corpus" / path).read_bytes()))
    EXPECTED[path](result.value, result.problems)


@needs_shared
@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_mutations_of_recorded_outputs(path):
    check_all(parser(TOOLS[path.parent.name]), path.read_bytes())


FIXTURES = [(module, path) for module in MODULES for path in fixture_files(module)]


@pytest.mark.parametrize(("module", "path"), FIXTURES, ids=[f"{module}/{path.name}" for module, path in FIXTURES])
def test_mutations_of_own_recordings(module, path):
    json_document = path.suffix == ".json"
    check_all(parser(module), path.read_bytes(), banner=not json_document)


def test_every_parser_has_recordings_of_its_own():
    assert {module for module, _path in FIXTURES} == set(MODULES)
