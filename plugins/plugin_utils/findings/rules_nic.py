# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network cards: settings in their flash."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
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
    remedy="Drain the node and reset the card (mlxfwreset -d BDF -l 3 reset) or power it off and on; never the card "
    "that carries the connection.",
    check="mlxconfig -d BDF -e q: Current equals Next Boot.",
    source="mlxconfig documentation",
)


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
