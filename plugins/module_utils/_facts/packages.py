# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Packages of the GPU and fabric stack, from the package manager's own database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect", "concerns", "parse_dpkg_status", "upstream_version"]

#: What package_set keeps about the sets that it brought.
_RECORDS = "/var/lib/gpu_fabric/packages.json"
_STATUS = "/var/lib/dpkg/status"
_RPM_DATABASES = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")

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


def collect(source: Source, tools: Tools) -> Optional[dict[str, Any]]:
    """None where no database of packages can be read: then nothing is known, not nothing installed."""
    status = source.read(_STATUS)
    if status is not None:
        ours = _own_holds(source)
        return {
            name: {**entry, "ours": True} if entry["held"] and name in ours else entry
            for name, entry in sorted(parse_dpkg_status(status))
        }
    if source.live and not any(source.isdir(path) for path in _RPM_DATABASES):
        return None
    for key in ("rpm_list",) if source.live else ("dpkg_list", "rpm_list"):
        answer = tools.value(key)
        if answer is not None:
            packages = answer["packages"]
            return {name: packages[name] for name in sorted(packages) if concerns(name)}
    return None


def _own_holds(source: Source) -> set[str]:
    """The packages that the collection holds, without those that were held before it came."""
    try:
        records = json.loads(source.read(_RECORDS) or "{}")
    except ValueError:
        return set()
    sets = [one for one in records.values() if isinstance(one, dict)] if isinstance(records, dict) else []
    held = {str(name) for one in sets for name in one.get("held") or ()}
    return held - {str(name) for one in sets for name in one.get("held_before") or ()}


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
