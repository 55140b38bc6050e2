# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether RoCE packets get from one node to the other: UDP port 4791 over the rail, with nobody allowed to fragment."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

from railyard_lab import perf

PORT = 4791
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2
_SO_BINDTODEVICE = 25
HEADERS = 12 + 16 + 4  # BTH, RETH, ICRC: what RoCE puts between UDP and the payload


def send(channel: socket.socket, message: Any) -> None:
    """One message of the control connection: a line of JSON."""
    channel.sendall(json.dumps(message).encode() + b"\n")


def receive(channel: socket.socket) -> Any:
    """One message and not a byte more: what follows must stay visible to select()."""
    data = b""
    while True:
        ahead = channel.recv(65536, socket.MSG_PEEK)
        if not ahead:
            raise ConnectionError("the other end closed the connection")
        end = ahead.find(b"\n")
        data += channel.recv(len(ahead) if end < 0 else end + 1)
        if end >= 0:
            return json.loads(data)


def _bound(end: dict[str, Any], port: int) -> socket.socket | None:
    address = perf.ipv4_of(end["gid"])
    if address is None:
        return None
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    channel.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
    try:
        channel.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, end["netdev"].encode() + b"\0")
        channel.bind((address, port))
    except OSError:
        channel.close()
        return None
    return channel


@contextlib.contextmanager
def listener(end: dict[str, Any]) -> Iterator[socket.socket | None]:
    """The responder's half: answers what arrives at the port's address."""
    channel = _bound(end, PORT) if end["link_layer"] == "Ethernet" else None
    try:
        yield channel
    finally:
        if channel is not None:
            channel.close()


def answer(channel: socket.socket | None, control: socket.socket) -> None:
    """Acknowledge packets until the other end says on the control connection that it is done."""
    if channel is None:
        return
    while True:
        ready, _, _ = select.select([channel, control], [], [], 30)
        if channel in ready:
            data, sender = channel.recvfrom(65536)
            with contextlib.suppress(OSError):
                channel.sendto(data[:24], (sender[0], PORT))
        if control in ready or not ready:
            return


def reaches(mine: dict[str, Any], theirs: dict[str, Any], timeout: float = 1.5) -> bool:
    """The requester's half: a full packet goes there, its acknowledgement comes back. True where there is no wire."""
    if mine["link_layer"] != "Ethernet":
        return True
    target = perf.ipv4_of(theirs["gid"])
    channel = _bound(mine, PORT)
    if target is None or channel is None:
        return True
    if mine["host"] == theirs["host"]:
        channel.close()
        return True
    packet = bytes(min(mine["mtu"], theirs["mtu"]) + HEADERS)
    deadline = time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            try:
                channel.sendto(packet, (target, PORT))
            except OSError:
                time.sleep(0.1)
                continue
            ready, _, _ = select.select([channel], [], [], 0.2)
            if ready:
                channel.recvfrom(65536)
                return True
        return False
    finally:
        channel.close()
