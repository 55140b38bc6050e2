# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of the rails that follow from their PCI path alone: two files for udev, in force from the next boot on.

Interfaces get theirs from systemd's own scheme (``NamePolicy=path``), which also tells the representors of a function
apart; the names that they have now stay usable beside them. RDMA devices get a fixed name of the same form: rdma-core's
scheme would take a slot's number where the firmware gives one, and nobody could say beforehand what comes out.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, pci_key, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail

#: The first file that matches an interface decides alone, so this one comes before netplan's and the distribution's.
#: Files with "gpu-fabric-" in their names belong to fabric_links, which removes those that it does not know.
LINK_FILE = "/etc/systemd/network/10-gpu-fabric.link"
#: rdma-core's own file is replaced by one of the same name. With a second one beside it, both would rename: the later
#: one by a name that is gone, or that the kernel has given to another device meanwhile.
RULES_FILE = "/etc/udev/rules.d/60-rdma-persistent-naming.rules"
MARK = "# Managed by railyard.gpu_fabric; changes are overwritten."
_BDF = re.compile(r"^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$")
_STEM = re.compile(r"^(?:en|ib)(?:P\d+)?p\d+s\d+")
NAME_LIMIT = 15
_PREFIXES = {"Ethernet": ("en", "roce"), "InfiniBand": ("ib", "ib")}


class Device(t.NamedTuple):
    """One function of a rail: its RDMA device, and its interface where it has one of its own."""

    pci: str
    hca: str
    hca_next: str
    netdev: str
    netdev_next: str


def path_name(prefix: str, pci: str, several: bool) -> str:
    """The name of a function's device as systemd and rdma-core form it; *several*: the card has further functions."""
    match = _BDF.match(pci)
    if match is None:
        return ""
    domain, bus, slot, function = (int(part, 16) for part in match.groups())
    return f"{prefix}{f'P{domain}' if domain else ''}p{bus}s{slot}{f'f{function}' if function or several else ''}"


def is_by_path(name: str, expected: str) -> bool:
    """Whether an interface has a name by its path: what follows bus and slot is the driver's, and may have more."""
    stem = _STEM.match(expected)
    return stem is not None and re.fullmatch(rf"{stem[0]}(f\d+)?([nd]\w+)?", name) is not None


class Names:
    """The decisions for one host."""

    def __init__(
        self, intent: Mapping[str, t.Any], machine: Machine, rails: Sequence[Rail], protected: Sequence[str]
    ) -> None:
        self.machine, self.rails, self.protected = machine, rails, protected
        self.wanted = intent["gpu_fabric_stable_names"] == "by_path" and intent["gpu_fabric_state"] == "present"
        self.files = mapping(machine.facts.get("files"))
        self.left_out: dict[str, str] = {}
        self.devices = self._devices() if self.wanted else []

    def _devices(self) -> list[Device]:
        if self.machine.virtual:
            self.left_out["names"] = "a virtual machine's PCI path is its hypervisor's choice"
            return []
        found: dict[str, Device] = {}
        for rail in self.rails:
            if rail.hca.software or not rail.hca.pci or not _BDF.match(rail.hca.pci):
                continue
            dev = self.machine.netdevs.get(rail.netdev)
            members = dev.bond_members if dev and dev.kind == "bond" else ()
            if rail.netdev in self.protected or any(member in self.protected for member in members):
                # a network configuration that knows it by its old name would not bring it up again
                self.left_out[rail.hca.name] = f"{rail.netdev} carries the connection of this run"
                continue
            if self.machine.function(rail.hca.pci).physfn:
                self.left_out[rail.hca.name] = "a virtual function is named after its physical one, and comes and goes"
                continue
            for netdev in members or (rail.netdev,):
                member = self.machine.netdevs.get(netdev)
                pci = (member.pci if member else "") or rail.hca.pci
                hca = rail.hca.name if pci == rail.hca.pci else ""
                found.setdefault(pci, self._device(pci, rail.link_layer, hca, netdev))
            # a bond's RDMA device belongs to the first of the card's functions, whether or not that is a member
            found.setdefault(rail.hca.pci, self._device(rail.hca.pci, rail.link_layer, rail.hca.name, ""))
        return sorted(found.values(), key=lambda device: pci_key(device.pci))

    def _device(self, pci: str, link_layer: str, hca: str, netdev: str) -> Device:
        card = pci.rpartition(".")[0]
        # Virtual functions share bus and slot with the card, and are none of its own.
        own = [f for bdf, f in self.machine.functions.items() if bdf.rpartition(".")[0] == card and not f.physfn]
        several = len(own) > 1
        net, rdma = _PREFIXES.get(link_layer, _PREFIXES["Ethernet"])
        port = text(mapping(mapping(self.machine.facts.get("netdevs")).get(netdev)).get("port_name"))
        name = path_name(net, pci, several) + (f"n{port}" if port else "")
        if netdev and len(name) > NAME_LIMIT:
            # systemd would pass over it, and leave the interface the kernel's name (eth0).
            self.left_out[netdev] = f"{name} has {len(name)} characters, and an interface's name {NAME_LIMIT} at most"
            netdev = ""
        return Device(pci, hca, path_name(rdma, pci, several) if hca else "", netdev, name if netdev else "")

    def _renamed(self) -> list[tuple[str, str, str]]:
        """(function, name now, name from the next boot on) of what changes."""
        pairs = []
        for device in self.devices:
            if device.netdev and not is_by_path(device.netdev, device.netdev_next):
                pairs.append((device.pci, device.netdev, device.netdev_next))
            if device.hca and device.hca != device.hca_next and self._rules_are_ours():
                pairs.append((device.pci, device.hca, device.hca_next))
        return pairs

    def _rules_are_ours(self) -> bool:
        present = self.files.get(RULES_FILE)
        return not isinstance(present, str) or present.startswith(MARK)

    def as_plan(self) -> dict[str, t.Any]:
        """``plan.hosts[h].stable_names``."""
        contents = {LINK_FILE: self._link_file(), RULES_FILE: self._rules_file()}
        if self.devices and not self._rules_are_ours():
            self.left_out["rdma"] = f"{RULES_FILE} is there and not this collection's; it names the RDMA devices"
            contents[RULES_FILE] = ""
        files: list[dict[str, t.Any]] = []
        for path, content in contents.items():
            if content:
                files.append({"path": path, "content": content})
            elif str(self.files.get(path, "")).startswith(MARK):
                files.append({"path": path, "original": True})
        pending = [{"pci": pci, "now": now, "next": following} for pci, now, following in self._renamed()]
        return {"run": bool(files), "files": files, "pending": pending, "left_out": self.left_out}

    def _link_file(self) -> str:
        functions = [device.pci for device in self.devices if device.netdev]
        if not functions:
            return ""
        paths = " ".join(f"pci-{pci}" for pci in functions)
        return (
            f"{MARK}\n# In force from the next boot on. The first file that matches decides alone, so the rest is\n"
            "# as in systemd's 99-default.link: names by slot and the like stay usable beside the one by path.\n"
            f"[Match]\nPath={paths}\n\n"
            "[Link]\nNamePolicy=path\nAlternativeNamesPolicy=database onboard slot path\nMACAddressPolicy=persistent\n"
        )

    def _rules_file(self) -> str:
        named = [device for device in self.devices if device.hca]
        if not named:
            return ""
        rules = [
            f'KERNELS=="{device.pci}", PROGRAM="rdma_rename %k NAME_FIXED {device.hca_next}", GOTO="named"'
            for device in named
        ]
        return "\n".join(
            [
                MARK,
                "# In force from the next boot on, in the place of rdma-core's file of this name; its rule comes last.",
                'ACTION!="add", GOTO="named"',
                'SUBSYSTEM!="infiniband", GOTO="named"',
                *rules,
                'PROGRAM="rdma_rename %k NAME_FALLBACK"',
                'LABEL="named"',
                "",
            ]
        )

    def note(self) -> Note | None:
        """What a person has to know before the next boot."""
        pending = self._renamed()
        if not pending:
            return None
        shown = [f"{now} to {following}" for _, now, following in pending]
        return Note(
            "RF-PLAN-NAMES",
            pending[0][1],
            f"{len(pending)} names change at the next boot: {', '.join(shown[:3])}"
            + (f" and {len(shown) - 3} more" if len(shown) > 3 else ""),
            [f"{pci}: {now} to {following}" for pci, now, following in pending],
            "Drain the host, reboot it and run site.yml on it before jobs start: NCCL's list of devices, addresses and "
            "firewall go by the names that there were at the last run",
        )


__all__ = ("LINK_FILE", "MARK", "RULES_FILE", "Names", "path_name")
