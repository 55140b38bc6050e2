# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Bring the run-time settings of NIC ports and of their host to what ``/etc/gpu_fabric/nics.json`` says.

The same code runs in the module ``nic_settings`` and, installed on the host, at every boot and for every port that
(re)appears, so that boot and Ansible cannot disagree. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import bounces, pcie
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.accelerations import Accelerations
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.ethernet import ethernet_knobs
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.host import IrqAffinity, host_knobs
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import (
    INFINIBAND,
    NET,
    KeyedKnob,
    Knob,
    Pause,
    Port,
    file_knobs,
    shown,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.qos import BUFFERS, PARTS, qos_knobs

CONFIG = "/etc/gpu_fabric/nics.json"
QOS = frozenset(PARTS)
#: How long a link may take to come back after it was taken down; 400 Gb/s optics train for the better part of it.
CARRIER_S = 60
#: How long after its interface an adapter may appear.
ADAPTER_S = 10
#: How long a setting may take to show after it was written.
SETTLE_S = 5
KNOWN = QOS | {
    "pause", "cnp_dscp", "cnp_priority", "ecn", "traffic_class", "rdma_cm_mode", "rdma_cm_tos", "accelerations",
    "max_read_request_bytes", "irq_affinity", "link", "fec", "channels", "rings",
}  # fmt: skip
#: Settings whose first values are maps, each key of which has one of its own; of these, those written in one.
KEYED, JOINT = frozenset(KeyedKnob.names), frozenset(KeyedKnob.joint_names)
CLASSES = {"net": NET, "infiniband": INFINIBAND}
#: Settings of the host as a whole; its place among ports, which have interfaces' names.
HOST = "@host"
HOST_KNOWN = frozenset({"cpu_governor", "transparent_hugepages", "acs_control"})


class Step(t.NamedTuple):
    """One setting that differs, and what to remember of it before it changes."""

    knob: Knob
    before: t.Any
    after: t.Any
    first: t.Any = None


class LinkLost(Failure):
    """A port lost its link over a setting, which was taken back; ``details`` name both."""


class Todo(t.NamedTuple):
    """What is to be done to one port, and what this system has no setting for."""

    port: Port
    steps: list[Step]
    unsupported: list[str]

    @property
    def flaps(self) -> bool:
        return any(step.knob.disruption == "linkflap" for step in self.steps)

    def backwards(self) -> list[Todo]:
        """What is given back goes in the opposite order: a priority is lossless no more before its buffer shrinks.

        Data centre bridging goes last and by itself, for its owner may change all the rest at once.
        """
        owner = [step for step in self.steps if step.knob.name == "dcbx"]
        rest = [step for step in reversed(self.steps) if step not in owner]
        return [self._replace(steps=steps) for steps in (rest, owner) if steps]


def port_of(entry: t.Mapping[str, t.Any]) -> Port:
    """The port by the names that it has now; they may have changed since the entry was written."""
    pci = entry.get("pci")
    hca = entry.get("hca")
    number = int(entry.get("port") or 1)
    adapter = name_now("infiniband", hca, pci) if hca else None
    name = adapter if entry["netdev"] == hca else name_now("net", entry["netdev"], pci)
    return Port(name or entry["netdev"], adapter, number, pci)


def name_now(kind: str, name: str, pci: str | None) -> str | None:
    """The name of a device of a PCI function: the given one, or the only one that the function has now.

    None where it has none, for the given name may be another card's by now.
    """
    if not pci:
        return name
    folder = os.path.join(pcie.DEVICES, pci, kind)
    own = os.listdir(folder) if os.path.isdir(folder) else []
    if name in own or len(own) == 1:
        return name if name in own else own[0]
    path = os.path.join(CLASSES[kind], name)
    function = os.path.basename(os.path.realpath(os.path.join(path, "device")))
    foreign = os.path.exists(os.path.join(pcie.DEVICES, function)) and not alike(kind, function, pci)
    return None if own or foreign or not os.path.exists(path) else name


def alike(kind: str, one: str, other: str) -> bool:
    """Whether two functions may share a device: the adapter of a bond is that of the card's first port."""
    return one == other or (kind == "infiniband" and one.rpartition(".")[0] == other.rpartition(".")[0])


def is_there(entry: t.Mapping[str, t.Any]) -> bool:
    """Whether the port has its interface; a port of InfiniBand goes by its adapter, as ib_ipoib may be missing."""
    kind = "infiniband" if entry["netdev"] == entry.get("hca") else "net"
    return exists(kind, entry["netdev"], entry.get("pci"))


def has_adapter(entry: t.Mapping[str, t.Any]) -> bool:
    return not entry.get("hca") or exists("infiniband", entry["hca"], entry.get("pci"))


def exists(kind: str, name: str, pci: str | None) -> bool:
    found = name_now(kind, name, pci)
    return found is not None and os.path.exists(os.path.join(CLASSES[kind], found))


def knobs_of(port: Port, wanted: t.Mapping[str, t.Any], cli: Cli) -> list[tuple[Knob, t.Any]]:
    """Pair every setting that is asked for with its knob, in the order in which they must be written."""
    known = HOST_KNOWN if port.netdev == HOST else KNOWN
    unknown = sorted(set(wanted) - known)
    if unknown:
        where = "host" if port.netdev == HOST else port.netdev
        raise Failure(f"{where}: unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    values = {name: value for name, value in wanted.items() if value is not None}
    knobs = host_knobs(wanted) if port.netdev == HOST else port_knobs(port, wanted, cli)
    return [(knob, values[knob.name]) for knob in knobs if knob.name in values]


def port_knobs(port: Port, wanted: t.Mapping[str, t.Any], cli: Cli) -> list[Knob]:
    parts = {name: value for name, value in wanted.items() if name in QOS}
    knobs = qos_knobs(port, cli, parts) if parts else []
    # 802.3x pause goes off before PFC comes on: a port has one or the other. While it is on, mlx5 takes all buffers for
    # lossless and refuses sizes that are right without it.
    place = next((index for index, knob in enumerate(knobs) if knob.name in (*BUFFERS, "pfc")), len(knobs))
    knobs.insert(place, Pause(port, cli))
    return [
        *ethernet_knobs(port, cli),
        *knobs,
        *file_knobs(port, wanted.get("ecn") or {}),
        Accelerations(port, cli, wanted.get("accelerations") or {}),
        pcie.MaxReadRequest(port),
        IrqAffinity(port),
    ]


def plan(entry: t.Mapping[str, t.Any], cli: Cli) -> Todo:
    """Compare one port with what is wanted of it; nothing is written."""
    port = port_of(entry)
    steps, unsupported = [], []
    for knob, asked in knobs_of(port, entry["settings"], cli):
        wanted, present = knob.meant(asked), knob.read()
        if present is None and knob.optional:
            unsupported.append(knob.name)
        elif present is None:
            raise Failure(
                f"{port.netdev}: {knob.name} cannot be read, wanted {shown(wanted)};"
                " is it a port of a physical function?"
            )
        elif not knob.same(present, wanted) and knob.sealed():
            unsupported.append(knob.name)
        elif not knob.same(present, wanted):
            reason = knob.refusal(wanted)
            if reason:
                raise Failure(f"{port.netdev}: {knob.name} is {shown(present)}, wanted {shown(wanted)}, but {reason}")
            steps.append(Step(knob, present, wanted, knob.first(present, asked)))
    return Todo(port, steps, unsupported)


def apply(todo: Todo) -> None:
    """Write what differs and read it back; a port whose link bounced is waited for.

    A link that stays away because of what was written gets back what it had: the other end does not do the same yet.
    """
    carrier = f"/sys/class/net/{todo.port.netdev}/carrier"
    was_up = read_carrier(carrier)
    downs = bounces.counted(todo.port) if todo.flaps else None
    try:
        for step in todo.steps:
            write(todo.port, step)
        if todo.flaps and was_up and not wait_for(lambda: read_carrier(carrier), CARRIER_S):
            take_back(todo)
    finally:
        bounces.note(todo.port, downs, bounced=was_up)
    for step in todo.steps:
        confirm(todo.port, step)


def bring_about(entry: t.Mapping[str, t.Any], todo: Todo, cli: Cli) -> None:
    apply(todo)
    if todo.flaps:
        # Queues that were made anew have interrupts of their own, which nobody has pinned yet.
        apply(plan(entry, cli))


def write(port: Port, step: Step) -> None:
    try:
        step.knob.write(step.after)
    except Failure as exc:
        raise Failure(
            f"{port.netdev}: {step.knob.name} is {shown(step.before)}, wanted {shown(step.after)}: {exc}", **exc.details
        ) from exc


def confirm(port: Port, step: Step) -> None:
    """Read a setting back; some show a moment after the driver has taken them."""
    knob, after = step.knob, step.after
    if not wait_for(lambda: knob.confirmed(knob.read(), after), SETTLE_S):
        rivals = f"; {knob.rivals} may set it, too" if knob.rivals else ""
        raise Failure(f"{port.netdev}: {knob.name} is {shown(knob.read())} after it was set to {shown(after)}{rivals}")


def take_back(todo: Todo) -> t.NoReturn:
    """Undo what may keep the link away, and say so; no other port follows one that lost its link."""
    risky = [step for step in todo.steps if step.knob.may_cut]
    for step in risky:
        step.knob.write(step.before)
    if risky:
        raise LinkLost(
            f"{todo.port.netdev}: the link did not come back within {CARRIER_S} s after "
            + " and ".join(f"{step.knob.name} was set to {shown(step.after)}" for step in risky)
            + "; it was set back. Set the switch port likewise first",
            netdev=todo.port.netdev,
            settings=[step.knob.name for step in risky],
        )
    flapping = [step.knob.name for step in todo.steps if step.knob.disruption == "linkflap"]
    raise Failure(
        f"{todo.port.netdev}: the link was up and did not come back within {CARRIER_S} s after {', '.join(flapping)}"
        " changed, which stay as they were asked for. See to the cable and the switch port, then run again"
    )


def read_carrier(path: str) -> bool:
    try:
        return (read_text(path) or "").strip() == "1"
    except Failure:
        # The kernel refuses to read the carrier of an interface that is down.
        return False


def wait_for(condition: t.Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def await_port(entry: t.Mapping[str, t.Any], limit_s: float) -> None:
    if not wait_for(lambda: is_there(entry), limit_s):
        raise Failure(f"{entry['netdev']}: no such interface after {limit_s:g} s")
    # The driver of the adapter comes after that of the interface; there may be none at all.
    wait_for(lambda: has_adapter(entry), min(limit_s, ADAPTER_S))


def entries_of(config: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The ports, and the host as one more entry where something is wanted of it."""
    host = config.get("host")
    return [*config["ports"], *([{"netdev": HOST, "settings": host}] if host else [])]


def load(path: str) -> list[dict[str, t.Any]]:
    """Return what the configuration wants: ports, and the host."""
    text = read_text(path)
    if text is None:
        raise Failure(f"There is no {path}")
    try:
        entries = entries_of(json.loads(text))
        return [{**entry, "netdev": str(entry["netdev"]), "settings": dict(entry["settings"])} for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Failure(f"Cannot read {path}: {exc!r}. The next run of the rdma role writes it anew") from exc


def chosen(entries: list[dict[str, t.Any]], names: t.Collection[str]) -> t.Iterator[dict[str, t.Any]]:
    """The entries that are meant. A port brings the bridges above it along.

    Its unit runs when it appears again, perhaps after a reset of its whole branch, and a bridge that was reset has its
    access control again from the kernel.
    """
    control = next((entry["settings"].get("acs_control") for entry in entries if entry["netdev"] == HOST), None) or {}
    for entry in entries:
        if names and entry["netdev"] not in names:
            continue
        yield entry
        above = os.path.realpath(os.path.join(pcie.DEVICES, entry.get("pci") or "")).split("/")
        mine = {bridge: word for bridge, word in control.items() if bridge in above}
        if mine and HOST not in (names or [HOST]):
            yield {"netdev": HOST, "settings": {"acs_control": mine}}


def main(argv: list[str] | None = None) -> int:
    """The program: 0 when all is as wanted, 1 when something could not be made so, 3 when ``check`` finds drift."""
    parser = argparse.ArgumentParser(prog="gpu-fabric-nic", description="Run-time settings of the fabric's NIC ports")
    parser.add_argument("action", choices=["apply", "check"], help="make the ports as configured, or only compare")
    parser.add_argument("netdev", nargs="*", help=f"only these interfaces; {HOST} is the host as a whole")
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--wait", type=float, default=30, metavar="SECONDS", help="for an interface to appear")
    arguments = parser.parse_args(argv)
    cli, drift, failed = Cli(), False, False
    try:
        entries = load(arguments.config)
    except Failure as exc:
        print(exc, file=sys.stderr)
        return 1
    unknown = set(arguments.netdev) - {entry["netdev"] for entry in entries}
    if unknown:
        print(f"{arguments.config} does not configure {', '.join(sorted(unknown))}", file=sys.stderr)
        return 1
    for entry in chosen(entries, arguments.netdev):
        try:
            if entry["netdev"] != HOST:
                await_port(entry, arguments.wait)
            todo = plan(entry, cli)
            for step in todo.steps:
                print(f"{todo.port.netdev}: {step.knob.name} {shown(step.before)} -> {shown(step.after)}")
            drift = drift or bool(todo.steps)
            if arguments.action == "apply":
                bring_about(entry, todo, cli)
        except Failure as exc:
            failed = True
            print(exc, file=sys.stderr)
    return 1 if failed else 3 if drift and arguments.action == "check" else 0


__all__ = (
    "CONFIG", "HOST", "HOST_KNOWN", "JOINT", "KEYED", "KNOWN", "LinkLost", "Step", "Todo", "apply", "bring_about",
    "entries_of", "load", "main", "plan",
)  # fmt: skip
