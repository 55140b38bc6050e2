# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""The benchmarks' command lines, and what their answers mean against a threshold. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import iperf3, nccl_tests, perftest

PASS, FAIL, NOT_RUN = "pass", "fail", "not_run"
# Large enough to fill a link, small enough to stay in the NIC's caches of translations.
MESSAGE_BYTES = 65536
QUEUE_PAIRS = 2


class Result(t.NamedTuple):
    """One measurement. ``value`` and ``threshold`` share the unit; ``None``: not measured, no threshold."""

    test: str
    subject: str
    peer: str | None
    unit: str
    value: float | None
    threshold: float | None
    verdict: str
    detail: str
    command: str
    rail: int | None = None


def perftest_command(entry: t.Mapping[str, t.Any], seconds: int, peer_address: str | None = None) -> list[str]:
    """Return the line of the server, or of the client of ``peer_address``; both ends must agree on all of it."""
    command = [
        "ib_write_bw", "-d", entry["hca"], "-i", str(entry["port"]), "-p", str(entry["tcp_port"]),
        "-s", str(MESSAGE_BYTES), "-q", str(QUEUE_PAIRS), "-D", str(seconds), "-F", "--report_gbits",
    ]  # fmt: skip
    if entry.get("tos") is not None:
        command.append(f"--tclass={entry['tos']}")
    return command if peer_address is None else [*command, peer_address]


def iperf3_command(entry: t.Mapping[str, t.Any], seconds: int, peer_address: str | None = None) -> list[str]:
    if peer_address is None:
        return ["iperf3", "--server", "--one-off", "--port", str(entry["tcp_port"])]
    return [
        "iperf3", "--client", peer_address, "--port", str(entry["tcp_port"]), "--time", str(seconds),
        "--parallel", "4", "--json",
    ]  # fmt: skip


def nccl_command(gpus: int, max_bytes: str) -> list[str]:
    """One process drives all GPUs of the host. The environment stays as shipped: /etc/nccl.conf is what is tested."""
    return ["all_reduce_perf", "-b", "1G", "-e", max_bytes, "-f", "2", "-g", str(gpus)]


def judge(value: float | None, threshold: float | None, problem: str) -> tuple[str, str]:
    """Return the verdict and a sentence for it."""
    if value is None:
        return FAIL, problem or "the tool reported no bandwidth"
    if threshold is None:
        return PASS, "no threshold"
    if value < threshold:
        return FAIL, f"{value:g} is below {threshold:g}"
    return PASS, f"{value:g} is at least {threshold:g}"


def tool_problem(rc: int, stdout: str, stderr: str) -> str:
    """Return what the tool said when it failed: its last words."""
    said = [line.strip() for line in (stderr or stdout).splitlines() if line.strip()]
    return f"exit status {rc}: {said[-1] if said else 'no message'}" if rc else ""


def perftest_gbps(stdout: str) -> float | None:
    rows = perftest.parse(stdout).value.get("rows") or []
    return rows[-1].get("bw_average_gbps") if rows else None


def iperf3_gbps(stdout: str) -> tuple[float | None, str]:
    """Return what the receiver got, and iperf3's own error."""
    value = iperf3.parse(stdout).value
    bits = value.get("received_bits_per_second") or value.get("bits_per_second")
    return (bits / 1e9 if bits else None), value.get("error") or ""


def nccl_busbw(stdout: str) -> tuple[float | None, str]:
    """Return the bus bandwidth at the largest size in gigabytes per second, and what makes the run worthless."""
    value = nccl_tests.parse(stdout).value
    wrong = value.get("out_of_bounds_count")
    if wrong:
        return None, f"{wrong} values are out of bounds: results are wrong"
    rows = value.get("rows") or []
    best = rows[-1] if rows else {}
    found = [
        best[key] for key in ("out_of_place_busbw_gbytes_s", "in_place_busbw_gbytes_s") if best.get(key) is not None
    ]
    return (max(found) if found else None), ""


__all__ = (
    "FAIL",
    "NOT_RUN",
    "PASS",
    "Result",
    "iperf3_command",
    "iperf3_gbps",
    "judge",
    "nccl_busbw",
    "nccl_command",
    "perftest_command",
    "perftest_gbps",
    "tool_problem",
)
