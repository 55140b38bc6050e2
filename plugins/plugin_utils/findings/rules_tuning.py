# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kernel parameters and command line: persisted against active."""

from __future__ import annotations

import re
import shlex
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, dicts, mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.tuning import CMDLINE_FILE

SYSCTL_OVERRIDDEN = define(
    "tuning",
    "RF-SYSCTL-OVERRIDDEN",
    title="A later sysctl file overrides the fabric's value",
    severity="fail",
    phase="preflight",
    means="The key will have another value after the next boot, when all sysctl files are applied in the order of "
    "their names, whatever the fabric's file says.",
    looks_at="Every sysctl.d file in the order in which systemd-sysctl applies them, for the keys of "
    "90-gpu-fabric.conf and those that the plan is about to set; the running value beside it.",
    cause="Another file with a later name sets the same key: 99-sysctl.conf (the link to /etc/sysctl.conf), a vendor's "
    "z-file, a tuned profile.",
    remedy="Remove the key from the file named in the message, or take the other value over with gpu_fabric_sysctl.",
    check="systemd-analyze cat-config sysctl.d | grep KEY: the last line is the fabric's.",
    source="https://github.com/ansible-collections/ansible.posix/issues/512",
)

SYSCTL_NOT_ACTIVE = define(
    "tuning",
    "RF-SYSCTL-NOT-ACTIVE",
    title="A persisted kernel parameter is not in force",
    severity="warn",
    phase="verify",
    means="90-gpu-fabric.conf sets the key and the kernel has another value now: something changed it at run time.",
    looks_at="The keys of 90-gpu-fabric.conf against the running values.",
    cause="A person, tuned or a container runtime wrote the key after boot; the interface was recreated.",
    remedy="Run site.yml --tags rdma, or sysctl -p /etc/sysctl.d/90-gpu-fabric.conf; then find the second writer "
    "(tuned-adm active).",
    check="sysctl KEY prints the file's value.",
    source="systemd-sysctl documentation",
    mended_by="rdma",
)

CMDLINE_NOT_ACTIVE = define(
    "tuning",
    "RF-CMDLINE-NOT-ACTIVE",
    title="A kernel argument is set and did not reach the running kernel",
    severity="fail",
    phase="verify",
    means="The boot loader's defaults name the argument, the kernel that runs was started without it.",
    looks_at="GRUB_CMDLINE_LINUX and GRUB_CMDLINE_LINUX_DEFAULT over /etc/default/grub and grub.d in order, against "
    "/proc/cmdline.",
    cause="A later file of /etc/default/grub.d replaces the variable, the boot loader's configuration was not "
    "generated, boot entries (BLS) keep their own arguments, or the reboot is missing.",
    remedy="Append the argument in a grub.d file with a later name (50-gpu-fabric.cfg does: it adds to the variable), "
    "run update-grub (grubby --update-kernel=ALL on RHEL) and reboot.",
    check="grep ARGUMENT /proc/cmdline after the reboot.",
    source="https://github.com/stackhpc/ansible-collection-linux/issues/29",
)

OURS = "90-gpu-fabric.conf"


def _normal(value: t.Any) -> str:
    return " ".join(str(value).split())


def _entries(row: dict[str, t.Any]) -> dict[str, str]:
    return {str(key).replace("/", "."): _normal(value) for key, value in mapping(row.get("entries")).items()}


@host_rule(SYSCTL_OVERRIDDEN, SYSCTL_NOT_ACTIVE)
def sysctl_values(host: HostView) -> t.Iterator[Finding]:
    # A file that only a person's `sysctl --system` reads sets nothing at the boot; of a recording nobody knows that.
    files = dicts(host.get("sysctl_files"))
    applied = [row for row in files if host.recorded_only or not row.get("applied_by")]
    rows = [(str(row.get("path", "")), _entries(row)) for row in applied]
    # Files are applied by the order of their names, whatever their directories.
    after = [row for row in rows if row[0].rpartition("/")[2] > OURS]
    path, ours = next((row for row in rows if row[0].endswith("/" + OURS)), (f"/etc/sysctl.d/{OURS}", {}))
    # A key with a dash is set where it can be.
    written = {key.removeprefix("-"): value for key, value in ours.items()}
    planned = {} if host.want("state") == "absent" else host.plan.get("sysctl")
    wanted = written | {
        str(key).replace("/", "."): _normal(mapping(entry).get("value")) for key, entry in mapping(planned).items()
    }
    running = {str(key): _normal(value) for key, value in host.section("sysctl").items()}
    for key, value in sorted(wanted.items()):
        later = [(other, entries[key]) for other, entries in after if key in entries]
        now = running.get(key)
        if later and later[-1][1] != value:
            winner, wins = later[-1]
            yield SYSCTL_OVERRIDDEN.on(
                host,
                f"{host.name}: {key} becomes {wins} at the next boot ({winner} is applied after {OURS}), {value} wanted"
                + (f"; running value {now}" if now is not None else ""),
                device=key,
                evidence=[f"{path}: {key} = {value}", f"{winner}: {key} = {wins}", f"running: {now}" if now else ""],
                remedy=f"Remove {key} from {winner}, or set gpu_fabric_sysctl: {{{key}: {wins!r}}} when that value is "
                "meant.",
            )
        elif now is not None and now != written.get(key, now) and f"-{key}" not in ours:
            yield SYSCTL_NOT_ACTIVE.on(
                host,
                f"{host.name}: {key} is {now}, {written[key]} wanted (as {path} says)",
                device=key,
                evidence=[f"{path}: {key} = {written[key]}", f"running: {now}"],
            )


# Arguments whose presence matters to the fabric; others (console, quiet) are nobody's business here.
_ARGUMENTS = re.compile(
    r"^(iommu|intel_iommu|amd_iommu|pci|pcie_\w+|default_hugepagesz|hugepagesz|hugepages|transparent_hugepage"
    r"|numa_balancing|processor\.max_cstate|intel_idle\.max_cstate|nvidia[\w.-]*|modprobe\.blacklist|rd\.driver\.blacklist"
    r"|mitigations|isolcpus|nohz_full|cgroup_enable|systemd\.unified_cgroup_hierarchy)(=|$)"
)
_ASSIGNMENT = re.compile(r"^\s*(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?)=(.*)$")


def grub_arguments(files: dict[str, str]) -> list[tuple[str, str, str | None]]:
    """(argument, file that sets it, later file that replaces it or None) over /etc/default/grub and grub.d."""
    paths = [path for path in ("/etc/default/grub",) if path in files]
    paths += sorted(path for path in files if path.startswith("/etc/default/grub.d/") and path.endswith(".cfg"))
    current: dict[str, list[tuple[str, str]]] = {}
    lost: list[tuple[str, str, str | None]] = []
    for path in paths:
        for line in files[path].splitlines():
            match = _ASSIGNMENT.match(line)
            if not match:
                continue
            name, added, raw = match.groups()
            try:
                words = " ".join(shlex.split(raw, comments=True)).split()
            except ValueError:
                words = raw.strip("\"'").split()
            keeps = added or any(word in (f"${name}", f"${{{name}}}") for word in words)
            tokens = [(word, path) for word in words if not word.startswith("$")]
            if keeps:
                current[name] = current.get(name, []) + tokens
                continue
            fresh = {word for word, _p in tokens}
            lost += [
                (word, origin, path) for word, origin in current.get(name, []) if word not in fresh and origin != path
            ]
            current[name] = tokens
    kept = [(word, origin, None) for tokens in current.values() for word, origin in tokens]
    live = {word for word, _o, _n in kept}
    return kept + [item for item in lost if item[0] not in live]


@host_rule(CMDLINE_NOT_ACTIVE)
def cmdline_not_active(host: HostView) -> t.Iterator[Finding]:
    running = host.get("host", "cmdline")
    if not isinstance(running, list):
        return
    seen: set[str] = set()
    for argument, origin, replaced in grub_arguments(host.files):
        if not _ARGUMENTS.match(argument) or argument in running or argument in seen:
            continue
        seen.add(argument)
        why = (
            f"{replaced.rpartition('/')[2]} is read later and replaces the variable"
            if replaced
            else "the boot loader's configuration was not generated or the reboot is missing"
        )
        yield CMDLINE_NOT_ACTIVE.on(
            host,
            f"{host.name}: {argument} is set in {origin} and not in /proc/cmdline: {why}; {argument} in /proc/cmdline "
            "wanted, reboot required",
            device=argument,
            evidence=[
                f"{origin}: {argument}",
                *([f"{replaced}: {_lines(host.files[replaced])}"] if replaced else []),
                f"/proc/cmdline: {' '.join(map(str, running))}",
            ],
            remedy=(
                f"Append {argument} in a grub.d file with a later name than {replaced.rpartition('/')[2]}"
                if replaced
                else f"Keep {argument} where it is"
            )
            + ", run update-grub (grubby --update-kernel=ALL --args on RHEL) and reboot the drained node.",
            # What this collection has just written waits for a reboot that it does not make; that must stop no run.
            severity="warn" if origin == CMDLINE_FILE and not replaced and not host.recorded_only else None,
        )


def _lines(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if "GRUB_CMDLINE" in line)
