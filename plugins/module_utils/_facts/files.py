# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Small files that the plan or a rule compares, as text; file systems that live on the network."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

__all__ = ["collect", "mounts", "redact"]

#: `directory/pattern`; only the last part may hold wildcards.
_PATTERNS = (
    "/etc/nccl.conf",
    "/etc/sysctl.conf",
    "/etc/sysctl.d/*.conf",
    "/etc/security/limits.conf",
    "/etc/security/limits.d/*.conf",
    "/etc/systemd/system.conf.d/*.conf",
    "/etc/systemd/user.conf.d/*.conf",
    "/etc/modprobe.d/*.conf",
    "/etc/modules",
    "/etc/modules-load.d/*.conf",
    "/etc/default/grub",
    "/etc/default/grub.d/*.cfg",
    "/etc/kernel/cmdline",
    "/var/lib/gpu_fabric/kernel_cmdline.json",
    "/var/lib/gpu_fabric/nic_firmware.json",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/*.list",
    "/etc/apt/sources.list.d/*.sources",
    "/etc/apt/preferences.d/*",
    "/etc/apt/apt.conf.d/*unattended*",
    "/etc/yum.repos.d/*cuda*.repo",
    "/etc/nftables.conf",
    "/etc/ufw/ufw.conf",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/infiniband/openib.conf",
    "/etc/opensm/gpu-fabric*.conf",
    "/etc/openmpi/openmpi-mca-params.conf",
    "/etc/systemd/network/*.link",
    "/etc/udev/rules.d/*rdma*.rules",
    "/usr/share/nvidia/nvswitch/fabricmanager.cfg",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/sys/module/nvidia/parameters/NVreg_OpenRmEnableUnsupportedGpus",
)
#: What a login or a job gets as its environment. Of these only lines about communication are kept: others may be
#: anybody's secrets. Live, only files that are about it by name.
_ENVIRONMENT = ("/root/.nccl.conf", *(f"/etc/profile.d/*{word}*.sh" for word in ("nccl", "ucx", "hpcx", "rdma", "mpi")))
_RECORDED_ENVIRONMENT = ("/etc/environment", "/etc/profile", "/etc/profile.d/*.sh", "/root/.bashrc", "/root/.profile")
_COMMUNICATION = re.compile(r"^\s*(?:export\s+)?(?:NCCL|UCX|OMPI_MCA|UCC|SHARP)_\w+=")
#: Larger ones are not what anybody compares.
_LIMIT = 65536
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)")
_NETWORK_FILE_SYSTEMS = ("lustre", "nfs", "nfs4", "gpfs", "beegfs", "wekafs", "ceph", "cifs", "glusterfs", "orangefs")


def collect(source: Source) -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern in _PATTERNS:
        directory, _, name = pattern.rpartition("/")
        names = fnmatch.filter(source.listdir(directory), name) if "*" in name else [name]
        for path in (f"{directory}/{match}" for match in names):
            text = source.read(path)
            if text is None:
                continue
            if len(text) > _LIMIT:
                source.note(path, f"longer than {_LIMIT} characters; left out")
                continue
            found[path] = redact(text)
    found.update(_environment(source))
    return found


def _environment(source: Source) -> dict[str, str]:
    patterns = list(_ENVIRONMENT)
    if not source.live:
        patterns += [*_RECORDED_ENVIRONMENT, *(f"/home/{user}/.nccl.conf" for user in source.listdir("/home"))]
    found: dict[str, str] = {}
    for pattern in patterns:
        directory, _, name = pattern.rpartition("/")
        names = fnmatch.filter(source.listdir(directory), name) if "*" in name else [name]
        for path in (f"{directory}/{match}" for match in names):
            lines = (source.read(path, quiet=True) or "").splitlines()
            kept = [line for line in lines if _COMMUNICATION.match(line)]
            if kept:
                found[path] = redact("\n".join(kept) + "\n")
    return found


def redact(text: str) -> str:
    """Repository addresses may hold a user's password."""
    return _CREDENTIALS.sub("***:***", text)


def mounts(source: Source) -> Optional[list[dict[str, Any]]]:
    text = source.read("/proc/self/mounts") if source.live else None
    text = text if text is not None else source.read("/proc/mounts")
    if text is None:
        return None
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[2].split(".")[-1] in _NETWORK_FILE_SYSTEMS:
            found.append(
                {"source": fields[0], "target": fields[1], "fstype": fields[2], "options": fields[3].split(",")}
            )
    return found
