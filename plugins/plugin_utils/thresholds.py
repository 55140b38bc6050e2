# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a link and a rack must at least deliver, derived from rate and PCIe, never from what was measured."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import compatibility
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Function, Machine, number
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail

# Fractions that published acceptance limits fit: 95 of 100, 192 of 200, 384 of 400 Gb/s in host memory.
HOST_SHARE, GPU_SHARE, PCIE_SHARE = 0.96, 0.90, 0.92
# Of the NICs' sum, what a collective reaches at large sizes.
COLLECTIVE_SHARE = 0.93
# One host's TCP streams reach this without tuning; faster management links are not measured for their own sake.
TCP_CEILING_GBPS = 10.0


def pcie_raw_gbps(function: Function) -> float | None:
    """Payload rate that slot and card could do together: a degraded link must fail, not lower the bar."""
    speed = number(function.link.get("max_speed_gts")) or number(function.link.get("speed_gts"))
    width = number(function.link.get("max_width")) or number(function.link.get("width"))
    if not speed or not width or width > 32:
        return None
    if speed <= 5:
        coding = 8 / 10
    elif speed <= 32:
        coding = 128 / 130
    else:
        coding = 242 / 256
    return speed * coding * width


def rail_threshold(machine: Machine, rail: Rail, share: float = HOST_SHARE) -> tuple[float | None, str]:
    """Gb/s that ib_write_bw must reach on a rail, and why that much."""
    rate = rail.nominal_gbps or (rail.rate_gbps if rail.port and rail.port.active else None)
    if rail.hca.software:
        return None, "software RDMA has no line rate"
    if not rate:
        return None, "the port's rate is not known"
    raw = None if machine.virtual else pcie_raw_gbps(machine.function(rail.hca.pci))
    ceiling = min(rate, PCIE_SHARE * raw) if raw else rate
    basis = f"{share:g} of {ceiling:.0f} Gb/s" + (
        f" (port {rate:g}, PCIe {raw:.0f} Gb/s raw)" if raw else f" (port {rate:g})"
    )
    return float(math.floor(share * ceiling)), basis


def for_host(
    machine: Machine, rails: t.Sequence[Rail], management: str, intent: t.Mapping[str, t.Any], hosts: int
) -> dict[str, t.Any]:
    """plan.hosts[h].thresholds"""
    basis: dict[str, str] = {}
    write: dict[str, float | None] = {}
    gdr: dict[str, float | None] = {}
    for rail in rails:
        key = str(rail.rail)
        write[key], basis[f"ib_write_bw_gbps.{key}"] = rail_threshold(machine, rail)
        gdr[key], _ = rail_threshold(machine, rail, GPU_SHARE)
    values: dict[str, t.Any] = {"ib_write_bw_gbps": write, "ib_write_bw_gpu_gbps": gdr}
    values["iperf3_gbps"], basis["iperf3_gbps"] = _tcp(machine, management)
    single, pair = _collectives(machine, rails, basis)
    values["nccl_busbw_gbps"] = pair if hosts > 1 else single
    values["nccl_single_busbw_gbps"] = single
    basis.setdefault("nccl_busbw_gbps", basis.get("nccl_single_busbw_gbps", ""))
    values["ib_write_lat_us"], basis["ib_write_lat_us"] = 5.0, "8 bytes under one leaf switch"
    for name, value in intent["gpu_fabric_thresholds"].items():
        basis[name] = "set in gpu_fabric_thresholds"
        wanted = value if value is None else number(value)
        values[name] = dict.fromkeys(values[name], wanted) if isinstance(values[name], dict) else wanted
        if isinstance(values[name], dict):
            basis.update({f"{name}.{key}": basis[name] for key in values[name]})
    values["basis"] = basis
    return values


def _tcp(machine: Machine, management: str) -> tuple[float | None, str]:
    dev = machine.netdevs.get(management)
    if not dev or not dev.speed_mbps:
        return None, "the management link's speed is not known"
    if dev.kind not in ("physical", "bond"):
        return None, f"{management} is a {dev.kind or 'software'} interface without a line rate of its own"
    speed = dev.speed_mbps / 1000
    return round(
        0.8 * min(speed, TCP_CEILING_GBPS), 1
    ), f"0.8 of {min(speed, TCP_CEILING_GBPS):g} Gb/s over {management}"


def _collectives(machine: Machine, rails: t.Sequence[Rail], basis: dict[str, str]) -> tuple[float | None, float | None]:
    """(one host, two hosts) all_reduce bus bandwidth in gigabytes per second at 1 GiB and more."""
    name = compatibility.model(machine)
    row = compatibility.table()["gpu_busbw_gbytes_s"].get(name)
    if compatibility.is_pcie_card(machine) or len(machine.gpus) != 8:
        row = None
    rates = [rail.nominal_gbps for rail in rails if not rail.hca.software]
    total = sum(rate for rate in rates if rate) / 8
    single = float(row["single"]) if row else None
    basis["nccl_single_busbw_gbps"] = f"8 {name} with NVSwitch, gigabytes/s" if row else "no reference for these GPUs"
    if not total or None in rates or len(machine.gpus) == 0:
        basis["nccl_busbw_gbps"] = "the rails' rates are not known"
        return single, None
    by_nic = math.floor(COLLECTIVE_SHARE * total * 10) / 10
    pair = min(by_nic, row["pair"]) if row else by_nic
    basis["nccl_busbw_gbps"] = f"two hosts, gigabytes/s: {COLLECTIVE_SHARE:g} of the rails' {total:g}" + (
        f", at most {row['pair']} for {name}" if row else ""
    )
    return single, float(pair)
