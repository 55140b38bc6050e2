# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The intent that a bundle recorded, in this collection's words. Pure.

A bundle comes from whatever configured the rack, so its ``vars.yml`` may use the names of other roles. Those that mean
the same as one of ours are translated; a name that is nearly one of either kind is a misspelling.
"""

from __future__ import annotations

import difflib
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import BY_NAME, PREFIX, RESERVED, resolve

# Names other roles use → ours. A branch is turned into a version further down.
ALIASES: dict[str, str] = {
    "nccl_env": "gpu_fabric_nccl_env",
    "nccl_version": "gpu_fabric_nccl_version",
    "cuda_version": "gpu_fabric_cuda_version",
    "cuda_toolkit_version": "gpu_fabric_cuda_version",
    "gpu_driver_version": "gpu_fabric_driver_version",
    "nvidia_driver_version": "gpu_fabric_driver_version",
    "gpu_driver_branch": "gpu_fabric_driver_version",
    "nvidia_driver_branch": "gpu_fabric_driver_version",
    "gpu_kernel_module_flavour": "gpu_fabric_driver_flavour",
    "gpu_kernel_module_flavor": "gpu_fabric_driver_flavour",
    "nvidia_kernel_module_flavour": "gpu_fabric_driver_flavour",
    "roce_dscp": "gpu_fabric_roce_dscp",
    "rdma_stack": "gpu_fabric_rdma_stack",
    "sysctl": "gpu_fabric_sysctl",
}
# Known, without a counterpart that a plan would need; rules read them under their gpu_fabric_ name.
FOREIGN = frozenset({"cuda_keyring_version", "gpu_driver_source", "gpu_driver_packaging"})
_RULE_NAMES = {
    "gpu_driver_packaging": "gpu_fabric_driver_packaging",
    "cuda_keyring_version": "gpu_fabric_cuda_keyring_version",
}
_VERSION = re.compile(r"^\d+(\.\d+){1,3}$")


class Recorded(t.NamedTuple):
    """*planned*: what the planner can take; *said*: everything, under our names, as written."""

    planned: dict[str, t.Any]
    said: dict[str, t.Any]
    misspelt: dict[str, str]


def _ours(name: t.Any) -> str | None:
    """Our name for a variable: itself, one that other roles use, or ours without its prefix."""
    if name in BY_NAME:
        return str(name)
    short = f"{PREFIX}{name}"
    return ALIASES.get(name) or (short if short in BY_NAME else None)


def _usable(ours: str, value: t.Any) -> bool:
    if BY_NAME[ours].form == "version":
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return not resolve({ours: value})[1]


def _meant(name: t.Any) -> str | None:
    """The name that a misspelt one is nearest to ("" where none is near); None for a name that is somebody else's.

    A misspelling has a word that no known name has; a name made of known words is a variable of another role.
    """
    known = [*BY_NAME, *ALIASES, *FOREIGN, *(option.removeprefix(PREFIX) for option in BY_NAME)]
    if name in known:
        return None
    words = {word for other in known for word in other.split("_")}
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.85)
    if str(name).startswith(PREFIX):
        return near[0] if near else ""
    return near[0] if near and not set(str(name).split("_")) <= words else None


def translate(variables: t.Mapping[str, t.Any]) -> Recorded:
    planned: dict[str, t.Any] = {}
    said: dict[str, t.Any] = {}
    misspelt: dict[str, str] = {}
    for name, value in variables.items():
        if name in RESERVED:
            continue  # how the bundle was recorded
        ours = _ours(name)
        if ours is None:
            if name in _RULE_NAMES:
                said[_RULE_NAMES[name]] = value
            near = _meant(name)
            if near is not None:
                misspelt[str(name)] = near
            continue
        if name != ours and not _usable(ours, value):
            continue  # another role's variable of that name means something else
        said[ours] = value
        if BY_NAME[ours].form == "version":
            # A branch says too little for a package set; rules judge it as it stands.
            if _VERSION.match(str(value)):
                planned[ours] = str(value)
        else:
            planned[ours] = value
    return Recorded(planned, said, misspelt)


__all__ = ("ALIASES", "FOREIGN", "Recorded", "translate")
