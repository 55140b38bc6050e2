# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The intent: every ``gpu_fabric_*`` variable, declared once, and what is allowed in it.

``resolve`` turns one host's variables into a complete intent (defaults applied, types exact) and all that is wrong
with them, never only the first error. The roles' argument specifications are checked against ``OPTIONS`` by a test.
"""

from __future__ import annotations

import copy
import difflib
import ipaddress
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import CLASSES
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import batches, value_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent_checks import (
    FEC_OF_SPEED,
    Intent,
    Problem,
    at,
    contradictions,
)

PREFIX = "gpu_fabric_"
_VERSION = re.compile(r"^[0-9]{1,6}(\.[0-9]{1,6}){1,3}\Z")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
_INTERFACE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}\Z")
# Names that playbooks and plugins set themselves; they are not intent.
RESERVED = frozenset(
    {
        "gpu_fabric_plan",
        "gpu_fabric_facts",
        "gpu_fabric_bundle",
        "gpu_fabric_redact",
        "gpu_fabric_findings",
        "gpu_fabric_benchmark_results",
        "gpu_fabric_run_complete",
    }
)


class IntentError(Exception):
    """The intent of the rack cannot be used; ``problems`` holds (host or "", problem)."""

    def __init__(self, problems: list[tuple[str, Problem]]) -> None:
        self.problems = problems
        super().__init__("\n".join(lines(problems)))


def lines(problems: t.Iterable[tuple[str, Problem]]) -> list[str]:
    """One line per problem; hosts that share a problem share its line."""
    hosts: dict[Problem, list[str]] = {}
    for host, problem in problems:
        hosts.setdefault(problem, []).append(host)
    found = []
    for problem, names in hosts.items():
        named = [name for name in names if name]
        where = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        found.append(problem.line(where))
    return found


@dataclass(frozen=True)
class Option:
    """One variable. ``kind`` is the value's type as argument_specs spells it, ``form`` narrows texts."""

    name: str
    kind: str
    default: t.Any
    meaning: str
    choices: tuple[t.Any, ...] = ()
    low: int | None = None
    high: int | None = None
    unit: str = ""
    form: str = ""
    elements: str = ""
    empty_ok: bool = False
    #: Of a version: one that the product has; the default where there is one.
    example: str = ""

    @property
    def variable(self) -> str:
        return PREFIX + self.name

    @property
    def bounds(self) -> tuple[int, int]:
        """Of a list of numbers: those of a traffic class or priority where nothing else is said."""
        return (0, 7) if self.low is None else (self.low, t.cast(int, self.high))

    @property
    def allowed(self) -> str:
        if self.kind == "raw":
            return _RAW[self.form][1]
        if self.choices:
            return "one of " + ", ".join(str(c) for c in self.choices)
        if self.kind in ("int", "float"):
            unit = f" {self.unit}" if self.unit else ""
            return f"a number from {self.low} to {self.high}{unit}"
        form = (
            _FORMS[self.form][1].format(example=self.example or self.default)
            if self.form
            else {"bool": "true or false", "dict": "a mapping"}.get(self.kind, "a text")
        )
        if self.kind == "list" and self.elements == "dict":
            return "a list of mappings"
        if self.kind == "list" and self.elements == "int":
            return "a list, each item a number from {} to {}".format(*self.bounds)
        if self.kind == "list":
            return f"a list, each item {form}"
        return form + (', or ""' if self.empty_ok else "")


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return False
    return "/" in value


def _is_v(version: int) -> t.Callable[[str], bool]:
    return lambda value: _is_network(value) and ipaddress.ip_network(value).version == version


_FORMS: dict[str, tuple[t.Callable[[str], bool], str]] = {
    "version": (lambda v: bool(_VERSION.match(v)), "a version such as {example}"),
    "cidr": (_is_network, "a network such as 10.0.0.0/16 or fd00::/48, without host bits"),
    "cidr4": (_is_v(4), "an IPv4 network such as 10.224.0.0/12, without host bits"),
    "cidr6": (_is_v(6), "an IPv6 network such as fd00:224::/48, without host bits"),
    "interface": (lambda v: bool(_INTERFACE.match(v)), "an interface name such as bond0"),
    "device": (lambda v: bool(v.strip()), "an RDMA device name, PCI address, GUID, board id or interface name"),
    "word": (lambda v: bool(v) and v.isprintable() and " " not in v, "a text without blanks or control characters"),
    "unit": (lambda v: bool(_UNIT.fullmatch(v)), "a service's name such as slurmd"),
    "text": (lambda v: bool(v.strip()), "a text"),
    "path": (lambda v: bool(v.strip()), "a path"),
}


def _rings(value: t.Any) -> t.Any:
    """A word, or sizes by side. Drivers round others than powers of two up, and would never have what is wanted."""
    if value in ("untouched", "max"):
        return value
    if not isinstance(value, t.Mapping) or not value or set(value) - {"rx", "tx"}:
        return None
    sizes = {side: _integer(size) for side, size in value.items()}
    ok = all(size is not None and 64 <= size <= 16384 and size & (size - 1) == 0 for size in sizes.values())
    return sizes if ok else None


def _channels(value: t.Any) -> t.Any:
    if value in ("untouched", "auto"):
        return value
    number = _integer(value)
    return number if number is not None and 1 <= number <= 1024 else None


#: Options of more than one type: the value in its exact type, or None where it does not fit.
_RAW: dict[str, tuple[t.Callable[[t.Any], t.Any], str]] = {
    "rings": (_rings, "untouched, max, or a mapping of rx, tx or both to powers of two from 64 to 16384"),
    "channels": (_channels, "untouched, auto, or a number from 1 to 1024"),
    "batch": (batches.fitted, batches.ALLOWED),
}

OPTIONS: tuple[Option, ...] = (
    Option(
        "batch", "raw", "100%", "Hosts that are provisioned at a time; a batch that fails ends the run.", form="batch"
    ),
    Option("require_hardware", "bool", True, "Stop where no GPU or no HCA is found."),
    Option("allow_disruption", "str", "none", "Highest class of disruption that a run may cause.", choices=CLASSES),
    Option("state", "str", "present", "Whether the fabric is configured or removed.", choices=("present", "absent")),
    Option(
        "fabric", "str", "auto", "Kind of fabric that the rails form.", choices=("auto", "roce", "infiniband", "none")
    ),
    Option(
        "node_id",
        "int",
        None,
        "This host's number in the rack, from which its rail addresses come. Unset: its place among all hosts of "
        "gpu_nodes by name, which changes when hosts join or leave.",
        low=1,
        high=65534,
    ),
    Option("expected_gpus", "int", None, "GPUs that each host must show. Unset: any number.", low=0, high=64),
    Option("expected_rails", "int", None, "Rails that each host must have. Unset: any number.", low=0, high=64),
    Option("compute_devices", "list", [], "Devices that are rails, whatever the facts suggest.", form="device"),
    Option("storage_devices", "list", [], "Devices that carry storage.", form="device"),
    Option("management_devices", "list", [], "Devices that carry management.", form="device"),
    Option("exclude_devices", "list", [], "Devices that are left alone.", form="device"),
    Option(
        "management_interface",
        "str",
        "",
        "Interface over which hosts reach each other. Empty: that of the run's connection, else of the inventory's "
        "address, else of the default route.",
        form="interface",
        empty_ok=True,
    ),
    Option(
        "management_link",
        "dict",
        {},
        "The management interface as it shall be: addresses (all of them), gateway, mtu, such as "
        "{addresses: [10.20.0.5/24], gateway: 10.20.0.1}. Empty: it is left alone.",
    ),
    Option(
        "bonds",
        "dict",
        {},
        "Bonds of storage and front-end interfaces by name: members, mode, addresses, gateway, mtu, lacp_rate, "
        "xmit_hash_policy, such as {bond1: {members: [eno3, eno4], mode: 802.3ad, addresses: [10.30.0.5/24]}}.",
    ),
    Option("allow_software_rdma", "bool", False, "Use rxe or siw devices as rails where there is no HCA."),
    Option(
        "rail_mode",
        "str",
        "subnet_per_rail",
        "How rails are addressed: a subnet for each rail, one for all of them, or two addresses for each port and its "
        "switch (/31, and /127 for IPv6).",
        choices=("subnet_per_rail", "flat", "routed_31"),
    ),
    Option(
        "rail_ipv4",
        "str",
        "10.224.0.0/12",
        "Pool from which rail subnets are cut; empty: no IPv4.",
        form="cidr4",
        empty_ok=True,
    ),
    Option("rail_ipv4_prefix", "int", 24, "Prefix length of one rail's subnet.", low=8, high=30),
    Option("rail_ipv6", "str", "", "Pool of IPv6 rail subnets; empty: no IPv6.", form="cidr6", empty_ok=True),
    Option("rail_ipv6_prefix", "int", 64, "Prefix length of one rail's IPv6 subnet.", low=16, high=120),
    Option(
        "rail_subnets", "list", [], "The rails' subnets, one each, instead of cutting them from the pool.", form="cidr"
    ),
    Option(
        "rail_host_offset", "int", 10, "Node 1 gets the address offset + 1 of each rail's subnet.", low=0, high=65534
    ),
    Option("rail_gateways", "bool", False, "Rails reach each other through the first address of each subnet."),
    Option(
        "ipoib",
        "dict",
        {},
        "Addresses of the InfiniBand rails' own IP interfaces: rails (all, or a list), ipv4, ipv4_prefix, ipv6, "
        "ipv6_prefix (pools, cut into a subnet per rail), mtu (auto: what the port carries), mode. Empty: untouched.",
    ),
    Option(
        "ib_partitions",
        "list",
        [],
        "InfiniBand partitions: pkey (0x8001 to 0xfffe), name, members (all, or port GUIDs; for opensm), and as in "
        "gpu_fabric_ipoib for an interface on each rail; without a pool it gets none.",
        elements="dict",
    ),
    Option(
        "opensm_nodes",
        "list",
        [],
        "Hosts that run opensm, the subnet manager: the first is the master, the others stand by in this order.",
        form="word",
    ),
    Option(
        "opensm_rails",
        "list",
        [],
        "Rails at whose ports opensm runs, one instance each; empty: at one port per subnet.",
        elements="int",
        low=0,
        high=63,
    ),
    Option("mtu", "int", 9000, "MTU of the rails.", low=1280, high=9978, unit="bytes"),
    Option(
        "roce_profile",
        "str",
        "lossless",
        "Quality of service of RoCE. lossless: PFC on the priority of the DSCP, and ECN; lossy: ECN without PFC, and "
        "the NIC's own recovery of lost packets; none: the ports' settings are left as they are.",
        choices=("lossless", "lossy", "none"),
    ),
    Option("roce_dscp", "int", 26, "DSCP of RoCE data; its priority is the DSCP divided by 8.", low=0, high=63),
    Option(
        "roce_cnp_dscp", "int", 48, "DSCP of congestion notifications (CNP); its priority likewise.", low=0, high=63
    ),
    Option(
        "roce_pfc_priorities",
        "list",
        [],
        "Lossless priorities, where they must differ from the DSCP's.",
        elements="int",
    ),
    Option(
        "roce_ets",
        "dict",
        {},
        "Share of each traffic class in percent, or strict, such as {0: 40, 3: 60}. The shares add up to 100; classes "
        "that are not named are strict. Empty: as it is.",
    ),
    Option(
        "roce_priority_to_tc",
        "list",
        [],
        "Traffic class of each of the eight priorities; with roce_ets each has its own unless this says otherwise.",
        elements="int",
    ),
    Option(
        "roce_buffer_size",
        "list",
        [],
        "Sizes of the eight receive buffers, in bytes; empty leaves them to the firmware.",
        elements="int",
        low=0,
        high=16777216,
    ),
    Option("roce_priority_to_buffer", "list", [], "Receive buffer of each of the eight priorities.", elements="int"),
    Option(
        "roce_accelerations",
        "dict",
        {},
        "Recovery of lost packets in the NIC: adp_retrans, tx_window, slow_restart, slow_restart_idle, true or false. "
        "The profile lossy switches the first three on, unless said otherwise here.",
    ),
    Option("cable_length_m", "int", None, "Cable length for PFC headroom.", low=1, high=999, unit="metres"),
    Option(
        "fabric_lb",
        "str",
        "auto",
        "How the fabric spreads load. ecmp: by flow, so NCCL gets more queue pairs for each connection; adaptive: by "
        "packet, so NCCL is told of adaptive routing; auto leaves NCCL's defaults.",
        choices=("auto", "ecmp", "adaptive"),
    ),
    Option(
        "rings",
        "raw",
        "untouched",
        "Descriptors of each receive and send queue of the rails; max: as many as the device has.",
        form="rings",
    ),
    Option(
        "channels",
        "raw",
        "untouched",
        "Queue pairs of each rail; auto: the CPUs of its NUMA node, shared out among the rails there.",
        form="channels",
    ),
    Option(
        "link_speed_gbps",
        "int",
        None,
        "Speed of the rails' Ethernet ports; with negotiation nothing else is offered. Unset: what the ports agree on.",
        choices=tuple(FEC_OF_SPEED),
    ),
    Option("link_autoneg", "bool", None, "Negotiation of the rails' Ethernet ports; false needs link_speed_gbps, too."),
    Option(
        "link_fec",
        "str",
        "untouched",
        "Forward error correction of the rails' Ethernet ports; auto leaves it to the ports.",
        choices=("untouched", "auto", "rs", "baser", "llrs", "off"),
    ),
    Option(
        "max_read_request",
        "str",
        "auto",
        "PCIe read requests of the rails in bytes; auto: 4096 on bare metal.",
        choices=("auto", "untouched", "512", "1024", "2048", "4096"),
    ),
    Option(
        "stable_names",
        "str",
        "untouched",
        "Names of the rails' interfaces and RDMA devices; by_path: by their PCI path, from the next boot on.",
        choices=("untouched", "by_path"),
    ),
    Option(
        "nic_firmware_profile",
        "str",
        "none",
        "Firmware settings of the rails' cards that follow from the rest of the intent (ATS, DCBX, congestion control, "
        "CNP); a card that lacks one is not refused.",
        choices=("none", "recommended"),
    ),
    Option(
        "nic_firmware",
        "dict",
        {},
        "Firmware settings (mlxconfig) of the rails' cards over the profile, such as {ATS_ENABLED: 0}; null takes one "
        "away. Unnamed: untouched.",
    ),
    Option(
        "tuning_profile",
        "str",
        "none",
        "What options with the value profile come to. training: cpu_governor performance, transparent_hugepages "
        "always, irq_affinity numa, iommu passthrough; none leaves the host as it is.",
        choices=("none", "training"),
    ),
    Option(
        "cpu_governor",
        "str",
        "profile",
        "Frequency governor of all CPUs.",
        choices=("profile", "untouched", "performance", "schedutil", "ondemand", "conservative", "powersave"),
    ),
    Option(
        "transparent_hugepages",
        "str",
        "profile",
        "Transparent huge pages.",
        choices=("profile", "untouched", "always", "madvise", "never"),
    ),
    Option(
        "irq_affinity",
        "str",
        "profile",
        "Interrupts of the rails on the CPUs of their NUMA node, and out of irqbalance's hands.",
        choices=("profile", "untouched", "numa"),
    ),
    Option(
        "acs",
        "str",
        "untouched",
        "PCIe access control on the bridges between GPUs and rails; clear lets peers talk below the host bridge.",
        choices=("untouched", "clear"),
    ),
    Option(
        "iommu",
        "str",
        "profile",
        "IOMMU of the next boot; passthrough leaves devices' addresses untranslated.",
        choices=("profile", "untouched", "passthrough"),
    ),
    Option("kernel_cmdline", "list", [], "Further arguments of the kernel, from the next boot on.", form="word"),
    Option(
        "nccl_env",
        "dict",
        {},
        "NCCL variables for /etc/nccl.conf over the planned ones, such as {NCCL_DEBUG: WARN}; null removes one.",
    ),
    Option(
        "sysctl", "dict", {}, "Kernel parameters over the planned set, such as {vm.swappiness: 1}; null removes one."
    ),
    Option(
        "services_memlock",
        "list",
        ["sshd", "slurmd", "containerd", "docker", "kubelet"],
        "Services that get the limits (memlock unlimited, and gpu_fabric_nofile) where they exist.",
        form="unit",
    ),
    Option("nofile", "int", 1048576, "Open files allowed to logins and services.", low=1024, high=1073741816),
    Option(
        "rdma_stack",
        "str",
        "inbox",
        "Source of the RDMA drivers: the distribution, or DOCA-OFED.",
        choices=("inbox", "doca"),
    ),
    Option(
        "ofed_version",
        "str",
        "",
        "DOCA version where gpu_fabric_rdma_stack is doca.",
        form="version",
        empty_ok=True,
        example="3.2.1",
    ),
    Option("driver_version", "str", "580.95.05", "NVIDIA driver.", form="version"),
    Option("driver_flavour", "str", "auto", "Kernel modules; auto: by GPU.", choices=("auto", "open", "proprietary")),
    Option("cuda_version", "str", "13.0", "CUDA toolkit.", form="version"),
    Option("nccl_version", "str", "2.28.3", "NCCL library.", form="version"),
    Option(
        "repository",
        "dict",
        {},
        "Package repository of driver, CUDA and NCCL: name, url, suite, components, architectures, key_fingerprints "
        "and one of key, key_url, key_file (a path on the host). Empty: NVIDIA's.",
    ),
    Option("ofed_repository", "dict", {}, "Package repository of DOCA, with the same keys. Empty: NVIDIA's."),
    Option(
        "firewall",
        "str",
        "nftables",
        "Host firewall; none: the collection sets up none.",
        choices=("nftables", "none"),
    ),
    Option(
        "admin_networks",
        "list",
        [],
        "Networks from which the TCP ports of gpu_fabric_allow_tcp can be reached.",
        form="cidr",
    ),
    Option(
        "allow_tcp", "list", [22], "TCP ports open to gpu_fabric_admin_networks.", elements="int", low=1, high=65535
    ),
    Option(
        "thresholds",
        "dict",
        {},
        "Overrides of derived thresholds, such as {iperf3_gbps: 80}: "
        + ", ".join(value_checks.THRESHOLDS)
        + ". null: measured, not judged.",
    ),
    Option(
        "report_dir",
        "str",
        "{{ lookup('ansible.builtin.env', 'PWD') }}/reports",
        "Where reports go, on the controller; reports in the current directory unless set.",
        form="path",
    ),
)
BY_NAME = {option.variable: option for option in OPTIONS}


def defaults() -> Intent:
    return {option.variable: copy.deepcopy(option.default) for option in OPTIONS}


def resolve(variables: t.Mapping[str, t.Any]) -> tuple[Intent, list[Problem]]:
    """One host's intent and everything that is wrong with it. Other variables than gpu_fabric_* are not looked at."""
    intent, problems = defaults(), []
    for variable in sorted(v for v in variables if isinstance(v, str) and v.startswith(PREFIX)):
        if variable in RESERVED:
            continue
        option = BY_NAME.get(variable)
        if option is None:
            problems.append(_unknown(variable))
            continue
        value = variables[variable]
        if value is None:
            continue
        fitted, faults = _fit(option, value)
        if faults:
            problems += [Problem(variable, reason, option.allowed, path) for path, reason in faults]
        else:
            intent[variable] = fitted
    problems += contradictions(intent)
    problems += value_checks.problems(intent)
    return intent, problems


def _unknown(variable: str) -> Problem:
    names = [option.name for option in OPTIONS]
    near = difflib.get_close_matches(variable.removeprefix(PREFIX), names, n=1, cutoff=0.0)
    hint = f"; the nearest is {PREFIX}{near[0]}" if near else ""
    return Problem(variable, f"no such variable{hint}", "the variables that roles/preflight/README.md lists")


#: (place inside the variable, what is wrong there), all of them; none where the value fits.
Faults: t.TypeAlias = list[tuple[str, str]]


def _fit(option: Option, value: t.Any) -> tuple[t.Any, Faults]:
    """The value in its exact type, or why it does not fit."""
    shown: Faults = [("", f"{value!r} is not allowed")]
    if option.kind == "bool":
        if isinstance(value, str) and value.lower() in ("true", "yes", "on", "false", "no", "off"):
            value = value.lower() in ("true", "yes", "on")
        return (value, []) if isinstance(value, bool) else (None, shown)
    if option.kind == "int":
        number = _integer(value)
        if option.choices:
            return (number, []) if number in option.choices else (None, shown)
        if number is None or (option.low is not None and not option.low <= number <= t.cast(int, option.high)):
            return None, shown
        return number, []
    if option.kind == "raw":
        fitted = _RAW[option.form][0](value.strip() if isinstance(value, str) else value)
        return (fitted, []) if fitted is not None else (None, shown)
    if option.kind == "str":
        if value is False and "off" in option.choices:
            return "off", []  # which is what YAML makes of the bare word
        if isinstance(value, (int, float)) and not isinstance(value, bool) and option.form == "version":
            return None, [("", f"{value!r} is a number; write it in quotes, or YAML drops its zeros")]
        if isinstance(value, int) and not isinstance(value, bool) and str(value) in option.choices:
            value = str(value)
        if not isinstance(value, str):
            return None, shown
        value = value.strip()
        if option.choices:
            return (str(value), []) if value in option.choices else (None, shown)
        if not value and option.empty_ok:
            return "", []
        return (str(value), []) if not option.form or _FORMS[option.form][0](value) else (None, shown)
    if option.kind == "list":
        return _fit_list(option, value)
    if isinstance(value, t.Mapping):
        return dict(value), []
    return None, [("", f"{value!r} is no mapping")]


def _fit_list(option: Option, value: t.Any) -> tuple[t.Any, Faults]:
    if not isinstance(value, (list, tuple)):
        return None, [("", f"{value!r} is not a list")]
    if option.elements == "int":
        numbers = [_integer(item) for item in value]
        low, high = option.bounds
        ok = [number is not None and low <= number <= high for number in numbers]
        return _whole(value, numbers, ok, f"is not a number from {low} to {high}")
    if option.elements == "dict":
        ok = [isinstance(item, t.Mapping) for item in value]
        return _whole(value, [dict(item) if good else item for item, good in zip(value, ok)], ok, "is no mapping")
    ok = [isinstance(item, str) and _FORMS[option.form][0](item) for item in value]
    return _whole(value, [str(item).strip() for item in value], ok, "is not allowed")


def _whole(value: t.Sequence[t.Any], fitted: list[t.Any], ok: t.Sequence[bool], reason: str) -> tuple[t.Any, Faults]:
    """A list if all of its items fit, else each that does not, by its place."""
    faults = [(at(place), f"{value[place]!r} {reason}") for place, good in enumerate(ok) if not good]
    return (None, faults) if faults else (fitted, [])


def _integer(value: t.Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    # digits of ASCII only: what int() takes beyond them, the host's tools and people do not
    return int(value) if isinstance(value, int) or _INTEGER.fullmatch(value.strip()) else None
