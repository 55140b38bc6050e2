# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Packages of the GPU and fabric stack, from the package manager's own database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect", "concerns", "parse_dpkg_list", "parse_dpkg_status", "parse_rpm_list", "upstream_version"]

_STATUS = "/var/lib/dpkg/status"
_RPM_DATABASES = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
_RPM = ("rpm", "-qa", "--queryformat", r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\n")

#: Names of the stack: what is installed, pinned, compared or reported.
_STACK = re.compile(
    r"""^(?:
      nvidia-.*|libnvidia-.*|xserver-xorg-video-nvidia.*|cuda.*|libcuda.*|libnccl.*|nccl.*|libcudnn.*|gdrcopy.*|gdrdrv.*
    | libgdrapi.*|nvlsm.*|libnvsdm.*|datacenter-gpu-manager.*|libxnvctrl.*|kmod-nvidia.*|dkms|mokutil|shim-signed
    | linux-(?:image|headers|modules|objects)-.*nvidia.*|linux-image-(?:generic|amd64|cloud-amd64|virtual).*
    | linux-headers-(?:generic|amd64).*|kernel-core|kernel-devel.*
    | doca-.*|mlnx-.*|ofed-.*|mft.*|mstflint.*|kmod-mlnx.*|kmod-iser.*|kernel-mft.*|knem.*|xpmem.*|ucx.*
    | openmpi.*|libopenmpi.*|sharp.*|hcoll.*|nvidia_peer_memory.*|nvidia-peer-memory.*
    | rdma-core.*|libibverbs.*|ibverbs-.*|librdmacm.*|rdmacm-utils|libibumad.*|libibmad.*|infiniband-diags|perftest.*
    | opensm.*|libopensm.*|srptools|ibutils.*|iproute.*|ethtool|iperf3|lldpad|nftables|firewalld|ufw
    | tuned|irqbalance|numactl
    | slurm.*|pmix.*|libpmix.*|unattended-upgrades|libibnetdisc.*|linux-tools-common
    )$""",
    re.VERBOSE,
)


def concerns(name: str) -> bool:
    """Whether a package belongs to the stack."""
    return _STACK.match(name) is not None


def upstream_version(version: str) -> str:
    """Version without epoch and packaging revision: `535.183.01` of `1:535.183.01-0ubuntu0.22.04.1`."""
    return version.split(":", 1)[-1].split("-", 1)[0]


def collect(source: Source) -> Optional[dict[str, Any]]:
    """None where no database of packages can be read: then nothing is known, not nothing installed."""
    status = source.read(_STATUS)
    if status is not None:
        return dict(sorted(parse_dpkg_status(status)))
    output = source.run(("dpkg", "-l")) if not source.live else None
    if output is not None:
        return dict(sorted(parse_dpkg_list(output.stdout)))
    if not source.live:
        output = source.run(("rpm", "-qa"))
    elif any(source.isdir(path) for path in _RPM_DATABASES):
        output = source.run(_RPM, timeout=30)
    if output is not None and output.rc == 0:
        return dict(sorted(parse_rpm_list(output.stdout)))
    return None


def parse_dpkg_status(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """`/var/lib/dpkg/status`. Of a package installed for several architectures the native one counts."""
    for paragraph in text.split("\n\n"):
        # The name comes first in a paragraph; most paragraphs are not the stack's and need no further look.
        if not paragraph.startswith("Package: "):
            paragraph = paragraph.lstrip("\n")
            if not paragraph.startswith("Package: "):
                continue
        name = paragraph[9:].split("\n", 1)[0].strip()
        if not concerns(name):
            continue
        fields = dict(
            line.split(": ", 1) for line in paragraph.splitlines() if line[:1] not in (" ", "\t") and ": " in line
        )
        want, _, state = [*fields.get("Status", "").split(), "", "", ""][:3]
        if not state or state == "not-installed":
            continue
        entry: dict[str, Any] = {"status": state, "held": want == "hold"}
        if fields.get("Version"):
            entry["version"] = fields["Version"]
        if fields.get("Architecture"):
            entry["architecture"] = fields["Architecture"]
        if fields.get("Architecture") == "i386":
            continue
        yield name, entry


_WANTED = "uihrp"
_STATES = {
    "n": "not-installed",
    "i": "installed",
    "c": "config-files",
    "U": "unpacked",
    "F": "half-configured",
    "H": "half-installed",
    "W": "triggers-awaited",
    "t": "triggers-pending",
}


def parse_dpkg_list(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """`dpkg -l`: `hi  libnccl2:amd64  2.21.5-1+cuda12.4  amd64  description`."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 3 or len(fields[0]) not in (2, 3) or fields[0][0] not in _WANTED:
            continue
        if fields[0][1] not in _STATES or len(line.split(" ", 1)[0]) > 3:
            continue
        name, _, architecture = fields[1].partition(":")
        if not concerns(name) or architecture == "i386" or fields[0][1] == "n":
            continue
        entry: dict[str, Any] = {
            "status": _STATES[fields[0][1]],
            "held": fields[0][0] == "h",
            "version": fields[2],
        }
        if len(fields[0]) == 3:
            entry["status"] += ", reinstallation required"
        if architecture or len(fields) > 3:
            entry["architecture"] = architecture or fields[3]
        yield name, entry


def parse_rpm_list(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """`rpm -qa`, plain (`name-version-release.arch`) or with tabs between name, version and architecture."""
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3:
            name, version, architecture = (field.strip() for field in fields)
        else:
            match = re.match(r"^(\S+)-([^-\s]+-[^-\s]+)\.(\w+)$", line.strip())
            if match is None:
                continue
            name, version, architecture = match.groups()
        if concerns(name):
            yield name, {"status": "installed", "held": False, "version": version, "architecture": architecture}
