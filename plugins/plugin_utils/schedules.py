# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who measures against whom. Pure."""

from __future__ import annotations

import typing as t

# perftest's own default is 18515; each rail of a host listens on a port of its own.
PERFTEST_PORT = 18515
IPERF_PORT = 5201


def ring(hosts: t.Mapping[str, t.Mapping[str, t.Any]], perftest_tos: int | None) -> dict[str, dict[str, t.Any]]:
    """Return ``plan.hosts[h].benchmark``: each host measures towards the next one, so each link carries one stream
    out and one in, every host is measured, and a rack of any size takes the time of one pair.

    ``hosts`` is ``plan.hosts`` in rack order; ``perftest_tos`` the traffic class byte of RoCE, None without one.
    """
    names = list(hosts)
    schedule = {}
    for index, name in enumerate(names):
        plan = hosts[name]
        peer = names[(index + 1) % len(names)] if len(names) > 1 else None
        thresholds = plan.get("thresholds", {})
        schedule[name] = {
            "peer": peer,
            "peer_address": (hosts[peer].get("management") or {}).get("address") if peer else None,
            "serve": [_server(rail, perftest_tos) for rail in plan.get("rails", ())],
            "measure": _pairs(plan, hosts[peer], perftest_tos) if peer else [],
            "iperf3": {"tcp_port": IPERF_PORT, "threshold_gbps": thresholds.get("iperf3_gbps")},
            "nccl": {
                "gpus": len(plan.get("gpus", ())),
                "threshold_gbytes_s": thresholds.get("nccl_single_busbw_gbps"),
            },
        }
    return schedule


def _server(rail: t.Mapping[str, t.Any], tos: int | None) -> dict[str, t.Any]:
    return {
        "rail": rail["rail"],
        "hca": rail["hca"],
        "port": rail["port"],
        "tcp_port": PERFTEST_PORT + rail["rail"],
        # InfiniBand has service levels instead.
        "tos": tos if rail.get("link_layer") == "Ethernet" else None,
    }


def _pairs(plan: t.Mapping[str, t.Any], peer: t.Mapping[str, t.Any], tos: int | None) -> list[dict[str, t.Any]]:
    """Rails that both ends have; a rail that only one has is a finding of its own, not a failed measurement."""
    theirs = {rail["rail"] for rail in peer.get("rails", ())}
    limits = plan.get("thresholds", {}).get("ib_write_bw_gbps", {})
    return [
        {**_server(rail, tos), "threshold_gbps": limits.get(str(rail["rail"]))}
        for rail in plan.get("rails", ())
        if rail["rail"] in theirs
    ]


__all__ = ("IPERF_PORT", "PERFTEST_PORT", "ring")
