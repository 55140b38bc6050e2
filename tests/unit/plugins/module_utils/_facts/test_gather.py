# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of whole machines, from their sysfs trees."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hosts import live, write
from sysfs_trees import MACHINES, build, build_bundle
from sysfs_trees.spec import Machine

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import BundleSource, LiveSource


def facts_of(machine: Machine, directory: Path) -> dict[str, Any]:
    return gather(BundleSource(str(build_bundle(machine, directory / machine.hostname))))


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return {name: facts_of(make(), tmp_path_factory.mktemp(name)) for name, make in MACHINES.items()}


@pytest.mark.parametrize("name", MACHINES)
def test_every_device_of_the_machine_is_found(gathered: dict[str, dict[str, Any]], name: str) -> None:
    machine, facts = MACHINES[name](), gathered[name]
    assert [gpu["pci"] for gpu in facts.get("gpus", [])] == sorted(gpu.bdf for gpu in machine.gpus)
    assert sorted(switch["pci"] for switch in facts.get("nvswitches", [])) == sorted(s.bdf for s in machine.switches)
    cards = {nic.rdma: nic for nic in machine.nics if nic.rdma}
    assert set(facts.get("rdma_devices", {})) == set(cards)
    for rdma, nic in cards.items():
        device = facts["rdma_devices"][rdma]
        port = device["ports"]["1"]
        assert device["pci"] == nic.bdf
        assert device["node_guid"] == nic.guid
        assert device["software"] is False
        assert port["state"] == nic.state.lower()
        assert port["link_layer"] == nic.link_layer
        assert port["rate_gbps"] == float(nic.rate.split()[0])
        assert port["netdevs"] == ([nic.netdev] if nic.netdev else [])
        assert facts["pci"][nic.bdf]["upstream"] == list(nic.upstream)
        assert facts["pci"][nic.bdf]["root"] == nic.root
        if nic.netdev:
            assert facts["netdevs"][nic.netdev]["pci"] == nic.bdf
    assert facts["problems"] == []
    json.dumps(facts)


@pytest.mark.parametrize("name", MACHINES)
def test_bridges_above_gpus_and_cards_are_there_and_nothing_else(
    gathered: dict[str, dict[str, Any]], name: str
) -> None:
    machine, facts = MACHINES[name](), gathered[name]
    endpoints = (*machine.gpus, *machine.switches, *machine.nics)
    wanted = {bdf for endpoint in endpoints for bdf in (*endpoint.upstream, endpoint.bdf)}
    assert set(facts["pci"]) == wanted
    for bdf in {bdf for endpoint in endpoints for bdf in endpoint.upstream}:
        assert facts["pci"][bdf]["class"] == "060400"


def test_acs_of_bridges(gathered: dict[str, dict[str, Any]]) -> None:
    pci = gathered["pcie_box"]["pci"]
    assert pci["0000:20:01.1"]["acs"] == {
        "capable": True,
        "control": ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd", "DirectTrans"],
    }
    assert pci["0000:40:01.1"]["acs"]["control"] == ["SrcValid"]
    # An endpoint without the capability says nothing; a bridge without it says that.
    assert "acs" not in pci["0000:21:00.0"]
    assert gathered["hgx_h100"]["pci"]["0000:16:00.0"]["acs"] == {"capable": False, "control": []}
    assert pci["0000:41:00.0"]["max_read_request_bytes"] == 4096
    assert pci["0000:21:00.0"]["max_read_request_bytes"] == 512


def test_nvswitch_managers_are_told_by_their_product_data(gathered: dict[str, dict[str, Any]]) -> None:
    facts = gathered["hgx_b200"]
    managers = [
        name
        for name, device in facts["rdma_devices"].items()
        if facts["pci"][device["pci"]].get("vpd", {}).get("sw_mng")
    ]
    assert managers == ["mlx5_20", "mlx5_21", "mlx5_22", "mlx5_23"]
    assert "nvswitches" not in facts


def test_virtual_functions_and_subfunctions(gathered: dict[str, dict[str, Any]]) -> None:
    facts = gathered["pcie_box"]
    assert facts["pci"]["0000:41:00.2"]["physfn"] == "0000:41:00.0"
    assert facts["pci"]["0000:41:00.0"]["physfn"] is None
    assert facts["netdevs"]["enp65s0f0v0"]["kind"] == "vf"
    assert facts["rdma_devices"]["mlx5_3"]["subfunction"] is True
    assert "subfunction" not in facts["rdma_devices"]["mlx5_0"]
    # The ports of one card share its GUID, and only they.
    guids = {name: device["sys_image_guid"] for name, device in facts["rdma_devices"].items()}
    assert guids["mlx5_0"] == guids["mlx5_1"]


def test_guests(gathered: dict[str, dict[str, Any]]) -> None:
    assert gathered["hyperv_guest"]["host"]["virtualization"] == "hyperv"
    assert gathered["kvm_guest"]["host"]["virtualization"] == "kvm"
    assert gathered["hgx_h100"]["host"]["virtualization"] == "none"
    # -1 is the kernel's word for "not told".
    assert {gpu["numa_node"] for gpu in gathered["kvm_guest"]["gpus"]} == {None}
    assert {gpu["numa_node"] for gpu in gathered["hgx_h100"]["gpus"]} == {0, 1}


def test_bonds(gathered: dict[str, dict[str, Any]]) -> None:
    netdevs = gathered["dgx_a100"]["netdevs"]
    assert netdevs["bond0"]["kind"] == "bond"
    assert netdevs["bond0"]["bond"] == {"mode": "802.3ad", "members": ["enp97s0f0np0"]}
    assert netdevs["enp97s0f0np0"]["master"] == "bond0"


def test_gid_table_and_path_mtu(gathered: dict[str, dict[str, Any]]) -> None:
    port = gathered["kvm_guest"]["rdma_devices"]["mlx5_3"]["ports"]["1"]
    assert [(gid["index"], gid["type"], gid.get("ipv4"), gid["netdev"]) for gid in port["gids"]] == [
        (0, "RoCE v1", None, "ens19"),
        (1, "RoCE v2", None, "ens19"),
        (2, "RoCE v1", "10.224.3.11", "ens19"),
        (3, "RoCE v2", "10.224.3.11", "ens19"),
    ]
    assert port["active_mtu_bytes"] == 4096
    infiniband = gathered["hgx_h100"]["rdma_devices"]["mlx5_0"]["ports"]["1"]
    assert [gid["type"] for gid in infiniband["gids"]] == ["IB"]
    assert infiniband["sm_lid"] == 1
    # Only the card knows the MTU of an InfiniBand port.
    assert "active_mtu_bytes" not in infiniband


def test_the_interface_to_keep_hands_off(gathered: dict[str, dict[str, Any]]) -> None:
    assert gathered["hgx_h100"]["ssh"] == {"netdev": "eno1", "basis": "default_route", "address": "192.168.10.11"}
    assert gathered["hyperv_guest"]["ssh"]["netdev"] == "eth0"


def test_a_port_that_is_down(tmp_path: Path) -> None:
    facts = facts_of(MACHINES["hgx_h100"]().with_nic("mlx5_3", state="DOWN", rate="10 Gb/sec (4X SDR)"), tmp_path)
    port = facts["rdma_devices"]["mlx5_3"]["ports"]["1"]
    assert (port["state"], port["phys_state"], port["rate_gbps"]) == ("down", "disabled", 10.0)
    netdev = facts["netdevs"][port["netdevs"][0]]
    assert netdev["carrier"] is False
    assert "speed_mbps" not in netdev


def test_a_degraded_link(tmp_path: Path) -> None:
    facts = facts_of(MACHINES["hgx_h100"]().with_nic("mlx5_3", width=8), tmp_path)
    link = facts["pci"]["0000:40:00.0"]["link"]
    assert link == {"speed_gts": 32.0, "max_speed_gts": 32.0, "width": 8, "max_width": 16}


def test_a_bond_of_cards_names_the_bond_in_its_gid_table(tmp_path: Path) -> None:
    machine = MACHINES["kvm_guest"]().with_nic("mlx5_0", rdma="mlx5_bond_0", gid_netdev="bond0")
    port = facts_of(machine, tmp_path)["rdma_devices"]["mlx5_bond_0"]["ports"]["1"]
    assert port["netdevs"] == ["bond0", "ens16"]


def test_without_root_registers_are_absent_and_the_rest_is_there(tmp_path: Path) -> None:
    root = build(MACHINES["pcie_box"](), tmp_path / "root")
    for config in root.glob("sys/devices/**/config"):
        config.write_bytes(config.read_bytes()[:64])
    for product in root.glob("sys/devices/**/vpd"):
        product.unlink()
    facts = gather(LiveSource(str(root), environ={"PATH": ""}))
    assert "acs" not in facts["pci"]["0000:20:01.1"]
    assert "max_read_request_bytes" not in facts["pci"]["0000:41:00.0"]
    assert len(facts["gpus"]) == 2


@pytest.mark.parametrize(
    "path", ["sys/bus/pci", "sys/class/net", "sys/class/infiniband", "proc", "etc", "sys/devices/pci0000:20"]
)
def test_a_part_that_is_missing_takes_nothing_else_with_it(tmp_path: Path, path: str) -> None:
    folder = build_bundle(MACHINES["pcie_box"](), tmp_path / "gpu-01")
    shutil.rmtree(folder / "root" / path)
    facts = gather(BundleSource(str(folder)))
    assert [problem for problem in facts["problems"] if "defect" in problem["reason"]] == []
    assert facts["schema"] == 1
    if path == "sys/bus/pci":  # the class links lead to the cards all the same
        assert "0000:41:00.0" in facts["pci"]


def test_an_empty_recording_claims_nothing(tmp_path: Path) -> None:
    (tmp_path / "gpu-01").mkdir()
    facts = gather(BundleSource(str(tmp_path / "gpu-01")))
    assert facts == {"schema": 1, "host": {"hostname": "gpu-01"}, "outputs": {}, "problems": []}


def test_damaged_files_never_raise(tmp_path: Path) -> None:
    folder = build_bundle(MACHINES["pcie_box"](), tmp_path / "gpu-01")
    for index, path in enumerate(sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())):
        data = path.read_bytes()
        path.write_bytes((b"\xff\x00" + data, data[: len(data) // 2], b"", b"-\n", data * 3)[index % 5])
    facts = gather(BundleSource(str(folder)))
    assert [problem for problem in facts["problems"] if "defect" in problem["reason"]] == []
    json.dumps(facts)


def test_a_section_that_fails_is_a_problem_and_the_others_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_source: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather.pci.collect", fail)
    facts = facts_of(MACHINES["no_rdma"](), tmp_path)
    assert facts["problems"] == [
        {
            "source": "pci",
            "line": 0,
            "text": "RuntimeError: broken",
            "reason": "This section of the facts could not be gathered; please report it as a defect.",
        }
    ]
    assert facts["host"]["hostname"] == "gpu-01"


class TestLiveTools:
    TOPO = (
        "\\tGPU0\\tGPU1\\tNIC0\\tCPU Affinity\\tNUMA Affinity\\n"
        "GPU0\\t X \\tNV18\\tPIX\\t0-55\\t0\\nGPU1\\tNV18\\t X \\tSYS\\t0-55\\t0\\n"
        "\\nNIC Legend:\\n\\n  NIC0: mlx5_7\\n"
    )

    def test_distances_are_kept_for_the_plan(self, tmp_path: Path) -> None:
        source = live(tmp_path, commands={"nvidia-smi": f'[ "$1" = topo ] && printf "{self.TOPO}"'})
        topo = gather(source)["outputs"]["nvidia_smi_topo"]
        assert topo["gpu_nic"]["0"] == {"mlx5_7": "PIX"}

    def test_a_driver_that_hangs_is_an_error_of_the_driver(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(tools.ANSWERS, "nvidia_smi_xml", tools.ANSWERS["nvidia_smi_xml"]._replace(timeout=0.2))
        monkeypatch.setattr(tools, "_NVIDIA_SMI_S", 0.2)
        facts = gather(live(tmp_path, commands={"nvidia-smi": "exec sleep 30"}))
        assert facts["driver"]["smi_error_kind"] == "timed_out"
        assert "gpu_processes" not in facts
        assert any(problem["source"] == "nvidia-smi -q -x" for problem in facts["problems"])

    def test_rdma_tools_are_not_asked_where_there_is_no_rdma(self, tmp_path: Path) -> None:
        facts = gather(live(tmp_path, commands={"rdma": "echo 'Failed to open NETLINK_RDMA socket' >&2; exit 255"}))
        assert facts["rdma_devices"] == {}
        assert facts["problems"] == []

    def test_an_error_of_a_tool_that_should_work_is_a_problem(self, tmp_path: Path) -> None:
        source = live(tmp_path, commands={"ibstat": "echo 'ibpanic: [77] main: stat of IB device failed' >&2; exit 1"})
        build(MACHINES["pcie_box"](), source.root)
        facts = gather(source)
        assert [problem["source"] for problem in facts["problems"]] == ["ibstat"]
        assert len(facts["rdma_devices"]) == 4


class TestToolsAlone:
    """A recording without sysfs: the tools' answers in the same shape."""

    def test_ports_from_what_tools_said(self, tmp_path: Path) -> None:
        folder = write(
            tmp_path / "gpu-07",
            {
                "ibstat.txt": (
                    "CA 'mlx5_4'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.42.1000\n"
                    "\tHardware version: 0\n\tNode GUID: 0x0c42a103001a2b30\n\tSystem image GUID: 0x0c42a103001a2b30\n"
                    "\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tBase lid: 21\n"
                    "\t\tLMC: 0\n\t\tSM lid: 2\n\t\tCapability mask: 0xa751e848\n"
                    "\t\tPort GUID: 0x0c42a103001a2b30\n\t\tLink layer: InfiniBand\n"
                ),
                "ibdev2netdev.txt": "mlx5_4 port 1 ==> ibp90s0 (Up)\nmlx5_5 port 1 ==> ens9f0np0 (Down)\n",
                "rdma_link.txt": "link mlx5_5/1 state DOWN physical_state DISABLED netdev ens9f0np0 \n",
                "ibv_devinfo.txt": (
                    "hca_id:\tmlx5_4\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.42.1000\n"
                    "\tboard_id:\t\t\tMT_0000000999\n\tphys_port_cnt:\t\t\t1\n"
                    "\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n"
                    "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t2048 (4)\n\t\t\tlink_layer:\t\tInfiniBand\n"
                ),
            },
        )
        facts = gather(BundleSource(str(folder)))
        device = facts["rdma_devices"]["mlx5_4"]
        assert (device["hca_type"], device["firmware"], device["board_id"]) == ("MT4129", "28.42.1000", "MT_0000000999")
        port = device["ports"]["1"]
        assert (port["state"], port["rate_gbps"], port["lid"], port["sm_lid"]) == ("active", 400.0, 21, 2)
        assert (port["netdevs"], port["active_mtu_bytes"]) == (["ibp90s0"], 2048)
        down = facts["rdma_devices"]["mlx5_5"]["ports"]["1"]
        assert (down["state"], down["link_layer"], down["netdevs"]) == ("down", "Ethernet", ["ens9f0np0"])
        assert facts["netdevs"]["ens9f0np0"]["operstate"] == "down"
        assert set(facts["outputs"]) == {"ibstat", "ibdev2netdev", "rdma_link_text", "ibv_devinfo"}

    def test_sysfs_wins_over_a_tool_that_disagrees(self, tmp_path: Path) -> None:
        folder = build_bundle(MACHINES["pcie_box"](), tmp_path / "gpu-01")
        write(folder, {"ibdev2netdev.txt": "mlx5_0 port 1 ==> wrong0 (Down)\n"})
        facts = gather(BundleSource(str(folder)))
        assert facts["rdma_devices"]["mlx5_0"]["ports"]["1"]["netdevs"] == ["enp65s0f0np0"]
        assert facts["outputs"]["ibdev2netdev"]["mappings"][0]["netdev"] == "wrong0"

    def test_gpus_from_lspci_and_nvidia_smi(self, tmp_path: Path) -> None:
        folder = write(
            tmp_path / "gpu-07",
            {
                "lspci_nn.txt": (
                    "1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
                    "43:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
                    "05:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)\n"
                    "18:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [15b3:1021]\n"
                    "00:1f.0 ISA bridge [0601]: Intel Corporation Device [8086:1b81]\n"
                ),
                "nvidia-smi_query_gpu.csv": "index, pci.bus_id, name\n0, 00000000:43:00.0, NVIDIA H100 80GB HBM3\n",
            },
        )
        facts = gather(BundleSource(str(folder)))
        assert [(gpu["pci"], gpu.get("index"), gpu.get("name")) for gpu in facts["gpus"]] == [
            ("0000:1b:00.0", None, None),
            ("0000:43:00.0", 0, "NVIDIA H100 80GB HBM3"),
        ]
        assert facts["nvswitches"] == [{"pci": "0000:05:00.0"}]
        assert facts["pci"]["0000:18:00.0"]["class"] == "020700"
        assert "0000:00:1f.0" not in facts["pci"]

    def test_the_fullest_answer_of_nvidia_smi_wins(self, tmp_path: Path) -> None:
        folder = write(
            tmp_path / "gpu-07",
            {
                "nvidia-smi_query_gpu.csv": "index, pci.bus_id, name, uuid\n0, 00000000:43:00.0, stale, GPU-1\n",
                "nvidia-smi_q.txt": (
                    "==============NVSMI LOG==============\n\nAttached GPUs                             : 1\n"
                    "GPU 00000000:43:00.0\n    Product Name                          : NVIDIA H200\n"
                ),
            },
        )
        (gpu,) = gather(BundleSource(str(folder)))["gpus"]
        assert (gpu["name"], gpu["uuid"], gpu["index"]) == ("NVIDIA H200", "GPU-1", 0)

    def test_configuration_files_left_behind_are_no_driver(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "gpu-07", {"dpkg_l.txt": "rc  nvidia-dkms-550 550.54.15-1 amd64 x\n"})
        assert "driver" not in gather(BundleSource(str(folder)))

    def test_driver_and_library_that_differ(self, tmp_path: Path) -> None:
        folder = write(
            tmp_path / "gpu-07",
            {
                "nvidia-smi.txt": (
                    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 560.35\n"
                ),
                "root/proc/driver/nvidia/version": (
                    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  555.42.06  Tue Jun  4 00:51:36 UTC 2024\n"
                ),
                "dpkg_l.txt": (
                    "ii  nvidia-dkms-560 1:560.35.03-0ubuntu1 amd64 driver\n"
                    "hi  libnccl2:amd64 2.22.3-1+cuda12.6 amd64 x\n"
                    "rc  nvidia-fabricmanager-555 555.42.06-1 amd64 x\nii  bash 5.2-1 amd64 shell\n"
                ),
            },
        )
        facts = gather(BundleSource(str(folder)))
        assert facts["driver"] == {
            "smi_error": "Failed to initialize NVML: Driver/library version mismatch",
            "smi_error_kind": "driver_library_mismatch",
            "loaded": {"version": "555.42.06", "flavour": "proprietary"},
            "library_version": "560.35",
            "installed_package": "nvidia-dkms-560",
            "installed_version": "560.35.03",
        }
        assert facts["packages"]["libnccl2"]["held"] is True
        assert facts["packages"]["nvidia-fabricmanager-555"]["status"] == "config-files"
        assert "bash" not in facts["packages"]
        # Only its configuration files are left: it is not installed.
        assert "fabric_manager" not in facts
        assert "gpu_processes" not in facts

    def test_texts_without_facts_of_their_own_are_kept(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "gpu-07", {"apt_update.txt": "E: no\n", "modprobe_gdrdrv.txt": "modprobe: ERROR\n"})
        facts = gather(BundleSource(str(folder)))
        assert facts["recorded"] == {"apt_update": "E: no\n", "modprobe_gdrdrv": "modprobe: ERROR\n"}

    def test_qos_of_one_unnamed_port(self, tmp_path: Path) -> None:
        text = (
            "DCBX mode: OS controlled\nPriority trust state: dscp\nPFC configuration:\n"
            "\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   0   1   0   0   0   \n"
        )
        folder = write(tmp_path / "gpu-07", {"mlnx_qos.txt": text})
        qos = gather(BundleSource(str(folder)))["qos"]
        assert (list(qos), qos["*"]["trust"], qos["*"]["pfc"].index(True)) == (["*"], "dscp", 4)
        write(folder, {"rdma_link.txt": "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens9 \n"})
        assert list(gather(BundleSource(str(folder)))["qos"]) == ["ens9"]
        two = "link mlx5_0/1 state ACTIVE netdev ens9 \nlink mlx5_1/1 state ACTIVE netdev ens8 \n"
        write(folder, {"rdma_link.txt": two})
        assert list(gather(BundleSource(str(folder)))["qos"]) == ["*"]
        write(folder, {"mlnx_qos_ens9.txt": text.replace("dscp\n", "pcp\n")})
        assert gather(BundleSource(str(folder)))["qos"]["ens9"]["trust"] == "pcp"
