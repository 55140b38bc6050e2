# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces, addresses, routes and the connection of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hosts import link, live, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import (
    netdevs,
    nics,
    proc_net,
    qos,
    rdma,
    routes,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools

IP_ADDR = [
    {
        "ifname": "lo",
        "flags": ["LOOPBACK", "UP"],
        "mtu": 65536,
        "operstate": "UNKNOWN",
        "link_type": "loopback",
        "addr_info": [],
    },
    {
        "ifname": "rail0.100",
        "link": "rail0",
        "flags": ["UP", "LOWER_UP"],
        "mtu": 9000,
        "operstate": "UP",
        "link_type": "ether",
        "linkinfo": {"info_kind": "vlan", "info_data": {"protocol": "802.1Q", "id": 100}},
        "addr_info": [
            {"family": "inet", "local": "10.1.0.7", "prefixlen": 24},
            {"family": "inet6", "local": "fd00::7", "prefixlen": 64},
        ],
    },
    {"ifname": "veth9", "flags": [], "operstate": "DOWN", "link_type": "ether", "linkinfo": {"info_kind": "veth"}},
    {"ifname": "ib0", "flags": ["UP"], "mtu": 4092, "max_mtu": 65520, "link_type": "infiniband", "addr_info": []},
]


class TestNetdevs:
    def test_the_kernel_does_not_tell_the_carrier_of_an_interface_that_is_switched_off(self, tmp_path: Path) -> None:
        files = {f"/sys/class/net/{name}/operstate": state for name, state in (("off", "down\n"), ("odd", "unknown\n"))}
        found = netdevs.collect(live(tmp_path, files))
        assert found["off"]["carrier"] is False
        assert "carrier" not in found["odd"]

    def test_what_ip_tells(self, tmp_path: Path) -> None:
        found = netdevs.collect(recorded(tmp_path, {"ip_addr.json": json.dumps(IP_ADDR)}))
        assert found["rail0.100"]["vlan"] == {"id": 100, "link": "rail0"}
        assert found["rail0.100"]["kind"] == "vlan"
        assert found["rail0.100"]["addresses"] == ["10.1.0.7/24", "fd00::7/64"]
        assert found["lo"]["kind"] == "loopback"
        assert found["veth9"]["kind"] == "veth"
        assert "addresses" not in found["veth9"]
        assert (found["ib0"]["type"], found["ib0"]["mtu_max"]) == (32, 65520)

    def test_an_ip_without_json_falls_back_to_procfs(self, tmp_path: Path) -> None:
        source = live(
            tmp_path,
            {
                "/proc/net/route": (
                    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
                    "eno1\t00000000\t010AA8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
                    "eno1\t000AA8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
                ),
                "/proc/net/fib_trie": (
                    "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.168.10.0\n        /24 link UNICAST\n"
                    "     |-- 192.168.10.57\n        /32 host LOCAL\n"
                    "     |-- 192.168.10.255\n        /32 link BROADCAST\n"
                ),
                "/proc/net/if_inet6": "fe80000000000000020000fffe000001 02 40 20 80     eno1\n",
            },
            commands={"ip": 'echo "Usage: ip [ -V ]" >&2; exit 255'},
        )
        assert netdevs.collect(source)["eno1"]["addresses"] == ["192.168.10.57/24", "fe80::200:ff:fe00:1/64"]
        assert routes.collect(source)["routes"] == [
            {"dst": "default", "dev": "eno1", "via": "192.168.10.1", "table": "main", "metric": 100, "family": 4},
            {"dst": "192.168.10.0/24", "dev": "eno1", "table": "main", "metric": 100, "family": 4},
        ]

    def test_an_answer_that_is_no_json_is_said(self, tmp_path: Path) -> None:
        source = live(tmp_path, commands={"ip": "echo '1: lo: <LOOPBACK>'"})
        netdevs.collect(source)
        assert source.unread[0]["source"] == "ip -j -d addr"

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("lo", "loopback"),
            ("enp90s0np0", "physical"),
            ("bond0", "bond"),
            ("bond0.2973", "vlan"),
            ("docker0", "bridge"),
            ("br-8fbf90e8cf76", "bridge"),
            ("veth81094fc@if10", "veth"),
            ("ibs0", "ipoib"),
            ("cilium_host", "other"),
            ("enp90s0v0", "vf"),
        ],
    )
    def test_kinds_by_name_where_nothing_else_was_recorded(self, tmp_path: Path, name: str, kind: str) -> None:
        found = netdevs.collect(recorded(tmp_path, {"ip_br_addr.txt": f"{name}  UP  10.0.0.1/8\n"}))
        assert found[name.split("@")[0]]["kind"] == kind

    def test_a_bond_from_its_report(self, tmp_path: Path) -> None:
        report = (
            "Ethernet Channel Bonding Driver: v5.15\n\nBonding Mode: IEEE 802.3ad Dynamic link aggregation\n"
            "Transmit Hash Policy: layer3+4 (1)\nMII Status: up\n\nSlave Interface: p0\n"
            "MII Status: up\nSpeed: 200000 Mbps\n"
            "\nSlave Interface: p1\nMII Status: down\nSpeed: Unknown\n"
        )
        found = netdevs.collect(recorded(tmp_path, {"root/proc/net/bonding/bond7": report}))
        bond = found["bond7"]["bond"]
        assert (bond["mode"], bond["members"], bond["active"]) == ("802.3ad", ["p0", "p1"], ["p0"])
        assert found["p1"]["master"] == "bond7"
        assert found["p0"]["speed_mbps"] == 200000
        assert "speed_mbps" not in found["p1"]


class TestRoutes:
    def test_policy_routing(self, tmp_path: Path) -> None:
        found = routes.collect(
            recorded(
                tmp_path,
                {
                    "ip_route_table_all.json": json.dumps(
                        [
                            {"dst": "default", "gateway": "10.224.0.1", "dev": "rail0", "table": "101"},
                            {"dst": "10.224.0.0/24", "dev": "rail0", "prefsrc": "10.224.0.11", "metric": 5},
                            {"type": "local", "dst": "10.224.0.11", "dev": "rail0", "table": "local"},
                            {"type": "broadcast", "dst": "10.224.0.255", "dev": "rail0"},
                            {"dst": "10.9.9.9", "dev": "rail0"},
                            {"type": "blackhole", "dst": "10.0.0.0/8"},
                        ]
                    ),
                    "ip_rule.json": json.dumps([{"priority": 100, "src": "10.224.0.11", "table": "101"}]),
                },
            )
        )
        assert found["routes"] == [
            {"dst": "default", "family": 4, "table": "101", "via": "10.224.0.1", "dev": "rail0"},
            {"dst": "10.224.0.0/24", "family": 4, "table": "main", "dev": "rail0", "src": "10.224.0.11", "metric": 5},
            {"dst": "10.9.9.9/32", "family": 4, "table": "main", "dev": "rail0"},
            {"dst": "10.0.0.0/8", "family": 4, "table": "main", "type": "blackhole"},
        ]
        assert found["rules"] == [{"priority": 100, "from": "10.224.0.11", "family": 4, "table": "101"}]

    def test_text_forms(self) -> None:
        assert routes._routes_of_text(
            "default via 10.0.0.254 dev eno1 proto static metric 50 \n10.1.0.0/24 dev r0 table 101 src 10.1.0.5\n"
            "broadcast 10.1.0.255 dev r0 table local\nfd00::/64 dev r0 metric 256\nnonsense here\n"
        ) == [
            {"dst": "default", "family": 4, "via": "10.0.0.254", "dev": "eno1", "metric": 50, "table": "main"},
            {"dst": "10.1.0.0/24", "family": 4, "dev": "r0", "table": "101", "src": "10.1.0.5"},
            {"dst": "fd00::/64", "family": 6, "dev": "r0", "metric": 256, "table": "main"},
        ]
        assert routes._rules_of_text("0:\tfrom all lookup local\n100:\tfrom 10.1.0.5 lookup 101\n") == [
            {"priority": 0, "from": "all", "table": "local", "family": 4},
            {"priority": 100, "from": "10.1.0.5", "table": "101", "family": 4},
        ]

    @settings(max_examples=60, deadline=None)
    @given(st.text(max_size=200))
    def test_any_text(self, text: str) -> None:
        for parse in (proc_net.parse_proc_route, proc_net.parse_bonding):
            parse(text)


class TestConnection:
    NETDEVS: dict[str, Any] = {"eno1": {"addresses": ["192.0.2.8/24"]}, "rail0": {"addresses": ["10.224.0.11/24"]}}
    DEFAULT: list[dict[str, Any]] = [{"dst": "default", "dev": "eno1", "table": "main", "family": 4}]

    def test_the_interface_that_carries_it(self, tmp_path: Path) -> None:
        source = live(tmp_path, environ={"SSH_CONNECTION": "10.224.0.99 50022 10.224.0.11 22"})
        assert routes.ssh(source, self.NETDEVS, self.DEFAULT) == {
            "address": "10.224.0.11",
            "port": 22,
            "client": "10.224.0.99",
            "netdev": "rail0",
            "basis": "ssh_connection",
        }

    def test_an_address_that_is_not_the_hosts_own(self, tmp_path: Path) -> None:
        source = live(tmp_path, environ={"SSH_CONNECTION": "203.0.113.5 50022 198.51.100.1 22"})
        found = routes.ssh(source, self.NETDEVS, self.DEFAULT)
        assert found is not None
        assert (found["netdev"], found["basis"]) == ("eno1", "default_route")

    def test_link_local_addresses_lose_their_scope(self, tmp_path: Path) -> None:
        source = live(tmp_path, environ={"SSH_CONNECTION": "fe80::9%eno1 50022 192.0.2.8 2222"})
        found = routes.ssh(source, self.NETDEVS, [])
        assert found is not None
        assert (found["client"], found["port"]) == ("fe80::9", 2222)

    def test_sudo_dropped_it_and_a_parent_has_it(self, tmp_path: Path) -> None:
        source = live(
            tmp_path,
            {
                "/proc/self/environ": "PATH=/bin\0",
                "/proc/self/status": "Name:\tpython3\nPPid:\t300\n",
                "/proc/300/environ": "HOME=/root\0",
                "/proc/300/status": "Name:\tsudo\nPPid:\t200\n",
                "/proc/200/environ": "SSH_CONNECTION=192.0.2.1 4022 192.0.2.8 22\0SHELL=/bin/sh\0",
            },
        )
        found = routes.ssh(source, self.NETDEVS, [])
        assert found is not None
        assert (found["netdev"], found["client"]) == ("eno1", "192.0.2.1")

    def test_no_connection_and_no_default_route(self, tmp_path: Path) -> None:
        assert routes.ssh(live(tmp_path), self.NETDEVS, []) is None

    def test_the_lowest_metric_wins(self, tmp_path: Path) -> None:
        defaults = [{**self.DEFAULT[0], "metric": 200}, {**self.DEFAULT[0], "dev": "rail0", "metric": 100}]
        found = routes.ssh(live(tmp_path), self.NETDEVS, defaults)
        assert found is not None
        assert found["netdev"] == "rail0"


MLNX_QOS = """\
DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
\tprio:4 dscp:39,38,37,36,35,34,33,32,
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   0   1   0   0   0
"""


class TestQos:
    def of(
        self, directory: Path, commands: dict[str, str], files: dict[str, Any] | None = None, driver: str = "mlx5_core"
    ) -> dict[str, Any]:
        source = live(directory, files, commands)
        link(Path(source.root), "sys/class/net/rail0/device/driver", f"../../../../bus/pci/drivers/{driver}")
        return qos.collect(source, Tools(source), {"rail0": "Ethernet", "ib0": "InfiniBand"})

    def test_ofed_answers_first(self, tmp_path: Path) -> None:
        found = self.of(
            tmp_path,
            {"mlnx_qos": f"cat <<'X'\n{MLNX_QOS}X", "dcb": "exit 1"},
            {"/sys/class/net/rail0/ecn/roce_np/enable/4": "1\n", "/sys/class/net/rail0/ecn/roce_np/cnp_dscp": "48\n"},
        )
        assert list(found) == ["rail0"]
        assert found["rail0"]["backend"] == "mlnx_qos"
        assert found["rail0"]["trust"] == "dscp"
        assert found["rail0"]["dscp_to_priority"]["34"] == 4
        assert found["rail0"]["pfc"] == [False, False, False, False, True, False, False, False]
        assert found["rail0"]["ecn"] == {
            "roce_np": [False, False, False, False, True, False, False, False],
            "cnp_dscp": 48,
        }

    def test_other_drivers_are_not_mlnx_qos_to_read(self, tmp_path: Path) -> None:
        pfc = '{"pfc_cap":8,"prio_pfc":[false,false,false,true,false,false,false,false]}'
        answers = {
            "mlnx_qos": f"cat <<'X'\n{MLNX_QOS}X",
            "dcb": f"case $2 in pfc) echo '{pfc}';; *) exit 1;; esac",
        }
        found = self.of(tmp_path, answers, driver="bnxt_en")["rail0"]
        assert found["backend"] == "dcb" and found["pfc"].index(True) == 3 and "trust" not in found

    @pytest.mark.parametrize(
        ("app", "table", "trust"), [('{"dscp_prio":[[26,3," "]]}', {"26": 3}, "dscp"), ("{}", {}, "pcp")]
    )
    def test_iproute2_where_ofed_is_not(self, tmp_path: Path, app: str, table: dict[str, int], trust: str) -> None:
        found = self.of(
            tmp_path,
            {
                "dcb": f"""case $2 in
                  app) echo '{app}';;
                  pfc) echo '{{"pfc_cap":8,"prio_pfc":[false,false,false,true,false,false,false,false]}}';;
                  *) echo 'Attribute not found: Operation not supported' >&2; exit 1;;
                esac"""
            },
        )["rail0"]
        assert (found["backend"], found["dscp_to_priority"], found["trust"]) == ("dcb", table, trust)
        assert found["pfc"].index(True) == 3

    def test_neither_tool(self, tmp_path: Path) -> None:
        assert self.of(tmp_path, {}) == {}

    def test_pause_frames(self, tmp_path: Path) -> None:
        answer = "Pause parameters for $2:\\nAutonegotiate:\\toff\\nRX:\\t\\ton\\nTX:\\t\\toff\\n"
        source = live(tmp_path, commands={"ethtool": f'[ "$2" = rail0 ] && printf "{answer}"'})
        found: dict[str, Any] = {"rail0": {"driver": "mlx5_core"}}
        nics.merge(source, Tools(source), found, {"rail0": "Ethernet", "rail1": "Ethernet", "ib0": "InfiniBand"})
        assert found == {
            "rail0": {"driver": "mlx5_core", "pause": {"autonegotiate": False, "rx": True, "tx": False}},
        }

    def test_port_settings_where_they_are_asked_for(self, tmp_path: Path) -> None:
        """Of the ports themselves: the members of a bond, which has none."""
        script = """case "$1 $2" in
          "-g m0") printf 'Ring parameters for m0:\\nPre-set maximums:\\nRX:\\t\\t8192\\nTX:\\t\\t4096\\nCurrent hardware settings:\\nRX:\\t\\t1024\\nTX:\\t\\t512\\n';;
          "-l m0") printf 'Channel parameters for m0:\\nPre-set maximums:\\nCombined:\\t63\\nCurrent hardware settings:\\nCombined:\\t8\\n';;
          "--show-fec m0") printf 'FEC parameters for m0:\\nConfigured FEC encodings: Auto\\nActive FEC encoding: RS\\n';;
          "m0 ") printf 'Settings for m0:\\n\\tSupported link modes:   100000baseCR4/Full\\n\\t  200000baseCR4/Full\\n\\tAdvertised link modes:  200000baseCR4/Full\\n\\tAuto-negotiation: on\\n';;
          *) exit 95;;
        esac"""  # noqa: E501
        source = live(tmp_path, commands={"ethtool": script})
        found: dict[str, Any] = {"bond0": {"bond": {"members": ["m0", "m1"]}}, "m0": {}}
        fabric = {"bond0": "Ethernet", "ib0": "InfiniBand"}
        nics.merge(source, Tools(source), found, fabric)
        assert found["m0"] == {}
        nics.merge(source, Tools(source), found, fabric, port_settings=True)
        assert found["m0"] == {
            "rings": {"rx": 1024, "tx": 512, "rx_max": 8192, "tx_max": 4096},
            "channels": {"combined": 8, "combined_max": 63},
            "link_mode": {"autoneg": True, "supported_gbps": [100, 200], "advertised_gbps": [200]},
            "fec": {"configured": ["auto"], "active": ["rs"]},
        }
        assert set(found) == {"bond0", "m0"} and set(found["bond0"]) == {"bond"}


def test_place_of_a_key_is_kept_where_the_table_has_holes(tmp_path: Path) -> None:
    place = "/sys/class/infiniband/mlx5_0/ports/1/pkeys"
    keys = {"0": "0x7fff", "1": "0x0000", "2": "0x8005", "10": "0x800b", "3": "odd"}
    port = rdma.collect(live(tmp_path, {f"{place}/{index}": f"{key}\n" for index, key in keys.items()}))["mlx5_0"][
        "ports"
    ]
    assert port["1"]["pkey_table"] == {"0": "7fff", "2": "8005", "10": "800b"}
    assert port["1"]["pkeys"] == ["7fff", "8005", "800b"]


@pytest.mark.parametrize(
    ("mtu", "active"), [(9000, 4096), (4200, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (1280, 1024), (300, None)]
)
def test_path_mtu_of_a_roce_port(mtu: int, active: int | None) -> None:
    assert rdma.roce_mtu(mtu) == active


def test_a_card_with_a_port_of_each_kind(tmp_path: Path) -> None:
    """ConnectX-3: both ports on one function, told apart by number and by kind."""
    card = "/sys/devices/pci0000:00/0000:00:03.0/0000:04:00.0"
    files = {
        f"{card}/infiniband/mlx4_0/ports/1/link_layer": "InfiniBand\n",
        f"{card}/infiniband/mlx4_0/ports/2/link_layer": "Ethernet\n",
        f"{card}/infiniband/mlx4_0/node_type": "1: CA\n",
    }
    for name, port, kind in (("ib0", 0, 32), ("ib0_child", 1, 32), ("ens1d1", 1, 1)):
        files[f"{card}/net/{name}/dev_port"] = f"{port}\n"
        files[f"{card}/net/{name}/type"] = f"{kind}\n"
    source = live(tmp_path, files)
    link(Path(source.root), "sys/class/infiniband/mlx4_0", f"../..{card[4:]}/infiniband/mlx4_0")
    link(Path(source.root), f"{card}/infiniband/mlx4_0/device", "../..")
    device = rdma.collect(source)["mlx4_0"]
    assert device["pci"] == "0000:04:00.0"
    assert device["ports"]["1"]["netdevs"] == ["ib0"]
    assert device["ports"]["2"]["netdevs"] == ["ens1d1"]


def test_soft_roce_is_software(tmp_path: Path) -> None:
    device = "/sys/devices/virtual/infiniband/rxe0"
    source = live(tmp_path, {f"{device}/parent": "eno1\n", f"{device}/ports/1/state": "4: ACTIVE\n"})
    link(Path(source.root), "sys/class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0")
    found = rdma.collect(source)["rxe0"]
    assert (found["software"], found["parent_netdev"]) == (True, "eno1")
    assert "pci" not in found


@pytest.mark.parametrize(
    ("gid", "address"),
    [
        ("0000:0000:0000:0000:0000:ffff:0ae0:010b", "10.224.1.11"),
        ("0000:0000:0000:0000:0000:FFFF:C0A8:0001", "192.168.0.1"),
        ("fe80:0000:0000:0000:ba3f:d2ff:fe00:0010", None),
        ("0000:0000:0000:0000:0000:0000:0000:0001", None),
        ("0000:0000:0000:0000:0000:ffff:0ae0", None),
        ("", None),
    ],
)
def test_ipv4_in_a_gid(gid: str, address: str | None) -> None:
    assert rdma.ipv4_of_gid(gid) == address
