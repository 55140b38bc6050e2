# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""How often settings of ours took a port's link down since boot, so that nobody takes that for a bad cable."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_text, write_atomic
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import Port

#: Below /run, for the next boot begins anew; with the boot's id, for a container's may last longer.
RECORD = "/run/gpu_fabric/link_downs.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
#: How long the count may lag behind the write that took the link down.
LAG_S = 3.0


def counted(port: Port) -> int | None:
    """Losses of the link since the driver was loaded."""
    paths = [f"/sys/class/net/{port.netdev}/carrier_down_count"]
    if port.hca:
        paths.insert(0, f"/sys/class/infiniband/{port.hca}/ports/{port.port}/counters/link_downed")
    for path in paths:
        try:
            return int((read_text(path) or "").strip())
        except (Failure, ValueError):
            continue
    return None


def note(port: Port, before: int | None, bounced: bool) -> None:
    """Add what the link lost since ``before``; where a bounce is certain, it is waited for until it is counted."""
    if before is None:
        return
    deadline = time.monotonic() + (LAG_S if bounced else 0)
    lost = (counted(port) or 0) - before
    while lost <= 0 and time.monotonic() < deadline:
        time.sleep(0.1)
        lost = (counted(port) or 0) - before
    if lost > 0:
        with alone():
            ports = load()
            known = ports.get(port.netdev, {}).get("downs", 0)
            ports[port.netdev] = {"pci": port.pci, "downs": known + lost}
            record = {"boot_id": boot_id(), "ports": ports}
            write_atomic(RECORD, json.dumps(record, indent=2, sort_keys=True) + "\n")


@contextlib.contextmanager
def alone() -> t.Iterator[None]:
    """At boot the units of all ports run at once."""
    os.makedirs(os.path.dirname(RECORD), exist_ok=True)
    with open(f"{RECORD}.lock", "w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def load() -> dict[str, t.Any]:
    """The record of this boot."""
    return of_boot(read_text(RECORD), boot_id())


def of_boot(text: str | None, boot: str) -> dict[str, t.Any]:
    """The ports of a record; none where it is of another boot or cannot be read."""
    try:
        record = json.loads(text or "{}")
    except ValueError:
        return {}
    ports = record.get("ports") if isinstance(record, dict) and record.get("boot_id") == boot else None
    return ports if isinstance(ports, dict) else {}


def boot_id() -> str:
    return (read_text(BOOT_ID) or "").strip()


__all__ = ("BOOT_ID", "RECORD", "counted", "load", "note", "of_boot")
