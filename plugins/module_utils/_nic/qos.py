# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Quality of service of a port, through ``mlnx_qos`` or through iproute2's ``dcb``.

``mlnx_qos`` comes with OFED; ``dcb`` needs nothing but a driver that speaks DCB netlink. Both talk to the same
firmware, so a port set by one reads the same through the other.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import KeyedKnob, Knob, Port, driver
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import dcb, mlnx_qos

PRIORITIES = range(8)


#: The parts of a port's quality of service, in the order in which they must be set: who decides, how packets are told
#: apart, how much room and bandwidth they get, and PFC last.
PARTS = (
    "dcbx", "trust", "dscp_to_priority", "priority_to_tc", "ets", "buffer_size", "prio_buffer", "cable_length_m", "pfc",
)  # fmt: skip
#: Room and who gets it: drivers check one against the other, so that half of a change may not be valid.
BUFFERS = ("buffer_size", "prio_buffer")
DSCPS = 64
Parts = t.Mapping[str, t.Any]


class Backend:
    """Reads the quality of service of one port at once and writes one part of it. *parts*: what is wanted of each."""

    name = ""

    def __init__(self, port: Port, cli: Cli, parts: Parts) -> None:
        self.netdev = port.netdev
        self.cli = cli
        self.parts = parts
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

    def serves(self) -> bool:
        """Whether the tool knows this port's driver."""
        return True

    def buffers(self, part: str, value: t.Any) -> dict[str, t.Any]:
        """A part of the buffers with the other one, where that is wanted, too."""
        wanted = {**{name: self.parts.get(name) for name in BUFFERS}, part: value}
        return {name: numbers for name, numbers in wanted.items() if numbers is not None}

    def set(self, part: str, value: t.Any) -> list[str]:
        """Write one part; what was said of commands that failed. Only what is read back counts.

        mlnx_qos exits with 0 on partial failures and, on success, tells of all that the port lacks. dcb wants to take
        out a DSCP entry that the driver has replaced already, and fails.
        """
        results = [self.cli.run(argv, check=False) for argv in self.command(part, value)]
        self._state = None
        return [failure(result) for result in results if result.rc != 0]

    def answer(self, argv: list[str]) -> Result:
        result = self.cli.run(argv, check=False)
        if result.rc != 0:
            raise Failure(failure(result))
        return result


def failure(result: Result) -> str:
    """How a command ended; of a Python traceback only what was raised."""
    lines = [line.strip() for line in f"{result.stderr}\n{result.stdout}".splitlines() if line.strip()]
    if any(line.startswith("Traceback") for line in lines):
        lines = [line for line in lines if _RAISED.match(line)]
    return f"{result.command} exited with {result.rc}: {'; '.join(lines) or 'no message'}"


_RAISED = re.compile(r"[\w.]*(Error|Exception)\b")


class MlnxQos(Backend):
    """The tool of OFED."""

    name = "mlnx_qos"

    def serves(self) -> bool:
        # It relies on what mlx drivers do by themselves, as to replace a DSCP entry.
        return driver(self.netdev) in (None, "mlx5_core", "mlx4_core")

    def query(self) -> dict[str, t.Any]:
        # Without -a, classes that no priority uses are not shown.
        words = ["-a"] if "ets" in self.parts else []
        result = self.answer(["mlnx_qos", "-i", self.netdev, *words])
        state = dict(mlnx_qos.parse(result.stdout).value)
        if not state.get("cable_length_m"):  # 0: the driver has no receive buffers, or takes no length
            state.pop("cable_length_m", None)
        classes = {entry["tc"]: entry for entry in state.get("tcs", [])}
        if sorted(classes) == list(PRIORITIES):
            state["ets"] = {
                "tsa": [classes[tc]["tsa"] for tc in PRIORITIES],
                "tc_bandwidth": [classes[tc].get("bandwidth_percent", 0) for tc in PRIORITIES],
            }
        return state

    def command(self, part: str, value: t.Any) -> list[list[str]]:
        base = ["mlnx_qos", "-i", self.netdev]
        if part == "dcbx":
            return [[*base, "-d", "os" if value == "os" else "fw"]]
        if part == "trust":
            return [[*base, "--trust", value]]
        if part == "dscp_to_priority":
            # One code point per call: the tool cannot combine this with anything.
            present = self.state().get("dscp_to_priority") or {}
            words = [
                f"del,{dscp},{present[dscp]}" if priority is None else f"set,{dscp},{priority}"
                for dscp, priority in sorted(value.items(), key=by_number)
                if priority is not None or dscp in present
            ]
            return [[*base, "--dscp2prio", word] for word in words]
        if part == "priority_to_tc":
            return [[*base, "--prio_tc", joined(value)]]
        if part == "ets":
            return [[*base, "--tsa", ",".join(value["tsa"]), "--tcbw", joined(value["tc_bandwidth"])]]
        if part in BUFFERS:
            options = {"buffer_size": "--buffer_size", "prio_buffer": "--prio2buffer"}
            wanted = self.buffers(part, value)
            return [[*base, *(word for name in wanted for word in (options[name], joined(wanted[name])))]]
        if part == "cable_length_m":
            # The tool sends length and mask together: alone, this would turn PFC off.
            return [[*base, "--pfc", joined(self.state()["pfc"]), "--cable_len", f"{value:g}"]]
        return [[*base, "--pfc", joined(value)]]


class Dcb(Backend):
    """The tool of iproute2. The first DSCP entry of a port makes it trust DSCP; mlx5 has no other switch."""

    name = "dcb"
    #: What is asked for only where a part of it is wanted.
    objects: t.Mapping[str, t.Sequence[str]] = {
        "dcbx": ("dcbx",),
        "ets": ("ets", "priority_to_tc"),
        "buffer": ("buffer_size", "prio_buffer"),
    }

    def query(self) -> dict[str, t.Any]:
        state: dict[str, t.Any] = {}
        for thing in ("app", "pfc", *(name for name, parts in self.objects.items() if set(parts) & set(self.parts))):
            result = self.cli.run(["dcb", "-N", "-j", thing, "show", "dev", self.netdev], check=False)
            if result.rc == 0:
                state.update({key: item for key, item in dcb.parse(result.stdout).value.items() if key != "extra"})
                if thing == "dcbx":
                    state["dcbx"] = dcbx_owner(dcb.parse(result.stdout).value)
            elif thing == "pfc":
                raise Failure(failure(result))
        entries = state.get("dscp_to_priority") or {}
        state["trust"] = "dscp" if entries else "pcp"
        if state.get("delay"):  # 0: the driver has no receive buffers, or takes no length
            state["cable_length_m"] = state["delay"]
        if "tsa" in state and "tc_bandwidth" in state:
            # A class that is not ETS has no share; mlx5 shows 100 for it, which the tool itself refuses to set.
            shares = [share if kind == "ets" else 0 for share, kind in zip(state["tc_bandwidth"], state["tsa"])]
            state["ets"] = {"tsa": state["tsa"], "tc_bandwidth": shares}
        return state

    def command(self, part: str, value: t.Any) -> list[list[str]]:
        device = ["dev", self.netdev]
        if part == "dcbx":
            return [["dcb", "dcbx", "set", *device, "host", "ieee"]] if value == "os" else []
        if part == "trust":
            # It follows from the table: nothing to say here.
            return [] if value == "dscp" else [["dcb", "app", "flush", *device, "dscp-prio"]]
        if part == "dscp_to_priority":
            present = self.state().get("dscp_to_priority") or {}
            gone = {dscp: present[dscp] for dscp, priority in value.items() if priority is None and dscp in present}
            pairs = {dscp: priority for dscp, priority in value.items() if priority is not None}
            verbs = (("replace", pairs), ("del", gone))
            return [["dcb", "app", verb, *device, "dscp-prio", *coded(entries)] for verb, entries in verbs if entries]
        if part == "priority_to_tc":
            # With the shares, or the tool sends and refuses those that the driver shows.
            shares = self.state().get("ets", {}).get("tc_bandwidth", [])
            words = ["tc-bw", *numbered(shares)] if shares else []
            return [["dcb", "ets", "set", *device, "prio-tc", *numbered(value), *words]]
        if part == "ets":
            shares = ["tc-tsa", *numbered(value["tsa"]), "tc-bw", *numbered(value["tc_bandwidth"])]
            return [["dcb", "ets", "set", *device, *shares]]
        if part in BUFFERS:
            wanted = self.buffers(part, value)
            words = [word for name in wanted for word in (name.replace("_", "-"), *numbered(wanted[name]))]
            return [["dcb", "buffer", "set", *device, *words]]
        if part == "cable_length_m":
            # mlx5 takes a delay below its own bound for the length of the cable.
            return [["dcb", "pfc", "set", *device, "delay", f"{value:g}"]]
        flags = [f"{priority}:{'on' if value[priority] else 'off'}" for priority in PRIORITIES]
        return [["dcb", "pfc", "set", *device, "prio-pfc", *flags]]


def joined(values: t.Sequence[t.Any]) -> str:
    return ",".join(str(int(value)) for value in values)


def numbered(values: t.Sequence[t.Any]) -> list[str]:
    return [f"{index}:{value}" for index, value in enumerate(values)]


def coded(entries: t.Mapping[str, int]) -> list[str]:
    return [f"{dscp}:{priority}" for dscp, priority in sorted(entries.items(), key=by_number)]


def dcbx_owner(value: t.Mapping[str, t.Any]) -> str | None:
    """Who owns data centre bridging, from a list of flags (iproute2) or from one member for each (its later JSON)."""
    flags = value.get("dcbx")
    if flags is None:
        extra = value.get("extra") or {}
        flags = [name for name, member in extra.items() if member is True]
    return "os" if "host" in flags else "firmware"


def by_number(item: tuple[str, int]) -> int:
    return int(item[0])


class QosKnob(Knob):
    """One part of a back end's state."""

    rivals = "the firmware's own DCBX exchange, lldpad or another tool"

    def __init__(self, backend: Backend, name: str) -> None:
        self.backend, self.name = backend, name
        # The driver takes the link down and up when the mask changes.
        self.disruption = "linkflap" if name == "pfc" else "none"
        # Some drivers have no receive buffers or no exchange to own; what they lack is told, not refused.
        self.optional = name in ("dcbx", "buffer_size", "prio_buffer", "cable_length_m")

    def read(self) -> t.Any:
        return self.backend.state().get(self.name)

    def write(self, value: t.Any) -> None:
        said = self.backend.set(self.name, value)
        if said and not self.confirmed(self.read(), value):
            raise Failure("; ".join(said) + (f". {NOT_OWNED}" if any("not supported" in line for line in said) else ""))


class DscpKnob(QosKnob, KeyedKnob):
    """The DSCP map: only the wanted code points count, the others keep what they have. None: no entry."""

    name = "dscp_to_priority"

    def read(self) -> dict[str, int] | None:
        return self.backend.state().get("dscp_to_priority") or {}

    def first(self, present: t.Any, wanted: t.Any) -> t.Any:
        # mlnx_qos shows no table while the port trusts PCP: what was there comes back with trust as a whole.
        known = wanted if present or self.backend.name == Dcb.name else {}
        return {dscp: present.get(dscp) for dscp in known}

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        # A driver that is loaded while the port trusts DSCP fills the whole table, of which nothing is ours.
        full = len(present or {}) == DSCPS
        return all(
            (present or {}).get(dscp) == priority or (priority is None and full) for dscp, priority in wanted.items()
        )


class OwnerKnob(QosKnob):
    """Who owns data centre bridging."""

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        # dcb has no word that hands it back to the firmware; the driver does it when it is loaded again.
        return bool(present == wanted) or (wanted == "firmware" and self.backend.name == Dcb.name)

    def write(self, value: t.Any) -> None:
        try:
            super().write(value)
        except Failure as exc:
            raise Failure(
                f"{exc}. The card's own agent keeps it; switch that off first (Intel: ethtool --set-priv-flags "
                f"{self.backend.netdev} fw-lldp-agent off; others: LLDP and DCBX in the card's firmware settings)"
            ) from exc


class BufferKnob(QosKnob):
    """Sizes of receive buffers; the firmware keeps them in cells and may take a little less or more than was asked."""

    cell_bytes = 4096

    def same(self, present: t.Any, wanted: t.Any) -> bool:
        pairs = list(zip(present or [], wanted))
        return len(pairs) == len(wanted) and all(
            bool(one) == bool(other) and abs(one - other) < self.cell_bytes for one, other in pairs
        )


#: What a port is that shows its quality of service and lets nobody set it.
NOT_OWNED = (
    "A virtual function, a card that keeps its ports for itself (DPU mode) and a driver without DCB let no host set "
    "it: leave the card out with gpu_fabric_exclude_devices, or set gpu_fabric_roce_profile: none"
)

NO_INTERFACE = "There is no interface of that name on this host: correct netdev"


def choose(port: Port, cli: Cli, parts: Parts) -> Backend:
    """Return the back end that answers for this port: mlnx_qos may be left from another Python, or know less."""
    refusals = []
    for kind in (MlnxQos, Dcb):
        backend = kind(port, cli, parts)
        if backend.serves() and cli.which(kind.name):
            try:
                backend.state()
            except Failure as exc:
                refusals.append(str(exc))
            else:
                return backend
    if refusals:
        remedy = NO_INTERFACE if any("No such device" in said for said in refusals) else NOT_OWNED
        raise Failure(f"{port.netdev}: its quality of service cannot be read: {'; '.join(refusals)}. {remedy}")
    raise Failure(
        f"{port.netdev}: neither mlnx_qos (OFED; of NVIDIA's ports only) nor dcb (package iproute2) is on this host; "
        "install one of them"
    )


def qos_knobs(port: Port, cli: Cli, parts: Parts) -> list[Knob]:
    """The wanted parts in their order."""
    backend = choose(port, cli, parts)
    kinds: dict[str, type[QosKnob]] = {
        "dcbx": OwnerKnob,
        "dscp_to_priority": DscpKnob,
        "buffer_size": BufferKnob,
    }
    return [kinds.get(part, QosKnob)(backend, part) for part in PARTS]


__all__ = ("PARTS", "Backend", "BufferKnob", "Dcb", "DscpKnob", "MlnxQos", "QosKnob", "choose", "qos_knobs")
