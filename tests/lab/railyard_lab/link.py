# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An Ethernet port's link modes and error correction, and what its driver starts with at every boot."""

from __future__ import annotations

import re
from typing import Any

#: Bit of `enum ethtool_link_mode_bit_indices`, which is the order in which ethtool lists them: name.
BITS = {
    3: "100baseT/Full", 5: "1000baseT/Full", 12: "10000baseT/Full",
    31: "25000baseCR/Full", 32: "25000baseKR/Full", 33: "25000baseSR/Full", 34: "50000baseCR2/Full",
    35: "50000baseKR2/Full", 36: "100000baseKR4/Full", 37: "100000baseSR4/Full", 38: "100000baseCR4/Full",
    40: "50000baseSR2/Full", 52: "50000baseKR/Full", 53: "50000baseSR/Full", 54: "50000baseCR/Full",
    57: "100000baseKR2/Full", 58: "100000baseSR2/Full", 59: "100000baseCR2/Full", 62: "200000baseKR4/Full",
    63: "200000baseSR4/Full", 66: "200000baseCR4/Full", 75: "100000baseKR/Full", 76: "100000baseSR/Full",
    78: "100000baseCR/Full", 80: "200000baseKR2/Full", 81: "200000baseSR2/Full", 84: "200000baseCR2/Full",
    85: "400000baseKR4/Full", 86: "400000baseSR4/Full", 89: "400000baseCR4/Full",
}  # fmt: skip
#: Gb/s of one lane, by what a model's name begins with.
LANES = {"cx7": 100, "cx6": 50, "cx5": 25}
MAX_RING, MAX_CHANNELS = 8192, 63
FEC = {"auto": "Auto", "off": "Off", "rs": "RS", "baser": "BASER", "llrs": "LLRS"}


def factory() -> dict[str, Any]:
    """What a driver has after it was loaded; nothing of it outlives a reboot."""
    return {
        "rings": {"rx": 1024, "tx": 1024},
        "pause": {"autonegotiate": False, "rx": True, "tx": True},
        "fec": "auto",
        "channels": MAX_CHANNELS,
        "autoneg": True,
        "offered": None,  # every mode that the port supports
    }


def gbps(mode: str) -> float:
    return int(re.split("base", mode)[0]) / 1000


def supported(nic: dict[str, Any]) -> list[str]:
    if nic["rate_gbps"] == 10:
        return [BITS[bit] for bit in (3, 5, 12)]
    lane = LANES.get(nic["model"][:3], 100)

    def fits(mode: str) -> bool:
        lanes = int(re.search(r"(\d?)/", mode).group(1) or 1)  # type: ignore[union-attr]
        return 25 <= gbps(mode) <= nic["rate_gbps"] and gbps(mode) / lanes <= lane

    return [mode for mode in BITS.values() if fits(mode)]


def offered(nic: dict[str, Any]) -> list[str]:
    chosen = nic.get("offered")
    return supported(nic) if chosen is None else [mode for mode in supported(nic) if mode in chosen]


def rate(nic: dict[str, Any]) -> int:
    """The fastest mode that the port offers, where a slow partner does not keep it lower."""
    best = nic["rate_gbps"]
    if nic.get("offered"):
        best = int(max(map(gbps, offered(nic)), default=best))
    return min(best, nic["speed_limit_gbps"] or best)


def active_fec(nic: dict[str, Any]) -> str:
    """What a port uses that may choose; a copper cable of these lengths runs with Reed-Solomon."""
    return FEC["rs" if nic["fec"] == "auto" else nic["fec"]]
