# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package sources, transactions and locks."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule, rack_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    RackView,
    mapping,
    upstream,
    version_key,
)

SIGNED_BY = define(
    "packaging",
    "RF-APT-SIGNED-BY",
    title="Two entries name the same repository with different keys",
    severity="fail",
    phase="preflight",
    means="apt refuses to read any source: 'Conflicting values set for option Signed-By'. Every later package task on "
    "the host fails, also those that have nothing to do with this repository.",
    looks_at="URL, suite and Signed-By of every entry of /etc/apt/sources.list and sources.list.d; apt's own text "
    "where it was recorded.",
    cause="A second owner added the repository: a role beside the vendor's keyring package, or an older file was left.",
    remedy="Keep one owner of the entry: remove the stale file named in the message, keep the one with Signed-By, "
    "then run apt-get update.",
    check="apt-get update ends without an E: line.",
    source="https://github.com/NVIDIA/ansible-role-nvidia-driver/issues/59",
)

APT_UPDATE = define(
    "packaging",
    "RF-APT-UPDATE",
    title="apt cannot refresh its indexes",
    severity="fail",
    phase="preflight",
    means="The package index of a source cannot be read or verified, so nothing can be installed from it.",
    looks_at="Error lines of a recorded apt-get update.",
    cause="A rotated or missing key (NO_PUBKEY, EXPKEYSIG), a wrong URL (404), or a proxy that alters files (BADSIG, "
    "hash sum mismatch).",
    remedy="Install the repository's current key (cuda-keyring, or gpu_fabric_repository.key_url), correct its URL, "
    "use https.",
    check="apt-get update ends without an E: line.",
    source="NVIDIA: rotation of the CUDA repository key (April 2022)",
)

KEYRING_DOWNGRADE = define(
    "packaging",
    "RF-APT-KEYRING-DOWNGRADE",
    title="An older keyring package is asked for than is installed",
    severity="warn",
    phase="preflight",
    means="The pinned keyring is older than the installed one; installing it is refused as a downgrade, or brings "
    "back a revoked key.",
    looks_at="The installed cuda-keyring against the version asked for.",
    cause="A fixed keyring version in a role or in the intent.",
    remedy="Ask for no fixed keyring version: the installed or a newer one is right.",
    check="dpkg -l cuda-keyring.",
    source="https://github.com/NVIDIA/ansible-role-nvidia-driver/issues/59",
)

TRANSACTION = define(
    "packaging",
    "RF-PKG-TRANSACTION",
    title="The transaction would change kernel or driver beyond the request",
    severity="fail",
    phase="preflight",
    means="A simulated installation moves the driver to another version than the one asked for, or brings a new "
    "kernel. On a running rack that is an outage at the next reboot.",
    looks_at="A simulated transaction (dnf --assumeno, apt-get -s), the versions asked for and installed.",
    cause="Meta packages with >= dependencies, module streams with 'latest' semantics, missing holds.",
    remedy="Stop. Pin the exact versions (gpu_fabric_driver_version) and hold kernel and driver, then simulate again.",
    check="The simulation lists no kernel and no driver package of another version.",
    source="https://github.com/stackhpc/ansible-slurm-appliance/issues/315",
)

APT_LOCK = define(
    "packaging",
    "RF-APT-LOCK",
    title="Another process holds the package manager's lock",
    severity="warn",
    phase="configure",
    means="A package task failed because unattended-upgrades or cloud-init was installing at the same time.",
    looks_at="The failed task's message: which lock, which process.",
    cause="Fresh nodes install updates right after boot; the module's own lock time-out does not cover the dpkg front "
    "end.",
    remedy="Let it end and run again: the collection waits for cloud-init and sets DPkg::Lock::Timeout for its own apt "
    "calls. The process named in the message shows what is at work.",
    check="fuser -v /var/lib/dpkg/lock-frontend prints nothing.",
    source="https://github.com/ansible/ansible/issues/51663",
)

NOT_AVAILABLE = define(
    "packaging",
    "RF-PKG-NOT-AVAILABLE",
    title="A package is not in any source in the version that is needed",
    severity="fail",
    phase="preflight",
    means="The installation would fail half-way, or take another version: Fabric Manager must have exactly the "
    "driver's.",
    looks_at="Recorded apt-cache policy answers: the candidate and the version table, against the driver's version; "
    "names that are similar in the sources.",
    cause="The package's name changed with the branch (nvidia-fabricmanager-570, from 580 on nvidia-fabricmanager), "
    "the repository is not configured or a mirror is behind.",
    remedy="Use the name that the sources have, configure gpu_fabric_repository, or choose a driver version of which "
    "the repository has all packages.",
    check="apt-cache policy PACKAGE lists the version.",
    source="NVIDIA Fabric Manager user guide; package names of the CUDA repository",
)

HALF_INSTALLED = define(
    "packaging",
    "RF-PKG-HALF-INSTALLED",
    title="A package of the stack is not completely installed",
    severity="warn",
    phase="preflight",
    means="dpkg left a package unpacked or half-configured, usually because a DKMS build failed. Every later apt run "
    "fails until it is resolved.",
    looks_at="Package states of the GPU and RDMA stack.",
    cause="A failing build or an interrupted installation.",
    remedy="dpkg --configure -a; read /var/lib/dkms/MODULE/VERSION/build/make.log where a build fails.",
    check="dpkg --audit prints nothing.",
    source="https://github.com/morrownr/88x2bu-20210702/issues/267",
)


class Source(t.NamedTuple):
    path: str
    uri: str
    suite: str
    signed_by: str
    line: str


def apt_sources(files: dict[str, str]) -> list[Source]:
    """Every entry of apt's source lists, one-line and deb822."""
    found: list[Source] = []
    for path, text in sorted(files.items()):
        if not path.startswith("/etc/apt/sources.list"):
            continue
        found += _deb822(path, text) if path.endswith(".sources") else _one_line(path, text)
    return found


def _one_line(path: str, text: str) -> t.Iterator[Source]:
    for line in text.splitlines():
        match = re.match(r"^\s*deb(?:-src)?\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)", line)
        if match:
            signed = re.search(r"signed-by=(\S+)", match["options"] or "", re.IGNORECASE)
            yield Source(
                path, match["uri"].rstrip("/"), match["suite"], signed.group(1) if signed else "", line.strip()
            )


def _deb822(path: str, text: str) -> t.Iterator[Source]:
    for paragraph in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and key:
                fields[key] += " " + line.strip()
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        if fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                shown = f"URIs: {uri} Suites: {suite} Signed-By: {fields.get('signed-by', '')}"
                yield Source(path, uri.rstrip("/"), suite, " ".join(fields.get("signed-by", "").split()), shown)


def _apt_errors(host: HostView) -> list[str]:
    return [
        line for line in (host.recorded("apt_update") or "").splitlines() if re.match(r"^(E|Err|W: GPG error)", line)
    ]


@host_rule(SIGNED_BY, APT_UPDATE)
def conflicting_sources(host: HostView) -> t.Iterator[Finding]:
    groups: dict[tuple[str, str], list[Source]] = {}
    for source in apt_sources(host.files):
        groups.setdefault((source.uri, source.suite), []).append(source)
    errors = _apt_errors(host)
    conflicts = 0
    for (uri, _suite), entries in groups.items():
        if len({entry.signed_by for entry in entries}) < 2:
            continue
        conflicts += 1
        stale = next((entry for entry in entries if not entry.signed_by), entries[0])
        kept = next(entry for entry in entries if entry is not stale)
        names = ", ".join(f"{e.path.rpartition('/')[2]} (Signed-By {e.signed_by or 'not set'})" for e in entries)
        yield SIGNED_BY.on(
            host,
            f"{host.name}: {uri} has {len(entries)} entries with different Signed-By values: {names}; one entry wanted",
            device=stale.path,
            evidence=[*(f"{entry.path}: {entry.line}" for entry in entries), *errors[:2]],
            remedy=f"Remove {stale.path} (the stale entry) and keep {kept.path}, then run apt-get update.",
        )
    others = [line for line in errors if not (conflicts and re.search(r"Signed-By|list of sources", line))]
    if others:
        yield APT_UPDATE.on(
            host,
            f"{host.name}: apt-get update fails: {others[0]}; a clean refresh wanted",
            device="apt",
            evidence=others[:4],
        )


@host_rule(KEYRING_DOWNGRADE)
def keyring_downgrade(host: HostView) -> t.Iterator[Finding]:
    wanted = host.want("cuda_keyring_version")
    installed = mapping(host.section("packages").get("cuda-keyring")).get("version")
    if wanted and installed and version_key(str(wanted)) < version_key(str(installed)):
        yield KEYRING_DOWNGRADE.on(
            host,
            f"{host.name}: cuda-keyring {installed} is installed, {wanted} is asked for: that is a downgrade, "
            f"{installed} or newer wanted",
            device="cuda-keyring",
            evidence=[f"cuda-keyring {installed}"],
        )


_DNF_ROW = re.compile(r"^\s(?P<name>\S+)\s+(?P<arch>\S+)\s+(?P<version>\d\S*)\s+(?P<repo>\S+)\s+\d")
_APT_ROW = re.compile(r"^Inst (?P<name>\S+)(?: \[(?P<old>[^\]]+)\])? \((?P<version>\S+)")
_KERNEL = re.compile(r"^(kernel|kernel-core|kernel-modules\S*|linux-image-\S+|linux-modules-\d\S*)$")
_DRIVER = re.compile(
    r"^(nvidia-driver\S*|kmod-nvidia\S*|nvidia-open\S*|cuda-drivers\S*|nvidia-dkms\S*|libnvidia-compute\S*)$"
)


def transaction(text: str) -> list[tuple[str, str, str]]:
    """(package, version, line) of a simulated dnf or apt transaction."""
    rows = []
    for line in text.splitlines():
        match = _DNF_ROW.match(line) or _APT_ROW.match(line)
        if match:
            rows.append((match["name"], match["version"], line.strip()))
    return rows


@host_rule(TRANSACTION)
def transaction_goes_too_far(host: HostView) -> t.Iterator[Finding]:
    text = host.recorded("dnf_assumeno") or host.recorded("apt-get_-s") or host.recorded("apt_simulate") or ""
    asked = host.want("driver_version")
    drivers, kernels, evidence = [], [], []
    for name, version, line in transaction(text):
        plain = upstream(version)
        if _KERNEL.match(name):
            kernels.append(f"{name} {version}")
            evidence.append(line)
        elif _DRIVER.match(name) and asked and plain != upstream(str(asked)):
            drivers.append(f"{name} {plain}")
            evidence.append(line)
    if not drivers and not kernels:
        return
    present = [
        f"{name} {mapping(data).get('version')}"
        for name, data in host.section("packages").items()
        if _DRIVER.match(name)
    ]
    parts = [f"driver {', '.join(drivers)} where {asked} is asked for"] if drivers else []
    parts += [f"kernel {', '.join(kernels)}"] if kernels else []
    yield TRANSACTION.on(
        host,
        f"{host.name}: the transaction would install {' and '.join(parts)}; only what was asked for wanted",
        device=(drivers or kernels)[0].split()[0],
        evidence=[*evidence[:6], *(f"installed: {row}" for row in present[:3])],
    )


def policy(text: str) -> tuple[str | None, str | None, list[str]]:
    """(installed, candidate, versions) of apt-cache policy; "(none)" is None."""
    head = dict(re.findall(r"^\s+(Installed|Candidate):\s+(\S+)", text, re.M))
    table = text.partition("Version table:")[2]
    versions = re.findall(r"^\s+(?:\*\*\*\s+)?(\d\S*)\s+-?\d+\s*$", table, re.M)
    plain = {key: None if value == "(none)" else value for key, value in head.items()}
    return plain.get("Installed"), plain.get("Candidate"), versions


@host_rule(NOT_AVAILABLE)
def not_available(host: HostView) -> t.Iterator[Finding]:
    names = (host.recorded("apt-cache_pkgnames") or "").split()
    asked = host.want("driver_version")
    driver = host.driver_version()
    wanted = upstream(str(asked)) if asked else (driver[0] if driver else None)
    for key, text in sorted(host.section("recorded").items()):
        if not str(key).startswith("apt-cache_policy_") or not isinstance(text, str):
            continue
        package = str(key).removeprefix("apt-cache_policy_")
        _installed, candidate, versions = policy(text)
        stem = re.sub(r"-\d+$", "", package)
        similar = [name for name in names if name != package and re.sub(r"-\d+$", "", name) == stem]
        hint = f"; the sources have {', '.join(sorted(similar)[:4])}" if similar else ""
        if candidate is None and not versions:
            yield NOT_AVAILABLE.on(
                host,
                f"{host.name}: no source has package {package}{hint}; a candidate wanted",
                device=package,
                evidence=[line for line in text.splitlines() if line.strip()][:4] or [f"{package}: no answer"],
            )
        elif wanted and "fabric" in package and not _offered(wanted, versions or [str(candidate)]):
            there = dict.fromkeys(upstream(version) for version in versions or [str(candidate)])
            yield NOT_AVAILABLE.on(
                host,
                f"{host.name}: {package} is there as {', '.join(there)}, {wanted} wanted: exactly the driver's "
                f"version{hint}",
                device=package,
                evidence=[line for line in text.splitlines() if line.strip()][:6],
            )


def _offered(wanted: str, versions: list[str]) -> bool:
    """Whether a source has the version that is asked for, or one of the branch that is."""
    return any(plain == wanted or plain.startswith(f"{wanted}.") for plain in map(upstream, versions))


_LOCKED = re.compile(r"Could not get lock (?P<lock>\S+?)\.? .*held by process (?P<pid>\d+) \((?P<command>[^)]*)\)")


@rack_rule(APT_LOCK)
def lock_held(rack: RackView) -> t.Iterator[Finding]:
    text = rack.text("failure.json") or ""
    try:
        message = str(mapping(json.loads(text)).get("msg", "")) if text else ""
    except ValueError:
        message = text
    found = _LOCKED.search(message)
    if found:
        yield APT_LOCK.on(
            "",
            f"A package task failed: {found['lock']} is held by process {found['pid']} ({found['command']}); wait for "
            "it with DPkg::Lock::Timeout and run again",
            device=found["lock"],
            evidence=[message],
        )


@host_rule(HALF_INSTALLED)
def half_installed(host: HostView) -> t.Iterator[Finding]:
    for name, data in sorted(host.section("packages").items()):
        status = str(mapping(data).get("status", ""))
        if status.startswith(("half", "unpacked", "triggers")) or "reinst" in status:
            yield HALF_INSTALLED.on(
                host,
                f"{host.name}: package {name} {mapping(data).get('version', '')} is {status}, installed wanted",
                device=name,
                evidence=[f"{name}: {status}"],
            )
