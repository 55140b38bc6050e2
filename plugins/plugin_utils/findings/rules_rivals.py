# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Daemons of the host that set what the plan sets, and have the last word whenever they start or hear something new."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, mapping

LLDPAD = define(
    "roce",
    "RF-ROCE-LLDPAD",
    title="lldpad may set the QoS of the rails",
    severity="info",
    phase="preflight",
    means="lldpad speaks DCBX: it takes PFC, ETS and priorities from the switch or from its own configuration and "
    "writes them to the port, over what the run has set.",
    looks_at="The unit lldpad, on a host whose rails get QoS from the plan.",
    cause="It was installed for FCoE or for another kind of storage, or came with the image.",
    remedy="systemctl disable --now lldpad.service lldpad.socket, where nothing else of the host needs it.",
    check="systemctl is-active lldpad prints inactive, and the QoS is the same after a link went down and came up.",
    source="lldpad(8), dcbtool(8); the mlx5 driver's DCBX modes",
)

TUNED = define(
    "tuning",
    "RF-TUNING-TUNED",
    title="tuned may set what the plan tunes",
    severity="info",
    phase="preflight",
    means="tuned applies its profile at boot and whenever it is restarted. What the profile says of the CPU governor "
    "or of huge pages then stands in place of the plan's.",
    looks_at="The unit tuned, on a host whose CPU governor or transparent huge pages the plan sets.",
    cause="The distribution enables it.",
    remedy="Choose a profile that wants the same (tuned-adm profile hpc-compute), or systemctl disable --now "
    "tuned.service.",
    check="tuned-adm active and tuned-adm verify; a second run changes nothing after a reboot.",
    source="tuned profiles balanced, throughput-performance and hpc-compute",
)


def _runs(host: HostView, unit: str) -> bool:
    return host.get("services", unit, "active") is True


@host_rule(LLDPAD)
def lldpad(host: HostView) -> t.Iterator[Finding]:
    ports = sorted(mapping(host.plan.get("qos")))
    if ports and _runs(host, "lldpad"):
        yield LLDPAD.on(
            host,
            f"{host.name}: lldpad is active and may set PFC, ETS and priorities of {', '.join(ports)} as the switch or "
            "its own configuration says, not as planned",
            device="lldpad",
            evidence=[f"lldpad.service: {host.get('services', 'lldpad', 'state') or 'active'}"],
        )


@host_rule(TUNED)
def tuned(host: HostView) -> t.Iterator[Finding]:
    wanted = mapping(mapping(host.plan.get("tuning")).get("host"))
    rivals = sorted(set(wanted) & {"cpu_governor", "transparent_hugepages"})
    if rivals and _runs(host, "tuned"):
        yield TUNED.on(
            host,
            f"{host.name}: tuned is active, and its profile may set {', '.join(rivals)} in another way than planned",
            device="tuned",
            evidence=[f"tuned.service: {host.get('services', 'tuned', 'state') or 'active'}"],
        )
