# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Links and cards that misbehave: what the kernel log and the counters say."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import ethtool_stats, perfquery
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import events, stamped
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    dicts,
    mapping,
    natural,
    short_bdf,
)

FLAPS = define(
    "rdma",
    "RF-PORT-FLAPS",
    title="A link goes up and down",
    severity="warn",
    phase="preflight",
    means="The kernel log has several losses of the same link. Each costs running jobs a time-out or their life.",
    looks_at="Link-down messages of an interface or port in the kernel log; three or more in a day are reported, "
    "without those that settings of the collection brought about.",
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

FIRMWARE_FAULT = define(
    "rdma",
    "RF-NIC-FAULT",
    title="A card's firmware or driver reports a fault",
    severity="fail",
    phase="preflight",
    means="The card did not answer the driver in time or called its own health compromised: its ports go down, and "
    "jobs that use them end.",
    looks_at="Health, command time-out, transmit time-out and power messages of mlx5 in the kernel log. Too little "
    "power in the slot is a warning, and so is all of it on a live host, where a reset of the card leaves the like.",
    cause="Old or damaged firmware, PCIe errors, heat, too little power, or a failing card.",
    remedy="Drain the node and power it off and on; bring the firmware to the rack's version; replace the card when "
    "the message returns.",
    check="No such message under load after the power cycle.",
    source="mlx5 driver, health monitor; dmesg checks of imbue-ai/cluster-health",
)

COUNTERS = define(
    "rdma",
    "RF-PORT-COUNTERS",
    title="A port counts errors or lost links",
    severity="warn",
    phase="preflight",
    means="The link corrects, loses or retransmits packets: a rail that is slow at times, and the first to fail.",
    looks_at="Counters of ports since the driver was loaded (sysfs, perfquery, ethtool -S): lost links, symbol errors, "
    "link recoveries, receive errors, discards, pause storms, retransmissions. Small numbers are no finding.",
    cause="Cable or module; congestion without flow control (discards, retransmissions); a receiver that stopped "
    "(pause storm).",
    remedy="Symbol errors and lost links: mlxlink -d BDF -m -e -c, clean or swap the cable. Discards and "
    "retransmissions: compare PFC, trust and MTU with the switch port. Then clear the counters and look again.",
    check="The counters stand still under load.",
    source="Azure/azurehpc-health-checks ib link flapping; leptonai/gpud infiniband; NVIDIA port counter guide",
)

_FLAP = re.compile(
    r"mlx5_core (?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):? (?:(?P<name>[\w.-]+):? )?(?:Port: \d+ )?(?:NIC )?"
    r"link (?:is )?down|(?P<other>[\w.-]+): (?:NIC )?Link (?:is )?down",
    re.IGNORECASE,
)
_MODULE = re.compile(
    r"mlx5_core (?P<pci>[0-9a-f:.]+?):? .*(?P<why>Port module event\[error\].*|[Hh]igh [Tt]emperature.*)", re.IGNORECASE
)
_AER = re.compile(
    r"(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):.*PCIe Bus Error: severity=(?P<severity>[\w ()-]+?),",
    re.IGNORECASE,
)
_ENOUGH_FLAPS = 3
# Three losses in a year are no flapping.
_FLAPS_WITHIN_S = 24 * 3600


@host_rule(FLAPS, MODULE, AER)
def kernel_complaints(host: HostView) -> t.Iterator[Finding]:
    flaps: dict[str, list[tuple[float | None, str]]] = collections.defaultdict(list)
    modules: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    errors: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for moment, line in stamped(host):
        if match := _AER.search(line):
            errors[(match["pci"].lower(), match["severity"])].append(line)
        elif match := _MODULE.search(line):
            modules[match["pci"]].append((match["why"], line))
        elif match := _FLAP.search(line):
            flaps[match["name"] or match["other"] or match["pci"]].append((moment, line))
    for name, losses in flaps.items():
        own = _own_downs(host, name)
        if min(len(losses) - own, _most_within(losses)) >= _ENOUGH_FLAPS:
            ours = f" ({own} of them for settings of this collection)" if own else ""
            yield FLAPS.on(
                host,
                f"{host.name}: {name} lost its link {len(losses)} times since boot{ours}, 0 wanted",
                device=name,
                evidence=[line for _moment, line in losses[-3:]],
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


def _own_downs(host: HostView, name: str | None) -> int:
    """How often the collection took this link down itself since boot, by interface or PCI address."""
    recorded = host.section("own_link_downs")
    entry = recorded.get(name) or next((one for one in recorded.values() if mapping(one).get("pci") == name), {})
    downs = mapping(entry).get("downs")
    return downs if name and isinstance(downs, int) else 0


def _most_within(losses: list[tuple[float | None, str]]) -> int:
    """The most losses of any one day; all of them where the log has no times."""
    moments = sorted(moment for moment, _line in losses if moment is not None)
    if len(moments) < len(losses):
        return len(losses)
    return max(sum(0 <= later - first <= _FLAPS_WITHIN_S for later in moments) for first in moments)


_FAULTS = {
    "mlx5_health": "reports compromised health",
    "mlx5_firmware_error": "does not answer its driver",
    "mlx5_tx_timeout": "stopped transmitting (TX timeout)",
    "netdev_watchdog": "stopped transmitting (transmit queue timed out)",
    "mlx5_power": "gets too little power in its slot",
}


@host_rule(FIRMWARE_FAULT)
def card_faults(host: HostView) -> t.Iterator[Finding]:
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for event in events(host):
        kind = str(event.get("kind"))
        if kind in _FAULTS:
            place = str(event.get("pci") or event.get("netdev") or "card")
            found[(place, kind)].append(str(event.get("text")))
    for (place, kind), lines in sorted(found.items(), key=lambda item: natural(item[0][0])):
        last = lines[-1].rpartition(f"{place}: ")[2].strip() or lines[-1]
        yield FIRMWARE_FAULT.on(
            host,
            f"{host.name}: card {short_bdf(place)} {_FAULTS[kind]}: {last}; none wanted",
            device=place,
            evidence=lines[-3:],
            severity="warn" if kind == "mlx5_power" or not host.recorded_only else None,
        )


_LOST_LINKS = ("link_downed", "LinkDownedCounter", "link_down_events_phy")
# Counter → how many since the driver was loaded are no longer chance; names of sysfs, perfquery and ethtool -S.
_LIMITS = {
    "link_downed": 5,
    "LinkDownedCounter": 5,
    "link_down_events_phy": 5,
    "symbol_error": 100,
    "SymbolErrorCounter": 100,
    "rx_symbol_err_phy": 100,
    "rx_crc_errors_phy": 100,
    "link_error_recovery": 3,
    "LinkErrorRecoveryCounter": 3,
    "port_rcv_errors": 100,
    "PortRcvErrors": 100,
    "local_link_integrity_errors": 1,
    "LocalLinkIntegrityErrors": 1,
    "excessive_buffer_overrun_errors": 1,
    "ExcessiveBufferOverrunErrors": 1,
    "rx_discards_phy": 1000,
    "tx_pause_storm_error_events": 1,
    "rx_pause_storm_warning_events": 1,
    "tx_pause_storm_warning_events": 1,
    "local_ack_timeout_err": 100,
    "packet_seq_err": 10000,
    "out_of_sequence": 10000,
    "rnr_nak_retry_err": 1000,
}


def _counters(host: HostView) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """(port or interface, its counters), from wherever they were recorded; without our own bounces of the link."""
    for label, netdev, counters in _recorded_counters(host):
        own = _own_downs(host, netdev)
        yield (
            label,
            {
                name: value - own if name in _LOST_LINKS and isinstance(value, int) else value
                for name, value in counters.items()
            },
        )


def _recorded_counters(host: HostView) -> t.Iterator[tuple[str, str | None, dict[str, t.Any]]]:
    for port in host.ports:
        both = {**mapping(port.data.get("counters")), **mapping(port.data.get("hw_counters"))}
        if both and port.role not in ("unused", "nvswitch_bridge"):
            yield port.label, port.netdev, both
    for name, recorded in sorted(host.section("recorded").items()):
        if not isinstance(recorded, str):
            continue
        if str(name).startswith("perfquery"):
            for row in dicts(perfquery.parse(recorded).value.get("ports")):
                yield f"lid {row.get('lid')} port {row.get('port')}", None, mapping(row.get("counters"))
        elif str(name).startswith("ethtool_S_"):
            netdev = str(name)[len("ethtool_S_") :]
            yield netdev, netdev, mapping(ethtool_stats.parse(recorded).value.get("counters"))


@host_rule(COUNTERS)
def error_counters(host: HostView) -> t.Iterator[Finding]:
    for label, counters in _counters(host):
        high = {
            name: counters[name]
            for name, limit in _LIMITS.items()
            if isinstance(counters.get(name), int) and counters[name] >= limit
        }
        if high:
            shown = ", ".join(f"{name} {value}" for name, value in high.items())
            yield COUNTERS.on(
                host,
                f"{host.name}: {label} counts {shown}; less than "
                f"{', '.join(str(_LIMITS[name]) for name in high)} wanted",
                device=label.split(" ")[0] if not label.startswith("lid") else label,
                evidence=[f"{name}: {value}" for name, value in high.items()],
            )
