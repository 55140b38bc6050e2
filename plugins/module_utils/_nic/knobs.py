# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""One run-time setting of a NIC port: read, compare, write. Everything here is lost at reset and set again at boot."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_text

NET = "/sys/class/net"
INFINIBAND = "/sys/class/infiniband"
DEBUG = "/sys/kernel/debug"


class Port(t.NamedTuple):
    """The port that is set: its interface, its RDMA device and its PCI function."""

    netdev: str
    hca: str | None = None
    port: int = 1
    pci: str | None = None


class Knob:
    """One setting of one port.

    ``read`` returns the value in force, in the shape in which it is wanted, or ``None`` where this system has no
    such setting. ``write`` brings about a value. ``optional`` ones may be missing; the others must not.
    """

    name: str = ""
    optional: bool = False
    #: What writing does to traffic on the port: "none" or "linkflap".
    disruption: str = "none"
    #: Whether the link may stay away afterwards, because the other end does not do the same.
    may_cut: bool = False
    #: Who else may set it, for the message where it is not what was written.
    rivals: str = ""

    def read(self) -> t.Any:
        raise NotImplementedError

    def write(self, value: t.Any) -> None:
        raise NotImplementedError

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        return bool(present == wanted)

    def confirmed(self, present: t.Any, wanted: t.Any) -> bool:
        """Whether what is read back is what was written; some of it cannot be seen at once."""
        return self.same(present, wanted)

    def refusal(self, wanted: t.Any) -> str:
        """Why this device cannot have a value, and what it can have; "" where nothing speaks against it."""
        return ""

    def sealed(self) -> bool:
        """Whether this kernel lets nobody write it; then it is told as missing, like a setting that is not there."""
        return False

    def first(self, present: t.Any, wanted: t.Any) -> t.Any:
        """What must be known to give back what was there before the first change."""
        return present

    def meant(self, wanted: t.Any) -> t.Any:
        """A value that is asked for, first values among its keys, in the shape in which it is read."""
        return wanted


class KeyedKnob(Knob):
    """A map whose keys are settings of their own: each has a first value, and goes back when it is not wanted."""

    #: The names of all such settings, for records of first values, which know settings by name only.
    names: t.ClassVar[set[str]] = set()
    #: Likewise those whose keys cannot be written one without the others.
    joint_names: t.ClassVar[set[str]] = set()
    joint: t.ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: t.Any) -> None:
        super().__init_subclass__(**kwargs)
        KeyedKnob.names.add(cls.name)
        if cls.joint:
            KeyedKnob.joint_names.add(cls.name)

    def first(self, present: t.Any, wanted: t.Any) -> t.Any:
        return {key: present[key] for key in wanted if key in present}


def shown(value: t.Any) -> str:
    """A value as a person reads it, in one line."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(map(shown, value))
    if isinstance(value, dict) and not value:
        return "nothing"
    if isinstance(value, dict):
        return " ".join(f"{key}:{shown(item)}" for key, item in value.items())
    return str(value)


def write_file(path: str, text: str) -> None:
    """Write a sysfs, configfs or debugfs attribute; the kernel's refusal is quoted."""
    try:
        with open(path, "w", encoding="ascii") as stream:
            stream.write(text)
    except OSError as exc:
        raise Failure(f"Cannot write {text!r} to {path}: {exc.strerror}") from exc


def attribute(path: str) -> str | None:
    """The text of an attribute; None also where the kernel does not hand it out, as debugfs in lockdown."""
    try:
        return read_text(path)
    except Failure:
        return None


def driver(netdev: str) -> str | None:
    """The driver of an interface's device; None where the interface has no device or is not there."""
    path = os.path.join(NET, netdev, "device/driver")
    return os.path.basename(os.path.realpath(path)) if os.path.exists(path) else None


def number(path: str) -> int | None:
    text = attribute(path)
    try:
        return None if text is None else int(text.split()[0], 0)
    except (ValueError, IndexError):
        raise Failure(f"{path} holds {text!r}, not a number") from None


class FileKnob(Knob):
    """A number in one of several attribute files; the first that exists counts."""

    optional = True

    def __init__(self, name: str, *paths: str) -> None:
        self.name = name
        self.path = next((path for path in paths if os.path.exists(path)), None)

    def read(self) -> int | None:
        return number(self.path) if self.path else None

    def write(self, value: int) -> None:
        assert self.path is not None
        write_file(self.path, str(value))


class CongestionControl(KeyedKnob):
    """DCQCN by priority: whether the reaction point (``rp``) slows down, and the notification point (``np``) says so.

    Only OFED has it at run time; elsewhere the card's firmware settings decide.
    """

    name = "ecn"
    optional = True

    def __init__(self, port: Port, priorities: t.Collection[str]) -> None:
        self.folder = os.path.join(NET, port.netdev, "ecn")
        self.priorities = priorities

    def _file(self, priority: str, point: str) -> str:
        return os.path.join(self.folder, f"roce_{point}/enable", priority)

    def read(self) -> dict[str, dict[str, bool]] | None:
        found = {
            priority: {point: number(self._file(priority, point)) for point in ("rp", "np")}
            for priority in self.priorities
        }
        if any(flag is None for points in found.values() for flag in points.values()):
            return None
        return {priority: {point: bool(flag) for point, flag in points.items()} for priority, points in found.items()}

    def write(self, value: dict[str, dict[str, bool]]) -> None:
        for priority, points in value.items():
            for point, flag in points.items():
                write_file(self._file(priority, point), str(int(flag)))


class TrafficClass(FileKnob):
    """OFED's override of the traffic class of every queue pair of a device; the inbox driver has none.

    The file reads ``Global tclass=106``, or nothing where there is no override.
    """

    def __init__(self, port: Port) -> None:
        super().__init__("traffic_class", f"{INFINIBAND}/{port.hca}/tc/{port.port}/traffic_class")

    def read(self) -> int | None:
        text = attribute(self.path) if self.path else None
        if text is None:
            return None
        found = re.search(r"^Global tclass=(-?\d+)", text, re.MULTILINE)
        return int(found.group(1)) if found else -1


class RdmaCmDefault(Knob):
    """What RDMA-CM gives connections that ask for nothing else (NVMe-oF, NFS, Lustre; not NCCL).

    configfs makes a device's folder when it is made by ``mkdir``; the value outlives its removal.
    """

    optional = True
    root = "/sys/kernel/config/rdma_cm"
    attribute = ""

    def __init__(self, port: Port) -> None:
        self.folder = os.path.join(self.root, port.hca or "")
        self.file = os.path.join(self.folder, "ports", str(port.port), self.attribute)
        # The folder of an adapter that is not there (yet) cannot be made.
        there = port.hca is not None and os.path.exists(os.path.join(INFINIBAND, port.hca))
        self.usable = there and os.path.isdir(self.root)

    def _inside(self, action: t.Callable[[], t.Any]) -> t.Any:
        made = False
        try:
            # The ports of a bond share an adapter, and their units run at once: one would take the other's folder away.
            handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as exc:
            raise Failure(f"Cannot use {self.root}: {exc.strerror}") from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not os.path.isdir(self.folder):
                os.mkdir(self.folder)
                made = True
            return action()
        except OSError as exc:
            raise Failure(f"Cannot use {self.folder}: {exc.strerror}") from exc
        finally:
            if made:
                with contextlib.suppress(OSError):
                    os.rmdir(self.folder)
            os.close(handle)

    def shown_value(self) -> t.Any:
        raise NotImplementedError

    def read(self) -> t.Any:
        return self._inside(self.shown_value) if self.usable else None

    def write(self, value: t.Any) -> None:
        self._inside(lambda: write_file(self.file, str(value)))


class RdmaCmTos(RdmaCmDefault):
    """The type of service of such connections."""

    name = "rdma_cm_tos"
    attribute = "default_roce_tos"

    def shown_value(self) -> int | None:
        return number(self.file)


class RdmaCmMode(RdmaCmDefault):
    """The kind of GID of such connections, in the kernel's words: ``RoCE v2``, which is routed, or ``IB/RoCE v1``."""

    name = "rdma_cm_mode"
    attribute = "default_roce_mode"

    def shown_value(self) -> str | None:
        return (attribute(self.file) or "").strip() or None


class Pause(Knob):
    """802.3x pause stops the whole link and excludes priority flow control."""

    name = "pause"

    def __init__(self, port: Port, cli: Cli) -> None:
        self.netdev, self.cli = port.netdev, cli
        if driver(port.netdev) not in (None, "mlx5_core"):
            # mlx5 writes a register; Intel's and Broadcom's drivers train the link anew.
            self.disruption = "linkflap"

    def read(self) -> dict[str, bool] | None:
        if self.cli.which("ethtool") is None:
            raise Failure(
                f"{self.netdev}: pause cannot be read: ethtool is not on this host; install the package ethtool"
            )
        answer = self.cli.run(["ethtool", "-a", self.netdev], check=False)
        if answer.rc != 0:
            return None
        words = dict(line.split(":", 1) for line in answer.stdout.splitlines() if ":" in line)
        found = {side: words.get(side.upper(), "").strip() for side in ("rx", "tx")}
        return {side: text == "on" for side, text in found.items()} if all(found.values()) else None

    def write(self, value: dict[str, bool]) -> None:
        sides = [word for side in ("rx", "tx") for word in (side, "on" if value[side] else "off")]
        # mlx5 sets what it is told and still says it cannot negotiate, so the status proves nothing.
        self.cli.run(["ethtool", "-A", self.netdev, *sides], check=False)


def file_knobs(port: Port, ecn_priorities: t.Collection[str]) -> list[Knob]:
    """Congestion control and traffic class, wherever this driver keeps them."""
    ofed = f"{NET}/{port.netdev}/ecn"
    inbox = f"{DEBUG}/mlx5/{port.pci}/cc_params"
    return [
        FileKnob("cnp_dscp", f"{ofed}/roce_np/cnp_dscp", f"{inbox}/np_cnp_dscp"),
        FileKnob("cnp_priority", f"{ofed}/roce_np/cnp_802p_prio", f"{inbox}/np_cnp_prio"),
        CongestionControl(port, ecn_priorities),
        TrafficClass(port),
        RdmaCmMode(port),
        RdmaCmTos(port),
    ]


__all__ = (
    "CongestionControl", "FileKnob", "KeyedKnob", "Knob", "Pause", "Port", "RdmaCmDefault", "RdmaCmMode", "RdmaCmTos",
    "TrafficClass", "driver", "file_knobs", "shown", "write_file",
)  # fmt: skip
