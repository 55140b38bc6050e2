# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CPUs, memory, interrupts, PCIe and the kernel's command line: what is set where, and why; what is not, and why not.

Nothing of it is set unless the intent asks for it, by name or with a profile; only PCIe read requests are.
"""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, integer, strings, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import Affinity

CMDLINE_FILE = "/etc/default/grub.d/50-gpu-fabric.cfg"
CMDLINE_RECORD = "/var/lib/gpu_fabric/kernel_cmdline.json"
READ_REQUEST_BYTES = 4096
#: The second face of a NIC that is joined to a GPU (Direct-NIC).
DATA_DIRECT = ("15b3", "2100")
PROFILES: dict[str, dict[str, tuple[str, str]]] = {
    "none": {},
    "training": {
        "cpu_governor": ("performance", "ranks wait for the slowest CPU; frequency changes cost microseconds"),
        "transparent_hugepages": ("always", "large allocations of training jobs cost fewer page faults and TLB misses"),
        "irq_affinity": ("numa", "completions of TCP and storage traffic stay on the NIC's own NUMA node"),
        "iommu": ("passthrough", "translated addresses send peers' traffic through the host bridge"),
    },
}


class Tuning:
    """The decisions for one host; each goes into ``reasons`` or ``left_out``."""

    def __init__(
        self, intent: t.Mapping[str, t.Any], machine: Machine, rails: t.Sequence[Rail], affinity: Affinity
    ) -> None:
        self.intent, self.machine, self.rails, self.affinity = intent, machine, rails, affinity
        self.reasons: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        #: Of these, what was asked for by name.
        self.lost: dict[str, str] = {}

    def _wanted(self, name: str) -> str | None:
        """The value of an option that a profile may give."""
        value, reason = self.intent[f"gpu_fabric_{name}"], f"gpu_fabric_{name}"
        if value == "profile":
            value, reason = PROFILES[self.intent["gpu_fabric_tuning_profile"]].get(name, ("untouched", ""))
        if value == "untouched":
            return None
        self.reasons[name] = reason
        return str(value)

    def _leave_out(self, name: str, reason: str, moot: bool = False) -> None:
        """*moot*: there is nothing to do for it on this host."""
        self.reasons.pop(name, None)
        self.left_out[name] = reason
        if not moot and self.intent[f"gpu_fabric_{name}"] not in ("profile", "untouched", "auto"):
            self.lost[name] = reason

    def notes(self) -> list[Note]:
        return [
            Note(
                "RF-PLAN-TUNING",
                "",
                f"gpu_fabric_{name} is {said(self.intent[f'gpu_fabric_{name}'])} and is not set: {reason}",
                [],
                f"Take gpu_fabric_{name} out of this host's variables, or set it where the reason does not hold",
            )
            for name, reason in self.lost.items()
        ]

    def host(self) -> dict[str, t.Any]:
        """What ``nic_settings`` sets on the host as a whole."""
        if self.intent["gpu_fabric_state"] == "absent":
            return {}
        wanted: dict[str, t.Any] = {}
        for name in ("cpu_governor", "transparent_hugepages"):
            value = self._wanted(name)
            if value and self.machine.container:
                self._leave_out(name, "the host is a container and shares its kernel's CPUs and memory with others")
            elif value:
                wanted[name] = value
        bridges = self._bridges()
        if bridges:
            wanted["acs_control"] = dict.fromkeys(bridges, 0)
        return wanted

    def port(self, rail: Rail) -> dict[str, t.Any]:
        """What ``nic_settings`` sets on a rail's port beside its quality of service."""
        function = self.machine.function(rail.hca.pci)
        if rail.hca.software or not rail.hca.pci:
            return {}
        wanted: dict[str, t.Any] = {}
        size = self.intent["gpu_fabric_max_read_request"]
        if self.machine.virtual or function.physfn:
            if size not in ("auto", "untouched"):
                self._leave_out("max_read_request", "a virtual machine's function has no read request size of its own")
        elif size == "auto":
            wanted["max_read_request_bytes"] = READ_REQUEST_BYTES
            self.reasons["max_read_request"] = "fewer, larger reads fill a fast link; firmware often leaves them at 512"
        elif size != "untouched":
            wanted["max_read_request_bytes"] = int(size)
            self.reasons["max_read_request"] = "gpu_fabric_max_read_request"
        if self._wanted("irq_affinity"):
            cpus = text(mapping(mapping(self.machine.facts.get("pci")).get(rail.hca.pci)).get("local_cpulist"))
            nodes = integer(mapping(self.machine.facts.get("host")).get("numa_nodes"))
            if self.machine.container:
                self._leave_out("irq_affinity", "the host is a container; interrupts belong to its kernel")
            elif nodes == 1:
                self._leave_out("irq_affinity", "the host has one NUMA node", moot=True)
            elif not cpus or function.numa_node is None:
                self._leave_out("irq_affinity", f"the NUMA node of {rail.hca.name} is not known")
            else:
                wanted["irq_affinity"] = cpus
        return wanted

    def _bridges(self) -> list[str]:
        """Bridges above GPUs and rails that are near each other, where ACS may be cleared."""
        if self.intent["gpu_fabric_acs"] != "clear":
            return []
        machine = self.machine
        if machine.virtual:
            self._leave_out("acs", "a virtual machine needs ACS: its hypervisor isolates it with it")
        elif text(mapping(machine.facts.get("host")).get("architecture")) != "x86_64":
            self._leave_out("acs", "this platform needs ACS masks of its own; rdma_topo (rdma-core) knows them")
        elif direct_nic(machine):
            self._leave_out(
                "acs", "GPUs and NICs are joined by Direct-NIC, which needs ACS masks of its own; ask rdma_topo check"
            )
        elif self._passed_through():
            self._leave_out("acs", f"{', '.join(self._passed_through()[:4])} is given to virtual machines (vfio-pci)")
        else:
            bridges = self._between()
            if bridges:
                self.reasons["acs"] = "peers' traffic turns round below the host bridge (gpu_fabric_acs)"
            else:
                self._leave_out("acs", "no bridge with ACS lies between a GPU and a rail", moot=True)
            return bridges
        return []

    def _passed_through(self) -> list[str]:
        return [bdf for bdf, function in self.machine.functions.items() if function.driver == "vfio-pci"]

    def _between(self) -> list[str]:
        """All bridges above a GPU or a rail that share a switch, if they have ACS at all."""
        found: set[str] = set()
        for rail in self.rails:
            for gpu in self.machine.gpus:
                path = self.affinity.path(gpu.pci, rail.hca)
                if path is not None and path.near:
                    found |= {*self.machine.function(gpu.pci).upstream, *self.machine.function(rail.hca.pci).upstream}
        pci = mapping(self.machine.facts.get("pci"))
        return sorted(bdf for bdf in found if mapping(mapping(pci.get(bdf)).get("acs")).get("capable") is True)

    def cmdline(self) -> dict[str, t.Any]:
        """``plan.hosts[h].tuning.cmdline``: what ``kernel_cmdline`` adds, and whether it has to look at all."""
        tokens: list[str] = []
        if self.intent["gpu_fabric_state"] == "present":
            if self._wanted("iommu"):
                reason = self._no_passthrough()
                if reason:
                    self._leave_out("iommu", reason)
                else:
                    tokens.append("iommu=pt")
            tokens += [token for token in self.intent["gpu_fabric_kernel_cmdline"] if token not in tokens]
            if self.intent["gpu_fabric_kernel_cmdline"]:
                self.reasons["kernel_cmdline"] = "gpu_fabric_kernel_cmdline"
        if tokens and self.machine.container:
            self._leave_out("kernel_cmdline", "the host is a container; its kernel was started by another host")
            self.reasons.pop("iommu", None)
            tokens = []
        files = mapping(self.machine.facts.get("files"))
        return {"run": bool(tokens) or CMDLINE_FILE in files or CMDLINE_RECORD in files, "arguments": tokens}

    def _no_passthrough(self) -> str:
        if self.machine.virtual:
            return "a virtual machine has nothing to pass through"
        if text(mapping(self.machine.facts.get("host")).get("architecture")) != "x86_64":
            return "this platform routes GPUDirect through its IOMMU"
        given = strings(mapping(self.machine.facts.get("host")).get("cmdline"))
        off = [token for token in given if token in ("iommu=off", "intel_iommu=off", "amd_iommu=off")]
        return f"the kernel runs with {off[0]}, which translates nothing" if off else ""


def direct_nic(machine: Machine) -> bool:
    """Whether NICs and GPUs are joined beside the PCIe tree; then ACS and translation are the platform's own."""
    return any((function.vendor, function.device) == DATA_DIRECT for function in machine.functions.values())


def said(value: t.Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def for_host(
    intent: t.Mapping[str, t.Any], machine: Machine, rails: t.Sequence[Rail], affinity: Affinity
) -> tuple[dict[str, t.Any], dict[str, dict[str, t.Any]], list[Note]]:
    """``plan.hosts[h].tuning``, the settings of each rail's port by its name, and what has to be said."""
    tuning = Tuning(intent, machine, rails, affinity)
    host = tuning.host()
    ports = {rail.port_name: tuning.port(rail) for rail in rails if rail.port_name}
    planned = {
        "host": host,
        "cmdline": tuning.cmdline(),
        "reasons": tuning.reasons,
        "left_out": tuning.left_out,
    }
    return planned, ports, tuning.notes()


__all__ = ("CMDLINE_FILE", "PROFILES", "READ_REQUEST_BYTES", "Tuning", "direct_nic", "for_host")
