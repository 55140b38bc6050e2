# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run leaves to be said about its own work: other layers that still have older values, settings without a place.

Several layers keep values that follow from one intent: the DSCP of RoCE is in the NICs' maps (rdma) and in NCCL's
configuration (nccl), the rails' networks in their addresses (rdma) and in the firewall (security). A run with some of
the tags moves one of them and leaves the others. What was not applied is on the host as the facts of this run saw it.
"""

from __future__ import annotations

import collections
import typing as t

import netaddr

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import nft_ruleset
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import run_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    RunView,
    dicts,
    mapping,
    natural,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import HEADER, parse

LEFT_BEHIND = define(
    "run",
    "RF-RUN-LEFT-BEHIND",
    title="A layer that did not run still has values of an earlier run",
    severity="warn",
    phase="verify",
    means="The run applied some layers of a changed intent, and another layer, which takes values from the same "
    "intent, still has the old ones: NCCL marks packets for a class that the NICs treat otherwise, or the firewall "
    "does not know the rails' networks. Jobs that start now are slow or do not connect.",
    looks_at="What the run applied, and against its plan /etc/nccl.conf where the collection wrote it, the sets of "
    "table inet gpu_fabric, and trust, DSCP map, PFC and addresses of the rails. Values of a layer that was never "
    "applied, and those that gpu_fabric_nccl_env names, are not judged.",
    cause="A variable that several layers follow (gpu_fabric_roce_dscp, gpu_fabric_roce_profile, gpu_fabric_rail_ipv4, "
    "the lists of devices) was changed, and the run had the tag of one of them only.",
    remedy="Run site.yml with the tags of all layers that the message names.",
    check="A further run with these tags tells nothing of the kind.",
    source="plugins/plugin_utils/findings/rules_run.py; docs/architecture.md",
)

UNSUPPORTED = define(
    "run",
    "RF-RUN-UNSUPPORTED",
    title="Settings of NIC ports were passed over",
    severity="info",
    phase="verify",
    means="The plan wants settings that this host's drivers have no place for, or that nobody may write: they are not "
    "in force. Most are of OFED's drivers and missing in the kernel's own, and RoCE works without them.",
    looks_at="What nic_settings returned as unsupported: ports by interface, and the host as such.",
    cause="The kernel's own driver shows fewer settings than OFED's, a port's features depend on its firmware, and a "
    "kernel in lockdown lets nobody write PCI configuration space.",
    remedy="Nothing, where the fabric does without them; else gpu_fabric_rdma_stack: doca, or a newer kernel.",
    check="The task NIC ports have their run-time settings returns nothing under unsupported (-v).",
    source="plugins/modules/nic_settings.py; NVIDIA MLNX_OFED and the mlx5 drivers of Linux",
)

CONF = "/etc/nccl.conf"
#: Variables of NCCL that follow from the same intent as what the layer rdma sets.
FROM_FABRIC = ("NCCL_IB_HCA", "NCCL_IB_TC", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE")
RDMA = ("rdma_nics", "rdma_links")
NCCL, SECURITY = "nccl_configured", "security_groups_table"
HOST = "@host"


class Old(t.NamedTuple):
    """One value of an earlier run."""

    layer: str
    what: str
    seen: str
    wanted: str


@run_rule(LEFT_BEHIND)
def left_behind(host: RunView) -> t.Iterator[Finding]:
    ran = [
        layer for layer, names in (("rdma", RDMA), ("nccl", (NCCL,)), ("security", (SECURITY,))) if host.applied(*names)
    ]
    found: list[Old] = []
    if "rdma" in ran:
        found += _nccl(host) if "nccl" not in ran else []
        found += _firewall(host) if "security" not in ran else []
    elif host.configured("rdma"):
        found += _classes(host) if "nccl" in ran else []
        found += _addresses(host) if "security" in ran else []
    tags = ",".join([*ran, *dict.fromkeys(item.layer for item in found)])
    for layer in dict.fromkeys(item.layer for item in found):
        items = [item for item in found if item.layer == layer]
        told = "; ".join(f"{item.what} is {item.seen}, {item.wanted} wanted" for item in items)
        yield LEFT_BEHIND.on(
            host,
            f"{host.name}: the layer {layer} did not run and has values of an earlier run: {told}",
            device=layer,
            evidence=[f"{item.what}: {item.seen}" for item in items],
            remedy=f"Run site.yml --tags {tags}",
        )


def _nccl(host: RunView) -> t.Iterator[Old]:
    text = host.files.get(CONF, "")
    if not text.startswith(HEADER):
        return  # somebody else's, or none yet
    present, wanted = parse(text), mapping(host.plan.get("nccl_env"))
    reasons = mapping(host.plan.get("nccl_reasons"))
    for name in FROM_FABRIC:
        one, other = present.get(name), wanted.get(name)
        if one != other and "gpu_fabric_nccl_env" not in str(reasons.get(name)):
            yield Old("nccl", f"{name} of {CONF}", one or "not set", str(other) if other else "none")


def _firewall(host: RunView) -> t.Iterator[Old]:
    planned = mapping(host.plan.get("firewall"))
    ruleset = host.get("firewall", "nftables", "ruleset")
    if planned.get("backend") != "nftables" or not isinstance(ruleset, str):
        return
    tables = [
        table
        for table in nft_ruleset.parse(ruleset).value["tables"]
        if (table.get("family"), table.get("name")) == ("inet", "gpu_fabric")
    ]
    sets = {found["name"]: found.get("elements") or [] for table in tables for found in dicts(table.get("sets"))}
    for version in (4, 6):
        name = f"members{version}"
        if name not in sets:
            continue
        wanted = netaddr.IPSet(net for net in planned.get("members") or () if netaddr.IPNetwork(net).version == version)
        present = _elements(sets[name])
        # what is let in beyond the plan may be a host that did not answer this time
        if present is not None and not wanted.issubset(present):
            yield Old("security", f"set {name} of table inet gpu_fabric", _networks(present), _networks(wanted))


def _elements(elements: t.Iterable[str]) -> netaddr.IPSet | None:
    """What nft lists, which joins neighbours to ranges; None where that cannot be read."""
    found = netaddr.IPSet()
    for element in elements:
        first, dash, last = element.partition("-")
        try:
            found |= netaddr.IPSet(netaddr.IPRange(first, last) if dash else [element])
        except (netaddr.AddrFormatError, ValueError):
            return None
    return found


def _networks(found: netaddr.IPSet) -> str:
    nets = [str(net) for net in found.iter_cidrs()]
    return ", ".join(nets[:6]) + (f" and {len(nets) - 6} more" if len(nets) > 6 else "") or "empty"


def _classes(host: RunView) -> t.Iterator[Old]:
    """The class of RoCE on the ports, where NCCL just got the one of the plan."""
    ports: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)
    for netdev, settings in mapping(host.plan.get("qos")).items():
        wanted, present = mapping(settings), host.section("qos", netdev)
        for what, one, other in (
            ("trust", present.get("trust"), wanted.get("trust")),
            ("PFC", _priorities(present.get("pfc")), _priorities(wanted.get("pfc"))),
        ):
            if one is not None and other is not None and one != other:
                ports[(what, one, other)].append(str(netdev))
        table = mapping(present.get("dscp_to_priority"))
        for dscp, priority in mapping(wanted.get("dscp_to_priority")).items() if table else ():
            shown = table.get(str(dscp), int(dscp) >> 3)
            if shown != priority:
                ports[(f"the priority of DSCP {dscp}", str(shown), str(priority))].append(str(netdev))
    for (what, one, other), netdevs in ports.items():
        yield Old("rdma", f"{what} of {', '.join(sorted(netdevs, key=natural))}", one, other)


def _priorities(bits: t.Any) -> str | None:
    if not isinstance(bits, (list, tuple)):
        return None
    return "on for " + ", ".join(str(n) for n, on in enumerate(bits) if on) if any(bits) else "off"


def _addresses(host: RunView) -> t.Iterator[Old]:
    """The rails' addresses, where the firewall just got the networks of the plan."""
    for link in dicts(host.plan.get("links")):
        present = host.get("netdevs", link.get("netdev"), "addresses")
        lacking = [item for item in link.get("addresses") or () if isinstance(present, list) and item not in present]
        if lacking:
            shown = ", ".join(str(item) for item in present if not str(item).startswith("fe80"))
            yield Old("rdma", f"the address of {link['netdev']}", shown or "not set", ", ".join(lacking))


@run_rule(UNSUPPORTED)
def passed_over(host: RunView) -> t.Iterator[Finding]:
    ports = mapping(mapping(host.results.get("rdma_nics")).get("unsupported"))
    by_setting: dict[str, list[str]] = collections.defaultdict(list)
    for netdev, names in ports.items():
        for name in names if isinstance(names, (list, tuple)) else ():
            by_setting[str(name)].append("the host" if netdev == HOST else str(netdev))
    alike: dict[tuple[str, ...], list[str]] = collections.defaultdict(list)
    for name, places in sorted(by_setting.items()):
        alike[tuple(sorted(places, key=natural))].append(name)
    if not alike:
        return
    told = [f"{', '.join(names)} on {_places(places)}" for places, names in alike.items()]
    yield UNSUPPORTED.on(
        host,
        f"{host.name}: not set, for there is no place for it that may be written: {'; '.join(told)}",
        evidence=[f"{name}: {', '.join(places)}" for name, places in sorted(by_setting.items())],
    )


def _places(places: t.Sequence[str]) -> str:
    shown = ", ".join(places[:8]) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
    return shown if len(places) == 1 else f"{len(places)} ports ({shown})"
