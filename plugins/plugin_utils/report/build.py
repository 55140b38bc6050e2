# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the report says, as plain data: ``report.json``. Pure.

```
{"schema": 1, "title", "created": ISO time, "verdict": "pass"|"warn"|"fail",
 "counts": {"hosts", "unreachable", "fail", "warn", "info", "benchmarks": {"pass","fail","not_run"}},
 "rack": {fabric, roce, subnets, …},
 "hosts": {host: {"state": "ok"|"unreachable"|"failed"|"stopped",
                   "verdict", system…, "gpus", "rails": {"up","planned"}, "tree": […]}},
 "plan": {host: the host's plan},
 "findings": [finding…],
 "benchmarks": [{"host", result…}…]}
```
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.report.topology import tree

Json = dict[str, t.Any]
ORDER = {"pass": 0, "warn": 1, "fail": 2}


def build(
    facts: t.Mapping[str, Json],
    plan: t.Mapping[str, t.Any],
    findings: t.Sequence[Json],
    benchmarks: t.Mapping[str, t.Sequence[Json]] | None = None,
    unreachable: t.Collection[str] = (),
    failures: t.Mapping[str, str] | None = None,
    stopped: t.Collection[str] = (),
    created: str = "",
    title: str = "GPU fabric",
) -> Json:
    """Put everything that is known of a run together.

    ``unreachable`` are hosts that did not answer at some time of the run, ``failures`` the first error of hosts whose
    run stopped, ``stopped`` those that are as they should be but did not get to the end because of others.
    """
    failures = failures or {}
    plans = plan.get("hosts", {}) if plan else {}
    names = sorted({*facts, *plans, *unreachable, *failures}, key=lambda name: (natural(name), name))
    by_host: dict[str, list[Json]] = collections.defaultdict(list)
    for finding in findings:
        by_host[finding.get("host") or ""].append(finding)
    results = [{"host": name, **result} for name in names for result in (benchmarks or {}).get(name, ())]
    hosts = {
        name: host_summary(
            facts.get(name, {}),
            plans.get(name, {}),
            by_host[name],
            list((benchmarks or {}).get(name, ())),
            name in unreachable,
            failures.get(name),
            name in stopped,
        )
        for name in names
    }
    verdicts = [host["verdict"] for host in hosts.values()] + [severity_verdict(by_host[""])]
    return {
        "schema": 1,
        "title": title,
        "created": created,
        "verdict": max(verdicts, key=ORDER.__getitem__, default="pass"),
        "counts": {
            "hosts": len(names),
            "unreachable": len(unreachable),
            **{level: sum(finding["severity"] == level for finding in findings) for level in ("fail", "warn", "info")},
            "benchmarks": dict(collections.Counter(result["verdict"] for result in results)),
        },
        "rack": plan.get("rack", {}) if plan else {},
        "hosts": hosts,
        "plan": dict(plans),
        "findings": list(findings),
        "benchmarks": results,
    }


def severity_verdict(findings: t.Sequence[Json]) -> str:
    worst = {finding["severity"] for finding in findings}
    return "fail" if "fail" in worst else "warn" if "warn" in worst else "pass"


def host_summary(
    facts: Json,
    plan: Json,
    findings: t.Sequence[Json],
    results: t.Sequence[Json],
    unreachable: bool,
    failure: str | None,
    stopped: bool,
) -> Json:
    """Return one host's row of the rack table."""
    host, driver = facts.get("host") or {}, facts.get("driver") or {}
    rails = plan.get("rails") or []
    verdict = severity_verdict(findings)
    if unreachable or failure or any(result["verdict"] == "fail" for result in results):
        verdict = "fail"
    elif any(result["verdict"] == "not_run" for result in results):
        verdict = max(verdict, "warn", key=ORDER.__getitem__)
    os_release = host.get("os") or {}
    product = host.get("product") or {}
    return {
        "state": "unreachable" if unreachable else "failed" if failure else "stopped" if stopped else "ok",
        "failure": failure,
        "verdict": verdict,
        "os": " ".join(str(os_release[key]) for key in ("id", "version_id") if os_release.get(key)),
        "kernel": host.get("kernel"),
        "product": product.get("name"),
        "driver": (driver.get("loaded") or {}).get("version"),
        "driver_flavour": (driver.get("loaded") or {}).get("flavour"),
        "fabric_manager": (facts.get("fabric_manager") or {}).get("installed_version"),
        "gpus": {"count": len(facts.get("gpus") or ()), "model": gpu_model(facts)},
        "rails": {"planned": len(rails), "up": sum(rail_is_up(facts, rail) for rail in rails)},
        "firmware": sorted(
            {
                device["firmware"]
                for rail in rails
                if (device := (facts.get("rdma_devices") or {}).get(rail.get("hca"))) and device.get("firmware")
            }
        ),
        "findings": {
            level: sum(finding["severity"] == level for finding in findings) for level in ("fail", "warn", "info")
        },
        "tree": tree(facts, plan),
    }


def gpu_model(facts: Json) -> str | None:
    """Return the model, or all of them where a host mixes models."""
    names = sorted({gpu["name"] for gpu in facts.get("gpus") or () if gpu.get("name")})
    return ", ".join(names) or None


def rail_is_up(facts: Json, rail: Json) -> bool:
    device = (facts.get("rdma_devices") or {}).get(rail.get("hca")) or {}
    port = (device.get("ports") or {}).get(str(rail.get("port", 1))) or {}
    return bool(port.get("state") == "active")


__all__ = ("build",)
