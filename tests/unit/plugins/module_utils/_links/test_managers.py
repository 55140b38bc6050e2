"""Each network manager's file says what the link says; the right manager is chosen."""

from __future__ import annotations

import configparser
import itertools
from dataclasses import replace

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import (
    ifupdown,
    managers,
    netplan,
    networkd,
    networkmanager,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import LinkError, wanted_link

LINK = wanted_link(
    {
        "netdev": "ens1f0np0",
        "mtu": 9000,
        "addresses": ["10.224.0.11/24", "fd00:0:0:1::b/64"],
        "routes": [
            {"dst": "10.224.0.0/24", "src": "10.224.0.11", "table": 100},
            {"dst": "default", "via": "10.224.0.1", "table": 100},
        ],
        "rules": [{"from": "10.224.0.11", "table": 100, "priority": 100}],
    }
)


def test_networkd_file() -> None:
    sections = [block.splitlines() for block in networkd.render(LINK).strip().split("\n\n")]
    named = {lines[0]: set(lines[1:]) for lines in sections}
    assert named["[Match]"] == {"Name=ens1f0np0"}
    assert named["[Link]"] == {"MTUBytes=9000", "RequiredForOnline=no"}
    assert {"Address=10.224.0.11/24", "Address=fd00:0:0:1::b/64", "IPv6AcceptRA=no"} <= named["[Network]"]
    routes = [set(lines[1:]) for lines in sections if lines[0] == "[Route]"]
    assert routes == [
        {"Destination=10.224.0.0/24", "Scope=link", "PreferredSource=10.224.0.11", "Table=100"},
        {"Destination=0.0.0.0/0", "Gateway=10.224.0.1", "Table=100"},
    ]
    assert named["[RoutingPolicyRule]"] == {"From=10.224.0.11", "Table=100", "Priority=100"}


def test_netplan_file_is_the_yaml_that_netplan_reads() -> None:
    ethernet = yaml.safe_load(netplan.render(LINK))["network"]["ethernets"]["ens1f0np0"]
    assert ethernet["mtu"] == 9000
    assert ethernet["addresses"] == ["10.224.0.11/24", "fd00:0:0:1::b/64"]
    assert ethernet["routes"] == [
        {"to": "10.224.0.0/24", "scope": "link", "from": "10.224.0.11", "table": 100},
        {"to": "0.0.0.0/0", "via": "10.224.0.1", "table": 100},
    ]
    assert ethernet["routing-policy"] == [{"from": "10.224.0.11", "table": 100, "priority": 100}]


def test_networkmanager_keyfile() -> None:
    keyfile = configparser.ConfigParser()
    keyfile.read_string(networkmanager.render(LINK))
    assert keyfile["connection"]["interface-name"] == "ens1f0np0"
    assert keyfile["ethernet"]["mtu"] == "9000"
    assert keyfile["ipv4"]["address1"] == "10.224.0.11/24"
    assert keyfile["ipv4"]["route2"] == "0.0.0.0/0,10.224.0.1"
    assert keyfile["ipv4"]["route1_options"] == "table=100,src=10.224.0.11"
    assert keyfile["ipv4"]["routing-rule1"] == "priority 100 from 10.224.0.11 table 100"
    assert keyfile["ipv4"]["never-default"] == "true"
    assert keyfile["ipv6"]["method"] == "manual"


def test_ifupdown_file_sets_the_mtu_once_and_routes_after_all_addresses() -> None:
    lines = ifupdown.render(LINK).splitlines()
    assert lines[0] == "auto ens1f0np0"
    assert lines.index("iface ens1f0np0 inet static") < lines.index("iface ens1f0np0 inet6 static")
    assert [line for line in lines if "mtu 9000" in line] == ["    pre-up ip link set dev $IFACE mtu 9000"]
    assert "    up ip -4 route replace default via 10.224.0.1 dev $IFACE table 100" in lines


def test_ifupdown_file_of_a_link_without_address_still_brings_it_up() -> None:
    text = ifupdown.render(wanted_link({"netdev": "ib0", "mtu": 4092}))
    assert "iface ib0 inet manual" in text
    assert "up ip link set dev $IFACE up" in text


UNITS = ("NetworkManager.service", "systemd-networkd.service")


@pytest.mark.parametrize(
    ("units", "commands", "chosen"),
    [
        ((), ("netplan", "networkctl"), "netplan"),
        (UNITS[:1], ("nmcli", "networkctl"), "networkmanager"),
        (UNITS[1:], ("networkctl", "ifup"), "networkd"),
        ((), ("networkctl", "ifup"), "ifupdown"),
        ((), ("networkctl",), "networkd"),
    ],
)
def test_manager_that_runs_the_network_is_chosen(units: tuple, commands: tuple, chosen: str) -> None:
    system = managers.System(frozenset(units), frozenset(commands), "source /etc/network/interfaces.d/*\n")
    assert managers.choose(system).name == chosen


def test_ifupdown_that_reads_no_directory_is_refused() -> None:
    system = managers.System(frozenset(), frozenset({"ifup"}), "auto lo\niface lo inet loopback\n")
    with pytest.raises(LinkError, match=r"add the line 'source /etc/network/interfaces\.d/\*'"):
        managers.choose(system, links=[LINK])
    # What is to be taken away need not be read.
    assert managers.choose(system).name == "ifupdown"


@pytest.mark.parametrize(
    ("interfaces", "read"),
    [
        ("source /etc/network/interfaces.d/*", True),
        ("source interfaces.d/*", True),
        ("source-directory /etc/network/interfaces.d", True),
        ("source-directory interfaces.d/", True),
        ("source /etc/network/other.d/* /etc/network/*.d/*", True),
        ("source /etc/network/interfaces.d/*.cfg", False),
        ("source /etc/network/*", False),
        ("# source /etc/network/interfaces.d/*", False),
        ("source /etc/network/interfaces.d/eth0", False),
    ],
)
def test_ifupdown_reads_what_its_patterns_match(interfaces: str, read: bool) -> None:
    partition = wanted_link({"netdev": "ib0.8005"})
    assert ifupdown.reads(f"auto lo\n{interfaces}\n", ifupdown.path(partition)) is read
    # source-directory reads no file with a dot in its name.
    assert "." not in ifupdown.path(partition).rpartition("/")[2]


NM, NETWORKD = UNITS
RUNNING = frozenset(UNITS)


@pytest.mark.parametrize(
    ("system", "chosen"),
    [
        # installed, and nobody uses it
        (managers.System(frozenset([NM]), frozenset(["netplan"]), None, netplan=False), "networkmanager"),
        (managers.System(frozenset(), frozenset(["netplan", "ifup"]), None, netplan=False), "ifupdown"),
        # a desktop's netplan, which hands everything over
        (managers.System(frozenset([NM]), frozenset(["netplan"]), None), "networkmanager"),
        (managers.System(RUNNING, frozenset(["netplan"]), None), "netplan"),
        # told to leave the link alone, and not the only one
        (managers.System(RUNNING, frozenset(), None, unmanaged=frozenset(["ens1f0np0"])), "networkd"),
        (managers.System(RUNNING, frozenset(), None, unmanaged=frozenset(["ens9"])), "networkmanager"),
    ],
)
def test_manager_among_several_is_the_one_that_has_the_link(system: managers.System, chosen: str) -> None:
    system = system._replace(interfaces_file="source /etc/network/interfaces.d/*\n")
    assert managers.choose(system, links=[LINK]).name == chosen


def test_manager_that_would_not_keep_a_link_is_refused_with_the_way_out() -> None:
    alone = managers.System(frozenset([NM]), frozenset(), None, unmanaged=frozenset(["ens1f0np0", "eno2"]))
    with pytest.raises(LinkError, match=r"NetworkManager leaves ens1f0np0 alone .* unmanaged-devices"):
        managers.choose(alone, links=[LINK])
    bond = wanted_link({"netdev": "bond0", "bond": {"members": ["eno2"], "mode": "active-backup"}})
    with pytest.raises(LinkError, match="NetworkManager leaves eno2 alone"):
        managers.choose(alone, "networkmanager", [bond])
    with pytest.raises(LinkError, match="set rdma_network_manager to auto or networkmanager"):
        managers.choose(alone, "netplan", [bond])


def test_manager_that_does_not_run_is_not_asked_to_read_its_files() -> None:
    netplan_ = managers.MANAGERS["netplan"]
    stopped = managers.System(frozenset(), frozenset(), None)
    assert managers.reloads(netplan_, stopped) == []
    assert managers.reloads(netplan_, stopped._replace(running=RUNNING)) == [["networkctl", "reload"]]


@pytest.mark.parametrize(("kind", "section"), [("bond", "bonds"), ("bridge", "bridges"), ("vlan", "vlans")])
def test_interface_that_somebody_else_makes_keeps_its_kind(kind: str, section: str) -> None:
    link = replace(wanted_link({"netdev": "bond0", "mtu": 9000, "addresses": ["10.224.0.11/24"]}), kind=kind)
    assert list(yaml.safe_load(netplan.render(link))["network"]) == ["version", section]
    with pytest.raises(LinkError, match=rf"bond0 is a {kind}, which NetworkManager makes .* 10\.224\.0\.11/24 \(nmcli"):
        managers.made_by_another_connection(managers.MANAGERS["networkmanager"], [link])
    managers.made_by_another_connection(managers.MANAGERS["networkmanager"], [LINK])
    managers.made_by_another_connection(managers.MANAGERS["networkd"], [link])


def test_networkmanager_lets_a_bond_with_a_gateway_have_the_default_route() -> None:
    given = {"netdev": "bond0", "addresses": ["10.30.0.5/24"], "routes": [{"dst": "default", "via": "10.30.0.1"}]}
    sections = configparser.ConfigParser()
    sections.read_string(networkmanager.render(wanted_link(given)))
    assert "never-default" not in sections["ipv4"] and sections["ipv6"]["never-default"] == "true"


def test_host_without_any_manager_is_refused() -> None:
    with pytest.raises(LinkError, match="No network manager found"):
        managers.choose(managers.System(frozenset(), frozenset(), None))


def test_every_manager_has_its_own_path_for_every_link() -> None:
    other = wanted_link({"netdev": "ens2f0np0"})
    paths = [
        manager.renderer.path(link) for manager, link in itertools.product(managers.MANAGERS.values(), (LINK, other))
    ]
    assert len(set(paths)) == len(paths)


def test_only_networkmanager_is_told_to_take_a_link_and_only_one_with_a_new_file() -> None:
    other = wanted_link({"netdev": "ens2f0np0", "addresses": ["10.224.1.11/24"]})
    written = [networkmanager.path(LINK)]
    assert managers.activations(managers.MANAGERS["networkmanager"], [LINK, other], written) == [
        ["nmcli", "--wait", "30", "connection", "up", "gpu-fabric-ens1f0np0"]
    ]
    assert managers.activations(managers.MANAGERS["networkd"], [LINK], [networkd.path(LINK)]) == []


SIX = wanted_link(
    {
        "netdev": "ens1f0np0",
        "addresses": ["fd00:224::c/64"],
        "routes": [
            {"dst": "fd00:224::/64", "table": 1001},
            {"dst": "fd00:225::/64", "via": "fd00:224::1", "table": 1001},
        ],
        "rules": [{"from": "fd00:224::c/128", "table": 1001, "priority": 1001}],
    }
)


@pytest.mark.parametrize(
    ("manager", "lines"),
    [
        (
            networkd,
            ["Destination=fd00:224::/64", "Gateway=fd00:224::1", "Table=1001", "From=fd00:224::c", "Priority=1001"],
        ),
        (
            netplan,
            ['- to: "fd00:224::/64"', 'via: "fd00:224::1"', "table: 1001", '- from: "fd00:224::c"', "priority: 1001"],
        ),
        (
            networkmanager,
            [
                "route1=fd00:224::/64",
                "route2=fd00:225::/64,fd00:224::1",
                "route2_options=table=1001",
                "routing-rule1=priority 1001 from fd00:224::c table 1001",
            ],
        ),
        (
            ifupdown,
            [
                "up ip -6 route replace fd00:224::/64 dev $IFACE table 1001",
                "up ip -6 route replace fd00:225::/64 via fd00:224::1 dev $IFACE table 1001",
                "down ip -6 rule del from fd00:224::c table 1001 priority 1001",
            ],
        ),
    ],
)
def test_every_manager_keeps_routes_and_rules_of_ipv6(manager, lines: list[str]) -> None:
    rendered = [line.strip() for line in manager.render(SIX).splitlines()]
    assert [line for line in lines if line not in rendered] == []


def test_bonds_are_refused_where_ifenslave_would_delete_networkmanagers() -> None:
    bond = wanted_link({"netdev": "bond0", "bond": {"members": ["eno2"], "mode": "active-backup"}})
    dispatcher = "/usr/lib/NetworkManager/dispatcher.d/01-ifupdown"
    hooked = {managers.IFENSLAVE, dispatcher}
    with pytest.raises(LinkError, match=rf"{dispatcher}\), which deletes bond0 .* remove the package ifenslave"):
        managers.bonds_undone(managers.MANAGERS["networkmanager"], [bond], hooked.__contains__)
    for name, links, files in (
        ("ifupdown", [bond], hooked),
        ("networkmanager", [wanted_link({"netdev": "eno2"})], hooked),
        ("networkmanager", [bond], {managers.IFENSLAVE}),
        ("networkmanager", [bond], {dispatcher}),
    ):
        managers.bonds_undone(managers.MANAGERS[name], links, files.__contains__)


def test_netplan_asks_no_dhcp_server_even_where_another_file_would() -> None:
    # cloud-init's 50-cloud-init.yaml may have `dhcp4: true` for every card; a later file's scalar wins.
    bond = wanted_link({"netdev": "bond0", "bond": {"members": ["eno2"], "mode": "active-backup"}})
    network = yaml.safe_load(netplan.render(bond))["network"]
    rail = yaml.safe_load(netplan.render(LINK))["network"]["ethernets"]["ens1f0np0"]
    for found in (network["ethernets"]["eno2"], network["bonds"]["bond0"], rail):
        assert found["dhcp4"] is found["dhcp6"] is False
    assert netplan.path(LINK).rpartition("/")[2] > "50-cloud-init.yaml"


def test_every_manager_with_a_word_for_it_keeps_the_name_servers_of_the_management_interface() -> None:
    given = wanted_link({"netdev": "eno1", "management": True, "addresses": ["10.20.0.6/24", "fd00:20::6/64"]})
    link = replace(given, name_servers=("10.20.0.53", "fd00:20::53"))
    assert [line for line in networkd.render(link).splitlines() if line.startswith("DNS=")] == [
        "DNS=10.20.0.53",
        "DNS=fd00:20::53",
    ]
    found = yaml.safe_load(netplan.render(link))["network"]["ethernets"]["eno1"]
    assert found["nameservers"] == {"addresses": ["10.20.0.53", "fd00:20::53"]}
    keyfile = configparser.ConfigParser()
    keyfile.read_string(networkmanager.render(link))
    assert (keyfile["ipv4"]["dns"], keyfile["ipv6"]["dns"]) == ("10.20.0.53;", "fd00:20::53;")
    # NetworkManager takes none for a family that it does not set up by hand.
    keyfile = configparser.ConfigParser()
    keyfile.read_string(networkmanager.render(replace(link, addresses=frozenset(["10.20.0.6/24"]))))
    assert keyfile["ipv6"]["method"] == "link-local" and "dns" not in keyfile["ipv6"]
    for manager in (networkd, netplan, networkmanager):
        assert "dns" not in manager.render(given).lower() and "nameservers" not in manager.render(given)
