"""Frames that qemu captured on a link between the machines: pcap files, read with the standard library."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEADER = struct.Struct("<IHHiIII")
RECORD = struct.Struct("<IIII")
MAGIC = 0xA1B2C3D4
ROCE_V2 = 4791
IPV4 = 0x0800
UDP = 17
# InfiniBand opcodes of a reliable connection's RDMA writes: first, middle, last and only, with and without immediate.
RDMA_WRITE = range(0x06, 0x0C)


class Frame(NamedTuple):
    source: str
    destination: str
    port: int
    dscp: int
    ecn: int
    # of the InfiniBand base transport header, -1 where the frame is not RoCE
    opcode: int
    length: int


def udp_frames(path: Path, offset: int = 0) -> Iterator[Frame]:
    """IPv4 UDP frames of a capture, from a place in the file on (0: from its beginning)."""
    data = path.read_bytes()
    magic, *_rest = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"{path} is no pcap file of this byte order: magic {magic:#x}")
    place = max(offset, HEADER.size)
    while place + RECORD.size <= len(data):
        _seconds, _fraction, captured, length = RECORD.unpack_from(data, place)
        place += RECORD.size
        frame = data[place : place + captured]
        if len(frame) < captured:
            return
        place += captured
        if len(frame) < 42 or struct.unpack_from(">H", frame, 12)[0] != IPV4 or frame[23] != UDP:
            continue
        begin = 14 + (frame[14] & 0x0F) * 4
        port = struct.unpack_from(">H", frame, begin + 2)[0]
        yield Frame(
            source=".".join(map(str, frame[26:30])),
            destination=".".join(map(str, frame[30:34])),
            port=port,
            dscp=frame[15] >> 2,
            ecn=frame[15] & 3,
            opcode=frame[begin + 8] if port == ROCE_V2 and len(frame) > begin + 8 else -1,
            length=length,
        )
