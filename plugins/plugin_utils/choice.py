# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of a host's free devices are its rails: by PCIe distance to the GPUs, rate, link layer, model and number."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Hca, Machine
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import Affinity

CONFIDENCE = ("low", "medium", "high")
BELOW_HOST_BRIDGE = "reaches its GPU below the host bridge"
# Placeholder rates of a port without link say nothing about what it can do.
_NO_LINK_RATES = (2.5, 10.0, 40.0)


def nominal_rates(machine: Machine) -> dict[str, float | None]:
    """Each device's rate by its model on this host: what most of its like run at, whatever this port shows now."""
    by_model: dict[tuple[str, str], collections.Counter[float]] = {}
    for hca in machine.hcas:
        for port in hca.ports:
            if port.active and port.rate_gbps:
                by_model.setdefault((hca.model, port.link_layer), collections.Counter())[port.rate_gbps] += 1
    rates: dict[str, float | None] = {}
    for hca in machine.hcas:
        layer = hca.ports[0].link_layer if hca.ports else ""
        counted = by_model.get((hca.model, layer)) if hca.model else None
        own = [port.rate_gbps for port in hca.ports if port.rate_gbps and port.active]
        if counted:
            best = max(counted.values())
            rates[hca.name] = max(rate for rate, count in counted.items() if count == best)
        elif own:
            rates[hca.name] = max(own)
        else:
            shown = [port.rate_gbps for port in hca.ports if port.rate_gbps and port.rate_gbps not in _NO_LINK_RATES]
            rates[hca.name] = max(shown) if shown else None
    return rates


def link_layer(hca: Hca) -> str:
    counted = collections.Counter(port.link_layer for port in hca.ports if port.link_layer)
    return counted.most_common(1)[0][0] if counted else ""


class Chooser:
    """``choose`` picks; ``strays`` are devices that it ruled out for a fault of theirs, ``notes`` what must be said."""

    def __init__(self, machine: Machine, intent: t.Mapping[str, t.Any], affinity: Affinity) -> None:
        self.machine = machine
        self.intent = intent
        self.affinity = affinity
        self.rates = nominal_rates(machine)
        self.notes: list[Note] = []
        self.strays: list[tuple[Hca, str]] = []

    def choose(self, pool: list[Hca]) -> tuple[list[Hca], str, str]:
        """The rails' devices among *pool*, confidence, and why."""
        if self.intent["gpu_fabric_fabric"] == "none":
            return [], "high", "gpu_fabric_fabric is none"
        wanted = {"roce": "Ethernet", "infiniband": "InfiniBand"}.get(self.intent["gpu_fabric_fabric"], "")
        if wanted:
            others = [hca for hca in pool if link_layer(hca) not in (wanted, "")]
            pool = [hca for hca in pool if hca not in others]
            if others and not pool:
                self._note_other_fabric(others, wanted)
        if not pool:
            return [], "high", ""
        pool = self._cabled(pool)
        near = [hca for hca in pool if self.affinity.near(hca)]
        if near:
            return self._by_distance(near, pool)
        return self._by_group(pool)

    def _note_other_fabric(self, others: list[Hca], wanted: str) -> None:
        names = ", ".join(hca.name for hca in others)
        self.notes.append(
            Note(
                "RF-PLAN-FABRIC",
                ",".join(hca.name for hca in others),
                f"gpu_fabric_fabric is {self.intent['gpu_fabric_fabric']}, but no free device has a {wanted} port: "
                f"{names} run {link_layer(others[0])}",
                [f"{hca.name} port 1: {link_layer(hca)}" for hca in others],
                "Set gpu_fabric_fabric: auto, or name the cards in gpu_fabric_compute_devices: site.yml --tags rdma "
                f"then sets their LINK_TYPE to {wanted}",
            )
        )

    def _cabled(self, pool: list[Hca]) -> list[Hca]:
        """Without second ports that no card of the model uses: one function up and the rest idle on every card.

        A port that is down on one card only is a broken rail and stays.
        """
        cards: dict[str, dict[str, list[Hca]]] = {}
        for hca in pool:
            cards.setdefault(hca.model, {}).setdefault(hca.pci.rpartition(".")[0] or hca.name, []).append(hca)
        spare: set[str] = set()
        for model, slots in cards.items():
            # single-port cards of the same model say that nothing is usual
            if model and all(len(card) > 1 and sum(self._in_use(hca) for hca in card) == 1 for card in slots.values()):
                spare |= {hca.name for card in slots.values() for hca in card if not self._in_use(hca)}
        expected = self.intent["gpu_fabric_expected_rails"]
        if spare and expected and len(pool) - len(spare) < expected <= len(pool):
            return pool
        return [hca for hca in pool if hca.name not in spare]

    def _in_use(self, hca: Hca) -> bool:
        """The port is up, or somebody gave it an address: it is meant to be up."""
        devs = [self.machine.netdevs.get(name) for port in hca.ports for name in port.netdevs]
        return hca.active or any(dev and dev.global_addresses for dev in devs)

    def _fastest(self, hcas: list[Hca]) -> list[Hca]:
        rates = [rate for rate in (self.rates[hca.name] for hca in hcas) if rate]
        top = max(rates) if rates else None
        # a device whose rate is not known may well be a rail: only a known lower rate rules one out
        return [hca for hca in hcas if self.rates[hca.name] in (top, None)]

    def _running_fastest(self, hcas: list[Hca]) -> list[Hca]:
        """Like cards at different rates: those that run fastest now, if their number suits the GPUs."""
        running = {hca.name: max((p.rate_gbps or 0 for p in hca.ports if p.active), default=0) for hca in hcas}
        top = max(running.values(), default=0)
        found = [hca for hca in hcas if running[hca.name] == top]
        return found if top and self._fits(len(found)) else []

    def _fits(self, count: int) -> bool:
        gpus = len(self.machine.gpus)
        return bool(count and gpus and (count % gpus == 0 or gpus % count == 0))

    def _by_distance(self, near: list[Hca], pool: list[Hca]) -> tuple[list[Hca], str, str]:
        chosen, confidence = self._fastest(near), "high"
        chosen, layer_confidence = self.one_layer(chosen)
        if layer_confidence == "low":
            return chosen, "low", "near GPUs"
        if not self._fits(len(chosen)):
            narrowed = self._one_model(chosen)
            if narrowed:
                chosen, confidence = narrowed, "medium"
        elif self._doubled(chosen) and self.intent["gpu_fabric_expected_rails"] != len(chosen):
            # a NIC of each of two models for every GPU: one of them may well be the storage fabric's
            return chosen, "low", "each of several models has a NIC for every GPU"
        orphans = self._orphans(chosen, pool)
        confidence = min(confidence, layer_confidence, "medium" if orphans else "high", key=CONFIDENCE.index)
        chosen = chosen + orphans
        if not orphans and not self._fits(len(chosen)):
            expected = self.intent["gpu_fabric_expected_rails"]
            if expected == len(chosen):
                confidence = "high"
            else:
                confidence = "low" if len(chosen) > len(self.machine.gpus) else "medium"
        return chosen, confidence, BELOW_HOST_BRIDGE

    def one_layer(self, hcas: list[Hca]) -> tuple[list[Hca], str]:
        counted = collections.Counter(link_layer(hca) for hca in hcas if link_layer(hca))
        if len(counted) < 2:
            return hcas, "high"
        (first, most), (second, next_most) = counted.most_common(2)
        evidence = [f"{hca.name} port 1: {link_layer(hca)}" for hca in hcas]
        if most == next_most:
            self.notes.append(
                Note(
                    "RF-PLAN-MIXED-LINK-LAYER",
                    ",".join(hca.name for hca in hcas),
                    f"{most} candidates are {first} and {next_most} are {second}, all alike otherwise; "
                    "NCCL fails on a list that mixes them",
                    evidence,
                    "Set gpu_fabric_fabric to roce or infiniband, or name the rails in gpu_fabric_compute_devices",
                )
            )
            # Until a person decides: a list that NCCL can use, of the layer that serves nothing but a fabric.
            return [hca for hca in hcas if link_layer(hca) in ("InfiniBand", "")], "low"
        kept = [hca for hca in hcas if link_layer(hca) in (first, "")]
        if self._fits(len(kept)):
            # every GPU has its NIC without the others: they serve something else
            return kept, "high"
        models = {hca.model for hca in kept}
        strays = [hca for hca in hcas if link_layer(hca) not in (first, "") and hca.model in models]
        if not strays:
            return kept, "high"
        for hca in strays:
            self.strays.append((hca, f"{link_layer(hca)} port among {first} rails of the same model {hca.model}"))
        self.notes.append(
            Note(
                "RF-PLAN-MIXED-LINK-LAYER",
                ",".join(hca.name for hca in strays),
                f"{', '.join(h.name for h in strays)} runs {second} while its {most} like run {first}; "
                "NCCL fails on a list that mixes them",
                evidence,
                f"Set LINK_TYPE to {first} with mlxconfig, or exclude it in gpu_fabric_exclude_devices",
            )
        )
        return kept, "medium"

    def _fitting_models(self, hcas: list[Hca]) -> list[list[Hca]]:
        """Groups of one model whose count suits the GPUs."""
        groups: dict[str, list[Hca]] = {}
        for hca in hcas:
            groups.setdefault(hca.model, []).append(hca)
        return [group for group in groups.values() if self._fits(len(group))]

    def _doubled(self, hcas: list[Hca]) -> bool:
        """Whether several models have a NIC for every GPU each."""
        return sum(len(group) >= len(self.machine.gpus) for group in self._fitting_models(hcas)) > 1

    def _one_model(self, hcas: list[Hca]) -> list[Hca]:
        """The one model whose count fits the GPUs and that reaches the most of them; [] when none or several do."""
        fitting = self._fitting_models(hcas)
        if len(fitting) > 1:
            reach = [len({gpu for hca in group for gpu in self.affinity.near(hca)}) for group in fitting]
            best = max(reach)
            fitting = [group for group, count in zip(fitting, reach) if count == best]
            size = max(len(group) for group in fitting)
            fitting = [group for group in fitting if len(group) == size]
        if len(fitting) == 1:
            return fitting[0]
        return self._closest(hcas) if not fitting else []

    def _closest(self, hcas: list[Hca]) -> list[Hca]:
        """Where one model serves rails and front end alike: those at the smallest distance from a GPU."""
        ranks = {}
        for hca in hcas:
            paths = [self.affinity.path(gpu.pci, hca) for gpu in self.machine.gpus]
            ranks[hca.name] = min(path.rank for path in paths if path and path.near)
        best = min(ranks.values())
        closest = [hca for hca in hcas if ranks[hca.name] == best]
        return closest if self._fits(len(closest)) else []

    def _orphans(self, chosen: list[Hca], pool: list[Hca]) -> list[Hca]:
        """Rails whose GPU is gone: alike in every way, at the same depth of the PCIe tree, and no GPU near."""
        gpus = len(self.machine.gpus)
        wanted = self.intent["gpu_fabric_expected_gpus"]
        short = gpus < wanted if wanted else gpus & (gpus - 1) != 0
        if not short or not chosen:
            return []
        depth = {len(self.machine.function(hca.pci).upstream) for hca in chosen}
        like = {(hca.model, link_layer(hca)) for hca in chosen}
        found = []
        for hca in pool:
            function = self.machine.function(hca.pci)
            if hca in chosen or (hca.model, link_layer(hca)) not in like or not hca.model:
                continue
            if len(function.upstream) in depth and len(function.upstream) > 1 and not self.affinity.near(hca):
                found.append(hca)
        return found

    def _by_group(self, pool: list[Hca]) -> tuple[list[Hca], str, str]:
        """No PCIe switch to go by: the fastest group of like devices whose count suits the GPUs."""
        fastest, layer_confidence = self.one_layer(self._fastest(pool))
        if layer_confidence == "low":
            return fastest, "low", "fastest devices"
        if self.machine.gpus and not self._fits(len(fastest)):
            fastest = self._running_fastest(fastest) or fastest
        groups: dict[str, list[Hca]] = {}
        for hca in fastest:
            groups.setdefault(hca.model, []).append(hca)
        fitting = [g for g in groups.values() if self._fits(len(g))] if self.machine.gpus else list(groups.values())
        known = "no GPU is shown" if not self.machine.gpus else "the host shows no PCIe switch between GPUs and NICs"
        if len(groups) == 1:
            expected = self.intent["gpu_fabric_expected_rails"]
            if not self.machine.gpus or self._fits(len(fastest)) or expected == len(fastest):
                return fastest, "high" if len(pool) == 1 else "medium", f"{known}; the fastest"
            return fastest, "low", f"{known}; {len(fastest)} alike for {len(self.machine.gpus)} GPUs"
        if len(fitting) == 1 and self.machine.gpus:
            return fitting[0], "medium", f"{known}; the fastest model whose count suits the GPUs"
        if not self.machine.gpus and len({self.rates[h.name] for h in fastest}) == 1 and self._all_alike(fastest):
            return fastest, "medium", f"{known}; the fastest"
        return fastest, "low", f"{known}; several models run at the same rate"

    def _all_alike(self, hcas: list[Hca]) -> bool:
        return len({hca.hca_type for hca in hcas}) == 1
