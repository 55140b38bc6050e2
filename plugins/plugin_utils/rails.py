# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rails: which HCA serves which GPU, numbered so that rail *i* means the same on every host.

Numbers come from the order of the GPUs and the PCI tree, never from device names: ``mlx5_9`` may sit before ``mlx5_0``.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.classify import Classification
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Gpu, Hca, Machine, Port, pci_key
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import DISTANCES, NEAR, Affinity

NEAR_RANK = max(DISTANCES.index(distance) for distance in NEAR)


@dataclass
class Rail:
    rail: int
    hca: Hca
    port: Port | None
    netdev: str
    gpus: list[Gpu]
    distance: str | None
    rate_gbps: float | None
    nominal_gbps: float | None
    link_layer: str

    @property
    def slot(self) -> tuple[str, int]:
        """Where the rail is, independent of names."""
        return (self.hca.pci, self.port.number if self.port else 1)

    @property
    def port_name(self) -> str:
        """What its port is known by: the interface, or on InfiniBand the adapter, whose interface may come later."""
        return self.hca.name if self.link_layer == "InfiniBand" else self.netdev


def lay(machine: Machine, found: Classification, affinity: Affinity) -> list[Rail]:
    """The host's rails in order. Without known affinity they are numbered by PCI path and paired with no GPU."""
    ends = found.compute_ports
    if not ends:
        return []
    if len(machine.gpus) == 1:
        owner = dict.fromkeys(range(len(ends)), 0)
    elif found.affinity_known:
        owner = _pair(machine, [hca for hca, _ in ends], affinity)
    else:
        owner = {}
    order = sorted(range(len(ends)), key=lambda n: _order(machine, ends[n], owner.get(n)))
    numbers = _numbers(order, owner, len(machine.gpus))
    served = _served(machine, ends, owner, affinity)
    rails = []
    for n in order:
        hca, port = ends[n]
        gpus = served.get(n, [])
        path = affinity.path(gpus[0].pci, hca) if gpus else None
        rails.append(
            Rail(
                rail=numbers[n],
                hca=hca,
                port=port,
                netdev=machine.netdev_of(hca, port),
                gpus=gpus,
                distance=path.distance if path else None,
                rate_gbps=port.rate_gbps if port else None,
                nominal_gbps=found.rates.get(hca.name),
                link_layer=(port.link_layer if port else "") or found.link_layer,
            )
        )
    return rails


def _pair(machine: Machine, hcas: list[Hca], affinity: Affinity) -> dict[int, int]:
    """{end: GPU position}: nearest pairs first, each GPU its share; a GPU never takes what is nearer to another."""
    pairs = []
    for n, hca in enumerate(hcas):
        for position, gpu in enumerate(machine.gpus):
            path = affinity.path(gpu.pci, hca)
            if path:
                pairs.append((path.rank, position, pci_key(hca.pci), n))
    if any(rank[0] <= NEAR_RANK for rank, *_ in pairs):
        # Where PCIe switches pair GPUs and NICs, a NIC without a GPU under its switch lost its GPU: it gets no other.
        pairs = [pair for pair in pairs if pair[0][0] <= NEAR_RANK]
    owner: dict[int, int] = {}
    taken: collections.Counter[int] = collections.Counter()
    nearest: dict[int, tuple[int, int]] = {}
    for rank, _, _, n in pairs:
        nearest[n] = min(rank, nearest.get(n, rank))
    # Equal pairs go one NIC per GPU first, so that two NICs and two GPUs under a switch pair up one to one.
    for limit in range(1, len(hcas) + 1):
        if len(owner) == len(nearest):
            break
        for rank, position, _, n in sorted(pairs):
            if n not in owner and taken[position] < limit and rank[0] == nearest[n][0]:
                owner[n] = position
                taken[position] += 1
    return owner


def _order(machine: Machine, end: tuple[Hca, Port | None], owner: int | None) -> tuple[t.Any, ...]:
    hca, port = end
    # An end without a GPU takes its place on the bus among the GPUs' addresses: the GPU it served may be gone.
    anchor = pci_key(machine.gpus[owner].pci) if owner is not None else pci_key(hca.pci)
    return (anchor, pci_key(hca.pci), natural(hca.name), port.number if port else 1)


def _numbers(order: list[int], owner: dict[int, int], gpus: int) -> dict[int, int]:
    """Rail numbers. Where one of a GPU's NICs is missing its number stays free instead of moving the others."""
    count = len(order)
    shares = collections.Counter(owner.values())
    share = max(shares.values(), default=0)
    gaps = gpus and share and count < gpus * share and gpus % count != 0 and len(owner) == count
    if not gaps:
        return {n: rail for rail, n in enumerate(order)}
    numbers: dict[int, int] = {}
    used: collections.Counter[int] = collections.Counter()
    for n in order:
        numbers[n] = owner[n] * share + used[owner[n]]
        used[owner[n]] += 1
    return numbers


def _served(
    machine: Machine, ends: list[tuple[Hca, Port | None]], owner: dict[int, int], affinity: Affinity
) -> dict[int, list[Gpu]]:
    """GPUs that use each end: its own first, then those that have no nearer one."""
    served: dict[int, list[Gpu]] = {n: [machine.gpus[position]] for n, position in owner.items()}
    if not owner:
        return served
    owned = set(owner.values())
    load = collections.Counter(dict.fromkeys(owner, 1))
    for position, gpu in enumerate(machine.gpus):
        if position in owned:
            continue
        best = None
        for n in owner:
            path = affinity.path(gpu.pci, ends[n][0])
            if path and (best is None or (path.rank[0], load[n], n) < best):
                best = (path.rank[0], load[n], n)
        if best:
            load[best[2]] += 1
            served[best[2]].append(gpu)
    return served


def agree_on_rates(rails_by_host: t.Mapping[str, list[Rail]]) -> None:
    """A model's rate is what most of its rails in the rack run at: one host alone may be slow on all of them."""
    counted: dict[tuple[str, str], collections.Counter[float | None]] = {}
    for rails in rails_by_host.values():
        for rail in rails:
            if rail.hca.model:
                counted.setdefault((rail.hca.model, rail.link_layer), collections.Counter())[rail.nominal_gbps] += 1
    usual = {}
    for kind, rates in counted.items():
        rate, count = rates.most_common(1)[0]
        if rate and 2 * count > sum(rates.values()):
            usual[kind] = rate
    for rails in rails_by_host.values():
        for rail in rails:
            rate = usual.get((rail.hca.model, rail.link_layer))
            if rate and rate > (rail.nominal_gbps or 0):
                rail.nominal_gbps = rate


def align(rails_by_host: dict[str, list[Rail]], product_of: dict[str, str]) -> None:
    """Number a host's rails as its like do, by PCI path, where it has lost some of them.

    Alone, such a host cannot tell which of its rails is missing; the rest of the rack can.
    """
    layouts: dict[str, collections.Counter[tuple[tuple[tuple[str, int], int], ...]]] = {}
    for host, rails in rails_by_host.items():
        if rails and product_of.get(host) and all(rail.hca.pci for rail in rails):
            layout = tuple((rail.slot, rail.rail) for rail in rails)
            layouts.setdefault(product_of[host], collections.Counter())[layout] += 1
    usual = {}
    for product, counted in layouts.items():
        (layout, count), *others = counted.most_common(2)
        if count > 1 and (not others or others[0][1] < count):
            usual[product] = dict(layout)
    for host, rails in rails_by_host.items():
        known = usual.get(product_of.get(host, ""))
        if known and len(rails) < len(known) and all(rail.slot in known for rail in rails):
            for rail in rails:
                rail.rail = known[rail.slot]
            rails.sort(key=lambda rail: rail.rail)
