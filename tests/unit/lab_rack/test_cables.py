# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from lab_rack import cables, layout

NETWORKS = {"r0": "rail0", "r1": "rail1", "s0": "storage0"}


def rack(count: int = 2, name: str = "unit"):
    def nics(host):
        number = int(host[-2:])
        return [
            {"name": name, "mac": f"02:aa:00:00:{number:02x}:{index:02x}", "network": network}
            for index, (name, network) in enumerate(NETWORKS.items())
        ]

    return layout.build(
        name=name,
        count=count,
        profile="p",
        subnet="10.89.250.0/24",
        engine="podman",
        image="i",
        port=8080,
        nics_of=nics,
    )


def test_one_switch_per_network_with_jumbo_frames():
    batch = cables.switches_up(rack())
    assert batch.count("type bridge") == 3
    assert all(f"alias {network} up" in batch for network in NETWORKS.values())
    assert batch.count(f"mtu {cables.SWITCH_MTU}") == 3


def test_both_nodes_hang_on_the_same_switch_at_different_ports():
    first, second = cables.plug_fabric(rack(), 0, 11), cables.plug_fabric(rack(), 1, 12)
    for bridge in ("sw0", "sw1", "sw2"):
        assert f"master {bridge} up" in first and f"master {bridge} up" in second
    ports = [line.split()[2] for line in (first + second).splitlines() if line.startswith("link add")]
    assert len(ports) == len(set(ports)) == 6
    assert "netns 11" in first and "netns 12" in second


def test_management_is_no_switch_of_the_fabric():
    assert "management" not in cables.networks(rack())
    assert "eth0" not in cables.plug_fabric(rack(), 0, 1)
    assert "eth0" in cables.plug_management(rack(), 0, 1)


def test_interface_names_on_the_controller_fit():
    for line in cables.plug_management(rack(64), 63, 1).splitlines():
        assert len(line.split()[2]) <= 15


def test_an_unknown_interface_is_named_with_what_there_is():
    with pytest.raises(cables.CableError, match=r"gpu-01 has no cable at r9; it has r0, r1, s0"):
        cables.switch_carrier(rack(), "gpu-01", ["r9"], up=False)
    with pytest.raises(cables.CableError, match=r"no node gpu-07; it has gpu-01, gpu-02"):
        cables.switch_carrier(rack(), "gpu-07", ["r0"], up=False)


def may_make_namespaces() -> bool:
    try:
        return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def real_rack():
    """Switches and two nodes, each node being a sleeping process with a network namespace of its own."""
    if os.geteuid() != 0 or not may_make_namespaces():
        pytest.skip("network namespaces need root")
    described = rack(name=f"unit{os.getpid()}")
    nodes = [subprocess.Popen(["unshare", "--net", "sleep", "60"]) for _ in range(2)]
    own = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + 10
    while any(os.readlink(f"/proc/{node.pid}/ns/net") == own for node in nodes) and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        cables.ip([], cables.management_up(described["bridge"], described["subnet"], "unit"))
        cables.build(described)
        yield described, [node.pid for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.wait()
        cables.remove(described["bridge"], described["fabric_netns"])


def inside(pid: int, *argv: str) -> str:
    done = subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", *argv], capture_output=True, text=True, check=True)
    return done.stdout


RECEIVE = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.1.0.2", 9)); s.settimeout(5); print("ready", flush=True)
print(len(s.recv(65535)), flush=True)
"""
SEND = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: never in pieces
s.sendto(bytes(8972), ("10.1.0.2", 9))
"""


def test_rails_carry_jumbo_frames(real_rack):
    described, (first, second) = real_rack
    assert cables.present(described)
    for index, pid in enumerate((first, second)):
        cables.plug(described, index, pid)
    fresh = inside(first, "ip", "-o", "link", "show", "r0")
    assert "mtu 1500" in fresh and "02:aa:00:00:01:00" in fresh
    assert "inet " not in inside(first, "ip", "-o", "address", "show", "r0")
    for number, pid in enumerate((first, second), start=1):
        inside(pid, "ip", "link", "set", "r0", "mtu", "9000")
        inside(pid, "ip", "address", "add", f"10.1.0.{number}/24", "dev", "r0")
    argv = ["nsenter", f"--net=/proc/{second}/ns/net", sys.executable, "-c", RECEIVE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout.readline() == "ready\n"
        inside(first, sys.executable, "-c", SEND)
        assert receiver.stdout.readline() == "8972\n"


def test_rails_are_networks_apart(real_rack):
    described, (first, second) = real_rack
    for index, pid in enumerate((first, second)):
        cables.plug(described, index, pid)
    inside(first, "ip", "address", "add", "10.1.0.1/24", "dev", "r0")
    inside(second, "ip", "address", "add", "10.1.0.2/24", "dev", "r1")
    # Linux answers on any interface for any of its addresses, unless told otherwise; then nobody answers on r0.
    inside(second, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore")
    inside(first, sys.executable, "-c", SEND.replace("8972", "100"))
    deadline = time.monotonic() + 10
    state = ""
    while time.monotonic() < deadline and "FAILED" not in state:
        time.sleep(0.2)
        state = inside(first, "ip", "neigh", "show", "10.1.0.2")
    assert "FAILED" in state


def test_a_pulled_cable_takes_the_carrier_and_plugging_it_in_again_gives_it_back(real_rack):
    described, (first, _second) = real_rack
    cables.plug(described, 0, first)
    assert cables.switch_carrier(described, "gpu-01", ["r1"], up=False) is True
    assert cables.switch_carrier(described, "gpu-01", ["r1"], up=False) is False
    assert "NO-CARRIER" in inside(first, "ip", "-o", "link", "show", "r1")
    assert "NO-CARRIER" not in inside(first, "ip", "-o", "link", "show", "r0")
    assert cables.switch_carrier(described, "gpu-01", ["r1"], up=True) is True
    assert "NO-CARRIER" not in inside(first, "ip", "-o", "link", "show", "r1")


def test_a_second_boot_is_plugged_in_like_the_first(real_rack):
    described, (first, second) = real_rack
    cables.plug(described, 0, first)
    cables.plug(described, 0, second)  # the same node, now in another namespace
    assert "r0" in inside(second, "ip", "-o", "link", "show")
