# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a variable's type allows but the host, or the network, would not take."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _packages
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cmdline import is_argument
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysctl import canonical, fault, spelling
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import Intent, Problem, at, unknown_keys

UNUSABLE = {
    "0.0.0.0/8": "unspecified",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/127": "unspecified and loopback",
    "::ffff:0:0/96": "IPv4-mapped",
    "fe80::/10": "link-local",
    "ff00::/8": "multicast",
}
_UNUSABLE = {ipaddress.ip_network(net): kind for net, kind in UNUSABLE.items()}
THRESHOLDS = (
    "ib_write_bw_gbps",
    "ib_write_bw_gpu_gbps",
    "ib_write_lat_us",
    "iperf3_gbps",
    "nccl_busbw_gbps",
    "nccl_single_busbw_gbps",
)
# NCCL, and what its plugins and transports read from the same environment; one that comes too late has a finding
ENV_PREFIXES = ("NCCL_", "OFI_NCCL_", "FI_", "UCX_", "SHARP_", "CUDA_", "NVSHMEM_", "MLX5_", "RDMAV_", "IBV_")
LATE = ("LD_LIBRARY_PATH",)
_IOMMU = ("iommu", "intel_iommu", "amd_iommu")
_KEY_SOURCES = ("key", "key_url", "key_file")


def unusable(item: str) -> str:
    """Why hosts cannot have addresses in a network, or an address of their own; empty where they can."""
    network = ipaddress.ip_interface(item).network
    kind = next((k for net, k in _UNUSABLE.items() if net.version == network.version and net.overlaps(network)), "")
    if not kind:
        return ""
    return f"{item} holds {kind} addresses" if "/" in item else f"{item} is a {kind} address"


def problems(intent: Intent) -> list[Problem]:
    return [
        *_pools(intent),
        *_sysctl(intent),
        *_repositories(intent),
        *_thresholds(intent),
        *_nccl_env(intent),
        *_cmdline(intent),
    ]


def _pools(intent: Intent) -> list[Problem]:
    given = [(name, intent[name]) for name in ("gpu_fabric_rail_ipv4", "gpu_fabric_rail_ipv6") if intent[name]]
    given += [("gpu_fabric_rail_subnets", item) for item in intent["gpu_fabric_rail_subnets"]]
    return [Problem(name, unusable(item), "networks of unicast addresses") for name, item in given if unusable(item)]


def _sysctl(intent: Intent) -> list[Problem]:
    variable, found = "gpu_fabric_sysctl", []
    seen: dict[str, tuple[t.Any, t.Any]] = {}
    for key, value in intent[variable].items():
        reason = fault(key, 0 if value is None else value)
        if reason:
            found.append(
                Problem(variable, reason, "names such as vm.swappiness, each with one line of text or a number")
            )
            continue
        other, before = seen.setdefault(canonical(key), (key, value))
        if (before is None) != (value is None) or (value is not None and spelling(before) != spelling(value)):
            message = f"{other} is {before!r} and {key}, the same parameter, {value!r}"
            found.append(Problem(variable, message, "each parameter once"))
    return found


def _repositories(intent: Intent) -> list[Problem]:
    found = _repository("gpu_fabric_repository", intent["gpu_fabric_repository"], ())
    return found + _repository("gpu_fabric_ofed_repository", intent["gpu_fabric_ofed_repository"], ("doca_version",))


def _repository(variable: str, given: t.Mapping[str, t.Any], more: tuple[str, ...]) -> list[Problem]:
    """The module's own rules; where no URL is given, the vendor's repository stands in."""
    keys, found, usable = (*_packages.Repository._fields, *more), [], {}
    for key, value in given.items():
        if key not in keys:
            found += unknown_keys(variable, "", [key], keys)
        elif key in ("components", "architectures", "key_fingerprints"):
            if not isinstance(value, (list, tuple)) or any(_unfit(item) for item in value):
                found.append(Problem(variable, f"{value!r} is not allowed", "a list of texts", at(key)))
            else:
                usable[key] = tuple(value)
        elif not isinstance(value, str) or not value.strip() or (key != "key" and _unfit(value)):
            allowed = "a text of one line without blanks"
            found.append(Problem(variable, f"{value!r} is not allowed", allowed, at(key)))
        elif key not in more:
            usable[key] = value
    if found or not given:
        return found
    usual = {"name": "vendor", "url": "https://vendor.invalid"}
    if "url" not in usable and not any(key in usable for key in _KEY_SOURCES):
        usual["key_url"] = "https://vendor.invalid/key"
    try:
        _packages.checked(_packages.Request("plan", {}, _packages.Repository(**{**usual, **usable})))
    except Failure as failure:
        message = str(failure).replace("repository.", "").rstrip(".")
        allowed = "name, url, suite and exactly one of key, key_url and key_file in the form that apt takes"
        return [Problem(variable, message, allowed)]
    return []


def _unfit(item: t.Any) -> bool:
    """A fingerprint may be written in groups; nothing may hold a line's end."""
    return not isinstance(item, str) or not item.strip() or not item.isprintable()


def _thresholds(intent: Intent) -> list[Problem]:
    variable, found = "gpu_fabric_thresholds", []
    for name, value in intent[variable].items():
        if name not in THRESHOLDS:
            found += unknown_keys(variable, "", [name], THRESHOLDS)
        elif value is not None and not _is_amount(value):
            allowed = "a number above 0 and below 1000000, or null"
            found.append(Problem(variable, f"{value!r} is not allowed", allowed, at(name)))
    return found


def _is_amount(value: t.Any) -> bool:
    if isinstance(value, str) and value.isascii() and "_" not in value:
        try:
            value = float(value)
        except ValueError:
            return False
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1_000_000


def _nccl_env(intent: Intent) -> list[Problem]:
    variable, found = "gpu_fabric_nccl_env", []
    for name, value in intent[variable].items():
        if not str(name).startswith(ENV_PREFIXES) and name not in LATE:
            allowed = f"names that begin with {', '.join(ENV_PREFIXES)}"
            found.append(Problem(variable, f"{name!r} is no variable of NCCL or its transports", allowed))
        elif isinstance(value, str) and not value.isprintable():
            found.append(Problem(variable, f"{value!r} is not allowed", "one line of text", at(name)))
    return found


def _cmdline(intent: Intent) -> list[Problem]:
    """Arguments that no boot loader could hold, and some of which the kernel takes the last, whatever was meant."""
    variable, found = "gpu_fabric_kernel_cmdline", []
    for token in intent[variable]:
        if not is_argument(token):
            message = f"{token!r} is no argument of a kernel"
            found.append(
                Problem(variable, message, "arguments such as iommu=pt, without quotes or a shell's characters")
            )
    given: dict[str, str] = {}
    for token in intent[variable]:
        name = token.partition("=")[0]
        if name in _IOMMU and given.setdefault(name, token) != token:
            found.append(Problem(variable, f"{given[name]} and {token} contradict each other", "one of them"))
    wanted = intent["gpu_fabric_iommu"]
    if wanted == "passthrough" or (wanted == "profile" and intent["gpu_fabric_tuning_profile"] == "training"):
        odd = [token for token in given.values() if token.endswith("=off") or token == "iommu=nopt"]
        if odd:
            message = f"{odd[0]} contradicts the passthrough of gpu_fabric_iommu or gpu_fabric_tuning_profile"
            found.append(Problem(variable, message, "iommu=pt with it, or gpu_fabric_iommu: untouched"))
    return found
