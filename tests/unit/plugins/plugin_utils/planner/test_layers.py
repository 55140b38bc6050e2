# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package sets, GPUDirect, limits, kernel parameters, firewall, thresholds, disruption: each value and its reason."""

from __future__ import annotations

import boxes
import pytest
from boxes import notes, plan_one

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import covers, worst
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import compatibility, sysctls
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Function, Gpu
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.roce import rdma_mtu
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.thresholds import pcie_raw_gbps

# -- packages ---------------------------------------------------------------------------------------------------------


def test_one_driver_version_gives_every_package_of_the_driver():
    driver = plan_one(boxes.hgx_h100(), driver_version="580.82.07")["packages"]["driver"]
    assert driver["version"] == "580.82.07" and driver["flavour"] == "open" and driver["wanted"]
    assert driver["packages"]["nvidia-fabricmanager"] == "580.82.07"
    assert driver["packages"]["nvidia-kernel-open-dkms"] == "580.82.07"
    assert "nvidia-kernel-dkms" in driver["remove"]
    assert driver["pins"][0]["version"] == "580.82.07*"
    assert driver["services"] == {
        "nvidia-persistenced.service": "started",
        "nvidia-fabricmanager.service": "started",
    }


def test_fabric_manager_had_a_branch_in_its_name_before_580():
    driver = plan_one(boxes.hgx_h100(), driver_version="570.148.08", cuda_version="12.8")["packages"]["driver"]
    assert driver["packages"]["nvidia-fabricmanager-570"] == "570.148.08"


def test_fabric_manager_only_with_nvswitch_and_nvlsm_only_with_bridges():
    plain = plan_one(boxes.pcie_box())["packages"]["driver"]
    assert not [name for name in plain["packages"] if "fabricmanager" in name]
    assert plain["services"]["nvidia-fabricmanager.service"] == "stopped"
    assert "no NVSwitch" in plain["reason"] and "nvidia-fabricmanager*" in plain["remove"]
    bridged = plan_one(boxes.hgx_b200())["packages"]["driver"]
    assert "nvlsm" in bridged["packages"] and "ib_umad" in bridged["modules"]["load"]
    assert "nvlsm" not in plan_one(boxes.hgx_h100())["packages"]["driver"]["packages"]


def test_ubuntu_names():
    box = boxes.hgx_h100()
    box.facts["host"]["os"] = {"id": "ubuntu", "id_like": ["debian"], "version_id": "24.04"}
    driver = plan_one(box)["packages"]["driver"]
    assert "nvidia-dkms-580-open" in driver["packages"]
    assert "/ubuntu2404/x86_64" in driver["repository"]["url"]


def test_repository_of_the_site_wins():
    given = {"url": "http://mirror.example/nvidia", "suite": "stable", "components": ["main"], "key": "armoured"}
    driver = plan_one(boxes.hgx_h100(), repository=given)["packages"]["driver"]
    assert driver["repository"] == {"name": "railyard-nvidia", **given}


def test_nccl_is_built_for_the_cuda_series():
    sets = plan_one(boxes.hgx_h100(), cuda_version="12.9", nccl_version="2.27.3")["packages"]
    assert sets["nccl"]["packages"]["libnccl2"] == "2.27.3-1+cuda12.9"
    assert sets["cuda"]["packages"] == {"cuda-toolkit-12-9": ""}
    assert plan_one(boxes.hgx_h100(), cuda_version="13.0.2")["packages"]["cuda"]["packages"] == {
        "cuda-toolkit-13-0": "13.0.2"
    }


def test_inbox_and_doca():
    inbox = plan_one(boxes.hgx_h100())["packages"]["ofed"]
    assert inbox["repository"] is None and "rdma-core" in inbox["packages"] and inbox["disruption"] == "none"
    doca = plan_one(boxes.hgx_h100(), rdma_stack="doca", ofed_version="3.2.1")["packages"]["ofed"]
    assert "doca-ofed" in doca["packages"] and "3.2.1" in doca["repository"]["url"] and doca["disruption"] == "reload"


def test_nothing_is_wanted_without_gpus():
    box = boxes.Box().management()
    sets = plan_one(box)["packages"]
    assert [sets[name]["wanted"] for name in ("driver", "cuda", "nccl")] == [False] * 3


@pytest.mark.parametrize(
    ("intent", "id_", "words"),
    [
        ({"driver_version": "570.148.08", "cuda_version": "13.0"}, "RF-PLAN-VERSIONS", ["13.0", "580", "570.148.08"]),
        ({"driver_version": "535.54.03", "cuda_version": "12.8"}, "RF-PLAN-VERSIONS-MINOR", ["12.8", "570.26"]),
        ({"driver_version": "580.65.06", "cuda_version": "13.1"}, "RF-PLAN-VERSIONS-MINOR", ["590.44.01"]),
        ({"cuda_version": "12.7"}, "RF-PLAN-VERSIONS", ["never released"]),
    ],
)
def test_versions_that_do_not_go_together(intent, id_, words):
    plan = plan_one(boxes.hgx_h100(), **intent)
    note = next(note for note in plan["notes"] if note["id"] == id_)
    assert all(word in note["message"] for word in words)


def test_blackwell_needs_open_modules_and_a_driver_that_knows_it():
    assert "RF-PLAN-FLAVOUR" in notes(plan_one(boxes.hgx_b200(), driver_flavour="proprietary"))
    assert "RF-PLAN-VERSIONS" in notes(plan_one(boxes.hgx_b200(), driver_version="550.144.03", cuda_version="12.4"))
    assert notes(plan_one(boxes.hgx_b200())) == []


def test_volta_gets_proprietary_modules():
    box = boxes.Box().gpu("0000:1b:00.0", ("0000:18:01.0",), device="1db5").management()
    assert plan_one(box, fabric="none")["packages"]["driver"]["flavour"] == "proprietary"


@pytest.mark.parametrize(
    ("device", "name"),
    [("1db5", "Volta"), ("1eb8", "Turing"), ("20b2", "Ampere"), ("2236", "Ampere"), ("2330", "Hopper"), ("26b9", "Ada"),
     ("2901", "Blackwell"), ("2941", "Blackwell"), ("3182", "Blackwell"), ("1234", None), ("", None)],
)  # fmt: skip
def test_generations(device, name):
    row = compatibility.generation(Gpu("x", None, "", device, None))
    assert (row["name"] if row else None) == name


def test_generations_do_not_overlap():
    rows = sorted((int(r["first"], 16), int(r["last"], 16)) for r in compatibility.table()["gpu_generations"])
    assert all(first <= last for first, last in rows)
    assert all(before[1] < after[0] for before, after in zip(rows, rows[1:]))


# -- GPUDirect --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "ofed", "intent", "wanted", "word"),
    [
        ("6.8.0", None, {}, "dmabuf", "inbox"),
        ("6.8.0", "25.10-1.7.1", {}, "dmabuf", "25.10"),
        ("5.4.0", None, {}, "none", "5.12"),
        ("5.4.0", "5.8-3.0.7", {}, "nvidia_peermem", "5.12"),
        ("6.8.0", "24.10-0.7.0", {"driver_flavour": "proprietary"}, "nvidia_peermem", "proprietary"),
        ("6.8.0", None, {"driver_flavour": "proprietary"}, "none", "inbox ib_core"),
        ("6.8.0", "5.4-3.1.0", {}, "nvidia_peermem", "5.5"),
    ],
)
def test_path_to_gpu_memory(kernel, ofed, intent, wanted, word):
    box = boxes.hgx_h100()
    box.facts["host"]["kernel"] = kernel
    if ofed:
        box.facts["ofed"] = {"version": ofed}
    modules = plan_one(box, **intent)["modules"]
    assert modules["gpudirect"] == wanted
    assert word in modules["gpudirect_reason"]
    assert ("nvidia_peermem" in modules["load"]) == (wanted == "nvidia_peermem")
    # A restart of OFED's stack takes it out.
    assert modules["follow"] == ({"mlx5_ib": ["nvidia_peermem"]} if wanted == "nvidia_peermem" else {})


def test_rails_beyond_the_host_bridge_are_told():
    assert "SYS away" in plan_one(boxes.pcie_box(gpus=2))["modules"]["gpudirect_reason"]
    assert "away" not in plan_one(boxes.hgx_h100())["modules"]["gpudirect_reason"]


# -- kernel parameters and limits -------------------------------------------------------------------------------------


def test_each_parameter_has_a_reason():
    wanted = plan_one(boxes.hgx_h100())["sysctl"]
    assert all(entry["value"] and entry["reason"] for entry in wanted.values())
    assert list(wanted) == sorted(wanted)
    assert "net.ipv4.conf.all.rp_filter" not in wanted


def test_what_a_kernel_does_not_offer_is_left_out_with_the_reason():
    box = boxes.hgx_h100()
    box.facts["sysctl"] = {"net.core.somaxconn": "4096", "vm.max_map_count": "65530"}
    plan = plan_one(box)
    assert "net.core.rmem_max" not in plan["sysctl"] and "net.core.somaxconn" in plan["sysctl"]
    assert "does not offer" in plan["sysctl_left_out"]["net.core.rmem_max"]
    assert not [key for key in plan["sysctl"] if key.startswith("net.ipv6.")]
    box.facts["host"]["container"] = True
    assert "container" in plan_one(box)["sysctl_left_out"]["vm.max_map_count"]


def test_user_parameters_win_and_null_removes():
    plan = plan_one(
        boxes.hgx_h100(), sysctl={"vm.max_map_count": None, "vm.swappiness": 10, "net.ipv4.tcp_rmem": "1  2\t3"}
    )
    assert "vm.max_map_count" not in plan["sysctl"]
    assert plan["sysctl"]["vm.swappiness"]["value"] == "10"
    assert plan["sysctl"]["net.ipv4.tcp_rmem"]["value"] == "1 2 3"


def test_neighbour_tables_fit_the_rack():
    facts = {"gpu-1": boxes.hgx_h100().done()}
    assert "net.ipv4.neigh.default.gc_thresh3" not in boxes.rack(facts)["hosts"]["gpu-1"]["sysctl"]
    big = {f"gpu-{n}": {} for n in range(1, 121)}
    wanted = boxes.rack(facts, big)["hosts"]["gpu-1"]["sysctl"]
    assert wanted["net.ipv4.neigh.default.gc_thresh3"]["value"] == "16384"
    assert "960 neighbours" in wanted["net.ipv4.neigh.default.gc_thresh3"]["reason"]
    assert "net.ipv6.neigh.default.gc_thresh3" not in wanted
    six = boxes.rack(facts, big, rail_ipv6="fd00:224::/48")["hosts"]["gpu-1"]["sysctl"]
    assert "net.ipv6.neigh.default.gc_thresh3" in six


def test_interfaces_with_a_dot_are_spelt_for_sysctl():
    assert sysctls.interface_key("ipv4", "ens1.100", "rp_filter") == "net.ipv4.conf.ens1/100.rp_filter"


def test_limits_are_for_services_that_exist():
    box = boxes.hgx_h100()
    box.facts["services"] = {"ssh.service": {"active": "active"}, "containerd.service": {"enabled": "enabled"},
                             "docker.service": {"active": "not-found"}}  # fmt: skip
    limits = plan_one(box)["limits"]
    assert limits["services"] == ["ssh", "containerd"]
    assert limits["values"] == {"memlock": "unlimited", "nofile": 1048576}


# -- firewall ---------------------------------------------------------------------------------------------------------


def test_members_are_the_rails_and_the_hosts_and_nobody_else():
    facts = {f"gpu-{n}": boxes.hgx_h100().done() for n in (1, 2)}
    for n, host in enumerate(facts.values()):
        host["netdevs"]["eno1"]["addresses"] = [f"10.0.0.{10 + n}/24"]
        host["ssh"] = {"address": f"10.0.0.{10 + n}", "netdev": "eno1", "client": "10.9.9.9"}
    plan = boxes.rack(facts)
    firewall = plan["hosts"]["gpu-1"]["firewall"]
    assert firewall["members"] == ["10.0.0.10/31", "10.224.0.0/21"]
    assert firewall["management_interface"] == "eno1"
    assert firewall["rail_interfaces"] == [f"en{name}" for name in boxes.H100_NAMES]
    # whoever runs this gets in afterwards
    assert firewall["admin"] == ["10.9.9.9/32"]
    assert boxes.rack(facts, admin_networks=["10.9.0.0/16"])["hosts"]["gpu-1"]["firewall"]["admin"] == ["10.9.0.0/16"]


def test_a_member_without_known_address_is_told_once():
    facts = {f"gpu-{n}": boxes.hgx_h100().done() for n in (1, 2)}
    plan = boxes.rack(facts, {"gpu-1": {}, "gpu-2": {}, "gpu-3": {}})
    told = [note for host in plan["hosts"].values() for note in host["notes"] if note["id"] == "RF-PLAN-MEMBER-ADDRESS"]
    assert [note["device"] for note in told] == ["gpu-3"]


# -- thresholds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speed", "width", "gbps"),
    [(8, 16, 126.0), (16, 16, 252.1), (32, 16, 504.1), (64, 16, 968.0), (5, 8, 32.0), (16, 8, 126.0)],
)
def test_pcie_payload_rate(speed, width, gbps):
    assert pcie_raw_gbps(Function("x", link={"max_speed_gts": speed, "max_width": width})) == pytest.approx(
        gbps, abs=0.1
    )


def test_a_slot_that_cannot_carry_the_port_lowers_the_threshold_but_a_degraded_link_does_not():
    box = boxes.hgx_h100()
    box.facts["pci"]["0000:18:00.0"]["link"] = {"max_speed_gts": 16.0, "max_width": 16, "speed_gts": 16.0, "width": 16}
    box.facts["pci"]["0000:40:00.0"]["link"] = {"max_speed_gts": 32.0, "max_width": 16, "speed_gts": 32.0, "width": 4}
    write = plan_one(box)["thresholds"]["ib_write_bw_gbps"]
    assert (write["0"], write["1"], write["2"]) == (222.0, 384.0, 384.0)


def test_a_host_that_is_slow_on_every_rail_is_measured_by_the_rack():
    facts = {f"gpu-{n}": boxes.pcie_box().done() for n in (1, 2, 3)}
    facts["gpu-2"]["rdma_devices"]["mlx5_0"]["ports"]["1"]["rate_gbps"] = 50.0
    hosts = boxes.rack(facts)["hosts"]
    assert [hosts[name]["thresholds"]["ib_write_bw_gbps"]["0"] for name in sorted(hosts)] == [96.0, 96.0, 96.0]
    assert hosts["gpu-2"]["rails"][0]["rate_gbps"] == 50.0


def test_rates_give_the_published_floors():
    assert plan_one(boxes.dgx_a100())["thresholds"]["ib_write_bw_gbps"]["0"] == 192.0
    assert plan_one(boxes.pcie_box())["thresholds"]["ib_write_bw_gbps"]["0"] == 96.0
    facts = {f"gpu-{n}": boxes.dgx_a100().done() for n in (1, 2)}
    assert boxes.rack(facts)["hosts"]["gpu-1"]["thresholds"]["nccl_busbw_gbps"] == 185.0
    facts = {f"gpu-{n}": boxes.pcie_box().done() for n in (1, 2)}
    assert boxes.rack(facts)["hosts"]["gpu-1"]["thresholds"]["nccl_busbw_gbps"] == 11.6


def test_software_rails_have_no_threshold():
    thresholds = plan_one(boxes.rxe_guest(), allow_software_rdma=True)["thresholds"]
    assert set(thresholds["ib_write_bw_gbps"].values()) == {None}
    assert "software" in thresholds["basis"]["ib_write_bw_gbps.0"]


def test_tcp_threshold_needs_a_line_rate():
    assert plan_one(boxes.hgx_h100())["thresholds"]["iperf3_gbps"] == 8.0
    box = boxes.hgx_h100()
    box.facts["netdevs"]["eno1"]["kind"] = "veth"
    assert plan_one(box)["thresholds"]["iperf3_gbps"] is None


def test_overrides():
    plan = plan_one(boxes.hgx_h100(), thresholds={"ib_write_bw_gbps": 350, "iperf3_gbps": None})
    assert set(plan["thresholds"]["ib_write_bw_gbps"].values()) == {350}
    assert plan["thresholds"]["iperf3_gbps"] is None


@pytest.mark.parametrize(
    ("mtu", "path"), [(9000, 4096), (4200, 4096), (4192, 4096), (4191, 2048), (1500, 1024), (200, 0)]
)
def test_path_mtu_of_roce(mtu, path):
    assert rdma_mtu(mtu) == path


# -- disruption -------------------------------------------------------------------------------------------------------


def test_classes_are_ordered():
    assert worst(["none", "reboot", "linkflap"]) == "reboot"
    assert worst([]) == "none"
    assert covers("reload", "linkflap") and not covers("reload", "reboot")


@pytest.mark.parametrize(
    ("driver", "modules", "cost", "word"),
    [
        ({}, {}, "none", "no NVIDIA driver"),
        ({}, {"nouveau": {"loaded": True}}, "reboot", "nouveau"),
        ({"loaded": {"version": "570.1", "flavour": "open"}}, {}, "reload", "570.1"),
        ({"loaded": {"version": "580.95.05", "flavour": "proprietary"}}, {}, "reload", "proprietary"),
        ({"loaded": {"version": "580.95.05", "flavour": "open"}}, {}, "none", "as wanted"),
    ],
)
def test_what_a_driver_costs_now(driver, modules, cost, word):
    box = boxes.hgx_h100()
    box.facts |= {"driver": driver, "modules": modules}
    plan = plan_one(box)
    assert plan["packages"]["driver"]["disruption"] == cost
    assert word in plan["packages"]["driver"]["disruption_reason"]


def test_pfc_changes_cost_a_link_flap():
    box = boxes.hgx_h100()
    box.facts["qos"] = {"enmlx5_15": {"pfc": [False] * 8}, "enmlx5_10": {"pfc": [False] * 3 + [True] + [False] * 4}}
    plan = plan_one(box)
    assert plan["disruption"]["worst"] == "linkflap"
    assert [change["what"] for change in plan["disruption"]["changes"]] == ["rail 0 enmlx5_15"]


def test_gpu_processes_are_named():
    box = boxes.hgx_h100()
    box.facts["gpu_processes"] = [{"pid": 4711, "name": "python"}]
    assert plan_one(box)["disruption"]["gpu_processes"] == ["4711 python"]
