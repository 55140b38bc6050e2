# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other tools of NICs and InfiniBand fabrics: what is special about each."""

from __future__ import annotations

import json

import pytest
from mutations import decode, fixture_files

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    dcb,
    ethtool,
    ethtool_channels,
    ethtool_driver,
    ethtool_features,
    ethtool_fec,
    ethtool_module,
    ethtool_rings,
    ethtool_stats,
    iblinkinfo,
    ibnetdiscover,
    ibqueryerrors,
    ibstatus,
    ibswinfo,
    ibv_devinfo,
    mlnx_qos,
    mlxconfig,
    mst_status,
    ofed_info,
    perfquery,
)


def read(module, name):
    tool = module.__name__.rsplit(".", 1)[1]
    path = next(path for path in fixture_files(tool) if path.name == name)
    return module.parse(decode(path.read_bytes()))


def test_ibstatus():
    value, problems = read(ibstatus, "mixed.txt")
    first, second = value["ports"]
    assert (first["rate_gbps"], first["width"], first["speed"], first["base_lid"]) == (400.0, 4, "NDR", 12)
    assert (second["device"], second["port"], second["state"], second["phys_state"]) == (
        "mlx4_0",
        2,
        "down",
        "disabled",
    )
    assert (second["rate_gbps"], second["link_layer"]) == (2.5, "Ethernet") and "default_gid" not in second
    assert problems == ()


def test_ibv_devinfo_verbose():
    value, problems = read(ibv_devinfo, "verbose.txt")
    device, usnic = value["devices"]
    port = device["ports"][0]
    assert (port["active_width"], port["active_speed_gbps"], port["effective_speed_gbps"]) == (4, 100.0, 400.0)
    assert port["gids"][1] == {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0ae0:000b", "type": "RoCE v2"}
    assert device["extra"]["device_cap_flags"] == "0x25361c36"
    assert (usnic["transport"], usnic["firmware"]) == ("usnic", "4.1(3a)")
    assert problems == ()


def test_ethtool_lists_over_several_lines():
    value, problems = read(ethtool, "nic_400g.txt")
    port, empty = value["interfaces"]
    assert (port["speed_mbps"], port["lanes"], port["duplex"], port["autoneg"], port["link"]) == (
        400000,
        4,
        "full",
        True,
        True,
    )
    assert port["supported_link_modes"] == ["100000baseKR4/Full", "400000baseCR4/Full", "400000baseSR8/Full"]
    assert port["extra"]["master-slave cfg"] == "unknown"
    assert "partner_link_modes" not in port and "advertised_fec" not in port
    assert (empty["link"], empty["link_reason"]) == (False, "No cable")
    assert not {"speed_mbps", "duplex"} & set(empty)
    assert problems == ()


def test_a_list_that_may_go_on_is_absent():
    value, problems = ethtool.parse("Settings for eth0:\n\tSupported link modes:   10baseT/Half 10baseT/Full\n")
    assert "supported_link_modes" not in value["interfaces"][0] and problems


def test_ethtool_driver():
    value, _problems = read(ethtool_driver, "mlx5_open.txt")
    assert (value["driver"], value["firmware"], value["psid"]) == ("mlx5_core", "28.43.2566", "MT_0000000838")
    assert read(ethtool_driver, "ipoib.txt").value["driver"] == "mlx5_core[ib_ipoib]"
    veth = read(ethtool_driver, "veth.txt").value
    assert not {"firmware", "bus_info", "pci"} & set(veth)


@pytest.mark.parametrize("name", ["mlx5.txt", "mlx5.json"])
def test_rings(name):
    interface = read(ethtool_rings, name).value["interfaces"][0]
    assert interface["netdev"] == "ens1f0np0"
    assert (interface["maximum"], interface["current"]["rx"], interface["current"]["tx"]) == (
        {"rx": 8192, "tx": 8192},
        1024,
        2048,
    )
    assert interface["current"]["tx_push"] is False


def test_current_rings_are_not_taken_for_the_largest():
    text = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t8192\nTX:\t8192\nRX:\t1024\nTX:\t2048\n"
    value, problems = ethtool_rings.parse(text)
    assert value["interfaces"][0]["maximum"] == {"rx": 8192, "tx": 8192} and problems
    assert value["interfaces"][0]["current"] == {}


@pytest.mark.parametrize("name", ["mlx5.txt", "mlx5.json"])
def test_channels(name):
    interface = read(ethtool_channels, name).value["interfaces"][0]
    assert interface == {"netdev": "ens1f0np0", "maximum": {"combined": 63}, "current": {"combined": 24}}


def test_channels_of_a_driver_with_queues_apart():
    value, problems = read(ethtool_channels, "two.txt")
    assert value["interfaces"][0]["current"] == {"rx": 4, "tx": 2, "other": 1}
    assert value["errors"] == ["netlink error: Operation not supported"] and problems


@pytest.mark.parametrize("name", ["mlx5.txt", "mlx5.json"])
def test_fec(name):
    value, problems = read(ethtool_fec, name)
    assert value["interfaces"] == [{"netdev": "ens1f0np0", "configured": ["auto"], "active": ["rs"]}]
    assert problems == ()


def test_fec_of_a_port_without_a_link():
    interface = read(ethtool_fec, "statistics.txt").value["interfaces"][0]
    assert interface["configured"] == ["auto", "off", "rs", "baser"] and interface["active"] == []
    assert interface["statistics"] == {"corrected_blocks": 512, "uncorrectable_blocks": 3}


def test_fec_that_has_no_name_here_is_absent():
    value, problems = ethtool_fec.parse("FEC parameters for eth0:\nConfigured FEC encodings: RS KP4\n")
    assert value["interfaces"] == [{"netdev": "eth0"}] and problems[0].text == "KP4"


def test_features():
    features = read(ethtool_features, "mlx5.txt").value["interfaces"][0]["features"]
    assert features["rx-checksumming"] == {"active": True, "fixed": False, "requested": True}
    assert features["tx-checksum-ipv4"]["fixed"] is True
    assert features["large-receive-offload"] == {"active": False, "fixed": False, "requested": True}
    assert "requested" not in features["rx-gro-hw"]
    document = read(ethtool_features, "mlx5.json").value["interfaces"][0]
    assert document["features"]["tx-checksum-ipv4"] == {"active": False, "fixed": True, "requested": False}


def test_a_feature_whose_remark_may_be_missing_is_absent():
    value, problems = ethtool_features.parse("Features for eth0:\nrx-gro-hw: off")
    assert value["interfaces"][0]["features"] == {} and problems


def test_module_with_lanes():
    value, problems = read(ethtool_module, "qsfp.txt")
    assert value["lanes"] == {
        "1": {"bias_ma": 6.75, "tx_power_mw": 0.9123, "tx_power_dbm": -0.4, "rx_power_mw": 0.88, "rx_power_dbm": -0.56},
        "2": {"bias_ma": 0.0, "tx_power_mw": 0.0, "rx_power_mw": 0.0001, "rx_power_dbm": -40.0},
    }
    assert (value["temperature_c"], value["voltage_v"]) == (41.22, 3.2471)
    assert value["raised"] == ["laser_rx_power_low_alarm_channel_2"]
    assert value["serial_number"] == "MT2001FT00123" and problems == ()


def test_counters():
    counters = read(ethtool_stats, "mlx5.txt").value["counters"]
    assert (counters["rx_discards_phy"], counters["[2]: rx_bytes"]) == (17, 4096)
    assert ethtool_stats.parse("NIC statistics:\n     rx_packets: 12").value["counters"] == {}


def test_qos_lossless():
    value, problems = read(mlnx_qos, "lossless.txt")
    assert (value["trust"], value["dcbx"], value["cable_length_m"]) == ("dscp", "os", 7.0)
    assert value["pfc"] == [False, False, False, True, False, False, False, False]
    assert value["prio_buffer"] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert (value["buffer_size"][:2], value["max_buffer_size"]) == ([20016, 156096], 1027728)
    assert value["priority_to_tc"] == [1, 0, 2, 3, 4, 5, 6, 5]
    assert value["tcs"][3] == {"tc": 3, "tsa": "ets", "bandwidth_percent": 50}
    assert value["tcs"][4] == {"tc": 4, "tsa": "strict", "ratelimit_gbps": 10.0}
    assert value["dscp_to_priority"]["26"] == 3 and value["dscp_to_priority"]["48"] == 6
    assert "lldpad" in value["warnings"][0] and problems == ()


def test_qos_without_dscp_and_buffers():
    value, _problems = read(mlnx_qos, "pcp_old.txt")
    assert value["trust"] == "pcp" and value["pfc"] == [False] * 8
    assert not {"dscp_to_priority", "prio_buffer", "max_buffer_size"} & set(value)


@pytest.mark.parametrize("end", ["json", "txt"])
def test_dcb(end):
    assert read(dcb, f"pfc.{end}").value["pfc"] == [False, False, False, True, False, False, False, False]
    ets = read(dcb, f"ets.{end}").value
    assert ets["tc_bandwidth"] == [0, 0, 0, 50, 0, 50, 0, 0] and ets["tsa"][3] == "ets" and ets["willing"] is False
    assert ets["priority_to_tc"] == list(range(8))
    assert read(dcb, f"buffer.{end}").value["prio_buffer"] == [0, 0, 0, 1, 0, 0, 0, 0]


def test_dcb_dscp_and_rounded_sizes():
    assert read(dcb, "app.json").value["dscp_to_priority"] == {"26": 3, "48": 6}
    assert read(dcb, "app.txt").value["dscp_to_priority"] == {"48": 6, "26": 3, "11": 1}
    assert read(dcb, "apptrust.json").value["trust"] == ["dscp"]
    assert read(dcb, "empty.json") == ({"extra": {}, "errors": []}, ())
    rounded = read(dcb, "buffer.txt").value
    assert "buffer_size" not in rounded and rounded["extra"]["total_size"] == "1Mb"
    assert read(dcb, "buffer.json").value["buffer_size"][1] == 156096


def test_mlxconfig_stages():
    device = read(mlxconfig, "query_all_stages.txt").value["devices"][0]
    parameters = device["parameters"]
    assert parameters["LINK_TYPE_P1"] == {"default": "IB(1)", "current": "IB(1)", "next": "ETH(2)", "modified": True}
    assert parameters["NUM_OF_PLANES_P1"]["read_only"] is True and parameters["NUM_OF_VFS"]["current"] == "8"
    assert (device["pci"], device["name"]) == ("0000:18:00.0", "MCX755106AS-HEA_Ax")
    plain = read(mlxconfig, "query_plain.txt").value["devices"][0]
    assert plain["parameters"]["CNP_DSCP_P1"] == {"next": "48"} and "pci" not in plain and "name" not in plain


def test_mlxconfig_json_says_the_same():
    text = read(mlxconfig, "query_all_stages.txt").value["devices"][0]["parameters"]["LINK_TYPE_P1"]
    document = read(mlxconfig, "query.json").value["devices"][0]["parameters"]["LINK_TYPE_P1"]
    assert document == {**text, "read_only": False}
    assert read(mlxconfig, "unknown_parameter.txt").value["errors"] == [
        "The Device doesn't support NO_SUCH_PARAM parameter"
    ]


def test_mlxconfig_without_indentation_and_a_second_command():
    text = (
        "Device #1:\n----------\nDevice type:    ConnectX5\nDevice:         /dev/mst/mt4119_pciconf0\n\n"
        "Configurations:      Next Boot       New\nLINK_TYPE_P1      IB(1)           ETH(2)\n\n"
        "[root@n1 ~]# mlxconfig -d 05:00.1 q | grep LINK_TYPE_P1\n        LINK_TYPE_P1      IB(1)\n"
    )
    first, second = mlxconfig.parse(text).value["devices"]
    assert first["parameters"] == {"LINK_TYPE_P1": {"next": "IB(1)", "new": "ETH(2)"}}
    assert second["parameters"] == {"LINK_TYPE_P1": {"next": "IB(1)"}} and "device" not in second


def test_mlxconfig_names_with_small_letters_and_values_that_firmware_does_not_tell():
    text = (
        "Device #1:\n\nConfigurations:                    Default         Current         Next Boot\n"
        "*RO      EXP_ROM_UEFI_x86_ENABLE                     True(1)         N/A             False(0)        \n"
        "         PARTIAL_WRITE_CACHE_MODE            ADDRESS_BASED(3)ADDRESS_BASED(3)ADDRESS_BASED(3)\n"
        "         SWITCH_COMPT_FEATURE_MASK           0x0(0)          0x0(0)          0x10(16)        \n"
        "The '*' shows parameters with next value different from default/current value.\n"
    )
    value, problems = mlxconfig.parse(text)
    parameters = value["devices"][0]["parameters"]
    rom = {"default": "True(1)", "next": "False(0)", "modified": True, "read_only": True}
    assert parameters["EXP_ROM_UEFI_x86_ENABLE"] == rom and problems == ()
    assert parameters["PARTIAL_WRITE_CACHE_MODE"]["next"] == "ADDRESS_BASED(3)"
    assert parameters["SWITCH_COMPT_FEATURE_MASK"]["next"] == "0x10(16)"
    told = {"default_value": 1, "current_value": "N/A", "next_value": 2, "modified": True, "read_only": False}
    document = json.dumps({"Device #1": {"device": "18:00.0", "tlv_configuration": {"NUM_OF_VFS": told}}})
    assert mlxconfig.parse(document).value["devices"][0]["parameters"]["NUM_OF_VFS"] == {
        "default": "1", "next": "2", "modified": True, "read_only": False,
    }  # fmt: skip


def test_a_row_with_too_few_values_is_told():
    text = "Device #1:\n\nConfigurations:      Default   Current   Next Boot\n        NUM_OF_VFS    0    8\n"
    value, problems = mlxconfig.parse(text)
    assert value["devices"][0]["parameters"] == {} and problems


def test_mst_status():
    value, _problems = read(mst_status, "verbose.txt")
    assert [(device.get("mst"), device["pci"], device["rdma"], device["netdevs"]) for device in value["devices"]] == [
        ("/dev/mst/mt4129_pciconf1", "0000:2a:00.0", ["mlx5_1"], ["ens2np0"]),
        ("/dev/mst/mt4129_pciconf0", "0000:18:00.0", ["mlx5_0"], ["ib0", "ib0.8001"]),
        (None, "0002:03:00.1", ["mlx5_5"], ["p1"]),
    ]
    assert [device["numa_node"] for device in value["devices"]] == [1, 0, None]
    plain = read(mst_status, "plain.txt").value
    assert plain["devices"][0]["pci"] == "0000:18:00.0"
    assert [module["loaded"] for module in plain["modules"]] == [False, True]


def test_ofed_info():
    assert read(ofed_info, "mlnx.txt").value["version"] == "24.10-1.1.4.0"
    assert read(ofed_info, "full.txt").value["version"] == "5.8-1.1.2.1"
    cut = ofed_info.parse("MLNX_OFED_LINUX-24.10-1.1")
    assert "version" not in cut.value and cut.problems


def test_iblinkinfo():
    value, problems = read(iblinkinfo, "fabric.txt")
    switch = value["nodes"][1]
    assert (switch["guid"], switch["description"]) == ("fc6a1c0300aa0040", "MF0;leaf-01:MQM9700/U1")
    slow = switch["ports"][1]
    assert (slow["width"], slow["speed"], slow["rate_gbps"], slow["remark"]) == (
        2,
        "HDR",
        100.0,
        "Could be 4X 106.25 Gbps",
    )
    assert switch["ports"][2] == {"lid": 2, "port": 19, "state": "down", "phys_state": "polling"}
    assert switch["ports"][3]["state"] == "initializing" and problems == ()
    assert (switch["ports"][4]["speed"], switch["ports"][4]["rate_gbps"]) == ("FDR10", 40.0)
    line = read(iblinkinfo, "line.txt").value["nodes"][0]
    assert line["description"] == "gpu-01 mlx5_0"
    assert line["ports"][0]["peer"]["guid"] == "fc6a1c0300aa0040"


def test_ibnetdiscover_forms_say_the_same():
    ports = read(ibnetdiscover, "ports.txt").value["links"]
    assert ports[1]["peer"] == {
        "type": "ca",
        "lid": 12,
        "port": 1,
        "guid": "b8cef60300000a10",
        "description": "gpu-01 mlx5_0",
    }
    assert "speed" not in ports[3] and "peer" not in ports[3]
    topology = read(ibnetdiscover, "topology.txt").value
    keys = ("type", "lid", "port", "width", "speed", "description")
    assert [tuple(topology["links"][n][key] for key in keys) for n in (2, 0)] == [
        tuple(ports[n][key] for key in keys) for n in (0, 1)
    ]
    assert topology["nodes"][0]["lid"] == 2 and topology["nodes"][1]["system_image_guid"] == "b8cef60300000a10"


def test_ibqueryerrors():
    value, problems = read(ibqueryerrors, "errors.txt")
    host, switch = value["nodes"]
    assert host["ports"][0]["counters"] == {"LinkDownedCounter": 3, "PortXmitWait": 22730501}
    assert host["ports"][0]["link"]["peer"]["port"] == 18
    assert [(port["port"], port["counters"]) for port in switch["ports"]] == [
        ("all", {"SymbolErrorCounter": 7, "PortXmitDiscards": 12}),
        (18, {"SymbolErrorCounter": 7}),
    ]
    assert value["summary"] == {"nodes_checked": 66, "bad_nodes": 2, "ports_checked": 129, "bad_ports": 2}
    assert problems == ()


def test_perfquery():
    port = read(perfquery, "extended.txt").value["ports"][0]
    assert (port["lid"], port["port"], port["extended"]) == (12, 1, True)
    assert port["counters"]["PortXmitData"] == 1234567890123
    plain = read(perfquery, "plain.txt").value["ports"][0]
    assert (plain["port"], plain["extended"], plain["counters"]["SymbolErrorCounter"]) == (255, False, 65535)


def test_ibswinfo():
    value, problems = read(ibswinfo, "switch.txt")
    assert (value["psid"], value["uptime_s"], value["temperature_c"]) == ("MT_0000000063", 1047845, 51)
    assert [(psu["status"], psu["dc_power"], psu["power_w"]) for psu in value["psus"]] == [
        ("OK", "OK", 121),
        ("ERROR", "ERROR", 0),
    ]
    assert value["fan_status"] == "OK" and value["fans"][1] == {"fan": 2, "rpm": 5111} and problems == ()


def test_a_table_with_a_note_behind_it_is_told():
    text = "PFC configuration:\n\tpriority    0 1 2 3 4 5 6 7\n\tenabled     0 0 0 1 0 0 0 0   <- RoCE\n"
    value, problems = mlnx_qos.parse(text)
    assert "pfc" not in value and "<- RoCE" in problems[0].text


def test_priorities_of_few_classes_and_lines_of_older_releases():
    text = (
        "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%\n\t priority:  3\n"
        "tc: 0 ratelimit: unlimited, tsa: ets, bw: 50%\n"
        + "".join(f"\t priority:  {n}\n" for n in (0, 1, 2, 4, 5, 6, 7))
        + "\t\tskprio: 0\n\t\tskprio: 2 (tos: 8)\n"
    )
    value, problems = mlnx_qos.parse(text)
    assert value["priority_to_tc"] == [0, 0, 0, 3, 0, 0, 0, 0] and problems == ()
    assert [tc["tc"] for tc in value["tcs"]] == [0, 3]


def test_a_cut_dscp_is_no_dscp():
    value, problems = mlnx_qos.parse("Priority trust state: dscp\ndscp2prio mapping:\n\tprio:3 dscp:26,2")
    assert value["dscp_to_priority"] == {"26": 3} and problems


def test_links_of_a_switch_are_not_taken_for_a_cas():
    text = decode(next(path for path in fixture_files("iblinkinfo") if path.name == "fabric.txt").read_bytes())
    lost = "\n".join(line for line in text.split("\n") if not line.startswith("Switch:"))
    value, problems = iblinkinfo.parse(lost)
    assert [len(node["ports"]) for node in value["nodes"]] == [1] and problems
