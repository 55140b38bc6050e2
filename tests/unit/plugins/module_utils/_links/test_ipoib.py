# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IP over InfiniBand: the kernel's answer is read, the commands make a partition, each manager's files say so."""

from __future__ import annotations

import configparser
import json
import shutil
import subprocess

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import host, managers
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import delta, missing, removal
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    Ipoib,
    Link,
    LinkError,
    wanted_link,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.present import present_links

PORT = {"netdev": "ibp24s0", "mtu": 4092, "addresses": ["10.241.0.5/24"], "ipoib": {"mode": "datagram"}}
PARTITION = {
    "netdev": "ibp24s0.8005",
    "mtu": 4092,
    "addresses": ["10.242.0.5/24", "fd00:242::5/64"],
    "ipoib": {"mode": "datagram", "parent": "ibp24s0", "pkey": "0x8005"},
}
LINKS = [wanted_link(PORT), wanted_link(PARTITION)]


def entry(name: str, key: str, mode: str = "datagram", mtu: int = 4092, **more: object) -> dict[str, object]:
    """An interface as `ip -json -details address` of iproute2 6.1 has it."""
    data = {"key": key, "mode": mode, "umcast": "0000"}
    return {
        "ifname": name,
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
        "mtu": mtu,
        "link_type": "infiniband",
        "address": "00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:4d:11:22",
        "linkinfo": {"info_kind": "ipoib", "info_data": data},
        **more,
    }


def kernel(*entries: dict[str, object]) -> dict[str, Link]:
    return present_links({"addresses": json.dumps(entries), "routes4": "", "routes6": "", "rules4": "", "rules6": ""})


def addressed(link: dict[str, object], *addresses: str) -> dict[str, object]:
    split = [address.split("/") for address in addresses]
    return {**link, "addr_info": [{"local": a, "prefixlen": int(p), "scope": "global"} for a, p in split]}


def commands(wanted: Link, present: Link) -> list[str]:
    return [" ".join(argv) for argv in delta(wanted, present).commands]


def test_commands_make_the_partition_of_nothing() -> None:
    assert commands(LINKS[1], Link("ibp24s0.8005", up=False)) == [
        "ip link add link ibp24s0 name ibp24s0.8005 type ipoib pkey 0x8005 mode datagram",
        "ip link set dev ibp24s0.8005 mtu 4092",
        "ip link set dev ibp24s0.8005 up",
        "ip address replace 10.242.0.5/24 dev ibp24s0.8005",
        "ip address replace fd00:242::5/64 dev ibp24s0.8005 nodad",
    ]


def test_what_is_as_wanted_needs_nothing() -> None:
    present = kernel(
        addressed(entry("ibp24s0", "0xffff"), "10.241.0.5/24"),
        addressed(entry("ibp24s0.8005", "0x8005", link="ibp24s0"), "10.242.0.5/24", "fd00:242::5/64"),
    )
    for link in LINKS:
        item = delta(link, present[link.netdev])
        assert item.commands == [] and item.before == item.after == {} and missing(link, present[link.netdev]) == []


def test_connected_mode_is_given_back_to_datagram_and_the_diff_says_it() -> None:
    present = kernel(addressed(entry("ibp24s0", "0xffff", mode="connected", mtu=65520), "10.241.0.5/24"))["ibp24s0"]
    item = delta(LINKS[0], present)
    assert [" ".join(argv) for argv in item.commands] == [
        "ip link set dev ibp24s0 type ipoib mode datagram",
        "ip link set dev ibp24s0 mtu 4092",
    ]
    assert item.before["mtu"] == 65520 and item.before["ipoib"].startswith("connected")
    assert item.after["mtu"] == 4092 and item.after["ipoib"].startswith("datagram")


def test_smaller_mtu_of_the_broadcast_group_is_named_as_what_keeps_it_small() -> None:
    present = kernel(addressed(entry("ibp24s0", "0xffff", mtu=2044), "10.241.0.5/24"))["ibp24s0"]
    (lack,) = missing(LINKS[0], present)
    assert lack.startswith("MTU 2044, wanted 4092") and "broadcast group" in lack


class Kernel:
    """A host whose interfaces are given."""

    def __init__(self, present: dict[str, Link], *wanted: Link, record: dict[str, object] | None = None) -> None:
        self.links = host.Links.__new__(host.Links)
        self.links.present, self.links.record, self.links.changed_before = present, record or {}, {}
        self.links.wanted = {link.netdev: link for link in wanted}


@pytest.mark.parametrize(
    ("present", "said"),
    [
        ({}, "ibp24s0, over which ibp24s0.8005 shall be, does not exist"),
        ({"ibp24s0": Link("ibp24s0")}, "ibp24s0, over which ibp24s0.8005 shall be, is no IP over InfiniBand"),
        (
            kernel(entry("ibp24s0", "0xffff"), entry("ibp24s0.8005", "0x8006", link="ibp24s0")),
            "datagram of partition 0x8006 over ibp24s0, wanted datagram of partition 0x8005 over ibp24s0",
        ),
        ({**kernel(entry("ibp24s0", "0xffff")), "ibp24s0.8005": Link("ibp24s0.8005")}, "no IP over InfiniBand"),
    ],
)
def test_partition_that_cannot_be_is_refused_before_anything_changes(present: dict[str, Link], said: str) -> None:
    with pytest.raises(LinkError, match="No link was changed") as refused:
        Kernel(present, LINKS[1]).links.refuse([])
    assert said in str(refused.value)


def test_partition_of_an_earlier_run_is_taken_away_and_the_port_gets_back_its_mode() -> None:
    before = kernel(entry("ibp24s0", "0xffff", mode="connected", mtu=65520))
    record = Kernel(before, *LINKS).links.new_record()
    assert record["ibp24s0.8005"]["before"] == {"absent": True}
    after = kernel(entry("ibp24s0", "0xffff"), entry("ibp24s0.8005", "0x8005", link="ibp24s0"))
    gone = Kernel(after, record=json.loads(json.dumps(record))).links
    assert [" ".join(argv) for item in gone.deltas() for argv in item.commands] == [
        "ip link delete dev ibp24s0.8005",
        "ip link set dev ibp24s0 type ipoib mode connected",
        "ip link set dev ibp24s0 mtu 65520",
    ]
    assert removal(after["ibp24s0.8005"], {}).after == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "fast"}, "transport mode is 'fast'"),
        ({"parent": "ib0", "pkey": "0x7fff"}, "0x7fff"),
        ({"parent": "ib0", "pkey": "0x8000"}, "0x8000"),
        ({"parent": "ib0", "pkey": "0xffff"}, "0xffff"),
        ({"parent": "ib0", "pkey": "0x18001"}, "0x18001"),
        ({"pkey": "0x8001"}, "parent: None"),
        ({"parent": "ib0", "pkey": "eight"}, "eight"),
    ],
)
def test_odd_partition_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(LinkError, match=r"ib0\.8001") as refused:
        wanted_link({"netdev": "ib0.8001", "ipoib": given})
    assert said in str(refused.value)


def test_networkd_makes_the_partition_because_the_ports_file_asks_for_it() -> None:
    files = managers.files(managers.MANAGERS["networkd"], LINKS)
    directory = "/etc/systemd/network/05-gpu-fabric-ibp24s0"
    assert set(files) == {
        f"{directory}.network",
        f"{directory}.network.d/05-gpu-fabric-ibp24s0.8005.conf",
        f"{directory}.8005.netdev",
        f"{directory}.8005.network",
    }
    netdev = configparser.ConfigParser()
    netdev.optionxform = str  # type: ignore[method-assign,assignment]
    netdev.read_string(files[f"{directory}.8005.netdev"])
    assert dict(netdev["NetDev"]) == {"Name": "ibp24s0.8005", "Kind": "ipoib"}
    assert dict(netdev["IPoIB"]) == {"PartitionKey": "0x8005", "Mode": "datagram"}
    assert "[Network]\nIPoIB=ibp24s0.8005\n" in files[f"{directory}.network.d/05-gpu-fabric-ibp24s0.8005.conf"]
    assert "MTUBytes=4092" in files[f"{directory}.8005.network"]


def test_netplan_has_the_addresses_and_its_back_end_the_partition() -> None:
    files = managers.files(managers.MANAGERS["netplan"], LINKS)
    child = yaml.safe_load(files["/etc/netplan/60-gpu-fabric-ibp24s0.8005.yaml"])["network"]["ethernets"]
    assert child["ibp24s0.8005"]["addresses"] == ["10.242.0.5/24", "fd00:242::5/64"]
    drop_in = "/etc/systemd/network/10-netplan-ibp24s0.network.d/05-gpu-fabric-ibp24s0.8005.conf"
    assert "IPoIB=ibp24s0.8005" in files[drop_in]
    assert "Kind=ipoib" in files["/etc/systemd/network/05-gpu-fabric-ibp24s0.8005.netdev"]


def test_netplan_names_connected_mode_alone_for_datagram_is_the_kernels() -> None:
    connected = wanted_link({"netdev": "ib0", "ipoib": {"mode": "connected"}, "mtu": 65520})
    (text,) = managers.files(managers.MANAGERS["netplan"], [connected]).values()
    assert yaml.safe_load(text)["network"]["ethernets"]["ib0"]["infiniband-mode"] == "connected"
    (text,) = managers.files(managers.MANAGERS["netplan"], [LINKS[0]]).values()
    assert "infiniband-mode" not in text


def test_networkmanager_has_the_key_as_a_number() -> None:
    files = managers.files(managers.MANAGERS["networkmanager"], LINKS)
    port, child = configparser.ConfigParser(), configparser.ConfigParser()
    port.read_string(files["/etc/NetworkManager/system-connections/gpu-fabric-ibp24s0.nmconnection"])
    child.read_string(files["/etc/NetworkManager/system-connections/gpu-fabric-ibp24s0.8005.nmconnection"])
    assert port["connection"]["type"] == child["connection"]["type"] == "infiniband"
    assert dict(port["infiniband"]) == {"mtu": "4092", "transport-mode": "datagram"}
    assert dict(child["infiniband"]) == {
        "mtu": "4092",
        "p-key": str(0x8005),
        "parent": "ibp24s0",
        "transport-mode": "datagram",
    }
    assert "ethernet" not in child and child["ipv4"]["address1"] == "10.242.0.5/24"


@pytest.mark.skipif(shutil.which("nmcli") is None, reason="no nmcli here: NetworkManager's own parser is not asked")
def test_networkmanagers_own_parser_takes_the_keyfile_as_it_is() -> None:
    for text in managers.files(managers.MANAGERS["networkmanager"], LINKS).values():
        answer = subprocess.run(
            ["nmcli", "--offline", "connection", "modify", "connection.autoconnect", "yes"],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        said = answer.stdout
        assert "mtu=4092" in said and "transport-mode=datagram" in said
        assert ("p-key=32773\nparent=ibp24s0" in said) == ("p-key" in text)


def test_ifupdown_makes_the_partition_where_it_is_not_there_yet() -> None:
    files = managers.files(managers.MANAGERS["ifupdown"], LINKS)
    text = files["/etc/network/interfaces.d/gpu-fabric-ibp24s0_8005"]
    making = (
        "ip link show dev $IFACE >/dev/null 2>&1 ||"
        " ip link add link ibp24s0 name $IFACE type ipoib pkey 0x8005 mode datagram"
    )
    assert text.count(f"    pre-up {making}\n") == 1
    assert text.index(making) < text.index("pre-up ip link set dev $IFACE mtu 4092")
    assert "ip link add" not in files["/etc/network/interfaces.d/gpu-fabric-ibp24s0"]
    # Kernels without connected mode have no file for the mode, and what fails keeps ifup from going on.
    assert "/mode" not in "".join(files.values())


@pytest.mark.parametrize(
    ("name", "systemd", "refused"),
    [
        ("networkd", 252, False),
        ("networkd", 249, True),
        ("netplan", 0, False),
        ("networkmanager", 249, False),
        ("ifupdown", 249, False),
    ],
)
def test_manager_that_would_lose_the_partition_at_reboot_is_refused(name: str, systemd: int, refused: bool) -> None:
    manager = managers.MANAGERS[name]
    managers.check_partitions(manager, [LINKS[0]], systemd)
    if not refused:
        managers.check_partitions(manager, LINKS, systemd)
        return
    with pytest.raises(LinkError, match=r"ibp24s0\.8005 would be gone after a reboot"):
        managers.check_partitions(manager, LINKS, systemd)


def test_port_is_read_without_a_parent_and_a_partition_with_one() -> None:
    present = kernel(entry("ibp24s0", "0xffff"), entry("ibp24s0.8005", "0x8005", link="ibp24s0"))
    assert present["ibp24s0"].ipoib == Ipoib("datagram", None, 0xFFFF)
    assert present["ibp24s0.8005"].ipoib == Ipoib("datagram", "ibp24s0", 0x8005)
