# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Speed, FEC, channels, rings and names of the rails: given, kept over a boot, refused in full, and given back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site"))

from rack import Rack

NETDEV = "enp24s0np0"
PORTS = {
    "gpu_fabric_rings": "max",
    "gpu_fabric_channels": "auto",
    "gpu_fabric_link_speed_gbps": 200,
    "gpu_fabric_link_autoneg": False,
    "gpu_fabric_link_fec": "rs",
    "gpu_fabric_stable_names": "by_path",
}
NAMES = ("/etc/systemd/network/10-gpu-fabric.link", "/etc/udev/rules.d/60-rdma-persistent-naming.rules")


def given(**values: Any) -> tuple[str, ...]:
    return ("--tags", "rdma", "-e", json.dumps(values))


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    rack = Rack(nodes=2)
    rack.reset()
    run = rack.site("--tags", "rdma")
    assert run.rc == 0, run.describe()
    yield rack
    rack.down()


def port(rack: Rack, host: str = "gpu-01") -> str:
    """What ethtool says of a port, all of it that the variables touch."""
    return rack.shell(
        host, "; ".join(f"ethtool {option} {NETDEV}".replace("  ", " ") for option in ("-g", "-l", "--show-fec", ""))
    )


def files(rack: Rack, host: str = "gpu-01") -> list[str]:
    return rack.shell(host, f"ls {' '.join(NAMES)} 2>/dev/null || :").split()


def test_ports_and_names_are_given_kept_and_given_back(rack: Rack) -> None:
    before = port(rack)
    run = rack.site(*given(**PORTS))
    assert run.rc == 0, run.describe()
    shown = port(rack)
    for words in (
        "Current hardware settings:\nRX:\t\t8192\n",
        "Combined:\t28\n",
        "Configured FEC encodings: RS\n",
        "\tSpeed: 200000Mb/s\n",
        "\tAuto-negotiation: off\n",
    ):
        assert words in shown, (words, shown)
    assert files(rack) == list(NAMES)
    assert "mlx5_0" in rack.shell("gpu-01", "ls /sys/class/infiniband"), "nothing is renamed now"
    assert any("RF-PLAN-NAMES" in text for _, _, result in run.results() for text in result.get("warnings", []))
    again = rack.site(*given(**PORTS))
    assert again.rc == 0 and again.changes() == set(), again.describe()

    for power in ("off", "on"):
        rack.lab(lab_power=power, lab_node="gpu-01")
    for _ in range(3):
        rack.shell("gpu-01", "timeout 100 systemctl is-system-running --wait || :")
    assert port(rack) == shown, "the program for the boot sets them as the run did"

    gone = rack.site("--tags", "rdma")
    assert gone.rc == 0, gone.describe()
    assert port(rack) == before and files(rack) == []
    assert rack.site("--tags", "rdma").changes() == set()


def test_what_a_card_has_not_is_refused_at_once_and_nothing_is_changed(rack: Rack) -> None:
    before = port(rack)
    run = rack.site(
        *given(gpu_fabric_rings={"rx": 16384}, gpu_fabric_channels=64, gpu_fabric_link_fec="off", gpu_fabric_mtu=4200)
    )
    assert run.rc != 0 and run.changes() == set()
    for words in ("at most rx 8192, or max", "at most 63, or auto", "auto, rs, llrs at that speed"):
        assert words in run.messages(), run.describe()
    run = rack.site(*given(gpu_fabric_rings="max", gpu_fabric_allow_disruption="none"))
    assert run.rc != 0 and "gpu_fabric_allow_disruption: linkflap" in run.messages(), run.describe()
    assert port(rack) == before
