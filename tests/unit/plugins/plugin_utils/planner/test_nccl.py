# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL's variables and the file that carries them: derived, checked, and read back as NCCL reads."""

from __future__ import annotations

import string

import boxes
import pytest
from boxes import notes, plan_one
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import (
    ConfError,
    exact_list,
    parse,
    render,
    selector,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_env import gid_kind

names = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)
values = st.text(string.ascii_letters + string.digits + "=:,^_./-+ #\"'\t\r\nä", max_size=40)


def env_note(plan, id_="RF-PLAN-NCCL-ENV"):
    return [note for note in plan["notes"] if note["id"] == id_]


# -- the file ---------------------------------------------------------------------------------------------------------


@given(st.dictionaries(names, values, max_size=6))
def test_what_is_written_is_read_back_or_refused(env):
    try:
        text = render(env)
    except ConfError:
        return
    assert parse(text) == env
    assert "\r" not in text and text.endswith("\n")


@pytest.mark.parametrize(
    "value", ["", " 106", "106 ", '"106"', "'106'", "106 # tc", "10\n6", "106\r", "x" * 1024, "a\tb\0"]
)
def test_values_that_nccl_would_misread_are_refused(value):
    with pytest.raises(ConfError, match="NCCL_IB_TC"):
        render({"NCCL_IB_TC": value})


@pytest.mark.parametrize("name", ["export NCCL_IB_TC", "NCCL_IB_TC ", "nccl_ib_tc", "", "#NCCL", "A=B"])
def test_names_that_nccl_would_misread_are_refused(name):
    with pytest.raises(ConfError):
        render({name: "1"})


def test_the_first_equals_sign_parts_name_and_value():
    assert "NCCL_IB_HCA==mlx5_0:1\n" in render({"NCCL_IB_HCA": "=mlx5_0:1"})
    assert parse("NCCL_IB_HCA==mlx5_0:1\n") == {"NCCL_IB_HCA": "=mlx5_0:1"}


def test_reading_as_nccl_does():
    text = '# A=1\n#B=2\nNO EQUALS\n\nC=3\nC=4\nD =5\nE= 6 \nF="7"\r\n'
    assert parse(text) == {"C": "3", "D ": "5", "E": " 6 ", "F": '"7"'}


# -- device lists -----------------------------------------------------------------------------------------------------


def test_prefix_and_exact_matching():
    assert selector("mlx5_1").matches("mlx5_10", 1)
    assert not selector("=mlx5_1").matches("mlx5_10", 1)
    assert selector("^=mlx5_1").matches("mlx5_10", 1) and not selector("^=mlx5_1").matches("mlx5_1", 1)
    assert not selector("=mlx5_1:2").matches("mlx5_1", 1)
    assert selector("=mlx5_1:1:3").matches("mlx5_1", 1)


@pytest.mark.parametrize("value", ["^=mlx5_1,^=mlx5_2", "mlx5_0, mlx5_1", "=mlx5_0,,mlx5_1", "=mlx5_0:one", '"mlx5_0"'])
def test_lists_that_mean_something_else_are_named(value):
    assert selector(value).problems


def test_too_many_devices():
    assert "32" in selector(",".join(f"mlx5_{n}" for n in range(33))).problems[0]


@given(
    st.sets(st.from_regex(r"mlx5_[0-9]{1,2}", fullmatch=True), min_size=1, max_size=12),
    st.from_regex(r"mlx5_[0-9]{1,3}", fullmatch=True),
)
def test_the_exact_list_matches_its_items_and_nothing_else(devices, other):
    chosen = selector(exact_list(sorted(devices)))
    assert all(chosen.matches(name, 1) for name in devices)
    assert chosen.matches(other, 1) == (other in devices)


# -- derived ----------------------------------------------------------------------------------------------------------


def test_roce_default_is_three_variables_with_reasons():
    plan = plan_one(boxes.hgx_h100())
    assert list(plan["nccl_env"].items()) == [
        ("NCCL_IB_HCA", boxes.H100_ROCE_LIST),
        ("NCCL_SOCKET_IFNAME", "=eno1"),
        ("NCCL_IB_TC", "106"),
    ]
    assert set(plan["nccl_reasons"]) == set(plan["nccl_env"])


def test_infiniband_default_is_two_variables():
    assert list(plan_one(boxes.hgx_h100("InfiniBand"))["nccl_env"]) == ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"]


def test_one_dscp_moves_everything():
    for dscp, tc, priority in ((26, 106, 3), (24, 98, 3), (34, 138, 4)):
        plan = boxes.rack({"gpu-01": boxes.hgx_h100().done()}, roce_dscp=dscp)
        host, roce = plan["hosts"]["gpu-01"], plan["rack"]["roce"]
        mask = [int(n == priority) for n in range(8)]
        assert (roce["traffic_class"], roce["priority"], roce["pfc"], roce["perftest_tos"]) == (tc, priority, mask, tc)
        assert host["nccl_env"]["NCCL_IB_TC"] == str(tc)
        qos = host["qos"]["enmlx5_15"]
        assert qos["dscp_to_priority"] == {str(dscp): priority, "48": 6}
        assert (qos["trust"], qos["traffic_class"], qos["rdma_cm_tos"]) == ("dscp", tc, tc)
        assert qos["rdma_cm_mode"] == "RoCE v2", "RoCE v1 has no DSCP"
        assert qos["pfc"] == [bool(flag) for flag in mask]
        assert host["nic_ports"][0]["settings"] == {**qos, "max_read_request_bytes": 4096}
        assert qos["ecn"] == {str(priority): {"rp": True, "np": True}}
        assert roce["switch"] == {
            "trust": "dscp",
            "dscp_to_priority": {str(dscp): priority, "48": 6},
            "pfc": mask,
            "ecn_traffic_classes": [priority],
            "strict_traffic_classes": [6],
            "mtu_min": 9022,
        }
        assert host["firewall"]["roce_dscp"] == dscp
        assert host["ucx_env"]["UCX_IB_TRAFFIC_CLASS"] == str(tc)


def test_profiles_without_lossless_class():
    lossy = boxes.rack({"gpu-01": boxes.hgx_h100().done()}, roce_profile="lossy")
    assert lossy["rack"]["roce"]["pfc"] == [0] * 8
    assert lossy["hosts"]["gpu-01"]["nccl_env"]["NCCL_IB_TC"] == "106"
    recovery = {"adp_retrans": True, "tx_window": True, "slow_restart": True}
    assert lossy["hosts"]["gpu-01"]["qos"]["enmlx5_15"]["accelerations"] == recovery
    own = plan_one(boxes.hgx_h100(), roce_profile="lossy", roce_accelerations={"tx_window": False})
    assert own["qos"]["enmlx5_15"]["accelerations"] == {**recovery, "tx_window": False}
    assert "accelerations" not in plan_one(boxes.hgx_h100())["qos"]["enmlx5_15"], "the firmware's own are right"
    none = boxes.rack({"gpu-01": boxes.hgx_h100().done()}, roce_profile="none")["hosts"]["gpu-01"]
    assert none["qos"] == {}
    assert {tuple(port["settings"]) for port in none["nic_ports"]} == {("max_read_request_bytes",)}
    assert "NCCL_IB_TC" not in none["nccl_env"]


@pytest.mark.parametrize(
    ("lb", "name", "value"),
    [("ecmp", "NCCL_IB_QPS_PER_CONNECTION", "4"), ("adaptive", "NCCL_IB_ADAPTIVE_ROUTING", "1"), ("auto", None, None)],
)
def test_load_balance(lb, name, value):
    env = plan_one(boxes.hgx_h100(), fabric_lb=lb)["nccl_env"]
    extra = {key: env[key] for key in env if key in ("NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_ADAPTIVE_ROUTING")}
    assert extra == ({name: value} if name else {})
    assert "NCCL_IB_ADAPTIVE_ROUTING" not in plan_one(boxes.hgx_h100("InfiniBand"), fabric_lb="adaptive")["nccl_env"]


def gid(index, address, kind="RoCE v2"):
    return {"index": index, "gid": address, "type": kind}


USUAL = [
    gid(0, "fe80:0000:0000:0000:a288:c2ff:fe00:0001", "RoCE v1"),
    gid(1, "fe80:0000:0000:0000:a288:c2ff:fe00:0001"),
    gid(2, "0000:0000:0000:0000:0000:ffff:0ae0:000b", "RoCE v1"),
    gid(3, "0000:0000:0000:0000:0000:ffff:0ae0:000b"),
]
SHIFTED = [
    *USUAL[:2],
    gid(2, "fe80::1:2:3:4", "RoCE v1"),
    gid(3, "fe80::1:2:3:4"),
    gid(4, "::ffff:10.224.0.11", "RoCE v1"),
    gid(5, "::ffff:10.224.0.11"),
]


def test_new_nccl_gets_no_gid_index():
    assert "NCCL_IB_GID_INDEX" not in plan_one(boxes.hgx_h100(gids=USUAL))["nccl_env"]


def test_old_nccl_gets_the_index_that_fits_all_rails():
    plan = plan_one(boxes.hgx_h100(gids=SHIFTED), nccl_version="2.18.3")
    assert plan["nccl_env"]["NCCL_IB_GID_INDEX"] == "5"


def test_old_nccl_is_refused_where_no_index_fits_all_rails():
    box = boxes.hgx_h100(gids=USUAL)
    box.facts["rdma_devices"]["mlx5_13"]["ports"]["1"]["gids"] = SHIFTED
    plan = plan_one(box, nccl_version="2.18.3")
    assert "NCCL_IB_GID_INDEX" not in plan["nccl_env"]
    note = env_note(plan, "RF-PLAN-GID-INDEX")[0]
    assert "mlx5_13:1 index 5" in note["message"] and "mlx5_15:1 index 3" in note["message"]


def test_old_nccl_waits_for_the_addresses_of_all_rails():
    box = boxes.hgx_h100(gids=USUAL)
    box.facts["rdma_devices"]["mlx5_13"]["ports"]["1"]["gids"] = USUAL[:2]
    plan = plan_one(box, nccl_version="2.18.3")
    assert "NCCL_IB_GID_INDEX" not in plan["nccl_env"] and notes(plan) == []


def test_kinds_of_gids():
    assert gid_kind("0000:0000:0000:0000:0000:ffff:0ae0:000b") == "ipv4"
    assert gid_kind("fe80::1") == "link-local" and gid_kind("::") == "zero" and gid_kind("fd00::1") == "ipv6"
    assert gid_kind("no gid") == ""


# -- the user's own ---------------------------------------------------------------------------------------------------


def test_user_variables_win_and_null_removes():
    plan = plan_one(boxes.hgx_h100(), nccl_env={"NCCL_DEBUG": "WARN", "NCCL_IB_TC": 104, "NCCL_SOCKET_IFNAME": None})
    assert plan["nccl_env"] == {"NCCL_IB_HCA": boxes.H100_ROCE_LIST, "NCCL_IB_TC": "104", "NCCL_DEBUG": "WARN"}
    assert notes(plan) == []
    assert plan["nccl_reasons"]["NCCL_IB_TC"] == "set in gpu_fabric_nccl_env"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_IB_HCA", "mlx5_1", ["mlx5_10", "mlx5_15", "prefix"]),
        ("NCCL_IB_HCA", "=mlx5_15,=mlx5_10", ["only at the start"]),
        ("NCCL_IB_HCA", "=mlx5_15,mlx5_99", ["mlx5_99", "no device"]),
        ("NCCL_IB_HCA", "=mlx5_15,mlx5_0", ["mlx5_0 (storage)"]),
        ("NCCL_IB_HCA", "^=mlx5_15", ["mlx5_0 (storage)"]),
        ("NCCL_IB_HCA", '"=mlx5_15"', ["quotes"]),
        ("NCCL_SOCKET_IFNAME", "=eth7", ["matches no interface"]),
        ("NCCL_SOCKET_IFNAME", "^lo", ["docker0"]),
        ("NCCL_IB_TC", "96", ["DSCP 24", "priority 3", "106"]),
        ("NCCL_IB_TC", "0", ["DSCP 0", "priority 0", "priority 3"]),
        ("NCCL_IB_TC", "300", ["byte"]),
        ("NCCL_IB_GID_INDEX", "1", ["mlx5_15", "index 1", "fe80", "index 3"]),
        ("NCCL_IB_GID_INDEX", "2", ["index 2", "RoCE v1"]),
        ("NCCL_IB_GID_INDEX", "7", ["index 7 is empty"]),
        ("NCCL_IB_DISABLE", "1", ["TCP"]),
    ],
)
def test_user_variables_that_cannot_be_right_are_refused_by_name(name, value, words):
    box = boxes.hgx_h100(gids=USUAL).netdev("docker0", kind="bridge", addresses=["172.17.0.1/16"])
    plan = plan_one(box, nccl_env={name: value})
    found = env_note(plan)
    assert found and all(any(word in note["message"] for note in found) for word in words), found
    # what was refused is not written; the derived value stays
    assert plan["nccl_env"].get(name) != value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_CUDA_SUPPORT", "1"),
        ("NCCL_PROTO", "LL128"),
        ("NCCL_MAX_NRINGS", "8"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("LD_LIBRARY_PATH", "/opt"),
    ],
)
def test_user_variables_that_do_nothing_are_written_and_told(name, value):
    plan = plan_one(boxes.hgx_h100(gids=USUAL), nccl_env={name: value})
    assert env_note(plan, "RF-PLAN-NCCL-ENV-OBSOLETE")
    assert plan["nccl_env"][name] == value


def test_a_topology_file_is_for_guests():
    named = {"NCCL_TOPO_FILE": "/etc/topo.xml"}
    assert env_note(plan_one(boxes.hgx_h100(), nccl_env=named), "RF-PLAN-NCCL-ENV-OBSOLETE")
    guest = plan_one(boxes.kvm(), nccl_env=named)
    assert not env_note(guest, "RF-PLAN-NCCL-ENV-OBSOLETE") and guest["nccl_env"]["NCCL_TOPO_FILE"] == "/etc/topo.xml"


def test_ucx_and_mpi_follow_the_same_rails():
    plan = plan_one(boxes.hgx_h100(), roce_dscp=24)
    assert plan["ucx_env"]["UCX_NET_DEVICES"] == boxes.H100_ROCE_LIST.removeprefix("=")
    assert plan["ucx_env"]["UCX_IB_TRAFFIC_CLASS"] == plan["nccl_env"]["NCCL_IB_TC"] == "98"
    assert set(plan["mpi_env"].values()) == {"eno1"}
    assert "UCX_IB_ROCE_LOCAL_SUBNET" not in plan_one(boxes.hgx_h100(), rail_mode="flat")["ucx_env"]
    assert list(plan_one(boxes.hgx_h100("InfiniBand"))["ucx_env"]) == ["UCX_NET_DEVICES"]
    assert plan_one(boxes.no_fabric())["ucx_env"] == {}


def test_a_list_with_rails_only_is_accepted():
    plan = plan_one(boxes.hgx_h100(), nccl_env={"NCCL_IB_HCA": "=mlx5_15:1,mlx5_10:1"})
    assert notes(plan) == [] and plan["nccl_env"]["NCCL_IB_HCA"] == "=mlx5_15:1,mlx5_10:1"


def test_ipv6_only_management():
    box = boxes.hgx_h100()
    box.facts["netdevs"]["eno1"]["addresses"] = ["fd00:10::11/64", "fe80::1/64"]
    assert plan_one(box)["nccl_env"]["NCCL_SOCKET_FAMILY"] == "AF_INET6"


def test_socket_interface_is_where_peers_reach_the_host():
    box = boxes.Box().netdev("enp90s0np0", addresses=["10.168.192.89/31"]).netdev("enp220s0f0")
    box.netdev("docker0", kind="bridge", addresses=["172.17.0.1/16"]).netdev(
        "veth1", kind="veth", addresses=["fe80::1/64"]
    )
    wanted = {"NCCL_SOCKET_IFNAME": "=enp90s0np0"}
    known = boxes.rack({"gpu-01": box.done()}, {"gpu-01": {"address": "10.168.192.89"}}, rail_ipv4="10.1.0.0/16")
    assert known["hosts"]["gpu-01"]["nccl_env"] == wanted
    # nothing but its address tells it from the others
    assert plan_one(box)["nccl_env"] == wanted
