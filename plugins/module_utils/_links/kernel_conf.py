# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""What a network manager sets in the kernel for an interface that it takes on, and leaves so when it lets go of it."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_text

ROOT = "/proc/sys/net"
SETTINGS = ("ipv4/conf/{}/promote_secondaries", "ipv6/conf/{}/accept_ra")


def found(netdev: str) -> dict[str, str]:
    """The present values by setting; of an interface that has none, nothing."""
    values = {}
    for setting in SETTINGS:
        with contextlib.suppress(Failure):
            text = read_text(os.path.join(ROOT, setting.format(netdev)))
            if text is not None:
                values[setting] = text.strip()
    return values


def ipv6_disabled(netdev: str) -> bool:
    """Whether the host has no IPv6 for an interface.

    A network manager switches it off on one interface and on again by itself; only what holds for all is the host's.
    """
    own = os.path.join(ROOT, "ipv6/conf", netdev)
    places = (
        own if os.path.isdir(own) else os.path.join(ROOT, "ipv6/conf/default"),
        os.path.join(ROOT, "ipv6/conf/all"),
    )
    return all((read_text(f"{place}/disable_ipv6") or "1").strip() != "0" for place in places)


def give_back(netdev: str, values: t.Mapping[str, str]) -> None:
    """Write what was found before; an interface or a setting that has gone needs none."""
    for setting, value in values.items():
        if setting in SETTINGS and found(netdev).get(setting) not in (None, value):
            with open(os.path.join(ROOT, setting.format(netdev)), "w", encoding="ascii") as stream:
                stream.write(value)


__all__ = ("found", "give_back", "ipv6_disabled")
