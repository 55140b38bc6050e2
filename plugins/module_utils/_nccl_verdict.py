# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What a run of nccl-tests means against a bandwidth. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["judge", "largest_busbw"]


def largest_busbw(value: Mapping[str, Any]) -> float | None:
    """The better one of the bus bandwidths of the largest message, GB/s; None without a row that has one."""
    rows = [row for row in value["rows"] if "size_bytes" in row]
    if not rows:
        return None
    last = max(rows, key=lambda row: row["size_bytes"])
    found = [last[key] for key in ("out_of_place_busbw_gbytes_s", "in_place_busbw_gbytes_s") if key in last]
    return max(found) if found else None


def judge(value: Mapping[str, Any], minimum: float, by: str = "largest") -> list[str]:
    """Why the run does not pass; empty when it does. ``by``: ``largest`` message or ``average`` over all sizes."""
    reasons = []
    if value["errors"]:
        reasons.append(f"The run failed: {value['errors'][0]}.")
    if value.get("out_of_bounds_ok") is False:
        reasons.append(f"{value['out_of_bounds_count']} values are out of bounds, wanted 0: the results are wrong.")
    for row in value["rows"]:
        wrong = row.get("out_of_place_wrong", 0) + row.get("in_place_wrong", 0)
        if wrong:
            reasons.append(f"{wrong} values of the {row['size_bytes']} byte message are wrong, wanted 0.")
            break
    if not value["complete"]:
        reasons.append("The run did not finish: it printed no average.")
    if value.get("average_ok") is False:
        reasons.append("The run missed its own limit (NCCL_TESTS_MIN_BW).")
    if len([summary for summary in value["summaries"] if "average_busbw_gbytes_s" in summary]) > 1:
        reasons.append("The output holds several independent runs; nccl-tests was built without MPI.")
    seen = value.get("average_busbw_gbytes_s") if by == "average" else largest_busbw(value)
    what = "average bus bandwidth" if by == "average" else "bus bandwidth of the largest message"
    if seen is None:
        reasons.append(f"There is no {what}, wanted at least {minimum:g} GB/s.")
    elif seen < minimum:
        reasons.append(f"The {what} is {seen:g} GB/s, wanted at least {minimum:g} GB/s.")
    return reasons
