"""Bonds: the kernel's answer is read, the commands make one of nothing, each network manager's files say the same."""

from __future__ import annotations

import configparser
import json

import pytest
import yaml

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import (
    host,
    ifupdown,
    managers,
    netplan,
    networkd,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import delta, missing
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    Link,
    LinkError,
    wanted_link,
    wanted_links,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.present import present_links

BOND = {
    "netdev": "bond0",
    "mtu": 9000,
    "addresses": ["10.30.0.5/24"],
    "bond": {
        "members": ["eno3", "eno2"],
        "mode": "802.3ad",
        "miimon_ms": 100,
        "lacp_rate": "fast",
        "xmit_hash_policy": "layer3+4",
    },
}
WANTED = wanted_link(BOND)
DATA = {"mode": "802.3ad", "miimon": 100, "ad_lacp_rate": "fast", "xmit_hash_policy": "layer3+4"}


def kernel(members: tuple[str, ...], **data: object) -> dict[str, Link]:
    """Links as the kernel's JSON has them, with a bond unless its data is empty."""
    entries = [
        {"ifname": name, "mtu": 9000, "flags": ["UP"], **({"master": "bond0"} if name in members else {})}
        for name in ("eno2", "eno3", "eno4")
    ]
    if data:
        entries.append(
            {
                "ifname": "bond0",
                "mtu": 9000,
                "flags": ["UP"],
                "linkinfo": {"info_kind": "bond", "info_data": data},
                "addr_info": [{"local": "10.30.0.5", "prefixlen": 24, "scope": "global"}],
            }
        )
    return present_links({"addresses": json.dumps(entries), "routes4": "", "routes6": "", "rules4": "", "rules6": ""})


def test_commands_make_the_bond_of_nothing() -> None:
    commands = [" ".join(argv) for argv in delta(WANTED, Link("bond0", up=False)).commands]
    assert commands == [
        "ip link add bond0 type bond mode 802.3ad miimon 100 lacp_rate fast xmit_hash_policy layer3+4",
        "ip link set dev eno2 down",
        "ip link set dev eno2 master bond0",
        "ip link set dev eno3 down",
        "ip link set dev eno3 master bond0",
        "ip link set dev bond0 mtu 9000",
        "ip link set dev bond0 up",
        "ip address replace 10.30.0.5/24 dev bond0",
    ]


def test_bond_that_is_as_wanted_needs_nothing() -> None:
    present = kernel(("eno2", "eno3"), **DATA)["bond0"]
    item = delta(WANTED, present)
    assert item.commands == [] and item.before == item.after == {} and missing(WANTED, present) == []


def test_lost_member_and_other_option_are_mended_and_a_member_of_ours_let_go() -> None:
    present = kernel(("eno2", "eno4"), **{**DATA, "xmit_hash_policy": "layer2"})["bond0"]
    ours = wanted_link({**BOND, "bond": {**BOND["bond"], "members": ["eno2", "eno4"]}})  # type: ignore[dict-item]
    assert [" ".join(argv) for argv in delta(WANTED, present, ours).commands] == [
        "ip link set dev bond0 type bond xmit_hash_policy layer3+4",
        "ip link set dev eno4 nomaster",
        "ip link set dev eno3 down",
        "ip link set dev eno3 master bond0",
    ]
    assert missing(WANTED, present) == ["xmit_hash_policy layer2, wanted layer3+4", "eno3 is no member"]


def test_member_whose_mtu_somebody_changed_gets_that_of_the_bond() -> None:
    [bond, entry] = [{"ifname": "bond0", "mtu": 9000, "flags": ["UP"]}, {"ifname": "eno3", "mtu": 1500}]
    bond |= {"linkinfo": {"info_kind": "bond", "info_data": DATA}}  # type: ignore[dict-item]
    bond |= {"addr_info": [{"local": "10.30.0.5", "prefixlen": 24, "scope": "global"}]}  # type: ignore[dict-item]
    entries = [bond, entry | {"master": "bond0"}, {"ifname": "eno2", "mtu": 9000, "master": "bond0"}]
    answers = {"addresses": json.dumps(entries), "routes4": "", "routes6": "", "rules4": "", "rules6": ""}
    present = present_links(answers)["bond0"]
    item = delta(WANTED, present)
    assert item.commands == [["ip", "link", "set", "dev", "eno3", "mtu", "9000"]]
    assert item.before != item.after and "eno3 (MTU 1500)" in item.before["bond"]
    assert missing(WANTED, present) == ["member eno3 has MTU 1500, wanted 9000"]


class Kernel:
    """A host whose interfaces are given."""

    def __init__(self, present: dict[str, Link], record: dict[str, object], *wanted: Link) -> None:
        self.links = host.Links.__new__(host.Links)
        self.links.present, self.links.record, self.links.changed_before = present, record, {}
        self.links.wanted = {link.netdev: link for link in wanted}


@pytest.mark.parametrize(
    ("present", "protected", "said"),
    [
        (kernel((), **{**DATA, "mode": "active-backup"}), [], "bond0 has mode active-backup, wanted 802.3ad"),
        (
            kernel((), **{**DATA, "ad_lacp_rate": "slow"}),
            [],
            "bond0 has lacp_rate slow, wanted fast; changing that takes",
        ),
        (kernel(()), ["eno2"], "eno2 carries the connection of this run"),
        ({"bond0": Link("bond0"), **kernel(())}, [], "bond0 is there and no bond"),
        ({"eno2": Link("eno2")}, [], "eno3, a member of bond0, does not exist"),
        ({**kernel(()), "eno3": Link("eno3", addresses=frozenset(["10.1.1.1/24"]))}, [], "eno3, wanted in bond0, has"),
    ],
)
def test_what_would_take_links_from_others_is_refused(
    present: dict[str, Link], protected: list[str], said: str
) -> None:
    with pytest.raises(LinkError, match="No link was changed") as refused:
        Kernel(present, {}, WANTED).links.refuse(protected)
    assert said in str(refused.value)


def test_bond_that_carries_the_connection_is_made_and_then_left_alone() -> None:
    protected = ["bond0", "eno2", "eno3"]
    Kernel(kernel(()), {}, WANTED).links.refuse(["bond0"])
    Kernel(kernel(("eno2", "eno3"), **DATA), {}, WANTED).links.refuse(protected)
    record = {"bond0": {"before": {"absent": True}, "set": host.as_plan(WANTED)}}
    with pytest.raises(LinkError, match=r"bond0 carries .* would lose what an earlier run gave it; connect over anoth"):
        Kernel(kernel(("eno2", "eno3"), **DATA), record).links.refuse(protected)  # type: ignore[arg-type]
    with pytest.raises(LinkError, match=r"bond0 carries the connection .* changed \(eno3 is no member\); take that"):
        Kernel(kernel(("eno2",), **DATA), {}, WANTED).links.refuse(protected)


def test_bond_of_an_earlier_run_is_taken_away_when_it_is_wanted_no_more() -> None:
    found = {"eno2": {"mtu": 1500, "up": False}, "eno3": {"mtu": 1400, "up": True}, "gone": {"mtu": 1500, "up": True}}
    record = {"bond0": {"before": {"absent": True, "members": found}, "set": host.as_plan(WANTED)}}
    [item] = Kernel(kernel(("eno2", "eno3"), **DATA), record).links.deltas()  # type: ignore[arg-type]
    assert [" ".join(argv) for argv in item.commands] == [
        "ip link delete dev bond0",
        "ip link set dev eno2 mtu 1500",
        "ip link set dev eno3 mtu 1400",
        "ip link set dev eno3 up",
    ]
    # A bond that was there before the first run stays.
    record["bond0"]["before"] = {"mtu": 9000, "up": True}
    [item] = Kernel(kernel(("eno2", "eno3"), **DATA), record).links.deltas()  # type: ignore[arg-type]
    assert [" ".join(argv) for argv in item.commands] == ["ip address flush dev bond0 to 10.30.0.5"]


def test_members_are_remembered_as_they_were_before_they_joined() -> None:
    free = {name: {"mtu": 9000, "up": True} for name in WANTED.bond.members}  # type: ignore[union-attr]
    before = {"bond0": {"absent": True, "members": free}}
    record = Kernel(kernel(()), {}, WANTED).links.new_record()
    assert {name: entry["before"] for name, entry in record.items()} == before
    # The one that a later run takes in as well; the others are the bond's by now.
    record["bond0"]["before"] = {"absent": True, "members": {"eno2": {"mtu": 1500, "up": False}}}
    later = Kernel(kernel(("eno2",), **DATA), record, WANTED).links.new_record()
    assert later["bond0"]["before"]["members"] == {"eno2": {"mtu": 1500, "up": False}, "eno3": free["eno3"]}


def test_bond_that_its_manager_takes_away_by_itself_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"bond0": {"before": {"absent": True}, "set": host.as_plan(WANTED)}}
    links = Kernel(kernel(("eno2", "eno3"), **DATA), record).links  # type: ignore[arg-type]
    looks = iter([kernel(("eno2",), **DATA), kernel(()), kernel(()), None])
    monkeypatch.setattr(links, "look_again", lambda: setattr(links, "present", next(looks)))
    monkeypatch.setattr(host.time, "sleep", lambda _seconds: None)
    links.settle(30, undone=True)
    assert next(looks) is None
    assert "bond0" not in links.present and links.deltas() == []


def test_record_of_a_bond_reads_back_as_the_same_link() -> None:
    assert wanted_link({"netdev": "bond0", **host.as_plan(WANTED)}) == WANTED


@pytest.mark.parametrize(
    ("bond", "said"),
    [
        ({"members": [], "mode": "802.3ad"}, "needs members"),
        ({"members": ["bond0"], "mode": "802.3ad"}, "needs members"),
        ({"members": ["eno2"], "mode": "balance-rr"}, "mode is 'balance-rr'"),
        ({"members": ["eno2"], "mode": "active-backup", "lacp_rate": "fast"}, "lacp_rate belongs to"),
    ],
)
def test_bonds_that_cannot_be_meant(bond: dict[str, object], said: str) -> None:
    with pytest.raises(LinkError, match=said):
        wanted_link({"netdev": "bond0", "bond": bond})


def test_interface_cannot_be_rail_and_member() -> None:
    with pytest.raises(LinkError, match="eno2 is already given"):
        wanted_links([BOND, {"netdev": "eno2", "addresses": []}])


def test_networkd_files() -> None:
    files = managers.files(managers.MANAGERS["networkd"], [WANTED])
    assert sorted(path.rpartition("/")[2] for path in files) == [
        "05-gpu-fabric-bond0.netdev",
        "05-gpu-fabric-bond0.network",
        "05-gpu-fabric-eno2.network",
        "05-gpu-fabric-eno3.network",
    ]
    netdev = configparser.ConfigParser()
    netdev.optionxform = str  # type: ignore[assignment,method-assign]
    netdev.read_string(files[f"{networkd.DIRECTORY}/05-gpu-fabric-bond0.netdev"])
    assert dict(netdev["NetDev"]) == {"Name": "bond0", "Kind": "bond"}
    assert dict(netdev["Bond"]) == {
        "Mode": "802.3ad",
        "MIIMonitorSec": "100ms",
        "LACPTransmitRate": "fast",
        "TransmitHashPolicy": "layer3+4",
    }
    member = files[f"{networkd.DIRECTORY}/05-gpu-fabric-eno3.network"].splitlines()
    assert "Name=eno3" in member and "Bond=bond0" in member and "MTUBytes=9000" in member


def test_netplan_file() -> None:
    [text] = managers.files(managers.MANAGERS["netplan"], [WANTED]).values()
    network = yaml.safe_load(text)["network"]
    assert sorted(network["ethernets"]) == ["eno2", "eno3"]
    assert network["bonds"]["bond0"]["interfaces"] == ["eno2", "eno3"]
    assert network["bonds"]["bond0"]["parameters"] == {
        "mode": "802.3ad",
        "mii-monitor-interval": "100",
        "lacp-rate": "fast",
        "transmit-hash-policy": "layer3+4",
    }
    assert network["bonds"]["bond0"]["addresses"] == ["10.30.0.5/24"]
    assert netplan.bond_files(WANTED) == {}


def test_networkmanager_keyfiles() -> None:
    files = managers.files(managers.MANAGERS["networkmanager"], [WANTED])
    read = {}
    for path, text in files.items():
        read[path.rpartition("/")[2].removesuffix(".nmconnection")] = keyfile = configparser.ConfigParser()
        keyfile.read_string(text)
    assert sorted(read) == ["gpu-fabric-bond0", "gpu-fabric-eno2", "gpu-fabric-eno3"]
    bond, member = read["gpu-fabric-bond0"], read["gpu-fabric-eno2"]
    assert bond["connection"]["type"] == "bond" and bond["ipv4"]["address1"] == "10.30.0.5/24"
    assert dict(bond["bond"]) == {
        "mode": "802.3ad",
        "miimon": "100",
        "lacp_rate": "fast",
        "xmit_hash_policy": "layer3+4",
    }
    assert member["connection"]["master"] == "bond0" and member["connection"]["slave-type"] == "bond"
    assert len({keyfile["connection"]["uuid"] for keyfile in read.values()}) == 3


def test_ifupdown_file() -> None:
    lines = ifupdown.render(WANTED).splitlines()
    made = next(index for index, line in enumerate(lines) if "ip link add $IFACE type bond mode 802.3ad" in line)
    enslaved = [index for index, line in enumerate(lines) if "master $IFACE" in line]
    assert made < min(enslaved) and len(enslaved) == 2
    assert "    post-down ip link delete dev $IFACE" in lines
