# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Trust, DSCP map and priority flow control of a port, through ``mlnx_qos`` or through iproute2's ``dcb``.

``mlnx_qos`` comes with OFED; ``dcb`` needs nothing but a driver that speaks DCB netlink. Both talk to the same
firmware, so a port set by one reads the same through the other.
"""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import Knob, Port
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import dcb, mlnx_qos

PRIORITIES = range(8)


class Backend:
    """Reads the quality of service of one port at once and writes one part of it."""

    name = ""

    def __init__(self, port: Port, cli: Cli) -> None:
        self.netdev = port.netdev
        self.cli = cli
        self._state: dict[str, t.Any] | None = None

    def state(self) -> dict[str, t.Any]:
        """Return what the port has; asked once until something is written."""
        if self._state is None:
            self._state = self.query()
        return self._state

    def query(self) -> dict[str, t.Any]:
        raise NotImplementedError

    def command(self, part: str, value: t.Any) -> list[list[str]]:
        raise NotImplementedError

    def set(self, part: str, value: t.Any) -> None:
        for argv in self.command(part, value):
            self.checked(self.cli.run(argv, check=False))
        self._state = None

    def checked(self, result: Result) -> Result:
        """Fail on a status, and on what the tools print while they exit with 0."""
        said = result.stderr.strip() or result.stdout.strip()
        if result.rc != 0 or "not supported" in said.lower():
            raise Failure(f"{self.netdev}: {result.command} exited with {result.rc}: {said or 'no message'}")
        return result


class MlnxQos(Backend):
    """The tool of OFED. It exits with 0 on partial failures, so only what is read back counts."""

    name = "mlnx_qos"

    def query(self) -> dict[str, t.Any]:
        result = self.checked(self.cli.run(["mlnx_qos", "-i", self.netdev], check=False))
        return dict(mlnx_qos.parse(result.stdout).value)

    def command(self, part: str, value: t.Any) -> list[list[str]]:
        base = ["mlnx_qos", "-i", self.netdev]
        if part == "dcbx":
            return [[*base, "-d", value]]
        if part == "trust":
            return [[*base, "--trust", value]]
        if part == "dscp_to_priority":
            # One code point per call: the tool cannot combine this with anything.
            return [
                [*base, "--dscp2prio", f"set,{dscp},{priority}"]
                for dscp, priority in sorted(value.items(), key=by_number)
            ]
        if part == "cable_length_m":
            return [[*base, "--cable_len", str(value)]]
        return [[*base, "--pfc", ",".join(str(int(flag)) for flag in value)]]


class Dcb(Backend):
    """The tool of iproute2. The first DSCP entry of a port makes it trust DSCP; mlx5 has no other switch."""

    name = "dcb"

    def query(self) -> dict[str, t.Any]:
        state: dict[str, t.Any] = {}
        for part in ("app", "pfc", "dcbx"):
            result = self.cli.run(["dcb", "-N", "-j", part, "show", "dev", self.netdev], check=False)
            if result.rc == 0:
                state.update(dcb.parse(result.stdout).value)
            elif part == "pfc":
                self.checked(result)
        entries = state.get("dscp_to_priority") or {}
        state["trust"] = "dscp" if entries else "pcp"
        return state

    def command(self, part: str, value: t.Any) -> list[list[str]]:
        device = ["dev", self.netdev]
        if part == "dcbx":
            return [["dcb", "dcbx", "set", *device, "host", "ieee"]]
        if part == "trust":
            # It follows from the table: nothing to say here.
            return [] if value == "dscp" else [["dcb", "app", "flush", *device, "dscp-prio"]]
        if part == "dscp_to_priority":
            pairs = [f"{dscp}:{priority}" for dscp, priority in sorted(value.items(), key=by_number)]
            return [["dcb", "app", "replace", *device, "dscp-prio", *pairs]]
        if part == "cable_length_m":
            # mlx5 takes a delay below its own bound for the length of the cable.
            return [["dcb", "pfc", "set", *device, "delay", str(value)]]
        flags = [f"{priority}:{'on' if value[priority] else 'off'}" for priority in PRIORITIES]
        return [["dcb", "pfc", "set", *device, "prio-pfc", *flags]]


def by_number(item: tuple[str, int]) -> int:
    return int(item[0])


class QosKnob(Knob):
    """One part of a back end's state."""

    def __init__(self, backend: Backend, name: str) -> None:
        self.backend, self.name = backend, name
        # The driver takes the link down and up when the mask changes.
        self.disruption = "linkflap" if name == "pfc" else "none"

    def read(self) -> t.Any:
        return self.backend.state().get(self.name)

    def write(self, value: t.Any) -> None:
        self.backend.set(self.name, value)


class DscpKnob(QosKnob):
    """The DSCP map: only the wanted code points count, the others keep what they have."""

    def read(self) -> dict[str, int] | None:
        return self.backend.state().get("dscp_to_priority") or {}

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        return all((present or {}).get(dscp) == priority for dscp, priority in wanted.items())


def choose(port: Port, cli: Cli) -> Backend:
    """Return the back end that this host has."""
    for backend in (MlnxQos, Dcb):
        if cli.which(backend.name):
            return backend(port, cli)
    raise Failure(
        f"{port.netdev}: neither mlnx_qos (OFED) nor dcb (package iproute2) is on this host; install one of them"
    )


def qos_knobs(port: Port, cli: Cli) -> list[Knob]:
    """The parts in the order in which they must be set: who classifies, how, how much room, and PFC last."""
    backend = choose(port, cli)
    return [
        QosKnob(backend, "trust"),
        DscpKnob(backend, "dscp_to_priority"),
        QosKnob(backend, "cable_length_m"),
        QosKnob(backend, "pfc"),
    ]


__all__ = ("Backend", "Dcb", "DscpKnob", "MlnxQos", "QosKnob", "choose", "qos_knobs")
