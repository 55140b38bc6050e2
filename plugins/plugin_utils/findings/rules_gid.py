# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GID tables of RoCE ports."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    Port,
    RackView,
    dicts,
    mapping,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import parse
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_env import gid_kind

GID_INDEX = define(
    "roce",
    "RF-ROCE-GID-INDEX",
    title="A forced GID index is not a routable RoCE v2 address",
    severity="fail",
    phase="preflight",
    means="NCCL_IB_GID_INDEX in /etc/nccl.conf selects a link-local, RoCE v1 or empty entry on this device: queue "
    "pairs time out or are unreachable.",
    looks_at="The device's GID table at that index.",
    cause="Index 3 was copied; it is right only where one link-local and one IPv4 address exist.",
    remedy="Remove the variable: NCCL 2.21 and later choose by themselves (site.yml --tags nccl writes the file anew).",
    check="show_gids: the index is v2 with the rail's address on every device.",
    source="https://github.com/NVIDIA/nccl/issues/769",
    mended_by="nccl",
)

NO_ADDRESS = define(
    "roce",
    "RF-ROCE-NO-ADDRESS",
    title="A rail has no IP address",
    severity="fail",
    phase="verify",
    means="RoCE v2 travels in IP: without an address of its own the port has link-local GIDs only, which no peer "
    "behind a router reaches and which NCCL does not choose.",
    looks_at="Addresses and GIDs of active Ethernet rails: reported where other rails of the rack have an address, in "
    "a recording also for a port whose GIDs are all link-local.",
    cause="The network manager's file of the interface is missing or names another interface, or its start was too "
    "early for the link.",
    remedy="Run site.yml --tags rdma, which makes the rails' addresses persistent; or add the address to the "
    "interface's file and bring it up.",
    check="ip -br addr shows the address; show_gids lists a v2 entry with it.",
    source="RoCE v2 annex; address checks of oracle-quickstart/oci-hpc",
    mended_by="rdma",
)

NO_GID = define(
    "roce",
    "RF-ROCE-NO-GID",
    title="A rail's address has no RoCE v2 GID",
    severity="fail",
    phase="verify",
    means="The interface has its address and the adapter's GID table has no entry for it, so NCCL cannot use the rail "
    "although port and address are up.",
    looks_at="GID tables of active RoCE rails whose interface has a routable address.",
    cause="The address was added while the RDMA device was being set up, the interface is in another network "
    "namespace, or RoCE v2 is off on the card.",
    remedy="Take the address away and add it again (ip addr del, ip addr add) on the drained node; check the RoCE mode "
    "(cma_roce_mode) and network namespaces (rdma system).",
    check="show_gids lists a v2 entry with the rail's IPv4 address.",
    source="kernel GID cache, RoCE v2",
)


def _rows(port: t.Any) -> dict[int, dict[str, t.Any]]:
    return {row["index"]: row for row in dicts(port.data.get("gids")) if isinstance(row.get("index"), int)}


def _routable(row: dict[str, t.Any]) -> bool:
    return "v2" in str(row.get("type")) and gid_kind(str(row.get("gid"))) in ("ipv4", "ipv6")


@host_rule(GID_INDEX)
def forced_index(host: HostView) -> t.Iterator[Finding]:
    forced = parse(host.files.get("/etc/nccl.conf", "")).get("NCCL_IB_GID_INDEX", "")
    if not forced.isdigit():
        return
    index = int(forced)
    for port in host.rail_ports or host.ports:
        rows = _rows(port)
        if port.data.get("link_layer") == "InfiniBand" or not rows or (index in rows and _routable(rows[index])):
            continue
        row = rows.get(index)
        kind = {"link-local": "link-local (fe80)"}.get(gid_kind(str(row.get("gid"))), "") if row else ""
        seen = f"{row.get('gid')} {row.get('type')} {kind}".strip() if row else "empty"
        better = next((number for number in sorted(rows) if _routable(rows[number])), None)
        hint = f"; index {better} ({rows[better].get('gid')}) is the RoCE v2 address" if better is not None else ""
        yield GID_INDEX.on(
            host,
            f"{host.name}: NCCL_IB_GID_INDEX {index} on {port.device} port {port.number}: index {index} is {seen}; a "
            f"routable RoCE v2 GID wanted{hint}",
            device=port.device,
            evidence=[f"/etc/nccl.conf: NCCL_IB_GID_INDEX {index}", f"{port.device} {port.number} {index} {seen}"],
        )


def _global_addresses(host: HostView, port: Port) -> list[str] | None:
    """Addresses of the port's interface that a router would carry; None: not known."""
    addresses = host.get("netdevs", port.netdev, "addresses") if port.netdev else None
    if not isinstance(addresses, list):
        return None
    return [str(a).partition("/")[0] for a in addresses if not str(a).lower().startswith("fe80")]


def _addressed(host: HostView, port: Port) -> bool | None:
    own = _global_addresses(host, port)
    rows = _rows(port)
    if own or any(gid_kind(str(row.get("gid"))) in ("ipv4", "ipv6") for row in rows.values()):
        return True
    # A table that was read through show_gids leaves out plain link-local entries, and is then empty.
    return False if own is not None or rows else None


def _rail_ports(host: HostView) -> list[Port]:
    if host.rail_ports or not host.recorded_only:
        return host.rail_ports
    return [port for port in host.ports if port.role in (None, "compute")]


@rack_rule(NO_ADDRESS)
def rail_without_address(rack: RackView) -> t.Iterator[Finding]:
    bare: dict[str, list[Port]] = {}
    having = 0
    for host in rack.hosts:
        for port in _rail_ports(host):
            if port.data.get("link_layer") == "InfiniBand" or not port.netdev or port.state not in (None, "active"):
                continue
            addressed = _addressed(host, port)
            having += addressed is True
            if addressed is False and not mapping(host.get("netdevs", port.netdev)).get("master"):
                bare.setdefault(host.name, []).append(port)
    for host in rack.hosts:
        ports = bare.get(host.name, [])
        if not ports or not (having or host.recorded_only):
            continue
        yield NO_ADDRESS.on(
            host,
            f"{host.name}: {', '.join(port.label for port in ports)} ha{'s' if len(ports) == 1 else 've'} no IP "
            "address beyond link-local; an address on each rail wanted",
            device=", ".join(str(port.netdev) for port in ports),
            evidence=[
                *(f"{port.netdev}: no address but link-local ones" for port in ports[:8]),
                *(
                    f"{port.device} GID {row.get('gid')}"
                    for port in ports[:4]
                    for row in list(_rows(port).values())[:1]
                ),
            ],
            severity=None if having else "warn",
        )


@host_rule(NO_GID)
def address_without_gid(host: HostView) -> t.Iterator[Finding]:
    lacking: list[tuple[str, str, str]] = []
    for port in host.rail_ports:
        rows = _rows(port)
        up = port.active or (host.recorded_only and port.state is None)
        if port.data.get("link_layer") == "InfiniBand" or not up or not rows:
            continue
        own = _global_addresses(host, port)
        if own is None:  # the table itself may tell it, in its RoCE v1 rows
            own = [str(row["ipv4"]) for row in rows.values() if row.get("ipv4")]
        if own and not any(_routable(row) for row in rows.values()):
            lacking.append((port.device, str(port.netdev), own[0]))
    if lacking:
        names = ", ".join(f"{device} ({netdev}, {address})" for device, netdev, address in lacking)
        yield NO_GID.on(
            host,
            f"{host.name}: no RoCE v2 GID for the address of {names}; one GID for each address wanted",
            device=", ".join(device for device, _netdev, _address in lacking),
            evidence=[f"{netdev} has {address}, {device} has no v2 GID of it" for device, netdev, address in lacking],
        )
