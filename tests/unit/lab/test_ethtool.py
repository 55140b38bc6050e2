# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ethtool remembers what it set until the next boot, refuses what the card has not, and speaks as the real one does."""

from __future__ import annotations

import json

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import program

NETDEV = "enp24s0np0"
USAGE = "ethtool: bad command line argument(s)\nFor more information run ethtool -h\n"


class Cli:
    """The stand-in in the place of the host's commands."""

    def __init__(self, host):
        self.host = host

    def which(self, name):
        return name if name == "ethtool" else None

    def run(self, argv, check=True, **_):
        return Result(tuple(argv), *self.host.run(*argv))


def test_channels(host):
    limits = "RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t63\n"
    text = f"Channel parameters for {NETDEV}:\nPre-set maximums:\n{limits}Current hardware settings:\n{limits}"
    assert host.run("ethtool", "-l", NETDEV) == (0, text, "")
    assert host.run("ethtool", "-L", NETDEV, "combined", "16") == (0, "", "")
    assert host.run("ethtool", "-l", NETDEV).out.endswith("Combined:\t16\n")
    assert host.run("ethtool", "-L", NETDEV, "combined", "64") == (
        1,
        "",
        "netlink error: requested channel count exceeds maximum (offset 40)\nnetlink error: Invalid argument\n",
    )
    assert host.run("ethtool", "-L", NETDEV, "rx", "1").rc == host.run("ethtool", "-L", NETDEV, "combined", "0").rc == 1
    assert host.run("ethtool", "-L", NETDEV).err == USAGE


def test_rings(host):
    host.run("ethtool", "-G", NETDEV, "rx", "8192", "tx", "1000")
    assert "Current hardware settings:\nRX:\t\t8192\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t1024\n" in (
        host.run("ethtool", "-g", NETDEV).out
    )
    before = host.state
    answer = host.run("ethtool", "-G", NETDEV, "rx", "512", "tx", "9000")
    assert answer.err.startswith("netlink error: requested ring size exceeds maximum (offset 48)\n")
    assert host.state == before, "half of a refused request is not set"


def test_fec(host):
    shown = f"FEC parameters for {NETDEV}:\nSupported/Configured FEC encodings: {{}}\nActive FEC encoding: RS\n"
    assert host.run("ethtool", "--show-fec", NETDEV).out == shown.format("Auto")
    host.run("ethtool", "--set-fec", NETDEV, "encoding", "rs")
    assert host.run("ethtool", "--show-fec", NETDEV).out == shown.format("RS")
    assert json.loads(host.run("ethtool", "--json", "--show-fec", NETDEV).out) == [
        {"ifname": NETDEV, "config": ["RS"], "active": ["RS"]}
    ]
    assert host.run("ethtool", "--set-fec", NETDEV, "encoding", "baser") == (
        83, "", "netlink error: Operation not supported\n")  # fmt: skip
    assert host.run("ethtool", "--set-fec", NETDEV, "encoding", "best").err == USAGE
    host.interface(NETDEV, carrier=False)
    assert host.run("ethtool", "--show-fec", NETDEV).out.endswith("Active FEC encoding: None\n")


def test_a_forced_speed_is_the_only_offer_and_bounces_the_link_once(tree_host):
    for _ in range(2):
        tree_host.run("ethtool", "-s", NETDEV, "speed", "200000", "duplex", "full", "autoneg", "off")
    out = tree_host.run("ethtool", NETDEV).out
    offered = ["200000baseKR4/Full", "200000baseSR4/Full", "200000baseCR4/Full", "200000baseKR2/Full"]
    assert "\tAdvertised link modes:  " + "\n\t                        ".join(offered) in out
    assert "\tAuto-negotiation: off\n" in out and "\tSpeed: 200000Mb/s\n" in out
    assert tree_host.read("sys/class/infiniband/mlx5_0/ports/1/rate") == "200 Gb/sec (4X HDR)\n"
    assert tree_host.read("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed") == "1\n"


@pytest.mark.parametrize(
    "words",
    [
        ("speed", "300000", "autoneg", "off"),
        ("speed", "800000"),
        ("speed", "200000", "duplex", "half"),
        ("autoneg", "off"),
        ("advertise", "0x0"),
    ],
)
def test_link_settings_that_no_card_takes(host, words):
    before = host.nic("mlx5_0")
    assert host.run("ethtool", "-s", NETDEV, *words) == (
        75, "", "netlink error: link settings update failed\nnetlink error: Invalid argument\n")  # fmt: skip
    assert host.nic("mlx5_0") == before


def test_offered_modes_by_name_and_by_mask(host):
    host.run("ethtool", "-s", NETDEV, "advertise", "0x4000000000")
    assert "Advertised link modes:  100000baseCR4/Full\n\tAdvertised pause" in host.run("ethtool", NETDEV).out
    host.run("ethtool", "-s", NETDEV, "advertise", "100000baseKR4/Full", "on", "100000baseCR4/Full", "off", "--")
    assert "Advertised link modes:  100000baseKR4/Full\n\tAdvertised pause" in host.run("ethtool", NETDEV).out
    host.run("ethtool", "-s", NETDEV, "autoneg", "on")
    assert host.nic("mlx5_0")["offered"] is None
    assert host.run("ethtool", "-s", NETDEV, "sped", "1").rc == 2


@pytest.mark.parametrize(
    ("profile", "fastest", "missing"),
    [
        ("a100_8x200g", "200000baseCR4/Full", "200000baseCR2/Full"),
        ("pcie_1x100g", "100000baseCR4/Full", "100000baseCR/Full"),
    ],
)
def test_older_cards_have_slower_lanes(make_host, profile, fastest, missing):
    old = make_host(profile)
    netdev = next(nic["netdev"] for nic in old.state["nics"] if nic["rail"] == 0)
    out = old.run("ethtool", netdev).out
    assert f"{fastest}\n" in out and f"{missing}\n" not in out


def test_nothing_of_it_outlives_a_reboot(host):
    first = host.nic("mlx5_0")
    for words in (
        ("-G", NETDEV, "rx", "64"),
        ("-L", NETDEV, "combined", "1"),
        ("--set-fec", NETDEV, "encoding", "rs"),
        ("-s", NETDEV, "speed", "100000", "autoneg", "off"),
    ):
        assert host.run("ethtool", *words).rc == 0
    host.reboot()
    assert host.nic("mlx5_0") == first


def test_the_program_of_the_host_gets_on_with_it(host):
    wanted = {
        "link": {"speed_gbps": 200, "autoneg": False},
        "fec": "rs",
        "channels": 28,
        "rings": {"rx": 8192, "tx": 8192},
    }
    first = host.nic("mlx5_0")
    todo = program.plan({"netdev": NETDEV, "settings": wanted}, Cli(host))
    program.apply(todo)
    assert program.plan({"netdev": NETDEV, "settings": wanted}, Cli(host)).steps == []
    before = {step.knob.name: step.before for step in todo.steps}
    program.apply(program.plan({"netdev": NETDEV, "settings": before}, Cli(host)))
    assert {**host.nic("mlx5_0"), "flaps": first["flaps"]} == first
