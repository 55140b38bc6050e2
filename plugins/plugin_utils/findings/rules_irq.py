# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interrupts of the NICs: on whose CPUs they are, and who moves them."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cpus import cpu_list, cpu_set
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
    get,
    mapping,
    natural,
)

IRQ_AFFINITY = define(
    "tuning",
    "RF-TUNING-IRQ-AFFINITY",
    title="A NIC's interrupts are on the CPUs of another NUMA node",
    severity="warn",
    phase="verify",
    means="Every completion of TCP, storage and IPoIB traffic crosses the processors' interconnect. NCCL polls "
    "and does not notice; everything else on that NIC is slower.",
    looks_at="Recorded interrupts (irq_affinity.txt) by device, against the CPUs of the device's NUMA node, and "
    "against the earlier recording of a bundle; whether irqbalance runs.",
    cause="irqbalance moved them after they were pinned (it starts anew whenever an mlx5 interface comes up), or "
    "they were never pinned.",
    remedy="Run site.yml --tags rdma, which pins the rails' interrupts and keeps irqbalance off them by a policy of "
    "its own; by hand: stop irqbalance, then set_irq_affinity_bynode.sh NODE NETDEV.",
    check="cat /proc/irq/N/smp_affinity_list lists CPUs of the NIC's node, also after a link flap.",
    source="https://github.com/Irqbalance/irqbalance/issues/275; mlnx-tools set_irq_affinity; OFED 90-ib.rules",
    mended_by="rdma",
)

_LIST = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_NUMBER = re.compile(r"/proc/irq/(\d+)/|\birq[ =:]*(\d+)\b|^\s*(\d+)\s*[: \t]", re.IGNORECASE)
_PCI = re.compile(r"\b(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_NODE = re.compile(r"\b(?:numa|node)[ _]?(?:node)?[ =:]*(-?\d+)\b", re.IGNORECASE)
_MASK = re.compile(r"(?:^|[\s:=])((?:[0-9a-f]{8},)*[0-9a-f]{2,8})\s*$", re.IGNORECASE)
_CPUS = re.compile(rf"(?:^|[\s:=\[(])({_LIST})[\s)\]]*$")


class Interrupt(t.NamedTuple):
    number: str
    device: str
    node: int | None
    cpus: frozenset[int]
    shown: str
    line: str


def _mask(text: str) -> frozenset[int]:
    value = int("".join(part.rjust(8, "0") for part in text.split(",")), 16)
    return frozenset(bit for bit in range(value.bit_length()) if value >> bit & 1)


def interrupts(text: str, names: t.Iterable[str]) -> list[Interrupt]:
    """Lines that name an interrupt and the CPUs that take it, in whichever form they were recorded."""
    known = sorted(names, key=len, reverse=True)
    found = []
    heading = ""
    for line in text.splitlines():
        devices = [name for name in known if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\d)", line)]
        address = _PCI.search(line)
        device = devices[0] if devices else (address[0].lower() if address else "")
        number = _NUMBER.search(line)
        plain = line[number.end() :] if number else line
        # The file's name says whether a mask or a list follows; a comma between groups of eight is a mask too.
        masked = "smp_affinity:" in line or re.search(r"[0-9a-f]{8},[0-9a-f]{8}|\s0*[0-9a-f]*[a-f][0-9a-f]*\s*$", line)
        match = _MASK.search(plain) if masked else _CPUS.search(plain)
        if not number or not match:
            heading = device or heading
            continue
        cpus = _mask(match[1]) if masked else cpu_set(match[1])
        node = _NODE.search(line[: line.rfind(match[1])])
        named = next(group for group in number.groups() if group)
        found.append(Interrupt(named, device or heading, int(node[1]) if node else None, cpus, match[1], line.strip()))
    return found


def _places(host: HostView) -> dict[str, tuple[int | None, frozenset[int]]]:
    """Device, interface and address → (NUMA node, CPUs of it)."""
    nodes = {int(key): cpu_set(str(value)) for key, value in host.section("host", "numa_cpus").items() if key.isdigit()}
    for gpu in dicts(host.get("outputs", "nvidia_smi_topo", "gpus")):
        numa = gpu.get("numa_nodes")
        if isinstance(numa, list) and len(numa) == 1 and gpu.get("cpu_affinity"):
            nodes.setdefault(numa[0], cpu_set(str(gpu["cpu_affinity"])))
    found: dict[str, tuple[int | None, frozenset[int]]] = {}
    for pci, data in host.section("pci").items():
        function = mapping(data)
        node = function.get("numa_node")
        cpus = cpu_set(str(function.get("local_cpulist") or "")) or nodes.get(node, frozenset())
        found[str(pci)] = found[str(pci).removeprefix("0000:")] = (node, cpus)
    for name, device in host.section("rdma_devices").items():
        place = found.get(str(mapping(device).get("pci")))
        for alias in [str(name), *(p.netdev for p in host.ports if p.device == name and p.netdev)] if place else []:
            found[alias] = place
    for name, data in host.section("netdevs").items():
        place = found.get(str(mapping(data).get("pci")))
        if place:
            found.setdefault(str(name), place)
    found.update({f"node{node}": (node, cpus) for node, cpus in nodes.items()})
    return found


def _balancer(host: HostView) -> str:
    state = host.get("services", "irqbalance", "active")
    return "; irqbalance is active and moves them" if state else ""


@rack_rule(IRQ_AFFINITY)
def interrupts_far_away(rack: RackView) -> t.Iterator[Finding]:
    for host in rack.hosts:
        text = host.recorded("irq_affinity")
        if not text:
            continue
        places = _places(host)
        names = {name for name in places if not name.startswith("node")} | set(map(str, host.section("rdma_devices")))
        names |= set(map(str, host.section("netdevs"))) | set(re.findall(r"\bmlx5_\d+\b|\ben[ops]\w+\b", text))
        rows = interrupts(text, names)
        far: dict[str, list[Interrupt]] = collections.defaultdict(list)
        homes: dict[str, str] = {}
        for row in rows:
            node, cpus = places.get(row.device, (row.node, frozenset()))
            if row.node is not None and not cpus:
                node, cpus = places.get(f"node{row.node}", (row.node, frozenset()))
            if cpus and row.cpus and not row.cpus & cpus:
                far[row.device or "the NIC"].append(row)
                where = f"NUMA node {node}" if node is not None else "its NUMA node"
                homes[row.device or "the NIC"] = f"CPUs {cpu_list(cpus)} of {where}"
        for device, group in sorted(far.items(), key=lambda item: natural(item[0])):
            numbers = ", ".join(row.number for row in group[:6]) + (" and more" if len(group) > 6 else "")
            yield IRQ_AFFINITY.on(
                host,
                f"{host.name}: {device}: interrupts {numbers} are on CPUs {group[0].shown}, {homes[device]} "
                f"wanted{_balancer(host)}",
                device=device,
                evidence=[*(row.line for row in group[:4]), *_unit(host)],
            )
        if not far:
            yield from _moved(rack, host, rows, names)


def _unit(host: HostView) -> list[str]:
    state = host.get("services", "irqbalance", "state")
    return [f"irqbalance: {state}"] if state else []


def _moved(rack: RackView, host: HostView, rows: list[Interrupt], names: set[str]) -> t.Iterator[Finding]:
    """Interrupts that were pinned when the bundle was recorded earlier, and are elsewhere now."""
    before = get(mapping(rack.outputs.get("before")), "facts", host.name, "recorded", "irq_affinity")
    then = {row.number: row for row in interrupts(before, names)} if isinstance(before, str) else {}
    moved = [(then[row.number], row) for row in rows if row.number in then and then[row.number].cpus != row.cpus]
    if moved:
        old, new = moved[0]
        device = new.device or "the NIC"
        yield IRQ_AFFINITY.on(
            host,
            f"{host.name}: {device}: {len(moved)} interrupts were moved since the earlier recording: {new.number} was "
            f"on CPUs {old.shown}, is on {new.shown}; {old.shown} wanted{_balancer(host)}",
            device=device,
            evidence=[line for was, row in moved[:3] for line in (f"before: {was.line}", f"now: {row.line}")]
            + _unit(host),
        )
