# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCIe links of GPUs and NICs: width and speed against what both ends can do."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.kernel_log import lines_about, text
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, mapping, short_bdf

PCIE_WIDTH = define(
    "pcie",
    "RF-PCIE-WIDTH",
    title="PCIe link narrower than both ends allow",
    severity="fail",
    phase="preflight",
    means="The link of a GPU or NIC trained with fewer lanes than the device and the slot above it support. Bandwidth "
    "falls in proportion: a x8 link halves a 400 Gb/s rail.",
    looks_at="current_link_width and max_link_width of the device and of the bridge above it, likewise for the links "
    "of PCIe switches on the way to the root.",
    cause="Dirty or badly seated contacts, a riser or cable, a damaged lane, or bifurcation set in the firmware setup.",
    remedy="Drain the node, power it off, reseat the card or riser; check the slot's bifurcation in the firmware "
    "setup; replace the card when the width stays.",
    check="cat /sys/bus/pci/devices/BDF/current_link_width equals max_link_width.",
    source="PCIe base specification, link training; sysfs-bus-pci ABI.",
)

PCIE_SPEED = define(
    "pcie",
    "RF-PCIE-SPEED",
    title="PCIe link slower than both ends allow",
    severity="fail",
    phase="preflight",
    means="The link of a NIC trained at a lower generation than the card and the slot support. GPUs are not judged by "
    "their speed here: they train down when idle.",
    looks_at="current_link_speed and max_link_speed of the NIC and of the bridge above it.",
    cause="Signal quality (seating, riser, retimer), a speed limit in the firmware setup, or an error-driven "
    "downtrain.",
    remedy="Drain the node, reseat the card or riser, look for AER errors in the kernel log and for a link speed limit "
    "in the firmware setup.",
    check="cat /sys/bus/pci/devices/BDF/current_link_speed equals max_link_speed.",
    source="PCIe base specification, link training; sysfs-bus-pci ABI.",
)

PCIE_BANDWIDTH = define(
    "pcie",
    "RF-PCIE-BANDWIDTH",
    title="The slot cannot carry the port's rate",
    severity="warn",
    phase="preflight",
    means="The link is as good as the slot allows, and that is less than the network port's rate. The rail will not "
    "reach line rate; thresholds are derived from the lower value.",
    looks_at="Lanes times speed of the trained link, less line coding, against the port's rate.",
    cause="A card of a newer generation in an older slot, or a x16 card in a x8 slot.",
    remedy="Move the card to a wider or newer slot, or accept the lower expectation.",
    check="lspci -s BDF -vv: LnkSta against the port's rate.",
    source="mlx5 kernel message 'Gb/s available PCIe bandwidth'.",
)

# Line coding: 8b/10b up to 5 GT/s, 128b/130b from 8 GT/s, none counted from 64 GT/s on (FLIT mode).
_CODING = ((5.0, 0.8), (32.0, 128 / 130), (float("inf"), 242 / 256))


def link_gbps(link: dict[str, t.Any]) -> float | None:
    """Raw payload-independent rate of a trained link, as the mlx5 driver prints it."""
    speed, width = link.get("speed_gts"), link.get("width")
    if not isinstance(speed, (int, float)) or not isinstance(width, int):
        return None
    factor = next(factor for limit, factor in _CODING if speed <= limit)
    return speed * width * factor


def watched(host: HostView) -> dict[str, str]:
    """PCI address → what it is, for every GPU and NIC whose link matters."""
    found: dict[str, str] = {}
    for gpu in host.gpus:
        if gpu.get("pci"):
            index = gpu.get("index")
            found[gpu["pci"]] = "GPU" if index is None else f"GPU {index}"
    for name, device in host.section("rdma_devices").items():
        device = mapping(device)
        pci = device.get("pci")
        ignored = device.get("software") or host.roles.get(name) in ("vf", "unused", "software", "data_direct")
        if pci and not ignored and not mapping(host.section("pci").get(pci)).get("physfn"):
            found.setdefault(pci, name)
    if host.recorded_only and "rdma_devices" not in host.facts:
        # lspci alone: adapters without their RDMA names.
        for pci, data in host.section("pci").items():
            function = mapping(data)
            if function.get("vendor") == "15b3" and str(function.get("class", "")).startswith("02"):
                found.setdefault(pci, "adapter")
    return found


def _links(host: HostView, pci: str) -> t.Iterator[tuple[str, dict[str, t.Any], dict[str, t.Any]]]:
    """(address, its link, the link as the port above reports it) for every physical link up to the root.

    Seen from the device, links and the insides of switches alternate: endpoint—downstream port, upstream port—root
    port. The sysfs attributes of both ends speak of the same wire.
    """
    functions = host.section("pci")
    upstream = mapping(functions.get(pci)).get("upstream")
    chain = [*(upstream if isinstance(upstream, list) else []), pci]
    for position in range(len(chain) - 1, -1, -2):
        lower = mapping(mapping(functions.get(chain[position])).get("link"))
        upper = mapping(mapping(functions.get(chain[position - 1])).get("link")) if position else {}
        yield chain[position], lower, upper


def _limit(lower: dict[str, t.Any], upper: dict[str, t.Any], key: str) -> float | None:
    known = [value for value in (lower.get(key), upper.get(key)) if isinstance(value, (int, float)) and value > 0]
    return min(known) if known and isinstance(lower.get(key), (int, float)) else None


@host_rule(PCIE_WIDTH, PCIE_SPEED)
def degraded_links(host: HostView) -> t.Iterator[Finding]:
    below: dict[str, list[str]] = {}
    links: dict[str, tuple[dict[str, t.Any], dict[str, t.Any]]] = {}
    names = watched(host)
    for pci, what in names.items():
        for address, lower, upper in _links(host, pci):
            links[address] = (lower, upper)
            below.setdefault(address, []).append(what)
    for address, (lower, upper) in links.items():
        what = names.get(address) or f"PCIe switch above {', '.join(below[address])}"
        width, wanted = lower.get("width"), _limit(lower, upper, "max_width")
        if isinstance(width, int) and wanted and 0 < width < wanted:
            yield PCIE_WIDTH.on(
                host,
                f"{host.name}: {what} at {short_bdf(address)} runs PCIe x{width}, x{wanted:g} wanted (both ends "
                "support it)",
                device=address,
                evidence=_evidence(host, address, lower, "width", "max_width"),
            )
        speed, wanted = lower.get("speed_gts"), _limit(lower, upper, "max_speed_gts")
        if what.startswith("GPU") or not isinstance(speed, (int, float)) or not wanted or not 0 < speed < wanted:
            continue
        if any(name.startswith("GPU") for name in below[address]):
            continue  # an idle GPU trains the switch above it down as well
        yield PCIE_SPEED.on(
            host,
            f"{host.name}: {what} at {short_bdf(address)} runs PCIe {speed:g} GT/s, {wanted:g} GT/s wanted (both ends "
            "support it)",
            device=address,
            evidence=_evidence(host, address, lower, "speed_gts", "max_speed_gts"),
        )


@host_rule(PCIE_WIDTH)
def width_told_by_nvidia_smi(host: HostView) -> t.Iterator[Finding]:
    """Where the PCI tree was not recorded. The speed is no use there: an idle GPU lowers it, never its width."""
    for gpu in host.gpus:
        link, pci = mapping(gpu.get("pcie")), str(gpu.get("pci") or "")
        width, most = link.get("width"), link.get("max_width")
        known = mapping(mapping(host.section("pci").get(pci)).get("link")).get("width")
        if known is None and isinstance(width, int) and isinstance(most, int) and 0 < width < most:
            yield PCIE_WIDTH.on(
                host,
                f"{host.name}: GPU {gpu.get('index', '?')} at {short_bdf(pci)} runs PCIe x{width}, x{most} wanted",
                device=pci or f"GPU {gpu.get('index')}",
                evidence=[f"pcie.link.width.current: {width}, pcie.link.width.max: {most}"],
            )


def _evidence(host: HostView, address: str, link: dict[str, t.Any], now: str, most: str) -> list[str]:
    base = f"/sys/bus/pci/devices/{address}"
    names = {"width": "link_width", "speed_gts": "link_speed"}[now]
    lines = [f"{base}/current_{names}: {link.get(now)}", f"{base}/max_{names}: {link.get(most)}"]
    return lines + [line for line in lines_about(host, address) if "bandwidth" in line.lower()][:2]


# What a driver says of its own link: mlx5_core, and the PCI core for the others.
_LIMITED = re.compile(
    r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?P<gbps>[\d.]+) Gb/s available PCIe bandwidth, limited "
    r"by (?P<speed>[\d.]+) GT/s PCIe x(?P<width>\d+) link at (?P<where>\S+) \(capable of [\d.]+ Gb/s with "
    r"(?P<most_speed>[\d.]+) GT/s PCIe x(?P<most_width>\d+) link\)"
)


@host_rule(PCIE_WIDTH, PCIE_SPEED)
def limited_says_the_kernel(host: HostView) -> t.Iterator[Finding]:
    for pci, match in {m["pci"]: m for m in map(_LIMITED.search, text(host)) if m}.items():
        if mapping(host.section("pci").get(pci)).get("link"):
            continue  # the link's own attributes are the better source
        narrow = int(match["width"]) < int(match["most_width"])
        what = f"x{match['width']}" if narrow else f"{match['speed']} GT/s"
        wanted = f"x{match['most_width']}" if narrow else f"{match['most_speed']} GT/s"
        yield (PCIE_WIDTH if narrow else PCIE_SPEED).on(
            host,
            f"{host.name}: {short_bdf(pci)} runs PCIe {what} at {match['where']}, {wanted} wanted: "
            f"{match['gbps']} Gb/s are available",
            device=pci,
            evidence=[match.string],
            # A slower slot is a matter of the board; lost lanes are a fault.
            severity=None if narrow else "warn",
        )


@host_rule(PCIE_BANDWIDTH)
def slot_too_small(host: HostView) -> t.Iterator[Finding]:
    for port in host.rail_ports:
        pci = port.owner.get("pci")
        rate = port.data.get("rate_gbps")
        links = list(_links(host, str(pci))) if pci else []
        if not links or not port.active or not isinstance(rate, (int, float)):
            continue
        address, lower, upper = links[0]
        limits = (_limit(lower, upper, "max_width"), _limit(lower, upper, "max_speed_gts"))
        if (lower.get("width"), lower.get("speed_gts")) != limits:
            continue  # degraded or not known: that is the other finding
        carried = link_gbps(lower)
        if carried is not None and carried < rate:
            yield PCIE_BANDWIDTH.on(
                host,
                f"{host.name}: {port.label} has {rate:g} Gb/s, its PCIe link at {short_bdf(address)} carries "
                f"{carried:.0f} Gb/s (x{lower.get('width')} at {lower.get('speed_gts'):g} GT/s)",
                device=port.device,
                evidence=[f"{address}: x{lower.get('width')}, {lower.get('speed_gts')} GT/s, the most the slot allows"],
            )
