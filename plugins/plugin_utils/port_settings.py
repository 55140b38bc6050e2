# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rings, channels, speed, negotiation and FEC of the rails' Ethernet ports, as far as the intent asks for any of them.

A card that cannot have what is asked for is refused with what it can have, before anything is changed on any host.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cpus import cpu_set
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import FEC_OF_SPEED, Problem
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, integer, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import some
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.rails import Rail

RINGS, CHANNELS = "gpu_fabric_rings", "gpu_fabric_channels"
SPEED, AUTONEG, FEC = "gpu_fabric_link_speed_gbps", "gpu_fabric_link_autoneg", "gpu_fabric_link_fec"
#: What belongs to the port as a whole, not to a function of it.
LINK = (SPEED, AUTONEG, FEC)
Settings = dict[str, t.Any]


class Ends(t.NamedTuple):
    """One port of a rail: the rail's own interface, or a member of its bond."""

    rail: Rail
    netdev: str
    pci: str
    facts: Mapping[str, t.Any]


class PortSettings:
    """The decisions for one host; each goes into ``reasons`` or ``left_out``."""

    def __init__(
        self, intent: Mapping[str, t.Any], machine: Machine, rails: Sequence[Rail], protected: Sequence[str]
    ) -> None:
        self.intent, self.machine, self.rails, self.protected = intent, machine, rails, protected
        self.reasons: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.ends = self._ends()
        #: What ``nic_settings`` sets, by interface.
        self.ports = self._ports()

    @property
    def wanted(self) -> list[str]:
        return [name for name in (RINGS, CHANNELS, *LINK) if self.intent[name] not in ("untouched", None)]

    def _ends(self) -> list[Ends]:
        """The ports that may be set up at all."""
        found = []
        for rail in self.rails if self.wanted else ():
            if rail.hca.software or not rail.netdev:
                continue
            if rail.link_layer != "Ethernet":
                self._leave_out(self.wanted, "an InfiniBand port has its speed from the subnet manager")
                continue
            dev = self.machine.netdevs.get(rail.netdev)
            for netdev in dev.bond_members if dev and dev.kind == "bond" else (rail.netdev,):
                member = self.machine.netdevs.get(netdev)
                if netdev in self.protected:
                    self._leave_out(self.wanted, f"{netdev} carries the connection of this run")
                    continue
                facts = mapping(mapping(self.machine.facts.get("netdevs")).get(netdev))
                found.append(Ends(rail, netdev, (member.pci if member else "") or rail.hca.pci, facts))
        return found

    def _leave_out(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            self.left_out.setdefault(name.removeprefix("gpu_fabric_"), reason)

    def _owns_link(self, end: Ends) -> bool:
        if not self.machine.virtual and not self.machine.function(end.pci).physfn:
            return True
        names = [name for name in LINK if name in self.wanted]
        self._leave_out(names, f"{end.netdev} is a virtual function; its port is set where the physical one is")
        return False

    def _ports(self) -> dict[str, Settings]:
        found = {}
        for end in self.ends:
            settings: Settings = {}
            if self._owns_link(end):
                settings |= self._link()
            channels = self._channels(end)
            settings |= {"channels": channels} if channels else {}
            # "max" is left to the host: a port that did not answer this time must not lose what it was given before
            settings |= {"rings": self.intent[RINGS]} if RINGS in self.wanted else {}
            if settings:
                found[end.netdev] = settings
        for name in self.wanted:
            short = name.removeprefix("gpu_fabric_")
            if found and short not in self.left_out:
                self.reasons[short] = name
        return found

    def _link(self) -> Settings:
        speed, autoneg, fec = (self.intent[name] for name in LINK)
        link = {"speed_gbps": speed, "autoneg": autoneg}
        link = {key: value for key, value in link.items() if value is not None}
        return {**({"link": link} if link else {}), **({"fec": fec} if fec != "untouched" else {})}

    def _channels(self, end: Ends) -> int | None:
        wanted = self.intent[CHANNELS]
        if wanted == "untouched":
            return None
        if wanted != "auto":
            return int(wanted)
        most = integer(mapping(end.facts.get("channels")).get("combined_max"))
        cpus = len(cpu_set(text(mapping(mapping(self.machine.facts.get("pci")).get(end.pci)).get("local_cpulist"))))
        node = self.machine.function(end.pci).numa_node
        if not cpus or node is None:
            self._leave_out([CHANNELS], f"the CPUs near {end.netdev} are not known")
            return None
        near = sum(self.machine.function(other.pci).numa_node == node for other in self.ends)
        return max(1, min(most or cpus, cpus // near))

    def problems(self) -> list[Problem]:
        """What the host's ports cannot have."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for end in self.ends:
            for variable, message, allowed in self._refusals(end):
                found.setdefault((variable, message, allowed), []).append(end.netdev)
        return [
            Problem(variable, f"{message} ({some(names)})", allowed)
            for (variable, message, allowed), names in found.items()
        ]

    def _refusals(self, end: Ends) -> t.Iterator[tuple[str, str, str]]:
        rings, channels = self.intent[RINGS], self.intent[CHANNELS]
        numbers = mapping(end.facts.get("rings"))
        for side, size in rings.items() if isinstance(rings, dict) else ():
            most = integer(numbers.get(f"{side}_max"))
            if most and size > most:
                yield RINGS, f"{side} {size} is more than the device has", f"at most {side} {most}, or max"
        most = integer(mapping(end.facts.get("channels")).get("combined_max"))
        if isinstance(channels, int) and most and channels > most:
            yield CHANNELS, f"{channels} is more than the device has", f"at most {most}, or auto"
        if self._owns_link(end):
            yield from self._link_refusals(end)

    def _link_refusals(self, end: Ends) -> t.Iterator[tuple[str, str, str]]:
        speed, _autoneg, fec = (self.intent[name] for name in LINK)
        # What the port supports counts; a rail that was set to a lower speed before must find its way back.
        supported = mapping(end.facts.get("link_mode")).get("supported_gbps")
        nominal = end.rail.nominal_gbps
        speeds = supported if isinstance(supported, list) and supported else None
        if speeds is None and nominal:
            speeds = [known for known in FEC_OF_SPEED if known <= nominal]
        if speed and speeds is not None and speed not in speeds:
            yield SPEED, f"{speed} is no speed of the port", f"{', '.join(map(str, speeds))}, or none at all"
        allowed = FEC_OF_SPEED.get(int(nominal)) if nominal and not speed else None
        if allowed and fec not in ("untouched", *allowed):
            yield FEC, f"{fec} is not used at the port's {nominal:g} Gb/s", f"{', '.join(allowed)} at that speed"


def forced_gbps(intent: Mapping[str, t.Any], machine: Machine, rail: Rail) -> float | None:
    """The rate that a rail is given; thresholds follow it."""
    speed = intent[SPEED]
    own = rail.link_layer == "Ethernet" and not rail.hca.software
    return float(speed) if speed and own and not machine.virtual and not machine.function(rail.hca.pci).physfn else None


def cost(netdev: str, facts: Mapping[str, t.Any], settings: Settings) -> tuple[str, str]:
    """What bringing a port to its settings costs now, as far as the facts show."""
    rings, mode = mapping(facts.get("rings")), mapping(facts.get("link_mode"))
    channels, fec = mapping(facts.get("channels")).get("combined"), mapping(facts.get("fec")).get("configured")
    changes = [
        f"{side} ring {rings[side]} to {size}"
        for side, size in ring_sizes(settings.get("rings", {}), rings).items()
        if rings.get(side) not in (None, size)
    ]
    if settings.get("channels") and channels not in (None, settings["channels"]):
        changes.append(f"channels {channels} to {settings['channels']}")
    if settings.get("fec") and fec and settings["fec"] not in fec:
        changes.append(f"FEC {' '.join(fec)} to {settings['fec']}")
    link = settings.get("link", {})
    if "autoneg" in link and mode.get("autoneg") not in (None, link["autoneg"]):
        changes.append(f"negotiation {'on' if link['autoneg'] else 'off'}")
    # A port that does not negotiate may still list all that it could offer; its rate tells what it was forced to.
    forced = mode.get("autoneg") is False and (integer(facts.get("speed_mbps")) or 0) // 1000
    offered = [forced] if forced else mode.get("advertised_gbps")
    if "speed_gbps" in link and offered and offered != [link["speed_gbps"]]:
        changes.append(f"speed to {link['speed_gbps']} Gb/s")
    return ("linkflap", f"{netdev}: {', '.join(changes)}; that interrupts the port") if changes else ("none", "")


def ring_sizes(wanted: t.Any, present: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Sizes by side; of "max" those that the facts show."""
    if wanted != "max":
        return dict(wanted)
    return {side: present[f"{side}_max"] for side in ("rx", "tx") if f"{side}_max" in present}


__all__ = ("AUTONEG", "CHANNELS", "FEC", "RINGS", "SPEED", "PortSettings", "cost", "forced_gbps", "ring_sizes")
