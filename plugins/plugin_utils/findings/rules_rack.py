# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts against each other: identity, kernel, network libraries; and what could not be read."""

from __future__ import annotations

import collections
import json
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    dicts,
    mapping,
    natural,
)

DUPLICATE = define(
    "rack",
    "RF-HOST-DUPLICATE",
    title="Hosts share a name or an identity",
    severity="fail",
    phase="preflight",
    means="Launchers start processes on the wrong node, and libraries that tell hosts apart by name take two machines "
    "for one.",
    looks_at="Host name, machine-id and boot-id of every host. Hosts with a machine-id each and one boot-id are "
    "containers of one machine, which is no finding.",
    cause="A cloned image kept its machine-id, the host name was never set, or one machine is in the inventory twice.",
    remedy="Give each host its own name (hostnamectl set-hostname NAME) and machine-id (rm /etc/machine-id, then "
    "systemd-machine-id-setup and reboot); remove an inventory entry that names the same machine twice.",
    check="hostname and cat /etc/machine-id differ on all hosts.",
    source="https://github.com/open-mpi/ompi/issues/4621",
)

INVALID_NAME = define(
    "rack",
    "RF-HOST-NAME",
    title="A host name is not valid after RFC 1123",
    severity="warn",
    phase="preflight",
    means="Launchers parse node lists by pattern; an underscore or another such character makes mpirun fail with an "
    "error that names something else. Hyphens and leading zeros are fine.",
    looks_at="The host's own name.",
    cause="The name was taken over from an inventory or asset name.",
    remedy="hostnamectl set-hostname NAME with letters, digits and hyphens only.",
    check="hostname on the node.",
    source="RFC 1123; https://github.com/open-mpi/ompi/issues/4621",
)

OFED_DRIFT = define(
    "rack",
    "RF-RACK-OFED-DRIFT",
    title="OFED or kernel differs between hosts",
    severity="warn",
    phase="preflight",
    means="Hosts of one rack run different kernels or RDMA stacks: behaviour and device names may differ between them.",
    looks_at="Running kernel and OFED version of every host.",
    cause="An update reached only a part of the rack.",
    remedy="Bring the host to the rack's versions in a maintenance window and hold the kernel.",
    check="uname -r and ofed_info -s are equal on all hosts.",
    source="Version checks of ROCm/cvs and imbue-ai/cluster-health",
)

CHANGED = define(
    "rack",
    "RF-RACK-CHANGED",
    title="The host is not what it was when it was recorded earlier",
    severity="warn",
    phase="diagnose",
    means="Hardware, names or versions differ from an earlier recording of the same rack. What worked then was tried "
    "on something else.",
    looks_at="The earlier recording in the bundle (before/): GPUs, RDMA devices by PCI address, port rates, firmware, "
    "driver, kernel and OFED.",
    cause="An upgrade, a replaced card, a lost device, or a rename after an update of the operating system.",
    remedy="Decide for each difference named whether it was meant; undo the others, or run site.yml so that the "
    "configuration follows.",
    check="A new recording equals the earlier one in what the message names.",
    source="DESIGN: before a change the state is recorded",
)

UNREADABLE = define(
    "rack",
    "RF-FACTS-UNREADABLE",
    title="Something could not be read",
    severity="info",
    phase="diagnose",
    means="A file or a tool's output was there and could not be understood, so its values are left out of the facts.",
    looks_at="Problems that the readers and parsers noted, with line and text.",
    cause="A truncated recording, a tool of an unknown version, or a missing permission.",
    remedy="Read the quoted text; record the output again where it is cut off, report a format that is new.",
    check="The finding is gone after the next reading.",
    source="plugins/module_utils/_parsers",
)

NOTHING = define(
    "rack",
    "RF-FACTS-NOTHING",
    title="Nothing was recorded",
    severity="warn",
    phase="diagnose",
    means="The folder is there and holds no file that says anything: nothing was judged, which is not the same as "
    "healthy.",
    looks_at="Hosts of a bundle without any fact; a bundle without hosts and without outputs of the rack.",
    cause="The recording failed on the host, files lie in another place than the bundle's layout has, or the wrong "
    "folder was given.",
    remedy="Record the host again (playbooks/collect.yml --limit HOST), or give the folder that holds one folder for "
    "each host.",
    check="The report lists facts of the host.",
    source="DESIGN: a missing file is not recorded, never healthy",
)

_LABEL = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$")


def identities(rack: RackView) -> dict[str, dict[str, t.Any]]:
    """Inventory name → hostname, machine_id, boot_id, container."""
    found = {host.name: dict(host.section("host")) for host in rack.hosts}
    try:
        recorded = mapping(json.loads(rack.text("facts.json") or "{}"))
    except ValueError:
        recorded = {}
    for name, data in recorded.items():
        found.setdefault(str(name), {}).update(mapping(data))
    return found


@rack_rule(DUPLICATE, INVALID_NAME)
def host_identity(rack: RackView) -> t.Iterator[Finding]:
    hosts = identities(rack)
    for key, label in (("hostname", "host name"), ("machine_id", "machine-id"), ("boot_id", "boot-id")):
        groups: dict[str, list[str]] = collections.defaultdict(list)
        for name, data in hosts.items():
            value = data.get(key)
            if isinstance(value, str) and value:
                groups[value].append(name)
        for value, names in groups.items():
            machines = {hosts[name].get("machine_id") for name in names}
            if len(names) < 2 or (key == "boot_id" and None not in machines and len(machines) == len(names)):
                continue
            names.sort(key=natural)
            shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            yield DUPLICATE.on(
                "",
                f"duplicate {label} {value}: {shown} have the same one; a {label} of its own on each host wanted",
                device=label,
                evidence=[f"{name}: {key} {value}" for name in names[:8]],
            )
    for name in sorted(hosts, key=natural):
        own = hosts[name].get("hostname")
        if isinstance(own, str) and own and not all(_LABEL.match(label) for label in own.rstrip(".").split(".")):
            yield INVALID_NAME.on(
                name,
                f"{name}: the host name {own!r} is not valid (letters, digits and hyphens wanted)",
                device="hostname",
                evidence=[f"hostname: {own}"],
            )


@rack_rule(OFED_DRIFT)
def stack_drift(rack: RackView) -> t.Iterator[Finding]:
    for path, label in ((("ofed", "version"), "OFED"), (("host", "kernel"), "kernel")):
        seen = {host.name: str(value) for host in rack.hosts if (value := host.get(*path))}
        counts = collections.Counter(seen.values())
        if len(counts) < 2:
            continue
        usual, times = counts.most_common(1)[0]
        if times * 2 <= len(seen):
            continue  # no majority: a rack in the middle of an update
        for name in sorted(seen, key=natural):
            if seen[name] != usual:
                yield OFED_DRIFT.on(
                    name,
                    f"{name}: {label} {seen[name]}, {usual} wanted (as on {times} of {len(seen)} hosts)",
                    device=label,
                    evidence=[f"{label}: {seen[name]}"],
                )


_SAYS_NOTHING = frozenset({"schema", "host", "outputs", "problems", "files", "sysctl_files", "firewall", "tools"})


@rack_rule(NOTHING, UNREADABLE)
def nothing_recorded(rack: RackView) -> t.Iterator[Finding]:
    for host in rack.hosts:
        said = set(host.facts) - _SAYS_NOTHING or any(
            host.facts.get(key) for key in ("files", "sysctl_files", "firewall")
        )
        if host.recorded_only and not said and set(host.section("host")) <= {"hostname"}:
            yield NOTHING.on(
                host,
                f"{host.name}: no file of the bundle says anything about this host, recorded facts wanted",
                device=host.name,
                evidence=[f"{host.name}/: nothing that could be read"],
            )
    texts = [name for name, value in rack.outputs.items() if isinstance(value, str)]
    recorded = rack.outputs.get("left_out") is not None
    if recorded and not rack.hosts and not texts:
        yield NOTHING.on(
            "",
            "The bundle holds no folder of a host and no output of the rack; both or one of them wanted",
            device="bundle",
            evidence=["no host folder, no .txt, .log or .json file"],
        )
    for name, reason in sorted(mapping(rack.outputs.get("left_out")).items()):
        yield UNREADABLE.on(
            "",
            f"{name} of the bundle was left out: {reason}; a file that can be read wanted",
            device=name,
            evidence=[f"{name}: {reason}"],
            severity="warn",
        )


@host_rule(UNREADABLE)
def unreadable(host: HostView) -> t.Iterator[Finding]:
    by_source: dict[str, list[dict[str, t.Any]]] = collections.defaultdict(list)
    for problem in dicts(host.get("problems")):
        by_source[str(problem.get("source"))].append(problem)
    for source, problems in by_source.items():
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        yield UNREADABLE.on(
            host,
            f"{host.name}: {source}: {first.get('reason')}{more}",
            device=source,
            evidence=[f"line {p.get('line')}: {p.get('text')}" for p in problems[:4] if p.get("text")],
        )


def _milestones(host: HostView) -> dict[str, str]:
    """What of a host is compared over time: label → value."""
    found = {
        label: str(value)
        for label, path in (
            ("driver", ("driver", "loaded", "version")),
            ("kernel", ("host", "kernel")),
            ("OFED", ("ofed", "version")),
        )
        if (value := host.get(*path))
    }
    if host.gpus:
        found["GPUs"] = str(len(host.gpus))
    for name, device in host.section("rdma_devices").items():
        data = mapping(device)
        place = data.get("pci") or name
        if data.get("pci"):
            found[f"name of {place}"] = str(name)
        if data.get("firmware"):
            found[f"firmware of {place}"] = str(data["firmware"])
        for number, port in mapping(data.get("ports")).items():
            rate = mapping(port).get("rate_gbps")
            if rate and mapping(port).get("state") == "active":
                found[f"rate of {place} port {number}"] = (
                    f"{rate:g} Gb/s" if isinstance(rate, (int, float)) else str(rate)
                )
    return found


@rack_rule(CHANGED)
def changed_since(rack: RackView) -> t.Iterator[Finding]:
    earlier = mapping(mapping(rack.outputs.get("before")).get("facts"))
    for host in rack.hosts:
        if host.name not in earlier:
            continue
        then, now = _milestones(HostView(host.name, earlier[host.name])), _milestones(host)
        changes = [(label, then[label], now[label]) for label in then if label in now and then[label] != now[label]]
        if changes:
            shown = "; ".join(f"{label} was {old}, is {new}" for label, old, new in changes[:6])
            more = f"; and {len(changes) - 6} more" if len(changes) > 6 else ""
            yield CHANGED.on(
                host,
                f"{host.name}: {shown}{more}; what was recorded earlier wanted unless the change was meant",
                device=changes[0][0],
                evidence=[f"{label}: {old} -> {new}" for label, old, new in changes],
            )
