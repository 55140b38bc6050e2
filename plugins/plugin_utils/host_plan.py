# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One host's part of the plan, from what the rack has settled for all."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import worst
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import (
    bonds,
    disruption,
    firewall,
    host_notes,
    ipoib,
    kernel_modules,
    limits,
    management_link,
    mpi_env,
    nccl_env,
    nic_firmware,
    nic_ports,
    opensm,
    packages,
    rail_links,
    stable_names,
    sysctls,
    thresholds,
    tuning,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.addressing import AddressPlan
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host


class Rack(t.NamedTuple):
    """What is the same for all hosts of the rack."""

    size: int
    addresses: AddressPlan
    #: The RoCE class: DSCP, priority, traffic class.
    quality: dict[str, t.Any]
    #: Networks and addresses of the rack, which a host's firewall lets in.
    members: list[str]
    #: How many Ethernet rails the rack has.
    neighbours: int
    over_infiniband: ipoib.IpoibPlan
    managers: opensm.Rack


def plan_host(host: Host, rack: Rack) -> dict[str, t.Any]:
    """``plan.hosts[h]``, in the order in which its parts build upon each other."""
    plan = {
        **_identity(host),
        **_software(host, rack),
        **_environment(host, rack),
        **_network(host, rack),
        **_nics(host, rack),
    }
    host_notes.missing_rails(host)
    host_notes.topology(host)
    host_notes.paths(host)
    plan["disruption"] = _disruption(host, plan)
    plan["notes"] = [note.as_dict() for note in host.notes]
    return plan


def _identity(host: Host) -> dict[str, t.Any]:
    found = host.found
    return {
        "fabric": host.fabric,
        "confidence": found.confidence,
        "node_id": host.node,
        "affinity_known": found.affinity_known,
        "gpus": [
            {"gpu": position if gpu.index is None else gpu.index, "pci": gpu.pci, "name": gpu.name}
            for position, gpu in enumerate(host.machine.gpus)
        ],
        "devices": [verdict.as_dict() for verdict in found.verdicts],
        "management": {"netdev": found.management, "address": host.own_address},
        "protected_interfaces": host.protected,
    }


def _software(host: Host, rack: Rack) -> dict[str, t.Any]:
    sets, notes = packages.for_host(
        host.machine,
        host.intent,
        infiniband=host.fabric == "infiniband",
        has_rdma=any(not hca.software for hca in host.machine.hcas),
    )
    host.notes += notes
    return {
        "packages": sets,
        "modules": kernel_modules.for_host(host, bool(rack.over_infiniband.subnets())),
        "limits": limits.for_host(host.machine, host.intent),
    }


def _environment(host: Host, rack: Rack) -> dict[str, t.Any]:
    """The variables of NCCL, UCX and Open MPI, and what they must reach."""
    intent = host.intent
    env, reasons, notes = nccl_env.derive(host.machine, intent, host.found, host.rails, rack.quality, host.address)
    host.notes += notes
    index, index_reason, notes = ipoib.nccl_pkey(rack.over_infiniband.networks, host.rails)
    host.notes += notes
    if index and "NCCL_IB_PKEY" not in intent["gpu_fabric_nccl_env"]:
        env["NCCL_IB_PKEY"], reasons["NCCL_IB_PKEY"] = index, index_reason
    return {
        "nccl_env": env,
        "nccl_reasons": reasons,
        "ucx_env": mpi_env.ucx(host.rails, rack.quality, intent["gpu_fabric_rail_mode"]),
        "mpi_env": mpi_env.openmpi(host.found.management),
        "thresholds": thresholds.for_host(host.machine, host.rails, host.found.management, intent, rack.size),
    }


def _network(host: Host, rack: Rack) -> dict[str, t.Any]:
    """Links and addresses, the kernel parameters that go with them, and who may come in."""
    machine, intent = host.machine, host.intent
    where = {rail.rail: rail_links.address_of(host, rail, rack.addresses) for rail in host.rails}
    ours = [rail for rail in host.rails if rail_links.is_ours(host, rail, rack.addresses)]
    links = [rail_links.link(host, rail, where[rail.rail], rack.addresses) for rail in ours]
    ib_links, notes = rack.over_infiniband.for_host(machine, host.rails, host.node, host.found.management)
    host.notes += notes
    parameters, left_out = sysctls.for_host(
        intent,
        rails=[(link["netdev"], bool(where[link["rail"]].ipv4), bool(where[link["rail"]].ipv6)) for link in links],
        shared=ipoib.sharing(ib_links),
        neighbours=rack.neighbours if host.fabric == "roce" else 0,
        has_gpus=bool(machine.gpus),
        container=machine.container,
        offered=mapping(machine.facts.get("sysctl")),
    )
    fabric = [*(rail.netdev for rail in host.rails if rail.netdev), *(link["netdev"] for link in ib_links)]
    return {
        "rails": [rail_links.describe(host, rail, where[rail.rail], rail in ours) for rail in host.rails],
        "links": links,
        "bonds": bonds.for_host(intent),
        "ipoib": ib_links,
        "management_link": management_link.for_host(machine, intent, host.found.management),
        "opensm": opensm.for_host(rack.managers, host.name, machine, host.rails),
        "sysctl": parameters,
        "sysctl_left_out": left_out,
        "firewall": firewall.for_host(
            intent, rack.members, list(dict.fromkeys(fabric)), host.found.management, host.client
        ),
    }


def _nics(host: Host, rack: Rack) -> dict[str, t.Any]:
    """Run-time settings and firmware of the ports, and what the host around them is tuned to."""
    quality = nic_ports.quality(host)
    tuned, port_tuning, notes = tuning.for_host(host.intent, host.machine, host.rails, host.affinity)
    host.notes += notes
    own = host.port_settings
    tuned["reasons"] |= own.reasons
    tuned["left_out"] |= own.left_out
    firmware, notes = nic_firmware.for_host(host.intent, host.machine, host.rails, rack.quality, host.protected)
    host.notes += notes
    names = stable_names.Names(host.intent, host.machine, host.rails, host.protected)
    host.notes += [note for note in (names.note(),) if note]
    return {
        "qos": quality,
        "nic_ports": nic_ports.settings(host, quality, port_tuning, own.ports),
        "nic_firmware": firmware,
        "stable_names": names.as_plan(),
        "tuning": tuned,
    }


def _disruption(host: Host, plan: dict[str, t.Any]) -> dict[str, t.Any]:
    """What the changes cost, the gravest first of all."""
    costs = list(nic_ports.costs(host, plan["qos"]))
    parts = {"opensm": plan["opensm"], "driver": plan["packages"]["driver"], "firmware": plan["nic_firmware"]}
    costs += [
        (what, part["disruption"], part["disruption_reason"])
        for what, part in parts.items()
        if part.get("wanted", True)
    ]
    return {
        "worst": worst(cost for _, cost, _ in costs),
        "allowed": host.intent["gpu_fabric_allow_disruption"],
        "gpu_processes": disruption.gpu_processes(host.machine),
        "changes": [{"what": what, "class": cost, "reason": why} for what, cost, why in costs if cost != "none"],
    }
