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

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.choice import BELOW_HOST_BRIDGE, Chooser, link_layer
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import (
    Hca,
    Machine,
    Port,
    normal_bdf,
    normal_guid,
    pci_key,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.management import (
    CARRIES_CONNECTION,
    connection_interface,
    lower_devices,
    management_interface,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import Affinity

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
    rates: dict[str, float | None]
    confidence: str
    affinity_known: bool
    management: str
    notes: list[Note] = field(default_factory=list)
    # (variable, item) of the intent that no device of this host is
    unmatched: list[tuple[str, str]] = field(default_factory=list)


class _Classifier:
    def __init__(self, machine: Machine, intent: t.Mapping[str, t.Any], affinity: Affinity, address: str) -> None:
        self.machine = machine
        self.intent = intent
        self.affinity = affinity
        self.chooser = Chooser(machine, intent, affinity)
        self.rates = self.chooser.rates
        self.management, self.management_reason = management_interface(machine, intent, address)
        self.managed = lower_devices(machine, self.management) if self.management else set()
        # Where peers reach the host and where this run does may be two interfaces.
        self.connection = connection_interface(machine)
        self.connected = lower_devices(machine, self.connection) if self.connection else set()
        self.verdicts: dict[str, Verdict] = {}
        self.notes: list[Note] = []
        self.used_overrides: set[tuple[str, str]] = set()
        self.unmatched: list[tuple[str, str]] = []
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
        elif hca.subfunction:
            self.settle(hca, "vf", f"sub-function of {hca.pci}")
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
        if netdevs & self.connected:
            via = "" if self.connection in netdevs else f" through {self.connection}"
            self.settle(hca, "management", f"{min(netdevs & self.connected)} {CARRIES_CONNECTION}{via}")
            return True
        for name in sorted(netdevs):
            dev = self.machine.netdevs.get(name)
            master = self.machine.netdevs.get(dev.master) if dev and dev.master else None
            if dev and dev.master and (master is None or master.kind in ("bond", "bridge")):
                kind = master.kind if master else "bond"
                self.settle(hca, "bond", f"{name} is a member of {kind} {dev.master}")
                return True
        return False

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
        layer, rate = link_layer(hca), self.rates[hca.name]
        if rate and chosen_rate and rate < chosen_rate:
            return f"{rate:g} Gb/s {layer}, below the rails' {chosen_rate:g} Gb/s"
        if self.machine.gpus and not self.affinity.near(hca):
            return f"{layer or 'RDMA'} device that no GPU reaches below the host bridge"
        return f"{layer or 'RDMA'} device of another model than the rails ({hca.model or 'unknown model'})"

    def plain_netdevs(self) -> list[Verdict]:
        """Interfaces and network functions without an RDMA device."""
        covered = {hca.pci for hca in self.machine.hcas}
        named = {
            name
            for hca in self.machine.hcas
            if not hca.software or self.verdicts[hca.name].role == "compute"
            for port in hca.ports
            for name in port.netdevs
        }
        found = []
        on_bus = set()
        for name in sorted(self.machine.netdevs, key=natural):
            dev = self.machine.netdevs[name]
            on_bus.add(dev.pci)
            if name in named or (dev.kind not in ("physical", "bond", "vf", "other", "") and name != self.management):
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
        chosen, confidence, why = ([], "high", "") if self.forced_compute else self.chooser.choose(pool)
        for hca, reason in self.chooser.strays:
            self.settle(hca, "unused", reason, "low")
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
        if len({link_layer(hca) for hca in self.forced_compute} - {""}) > 1:
            self.chooser.one_layer(self.forced_compute)
        self._unused_overrides()
        if confidence == "low":
            self._ask(chosen, why)
        layers = collections.Counter(link_layer(hca) for hca in compute if link_layer(hca))
        if not self.management:
            self._only_address()
        verdicts = [self.verdicts[hca.name] for hca in machine.hcas if hca.name in self.verdicts]
        return Classification(
            verdicts=sorted(verdicts + self.plain_netdevs(), key=lambda v: (pci_key(v.pci), natural(v.name))),
            compute=compute,
            compute_ports=[(hca, port) for hca in compute for port in self._rail_ports(hca)],
            link_layer=layers.most_common(1)[0][0] if layers else "",
            rates=self.rates,
            confidence=confidence,
            affinity_known=self.affinity.known(compute),
            management=self.management,
            notes=self.notes + self.chooser.notes,
            unmatched=self.unmatched,
        )

    def _only_address(self) -> None:
        """Nothing says how the host is reached: the one interface with an address that belongs to no RDMA device."""
        taken = {name for hca in self.machine.hcas for port in hca.ports for name in port.netdevs}
        taken |= {member for name in taken for member in lower_devices(self.machine, name)}
        found = [
            dev.name
            for dev in self.machine.netdevs.values()
            if dev.global_addresses and dev.kind in ("physical", "bond", "vlan", "other", "") and dev.name not in taken
        ]
        if len(found) == 1:
            self.management, self.management_reason = found[0], "is the only other interface with an address"
            self.managed = lower_devices(self.machine, self.management)

    def _why_rail(self, hca: Hca, why: str) -> str:
        rate = self.rates[hca.name]
        speed = f"{rate:g} Gb/s {link_layer(hca)}".strip() if rate else link_layer(hca)
        if why == BELOW_HOST_BRIDGE and not self.affinity.near(hca):
            why = "same model and place in the PCIe tree as the rails; its GPU is not shown"
        state = "" if hca.active else "; its port is down"
        return f"{speed}, {why}{state}".strip(", ")

    def _rail_ports(self, hca: Hca) -> list[Port | None]:
        """Ports that are rails. Of a two-port device only those that are in use or like it count."""
        if len(hca.ports) <= 1:
            return list(hca.ports) or [None]
        active = [port for port in hca.ports if port.active]
        return list(active or hca.ports[:1])

    def _fallback(self, carriers: list[Hca], confidence: str, why: str) -> tuple[list[Hca], str, str]:
        """No candidate is left: software devices where asked for; an HCA that carries management is a question."""
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
                    f"{names} is the only RDMA hardware for {len(self.machine.gpus)} GPUs, but {self.management} over "
                    f"it {self.management_reason}; it is not made a rail without being told",
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
                [f"{h.name} {h.pci} {h.model} {self.rates[h.name] or '?'} Gb/s {link_layer(h)}" for h in chosen],
                "Name the rails in gpu_fabric_compute_devices (by RDMA device, PCI address, GUID or board id)",
            )
        )

    def _unused_overrides(self) -> None:
        netdevs = set(self.machine.netdevs)
        for variable, _role in _OVERRIDES:
            for item in self.intent[variable]:
                # a board id or name of another host's device is normal in group variables; one without any match
                # where overrides decide the rails is not, nor is one that no host of the rack has (plan.py)
                if (variable, item) in self.used_overrides or item in netdevs:
                    continue
                if normal_bdf(item) not in self.machine.functions:
                    self.unmatched.append((variable, item))
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
