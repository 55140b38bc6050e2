# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts read from the lab's own sysfs trees, planned and judged: bare racks are healthy, injected faults are found."""

from __future__ import annotations

import os

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import LiveSource
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.plan import plan_rack
from railyard_lab.cli import main as lab

HOSTS = ("gpu-01", "gpu-02", "gpu-03")
VICTIM = "gpu-02"
PROFILES = (
    "a100_8x200g",
    "b200_nvswitch_bridges",
    "cloud_vm",
    "hgx_h100_ib",
    "hgx_h100_roce",
    "pcie_1x100g",
)


class Rack:
    """Three bare nodes of one profile. No tool is installed on them: everything is read from sysfs and procfs."""

    def __init__(self, folder, profile: str) -> None:
        self.folder, self.profile = folder, profile
        self.facts = {}
        for name in HOSTS:
            self.boot(name)
            self.facts[name] = self.read(name)

    def boot(self, host: str) -> None:
        self.command(host, "node", "up", "--profile", self.profile, "--host", host)

    def command(self, host: str, *words: str) -> None:
        root = self.folder / host
        root.mkdir(exist_ok=True)
        kept = dict(os.environ)
        os.environ.update(RAILYARD_LAB_ROOT=str(root), RAILYARD_LAB_STATE=str(root / "state.json"))
        try:
            assert lab(list(words)) in (0, None)
        finally:
            os.environ.clear()
            os.environ.update(kept)

    def read(self, host: str) -> dict:
        return gather(LiveSource(str(self.folder / host), {"PATH": ""}))

    def findings(self, facts: dict | None = None) -> list[dict]:
        facts = facts or self.facts
        connection = {name: {"address": f"10.0.0.{number}"} for number, name in enumerate(facts, 1)}
        plan = plan_rack({name: {} for name in facts}, facts, connection)
        return [f for f in evaluate(facts, plan, {name: {} for name in facts}) if f["severity"] != "info"]

    def with_fault(self, name: str) -> list[dict]:
        self.command(VICTIM, "fault", name)
        self.command(VICTIM, "sync")
        found = self.findings({**self.facts, VICTIM: self.read(VICTIM)})
        self.command(VICTIM, "fault", "clear")
        self.boot(VICTIM)
        return found


@pytest.fixture(scope="module")
def racks(tmp_path_factory):
    made: dict[str, Rack] = {}

    def rack(profile: str) -> Rack:
        if profile not in made:
            made[profile] = Rack(tmp_path_factory.mktemp(profile), profile)
        return made[profile]

    return rack


@pytest.mark.parametrize("profile", PROFILES)
def test_a_bare_rack_gives_no_finding(racks, profile, capsys):
    assert [f"{f['id']}: {f['message']}" for f in racks(profile).findings()] == []


@pytest.mark.parametrize("profile", ["hgx_h100_roce", "hgx_h100_ib"])
@pytest.mark.parametrize(
    ("fault", "wanted", "device"),
    [
        ("port_down", "RF-PORT-DOWN", "mlx5_4"),
        ("wrong_rate", "RF-PORT-RATE", "mlx5_4"),
        ("pcie_width", "RF-PCIE-WIDTH", "mlx5_4"),
        ("gpu_missing", "RF-GPU-COUNT", "c3:00.0"),
        ("firmware_drift", "RF-HCA-FIRMWARE-DRIFT", "mlx5_4"),
        ("acs_on", "RF-PCIE-ACS", "ReqRedir"),
    ],
)
def test_a_fault_on_bare_hardware_is_found_and_named(racks, profile, fault, wanted, device, capsys):
    found = racks(profile).with_fault(fault)
    # A GPU that is gone takes its place in the rail plan with it.
    consequences = {"RF-PLAN-RAIL-MISSING"} if fault == "gpu_missing" else set()
    assert {f["id"] for f in found} - consequences == {wanted}, [f["message"] for f in found]
    hit = next(f for f in found if f["id"] == wanted)
    assert hit["host"] == VICTIM
    assert VICTIM in hit["message"] and device in hit["message"] and "wanted" in hit["message"]


def test_no_subnet_manager(racks, capsys):
    assert {f["id"] for f in racks("hgx_h100_ib").with_fault("sm_down")} == {"RF-PORT-NO-SM"}
