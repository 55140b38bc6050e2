# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Packages that somebody holds at another version than the plan wants."""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    dicts,
    mapping,
    upstream,
)

HELD = define(
    "packaging",
    "RF-PKG-HELD",
    title="A package that is to change is held",
    severity="fail",
    phase="preflight",
    means="Somebody keeps a package at its version (apt-mark hold), and the plan wants another one or its removal. The "
    "transaction of that layer would be refused in the middle of the run.",
    looks_at="Holds of the package manager's database, without those that the collection set itself "
    "(/var/lib/gpu_fabric/packages.json), against the plan's packages, pins and removals.",
    cause="A hold of a person, an image or another tool.",
    remedy="Release it with apt-mark unhold PACKAGE, or set gpu_fabric_driver_version, gpu_fabric_cuda_version or "
    "gpu_fabric_nccl_version to the version that is held.",
    check="apt-mark showhold does not name the package.",
    source="apt-mark(8)",
)
VARIABLES = {"driver": "driver_version", "cuda": "cuda_version", "nccl": "nccl_version", "ofed": "ofed_version"}


@host_rule(HELD)
def held_in_the_way(host: HostView) -> t.Iterator[Finding]:
    if host.recorded_only:
        return  # nothing is about to be installed on a recording
    held = {
        str(name): str(mapping(entry).get("version", ""))
        for name, entry in host.section("packages").items()
        if mapping(entry).get("held") and mapping(entry).get("status") == "installed" and not mapping(entry).get("ours")
    }
    for layer, data in sorted(mapping(host.plan.get("packages")).items()):
        if not mapping(data).get("wanted"):
            continue
        for name, version in sorted(held.items()):
            wanted = _wanted(mapping(data), name, version)
            if wanted:
                yield HELD.on(
                    host,
                    f"{host.name}: {name} {version} is held by somebody else, {wanted} wanted for {layer}; "
                    f"apt-mark unhold {name}, or set gpu_fabric_{VARIABLES.get(layer, layer)}",
                    device=name,
                    evidence=[f"{name} {version}: hold"],
                )


def _wanted(data: dict[t.Any, t.Any], name: str, version: str) -> str:
    """What the set wants instead of the version that is there; "" where it has nothing against it."""
    exact = str(mapping(data.get("packages")).get(name) or "")
    if exact:
        return "" if exact in (version, upstream(version), version.partition(":")[2]) else exact
    if name in mapping(data.get("packages")):
        return ""
    if any(fnmatch.fnmatchcase(name, str(pattern)) for pattern in data.get("remove") or ()):
        return "its removal"
    for pin in dicts(data.get("pins")):
        if any(fnmatch.fnmatchcase(name, str(pattern)) for pattern in pin.get("packages") or ()):
            wanted = str(pin.get("version", "*"))
            fits = (version, version.rpartition(":")[2])
            return "" if any(fnmatch.fnmatchcase(text, wanted) for text in fits) else wanted
    return ""
