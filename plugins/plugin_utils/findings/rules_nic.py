# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network cards: firmware settings, link layer, cables and links that come and go."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    majority,
    mapping,
    natural,
    short_bdf,
)

PENDING = define(
    "rdma",
    "RF-NIC-CONFIG-PENDING",
    title="A firmware setting of a card waits for a reset",
    severity="warn",
    phase="verify",
    means="The setting is written to the card's flash and not in force: current and next-boot values differ.",
    looks_at="Current and next-boot columns of mlxconfig for every card.",
    cause="The card was not reset since the setting was written; a warm reboot does not reset every card.",
    remedy="Drain the node and reset the card (mlxfwreset -d BDF reset) or power it off and on; never the card that "
    "carries the connection.",
    check="mlxconfig -d BDF -e q: Current equals Next Boot.",
    source="mlxconfig documentation",
)

LINK_LAYER = define(
    "rdma",
    "RF-PORT-LINK-LAYER",
    title="A port runs another link layer than its peers",
    severity="fail",
    phase="preflight",
    means="The same card is InfiniBand here and Ethernet on the other hosts (or the other way round): the rail "
    "reaches nobody.",
    looks_at="Link layer of ports at the same PCI address over the rack, LINK_TYPE where it was read.",
    cause="LINK_TYPE of a VPI card was set on a part of the rack, or a replaced card came with the factory's default.",
    remedy="mlxconfig -d BDF set LINK_TYPE_P1=IB(1) or ETH(2) as on the other hosts, then reset the card on the "
    "drained node.",
    check="cat /sys/class/infiniband/DEVICE/ports/1/link_layer is equal on all hosts.",
    source="mlxconfig documentation, LINK_TYPE",
)

FLAPS = define(
    "rdma",
    "RF-PORT-FLAPS",
    title="A link goes up and down",
    severity="warn",
    phase="preflight",
    means="The kernel log has several losses of the same link. Each costs running jobs a time-out or their life.",
    looks_at="Link-down messages of an interface or port in the kernel log; three or more are reported.",
    cause="Cable, module or switch port at its limit; a switch that was rebooted.",
    remedy="Look at the module (mlxlink -d BDF -m -e -c, ethtool -m NETDEV), clean or swap the cable, compare the "
    "switch port's log.",
    check="No further link-down message under load.",
    source="Link-flap checks of Azure/azurehpc-health-checks and oracle-quickstart/oci-hpc",
)

MODULE = define(
    "rdma",
    "RF-PORT-MODULE",
    title="The card reports a fault of its cable or module",
    severity="warn",
    phase="preflight",
    means="The firmware saw a bad or hot transceiver. The link is down or will be.",
    looks_at="'Port module event[error]' and temperature messages of mlx5 in the kernel log.",
    cause="A damaged, unsupported or badly seated cable or module, or missing air flow.",
    remedy="Reseat or swap the cable or module; check air flow and fan speed.",
    check="mlxlink -d BDF -m: no issue was observed.",
    source="mlx5 driver, port module events",
)

AER = define(
    "pcie",
    "RF-PCIE-AER",
    title="PCIe errors are logged for a device",
    severity="warn",
    phase="preflight",
    means="The link of a GPU, NIC or switch corrects or loses packets. Uncorrected errors reset the device; many "
    "corrected ones cost bandwidth and announce them.",
    looks_at="AER messages of the kernel log, per device.",
    cause="Signal quality: seating, riser, retimer, a failing slot.",
    remedy="Reseat the card or riser on the drained node; when the messages come back, replace the part; do not hide "
    "them with pci=noaer.",
    check="No further AER message under load.",
    source="Linux PCIe AER documentation",
)

_FLAP = re.compile(
    r"mlx5_core (?P<pci>[0-9a-f:.]+):? (?:(?P<name>[\w.-]+): )?[Ll]ink (?:is )?down|(?P<other>[\w.-]+): Link down"
)
_MODULE = re.compile(
    r"mlx5_core (?P<pci>[0-9a-f:.]+?):? .*(?P<why>Port module event\[error\].*|[Hh]igh [Tt]emperature.*)", re.IGNORECASE
)
_AER = re.compile(
    r"(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):.*PCIe Bus Error: severity=(?P<severity>[\w ()-]+?),",
    re.IGNORECASE,
)
_ENOUGH_FLAPS = 3


@host_rule(PENDING)
def config_pending(host: HostView) -> t.Iterator[Finding]:
    for bdf, parameters in sorted(host.section("nic_config").items(), key=lambda item: natural(item[0])):
        waiting = [
            (name, mapping(value)["current"], mapping(value)["next"])
            for name, value in sorted(mapping(parameters).items())
            if "current" in mapping(value) and "next" in mapping(value) and value["current"] != value["next"]
        ]
        if waiting:
            shown = ", ".join(f"{name} is {now}, {later} after a reset" for name, now, later in waiting[:6])
            more = f" and {len(waiting) - 6} more" if len(waiting) > 6 else ""
            yield PENDING.on(
                host,
                f"{host.name}: card {short_bdf(str(bdf))}: {shown}{more}; equal values wanted",
                device=str(bdf),
                evidence=[f"{name}: current {now}, next boot {later}" for name, now, later in waiting[:12]],
            )


@rack_rule(LINK_LAYER)
def link_layer_differs(rack: RackView) -> t.Iterator[Finding]:
    places: dict[tuple[str, str], list[tuple[HostView, t.Any]]] = collections.defaultdict(list)
    for host in rack.hosts:
        for port in host.ports:
            layer = port.data.get("link_layer")
            if layer in ("InfiniBand", "Ethernet") and port.owner.get("pci"):
                places[(port.owner["pci"], port.number)].append((host, port))
    for members in places.values():
        usual = majority(port.data["link_layer"] for _host, port in members)
        for host, port in members:
            if usual is None or len(members) < 3 or port.data["link_layer"] == usual:
                continue
            setting = mapping(host.get("nic_config", port.owner["pci"], f"LINK_TYPE_P{port.number}"))
            yield LINK_LAYER.on(
                host,
                f"{host.name}: {port.label} is {port.data['link_layer']}, {usual} wanted (as on the other hosts)",
                device=port.device,
                evidence=[
                    f"link_layer: {port.data['link_layer']}",
                    f"LINK_TYPE_P{port.number}: {setting.get('current')}" if setting else "",
                ],
            )


@host_rule(FLAPS, MODULE, AER)
def kernel_complaints(host: HostView) -> t.Iterator[Finding]:
    flaps: dict[str, list[str]] = collections.defaultdict(list)
    modules: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    errors: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for line in text(host):
        if match := _AER.search(line):
            errors[(match["pci"].lower(), match["severity"])].append(line)
        elif match := _MODULE.search(line):
            modules[match["pci"]].append((match["why"], line))
        elif match := _FLAP.search(line):
            flaps[match["name"] or match["other"] or match["pci"]].append(line)
    for name, lines in flaps.items():
        if len(lines) >= _ENOUGH_FLAPS:
            yield FLAPS.on(
                host,
                f"{host.name}: {name} lost its link {len(lines)} times since boot, 0 wanted",
                device=name,
                evidence=lines[-3:],
            )
    for pci, faults in modules.items():
        yield MODULE.on(
            host,
            f"{host.name}: card {short_bdf(pci)} reports a fault of its module: {faults[-1][0]}; none wanted",
            device=pci,
            evidence=[line for _why, line in faults[-3:]],
        )
    for (pci, severity), lines in errors.items():
        lost = severity.lower().startswith("uncorrect")
        yield AER.on(
            host,
            f"{host.name}: {short_bdf(pci)} logged {len(lines)} PCIe errors of severity {severity}, 0 wanted",
            device=pci,
            evidence=lines[-3:],
            severity="fail" if lost and "fatal" in severity.lower() and "non-fatal" not in severity.lower() else None,
        )
