# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of firmware parameters that a rack's NICs have, as far as a plan can know without asking a card. Pure.

Every card and firmware has names of its own, so that one which is not here is left to the card to judge. One that is a
slip of the pen away from a name here, and is none itself, is refused before anything is changed.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig as firmware
from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig_arrays as arrays

#: As mlxconfig writes them: some have small letters behind an underscore (EXP_ROM_UEFI_x86_ENABLE).
FORM = re.compile(r"^[A-Z][A-Z0-9]*(?:_[A-Za-z0-9_]*)?$")
_PORT = re.compile(r"_P[0-9]+$")
#: Physical and virtual functions, receiving and sending: names that differ in these are two names.
_APART = ("PV", "VP", "RT", "TR")
#: A number of profiles, whatever its name says.
_NO_SWITCH = frozenset({"FLEX_PARSER_PROFILE_ENABLE"})

#: Of ConnectX-5 to ConnectX-8 and BlueField, without the port.
KNOWN = frozenset(
    {
        *firmware.GATES,
        *firmware.GATES.values(),
        *firmware.FUNCTIONS,
        "ATS_ENABLED", "BOOT_LACP_DIS", "BOOT_RETRY_CNT", "BOOT_UNDI_NETWORK_WAIT", "BOOT_VLAN", "BOOT_VLAN_EN",
        "CLAMP_TGT_RATE", "CLAMP_TGT_RATE_AFTER_TIME_INC", "CNP_802P_PRIO", "CNP_DSCP", "CNP_DSCP_MODE",
        "COALESCE_CQE", "CQE_COMPRESSION", "DCBX_CEE", "DCBX_IEEE", "DCBX_WILLING", "DCE_TCP_G", "DCE_TCP_RTT",
        "DUP_MAC_ACTION", "ESWITCH_HAIRPIN_DESCRIPTORS", "ESWITCH_HAIRPIN_TOT_BUFFER_SIZE", "EXP_ROM_PXE_ENABLE",
        "EXP_ROM_UEFI_ARM_ENABLE", "EXP_ROM_UEFI_x86_ENABLE", "FLEX_PARSER_PROFILE_ENABLE",
        "HOST_CHAINING_CACHE_DISABLE", "HOST_CHAINING_DESCRIPTORS", "HOST_CHAINING_MODE",
        "HOST_CHAINING_TOTAL_BUFFER_SIZE", "IBM_AS_NOTIFY_EN", "IBM_CAPI_EN", "IBM_TUNNELED_ATOMIC_EN",
        "IB_CC_SHAPER_COALESCE", "IB_PROTO_WIDTH_EN_MASK", "IB_ROUTING_MODE", "INITIAL_ALPHA_VALUE",
        "KEEP_ETH_LINK_UP", "KEEP_IB_LINK_UP", "KEEP_LINK_UP_ON_BOOT", "KEEP_LINK_UP_ON_STANDBY",
        "LEGACY_BOOT_PROTOCOL", "LINK_TYPE", "LLDP_NB_DCBX", "LLDP_NB_RX_MODE", "LLDP_NB_TX_MODE",
        "LOG_DCR_HASH_TABLE_SIZE", "LOG_MAX_OUTSTANDING_WQE", "LOG_MAX_QUEUE", "LRO_LOG_TIMEOUT0", "LRO_LOG_TIMEOUT1",
        "LRO_LOG_TIMEOUT2", "LRO_LOG_TIMEOUT3", "MAX_PACKET_LIFETIME", "MEMIC_ATOMIC", "MEMIC_BAR_SIZE",
        "MEMIC_SIZE_LIMIT", "MIN_TIME_BETWEEN_CNPS", "MKEY_BY_NAME", "MPFS_MC_LOOPBACK_DISABLE", "MULTI_PORT_VHCA_EN",
        "NUM_OF_PFC", "NUM_OF_PLANES", "NUM_OF_TC", "NUM_OF_VFS", "NUM_OF_VL", "NUM_PF_MSIX", "NUM_PF_MSIX_VALID",
        "NUM_VF_MSIX", "PARTIAL_RESET_EN", "PCI_ATOMIC_MODE", "PCI_BUS00_HIERARCHY_TYPE", "PCI_DOWNSTREAM_PORT_OWNER",
        "PER_PF_NUM_SF", "PF_BAR2_ENABLE", "PF_BAR2_SIZE", "PF_LOG_BAR_SIZE", "PF_SD_GROUP", "PF_SF_BAR_SIZE",
        "PF_TOTAL_SF", "PHY_COUNT_LINK_UP_DELAY", "PORT_OWNER", "QOS_TRUST_STATE", "RATE_REDUCE_MONITOR_PERIOD",
        "RATE_TO_SET_ON_FIRST_CNP", "RDMA_SELECTIVE_REPEAT_EN", "ROCE_ADAPTIVE_ROUTING_EN", "ROCE_CC_ALGORITHM",
        "ROCE_CC_LEGACY_DCQCN", "ROCE_CC_PRIO_MASK", "ROCE_CC_SHAPER_COALESCE", "ROCE_CC_STEERING_EXT",
        "ROCE_CONTROL", "ROCE_NEXT_PROTOCOL", "ROCE_RTT_RESP_DSCP", "ROCE_RTT_RESP_DSCP_MODE", "RPG_AI_RATE",
        "RPG_BYTE_RESET", "RPG_GD", "RPG_HAI_RATE", "RPG_MAX_RATE", "RPG_MIN_DEC_FAC", "RPG_MIN_RATE",
        "RPG_THRESHOLD", "RPG_TIME_RESET", "RT_REVERSE_NUM_OF_PFS", "SAFE_MODE_ENABLE", "SAFE_MODE_THRESHOLD",
        "SRIOV_EN", "SRIOV_IB_ROUTING_MODE", "STRICT_VF_MSIX_NUM", "TRACER_ENABLE", "TX_SCHEDULER_BURST",
        "TX_SCHEDULER_LOCALITY_MODE", "UCTX_EN", "UEFI_HII_EN", "UEFI_LOGS", "UNKNOWN_UPLINK_MAC_FLOOD",
        "USER_PROGRAMMABLE_CC", "VF_LOG_BAR_SIZE", "VF_NODNIC_ENABLE", "VF_VPD_ENABLE", "VL15_BUFFER_SIZE",
        "WOL_MAGIC_EN", "XFI_MODE", "ZERO_TOUCH_TUNING_ENABLE",
    }
)  # fmt: skip


def fault(name: object) -> str:
    """Why this is no parameter's name; empty where it may be one."""
    text = name if isinstance(name, str) else ""
    at = arrays.place(text)
    if not FORM.match(at.name if at else text):
        if arrays.stem(text) != text and FORM.match(arrays.stem(text)):
            return f"{name!r} has no index of an array"
        near = slip(text.strip().upper()) if text else ""
        return f"{name!r} is no parameter's name" + (f"; the nearest is {near}" if near else "")
    near = slip(text)
    if near == text:
        return ""
    return f"{name} is no parameter's name; the nearest is {near}" if near else ""


def slip(name: str) -> str:
    """The known name itself, or that from which this one is a letter apart, with port and index; else nothing."""
    port = _PORT.search(arrays.stem(name))
    index = name[len(arrays.stem(name)) :]
    bare = _PORT.sub("", arrays.stem(name))
    if bare in KNOWN:
        return name
    for known in sorted(KNOWN):
        if abs(len(known) - len(bare)) <= 1 and _one_apart(bare, known):
            return known + (port.group() if port else "") + index
    return ""


def _one_apart(one: str, other: str) -> bool:
    if one.upper() == other.upper():
        return True
    place = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    head, tail = one[place:], other[place:]
    if head[1:] == tail[1:] and (head[:1] + tail[:1]).upper() in _APART:
        return False
    if head[:1].isdigit() and tail[:1].isdigit():
        return False  # numbers count things, and another number is another parameter
    swapped = len(head) > 1 and head[1] + head[0] + head[2:] == tail
    return swapped or head[1:] == tail[1:] or head[1:] == tail or head == tail[1:]


def overlaps(wanted: t.Mapping[str, t.Any]) -> list[str]:
    """Elements of arrays that two ranges give two values."""
    whole = {at.name: {"next": "Array[]"} for name in wanted if (at := arrays.place(name))}
    return arrays.spread(wanted, (), whole, lambda _stem: ()).refusals


def value_fault(name: str, value: object) -> str:
    """What a value must be where it is none for this parameter; empty where it may be."""
    if isinstance(value, str) and (not value.strip() or not value.strip().isprintable() or " " in value.strip()):
        return "one word or number"
    if not isinstance(value, (str, int)):
        return "a text, a number, true, false or null"
    bare = _PORT.sub("", arrays.stem(name))
    number = firmware.number_of(value)
    if bare not in KNOWN:
        return ""
    if bare.endswith(("_EN", "_ENABLE", "_ENABLED")) and bare not in _NO_SWITCH and number not in (0, 1):
        return "true or false"
    if bare.startswith(("NUM_OF_VF", "NUM_PF_", "NUM_VF_", "RPG_")) and (number is None or isinstance(value, bool)):
        return "a number"
    return ""


__all__ = ("FORM", "KNOWN", "fault", "overlaps", "slip", "value_fault")
