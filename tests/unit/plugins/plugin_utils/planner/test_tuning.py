# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs, memory, interrupts, PCIe, command line: nothing unless asked for, each value with its reason."""

from __future__ import annotations

import boxes
import pytest
from boxes import plan_one

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cmdline import DROP_IN
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import program
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import tuning

REDIRECTING = {"capable": True, "control": ["SrcValid", "ReqRedir"]}


def settings(plan, netdev="enmlx5_15"):
    return next(port["settings"] for port in plan["nic_ports"] if port["netdev"] == netdev)


def with_bridges(box=None):
    """The bridges above every device; those of the first switch and a lonely one can do ACS."""
    box = box or boxes.hgx_h100()
    pci = box.facts["pci"]
    for data in list(pci.values()):
        for bridge in data["upstream"]:
            pci.setdefault(bridge, {"vendor": "1000", "class": "060400", "upstream": [], "acs": REDIRECTING})
    pci["0000:f0:00.0"] = {"vendor": "1000", "class": "060400", "upstream": [], "acs": REDIRECTING}
    return box


def test_nothing_is_tuned_by_itself_but_read_requests():
    plan = plan_one(with_bridges())
    assert plan["tuning"]["host"] == {} and plan["tuning"]["cmdline"] == {"run": False, "arguments": []}
    assert set(plan["tuning"]["reasons"]) == {"max_read_request"} and plan["tuning"]["left_out"] == {}
    assert settings(plan)["max_read_request_bytes"] == 4096 and "irq_affinity" not in settings(plan)


def test_infiniband_rails_get_their_read_requests_too():
    ports = plan_one(boxes.hgx_h100("InfiniBand"))["nic_ports"]
    assert len(ports) == 8 and {tuple(port["settings"]) for port in ports} == {("max_read_request_bytes",)}
    assert plan_one(boxes.hgx_h100("InfiniBand"), max_read_request="untouched")["nic_ports"] == []
    # A host without ib_ipoib has no interface for them yet; the plan is the same before and after it is loaded.
    bare = boxes.hgx_h100("InfiniBand")
    for name, netdev in list(bare.facts["netdevs"].items()):
        if netdev["kind"] == "ipoib":
            del bare.facts["netdevs"][name]
    for device in bare.facts["rdma_devices"].values():
        for port in device["ports"].values():
            port["netdevs"] = [name for name in port.get("netdevs", []) if name in bare.facts["netdevs"]]
    assert plan_one(bare)["nic_ports"] == ports


@pytest.mark.parametrize(("given", "wanted"), [("untouched", None), ("1024", 1024), ("auto", 4096)])
def test_read_requests_as_told(given, wanted):
    assert settings(plan_one(boxes.hgx_h100(), max_read_request=given)).get("max_read_request_bytes") == wanted


@pytest.mark.parametrize("box", [boxes.kvm, boxes.hyperv, boxes.rxe_guest])
def test_guest_has_no_registers_of_its_own(box):
    plan = plan_one(box(), max_read_request="4096", acs="clear", iommu="passthrough", allow_software_rdma=True)
    assert not any("max_read_request_bytes" in port["settings"] for port in plan["nic_ports"])
    assert "acs_control" not in plan["tuning"]["host"] and plan["tuning"]["cmdline"]["arguments"] == []
    assert {"acs", "iommu"} <= set(plan["tuning"]["left_out"])


def test_profile_gives_all_of_it_and_each_option_can_say_otherwise():
    box = boxes.hgx_h100()
    box.facts["host"]["numa_nodes"] = 2
    for data in box.facts["pci"].values():
        data["local_cpulist"] = "0-55,112-167" if data["numa_node"] == 0 else "56-111,168-223"
    plan = plan_one(box, tuning_profile="training", transparent_hugepages="madvise")
    assert plan["tuning"]["host"] == {"cpu_governor": "performance", "transparent_hugepages": "madvise"}
    assert plan["tuning"]["cmdline"] == {"run": True, "arguments": ["iommu=pt"]}
    assert settings(plan)["irq_affinity"] == "0-55,112-167"
    assert settings(plan, "enmlx5_4")["irq_affinity"] == "56-111,168-223"
    assert plan["tuning"]["reasons"]["transparent_hugepages"] == "gpu_fabric_transparent_hugepages"
    assert set(plan["tuning"]["reasons"]) == {
        "cpu_governor", "transparent_hugepages", "irq_affinity", "iommu", "max_read_request",
    }  # fmt: skip
    untouched = dict.fromkeys(("cpu_governor", "transparent_hugepages", "irq_affinity", "iommu"), "untouched")
    bare = plan_one(box, tuning_profile="training", **untouched)
    assert bare["tuning"]["host"] == {} and bare["tuning"]["cmdline"]["arguments"] == []


def test_interrupts_stay_where_one_node_or_no_node_is_known():
    assert "is not known" in plan_one(boxes.hgx_h100(), irq_affinity="numa")["tuning"]["left_out"]["irq_affinity"]
    box = boxes.hgx_h100()
    box.facts["host"]["numa_nodes"] = 1
    assert "one NUMA node" in plan_one(box, irq_affinity="numa")["tuning"]["left_out"]["irq_affinity"]


def test_acs_is_cleared_between_gpus_and_rails_only():
    box = with_bridges()
    plan = plan_one(box, acs="clear")
    cleared = plan["tuning"]["host"]["acs_control"]
    wanted = {bridge for rail in plan["rails"] for bridge in box.facts["pci"][rail["pci"]]["upstream"]}
    wanted |= {bridge for gpu in plan["gpus"] for bridge in box.facts["pci"][gpu["pci"]]["upstream"]}
    assert set(cleared) == wanted and set(cleared.values()) == {0}
    assert "0000:f0:00.0" not in cleared and "0000:26:01.0" not in cleared, "storage's bridge is nobody's path"
    assert plan["tuning"]["reasons"]["acs"]


def test_acs_stays_on_bridges_that_have_none_and_where_devices_are_passed_through():
    assert "no bridge with ACS" in plan_one(boxes.hgx_h100(), acs="clear")["tuning"]["left_out"]["acs"]
    box = with_bridges()
    box.facts["pci"]["0000:1b:00.0"]["driver"] = "vfio-pci"
    plan = plan_one(box, acs="clear")
    assert "0000:1b:00.0 is given to virtual machines" in plan["tuning"]["left_out"]["acs"]
    assert "acs_control" not in plan["tuning"]["host"]


def test_platforms_with_masks_of_their_own_are_left_to_rdma_topo():
    grace = boxes.gb200()
    grace.facts["host"]["architecture"] = "aarch64"
    direct = with_bridges()
    direct.function("0000:19:00.0", *tuning.DATA_DIRECT, "0200", (), 0)
    for box in (with_bridges(grace), direct):
        plan = plan_one(box, acs="clear")
        assert "rdma_topo" in plan["tuning"]["left_out"]["acs"] and "acs_control" not in plan["tuning"]["host"]


def test_container_leaves_its_kernel_alone():
    box = boxes.hgx_h100()
    box.facts["host"]["container"] = True
    plan = plan_one(box, tuning_profile="training", kernel_cmdline=["pci=noaer"])["tuning"]
    assert plan["host"] == {} and plan["cmdline"] == {"run": False, "arguments": []}
    assert set(plan["left_out"]) == {"cpu_governor", "transparent_hugepages", "irq_affinity", "kernel_cmdline"}
    assert set(plan["reasons"]) == {"max_read_request"}


def test_what_was_asked_for_by_name_and_cannot_be_is_told():
    box = boxes.hgx_h100()
    box.facts["host"]["container"] = True
    plan = plan_one(box, tuning_profile="training", cpu_governor="performance", kernel_cmdline=["pci=noaer", "nosmt"])
    told = [note["message"] for note in plan["notes"] if note["id"] == "RF-PLAN-TUNING"]
    assert [message.partition(":")[0] for message in told] == [
        "gpu_fabric_cpu_governor is performance and is not set",
        "gpu_fabric_kernel_cmdline is pci=noaer nosmt and is not set",
    ], "what only the profile wants stands in the report"
    one_node = boxes.hgx_h100()
    one_node.facts["host"]["numa_nodes"] = 1
    plan = plan_one(one_node, irq_affinity="numa", acs="clear")
    assert set(plan["tuning"]["left_out"]) == {"irq_affinity", "acs"}
    assert [note for note in plan["notes"] if note["id"] == "RF-PLAN-TUNING"] == [], "there is nothing to do"


def test_command_line_is_looked_at_again_where_it_was_written_before():
    box = boxes.hgx_h100()
    assert tuning.CMDLINE_FILE == DROP_IN
    box.facts["files"] = {DROP_IN: 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"\n'}
    assert plan_one(box)["tuning"]["cmdline"] == {"run": True, "arguments": []}
    given = plan_one(box, iommu="passthrough", kernel_cmdline=["iommu=pt", "pci=realloc=off"])
    assert given["tuning"]["cmdline"]["arguments"] == ["iommu=pt", "pci=realloc=off"]


def test_passthrough_is_idle_where_the_iommu_is_off():
    box = boxes.hgx_h100()
    box.facts["host"]["cmdline"] = ["quiet", "intel_iommu=off"]
    plan = plan_one(box, iommu="passthrough")["tuning"]
    assert plan["cmdline"]["arguments"] == [] and "intel_iommu=off" in plan["left_out"]["iommu"]


def test_absent_wants_nothing():
    plan = plan_one(with_bridges(), tuning_profile="training", acs="clear", state="absent")["tuning"]
    assert plan["host"] == {} and plan["cmdline"]["arguments"] == []


def test_whatever_is_planned_is_known_to_the_program_on_the_host():
    box = with_bridges()
    box.facts["host"]["numa_nodes"] = 2
    for data in box.facts["pci"].values():
        data["local_cpulist"] = "0-55"
    plan = plan_one(
        box,
        tuning_profile="training",
        acs="clear",
        cable_length_m=30,
        roce_ets={0: 50, 3: 50},
        roce_buffer_size=[20016, 200000, 0, 0, 0, 0, 0, 0],
        roce_priority_to_buffer=[0, 0, 0, 1, 0, 0, 0, 0],
        roce_accelerations={"adp_retrans": False},
        rings={"rx": 8192},
        channels=16,
        link_speed_gbps=200,
        link_fec="rs",
    )
    assert set(plan["tuning"]["host"]) == program.HOST_KNOWN
    assert set(settings(plan)) == program.KNOWN
