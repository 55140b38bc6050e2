# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one tool sets, the others and the tree show; what needs a reset waits for it; what cannot be is refused."""

from __future__ import annotations

import json
import multiprocessing

import pytest

from railyard_lab import nccl_env, qos
from railyard_lab import state as state_file

NETDEV = "enp24s0np0"


def column(answer, name):
    return next(line.split()[-3:] for line in answer.out.splitlines() if name in line.split())


@pytest.mark.parametrize("way", ["reboot", "mlxfwreset"])
def test_firmware_settings_wait(tree_host, way):
    tree_host.run("mlxconfig", "-d", "mlx5_0", "-y", "set", "SRIOV_EN=1")
    query = ("-d", "mlx5_0", "-e", "q", "SRIOV_EN")
    assert column(tree_host.run("mlxconfig", *query), "SRIOV_EN") == ["False(0)", "False(0)", "True(1)"]
    if way == "reboot":
        tree_host.reboot()
    else:
        assert tree_host.run("mlxfwreset", "-d", "mlx5_0", "-y", "reset").rc == 0
    assert column(tree_host.run("mlxconfig", *query), "SRIOV_EN") == ["False(0)", "True(1)", "True(1)"]
    assert tree_host.read("sys/class/infiniband/mlx5_0/device/sriov_totalvfs") == "8\n"


def test_both_functions_of_a_card_have_one_configuration(host):
    host.run("mlxconfig", "-d", "29:00.0", "-y", "set", "CNP_DSCP_P2=50")
    assert column(host.run("mlxconfig", "-d", "29:00.1", "-e", "q"), "CNP_DSCP_P2")[-1] == "50"
    assert column(host.run("mlxconfig", "-d", "29:00.1", "-e", "q"), "CNP_DSCP_P1")[-1] == "48"


def test_advanced_parameters_appear_after_their_gate_is_in_force(host):
    assert host.run("mlxconfig", "-d", "mlx5_0", "q", "MAX_ACC_OUT_READ") == (
        3, "-E- The Device doesn't support MAX_ACC_OUT_READ parameter\n", "")  # fmt: skip
    host.run("mlxconfig", "-d", "mlx5_0", "-y", "set", "ADVANCED_PCI_SETTINGS=1")
    assert host.run("mlxconfig", "-d", "mlx5_0", "q", "MAX_ACC_OUT_READ").rc == 3
    host.reboot()
    assert host.run("mlxconfig", "-d", "mlx5_0", "q", "MAX_ACC_OUT_READ").rc == 0


@pytest.mark.parametrize(
    "bad", ["NUM_OF_VFS=900", "SRIOV_EN=7", "NO_SUCH=1", "INTERNAL_CPU_OFFLOAD_ENGINE=1", "SRIOV_EN"]
)
def test_bad_firmware_settings_change_nothing(host, bad):
    before = host.state
    answer = host.run("mlxconfig", "-d", "mlx5_0", "-y", "set", "CNP_DSCP_P1=9", bad)
    assert answer.rc != 0 and answer.out.startswith("-E- ")
    assert host.state == before


def test_without_consent_nothing_is_applied(host, monkeypatch):
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("n\n"))
    answer = host.run("mlxconfig", "-d", "mlx5_0", "set", "SRIOV_EN=1")
    assert answer.rc != 0 and "-E- Aborted by user." in answer.out
    assert host.nic("mlx5_0")["nvconfig"]["SRIOV_EN"]["next"] == "False(0)"


def test_json_of_firmware_settings(host, tmp_path):
    path = tmp_path / "answer.json"
    path.write_text("{}")
    host.run("mlxconfig", "-d", "0000:18:00.0", "-e", "-j", str(path), "q")
    device = json.loads(path.read_text())["Device #1"]
    assert device["device"] == "0000:18:00.0" and device["device_type"] == "ConnectX7"
    assert device["tlv_configuration"]["LINK_TYPE_P1"] == {
        "current_value": "ETH(2)",
        "default_value": "IB(1)",
        "modified": True,
        "next_value": "ETH(2)",
        "read_only": False,
    }
    path.write_text("")
    assert host.run("mlxconfig", "-d", "0000:18:00.0", "-e", "-j", str(path), "q").out.startswith("-E- ")


def test_link_type_changes_the_port_after_the_reset(tree_host):
    tree_host.run("mlxconfig", "-d", "mlx5_0", "-y", "set", "LINK_TYPE_P1=1")
    assert tree_host.read("sys/class/infiniband/mlx5_0/ports/1/link_layer") == "Ethernet\n"
    tree_host.reboot()
    assert tree_host.read("sys/class/infiniband/mlx5_0/ports/1/link_layer") == "InfiniBand\n"


def test_mlnx_qos_and_dcb_show_one_state(host):
    host.run("dcb", "pfc", "set", "dev", NETDEV, "prio-pfc", "all:off", "3:on")
    assert "\tenabled     0   0   0   1   0   0   0   0   \n" in host.run("mlnx_qos", "-i", NETDEV).out
    host.run("mlnx_qos", "-i", NETDEV, "--pfc", "0,0,0,0,0,1,0,0")
    shown = json.loads(host.run("dcb", "-j", "pfc", "show", "dev", NETDEV).out)
    assert shown == {"pfc_cap": 8, "macsec_bypass": False, "delay": 7, "prio_pfc": [False] * 5 + [True, False, False]}
    host.run("dcb", "app", "add", "dev", NETDEV, "dscp-prio", "26:3", "CS6:6")
    assert "Priority trust state: dscp\n" in host.run("mlnx_qos", "-i", NETDEV).out
    assert host.run("dcb", "app", "show", "dev", NETDEV).out == "dscp-prio AF31:3 CS6:6 \n"
    assert host.run("dcb", "-N", "-j", "app", "show", "dev", NETDEV).out == '{"dscp_prio":[[26,3],[48,6]]}\n'
    host.run("dcb", "app", "del", "dev", NETDEV, "dscp-prio", "26:3", "48:6")
    assert "Priority trust state: pcp\n" in host.run("mlnx_qos", "-i", NETDEV).out
    assert host.run("dcb", "-j", "app", "show", "dev", NETDEV).out == "{}\n"


def test_an_entry_that_is_replaced_is_there_though_dcb_says_it_failed(host):
    host.run("dcb", "app", "add", "dev", NETDEV, "dscp-prio", "26:0", "46:5")
    answer = host.run("dcb", "app", "replace", "dev", NETDEV, "dscp-prio", "26:3", "48:6")
    assert answer.rc == 1 and answer.err.endswith("Could not remove replaced APP entries\n")
    assert host.nic("mlx5_0")["qos"]["dscp"] == {"26": 3, "46": 5, "48": 6}
    assert host.run("dcb", "app", "replace", "dev", NETDEV, "dscp-prio", "26:3").rc == 0
    before = host.state
    assert host.run("mlnx_qos", "-i", NETDEV, "--dscp2prio", "del,26,0").rc == 1 and host.state == before
    assert host.run("mlnx_qos", "-i", NETDEV, "--dscp2prio", "del,26,3").rc == 0
    assert host.nic("mlx5_0")["qos"]["dscp"] == {"46": 5, "48": 6}


def test_a_lossless_priority_keeps_its_room(host):
    """With 802.3x pause every priority is lossless; half of a move is refused, the whole of it is not."""
    host.run("ethtool", "-A", NETDEV, "rx", "on", "tx", "off")
    before = host.state
    assert host.run("mlnx_qos", "-i", NETDEV, "--buffer_size", "0,20016,156096,0,0,0,0,0").rc == 1
    assert host.run("dcb", "buffer", "set", "dev", NETDEV, "prio-buffer", "0:2").rc == 1 and host.state == before
    host.run("ethtool", "-A", NETDEV, "rx", "off", "tx", "off")
    host.run("dcb", "pfc", "set", "dev", NETDEV, "prio-pfc", "all:off", "3:on")
    before = host.state
    assert host.run("dcb", "buffer", "set", "dev", NETDEV, "buffer-size", "1:0", "2:156096").rc == 1
    assert host.state == before
    assert (
        host.run("dcb", "buffer", "set", "dev", NETDEV, "prio-buffer", "3:2", "buffer-size", "1:0", "2:156096").rc == 0
    )
    answer = host.run(
        "mlnx_qos", "-i", NETDEV, "--prio2buffer", "0,0,0,1,0,0,0,0", "--buffer_size", "20016,156096,0,0,0,0,0,0"
    )
    assert answer.rc == 0 and "20016,156096,0,0,0,0,0,0," in answer.out


def test_changing_pfc_bounces_the_link_and_repeating_does_not(tree_host):
    counter = "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    for _ in range(2):
        tree_host.run("mlnx_qos", "-i", NETDEV, "--pfc", "0,0,0,1,0,0,0,0")
        assert tree_host.read(counter) == "1\n"
    assert "link_down_events_phy: 1\n" in tree_host.run("ethtool", "-S", NETDEV).out
    assert tree_host.run("dmesg").out.count(f"{NETDEV}: Link down") == 1


def test_qos_is_gone_after_a_reboot(host):
    host.run("mlnx_qos", "-i", NETDEV, "--pfc", "0,0,0,1,0,0,0,0", "--trust", "dscp")
    host.reboot()
    assert host.nic("mlx5_0")["qos"] == qos.factory()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ets", "set", "dev", NETDEV, "tc-tsa", "all:ets", "tc-bw", "all:10"), "sum to 80%, expected 100%"),
        (("dcbx", "set", "dev", NETDEV, "lld-managed"), "Operation not permitted"),
        (("pfc", "show", "dev", "nosuch0"), "Attribute read: No such device"),
        (("nonsense",), 'Object "nonsense" is unknown'),
    ],
)
def test_dcb_refuses(host, words, said):
    before = host.state
    answer = host.run("dcb", *words)
    assert answer.rc == 1 and said in answer.err and host.state == before


def test_mlnx_qos_refuses(host):
    before = host.state
    for words in (("--pfc", "1,1"), ("--trust", "dscp", "--dscp2prio", "set,26,3"), ("--dscp2prio", "set,99,3"),
                  ("--tsa", ",".join(["ets"] * 8), "--tcbw", ",".join(["10"] * 8))):  # fmt: skip
        assert host.run("mlnx_qos", "-i", NETDEV, *words).rc == 1
    assert host.state == before


def test_who_does_not_own_a_port_has_no_dcb(make_host):
    guest = make_host("cloud_vm")
    assert guest.run("dcb", "pfc", "show", "dev", "ens8") == (1, "", "Attribute read: Operation not supported\n")
    assert guest.run("mlnx_qos", "-i", "ens8").rc == 1
    assert guest.run("mlxconfig", "-d", "0000:00:08.0", "q").out.startswith("-E- ")
    rack = make_host("hgx_h100_ib", "gpu-02")
    assert rack.run("dcb", "pfc", "show", "dev", "ibp24s0").rc == 1


def test_ofed_files_are_read_and_written(make_host):
    host = make_host("a100_8x200g", tree=True)
    net = host.root / "sys/class/net/enp12s0np0"
    (net / "ecn/roce_np/cnp_dscp").write_text("52")
    (net / "ecn/roce_rp/enable/3").write_text("0")
    tclass = host.root / "sys/class/infiniband/mlx5_0/tc/1/traffic_class"
    tclass.write_text("106")
    host.lab("sync")
    assert tclass.read_text() == "Global tclass=106\n"
    roce = host.nic("mlx5_0")["qos"]["roce"]
    assert (roce["cnp_dscp"], roce["rp"][3], roce["tclass"]) == (52, 0, 106)
    tclass.write_text("tclass=-1")
    host.lab("sync")
    assert "Global" not in tclass.read_text()


def test_inbox_has_none_of_ofeds_files(tree_host):
    assert not (tree_host.root / "sys/class/infiniband/mlx5_0/tc").exists()
    assert not (tree_host.root / f"sys/class/net/{NETDEV}/ecn").exists()
    assert tree_host.run("modinfo", "-F", "version", "mlx5_core").out == ""


def test_ethtool_keeps_what_it_was_told(tree_host):
    tree_host.run("ethtool", "-G", NETDEV, "rx", "8192")
    assert "RX:\t\t8192\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t1024\n" in tree_host.run("ethtool", "-g", NETDEV).out
    assert tree_host.run("ethtool", "-G", NETDEV, "rx", "9000").rc == 1
    assert json.loads(tree_host.run("ethtool", "--json", "-a", NETDEV).out)[0]["rx"] is True
    tree_host.run("ethtool", "-A", NETDEV, "rx", "off")
    assert json.loads(tree_host.run("ethtool", "--json", "-a", NETDEV).out)[0]["rx"] is False
    tree_host.run("ethtool", "-s", NETDEV, "speed", "200000", "autoneg", "off")
    assert tree_host.read(f"sys/class/net/{NETDEV}/speed") == "200000\n"
    assert tree_host.read("sys/class/infiniband/mlx5_0/ports/1/rate") == "200 Gb/sec (4X HDR)\n"


def test_a_renamed_device_is_renamed_everywhere(tree_host):
    assert tree_host.run("rdma", "dev", "set", "mlx5_0", "name", "rail0").rc == 0
    assert (tree_host.root / "sys/class/infiniband/rail0").exists() and not (
        tree_host.root / "sys/class/infiniband/mlx5_0"
    ).exists()
    assert tree_host.run("rdma", "dev", "set", "mlx5_3", "name", "rail0").rc == 1


def _bump(count):
    for _ in range(count):
        with state_file.change() as state:
            state["nics"][0]["flaps"] += 1


def test_two_writers_lose_nothing(host):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_bump, args=(15,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert host.state["nics"][0]["flaps"] == 45


# --- how NCCL reads its environment -----------------------------------------------------------------------------------


def test_nccl_conf_is_taken_verbatim(host, monkeypatch):
    (host.root / "etc").mkdir(exist_ok=True)
    (host.root / "etc/nccl.conf").write_text(
        '# NCCL_A=1\nNCCL_IB_TC="106"\nNCCL_IB_SL =3\nNCCL_IB_HCA==mlx5_1\nNCCL_X=1 # two\nNCCL_IB_HCA=later\n'
    )
    found = nccl_env.read({"NCCL_X": "mine", "HOME": "/root"})
    assert found["NCCL_IB_TC"] == '"106"' and nccl_env.number(found, "NCCL_IB_TC", 7) == 0
    assert found["NCCL_IB_SL "] == "3" and "NCCL_IB_SL" not in found
    assert found["NCCL_IB_HCA"] == "=mlx5_1", "the first definition counts"
    assert found["NCCL_X"] == "mine" and "NCCL_A" not in found and "# NCCL_A" not in found


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("mlx5_1", ["mlx5_1", "mlx5_10", "mlx5_11"]),
        ("=mlx5_1", ["mlx5_1"]),
        ("=mlx5_1:1,mlx5_10:2", ["mlx5_1"]),
        ("^mlx5_1", ["mlx5_0"]),
        ("^=mlx5_1", ["mlx5_0", "mlx5_10", "mlx5_11"]),
        (None, ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11"]),
    ],
)
def test_device_lists(pattern, names):
    devices = [("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_10", 1), ("mlx5_11", 1)]
    assert [name for name, _ in nccl_env.match(devices, pattern)] == names
