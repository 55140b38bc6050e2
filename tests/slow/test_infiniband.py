# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""InfiniBand on two nodes of the lab, from a fabric without subnet manager: opensm, addresses, a partition, and back.

Tests build on each other in this order.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site"))

from rack import Rack, Run, node_state

STORAGE = {"name": "storage", "pkey": 0x8005, "rails": [0], "ipv4": "10.241.0.0/24"}
INTENT: dict[str, Any] = {
    "gpu_fabric_fabric": "infiniband",
    "gpu_fabric_ipoib": {"ipv4": "10.240.0.0/16", "ipv6": "fd00:240::/48"},
    "gpu_fabric_ib_partitions": [STORAGE],
    "gpu_fabric_opensm_nodes": ["gpu-02", "gpu-01"],
    "rdma_network_manager": "ifupdown",
}
PORT, CHILD = "ibp24s0", "ibp24s0.8005"
UNITS = "systemctl list-units --plain --no-legend --state=active 'gpu-fabric-opensm@*' 'opensm*' | awk '{print $1}'"


def interfaces(rack: Rack) -> dict[str, set[str]]:
    found = {host: json.loads(rack.shell(host, "ip -json link show")) for host in rack.hosts}
    return {host: {entry["ifname"] for entry in entries} for host, entries in found.items()}


@pytest.fixture(scope="module")
def fresh() -> Iterator[Rack]:
    rack = Rack(nodes=2, profile="hgx_h100_ib")
    rack.reset()
    yield rack
    rack.down()


@pytest.fixture(scope="module")
def bare(fresh: Rack) -> dict[str, set[str]]:
    """The interfaces before the first run: none over InfiniBand, whose module comes with the RDMA stack."""
    return interfaces(fresh)


@pytest.fixture(scope="module")
def rack(fresh: Rack, bare: dict[str, set[str]]) -> Rack:
    run = fresh.site("--tags", "ofed")
    assert run.rc == 0, run.describe()
    for host in fresh.hosts:
        # One network manager that needs no kernel module of a container's.
        fresh.shell(host, "apt-get update -qq && apt-get install -y -qq ifupdown >/dev/null 2>&1")
        fresh.shell(host, "gpu-fabric-lab set sm.lid 0")
    return fresh


def rdma(rack: Rack, *arguments: str, **changes: Any) -> Run:
    return rack.site("--tags", "rdma", "-e", json.dumps({**INTENT, **changes}), *arguments)


def interface(rack: Rack, host: str, name: str) -> dict[str, Any] | None:
    found = json.loads(rack.shell(host, "ip -json -details address show"))
    return next((entry for entry in found if entry["ifname"] == name), None)


def reaches(rack: Rack, host: str, *addresses: str) -> None:
    """An interface that was made anew has another hardware address, which a neighbour learns within a minute."""
    for address in addresses:
        rack.shell(host, f"ping -c 1 -w 90 {address}")


def test_a_fabric_without_manager_comes_up_and_its_hosts_reach_each_other(
    rack: Rack,
) -> None:
    before = {host: node_state(rack, host) for host in rack.hosts}
    checked = rdma(rack, "--check", "--diff")
    assert checked.rc == 0, checked.describe()
    assert {host: node_state(rack, host) for host in rack.hosts} == before
    run = rdma(rack)
    assert run.rc == 0, run.describe()
    for number, host in enumerate(rack.hosts, start=1):
        assert len(rack.shell(host, UNITS).split()) == 1
        assert rack.shell(host, "cat /sys/class/infiniband/mlx5_0/ports/1/state").strip() == "4: ACTIVE"
        port, child = interface(rack, host, PORT), interface(rack, host, CHILD)
        assert port is not None and child is not None
        assert child["link"] == PORT and child["linkinfo"]["info_data"]["key"] == "0x8005"
        assert (port["mtu"], child["mtu"]) == (4092, 4092)
        assert "LOWER_UP" in child["flags"]
        own = [item["local"] for entry in (port, child) for item in entry["addr_info"] if item["scope"] == "global"]
        assert sorted(own) == sorted(
            [f"10.240.0.{10 + number}", f"fd00:240::{10 + number:x}", f"10.241.0.{10 + number}"]
        )
    reaches(rack, "gpu-01", "10.240.7.12", "10.241.0.12", "fd00:240:0:3::c")
    priorities = [rack.shell(host, "grep priority /etc/opensm/gpu-fabric.conf").split()[1] for host in rack.hosts]
    assert priorities == ["13", "14"]
    again = rdma(rack)
    assert again.rc == 0 and again.changes() == set(), again.describe()


def test_drift_on_one_node_is_shown_and_mended_there(rack: Rack) -> None:
    rack.shell(
        "gpu-02", f"ip link delete dev {CHILD}; ip link set dev ibp64s0 mtu 2044; systemctl stop 'gpu-fabric-opensm@*'"
    )
    checked = rdma(rack, "--check", "--diff")
    assert {host for host, _ in checked.changes()} == {"gpu-02"}, checked.describe()
    run = rdma(rack)
    assert run.rc == 0 and {host for host, _ in run.changes()} == {"gpu-02"}, run.describe()
    reaches(rack, "gpu-01", "10.241.0.12")
    port = interface(rack, "gpu-02", "ibp64s0")
    assert port is not None and port["mtu"] == 4092
    assert len(rack.shell("gpu-02", UNITS).split()) == 1


def test_all_of_it_is_there_after_a_reboot_with_no_run(rack: Rack) -> None:
    rack.lab(lab_power="off", lab_node="gpu-02")
    rack.lab(lab_power="on", lab_node="gpu-02")
    deadline = time.monotonic() + 60
    while interface(rack, "gpu-02", CHILD) is None and time.monotonic() < deadline:
        time.sleep(1)
    child = interface(rack, "gpu-02", CHILD)
    assert child is not None and child["linkinfo"]["info_data"] == {
        "key": "0x8005",
        "mode": "datagram",
        "umcast": "0000",
    }
    reaches(rack, "gpu-01", "10.241.0.12", "10.240.5.12")
    assert len(rack.shell("gpu-02", UNITS).split()) == 1
    again = rdma(rack)
    assert again.rc == 0 and again.changes() == set(), again.describe()


def test_key_that_the_fabrics_own_manager_has_not_given_changes_nothing(rack: Rack) -> None:
    before = {host: node_state(rack, host) for host in rack.hosts}
    other = {"name": "tenant", "pkey": "0x800b", "rails": [1], "ipv4": "10.242.0.0/24"}
    run = rdma(rack, gpu_fabric_ib_partitions=[STORAGE, other], gpu_fabric_opensm_nodes=[])
    assert run.rc != 0
    assert "RF-PLAN-PKEY" in run.messages() and "0x800b" in run.messages() and "0x8005" in run.messages()
    assert {host: node_state(rack, host) for host in rack.hosts} == before
    run = rdma(rack, gpu_fabric_ib_partitions=[{"pkey": 0x7FFF}])
    assert run.rc != 0 and "0x7fff is the default partition" in run.messages()


def test_partition_that_goes_needs_consent_and_one_that_comes_does_not(rack: Rack) -> None:
    other = {"name": "tenant", "pkey": "0x800b", "rails": [1], "ipv4": "10.242.0.0/24"}
    run = rdma(rack, gpu_fabric_ib_partitions=[STORAGE, other])
    assert run.rc == 0, run.describe()
    # The managers that ran have read the file; none was started anew.
    assert rack.shell("gpu-02", "cat /sys/class/infiniband/mlx5_3/ports/1/pkeys/2").strip() == "0x800b"
    assert rack.shell("gpu-02", "systemctl show -p NRestarts --value 'gpu-fabric-opensm@*'").split() == ["0"]
    reaches(rack, "gpu-01", "10.242.0.12")
    run = rdma(rack, gpu_fabric_allow_disruption="none")
    assert run.rc != 0 and "partition 0x000b goes" in run.messages(), run.describe()
    assert run.changes() == set() and interface(rack, "gpu-01", "ibp64s0.800b") is not None
    run = rdma(rack, gpu_fabric_allow_disruption="linkflap")
    assert run.rc == 0, run.describe()
    assert interface(rack, "gpu-01", "ibp64s0.800b") is None


def test_host_that_left_the_list_runs_no_manager_and_the_other_goes_on(rack: Rack) -> None:
    run = rdma(rack, gpu_fabric_opensm_nodes=["gpu-02"])
    assert run.rc == 0, run.describe()
    assert rack.shell("gpu-01", UNITS).split() == [] and len(rack.shell("gpu-02", UNITS).split()) == 1
    assert "opensm" not in rack.shell("gpu-01", "dpkg-query -W -f '${Package}\\n'").split()
    assert rack.shell("gpu-01", "ls -d /etc/opensm /etc/systemd/system/*opensm* 2>/dev/null || true") == ""
    again = rdma(rack, gpu_fabric_opensm_nodes=["gpu-02"])
    assert again.rc == 0 and again.changes() == set(), again.describe()


def test_removal_leaves_nothing(rack: Rack, bare: dict[str, set[str]]) -> None:
    run = rdma(rack, gpu_fabric_state="absent")
    assert run.rc == 0, run.describe()
    assert interfaces(rack) == bare
    for host in rack.hosts:
        assert rack.shell(host, UNITS) == ""
        left = rack.shell(host, "grep -rls 'railyard.gpu_fabric' /etc/network /etc/systemd /etc/opensm || true")
        assert left == "", left
