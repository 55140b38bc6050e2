# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names by PCI path: two files for the next boot, today's names until then, and nothing that could cut a host off."""

from __future__ import annotations

import re

import boxes
import pytest
from boxes import plan_one
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.stable_names import (
    LINK_FILE,
    MARK,
    RULES_FILE,
    is_by_path,
    path_name,
)

BUSES = [f"0000:{nic:02x}:00.0" for nic, _ in boxes.H100_BUSES]


def contents(plan):
    return {file["path"]: file.get("content") for file in plan["stable_names"]["files"]}


def named(plan):
    """Function and name of each rule for an RDMA device."""
    return dict(re.findall(r'KERNELS=="(\S+)", PROGRAM="rdma_rename %k NAME_FIXED (\w+)"', contents(plan)[RULES_FILE]))


def test_nothing_without_the_intent():
    assert plan_one(boxes.hgx_h100())["stable_names"] == {"run": False, "files": [], "pending": [], "left_out": {}}


def test_rails_and_no_other_device_get_names():
    plan = plan_one(boxes.hgx_h100(), stable_names="by_path")
    text = contents(plan)[LINK_FILE]
    assert re.search(r"^Path=(.*)$", text, re.M)[1].split() == [f"pci-{bdf}" for bdf in BUSES]
    assert "\nNamePolicy=path\n" in text and "OriginalName" not in text and text.startswith(MARK)
    assert named(plan) == {bdf: f"rocep{int(bdf[5:7], 16)}s0" for bdf in BUSES}
    lines = contents(plan)[RULES_FILE].splitlines()
    assert lines[-2:] == ['PROGRAM="rdma_rename %k NAME_FALLBACK"', 'LABEL="named"']
    assert all(line.endswith('GOTO="named"') for line in lines[2:-2]), "a device that has its name keeps it"


def test_the_module_of_the_links_does_not_take_the_file_for_its_own():
    assert "gpu-fabric-" not in LINK_FILE


def test_the_plan_goes_by_the_names_of_now_and_says_which_change():
    plan = plan_one(boxes.hgx_h100(), stable_names="by_path")
    plain = plan_one(boxes.hgx_h100())
    for key in ("rails", "links", "nic_ports", "nccl_env", "sysctl", "firewall"):
        assert plan[key] == plain[key]
    assert {"pci": "0000:18:00.0", "now": "mlx5_15", "next": "rocep24s0"} in plan["stable_names"]["pending"]
    [note] = [note for note in plan["notes"] if note["id"] == "RF-PLAN-NAMES"]
    assert note["message"].startswith("16 names change at the next boot: enmlx5_15 to enp24s0, mlx5_15 to rocep24s0,")
    assert "run site.yml on it before jobs start" in note["remedy"]


def test_nothing_is_pending_once_the_names_have_changed():
    box = boxes.hgx_h100()
    devices, netdevs = box.facts["rdma_devices"], box.facts["netdevs"]
    for bdf, name in zip(BUSES, boxes.H100_NAMES):
        bus = int(bdf[5:7], 16)
        devices[f"rocep{bus}s0"] = device = devices.pop(name)
        netdevs[f"enp{bus}s0np0"] = netdevs.pop(f"en{name}")
        device["ports"]["1"]["netdevs"] = [f"enp{bus}s0np0"]
    plan = plan_one(box, stable_names="by_path")
    assert plan["stable_names"]["pending"] == [] and "RF-PLAN-NAMES" not in boxes.notes(plan)
    assert contents(plan) == contents(plan_one(boxes.hgx_h100(), stable_names="by_path")), "or a run would change them"
    assert plan["rails"][0]["hca"] == "rocep24s0"


@pytest.mark.parametrize("intent", [{}, {"stable_names": "by_path", "state": "absent"}])
def test_what_is_not_wanted_any_more_goes_and_what_is_not_ours_stays(intent):
    box = boxes.hgx_h100()
    box.facts["files"] = {LINK_FILE: f"{MARK}\n", RULES_FILE: "# ours by hand\n"}
    assert plan_one(box, **intent)["stable_names"]["files"] == [{"path": LINK_FILE, "original": True}]


def test_rules_of_somebody_else_decide_alone():
    box = boxes.hgx_h100()
    box.facts["files"] = {RULES_FILE: 'ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="rdma_rename %k NAME_KERNEL"\n'}
    plan = plan_one(box, stable_names="by_path")
    assert list(contents(plan)) == [LINK_FILE] and "not this collection's" in plan["stable_names"]["left_out"]["rdma"]
    assert all(pair["next"].startswith("enp") for pair in plan["stable_names"]["pending"])


def test_infiniband_rails():
    plan = plan_one(boxes.hgx_h100("InfiniBand"), stable_names="by_path")
    assert named(plan)["0000:18:00.0"] == "ibp24s0"


def test_the_interface_of_this_run_keeps_its_name():
    box = boxes.hgx_h100()
    box.facts["ssh"] = {"address": "10.0.0.11", "netdev": "enmlx5_15", "basis": "ssh_connection"}
    plan = plan_one(
        box, stable_names="by_path", management_interface="enmlx5_15", compute_devices=list(boxes.H100_NAMES)
    )
    assert plan["stable_names"]["left_out"] == {"mlx5_15": "enmlx5_15 carries the connection of this run"}
    assert "0000:18:00.0" not in named(plan) and "pci-0000:18:00.0" not in contents(plan)[LINK_FILE]


def test_a_guest_is_left_alone():
    plan = plan_one(boxes.kvm(), stable_names="by_path")
    assert not plan["stable_names"]["run"] and "hypervisor" in plan["stable_names"]["left_out"]["names"]


def test_both_functions_of_a_bonded_card():
    box = boxes.hgx_h100()
    box.function("0000:18:00.1", "15b3", "1021", "0200", (), 0)
    for port in (0, 1):
        box.netdev(f"member{port}", f"0000:18:00.{port}", master="bond7", port_name=f"p{port}")
    box.netdev("bond7", kind="bond", bond={"members": ["member0", "member1"], "mode": "802.3ad"})
    box.facts["rdma_devices"]["mlx5_15"]["ports"]["1"]["netdevs"] = ["bond7"]
    plan = plan_one(box, stable_names="by_path", compute_devices=list(boxes.H100_NAMES))
    assert "Path=pci-0000:18:00.0 pci-0000:18:00.1 " in contents(plan)[LINK_FILE]
    assert named(plan)["0000:18:00.0"] == "rocep24s0f0" and "0000:18:00.1" not in named(plan)
    following = {pair["now"]: pair["next"] for pair in plan["stable_names"]["pending"]}
    assert following["member0"] == "enp24s0f0np0" and following["member1"] == "enp24s0f1np1"


ADDRESSES = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))


@given(st.sets(ADDRESSES, min_size=2, max_size=20), st.sampled_from(["en", "ib", "roce"]))
def test_names_are_as_different_as_paths(addresses, prefix):
    names = {path_name(prefix, "{:04x}:{:02x}:{:02x}.{:x}".format(*address), True) for address in addresses}
    assert len(names) == len(addresses) and "" not in names


@given(ADDRESSES, st.booleans(), st.sampled_from(["", "np0", "np1", "npf0vf2", "d1"]))
def test_an_interface_that_has_its_name_is_known(address, several, end):
    domain, bus, slot, function = address
    expected = path_name("en", f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}", several)
    assert is_by_path(expected + end, expected)
    assert not is_by_path(f"{expected}9x", expected) and not is_by_path("ens1f0np0", expected)
    other = path_name("en", f"{domain:04x}:{(bus + 1) % 256:02x}:{slot:02x}.{function:x}", several)
    assert not is_by_path(other + end, expected)


def test_virtual_functions_change_no_name_and_get_none():
    box = boxes.hgx_h100()
    box.function("0000:18:00.2", "15b3", "101e", "020000", (), 0, physfn="0000:18:00.0")
    plan = plan_one(box, stable_names="by_path")
    assert named(plan)["0000:18:00.0"] == "rocep24s0"
    box = boxes.hgx_h100()
    box.facts["pci"]["0000:18:00.0"]["physfn"] = "0000:18:00.1"
    plan = plan_one(box, stable_names="by_path", compute_devices=list(boxes.H100_NAMES))
    assert "0000:18:00.0" not in named(plan) and "0000:18:00.0" not in contents(plan)[LINK_FILE]
    assert "virtual function" in plan["stable_names"]["left_out"]["mlx5_15"]


def test_a_name_that_is_too_long_for_an_interface_is_left_out():
    box = boxes.Box().management()
    for number, bdf in enumerate(("0010:81:00.0", "0010:81:00.1", "0010:03:00.0")):
        box.nic(f"mlx5_{number}", bdf)
        box.facts["netdevs"][f"enmlx5_{number}"]["port_name"] = "p0" if number != 1 else ""
    plan = plan_one(box, stable_names="by_path", compute_devices=["mlx5_0", "mlx5_1", "mlx5_2"])["stable_names"]
    text = contents({"stable_names": plan})[LINK_FILE]
    assert "Path=pci-0010:03:00.0 pci-0010:81:00.1\n" in text
    assert plan["left_out"] == {"enmlx5_0": "enP16p129s0f0np0 has 16 characters, and an interface's name 15 at most"}
