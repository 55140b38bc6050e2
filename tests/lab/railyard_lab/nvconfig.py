# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NIC firmware settings (what mlxconfig reads and writes): three values each, of which one waits for a reset."""

from __future__ import annotations

import re
from typing import Any

BOOL = {0: "False", 1: "True"}
ENUMS: dict[str, dict[int, str]] = {
    "bool": BOOL,
    "link_type": {1: "IB", 2: "ETH"},
    "ordering": {0: "per_mkey", 1: "force_relax"},
    "cc_algorithm": {0: "ECN", 1: "QCN"},
    "roce_control": {0: "DEVICE_DEFAULT", 1: "ROCE_DISABLE", 2: "ROCE_ENABLE"},
    "trust": {0: "DEVICE_DEFAULT", 1: "TRUST_PORT", 2: "TRUST_PCP", 3: "TRUST_DSCP", 4: "TRUST_DSCP_PCP"},
    "lldp": {0: "OFF", 1: "MANDATORY", 2: "ALL"},
    "cqe": {0: "BALANCED", 1: "AGGRESSIVE"},
    "port_owner": {0: "DEVICE_DEFAULT", 1: "LIMITED"},
    "vls": {1: "_1_VL", 2: "_2_VLs", 3: "_4_VLs", 4: "_8_VLs"},
    "dscp_mode": {0: "DEFAULT", 1: "FIXED", 2: "FROM_RX"},
    "locality": {0: "DEVICE_DEFAULT", 1: "STATIC_MODE", 2: "ACCUMULATIVE_MODE"},
}

# name: (kind, default); kind is an enum above, "number" (then a range) or "array" (then its length,
# and the range of its elements, which are 0 at first).
COMMON: dict[str, tuple[str, Any]] = {
    "MEMIC_BAR_SIZE": ("number", (0, 0, 15)),
    "MEMIC_SIZE_LIMIT": ("number", (1, 0, 8)),
    "ROCE_CONTROL": ("roce_control", 2),
    "ATS_ENABLED": ("bool", 0),
    "PF_TOTAL_SF": ("number", (0, 0, 1024)),
    "ADVANCED_PCI_SETTINGS": ("bool", 0),
    "SRIOV_EN": ("bool", 0),
    "NUM_OF_VFS": ("number", (8, 0, 127)),
    "PCI_ATOMIC_MODE": ("number", (0, 0, 3)),
    "ROCE_ADAPTIVE_ROUTING_EN": ("bool", 0),
    "RDMA_SELECTIVE_REPEAT_EN": ("bool", 0),
    "USER_PROGRAMMABLE_CC": ("bool", 0),
    "TX_SCHEDULER_LOCALITY_MODE": ("locality", 0),
    "CQE_COMPRESSION": ("cqe", 0),
    "HOST_CHAINING_DESCRIPTORS": ("array", (8, 0, 13)),
    "ESWITCH_HAIRPIN_DESCRIPTORS": ("array", (8, 0, 13)),
    "ESWITCH_HAIRPIN_TOT_BUFFER_SIZE": ("array", (8, 0, 63)),
}
ADVANCED: dict[str, tuple[str, Any]] = {
    "PCI_WR_ORDERING": ("ordering", 0),
    "MAX_ACC_OUT_READ": ("number", (0, 0, 255)),
}
PER_PORT: dict[str, tuple[str, Any]] = {
    "LINK_TYPE": ("link_type", None),
    "ROCE_CC_PRIO_MASK": ("number", (255, 0, 255)),
    "ROCE_CC_ALGORITHM": ("cc_algorithm", 0),
    "CNP_DSCP": ("number", (48, 0, 63)),
    "CNP_802P_PRIO": ("number", (6, 0, 7)),
    "CNP_DSCP_MODE": ("dscp_mode", 0),
    "CLAMP_TGT_RATE": ("bool", 0),
    "RPG_TIME_RESET": ("number", (300, 1, 131071)),
    "RPG_BYTE_RESET": ("number", (32767, 1, 32767)),
    "RATE_REDUCE_MONITOR_PERIOD": ("number", (4, 1, 131071)),
    "MIN_TIME_BETWEEN_CNPS": ("number", (4, 0, 65535)),
    "LLDP_NB_DCBX": ("bool", 0),
    "LLDP_NB_RX_MODE": ("lldp", 0),
    "LLDP_NB_TX_MODE": ("lldp", 0),
    "DCBX_IEEE": ("bool", 1),
    "DCBX_CEE": ("bool", 1),
    "DCBX_WILLING": ("bool", 1),
    "QOS_TRUST_STATE": ("trust", 0),
    "KEEP_ETH_LINK_UP": ("bool", 1),
    "KEEP_IB_LINK_UP": ("bool", 0),
    "KEEP_LINK_UP_ON_BOOT": ("bool", 0),
    "NUM_OF_VL": ("vls", 3),
}
READ_ONLY: dict[str, tuple[str, Any]] = {"INTERNAL_CPU_OFFLOAD_ENGINE": ("bool", 0)}


def _show(kind: str, value: Any) -> str:
    if kind == "array":
        return f"Array[0..{value - 1}]"
    if kind == "number":
        return str(value)
    return f"{ENUMS[kind][value]}({value})"


def factory(nic: dict[str, Any], model: dict[str, Any], stack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters of one function, each `{kind, default, current, next}`; nothing for a VF, which has none."""
    if model.get("vf"):
        return {}
    settings: dict[str, dict[str, Any]] = {}

    def add(
        name: str, kind: str, default: Any, value: Any = None, read_only: bool = False, advanced: bool = False
    ) -> None:
        first = default[0] if kind in ("number", "array") else default
        now = first if value is None else value
        entry = {"kind": kind, "default": _show(kind, first), "current": _show(kind, now), "next": _show(kind, now)}
        if kind in ("number", "array"):
            entry["range"] = list(default[1:])
        if kind == "array":
            entry["elements"] = [{"default": "0", "current": "0", "next": "0"} for _ in range(first)]
        if read_only:
            entry["read_only"] = True
        if advanced:
            entry["advanced"] = True
        settings[name] = entry

    for name, (kind, default) in COMMON.items():
        add(name, kind, default)
    for name, (kind, default) in ADVANCED.items():
        add(name, kind, default, advanced=True)
    # A dual-port card has one set of parameters, which either function shows, with the port in the name.
    for port in range(1, model.get("ports", 1) + 1):
        for name, (kind, default) in PER_PORT.items():
            if name == "LINK_TYPE":
                if model["vpi"]:
                    add(f"LINK_TYPE_P{port}", kind, 1, 2 if nic["link_layer"] == "Ethernet" else 1)
                continue
            add(f"{name}_P{port}", kind, default)
    for name, (kind, default) in READ_ONLY.items():
        add(name, kind, default, read_only=True)
    return settings


def visible(settings: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Parameters which the firmware shows now: advanced PCI settings only after their gate is in force."""
    gate = settings.get("ADVANCED_PCI_SETTINGS", {}).get("current") == "True(1)"
    return {name: entry for name, entry in settings.items() if gate or not entry.get("advanced")}


def elements(settings: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The elements of the arrays, each as a parameter of its own."""
    return {
        f"{name}[{index}]": {"kind": "number", "range": entry["range"], **element}
        for name, entry in settings.items()
        for index, element in enumerate(entry.get("elements", ()))
    }


def put(settings: dict[str, dict[str, Any]], name: str, value: str) -> None:
    """Write the value of the next boot of a parameter or of an element."""
    array, bracket, rest = name.partition("[")
    entry = settings[array]["elements"][int(rest[:-1])] if bracket else settings[array]
    entry["next"] = value


def parse_value(name: str, entry: dict[str, Any], text: str) -> str:
    """A value as a person writes it (number, hex, name) in the form that the tool shows. Raises ValueError."""
    kind = entry["kind"]
    if kind == "array":
        raise ValueError(f"Parameter {name} must be indexed")
    number = int(text, 0) if re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", text) else None
    if kind == "number":
        low, high = entry["range"]
        if number is None:
            raise ValueError(f'Failed to parse {name}={text}: "{text}" is not a number')
        if not low <= number <= high:
            raise ValueError(f"Value for parameter {name} is out of range: {text} ({low}..{high})")
        return str(number)
    names = ENUMS[kind]
    if number is None:
        for value, label in names.items():
            if label.lower() == text.lower():
                number = value
    if number is None or number not in names:
        allowed = ", ".join(f"{label}({value})" for value, label in names.items())
        raise ValueError(f"Unknown value {text} for parameter {name}, allowed: {allowed}")
    return f"{names[number]}({number})"


def number_of(text: str) -> int:
    found = re.search(r"\((\d+)\)$", text)
    return int(found.group(1)) if found else int(text)


def pending(settings: dict[str, dict[str, Any]]) -> list[str]:
    every = {**settings, **elements(settings)}
    return sorted(name for name, entry in every.items() if entry["current"] != entry["next"])


def reset(nic: dict[str, Any]) -> bool:
    """A firmware reset or a power cycle: what waited is in force. True when something was waiting."""
    settings = nic.get("nvconfig") or {}
    changed = pending(settings)
    for entry in settings.values():
        for each in (entry, *entry.get("elements", ())):
            each["current"] = each["next"]
    port = int(nic["pci"].rsplit(".", 1)[1]) + 1
    link_type = settings.get(f"LINK_TYPE_P{port}") or settings.get("LINK_TYPE_P1")
    if link_type:
        nic["link_layer"] = "Ethernet" if number_of(link_type["current"]) == 2 else "InfiniBand"
    return bool(changed)


def same_card(state: dict[str, Any], nic: dict[str, Any]) -> list[dict[str, Any]]:
    card = nic["pci"].rsplit(".", 1)[0]
    return [other for other in state["nics"] if other["pci"].rsplit(".", 1)[0] == card and other.get("nvconfig")]
