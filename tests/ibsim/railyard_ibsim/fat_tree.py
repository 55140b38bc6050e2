# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rail-optimised fat-tree as cables, with faults, and its text in the form that ibsim reads.

Hosts stand in groups; each group has one leaf per rail, and every leaf is cabled to every spine.
"""

from __future__ import annotations

import dataclasses
import typing as t

# Enabled speeds and widths as ibsim's port options; a link gets what both of its ends have.
SLOW = "e=3"  # EDR at most, where HDR is usual
NARROW = "w=1"  # one lane of four
_HEADER = "extspeed=7\nspeed=7\nwidth=3\n"  # up to HDR, one lane or four

Port = tuple[str, int]  # name of a node, number of a port


@dataclasses.dataclass
class Cable:
    low: Port
    high: Port
    options: str = ""


@dataclasses.dataclass(frozen=True)
class Switch:
    name: str
    guid: int
    ports: int


class FatTree:
    """*rails* adapters in each host; *group* hosts share the leaves of a group; *spines* links lead up from each."""

    def __init__(
        self, hosts: int, rails: int, group: int = 32, spines: int | None = None, renamed: bool = True
    ) -> None:
        self.rails = rails
        self.group = group
        spines = group if spines is None else spines
        self.hosts = [f"gpu-{number + 1:04d}" for number in range(hosts)]
        groups = (hosts + group - 1) // group
        self.switches: dict[str, Switch] = {}
        for number in range(groups * rails):
            self._switch(f"leaf-{number // rails + 1}-r{number % rails}", group + spines + 1)
        for number in range(spines):
            self._switch(f"spine-{number + 1}", groups * rails + 1)
        # With *renamed* the devices of every fourth host are enumerated against the order of the rails.
        self.devices = {
            host: [f"mlx5_{rails - 1 - rail if renamed and index % 4 == 3 else rail}" for rail in range(rails)]
            for index, host in enumerate(self.hosts)
        }
        self.adapters = {
            (host, rail): 0x0C42A10300000000 + (index * rails + rail) * 0x10
            for index, host in enumerate(self.hosts)
            for rail in range(rails)
        }
        self.cables = [self._rail(index, rail) for index in range(hosts) for rail in range(rails)]
        self.cables += [
            Cable((leaf, group + spine + 1), (f"spine-{spine + 1}", number + 1))
            for number, leaf in enumerate(name for name in self.switches if name.startswith("leaf-"))
            for spine in range(spines)
        ]

    def _switch(self, name: str, ports: int) -> None:
        self.switches[name] = Switch(name, 0xB8CEF60300000000 + len(self.switches) * 0x100, ports)

    def _rail(self, index: int, rail: int) -> Cable:
        leaf = f"leaf-{index // self.group + 1}-r{rail}"
        return Cable((self.adapter(self.hosts[index], rail), 1), (leaf, index % self.group + 1))

    def adapter(self, host: str, rail: int) -> str:
        """The adapter's description, as rdma-ndd sets it."""
        return f"{host} {self.devices[host][rail]}"

    def cable(self, host: str, rail: int) -> Cable:
        return next(cable for cable in self.cables if cable.low[0] == self.adapter(host, rail))

    # Faults

    def swap(self, one: tuple[str, int], other: tuple[str, int]) -> None:
        """Exchange the switch ends of two rails' cables."""
        first, second = self.cable(*one), self.cable(*other)
        first.high, second.high = second.high, first.high

    def move(self, host: str, rail: int, to: Port) -> None:
        self.cable(host, rail).high = to

    def cut(self, host: str, rail: int) -> None:
        self.cables.remove(self.cable(host, rail))

    def cut_uplink(self, leaf: str, spine: str) -> None:
        self.cables.remove(self.uplink(leaf, spine))

    def uplink(self, leaf: str, spine: str) -> Cable:
        return next(cable for cable in self.cables if (cable.low[0], cable.high[0]) == (leaf, spine))

    # What others read

    def node_id(self, name: str) -> str:
        """The name of a node in ibsim's console and in SIM_HOST."""
        if name in self.switches:
            return f"S-{self.switches[name].guid:016x}"
        return f"H-{self._guid(name):016x}"

    def _guid(self, adapter: str) -> int:
        host, device = adapter.split(" ")
        return self.adapters[(host, self.devices[host].index(device))]

    def text(self) -> str:
        """The topology file. ibsim takes the first node as the place of the subnet manager."""
        lines: dict[str, list[str]] = {self.adapter(host, rail): [] for host, rail in self.adapters}
        lines.update({name: [] for name in self.switches})
        for cable in self.cables:
            for here, there in ((cable.low, cable.high), (cable.high, cable.low)):
                lines[here[0]].append(f'[{here[1]}]\t"{self.node_id(there[0])}"[{there[1]}] {cable.options}'.rstrip())
        records = []
        for name, ports in lines.items():
            identity = self.node_id(name)
            if name in self.switches:
                head = f"switchguid=0x{self.switches[name].guid:x}\nSwitch\t{self.switches[name].ports}"
            else:
                head = f"caguid=0x{self._guid(name):x}\nCa\t1"
            records.append("\n".join([f'{head} "{identity}"\t\t# "{name}"', *ports]))
        return _HEADER + "\n" + "\n\n".join(records) + "\n"

    def facts(self) -> dict[str, dict[str, t.Any]]:
        """What the hosts know of themselves: devices with their GUIDs, in the shape of the collected facts."""
        return {
            host: {
                "rdma_devices": {
                    self.devices[host][rail]: {
                        "node_guid": f"{self.adapters[(host, rail)]:016x}",
                        "ports": {"1": {"link_layer": "InfiniBand", "gids": [self._gid(host, rail)]}},
                    }
                    for rail in range(self.rails)
                }
            }
            for host in self.hosts
        }

    def _gid(self, host: str, rail: int) -> dict[str, t.Any]:
        guid = f"{self.adapters[(host, rail)] + 1:016x}"  # ibsim counts the ports up from the node's GUID
        words = [guid[start : start + 4] for start in range(0, 16, 4)]
        return {"index": 0, "gid": ":".join(["fe80", "0000", "0000", "0000", *words]), "type": "IB"}

    def plan(self) -> dict[str, t.Any]:
        def rail(number: int, hca: str) -> dict[str, t.Any]:
            return {"rail": number, "hca": hca, "port": 1, "link_layer": "InfiniBand"}

        return {
            "hosts": {
                host: {"rails": [rail(number, hca) for number, hca in enumerate(names)]}
                for host, names in self.devices.items()
            }
        }


__all__ = ("NARROW", "SLOW", "Cable", "FatTree", "Switch")
