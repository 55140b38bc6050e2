# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Which of the system's network managers keeps the links, and what it needs told. Pure."""

from __future__ import annotations

import typing as t
from types import ModuleType

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import HEADER
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import (
    ifupdown,
    netplan,
    networkd,
    networkmanager,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, LinkError

IFENSLAVE = "/etc/network/if-post-down.d/ifenslave"
DISPATCHERS = tuple(f"{parent}/NetworkManager/dispatcher.d/01-ifupdown" for parent in ("/etc", "/usr/lib"))


class Manager(t.NamedTuple):
    """One network manager. ``reload`` makes it read its files again without touching a running link.

    ``validate`` says whether it takes its files, before anything else is done. ``activate`` has it take a link as its
    new file says, where it would else go on with what it had found for it. ``network_file`` is the name of the file by
    which systemd-networkd sets a link up, where it is that which does.
    """

    name: str
    renderer: ModuleType
    mode: int
    unit: str | None
    reload: list[list[str]]
    activate: tuple[str, ...] = ()
    validate: tuple[str, ...] = ()
    network_file: str | None = None


NETWORKMANAGER, NETWORKD = "NetworkManager.service", "systemd-networkd.service"
MANAGERS = {
    "networkmanager": Manager(
        "networkmanager",
        networkmanager,
        0o600,
        NETWORKMANAGER,
        [["nmcli", "connection", "reload"]],
        activate=("nmcli", "--wait", "30", "connection", "up", "gpu-fabric-{netdev}"),
    ),
    "netplan": Manager(
        "netplan",
        netplan,
        0o600,
        None,
        [["networkctl", "reload"]],
        validate=("netplan", "generate"),
        network_file="10-netplan-{netdev}.network",
    ),
    "networkd": Manager(
        "networkd",
        networkd,
        0o644,
        NETWORKD,
        [["networkctl", "reload"]],
        network_file=f"{networkd.PREFIX}{{netdev}}.network",
    ),
    "ifupdown": Manager("ifupdown", ifupdown, 0o644, "networking.service", []),
}


class System(t.NamedTuple):
    """What tells the managers apart. Units are those that are active or enabled; ``running``: active.

    ``netplan``: whether it has files; the command alone may just be installed. ``unmanaged``: what NetworkManager
    leaves alone, because it was told to.
    """

    units: frozenset[str]
    commands: frozenset[str]
    interfaces_file: str | None
    running: frozenset[str] = frozenset()
    netplan: bool = True
    unmanaged: frozenset[str] = frozenset()


def choose(system: System, asked: str = "auto", links: t.Collection[Link] = ()) -> Manager:
    """Return the manager that owns the network of this host, and can keep these links.

    netplan is a front end of the two others, so it wins where it has files, unless it only hands all of them to
    NetworkManager; then the running daemon; then ifupdown; a host with none of them gets networkd, which systemd
    brings along. NetworkManager is passed over where it leaves a link alone and another manager is there.
    """
    if asked != "auto":
        return check(MANAGERS[asked], system, links)
    found = []
    if "netplan" in system.commands and system.netplan and not hands_over(system):
        found.append("netplan")
    if NETWORKMANAGER in system.units:
        found.append("networkmanager")
    if NETWORKD in system.units:
        found.append("networkd")
    if "ifup" in system.commands:
        found.append("ifupdown")
    if not found and "networkctl" in system.commands:
        found.append("networkd")
    if found[:1] == ["networkmanager"] and found[1:] and left_alone(system, links):
        found.pop(0)
    if found:
        return check(MANAGERS[found[0]], system, links)
    raise LinkError(
        "No network manager found (netplan, NetworkManager, systemd-networkd, ifupdown), so addresses would be lost"
        " at reboot; install one of them"
    )


def hands_over(system: System) -> bool:
    """Whether netplan has NetworkManager do its work. What is written for that in netplan's words, it refuses.

    There are none for routes on the link, nor for partitions of InfiniBand. NetworkManager's own files have them.
    """
    return NETWORKMANAGER in system.units and NETWORKD not in system.units


def left_alone(system: System, links: t.Iterable[Link]) -> list[str]:
    names = [name for link in links for name in (link.netdev, *(link.bond.members if link.bond else ()))]
    return [name for name in names if name in system.unmanaged]


def check(manager: Manager, system: System, links: t.Collection[Link]) -> Manager:
    """Refuse a manager whose files would not be read, or have no effect."""
    if manager.name == "ifupdown":
        for path in map(ifupdown.path, links):
            if not ifupdown.reads(system.interfaces_file or "", path):
                raise LinkError(
                    f"No link was changed: {ifupdown.INTERFACES} does not read {path}, which would have no effect at"
                    f" boot; add the line 'source {ifupdown.DIRECTORY}/*'"
                )
    if manager.name == "netplan" and hands_over(system):
        raise LinkError(
            "No link was changed: netplan has NetworkManager do its work on this host, and has no words for all that"
            " the links need; set rdma_network_manager to auto or networkmanager"
        )
    if manager.name == "networkmanager" and left_alone(system, links):
        raise LinkError(
            f"No link was changed: NetworkManager leaves {', '.join(left_alone(system, links))} alone (unmanaged), so"
            " that addresses would be lost at reboot; take it out of unmanaged-devices in /etc/NetworkManager/conf.d"
            " and out of /etc/network/interfaces, or set rdma_network_manager to the manager that keeps it"
        )
    return manager


def reloads(manager: Manager | None, system: System) -> list[list[str]]:
    """Return what makes a manager read its files again. One that does not run reads them when it starts."""
    needs = {"networkctl": NETWORKD, "nmcli": NETWORKMANAGER}
    return [argv for argv in (manager.reload if manager else ()) if needs[argv[0]] in system.running]


def made_by_another_connection(manager: Manager, links: t.Iterable[Link]) -> None:
    """Refuse what NetworkManager makes by a connection of somebody else: by one of ours it would be made anew."""
    for link in links:
        if manager.name == "networkmanager" and not link.bond and link.kind in netplan.SECTIONS:
            shown = ", ".join(sorted(link.addresses)) or "its MTU"
            raise LinkError(
                f"No link was changed: {link.netdev} is a {link.kind}, which NetworkManager makes by one connection,"
                f" and that is somebody else's; give that one {shown} (nmcli connection modify), and keep this"
                " collection from the host's links with rdma_manage_links: false"
            )


def bonds_undone(manager: Manager, links: t.Iterable[Link], exists: t.Callable[[str], bool]) -> None:
    """Refuse bonds of NetworkManager on a host where the hooks of ifenslave would delete them.

    NetworkManager tells the hooks of ifupdown when a connection goes down, and goes down it does when it is made anew:
    the hook then takes the new bond for the old one.
    """
    bonds = [link.netdev for link in links if link.bond]
    caller = next((path for path in DISPATCHERS if exists(path)), None)
    if manager.name == "networkmanager" and bonds and caller and exists(IFENSLAVE):
        raise LinkError(
            f"No link was changed: NetworkManager runs {IFENSLAVE} (by {caller}), which deletes"
            f" {' and '.join(bonds)} whenever a connection is made anew; remove the package ifenslave,"
            " which NetworkManager does not need"
        )


def is_partition(link: Link) -> bool:
    return link.ipoib is not None and link.ipoib.parent is not None


# Since this version systemd-networkd makes interfaces of InfiniBand partitions.
PARTITIONS_SINCE = 250


def check_partitions(manager: Manager, links: t.Iterable[Link], systemd: int) -> None:
    """Refuse partitions that would be lost at reboot. ``systemd``: its version, 0 where it is not known."""
    names = [link.netdev for link in links if is_partition(link)]
    if names and manager.network_file and 0 < systemd < PARTITIONS_SINCE:
        raise LinkError(
            f"No link was changed: {', '.join(names)} would be gone after a reboot: systemd {systemd} makes no"
            f" interfaces of InfiniBand partitions, {PARTITIONS_SINCE} and newer do; set rdma_network_manager to"
            " networkmanager or ifupdown where the host has them"
        )


def activations(manager: Manager, links: t.Iterable[Link], written: t.Container[str]) -> list[list[str]]:
    """Return the commands that bring the links with a new file under the manager's care."""
    return [
        [word.format(netdev=link.netdev) for word in manager.activate]
        for link in links
        if manager.activate and manager.renderer.path(link) in written
    ]


def files(manager: Manager, links: t.Iterable[Link]) -> dict[str, str]:
    """Return the content of every file by its path."""
    found = {}
    for link in links:
        found[manager.renderer.path(link)] = HEADER + manager.renderer.render(link)
        # What a bond needs besides: some managers have a file per member.
        for path, text in manager.renderer.bond_files(link).items() if link.bond else ():
            found[path] = HEADER + text
        for path, text in manager.renderer.partition_files(link).items() if is_partition(link) else ():
            found[path] = HEADER + text
    return found


__all__ = (
    "MANAGERS",
    "Manager",
    "System",
    "activations",
    "bonds_undone",
    "check",
    "check_partitions",
    "choose",
    "files",
    "hands_over",
    "is_partition",
    "made_by_another_connection",
    "reloads",
)
