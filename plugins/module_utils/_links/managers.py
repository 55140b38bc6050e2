# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Which of the system's network managers keeps the links, and what it needs told. Pure."""

from __future__ import annotations

import typing as t
from types import ModuleType

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import (
    ifupdown,
    netplan,
    networkd,
    networkmanager,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import Link, LinkError

IFENSLAVE = "/etc/network/if-post-down.d/ifenslave"
DISPATCHERS = tuple(f"{parent}/NetworkManager/dispatcher.d/01-ifupdown" for parent in ("/etc", "/usr/lib"))
MARK = "# Managed by railyard.gpu_fabric; changes are overwritten.\n"


class Manager(t.NamedTuple):
    """One network manager. ``reload`` makes it read its files again without touching a running link.

    ``activate`` has it take a link as its new file says, where it would else go on with what it had found for it.
    """

    name: str
    renderer: ModuleType
    mode: int
    unit: str | None
    reload: list[list[str]]
    activate: tuple[str, ...] = ()


MANAGERS = {
    "networkmanager": Manager(
        "networkmanager",
        networkmanager,
        0o600,
        "NetworkManager.service",
        [["nmcli", "connection", "reload"]],
        ("nmcli", "--wait", "30", "connection", "up", "gpu-fabric-{netdev}"),
    ),
    "netplan": Manager("netplan", netplan, 0o600, None, [["netplan", "generate"], ["networkctl", "reload"]]),
    "networkd": Manager("networkd", networkd, 0o644, "systemd-networkd.service", [["networkctl", "reload"]]),
    "ifupdown": Manager("ifupdown", ifupdown, 0o644, "networking.service", []),
}


class System(t.NamedTuple):
    """What tells the managers apart. Units are those that are active or enabled."""

    units: frozenset[str]
    commands: frozenset[str]
    interfaces_file: str | None


def choose(system: System, asked: str = "auto") -> Manager:
    """Return the manager that owns the network of this host.

    netplan is a front end of the two others, so it wins where its command is; then the running daemon;
    then ifupdown; a host with none of them gets networkd, which systemd brings along.
    """
    if asked != "auto":
        return check(MANAGERS[asked], system)
    if "netplan" in system.commands:
        return MANAGERS["netplan"]
    if "NetworkManager.service" in system.units:
        return MANAGERS["networkmanager"]
    if "systemd-networkd.service" in system.units:
        return MANAGERS["networkd"]
    if "ifup" in system.commands:
        return check(MANAGERS["ifupdown"], system)
    if "networkctl" in system.commands:
        return MANAGERS["networkd"]
    raise LinkError(
        "No network manager found (netplan, NetworkManager, systemd-networkd, ifupdown), so addresses would be lost"
        " at reboot; install one of them"
    )


def check(manager: Manager, system: System) -> Manager:
    """Refuse a manager whose files would not be read."""
    if manager.name == "ifupdown":
        lines = [line.split() for line in (system.interfaces_file or "").splitlines()]
        if not any(words[:1] in (["source"], ["source-directory"]) and "interfaces.d" in words[-1] for words in lines):
            raise LinkError(
                "/etc/network/interfaces does not read interfaces.d, so files there have no effect;"
                " add the line 'source /etc/network/interfaces.d/*'"
            )
    return manager


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


def check_partitions(manager: Manager, system: System, links: t.Iterable[Link], systemd: int) -> None:
    """Refuse partitions that would be lost at reboot. ``systemd``: its version, 0 where it is not known."""
    names = [link.netdev for link in links if is_partition(link)]
    if not names or manager.name not in ("networkd", "netplan"):
        return
    why = ""
    if 0 < systemd < PARTITIONS_SINCE:
        why = f"systemd {systemd} makes no interfaces of InfiniBand partitions, {PARTITIONS_SINCE} and newer do"
    elif (
        manager.name == "netplan"
        and "NetworkManager.service" in system.units
        and "systemd-networkd.service" not in system.units
    ):
        why = "netplan has NetworkManager do its work here, and no word for InfiniBand partitions"
    if why:
        raise LinkError(
            f"No link was changed: {', '.join(names)} would be gone after a reboot: {why};"
            " set rdma_network_manager to networkmanager or ifupdown where the host has them"
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
        found[manager.renderer.path(link)] = MARK + manager.renderer.render(link)
        # What a bond needs besides: some managers have a file per member.
        for path, text in manager.renderer.bond_files(link).items() if link.bond else ():
            found[path] = MARK + text
        for path, text in manager.renderer.partition_files(link).items() if is_partition(link) else ():
            found[path] = MARK + text
    return found


__all__ = (
    "MANAGERS",
    "MARK",
    "Manager",
    "System",
    "activations",
    "bonds_undone",
    "check",
    "check_partitions",
    "choose",
    "files",
    "is_partition",
)
