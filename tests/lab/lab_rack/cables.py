# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables and switches: a bridge per network, a veth per interface.

The management bridge stands in the controller's own network namespace, where Ansible connects from. The rails'
switches stand in a namespace of their own, so that neither the controller's firewall nor its routes see them, and they
carry jumbo frames; an interface of a node starts with 1500 bytes like any new one.
A node's namespace dies with its container, and its cables with it, hence `plug` runs at every boot: three `ip -batch`.
"""

from __future__ import annotations

import ipaddress
import subprocess
from typing import Any

SWITCH_MTU = 9216
# The network of all InfiniBand ports, and what a new interface of ib_ipoib has on a fabric of 4096 bytes.
INFINIBAND, INFINIBAND_MTU = "infiniband", 4092


class CableError(RuntimeError):
    """`ip` refused; the message carries its words."""


def ip(arguments: list[str], batch: str = "", *, force: bool = False) -> str:
    """Run `ip` (with a batch on its standard input where given). `force`: go on after lines that fail."""
    argv = ["ip", *arguments]
    if batch:
        argv += [*(["-force"] if force else []), "-batch", "-"]
    done = subprocess.run(argv, input=batch, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not force:
        raise CableError(f"{' '.join(argv)} exited with {done.returncode}: {done.stderr.strip()}\n{batch}".rstrip())
    return done.stdout


def switch_port(node_index: int, nic_index: int) -> str:
    return f"n{node_index:02d}p{nic_index:02d}"


def networks(rack: dict[str, Any]) -> list[str]:
    """The fabric's networks in order of first use."""
    found = {nic["network"]: None for node in rack["nodes"] for nic in node["nics"] if nic["network"] != "management"}
    return list(found)


def bridge_of(rack: dict[str, Any], network: str) -> str:
    return f"sw{networks(rack).index(network)}"


def switches_up(rack: dict[str, Any]) -> str:
    """Batch for the fabric's namespace: one bridge per network, named in its alias."""
    lines = ["link set lo up"]
    for network in networks(rack):
        bridge = bridge_of(rack, network)
        lines += [
            f"link add {bridge} mtu {SWITCH_MTU} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            f"link set {bridge} alias {network} up",
        ]
    return "\n".join(lines) + "\n"


def management_up(bridge: str, subnet: str, alias: str) -> str:
    """Batch for the controller's namespace; the alias comes first, so that no address is without its owner."""
    network = ipaddress.IPv4Network(subnet)
    return (
        f"link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
        f'link set {bridge} alias "{alias}"\n'
        f"address add {network[1]}/{network.prefixlen} dev {bridge}\n"
        f"link set {bridge} up\n"
    )


def plug_management(rack: dict[str, Any], node_index: int, pid: int) -> str:
    """Batch for the controller's namespace."""
    nic = rack["nodes"][node_index]["nics"][0]
    port = f"{rack['bridge'].split('-')[0]}-{switch_port(node_index, 0)}"
    return (
        f"link add {port} type veth peer name {nic['name']} address {nic['mac']} netns {pid}\n"
        f"link set {port} master {rack['bridge']} up\n"
    )


def plug_fabric(rack: dict[str, Any], node_index: int, pid: int) -> str:
    """Batch for the fabric's namespace."""
    lines = []
    for index, nic in enumerate(rack["nodes"][node_index]["nics"][1:], start=1):
        port = switch_port(node_index, index)
        mtu = f" mtu {INFINIBAND_MTU}" if nic["network"] == INFINIBAND else ""
        lines += [
            f"link add {port} mtu {SWITCH_MTU} type veth peer name {nic['name']}{mtu} address {nic['mac']} netns {pid}",
            f"link set {port} master {bridge_of(rack, nic['network'])} up",
        ]
    return "\n".join(lines) + "\n"


def raise_links(rack: dict[str, Any], node_index: int) -> str:
    """Batch for the node's namespace: links up, no address. IP over InfiniBand is for its host to bring up."""
    names = ["lo", *(nic["name"] for nic in rack["nodes"][node_index]["nics"] if nic["network"] != INFINIBAND)]
    return "".join(f"link set {name} up\n" for name in names)


def unplug(rack: dict[str, Any], node_index: int) -> None:
    """Remove what an earlier boot left on the switch side (namespaces die with a delay)."""
    port = f"{rack['bridge'].split('-')[0]}-{switch_port(node_index, 0)}"
    ip([], f"link del {port}\n", force=True)
    count = len(rack["nodes"][node_index]["nics"])
    ip(["-n", rack["fabric_netns"]], "".join(f"link del {switch_port(node_index, i)}\n" for i in range(1, count)),
       force=True)  # fmt: skip


def plug(rack: dict[str, Any], node_index: int, pid: int) -> None:
    """Connect a node that has just booted as process `pid`."""
    unplug(rack, node_index)
    ip([], plug_management(rack, node_index, pid))
    if len(rack["nodes"][node_index]["nics"]) > 1:
        ip(["-n", rack["fabric_netns"]], plug_fabric(rack, node_index, pid))
    argv = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"]
    done = subprocess.run(argv, input=raise_links(rack, node_index), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CableError(f"{rack['nodes'][node_index]['name']}: {' '.join(argv)}: {done.stderr.strip()}")


def build(rack: dict[str, Any]) -> None:
    """The fabric's switches; the management network is there since the rack was claimed."""
    ip([], f"netns del {rack['fabric_netns']}\n", force=True)
    ip(["netns", "add", rack["fabric_netns"]])
    ip(["-n", rack["fabric_netns"]], switches_up(rack))


def remove(bridge: str, fabric_netns: str) -> bool:
    """The switches of a rack, its management network last: as long as that is there, the rack can be found."""
    namespaces = [line.split()[0] for line in ip(["netns", "list"]).splitlines() if line.split()]
    there = subprocess.run(["ip", "link", "show", bridge], capture_output=True, check=False).returncode == 0
    ip([], f"netns del {fabric_netns}\nlink del {bridge}\n", force=True)
    return there or fabric_netns in namespaces


def present(rack: dict[str, Any]) -> bool:
    """Whether the rack's switches stand, with every network that the rack describes."""
    here = subprocess.run(["ip", "link", "show", rack["bridge"]], capture_output=True, check=False)
    wanted = len(networks(rack))
    there = subprocess.run(["ip", "-n", rack["fabric_netns"], "-br", "link", "show", "type", "bridge"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return here.returncode == 0 and there.returncode == 0 and len(there.stdout.splitlines()) == wanted


def switch_carrier(rack: dict[str, Any], node: str, nics: list[str], *, up: bool) -> bool:
    """Switch the far end of a node's interfaces on or off: the node loses or regains carrier."""
    names = [n["name"] for n in rack["nodes"]]
    if node not in names:
        raise CableError(f"The rack has no node {node}; it has {', '.join(names)}.")
    index = names.index(node)
    own = [nic["name"] for nic in rack["nodes"][index]["nics"]]
    changed = False
    for nic in nics:
        if nic not in own[1:]:
            raise CableError(f"{node} has no cable at {nic}; it has {', '.join(own[1:])}.")
        port = switch_port(index, own.index(nic))
        flags = ip(["-n", rack["fabric_netns"], "-br", "link", "show", port]).split("<")[-1]
        if ("UP" in flags.split(">")[0].split(",")) != up:
            ip(["-n", rack["fabric_netns"], "link", "set", port, "up" if up else "down"])
            changed = True
    return changed
