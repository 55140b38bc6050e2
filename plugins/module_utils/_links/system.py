# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What runs the host's network, and files of somebody else that stand in the way of ours."""

from __future__ import annotations

import glob
import ipaddress
import os
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import ifupdown, managers
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, LinkError

GENERATED = "/run/systemd/network"
SYS, NETIF = "/sys", "/run/systemd/netif/links"
PUNCTUATION = str.maketrans(":\"',{}[]", "        ")


def read_system(cli: Cli) -> managers.System:
    names = [manager.unit for manager in managers.MANAGERS.values() if manager.unit]
    # is-enabled of several units stops at the first that is not installed.
    answer = cli.run(["systemctl", "show", "--property=Id,ActiveState,UnitFileState", *names], check=False).stdout
    states = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in answer.split("\n\n")]
    running = {state.get("Id", "") for state in states if state.get("ActiveState") == "active"}
    enabled = {state.get("Id", "") for state in states if state.get("UnitFileState") == "enabled"}
    unmanaged = ""
    if "NetworkManager.service" in running and cli.which("nmcli"):
        unmanaged = cli.run(["nmcli", "--terse", "--fields", "DEVICE,STATE", "device"], check=False).stdout
    return managers.System(
        units=frozenset(running | enabled),
        commands=frozenset(name for name in ("netplan", "nmcli", "networkctl", "ifup") if cli.which(name)),
        interfaces_file=read_text("/etc/network/interfaces"),
        running=frozenset(running),
        netplan=any(glob.glob(f"{directory}/netplan/*.yaml") for directory in ("/etc", "/run", "/lib")),
        unmanaged=frozenset(
            line.rpartition(":")[0].replace("\\", "") for line in unmanaged.splitlines() if line.endswith(":unmanaged")
        ),
    )


def claimed(links: t.Iterable[Link], manager: managers.Manager, system: managers.System) -> None:
    """Refuse links whose addresses would not be what they shall: netplan and ifupdown add up all files."""
    if manager.name == "netplan":
        patterns = [f"{directory}/*.yaml" for directory in (manager.renderer.DIRECTORY, "/run/netplan", "/lib/netplan")]
    elif manager.name == "ifupdown":
        patterns = [ifupdown.INTERFACES, *ifupdown.patterns(system.interfaces_file or "")]
    else:
        return
    paths = [path for pattern in patterns for path in sorted(glob.glob(pattern)) if os.path.isfile(path)]
    texts = {path: read_text(path) or "" for path in paths}
    lines = {
        path: [line.partition("#")[0].translate(PUNCTUATION).split() for line in text.splitlines()]
        for path, text in texts.items()
        if not text.startswith(managers.HEADER)
    }
    for link in links:
        for path, words in lines.items():
            if link.management and any(link.netdev in line for line in words):
                raise LinkError(
                    f"No link was changed: {path} sets up {link.netdev}, and {manager.name} would add its addresses to"
                    " those of gpu_fabric_management_link; take the interface out of that file first"
                )
            if manager.name == "ifupdown" and ["iface", link.netdev, "inet", "dhcp"] in words:
                raise LinkError(
                    f"No link was changed: {path} has {link.netdev} ask a DHCP server, and without an answer ifupdown"
                    " does not bring it up at boot; take the interface out of that file first"
                )


def networkd_state(netdev: str) -> dict[str, str]:
    """What systemd-networkd says of an interface; nothing of one that it does not set up."""
    index = (read_text(f"{SYS}/class/net/{netdev}/ifindex") or "").strip()
    state = read_text(f"{NETIF}/{index}") if index else None
    return dict(line.split("=", 1) for line in (state or "").splitlines() if "=" in line)


def name_servers(cli: Cli, manager: managers.Manager, netdev: str) -> tuple[str, ...]:
    """The name servers that an interface has from its manager, which would lose them with its file."""
    words: list[str] = []
    if manager.network_file:
        # Each with a port and the name of its certificate, where it has them.
        words = [word.partition("#")[0] for word in networkd_state(netdev).get("DNS", "").split()]
        words = [word[1:].partition("]")[0] if word.startswith("[") else word for word in words]
        words = [word.partition(":")[0] if word.count(":") == 1 else word for word in words]
    elif manager.name == "networkmanager":
        argv = ["nmcli", "--get-values", "IP4.DNS,IP6.DNS", "device", "show", netdev]
        words = cli.run(argv, check=False).stdout.replace("\\", "").replace("|", " ").split()
    return tuple(dict.fromkeys(word for word in words if is_address(word)))


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def shadowed(links: t.Iterable[Link], manager: managers.Manager) -> None:
    """Refuse links for which systemd-networkd takes, and would go on to take, a file of somebody else."""
    if manager.network_file is None:
        return
    for link in links:
        for netdev in (link.netdev, *(link.bond.members if link.bond else ())):
            found = networkd_state(netdev).get("NETWORK_FILE", "")
            ours = manager.network_file.format(netdev=netdev)
            if found and os.path.basename(found) < ours and "gpu-fabric-" not in found:
                raise LinkError(
                    f"No link was changed: {netdev} is set up by {found}, and systemd-networkd takes the first file"
                    f" that matches an interface, so that {ours} would have no effect at boot; leave {netdev} out of"
                    " the [Match] of that file (with netplan: out of that definition), or have its name sort later"
                )


def overridden(links: t.Iterable[Link], manager: managers.Manager) -> None:
    """Refuse what netplan has made of our files where one that it reads after them says otherwise."""
    for link in links if manager.name == "netplan" and manager.network_file else ():
        path = f"{GENERATED}/{(manager.network_file or '').format(netdev=link.netdev)}"
        found = [line[9:] for line in (read_text(path) or "").splitlines() if line.startswith("MTUBytes=")]
        if link.mtu is not None and found and found[-1] != str(link.mtu):
            raise LinkError(
                f"{link.netdev} would have an MTU of {found[-1]} at boot, wanted {link.mtu}: a file of"
                f" {manager.renderer.DIRECTORY} that is read after {os.path.basename(manager.renderer.path(link))} says"
                " so; take mtu out of it"
            )


def systemd_version(cli: Cli, links: t.Iterable[Link]) -> int:
    """The version of systemd, where a link asks for something that not every one has; else 0."""
    if not any(managers.is_partition(link) for link in links):
        return 0
    words = cli.run(["systemctl", "--version"], check=False).stdout.split()
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0


__all__ = ("claimed", "name_servers", "overridden", "read_system", "shadowed", "systemd_version")
