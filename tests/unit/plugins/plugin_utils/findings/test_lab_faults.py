# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each fault the lab can inject gives its finding, names what is wrong, and gives no other finding."""

from __future__ import annotations

import pytest

VICTIM = "gpu-03"


def port_down(rack):
    rack.port(VICTIM, "mlx5_4").update(state="down", phys_state="polling", rate_gbps=10.0)
    return "RF-PORT-DOWN", ["mlx5_4", "rail 4", "down", "active wanted"]


def wrong_rate(rack):
    rack.port(VICTIM, "mlx5_2")["rate_gbps"] = 200.0
    return "RF-PORT-RATE", ["mlx5_2", "200 Gb/s", "400 Gb/s wanted"]


def pcie_width_of_nic(rack):
    facts = rack.facts[VICTIM]
    facts["pci"][facts["rdma_devices"]["mlx5_1"]["pci"]]["link"]["width"] = 8
    return "RF-PCIE-WIDTH", ["mlx5_1", "x8", "x16 wanted"]


def pcie_width_of_gpu(rack):
    rack.facts[VICTIM]["pci"]["0000:9d:00.0"]["link"]["width"] = 4
    return "RF-PCIE-WIDTH", ["GPU 4", "9d:00.0", "x4", "x16 wanted"]


def pcie_width_of_switch(rack):
    rack.facts[VICTIM]["pci"]["0000:54:10.0"]["link"]["width"] = 8
    return "RF-PCIE-WIDTH", ["PCIe switch above", "GPU 2", "mlx5_2", "x8", "x16 wanted"]


def gpu_missing_from_driver(rack):
    gpu = rack.facts[VICTIM]["gpus"][5]
    del gpu["index"], gpu["uuid"]
    return "RF-GPU-MISSING", ["7", "8", "c3:00.0"]


def gpu_missing_from_pci(rack):
    facts = rack.facts[VICTIM]
    del facts["pci"][facts["gpus"].pop(6)["pci"]]
    return "RF-GPU-COUNT", ["7 GPUs", "8 wanted", "d1:00.0"]


def wrong_mtu(rack):
    for number in range(8):
        rack.facts[VICTIM]["netdevs"][f"rail{number}"]["mtu"] = 1500
    return "RF-ROCE-MTU", ["rail0", "rail7", "MTU 1500", "9000 wanted"]


def pfc_off(rack):
    for number in range(8):
        rack.facts[VICTIM]["qos"][f"rail{number}"]["pfc"] = [False] * 8
    return "RF-ROCE-PFC", ["rail0", "off for all priorities", "priority 3 wanted"]


def stale_fabric_manager(rack):
    rack.facts[VICTIM]["fabric_manager"].update(installed_version="570.133.20-1", active=False, state="failed")
    return "RF-FM-VERSION", ["nvidia-fabricmanager", "570.133.20", "570.158.01 wanted"]


def peermem_not_loaded(rack):
    for plan in rack.plan["hosts"].values():
        plan["modules"]["gpudirect"] = "nvidia_peermem"
    rack.facts[VICTIM]["modules"]["nvidia_peermem"]["loaded"] = False
    return "RF-GDR-PEERMEM", ["nvidia_peermem", "not loaded", "loaded wanted"]


def firmware_drift(rack):
    rack.facts[VICTIM]["rdma_devices"]["mlx5_6"]["firmware"] = "28.42.1000"
    return "RF-HCA-FIRMWARE-DRIFT", ["mlx5_6", "28.42.1000", "28.43.2566 wanted"]


FAULTS = [
    port_down,
    wrong_rate,
    pcie_width_of_nic,
    pcie_width_of_gpu,
    pcie_width_of_switch,
    gpu_missing_from_driver,
    gpu_missing_from_pci,
    wrong_mtu,
    pfc_off,
    stale_fabric_manager,
    peermem_not_loaded,
    firmware_drift,
]


@pytest.mark.parametrize("inject", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_gives_its_finding_and_no_other(rack, inject):
    wanted, tokens = inject(rack)
    finding = rack.only()
    assert finding["id"] == wanted
    assert finding["host"] == VICTIM
    assert finding["device"] and finding["evidence"] and finding["remedy"]
    for token in [VICTIM, *tokens]:
        assert token in finding["message"], token
    for other in ("gpu-01", "gpu-02", "gpu-04"):
        assert other not in finding["message"]


@pytest.mark.parametrize("inject", FAULTS, ids=lambda fault: fault.__name__)
def test_only_hard_faults_stop(rack, inject):
    wanted, _tokens = inject(rack)
    assert rack.only()["severity"] == ("warn" if wanted == "RF-HCA-FIRMWARE-DRIFT" else "fail")


@pytest.mark.parametrize("inject", [port_down, pcie_width_of_nic, gpu_missing_from_pci, pcie_width_of_switch])
def test_hardware_faults_are_found_on_a_rack_that_was_never_configured(fresh_rack, inject):
    assert fresh_rack.findings() == []
    wanted, _tokens = inject(fresh_rack)
    assert fresh_rack.only()["id"] == wanted


def test_a_healthy_rack_gives_nothing(rack):
    assert rack.findings(ignore_info=False) == []


def test_a_fresh_rack_gives_nothing(fresh_rack):
    """MTU 1500, PFC off and no peermem everywhere is "not configured yet", not a fault."""
    assert fresh_rack.findings(ignore_info=False) == []


def test_a_fresh_node_in_a_configured_rack_is_no_drift(rack):
    """A node that was powered off during the run comes back bare; the next run configures it."""
    facts = rack.facts[VICTIM]
    facts["files"] = {}
    facts["modules"]["nvidia_peermem"]["loaded"] = False
    for number in range(8):
        facts["netdevs"][f"rail{number}"]["mtu"] = 1500
        facts["qos"][f"rail{number}"]["pfc"] = [False] * 8
    assert [f for f in rack.findings() if f["severity"] == "fail"] == []


def test_a_first_configured_node_is_not_the_odd_one_out(fresh_rack):
    """The canary of a first run has the plan's values while the rest of the rack is still bare."""
    facts = fresh_rack.facts["gpu-01"]
    facts["files"]["/etc/sysctl.d/90-gpu-fabric.conf"] = ""
    for number in range(8):
        facts["netdevs"][f"rail{number}"]["mtu"] = 9000
        facts["qos"][f"rail{number}"]["pfc"] = [n == 3 for n in range(8)]
    assert fresh_rack.findings() == []


def test_changed_intent_is_no_drift(rack):
    """After gpu_fabric_mtu went from 9000 to 4200 the first batch has the new value, the rest the old one."""
    for name, facts in rack.facts.items():
        for rail in rack.plan["hosts"][name]["rails"]:
            rail["mtu"] = 4200
        done = name in ("gpu-01", "gpu-02", "gpu-03")
        for number in range(8):
            path = f"/etc/systemd/network/60-gpu-fabric-rail{number}.network"
            facts["files"][path] = f"[Link]\nMTUBytes={4200 if done else 9000}\n"
            facts["netdevs"][f"rail{number}"]["mtu"] = 4200 if done else 9000
    assert rack.findings() == []


def test_what_the_host_has_persisted_is_the_measure(lone_rack):
    facts = lone_rack.facts["gpu-01"]
    facts["files"]["/etc/systemd/network/60-gpu-fabric-rail1.network"] = "[Link]\nMTUBytes=9000\n"
    facts["netdevs"]["rail1"]["mtu"] = 4200
    finding = lone_rack.only()
    assert finding["id"] == "RF-ROCE-MTU"
    assert "MTU 4200, 9000 wanted (as 60-gpu-fabric-rail1.network of the host says)" in finding["message"]


def test_file_of_another_interface_is_not_taken(lone_rack):
    facts = lone_rack.facts["gpu-01"]
    facts["files"]["/etc/systemd/network/60-gpu-fabric-xrail1.network"] = "[Link]\nMTUBytes=1500\n"
    assert lone_rack.findings() == []


def test_port_switched_off_on_every_host_before_the_first_run(fresh_rack):
    for name in fresh_rack.facts:
        for number in range(8):
            fresh_rack.port(name, f"mlx5_{number}").update(state="down", phys_state="disabled")
    assert fresh_rack.findings() == []


def test_storage_port_without_cable_everywhere_is_no_finding(rack):
    for name in rack.facts:
        rack.port(name, "mlx5_9").update(state="down", phys_state="polling")
    assert rack.findings() == []


def test_storage_port_down_on_one_host_warns(rack):
    rack.port(VICTIM, "mlx5_9").update(state="down", phys_state="polling")
    finding = rack.only()
    assert (finding["id"], finding["severity"], finding["device"]) == ("RF-PORT-DOWN", "warn", "mlx5_9")


def test_slow_port_that_lost_its_role_is_still_a_rail(rack):
    """A planner that takes only the fastest ports must not make a slow rail disappear."""
    rack.port(VICTIM, "mlx5_2")["rate_gbps"] = 100.0
    plan = rack.plan["hosts"][VICTIM]
    plan["rails"] = [rail for rail in plan["rails"] if rail["hca"] != "mlx5_2"]
    next(d for d in plan["devices"] if d["name"] == "mlx5_2")["role"] = "unused"
    finding = rack.only()
    assert (finding["id"], finding["severity"], finding["host"]) == ("RF-PORT-RATE", "fail", VICTIM)


def test_infiniband_port_without_subnet_manager(rack):
    for name in rack.facts:
        rack.port(name, "mlx5_4").update(link_layer="InfiniBand", lid=7, sm_lid=1)
    rack.port(VICTIM, "mlx5_4").update(state="initializing", lid=65535, sm_lid=0)
    finding = rack.only()
    assert finding["id"] == "RF-PORT-NO-SM"
    assert "SM lid 0" in finding["message"]


def test_dmabuf_makes_a_missing_peermem_a_warning(rack):
    rack.facts[VICTIM]["modules"]["nvidia_peermem"]["loaded"] = False
    finding = rack.only()
    assert (finding["id"], finding["severity"]) == ("RF-GDR-PEERMEM", "warn")


def test_no_gpu_and_no_adapter(lone_rack):
    facts = lone_rack.facts["gpu-01"]
    facts.update(gpus=[], rdma_devices={}, nvswitches=[], pci={"0000:00:1f.0": {"vendor": "8086", "class": "060100"}})
    lone_rack.plan = {}
    assert {f["id"] for f in lone_rack.findings() if f["severity"] == "fail"} == {"RF-GPU-NONE", "RF-HCA-NONE"}
    lone_rack.intents["gpu-01"] = {"gpu_fabric_require_hardware": False}
    assert lone_rack.findings() == []


def test_expected_gpus_is_insisted_on(lone_rack):
    lone_rack.intents["gpu-01"] = {"gpu_fabric_expected_gpus": 4}
    finding = lone_rack.only()
    assert finding["id"] == "RF-GPU-COUNT"
    assert "8 GPUs on PCI, 4 wanted (gpu_fabric_expected_gpus)" in finding["message"]


def test_card_in_a_smaller_slot_is_not_degraded(rack):
    """x8 is all the slot offers: no width finding, but the slot cannot carry 400 Gb/s."""
    facts = rack.facts[VICTIM]
    nic = facts["rdma_devices"]["mlx5_1"]["pci"]
    facts["pci"][nic]["link"]["width"] = 8
    facts["pci"][facts["pci"][nic]["upstream"][-1]]["link"].update(width=8, max_width=8)
    assert rack.only()["id"] == "RF-PCIE-BANDWIDTH"


def test_adapter_without_rdma_driver(lone_rack):
    facts = lone_rack.facts["gpu-01"]
    facts["rdma_devices"] = {}
    facts["modules"]["mlx5_ib"]["loaded"] = False
    found = [f for f in lone_rack.findings() if f["severity"] == "fail"]
    assert [f["id"] for f in found] == ["RF-HCA-NO-DEVICE"]
    assert "mlx5_ib is not loaded" in found[0]["message"]
