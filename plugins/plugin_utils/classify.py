# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each network device of a host is for, with the reason and how sure that is.

In order: the inventory's word; what the device says of itself (NVSwitch bridge, virtual function, data-direct twin,
software); what it carries (management); then the choice among the rest, made by PCIe distance to the GPUs, rate, link
layer and model. State is no criterion: a rail whose port is down is a broken rail, not another kind of device.
"""

from __future__ import annotations

import collections
import ipaddress
import typing as t
from dataclasses import dataclass, field

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import (
    Hca,
    Machine,
    Port,
    dicts,
    integer,
    normal_bdf,
    normal_guid,
    pci_key,
    text,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import Affinity

CONFIDENCE = ("low", "medium", "high")
# Placeholder rates of a port without link say nothing about what it can do.
_NO_LINK_RATES = (2.5, 10.0, 40.0)
_OVERRIDES = (
    ("gpu_fabric_exclude_devices", "unused"),
    ("gpu_fabric_compute_devices", "compute"),
    ("gpu_fabric_storage_devices", "storage"),
    ("gpu_fabric_management_devices", "management"),
)


@dataclass
class Verdict:
    """One device's role."""

    name: str
    pci: str
    netdev: str
    role: str
    reason: str
    confidence: str

    def as_dict(self) -> dict[str, str]:
        return {
            "name": self.name,
            "pci": self.pci,
            "netdev": self.netdev,
            "role": self.role,
            "reason": self.reason,
            "confidence": self.confidence,
        }


@dataclass
class Classification:
    verdicts: list[Verdict]
    compute: list[Hca]
    # the port of each compute device that forms the rail(s)
    compute_ports: list[tuple[Hca, Port | None]]
    link_layer: str
    rate_gbps: float | None
    confidence: str
    affinity_known: bool
    management: str
    notes: list[Note] = field(default_factory=list)


def nominal_rate(machine: Machine, hca: Hca) -> float | None:
    """The rate of the device's model on this host: what most of its like run at, whatever this port shows now."""
    return _nominal(machine).get(hca.name)


def _nominal(machine: Machine) -> dict[str, float | None]:
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


def management_interface(machine: Machine, intent: t.Mapping[str, t.Any], address: str = "") -> tuple[str, str]:
    """The interface by which the host is reached, and how that is known; empty where it is not."""
    if intent["gpu_fabric_management_interface"]:
        return intent["gpu_fabric_management_interface"], "named in gpu_fabric_management_interface"
    ssh = mapping(machine.facts.get("ssh"))
    if text(ssh.get("netdev")) and text(ssh.get("netdev")) != "lo":
        return text(ssh["netdev"]), "carries this run's SSH connection"
    if address:
        for dev in machine.netdevs.values():
            if any(a.partition("/")[0] == address for a in dev.addresses):
                return dev.name, f"holds the inventory's address {address}"
    routes = default_routes(machine)
    if routes:
        return routes[0], "carries the default route"
    return "", ""


def default_routes(machine: Machine) -> list[str]:
    """Interfaces with a default route in the main table, preferred first; IPv4 before IPv6."""
    found = []
    for route in dicts(machine.facts.get("routes")):
        main = str(route.get("table", "main")) in ("main", "254", "None", "")
        if text(route.get("dst")) in ("default", "0.0.0.0/0", "::/0") and text(route.get("dev")) and main:
            six = integer(route.get("family")) == 6 or route.get("dst") == "::/0"
            found.append((six, integer(route.get("metric")) or 0, text(route["dev"])))
    return list(dict.fromkeys(dev for _, _, dev in sorted(found)))


def lower_devices(machine: Machine, netdev: str) -> set[str]:
    """The interface and everything under it: a VLAN's parent, a bond's or bridge's members."""
    seen: set[str] = set()
    waiting = [netdev]
    while waiting:
        name = waiting.pop()
        dev = machine.netdevs.get(name)
        if name in seen:
            continue
        seen.add(name)
        if dev:
            waiting += [*dev.bond_members, *([dev.vlan_parent] if dev.vlan_parent else [])]
            if dev.kind in ("bond", "bridge"):
                waiting += [other.name for other in machine.netdevs.values() if other.master == name]
    return seen


class _Classifier:
    def __init__(self, machine: Machine, intent: t.Mapping[str, t.Any], affinity: Affinity, address: str) -> None:
        self.machine = machine
        self.intent = intent
        self.affinity = affinity
        self.rates = _nominal(machine)
        self.management, self.management_reason = management_interface(machine, intent, address)
        self.managed = lower_devices(machine, self.management) if self.management else set()
        self.verdicts: dict[str, Verdict] = {}
        self.notes: list[Note] = []
        self.used_overrides: set[tuple[str, str]] = set()
        self.forced_compute: list[Hca] = []

    # -- what is settled before any choice ----------------------------------------------------------------------------

    def settle(self, hca: Hca, role: str, reason: str, confidence: str = "high") -> None:
        self.verdicts[hca.name] = Verdict(hca.name, hca.pci, self.machine.netdev_of(hca), role, reason, confidence)

    def override(self, hca: Hca, function_sw_mng: bool) -> bool:
        names = {hca.name, hca.board_id, *self.machine.netdev_of(hca).split()} - {""}
        for variable, role in _OVERRIDES:
            for item in self.intent[variable]:
                same = (
                    item in names
                    or (hca.pci and normal_bdf(item) == hca.pci)
                    or (hca.node_guid and normal_guid(item) in (hca.node_guid, hca.sys_image_guid))
                )
                if not same:
                    continue
                self.used_overrides.add((variable, item))
                if function_sw_mng and role != "unused":
                    self.notes.append(
                        Note(
                            "RF-PLAN-BRIDGE-OVERRIDE",
                            hca.name,
                            f"{variable} names {item}, but {hca.name} at {hca.pci} is an NVSwitch management bridge "
                            "(SW_MNG in its VPD); using or resetting it drops NVLink for the whole host",
                            [f"{hca.pci} vpd: SW_MNG"],
                            f"Remove {item} from {variable}",
                        )
                    )
                    continue
                self.settle(hca, role, f"{item} is in {variable}")
                if role == "compute":
                    self.forced_compute.append(hca)
                return True
        return False

    def inherent(self, hca: Hca) -> bool:
        """Settle what the device itself says; True when that is all there is to say."""
        function = self.machine.function(hca.pci)
        if self.override(hca, function.sw_mng):
            return True
        if function.sw_mng:
            self.settle(hca, "nvswitch_bridge", f"SW_MNG in the VPD of {hca.pci}: it manages the NVSwitches, hands off")
        elif hca.name.endswith("_dma"):
            self.settle(
                hca, "data_direct", f"data-direct function of {hca.name.removesuffix('_dma')}; NCCL finds it there"
            )
        elif hca.software:
            under = f" over {hca.parent_netdev}" if hca.parent_netdev else ""
            self.settle(hca, "software", f"software RDMA{under}, not hardware")
        elif function.physfn and not self.machine.virtual:
            self.settle(hca, "vf", f"virtual function of {function.physfn}")
        elif hca.transport and hca.transport not in ("infiniband", "ib", "roce"):
            self.settle(hca, "unused", f"transport {hca.transport}: NCCL's InfiniBand transport does not use it")
        elif not hca.ports:
            self.settle(hca, "unused", "no port is shown")
        else:
            return False
        return True

    def carrier(self, hca: Hca) -> bool:
        """Settle devices that carry the host's own connection, or are parts of a bond."""
        netdevs = {name for port in hca.ports for name in port.netdevs} | {self.machine.netdev_of(hca)} - {""}
        hit = sorted(netdevs & self.managed)
        if hit:
            via = "" if self.management in hit else f" through {self.management}"
            self.settle(hca, "management", f"{hit[0]} {self.management_reason}{via}")
            return True
        for name in sorted(netdevs):
            dev = self.machine.netdevs.get(name)
            master = self.machine.netdevs.get(dev.master) if dev and dev.master else None
            if dev and dev.master and (master is None or master.kind in ("bond", "bridge")):
                kind = master.kind if master else "bond"
                self.settle(hca, "bond", f"{name} is a member of {kind} {dev.master}")
                return True
        return False

    # -- the choice ---------------------------------------------------------------------------------------------------

    def layer(self, hca: Hca) -> str:
        counted = collections.Counter(port.link_layer for port in hca.ports if port.link_layer)
        return counted.most_common(1)[0][0] if counted else ""

    def choose(self, pool: list[Hca]) -> tuple[list[Hca], str, str]:
        """The rails' devices among *pool*, confidence, and why."""
        if self.forced_compute:
            return [], "high", ""
        if self.intent["gpu_fabric_fabric"] == "none":
            return [], "high", "gpu_fabric_fabric is none"
        wanted = {"roce": "Ethernet", "infiniband": "InfiniBand"}.get(self.intent["gpu_fabric_fabric"], "")
        if wanted:
            pool = [hca for hca in pool if self.layer(hca) in (wanted, "")]
        if not pool:
            return [], "high", ""
        near = [hca for hca in pool if self.affinity.near(hca)]
        if near:
            return self._by_distance(near, pool)
        return self._by_group(pool)

    def _fastest(self, hcas: list[Hca]) -> list[Hca]:
        rates = [rate for rate in (self.rates[hca.name] for hca in hcas) if rate]
        top = max(rates) if rates else None
        # a device whose rate is not known may well be a rail: only a known lower rate rules one out
        return [hca for hca in hcas if self.rates[hca.name] in (top, None)]

    def _fits(self, count: int) -> bool:
        gpus = len(self.machine.gpus)
        return bool(count and gpus and (count % gpus == 0 or gpus % count == 0))

    def _by_distance(self, near: list[Hca], pool: list[Hca]) -> tuple[list[Hca], str, str]:
        chosen, confidence = self._fastest(near), "high"
        chosen, layer_confidence = self._one_layer(chosen)
        if layer_confidence == "low":
            return chosen, "low", "near GPUs"
        if not self._fits(len(chosen)):
            narrowed = self._one_model(chosen)
            if narrowed:
                chosen, confidence = narrowed, "medium"
        chosen = chosen + self._orphans(chosen, pool)
        confidence = min(confidence, layer_confidence, key=CONFIDENCE.index)
        if not self._fits(len(chosen)):
            expected = self.intent["gpu_fabric_expected_rails"]
            confidence = "high" if expected == len(chosen) else "medium"
            if len(chosen) > len(self.machine.gpus):
                confidence = "low"
        return chosen, confidence, "reaches its GPU below the host bridge"

    def _one_layer(self, hcas: list[Hca]) -> tuple[list[Hca], str]:
        counted = collections.Counter(self.layer(hca) for hca in hcas if self.layer(hca))
        if len(counted) < 2:
            return hcas, "high"
        (first, most), (second, next_most) = counted.most_common(2)
        evidence = [f"{hca.name} port 1: {self.layer(hca)}" for hca in hcas]
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
            return hcas, "low"
        kept = [hca for hca in hcas if self.layer(hca) in (first, "")]
        models = {hca.model for hca in kept}
        strays = [hca for hca in hcas if self.layer(hca) not in (first, "") and hca.model in models]
        if not strays:
            return kept, "high"
        for hca in strays:
            self.settle(
                hca, "unused", f"{self.layer(hca)} port among {first} rails of the same model {hca.model}", "low"
            )
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

    def _one_model(self, hcas: list[Hca]) -> list[Hca]:
        """The one model whose count fits the GPUs and that reaches the most of them; [] when none or several do."""
        groups: dict[str, list[Hca]] = {}
        for hca in hcas:
            groups.setdefault(hca.model, []).append(hca)
        fitting = [group for group in groups.values() if self._fits(len(group))]
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
        like = {(hca.model, self.layer(hca)) for hca in chosen}
        found = []
        for hca in pool:
            function = self.machine.function(hca.pci)
            if hca in chosen or (hca.model, self.layer(hca)) not in like or not hca.model:
                continue
            if len(function.upstream) in depth and len(function.upstream) > 1 and not self.affinity.near(hca):
                found.append(hca)
        return found

    def _by_group(self, pool: list[Hca]) -> tuple[list[Hca], str, str]:
        """No PCIe switch to go by: the fastest group of like devices whose count suits the GPUs."""
        fastest, layer_confidence = self._one_layer(self._fastest(pool))
        if layer_confidence == "low":
            return fastest, "low", "fastest devices"
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

    # -- the rest -----------------------------------------------------------------------------------------------------

    def rest(self, pool: list[Hca], chosen_rate: float | None) -> None:
        in_use: list[Hca] = []
        idle: list[Hca] = []
        for hca in pool:
            netdevs = [self.machine.netdevs.get(n) for p in hca.ports for n in p.netdevs]
            configured = any(dev and dev.global_addresses for dev in netdevs)
            (in_use if hca.active or configured else idle).append(hca)
        models = {hca.model for hca in in_use if hca.model}
        cards = {hca.sys_image_guid for hca in in_use if hca.sys_image_guid}
        for hca in in_use:
            self.settle(hca, "storage", self._why_not_rail(hca, chosen_rate), "high")
        for hca in idle:
            if hca.model in models and hca.sys_image_guid not in cards and hca.sys_image_guid:
                self.settle(
                    hca, "storage", f"same model as the storage devices ({hca.model}); its port is down", "medium"
                )
            else:
                self.settle(hca, "unused", f"no link, no address; {self._why_not_rail(hca, chosen_rate)}", "high")

    def _why_not_rail(self, hca: Hca, chosen_rate: float | None) -> str:
        layer, rate = self.layer(hca), self.rates[hca.name]
        if rate and chosen_rate and rate < chosen_rate:
            return f"{rate:g} Gb/s {layer}, below the rails' {chosen_rate:g} Gb/s"
        if self.machine.gpus and not self.affinity.near(hca):
            return f"{layer or 'RDMA'} device that no GPU reaches below the host bridge"
        return f"{layer or 'RDMA'} device of another model than the rails ({hca.model or 'unknown model'})"

    def plain_netdevs(self) -> list[Verdict]:
        """Interfaces and network functions without an RDMA device."""
        covered = {hca.pci for hca in self.machine.hcas}
        named = {name for hca in self.machine.hcas for port in hca.ports for name in port.netdevs}
        found = []
        on_bus = set()
        for name in sorted(self.machine.netdevs, key=natural):
            dev = self.machine.netdevs[name]
            on_bus.add(dev.pci)
            if name in named or dev.kind not in ("physical", "bond", "vf", "other", ""):
                continue
            if dev.pci and dev.pci in covered and dev.kind != "bond":
                continue
            if name in self.managed:
                found.append(Verdict(name, dev.pci, name, "management", f"{name} {self.management_reason}", "high"))
            elif dev.kind == "bond":
                found.append(Verdict(name, dev.pci, name, "bond", f"bond of {', '.join(dev.bond_members)}", "high"))
            elif dev.kind == "vf":
                found.append(Verdict(name, dev.pci, name, "vf", "virtual function without RDMA", "high"))
            elif dev.pci:
                found.append(
                    Verdict(name, dev.pci, name, "unused", "no RDMA device, does not carry management", "high")
                )
        for bdf in sorted(self.machine.functions, key=pci_key):
            function = self.machine.functions[bdf]
            if function.is_network and bdf not in covered and bdf not in on_bus:
                if function.sw_mng:
                    verdict = ("nvswitch_bridge", "SW_MNG in its VPD: it manages the NVSwitches, hands off")
                else:
                    driver = f"driver {function.driver}" if function.driver else "no driver is bound"
                    verdict = ("unused", f"no RDMA device and no interface, {driver}")
                found.append(Verdict(bdf, bdf, "", verdict[0], verdict[1], "high"))
        return found

    # -- all of it ----------------------------------------------------------------------------------------------------

    def run(self) -> Classification:
        machine = self.machine
        pool = [hca for hca in machine.hcas if not self.inherent(hca)]
        carriers = [hca for hca in pool if self.carrier(hca)]
        pool = [hca for hca in pool if hca not in carriers]
        chosen, confidence, why = self.choose(pool)
        pool = [hca for hca in pool if hca.name not in self.verdicts]
        chosen = [hca for hca in chosen if hca.name not in self.verdicts]
        if not chosen and not self.forced_compute:
            chosen, confidence, why = self._fallback(carriers, confidence, why)
        rates = [r for r in (self.rates[hca.name] for hca in chosen + self.forced_compute) if r]
        rate = max(rates) if rates else None
        for hca in chosen:
            self.settle(hca, "compute", self._why_rail(hca, why), confidence)
        self.rest([hca for hca in pool if hca not in chosen], rate)
        compute = sorted(chosen + self.forced_compute, key=lambda hca: (pci_key(hca.pci), natural(hca.name)))
        if len({self.layer(hca) for hca in self.forced_compute} - {""}) > 1:
            self._one_layer(self.forced_compute)
        self._unused_overrides()
        if confidence == "low":
            self._ask(chosen, why)
        layers = collections.Counter(self.layer(hca) for hca in compute if self.layer(hca))
        verdicts = [self.verdicts[hca.name] for hca in machine.hcas if hca.name in self.verdicts]
        return Classification(
            verdicts=sorted(verdicts + self.plain_netdevs(), key=lambda v: (pci_key(v.pci), natural(v.name))),
            compute=compute,
            compute_ports=[(hca, port) for hca in compute for port in self._rail_ports(hca)],
            link_layer=layers.most_common(1)[0][0] if layers else "",
            rate_gbps=rate,
            confidence=confidence,
            affinity_known=self.affinity.known(compute),
            management=self.management,
            notes=self.notes,
        )

    def _why_rail(self, hca: Hca, why: str) -> str:
        rate = self.rates[hca.name]
        speed = f"{rate:g} Gb/s {self.layer(hca)}".strip() if rate else self.layer(hca)
        state = "" if hca.active else "; its port is down"
        return f"{speed}, {why}{state}".strip(", ")

    def _rail_ports(self, hca: Hca) -> list[Port | None]:
        """Ports that are rails. Of a two-port device only those that are in use or like it count."""
        if len(hca.ports) <= 1:
            return list(hca.ports) or [None]
        active = [port for port in hca.ports if port.active]
        return list(active or hca.ports[:1])

    def _fallback(self, carriers: list[Hca], confidence: str, why: str) -> tuple[list[Hca], str, str]:
        """No candidate left: software devices where asked for; a sole HCA that also carries management is a question."""
        hardware = [hca for hca in self.machine.hcas if not hca.software]
        if self.intent["gpu_fabric_fabric"] == "none":
            return [], "high", why
        if self.intent["gpu_fabric_allow_software_rdma"] and not hardware:
            soft = [
                hca
                for hca in self.machine.hcas
                if hca.software and self.verdicts[hca.name].role == "software" and hca.parent_netdev not in self.managed
            ]
            for hca in soft:
                self.verdicts.pop(hca.name)
            return soft, "high", "software RDMA, allowed by gpu_fabric_allow_software_rdma"
        if carriers and self.machine.gpus:
            names = ", ".join(hca.name for hca in carriers)
            self.notes.append(
                Note(
                    "RF-PLAN-LOW-CONFIDENCE",
                    ",".join(hca.name for hca in carriers),
                    f"{names} is the only RDMA hardware for {len(self.machine.gpus)} GPUs, but {self.management} over it "
                    f"{self.management_reason}; it is not made a rail without being told",
                    [f"{hca.name}: {self.verdicts[hca.name].reason}" for hca in carriers],
                    f"Set gpu_fabric_compute_devices: [{names}] to use it for both, or gpu_fabric_fabric: none",
                )
            )
            return [], "high", ""
        return [], confidence, why

    def _ask(self, chosen: list[Hca], why: str) -> None:
        names = ", ".join(hca.name for hca in chosen)
        self.notes.append(
            Note(
                "RF-PLAN-LOW-CONFIDENCE",
                ",".join(hca.name for hca in chosen),
                f"cannot tell which of {names or 'the devices'} are rails for {len(self.machine.gpus)} GPUs: {why}",
                [f"{h.name} {h.pci} {h.model} {self.rates[h.name] or '?'} Gb/s {self.layer(h)}" for h in chosen],
                "Name the rails in gpu_fabric_compute_devices (by RDMA device, PCI address, GUID or board id)",
            )
        )

    def _unused_overrides(self) -> None:
        netdevs = set(self.machine.netdevs)
        for variable, _role in _OVERRIDES:
            for item in self.intent[variable]:
                # a board id or name of another host's device is normal in group variables; one without any match
                # where overrides decide the rails is not
                if (variable, item) in self.used_overrides or item in netdevs:
                    continue
                if variable == "gpu_fabric_compute_devices" and not self.forced_compute and self.machine.hcas:
                    self.notes.append(
                        Note(
                            "RF-PLAN-OVERRIDE-UNMATCHED",
                            item,
                            f"{variable} names {item}, which no RDMA device of this host is",
                            [hca.name + " " + hca.pci for hca in self.machine.hcas],
                            f"Correct {variable} for this host",
                        )
                    )


def classify(
    machine: Machine, intent: t.Mapping[str, t.Any], affinity: Affinity | None = None, address: str = ""
) -> Classification:
    """Roles of all of *machine*'s network devices under *intent*; *address* is where the inventory reaches it."""
    try:
        address = str(ipaddress.ip_address(address))
    except ValueError:
        address = ""
    return _Classifier(machine, intent, affinity or Affinity(machine), address).run()
