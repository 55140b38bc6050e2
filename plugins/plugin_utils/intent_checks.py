# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each variable of the intent allows but their combination does not."""

from __future__ import annotations

import difflib
import itertools
import re
import typing as t

import netaddr

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import firmware_names

_ENV_NAME = re.compile(r"^[A-Z][A-Z0-9_]*$")

Intent = dict[str, t.Any]


class Problem(t.NamedTuple):
    """One thing that is wrong with the intent."""

    variable: str
    message: str
    allowed: str
    #: The place inside the variable, as ``at`` writes it.
    path: str = ""

    def line(self, host: str = "") -> str:
        where = f"{host}: " if host else ""
        return f"{where}{self.variable}{self.path}: {self.message}. Allowed: {self.allowed}."


def at(*keys: t.Any) -> str:
    """The way into a variable: ``.bond0.members[1]``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)


def unknown_keys(
    variable: str, path: str, given: t.Iterable[t.Any], keys: t.Sequence[str], allowed: str = ""
) -> list[Problem]:
    """Keys that a mapping of the intent does not have, each with the one that may be meant."""
    found = []
    for key in given:
        if key not in keys:
            near = difflib.get_close_matches(str(key).lower(), keys, n=1, cutoff=0.6)
            hint = f"; the nearest is {near[0]}" if near else ""
            found.append(Problem(variable, f"no such key{hint}", allowed or ", ".join(keys), path + at(key)))
    return found


def contradictions(intent: Intent) -> list[Problem]:
    """What each value allows but their combination does not."""
    return [
        *_pool_fits(intent),
        *_subnets_apart(intent),
        *_qos_agrees(intent),
        *_classes_agree(intent),
        *_firmware_agrees(intent),
        *_link_agrees(intent),
        *_mappings(intent),
        *_roles_apart(intent),
    ]


def _pool_fits(intent: Intent) -> list[Problem]:
    problems = []
    for family in ("ipv4", "ipv6"):
        pool, prefix = intent[f"gpu_fabric_rail_{family}"], intent[f"gpu_fabric_rail_{family}_prefix"]
        if pool and prefix < netaddr.IPNetwork(pool).prefixlen:
            problems.append(
                Problem(
                    f"gpu_fabric_rail_{family}_prefix",
                    f"/{prefix} is larger than the pool {pool}",
                    f"a prefix length not shorter than the pool's (gpu_fabric_rail_{family})",
                )
            )
    if intent["gpu_fabric_rail_gateways"] and intent["gpu_fabric_rail_host_offset"] == 0:
        problems.append(
            Problem(
                "gpu_fabric_rail_host_offset",
                "0 gives node 1 the first address of each subnet, which is the gateway's (gpu_fabric_rail_gateways)",
                "1 or more with gpu_fabric_rail_gateways",
            )
        )
    if intent["gpu_fabric_rail_mode"] == "routed_31":
        subnets = intent["gpu_fabric_rail_subnets"]
        if subnets and not any("." in item for item in subnets):
            message = f"{subnets[0]} with gpu_fabric_rail_mode: routed_31, whose addresses are IPv4"
            problems.append(Problem("gpu_fabric_rail_subnets", message, "IPv4 subnets, or both families"))
        elif not subnets and not intent["gpu_fabric_rail_ipv4"]:
            allowed = "routed_31 with gpu_fabric_rail_ipv4 or IPv4 gpu_fabric_rail_subnets"
            problems.append(Problem("gpu_fabric_rail_mode", "routed_31 without an IPv4 pool", allowed))
    return problems


def _subnets_apart(intent: Intent) -> list[Problem]:
    nets = [netaddr.IPNetwork(item) for item in intent["gpu_fabric_rail_subnets"]]
    problems = []
    # sorted neighbours suffice: two networks overlap only if one contains the next in order
    for one, other in itertools.pairwise(sorted(nets)):
        if one in other or other in one:
            message = f"{one} and {other} overlap"
            problems.append(Problem("gpu_fabric_rail_subnets", message, "subnets that do not overlap"))
    pools = [("gpu_fabric_rail_subnets", net) for net in nets] or [
        (variable, netaddr.IPNetwork(intent[variable]))
        for variable in ("gpu_fabric_rail_ipv4", "gpu_fabric_rail_ipv6")
        if intent[variable]
    ]
    for item in intent["gpu_fabric_admin_networks"]:
        for variable, pool in pools:
            # an administration network that covers the rails is a wish to be reachable, not an addressing plan
            if netaddr.IPNetwork(item) in pool and netaddr.IPNetwork(item) != pool:
                message = f"{item} overlaps the rails' {pool} ({variable})"
                problems.append(Problem("gpu_fabric_admin_networks", message, "networks that do not overlap the rails"))
    return problems


def _qos_agrees(intent: Intent) -> list[Problem]:
    if intent["gpu_fabric_roce_profile"] == "none":
        return []
    data, cnp = intent["gpu_fabric_roce_dscp"], intent["gpu_fabric_roce_cnp_dscp"]
    pfc, problems = intent["gpu_fabric_roce_pfc_priorities"], []
    if data >> 3 == cnp >> 3:
        problems.append(
            Problem(
                "gpu_fabric_roce_cnp_dscp",
                f"DSCP {cnp} has priority {cnp >> 3}, the same as data (gpu_fabric_roce_dscp: {data})",
                "a DSCP with another priority (DSCP / 8), so that congestion notifications do not queue behind data",
            )
        )
    if pfc and intent["gpu_fabric_roce_profile"] == "lossy":
        problems.append(
            Problem("gpu_fabric_roce_pfc_priorities", f"{pfc} with gpu_fabric_roce_profile: lossy", "[] with lossy")
        )
    elif pfc and (data >> 3 not in pfc or cnp >> 3 in pfc or len(pfc) > 2):
        problems.append(
            Problem(
                "gpu_fabric_roce_pfc_priorities",
                f"{pfc} with data on priority {data >> 3} and notifications on priority {cnp >> 3}",
                f"one or two priorities that include {data >> 3} and not {cnp >> 3}",
            )
        )
    return problems


def _classes_agree(intent: Intent) -> list[Problem]:
    """Traffic classes, buffers and accelerations, which hang together with the data's and the notifications' place."""
    problems = []
    for name in ("priority_to_tc", "buffer_size", "priority_to_buffer"):
        value = intent[f"gpu_fabric_roce_{name}"]
        if len(value) not in (0, 8):
            problems.append(Problem(f"gpu_fabric_roce_{name}", f"{len(value)} values", "eight values, or none"))
    variable, shares = "gpu_fabric_roce_ets", intent["gpu_fabric_roce_ets"]
    classes = {traffic_class(key): share for key, share in shares.items()}
    odd = [f"{key}: {share}" for key, share in shares.items() if traffic_class(key) is None or not _is_share(share)]
    if odd or len(classes) < len(shares):
        problems.append(
            Problem(
                variable, f"{', '.join(odd) or 'a class is named twice'}", "classes 0 to 7, each 1 to 100 or strict"
            )
        )
        return problems
    total = sum(share for share in shares.values() if share != "strict")
    if shares and total != 100:
        problems.append(Problem(variable, f"the shares add up to {total}", "shares that add up to 100"))
    to_tc = intent["gpu_fabric_roce_priority_to_tc"] or list(range(8))
    data, cnp = intent["gpu_fabric_roce_dscp"] >> 3, intent["gpu_fabric_roce_cnp_dscp"] >> 3
    if intent["gpu_fabric_roce_profile"] != "none" and len(to_tc) == 8 and data != cnp and to_tc[data] == to_tc[cnp]:
        problems.append(
            Problem(
                "gpu_fabric_roce_priority_to_tc",
                f"priorities {data} (data) and {cnp} (congestion notifications) share traffic class {to_tc[data]}",
                "different classes for the two, so that notifications do not queue behind data",
            )
        )
    sizes, buffers = intent["gpu_fabric_roce_buffer_size"], intent["gpu_fabric_roce_priority_to_buffer"]
    empty = [index for index in set(buffers) if len(sizes) == 8 and sizes[index] == 0]
    if empty:
        message = f"priorities use buffer {empty[0]}, whose size is 0 (gpu_fabric_roce_buffer_size)"
        problems.append(Problem("gpu_fabric_roce_priority_to_buffer", message, "buffers that have a size"))
    for name, value in intent["gpu_fabric_roce_accelerations"].items():
        variable = "gpu_fabric_roce_accelerations"
        problems += unknown_keys(variable, "", [name], ACCELERATIONS)
        if name in ACCELERATIONS and not isinstance(value, bool):
            problems.append(Problem(variable, f"{value!r} is not allowed", "true or false", at(name)))
    return problems


ACCELERATIONS = ("adp_retrans", "tx_window", "slow_restart", "slow_restart_idle")


def traffic_class(key: t.Any) -> int | None:
    """The number of a class, however YAML or JSON gave it."""
    return int(key) if not isinstance(key, bool) and str(key) in "01234567" and len(str(key)) == 1 else None


def _is_share(share: t.Any) -> bool:
    return share == "strict" or (isinstance(share, int) and not isinstance(share, bool) and 1 <= share <= 100)


def _firmware_agrees(intent: Intent) -> list[Problem]:
    variable, problems = "gpu_fabric_nic_firmware", []
    wanted = {"roce": "ETH(2)", "infiniband": "IB(1)"}.get(intent["gpu_fabric_fabric"])
    for name, value in intent[variable].items():
        fault = firmware_names.fault(name)
        if fault:
            allowed = "names such as ATS_ENABLED, LINK_TYPE_P1 and, of arrays, HOST_CHAINING_DESCRIPTORS[0..3]"
            problems.append(Problem(variable, fault, allowed))
        elif value is not None and (allowed := firmware_names.value_fault(name, value)):
            problems.append(Problem(variable, f"{value!r} is not allowed", allowed, at(name)))
        elif name.startswith("LINK_TYPE") and value is not None and wanted and not firmware.same(value, wanted):
            message = f"{name} is {value} with gpu_fabric_fabric: {intent['gpu_fabric_fabric']}"
            problems.append(Problem(variable, message, f"{wanted} with that fabric, or gpu_fabric_fabric: auto"))
    given = {name: value for name, value in intent[variable].items() if isinstance(name, str) and value is not None}
    return problems + [Problem(variable, told, "one value for each") for told in firmware_names.overlaps(given)]


#: Error correction that is in use at each speed, in Gb/s. Lanes of 50 Gb/s and more cannot do without Reed-Solomon.
FEC_OF_SPEED: dict[int, tuple[str, ...]] = {
    1: ("auto", "off"),
    10: ("auto", "baser", "off"),
    25: ("auto", "rs", "baser", "llrs", "off"),
    40: ("auto", "baser", "off"),
    50: ("auto", "rs", "baser", "llrs", "off"),
    100: ("auto", "rs", "llrs", "off"),
    200: ("auto", "rs", "llrs"),
    400: ("auto", "rs", "llrs"),
    800: ("auto", "rs", "llrs"),
}


def _link_agrees(intent: Intent) -> list[Problem]:
    """Speed, negotiation and FEC of the rails' ports."""
    problems = []
    speed, autoneg, fec = (intent[f"gpu_fabric_link_{name}"] for name in ("speed_gbps", "autoneg", "fec"))
    if autoneg is False and speed is None:
        allowed = "false with gpu_fabric_link_speed_gbps, or true"
        problems.append(Problem("gpu_fabric_link_autoneg", "false without a speed to force the ports to", allowed))
    if speed is not None and fec not in ("untouched", *FEC_OF_SPEED[speed]):
        message = f"{fec} with gpu_fabric_link_speed_gbps: {speed}"
        problems.append(Problem("gpu_fabric_link_fec", message, f"{', '.join(FEC_OF_SPEED[speed])} at that speed"))
    if intent["gpu_fabric_fabric"] == "infiniband":
        for name, value in (("speed_gbps", speed), ("autoneg", autoneg), ("fec", None if fec == "untouched" else fec)):
            if value is not None:
                message = f"{value} with gpu_fabric_fabric: infiniband"
                problems.append(Problem(f"gpu_fabric_link_{name}", message, "Ethernet rails; InfiniBand has an SM"))
    return problems


def _mappings(intent: Intent) -> list[Problem]:
    problems = []
    for name, value in intent["gpu_fabric_nccl_env"].items():
        if not isinstance(name, str) or not _ENV_NAME.match(name):
            problems.append(
                Problem("gpu_fabric_nccl_env", f"{name!r} is not a variable's name", "names such as NCCL_IB_TC")
            )
        elif value is not None and not isinstance(value, (str, int)):
            allowed = "a text, a number or null"
            problems.append(Problem("gpu_fabric_nccl_env", f"{value!r} is not allowed", allowed, at(name)))
    return problems


def _roles_apart(intent: Intent) -> list[Problem]:
    seen: dict[str, str] = {}
    problems = []
    for role in ("compute", "storage", "management", "exclude"):
        variable = f"gpu_fabric_{role}_devices"
        for item in intent[variable]:
            key = item.lower()
            if seen.setdefault(key, variable) != variable:
                problems.append(Problem(variable, f"{item} is also in {seen[key]}", "each device in one list only"))
    return problems
