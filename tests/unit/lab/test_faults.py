# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault shows where a person would look for it, and clearing it brings the host back."""

from __future__ import annotations

import json

import pytest

from railyard_lab import cli, faults

DRIVER = "580.95.05"


def seen(host, name):
    """What the tools say about the thing that the fault is about."""
    looks = {
        "port_down": lambda: host.run("rdma", "link", "show", "mlx5_4").out,
        "wrong_rate": lambda: host.run("ethtool", "enp94s0np0").out,
        "pcie_width": lambda: [host.state["pci"]["0000:5e:00.0"]["link"]["width"]],
        "gpu_missing": lambda: host.run("nvidia-smi", "-L").out,
        "wrong_mtu": lambda: host.run("ibv_devinfo", "-d", "mlx5_4").out,
        "pfc_off": lambda: host.run("mlnx_qos", "-i", "enp94s0np0").out,
        "stale_fabric_manager": lambda: host.run("nv-fabricmanager", "--version").out,
        "peermem_not_loaded": lambda: host.run("dmesg").out.count("Unknown symbol") or host.state["broken_modules"],
        "firmware_drift": lambda: host.run("ibv_devinfo", "-d", "mlx5_4").out,
        "xid": lambda: [gpu["xid"] for gpu in host.state["gpus"]],
        "acs_on": lambda: [function.get("acs_control") for function in host.state["pci"].values()],
        "ecc": lambda: host.run("nvidia-smi", "-q").out.count("Pending                                        : Yes"),
        "nvlink_down": lambda: host.run("nvidia-smi", "nvlink", "-s").out,
        "link_flaps": lambda: [nic["flaps"] for nic in host.state["nics"]],
        "gid_missing": lambda: host.run("show_gids", "mlx5_4").out,
        "driver_mismatch": lambda: host.run("nvidia-smi").out.count("mismatch"),
        "numa_unknown": lambda: [function["numa_node"] for function in host.state["pci"].values()],
        "slow_nic": lambda: [nic["loss"] for nic in host.state["nics"]],
    }  # fmt: skip
    return looks[name]()


@pytest.fixture
def provisioned(host):
    host.lab("driver", "install", "--version", DRIVER)
    host.lab("fabricmanager", "install", "--version", DRIVER)
    for nic in host.state["nics"]:
        if nic["rail"] is not None:
            host.interface(nic["netdev"], mtu=9000, addresses=[f"10.2.{nic['rail']}.1/24"])
            host.run("mlnx_qos", "-i", nic["netdev"], "--pfc", "0,0,0,1,0,0,0,0")
    return host


def comparable(state):
    return {key: value for key, value in state.items() if key not in ("dmesg", "faults", "gid_tables")}


@pytest.mark.parametrize("name", sorted(set(faults.FAULTS) - {"sm_down"}))
def test_a_fault_shows_and_goes(provisioned, name):
    host = provisioned
    host.change(lambda state: state.setdefault("broken_modules", []))
    host.change(lambda state: state.setdefault("hidden_gids", []))
    before, good = comparable(host.state), seen(host, name)
    answer = host.lab("fault", name)
    assert answer.rc == 0, answer.err
    told = json.loads(answer.out)
    assert told["host"] == "gpu-01" and told["device"]
    assert (
        told["said"].startswith("On gpu-01, ")
        and f"device {told['device']}" in told["said"]
        and "{" not in told["said"]
    )
    assert seen(host, name) != good
    listed = json.loads(host.lab("fault", "list").out)
    assert [entry["name"] for entry in listed if entry["active"]] == [name]
    host.lab("fault", "clear", name)
    assert comparable(host.state) == before
    assert [entry for entry in json.loads(host.lab("fault", "list").out) if entry["active"]] == []


def log_of(host):
    return [text for _when, text in host.state["dmesg"]]


@pytest.mark.parametrize("name", sorted(set(faults.FAULTS) - {"sm_down"}))
def test_a_cleared_fault_leaves_nothing_in_the_kernel_log(provisioned, name):
    host = provisioned
    before = log_of(host)
    host.lab("fault", name)
    host.lab("fault", "clear")
    assert log_of(host) == before


def test_only_what_the_fault_wrote_and_counted_goes_with_it(provisioned):
    host = provisioned
    start = host.nic("mlx5_4")["flaps"]
    host.lab("fault", "link_flaps")
    host.lab("fault", "port_down")
    host.run("mlnx_qos", "-i", "enp94s0np0", "--pfc", "0,0,0,0,0,1,0,0")  # bounces the link, too
    host.lab("fault", "clear")
    assert host.nic("mlx5_4")["flaps"] == start + 1 and host.nic("mlx5_4")["symbol_errors"] == 0
    assert [text for text in log_of(host) if "Link down" in text and "0000:5e:00.0" in text][1:] == [
        "mlx5_core 0000:5e:00.0 enp94s0np0: Link down"
    ]


def test_a_link_that_booted_narrow_is_told_wide_once_its_fault_is_cleared(provisioned):
    host = provisioned
    before = log_of(host)
    host.lab("fault", "pcie_width")
    host.reboot()
    assert sum("limited by" in text for text in log_of(host)) == 1
    host.lab("fault", "clear")
    assert not any("limited by" in text for text in log_of(host))
    assert set(before) >= {text for text in log_of(host) if "PCIe bandwidth" in text}


def test_no_subnet_manager_leaves_ports_initialising(make_host):
    host = make_host("hgx_h100_ib")
    assert "state ACTIVE" in host.run("rdma", "link", "show", "mlx5_0").out
    host.lab("fault", "sm_down")
    assert (
        "lid 65535 sm_lid 0 lmc 0 state INIT physical_state LINK_UP" in host.run("rdma", "link", "show", "mlx5_0").out
    )
    host.lab("fault", "clear")
    assert "state ACTIVE" in host.run("rdma", "link", "show", "mlx5_0").out


def test_what_was_mended_stays_mended(provisioned):
    host = provisioned
    host.lab("fault", "pfc_off")
    host.run("mlnx_qos", "-i", "enp94s0np0", "--pfc", "0,0,0,0,0,1,0,0")
    host.lab("fault", "clear")
    assert host.nic("mlx5_4")["qos"]["pfc"] == [0, 0, 0, 0, 0, 1, 0, 0]
    assert host.nic("mlx5_0")["qos"]["pfc"] == [0, 0, 0, 1, 0, 0, 0, 0]


def test_faults_stack(provisioned):
    host = provisioned
    before = comparable(host.state)
    for name in ("port_down", "pcie_width", "firmware_drift"):
        host.lab("fault", name)
    cleared = json.loads(host.lab("fault", "clear").out)
    assert cleared["cables"] == ["enp94s0np0"]
    assert cleared["said"] == "On gpu-01, port_down, pcie_width, firmware_drift was cleared."
    assert json.loads(host.lab("fault", "clear").out)["said"] == "On gpu-01, no fault was cleared."
    assert comparable(host.state) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no_such_fault",), "no fault 'no_such_fault'"),
        (("port_down", "--device", "mlx5_77"), "gpu-01 has no NIC mlx5_77"),
        (("sm_down",), "gpu-01 has no InfiniBand port"),
        (("stale_fabric_manager",), "no NVIDIA driver yet"),
    ],
)
def test_what_makes_no_sense_is_refused(host, words, said):
    before = host.state
    answer = host.lab("fault", *words)
    assert answer.rc == 1 and said in answer.err and host.state == before


def test_a_device_can_be_named(provisioned):
    host = provisioned
    host.lab("fault", "port_down", "--device", "0000:ce:00.0")
    assert "state DOWN" in host.run("rdma", "link", "show", "mlx5_10").out
    host.lab("fault", "gpu_missing", "--device", "2")
    assert "GPU-393" not in host.run("nvidia-smi", "-L").out and host.run("nvidia-smi", "-L").out.count("\n") == 7


def test_faults_are_told_without_a_host(capsys):
    cli.main(["faults"])
    assert json.loads(capsys.readouterr().out)["gpu_missing"] == "a GPU fell off the bus"
