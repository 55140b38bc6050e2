# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy, configured rack as facts and plan, small enough to be written down, for rules to be tried on."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate

GPU_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
DRIVER = "570.158.01"


def host_facts(configured: bool = True) -> dict:
    """One HGX-like node: eight GPUs, eight 400G rails behind one switch each, two storage ports."""
    pci, gpus, devices, netdevs, qos = {}, [], {}, {}, {}
    for number, bus in enumerate(GPU_BUSES):
        root, up = f"0000:{bus[0]}0:01.0", f"0000:{bus[0]}4:10.0"
        nic, gpu = f"0000:{int(bus, 16) - 3:02x}:00.0", f"0000:{bus}:00.0"
        upstream = [root, up, f"0000:{bus[0]}5:0{number}.0"]
        gen5 = {"speed_gts": 32.0, "width": 16, "max_speed_gts": 32.0, "max_width": 16}
        for bridge in upstream:
            pci[bridge] = {"vendor": "1000", "device": "c030", "class": "060400", "link": dict(gen5)}
        pci[gpu] = {"vendor": "10de", "device": "2330", "class": "030200", "upstream": upstream, "link": dict(gen5)}
        pci[nic] = {"vendor": "15b3", "device": "1021", "class": "020000", "upstream": upstream, "link": dict(gen5)}
        gpus.append({"pci": gpu, "index": number, "uuid": f"GPU-{number}"})
        devices[f"mlx5_{number}"] = device(nic, f"rail{number}", 400.0)
        netdevs[f"rail{number}"] = {"pci": nic, "mtu": 9000 if configured else 1500, "kind": "physical"}
        qos[f"rail{number}"] = {"backend": "mlnx_qos", "pfc": [configured and n == 3 for n in range(8)]}
    for number in (8, 9):
        bdf = f"0000:a0:00.{number - 8}"
        pci[bdf] = {"vendor": "15b3", "device": "101d", "class": "020000"}
        devices[f"mlx5_{number}"] = device(bdf, f"stor{number}", 200.0, board="MT_0000000359", hca="MT4125")
    return {
        "schema": 1,
        "host": {"virtualization": "none", "kernel": "6.8.0-60-generic"},
        "pci": pci,
        "gpus": gpus,
        "nvswitches": [{"pci": "0000:07:00.0"}],
        "rdma_devices": devices,
        "netdevs": netdevs,
        "qos": qos,
        "driver": {"loaded": {"version": DRIVER, "flavour": "open"}},
        "fabric_manager": {"installed_version": DRIVER, "active": True, "state": "active", "log": []},
        "modules": {
            "nvidia": {"loaded": True},
            "nvidia_peermem": {"loaded": configured},
            "mlx5_ib": {"loaded": True},
        },
        "files": {"/etc/sysctl.d/90-gpu-fabric.conf": "vm.zone_reclaim_mode = 0\n"} if configured else {},
    }


def device(pci: str, netdev: str, rate: float, board: str = "MT_0000000838", hca: str = "MT4129") -> dict:
    return {
        "pci": pci,
        "hca_type": hca,
        "board_id": board,
        "firmware": "28.43.2566",
        "ports": {
            "1": {
                "state": "active",
                "phys_state": "linkup",
                "rate_gbps": rate,
                "link_layer": "Ethernet",
                "netdevs": [netdev],
            }
        },
    }


def host_plan(gpudirect: str = "dmabuf") -> dict:
    pfc = [n == 3 for n in range(8)]
    return {
        "devices": [{"name": f"mlx5_{n}", "role": "compute" if n < 8 else "storage"} for n in range(10)],
        "rails": [
            {"rail": n, "hca": f"mlx5_{n}", "port": 1, "netdev": f"rail{n}", "mtu": 9000, "rate_gbps": 400.0}
            for n in range(8)
        ],
        "modules": {"gpudirect": gpudirect},
        "qos": {f"rail{n}": {"pfc": pfc} for n in range(8)},
    }


class Rack:
    """Facts, plan and what the rules say about them; a test breaks one value and asks again."""

    def __init__(self, names: list[str], configured: bool = True) -> None:
        self.facts = {name: host_facts(configured) for name in names}
        self.plan = {"hosts": {name: host_plan() for name in names}}
        self.intents: dict = {name: {} for name in names}
        self.outputs: dict | None = None

    def port(self, host: str, hca: str) -> dict:
        return self.facts[host]["rdma_devices"][hca]["ports"]["1"]

    def findings(self, ignore_info: bool = True) -> list[dict]:
        before = copy.deepcopy((self.facts, self.plan, self.intents, self.outputs))
        found = evaluate(self.facts, self.plan, self.intents, self.outputs)
        assert before == (self.facts, self.plan, self.intents, self.outputs), "a rule changed its input"
        return [finding for finding in found if not (ignore_info and finding["severity"] == "info")]

    def only(self) -> dict:
        """The one finding there is."""
        found = self.findings()
        assert len(found) == 1, [f"{f['id']} {f['message']}" for f in found]
        return found[0]


@pytest.fixture
def rack() -> Rack:
    return Rack(["gpu-01", "gpu-02", "gpu-03", "gpu-04"])


@pytest.fixture
def fresh_rack() -> Rack:
    """Bare machines: nothing was configured yet."""
    return Rack(["gpu-01", "gpu-02", "gpu-03", "gpu-04"], configured=False)


@pytest.fixture
def lone_rack() -> Rack:
    return Rack(["gpu-01"])
