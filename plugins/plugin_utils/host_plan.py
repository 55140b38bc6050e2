# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One host's part of the plan, from what the rack has settled for it."""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass, field

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import worst
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import (
    bonds,
    disruption,
    firewall,
    gpudirect,
    ipoib,
    limits,
    management_link,
    mpi_env,
    nccl_env,
    nic_firmware,
    opensm,
    packages,
    port_settings,
    rails,
    roce,
    stable_names,
    sysctls,
    thresholds,
    tuning,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.addressing import (
    NO_ADDRESS,
    TABLE_BASE,
    Address,
    AddressPlan,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.classify import Classification
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import Intent
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.machine import Machine, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.management import connection_interface, lower_devices
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import DISTANCES, NEAR, Affinity

FABRICS = {"Ethernet": "roce", "InfiniBand": "infiniband"}


@dataclass
class Host:
    """One host on its way through the planner."""

    name: str
    intent: Intent
    machine: Machine
    affinity: Affinity
    found: Classification
    rails: list[rails.Rail]
    address: str
    node: int
    notes: list[Note] = field(default_factory=list)

    @property
    def fabric(self) -> str:
        return FABRICS.get(self.found.link_layer, "none") if self.rails else "none"


def plain_address(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return ""
    return "" if address.is_loopback or address.is_unspecified else str(address)


def plan_host(
    host: Host,
    addresses: AddressPlan,
    quality: dict[str, t.Any],
    members: list[str],
    neighbours: int,
    rack_size: int,
    over_infiniband: ipoib.IpoibPlan,
    managers: opensm.Rack,
) -> dict[str, t.Any]:
    machine, intent, found = host.machine, host.intent, host.found
    where = {rail.rail: _rail_address(host, rail, addresses) for rail in host.rails}
    kind, _ = packages.flavour(machine, intent)
    infiniband = host.fabric == "infiniband"
    sets, package_notes = packages.for_host(
        machine, intent, infiniband=infiniband, has_rdma=any(not hca.software for hca in machine.hcas)
    )
    host.notes += package_notes
    env, reasons, env_notes = nccl_env.derive(machine, intent, found, host.rails, quality, host.address)
    host.notes += env_notes
    index, index_reason, index_notes = ipoib.nccl_pkey(over_infiniband.networks, host.rails)
    host.notes += index_notes
    if index and "NCCL_IB_PKEY" not in intent["gpu_fabric_nccl_env"]:
        env["NCCL_IB_PKEY"], reasons["NCCL_IB_PKEY"] = index, index_reason
    ours = [rail for rail in host.rails if _is_ours(host, rail, addresses)]
    links = [_link(host, rail, where[rail.rail], addresses) for rail in ours]
    ib_links, ib_notes = over_infiniband.for_host(machine, host.rails, host.node, found.management)
    host.notes += ib_notes
    subnet_manager = opensm.for_host(managers, host.name, machine, host.rails)
    parameters, left_out = sysctls.for_host(
        intent,
        rails=[(link["netdev"], bool(where[link["rail"]].ipv4), bool(where[link["rail"]].ipv6)) for link in links],
        shared=ipoib.sharing(ib_links),
        neighbours=neighbours if host.fabric == "roce" else 0,
        has_gpus=bool(machine.gpus),
        container=machine.container,
        offered=mapping(machine.facts.get("sysctl")),
    )
    software = bool(host.rails) and all(rail.hca.software for rail in host.rails)
    direct, direct_reason = gpudirect.choose(
        machine,
        rails=bool(host.rails),
        software=software,
        far=_far(host),
        driver_version=intent["gpu_fabric_driver_version"],
        flavour=kind,
        stack=intent["gpu_fabric_rdma_stack"],
    )
    wanted = thresholds.for_host(machine, host.rails, found.management, intent, rack_size)
    quality_of = _qos(host)
    tuned, port_tuning, tuning_notes = tuning.for_host(intent, machine, host.rails, host.affinity)
    host.notes += tuning_notes
    chosen = port_choices(host)
    ports = chosen.ports()
    tuned["reasons"] |= chosen.reasons
    tuned["left_out"] |= chosen.left_out
    firmware, firmware_notes = nic_firmware.for_host(intent, machine, host.rails, quality, _protected(host))
    host.notes += firmware_notes
    names = stable_names.Names(intent, machine, host.rails, _protected(host))
    host.notes += [note for note in (names.note(),) if note]
    costs = [_link_cost(host, rail, quality_of) for rail in host.rails]
    costs += [(f"port {netdev}", *_port_cost(host, netdev, settings)) for netdev, settings in ports.items()]
    costs.append(("opensm", subnet_manager["disruption"], subnet_manager["disruption_reason"]))
    costs += [("driver", *_driver_cost(sets)), ("firmware", firmware["disruption"], firmware["disruption_reason"])]
    _note_missing_rails(host)
    _note_topology(host)
    _note_paths(host)
    return {
        "fabric": host.fabric,
        "confidence": found.confidence,
        "node_id": host.node,
        "affinity_known": found.affinity_known,
        "gpus": [
            {"gpu": position if gpu.index is None else gpu.index, "pci": gpu.pci, "name": gpu.name}
            for position, gpu in enumerate(machine.gpus)
        ],
        "devices": [verdict.as_dict() for verdict in found.verdicts],
        "rails": [_rail(host, rail, where[rail.rail], rail in ours) for rail in host.rails],
        "management": {"netdev": found.management, "address": _own_address(host)},
        "links": links,
        "bonds": bonds.for_host(intent),
        "ipoib": ib_links,
        "opensm": subnet_manager,
        "management_link": management_link.for_host(machine, intent, found.management),
        "sysctl": parameters,
        "sysctl_left_out": left_out,
        "limits": limits.for_host(machine, intent),
        "protected_interfaces": _protected(host),
        "modules": {
            "name": "gpu-fabric",
            "load": _modules(machine, host.rails, infiniband, direct, bool(over_infiniband.subnets())),
            "options": {},
            "follow": gpudirect.followers(direct, [rail.hca.driver for rail in host.rails]),
            "gpudirect": direct,
            "gpudirect_reason": direct_reason,
        },
        "qos": quality_of,
        "nic_ports": _nic_ports(host, quality_of, port_tuning, ports),
        "nic_firmware": firmware,
        "stable_names": names.as_plan(),
        "tuning": tuned,
        "nccl_env": env,
        "nccl_reasons": reasons,
        "ucx_env": mpi_env.ucx(host.rails, quality, intent["gpu_fabric_rail_mode"]),
        "mpi_env": mpi_env.openmpi(found.management),
        "packages": sets,
        "firewall": firewall.for_host(
            intent,
            members,
            list(
                dict.fromkeys([*(rail.netdev for rail in host.rails if rail.netdev), *(i["netdev"] for i in ib_links)])
            ),
            found.management,
            _client(host),
        ),
        "thresholds": wanted,
        "disruption": {
            "worst": worst(cost for _, cost, _ in costs),
            "allowed": intent["gpu_fabric_allow_disruption"],
            "gpu_processes": disruption.gpu_processes(machine),
            "changes": [{"what": what, "class": cost, "reason": why} for what, cost, why in costs if cost != "none"],
        },
        "notes": [note.as_dict() for note in host.notes],
    }


def _far(host: Host) -> str | None:
    """The shortest distance between a GPU and a rail where it crosses a host bridge (an x86 one: Grace has C2C)."""
    known = [rail.distance for rail in host.rails if rail.distance]
    if not known or text(mapping(host.machine.facts.get("host")).get("architecture")) == "aarch64":
        return None
    nearest = min(known, key=DISTANCES.index)
    return None if nearest in NEAR else nearest


def _rail_address(host: Host, rail: rails.Rail, addresses: AddressPlan) -> Address:
    if rail.link_layer != "Ethernet" or not rail.netdev or rail.netdev == host.found.management:
        return NO_ADDRESS
    planned = addresses.address(host.node, rail.rail)
    if _provider_managed(host, rail, planned):
        dev = host.machine.netdevs[rail.netdev]
        four = [item for item in dev.global_addresses if ":" not in item]
        six = [item for item in dev.global_addresses if ":" in item]
        return NO_ADDRESS._replace(ipv4=four[0] if four else None, ipv6=six[0] if six else None)
    return planned


def _provider_managed(host: Host, rail: rails.Rail, planned: Address) -> bool:
    """In a virtual machine a hardware rail with another address than the planned one has it from the provider."""
    dev = host.machine.netdevs.get(rail.netdev)
    if not host.machine.virtual or rail.hca.software or not dev:
        return False
    return any(item not in (planned.ipv4, planned.ipv6) for item in dev.global_addresses)


def _is_ours(host: Host, rail: rails.Rail, addresses: AddressPlan) -> bool:
    """Whether the rail's interface is this collection's to set up."""
    if rail.link_layer != "Ethernet" or not rail.netdev or rail.netdev == host.found.management:
        return False
    return not _provider_managed(host, rail, addresses.address(host.node, rail.rail))


def _rail(host: Host, rail: rails.Rail, address: Address, ours: bool) -> dict[str, t.Any]:
    gpus = [host.machine.gpu_position[gpu.pci] if gpu.index is None else gpu.index for gpu in rail.gpus]
    function = host.machine.function(rail.hca.pci)
    dev = host.machine.netdevs.get(rail.netdev)
    return {
        "rail": rail.rail,
        "hca": rail.hca.name,
        "port": rail.port.number if rail.port else 1,
        "pci": rail.hca.pci or None,
        "netdev": rail.netdev or None,
        "gpu": gpus[0] if gpus else None,
        "gpu_pci": rail.gpus[0].pci if rail.gpus else None,
        "gpus": gpus,
        "distance": rail.distance,
        "numa_node": function.numa_node,
        "link_layer": rail.link_layer,
        "rate_gbps": rail.rate_gbps,
        "nominal_gbps": rail.nominal_gbps,
        "mtu": host.intent["gpu_fabric_mtu"] if ours else (dev.mtu if dev else None),
        "ipv4": address.ipv4,
        "ipv4_gateway": address.ipv4_gateway,
        "ipv6": address.ipv6,
        "ipv6_gateway": address.ipv6_gateway,
        "table": TABLE_BASE + rail.rail,
    }


def _link(host: Host, rail: rails.Rail, address: Address, addresses: AddressPlan) -> dict[str, t.Any]:
    dev = host.machine.netdevs.get(rail.netdev)
    routes, rules = addresses.routing(address, rail.rail)
    wanted = host.intent["gpu_fabric_mtu"]
    if dev and dev.mtu_max and wanted > dev.mtu_max:
        host.notes.append(
            Note(
                "RF-PLAN-MTU",
                rail.netdev,
                f"gpu_fabric_mtu is {wanted}, {rail.netdev} allows {dev.mtu_max} at most",
                [f"{rail.netdev} mtu_max {dev.mtu_max}"],
                f"Set gpu_fabric_mtu to {dev.mtu_max} or less on the whole rack",
            )
        )
    return {
        "netdev": rail.netdev,
        "pci": (dev.pci if dev else "") or rail.hca.pci or None,
        "mac": (dev.mac if dev else "") or None,
        "mtu": wanted,
        "addresses": [item for item in (address.ipv4, address.ipv6) if item],
        "routes": routes,
        "rules": rules,
        "rail": rail.rail,
    }


def _qos(host: Host) -> dict[str, t.Any]:
    found = {}
    for rail in host.rails:
        function = host.machine.function(rail.hca.pci)
        virtual = host.machine.virtual or bool(function.physfn)
        if rail.link_layer == "Ethernet" and rail.netdev and not rail.hca.software:
            wanted = roce.port_values(host.intent, virtual)
            if wanted:
                dev = host.machine.netdevs.get(rail.netdev)
                # a bond has no port of its own: its members' ports are set
                for netdev in dev.bond_members if dev and dev.kind == "bond" else (rail.netdev,):
                    found[netdev] = wanted
    return found


def _nic_ports(
    host: Host,
    quality_of: dict[str, t.Any],
    port_tuning: dict[str, dict[str, t.Any]],
    own: dict[str, dict[str, t.Any]],
) -> list[dict[str, t.Any]]:
    """What nic_settings takes: the ports of the rails with their run-time settings."""
    ports = []
    rail_of = {rail.port_name: rail for rail in host.rails}
    tuned = [netdev for netdev in (*port_tuning, *own) if netdev not in quality_of and not _is_bond(host, netdev)]
    alone = list(dict.fromkeys(tuned))
    for netdev in (*quality_of, *alone):
        dev = host.machine.netdevs.get(netdev)
        rail = rail_of.get(netdev) or rail_of.get(dev.master if dev else "")
        settings = {**quality_of.get(netdev, {}), **port_tuning.get(rail.port_name if rail else "", {})}
        settings |= own.get(netdev, {})
        if rail and settings:
            ports.append(
                {
                    "netdev": netdev,
                    "hca": rail.hca.name,
                    "port": rail.port.number if rail.port else 1,
                    "pci": (dev.pci if dev else "") or rail.hca.pci or None,
                    "settings": settings,
                }
            )
    return ports


def _is_bond(host: Host, netdev: str) -> bool:
    dev = host.machine.netdevs.get(netdev)
    return dev is not None and dev.kind == "bond"


def _protected(host: Host) -> list[str]:
    """Interfaces that no layer may touch: the management's, this run's connection's, and everything under them."""
    tops = {host.found.management, connection_interface(host.machine)} - {""}
    return sorted({name for top in tops for name in lower_devices(host.machine, top)}, key=natural)


def _link_cost(host: Host, rail: rails.Rail, quality_of: dict[str, t.Any]) -> tuple[str, str, str]:
    dev = host.machine.netdevs.get(rail.netdev)
    seen = mapping(host.machine.facts.get("qos"))
    costs = []
    # what a bond costs is what its members' ports cost
    for netdev in dev.bond_members if dev and dev.kind == "bond" else (rail.netdev,):
        pfc = quality_of.get(netdev, {}).get("pfc")
        port = host.machine.netdevs.get(netdev)
        costs.append(disruption.of_link(port, host.intent["gpu_fabric_mtu"], pfc, seen.get(netdev)))
    gravest = worst(cost for cost, _ in costs)
    cost, why = next((item for item in costs if item[0] == gravest), ("none", ""))
    return (f"rail {rail.rail} {rail.netdev}", cost, why)


def port_choices(host: Host) -> port_settings.PortSettings:
    return port_settings.PortSettings(host.intent, host.machine, host.rails, _protected(host))


def _port_cost(host: Host, netdev: str, settings: dict[str, t.Any]) -> tuple[str, str]:
    return port_settings.cost(netdev, mapping(mapping(host.machine.facts.get("netdevs")).get(netdev)), settings)


def _driver_cost(sets: dict[str, t.Any]) -> tuple[str, str]:
    driver = sets["driver"]
    return (driver["disruption"], driver["disruption_reason"]) if driver["wanted"] else ("none", "")


def _modules(
    machine: Machine, laid: list[rails.Rail], infiniband: bool, direct: str, over_infiniband: bool
) -> list[str]:
    names = ["ib_uverbs", "rdma_ucm"] if laid else []
    if any(rail.hca.driver in ("rdma_rxe", "rxe") for rail in laid):
        names.append("rdma_rxe")
    if infiniband or any(function.sw_mng for function in machine.functions.values()):
        names.append("ib_umad")
    if infiniband and over_infiniband:
        names.append("ib_ipoib")
    if direct == "nvidia_peermem":
        names.append("nvidia_peermem")
    return names


def _own_address(host: Host) -> str | None:
    dev = host.machine.netdevs.get(host.found.management)
    own = dev.global_addresses if dev else ()
    return plain_address(host.address) or (own[0].partition("/")[0] if own else None)


def _client(host: Host) -> str:
    return plain_address(text(mapping(host.machine.facts.get("ssh")).get("client")))


def _note_missing_rails(host: Host) -> None:
    """Fewer rails than the intent or the other GPUs of the host have."""
    present = {rail.rail for rail in host.rails}
    expected = host.intent["gpu_fabric_expected_rails"]
    if expected is not None and len(present) < expected:
        gone = sorted(set(range(expected)) - present)
    else:
        gone = sorted(set(range(max(present, default=-1) + 1)) - present)
    if not gone:
        return
    shown = [f"rail {rail.rail}: {rail.hca.name} {rail.hca.pci}" for rail in host.rails]
    host.notes.append(
        Note(
            "RF-PLAN-RAIL-MISSING",
            ", ".join(f"rail {number}" for number in gone),
            f"{len(present)} rails are here, {len(present) + len(gone)} are wanted: no device for rail "
            + ", ".join(map(str, gone)),
            shown,
            "Look for the card with lspci; a card that fell off the bus comes back with a power cycle. "
            "Otherwise set gpu_fabric_expected_rails to what the host has",
        )
    )


def _note_topology(host: Host) -> None:
    differing = host.affinity.disagreements()
    # Only where one of the two sees a path below the host bridge do pairs and GPUDirect depend on who is right.
    grave = [item for item in differing if (item[2] in NEAR) != (item[3] in NEAR)]
    for id_, wrong in (
        ("RF-PLAN-TOPOLOGY-DISAGREES", grave),
        ("RF-PLAN-TOPOLOGY-DIFFERS", [item for item in differing if item not in grave]),
    ):
        if not wrong:
            continue
        gpu, name, tree, reported = wrong[0]
        host.notes.append(
            Note(
                id_,
                name,
                f"{name} to the GPU at {gpu} is {tree} by the PCI tree and {reported} by nvidia-smi topo -m"
                + (f" ({len(wrong)} such pairs)" if len(wrong) > 1 else ""),
                [f"GPU {g} {n}: PCI tree {a}, nvidia-smi {b}" for g, n, a, b in wrong[:16]],
                "Check the host's PCI tree (lspci -tv); name the rails in gpu_fabric_compute_devices if it is wrong",
            )
        )


def _note_paths(host: Host) -> None:
    if host.rails and host.machine.gpus and not host.found.affinity_known and len(host.machine.gpus) > 1:
        host.notes.append(
            Note(
                "RF-PLAN-AFFINITY-UNKNOWN",
                "",
                f"which of the {len(host.machine.gpus)} GPUs is near which rail cannot be known from inside this host; "
                "rails are numbered by PCI path and paired with no GPU",
                [f"{rail.hca.name} {rail.hca.pci}" for rail in host.rails],
                "Nothing to do if the provider gives a topology file (NCCL_TOPO_FILE in gpu_fabric_nccl_env)",
            )
        )
