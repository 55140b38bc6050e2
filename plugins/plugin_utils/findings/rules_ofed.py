# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OFED and the kernel: whose modules run, what was not built, what keeps the stack from being reloaded."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, dicts, mapping
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.packages import PEERMEM

KERNEL_MOVED = define(
    "ofed",
    "RF-OFED-KERNEL-MOVED",
    title="OFED is installed but the inbox modules run",
    severity="fail",
    phase="verify",
    means="ofed_info still prints the release, and the running kernel uses its own mlx5 modules (or none). Features, "
    "tuning files and peer memory that come with OFED are missing.",
    looks_at="The file that mlx5_core is loaded from for the running kernel, the kernels for which DKMS built OFED, "
    "ofed_info.",
    cause="The kernel was upgraded after OFED was installed and the modules were not rebuilt for it.",
    remedy="Install the headers of the running kernel and rebuild (dkms autoinstall -k KERNEL), then reboot the "
    "drained node; hold the kernel afterwards. gpu_fabric_rdma_stack: inbox is the other consistent choice: then "
    "remove OFED.",
    check="modinfo -F filename mlx5_core lies below updates/ or extra/ of the running kernel.",
    source="https://github.com/Azure/azhpc-images/issues/119",
)

DKMS_MISSING = define(
    "ofed",
    "RF-DKMS-NOT-BUILT",
    title="A DKMS module is not built for the running kernel",
    severity="warn",
    phase="verify",
    means="The module was built for another kernel only; after the next reload or reboot it is absent or the inbox "
    "one is used.",
    looks_at="dkms status against the running kernel, for the modules of the GPU and RDMA stack.",
    cause="Headers of the running kernel are missing, or the build failed.",
    remedy="Install the headers of the running kernel, run dkms autoinstall and read "
    "/var/lib/dkms/MODULE/VERSION/build/make.log when it fails.",
    check="dkms status lists the module as installed for the kernel that uname -r prints.",
    source="https://github.com/morrownr/88x2bu-20210702/issues/267 (pattern of a failing build)",
)

RELOAD_BLOCKED = define(
    "ofed",
    "RF-OFED-RELOAD-BLOCKED",
    title="The RDMA stack cannot be reloaded on the running system",
    severity="fail",
    phase="configure",
    means="Modules or mounts hold ib_core. Restarting the stack would fail half-way and leave the node without RDMA, "
    "and possibly without its storage or its network.",
    looks_at="Users of ib_core and ib_uverbs, file systems mounted over RDMA, the driver of the interface that "
    "carries the default route.",
    cause="Consumers of the RDMA stack are in use: nvidia_peermem, Lustre, NFS over RDMA, iSER, NVMe over RDMA.",
    remedy="Take the reboot path: drain the node and reboot it (gpu_fabric_allow_disruption: reboot). A reload is "
    "allowed only after the mounts are gone and the holders are unloaded.",
    check="lsmod: ib_core is used by nothing but the stack's own modules.",
    source="https://github.com/Mellanox/doca-driver-build/issues/481",
)

# Users of ib_core that belong to the stack itself and go with it.
_OWN = frozenset(
    {
        *("ib_uverbs", "ib_core", "mlx5_ib", "mlx4_ib", "rdma_cm", "rdma_ucm", "iw_cm", "ib_cm", "ib_umad", "ib_ipoib"),
        *("irdma", "bnxt_re", "efa", "rdma_rxe", "siw", "mlx_compat", "mlx5_core"),
    }
)
_OUTSIDE_KERNEL_TREE = re.compile(r"/(updates|extra|weak-updates|dkms)/")
_STACK = re.compile(r"^(nvidia|mlnx|ofed|kernel-mft|iser|isert|srp|knem|xpmem|gdrdrv|gdrcopy|mft)", re.IGNORECASE)

# Without these there is no GPU at all; others have an inbox counterpart or serve a part.
_CARRY = frozenset({"nvidia", "nvidia-open", "nvidia-srv"})


@host_rule(KERNEL_MOVED)
def kernel_moved(host: HostView) -> t.Iterator[Finding]:
    ofed, kernel = host.get("ofed", "version"), host.get("host", "kernel")
    core = host.module("mlx5_core")
    filename = core.get("filename")
    if not ofed or not kernel:
        return
    built = sorted({str(row["kernel"]) for row in _builds(host) if row.get("kernel")})
    if isinstance(filename, str) and filename:
        if _OUTSIDE_KERNEL_TREE.search(filename):
            return
        seen = f"the inbox mlx5_core ({filename})"
    elif core.get("available") is False or (built and kernel not in built):
        seen = "no mlx5_core of OFED (inbox modules or none)"
    else:
        return
    elsewhere = f"; OFED is built for {', '.join(built)}" if built and kernel not in built else ""
    release = re.search(r"\d+\.\d+", str(ofed))
    yield KERNEL_MOVED.on(
        host,
        f"{host.name}: OFED {release.group(0) if release else ofed} is installed ({ofed}), kernel {kernel} uses {seen}"
        f"{elsewhere}; modules of OFED for {kernel} wanted",
        device="mlx5_core",
        evidence=[f"ofed_info -s: {ofed}", f"running kernel: {kernel}", f"filename: {filename}" if filename else ""]
        + [
            f"dkms: {row.get('module')}/{row.get('version')}, {row.get('kernel')}: {row.get('status')}"
            for row in _builds(host)
        ],
        remedy=f"Install {headers(kernel)} and rebuild OFED's modules for it (dkms autoinstall -k {kernel}), "
        "then reboot the drained node and hold the kernel.",
    )


def _builds(host: HostView) -> list[dict[str, t.Any]]:
    return [
        row for row in dicts(host.get("dkms")) if re.match(r"mlnx-ofed|mlnx-ofa|ofed|mlnx_ofed", str(row.get("module")))
    ]


@host_rule(DKMS_MISSING)
def dkms_not_built(host: HostView) -> t.Iterator[Finding]:
    kernel = host.get("host", "kernel")
    by_module: dict[str, list[dict[str, t.Any]]] = {}
    for row in dicts(host.get("dkms")):
        if _STACK.match(str(row.get("module"))):
            by_module.setdefault(str(row["module"]), []).append(row)
    moved = bool(list(kernel_moved(host)))
    for module, rows in sorted(by_module.items()):
        done = {str(row.get("kernel")) for row in rows if str(row.get("status", "")).startswith("installed")}
        if not kernel or kernel in done or (moved and rows[0] in _builds(host)):
            continue
        # A module that runs was built for this kernel in another way; one that does not is missing now.
        absent = host.loaded(module) is False and not module.startswith(("mft", "kernel-mft"))
        # A recording without a list of modules: a driver that nobody saw running is missing.
        unseen = host.recorded_only and host.loaded(module) is None and not host.get("driver", "loaded", "version")
        package = headers(kernel)
        lacking = _not_installed(host, package)
        states = ", ".join(f"{row.get('kernel', 'no kernel')}: {row.get('status')}" for row in rows)
        yield DKMS_MISSING.on(
            host,
            f"{host.name}: DKMS module {module} is not installed for the running kernel {kernel} ({states}){lacking}; "
            "installed wanted",
            device=module,
            evidence=[
                *(f"{module}/{row.get('version')}, {row.get('kernel')}: {row.get('status')}" for row in rows),
                *(host.recorded(f"modprobe_{module}") or "").splitlines()[:2],
            ],
            remedy=f"Install {package}, run dkms autoinstall -k {kernel} and load {module}; read "
            f"/var/lib/dkms/{module}/{rows[0].get('version')}/build/make.log when the build fails.",
            severity="fail" if (absent or unseen) and module in _CARRY else None,
        )


def _not_installed(host: HostView, package: str) -> str:
    """Whether the recorded list of packages lacks the headers of the kernel that runs."""
    for name in ("dpkg_l", "rpm_qa"):
        listed = host.recorded(name)
        if listed and re.search(r"linux-(image|headers)-|^kernel", listed, re.M):
            return "" if package in listed else f"; {package} is not installed"
    return ""


def headers(kernel: str) -> str:
    """The package with the headers of a kernel, by the way its distribution names kernels."""
    return f"kernel-devel-{kernel}" if re.search(r"\.(el|fc|amzn)\d", kernel) else f"linux-headers-{kernel}"


def rdma_mounts(host: HostView) -> list[str]:
    """Lines of the mount table whose file system rides on RDMA."""
    mounts = [
        f"{row.get('source')} {row.get('target')} {row.get('fstype')} {','.join(map(str, row.get('options') or []))}"
        for row in dicts(host.get("mounts"))
    ]
    mounts += (host.files.get("/proc/mounts") or "").splitlines()
    return [line.strip() for line in mounts if re.search(r"@o2ib\d*:|\bproto=rdma|\brdma\b", line)]


def _holders(host: HostView) -> list[str]:
    found: list[str] = []
    for name in ("ib_core", "ib_uverbs", "rdma_cm"):
        holders = host.module(name).get("holders")
        for holder in holders if isinstance(holders, list) else []:
            if holder not in _OWN and holder not in found:
                found.append(str(holder))
    # ko2iblnd is the part of Lustre that uses ib_core; the file system above it is what a person knows.
    above = {"ko2iblnd": "lustre", "rpcrdma": "xprtrdma"}
    return found + [above[name] for name in found if name in above and host.loaded(above[name])]


def reload_wanted(host: HostView) -> bool:
    """A reload is due where the plan says so; a recorded host is judged as if it were."""
    if host.recorded_only:
        return True
    package = mapping(mapping(host.plan.get("packages")).get("ofed"))
    return package.get("disruption") in ("reload", "reboot")


@host_rule(RELOAD_BLOCKED)
def reload_blocked(host: HostView) -> t.Iterator[Finding]:
    holders, mounts = _holders(host), rdma_mounts(host)
    default = next((route for route in dicts(host.get("routes")) if route.get("dst") == "default"), {})
    netdev = mapping(host.get("netdevs", default.get("dev")))
    driver = netdev.get("driver") or _recorded_driver(host)
    carried = bool(default) and driver in ("mlx5_core", "mlx4_core", "mlx4_en")
    # peermem alone can be unloaded with the stack; a mount, a network path or another consumer cannot.
    others = [name for name in holders if name not in PEERMEM]
    if not reload_wanted(host) or not holders or not (mounts or others or carried):
        return
    reasons = [f"ib_core is held by {', '.join(holders)}"]
    reasons += [f"{len(mounts)} file system{'s' if len(mounts) > 1 else ''} mounted over RDMA"] if mounts else []
    reasons += [f"the default route leaves through {default.get('dev')} ({driver})"] if carried else []
    yield RELOAD_BLOCKED.on(
        host,
        f"{host.name}: the RDMA stack cannot be reloaded: {'; '.join(reasons)}; a reboot of the drained node is "
        "required for a change of the stack",
        device="ib_core",
        evidence=[
            f"ib_core holders: {', '.join(holders)}",
            *mounts[:3],
            f"default dev {default.get('dev')}" if default else "",
        ],
    )


def _recorded_driver(host: HostView) -> str | None:
    match = re.search(r"^driver:\s*(\S+)", host.recorded("ethtool_i") or "", re.M)
    return match.group(1) if match else None
