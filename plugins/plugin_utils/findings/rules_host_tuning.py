# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the host is tuned now: frequency, NUMA balancing, PCIe read requests."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, mapping, short_bdf

GOVERNOR = define(
    "tuning",
    "RF-TUNING-GOVERNOR",
    title="The CPUs save power",
    severity="warn",
    phase="verify",
    means="CPU cores run below their frequency between bursts: launches, copies and network interrupts take longer.",
    looks_at="The frequency governor of CPU 0, on a host that was tuned or recorded. A driver that has no powersave of "
    "its own kind (intel_pstate's dynamic one) is judged alike: jobs gain from performance there, too.",
    cause="The distribution's default, or a power profile of the BIOS or of tuned.",
    remedy="Run site.yml --tags rdma (cpu_governor: performance), or cpupower frequency-set -g performance.",
    check="cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor prints performance.",
    source="tuned profiles throughput-performance and hpc-compute",
    mended_by="rdma",
)

NUMA_BALANCING = define(
    "tuning",
    "RF-TUNING-NUMA-BALANCING",
    title="Automatic NUMA balancing is on",
    severity="warn",
    phase="verify",
    means="The kernel unmaps and migrates pages of running jobs to learn where they are used: stalls in pinned buffers "
    "and host-side copies.",
    looks_at="kernel.numa_balancing of a recorded host with more than one NUMA node.",
    cause="The distribution's default.",
    remedy="Run site.yml --tags rdma (kernel.numa_balancing = 0), or sysctl -w kernel.numa_balancing=0.",
    check="sysctl kernel.numa_balancing prints 0.",
    source="tuned profile hpc-compute; preflight of ROCm/cvs",
    mended_by="rdma",
)

READ_REQUEST = define(
    "pcie",
    "RF-PCIE-READ-REQUEST",
    title="A NIC reads memory in small PCIe requests",
    severity="warn",
    phase="verify",
    means="MaxReadReq is below that of the host's other NICs: sending from memory needs more requests for each packet, "
    "and the card does not reach its rate.",
    looks_at="MaxReadReq of the rails' PCI functions, against each other; 512 or less on all of a recorded host.",
    cause="The BIOS' default of 512; the value is lost at every reset of the card.",
    remedy="Run site.yml --tags rdma, which sets 4096 and sets it again at boot, or setpci -s BDF "
    "CAP_EXP+08.w=5000:F000.",
    check="lspci -s BDF -vvv: MaxReadReq 4096 bytes.",
    source="nic-configuration-operator pciPerformanceOptimized; oracle-quickstart/oci-hpc",
    mended_by="rdma",
)

_SLOW = ("powersave", "ondemand", "conservative", "schedutil")
_SMALL, _WANTED = 512, 4096


@host_rule(GOVERNOR, NUMA_BALANCING)
def host_settings(host: HostView) -> t.Iterator[Finding]:
    if not host.recorded_only and not host.configured("rdma"):
        return
    governor = host.get("host", "cpu_governor")
    if governor in _SLOW:
        yield GOVERNOR.on(
            host,
            f"{host.name}: the CPU governor is {governor}, performance wanted",
            device="cpu",
            evidence=[f"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor: {governor}"],
        )
    balancing = str(host.get("sysctl", "kernel.numa_balancing"))
    if balancing in ("1", "2", "3") and host.recorded_only and (host.get("host", "numa_nodes") or 2) > 1:
        yield NUMA_BALANCING.on(
            host,
            f"{host.name}: kernel.numa_balancing is {balancing}, 0 wanted",
            device="kernel.numa_balancing",
            evidence=[f"kernel.numa_balancing = {balancing}"],
        )


@host_rule(READ_REQUEST)
def small_read_requests(host: HostView) -> t.Iterator[Finding]:
    rails = {str(mapping(host.section("rdma_devices").get(rail.get("hca"))).get("pci")) for rail in host.rails}
    sizes: dict[str, int] = {}
    for pci, data in host.section("pci").items():
        function = mapping(data)
        nic = function.get("vendor") == "15b3" and str(function.get("class", "")).startswith("02")
        size = function.get("max_read_request_bytes")
        if isinstance(size, int) and (pci in rails if rails - {"None"} else nic):
            sizes[str(pci)] = size
    most = max(sizes.values(), default=0)
    wanted = most if most > _SMALL else _WANTED if host.recorded_only and sizes else 0
    low: dict[int, list[str]] = collections.defaultdict(list)
    for pci, size in sizes.items():
        if size < wanted and size <= _SMALL:
            low[size].append(pci)
    for size, functions in low.items():
        yield READ_REQUEST.on(
            host,
            f"{host.name}: {', '.join(short_bdf(pci) for pci in functions)} ha{'s' if len(functions) == 1 else 've'} "
            f"MaxReadReq {size} bytes, {wanted} wanted",
            device=", ".join(functions),
            evidence=[f"{short_bdf(pci)}: MaxReadReq {size} bytes" for pci in functions[:8]],
        )
