# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/etc/nccl.conf: lines that NCCL reads as something else, devices and files of another machine."""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, RackView, natural
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.nccl_log import messages
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import Selector, parse, selector

CONF_SYNTAX = define(
    "nccl",
    "RF-NCCL-CONF-SYNTAX",
    title="A line of /etc/nccl.conf does not mean what it looks like",
    severity="fail",
    phase="configure",
    means="NCCL takes the file literally: no quotes, no blanks around the equals sign, no comment after a value, no "
    "export. A quoted device list matches no device, a quoted number reads as 0, both without an error.",
    looks_at="Every line of /etc/nccl.conf.",
    cause="The file was written by hand or by a template as if it were a shell file.",
    remedy="Run site.yml --tags nccl, which owns the whole file, or write one bare KEY=VALUE per line.",
    check="NCCL_DEBUG=INFO shows the value as meant (NCCL_IB_HCA set to ...).",
    source="NCCL src/misc/param.cc, setEnvFile; https://github.com/NVIDIA/nccl/issues/236",
    mended_by="nccl",
)

CONF_HCA = define(
    "nccl",
    "RF-NCCL-CONF-HCA",
    title="NCCL_IB_HCA in /etc/nccl.conf selects other devices than it says",
    severity="warn",
    phase="configure",
    means="Without a leading = the names are prefixes (mlx5_1 also selects mlx5_10), and the modifiers ^ and = count "
    "only at the start of the whole value.",
    looks_at="The value against the host's RDMA devices, in NCCL's own reading.",
    cause="The list was written for a machine with fewer devices, or devices were renamed.",
    remedy="Run site.yml --tags nccl: the list is derived per host and written in its exact form.",
    check="grep NCCL_IB_HCA /etc/nccl.conf begins with NCCL_IB_HCA==.",
    source="https://github.com/NVIDIA/nccl/issues/236",
    mended_by="nccl",
)

STALE_FILE = define(
    "nccl",
    "RF-NCCL-STALE-FILE",
    title="/etc/nccl.conf points NCCL at a topology or graph file of another machine",
    severity="fail",
    phase="diagnose",
    means="NCCL takes topology or channels from a file that does not describe this host: initialisation fails (XML "
    "Import Channel: dev not found) or pairs GPUs and NICs wrongly.",
    looks_at="NCCL_TOPO_FILE and NCCL_GRAPH_FILE in /etc/nccl.conf, whether the plan wants them, the number of GPUs, "
    "import errors in the NCCL log.",
    cause="The image was built for another machine size and nobody owns /etc/nccl.conf.",
    remedy="Run site.yml --tags nccl: it writes the file anew and keeps a backup of the old one. Set a topology file "
    "in gpu_fabric_nccl_env only for a virtual machine that needs the provider's.",
    check="NCCL_DEBUG=INFO no longer prints the file's name.",
    source="https://github.com/Azure/azhpc-images/issues/327",
    mended_by="nccl",
)

CONF = "/etc/nccl.conf"


def complaint(line: str) -> str | None:
    """Why NCCL reads another thing than a person does."""
    name, _, value = line.partition("=")
    if line.startswith("export "):
        return "'export ' becomes part of the name"
    if name != name.strip():
        return "the blank before = becomes part of the name"
    if re.search(r"\s#", value):
        return "the comment becomes part of the value"
    if re.search(r"[\"']", value):
        return "quotes become part of the value"
    if value != value.strip():
        return "blanks around the value become part of it"
    return None


@host_rule(CONF_SYNTAX)
def conf_syntax(host: HostView) -> t.Iterator[Finding]:
    for number, line in enumerate(host.files.get(CONF, "").split("\n"), 1):
        if line.startswith("#") or "=" not in line:
            continue
        why = complaint(line)
        if why:
            yield CONF_SYNTAX.on(
                host,
                f"{host.name}: line {number} of {CONF}: {why}: NCCL sets {line.partition('=')[0]!r} to "
                f"{line.partition('=')[2]!r}; bare KEY=VALUE wanted",
                device=line.partition("=")[0].strip(),
                evidence=[f"{CONF}:{number}: {line}"],
            )


@host_rule(CONF_HCA)
def conf_devices(host: HostView) -> t.Iterator[Finding]:
    value = parse(host.files.get(CONF, "")).get("NCCL_IB_HCA")
    names = sorted(host.section("rdma_devices"), key=natural)
    if not value or not names or complaint(f"NCCL_IB_HCA={value}"):
        return
    chosen = selector(value)
    wrong = list(chosen.problems)
    for item, _port in chosen.items if not chosen.exclude and not wrong else ():
        hits = [name for name in names if (name == item if chosen.exact else name.startswith(item))]
        if not hits:
            wrong.append(f"{item} is no device of this host")
        elif not chosen.exact and item in hits and len(hits) > 1:
            wrong.append(f"{item} also selects {', '.join(name for name in hits if name != item)}")
    if not wrong:
        wrong = _not_the_rails(host, chosen)
    if wrong:
        yield CONF_HCA.on(
            host,
            f"{host.name}: NCCL_IB_HCA={value} in {CONF}: {'; '.join(wrong)}; an exact list (==) of this host's "
            "devices wanted",
            device="NCCL_IB_HCA",
            evidence=[f"{CONF}: NCCL_IB_HCA={value}", f"devices: {', '.join(names)}"],
        )


def _not_the_rails(host: HostView, chosen: Selector) -> list[str]:
    """What a readable list takes that is no rail, and the rails that it leaves out."""
    rails = {rail["hca"] for rail in host.rails if rail.get("hca")}
    if not rails or host.plan.get("confidence") == "low":
        return []
    foreign = [
        f"{port.device} ({port.role})"
        for port in host.ports
        if port.active and port.role in ("storage", "management") and chosen.matches(port.device, int(port.number))
    ]
    left_out = sorted((name for name in rails if not chosen.matches(name)), key=natural)
    found = [f"it selects {', '.join(dict.fromkeys(foreign))}, no rail"] if foreign else []
    return found + ([f"it leaves out {', '.join(left_out)}"] if left_out else [])


@rack_rule(STALE_FILE)
def stale_files(rack: RackView) -> t.Iterator[Finding]:
    errors: dict[str, list[str]] = collections.defaultdict(list)
    for node, rest, line in messages(rack):
        if re.search(r"XML Import|Could not open XML|XML (parse|mismatch)|Topology file .* not found", rest):
            errors[node].append(line)
    for host in rack.hosts:
        env = parse(host.files.get(CONF, ""))
        planned = host.plan.get("nccl_env") or {}
        named = {
            name: env[name]
            for name in ("NCCL_GRAPH_FILE", "NCCL_TOPO_FILE")
            if env.get(name) and planned.get(name) != env[name]
        }
        if not named:
            continue
        lines = errors.get(host.name, [])
        shown = " and ".join(f"{name}={value}" for name, value in named.items())
        count = f"; the host has {len(host.gpus)} GPU{'s' if len(host.gpus) != 1 else ''}" if host.gpus else ""
        failing = "NCCL fails on it" if lines else "the plan does not"
        yield STALE_FILE.on(
            host,
            f"{host.name}: {CONF} sets {shown}, {failing}{count}; no such line wanted",
            device=", ".join(named),
            evidence=[*(f"{CONF}: {name}={value}" for name, value in named.items()), *lines[:3]],
            severity="fail" if lines else "warn",
        )
