#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_settings
short_description: Run-time settings of NIC ports and their host (QoS, PCIe, CPUs), now and at every boot
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Sets what a NIC forgets at reset (trust mode, DSCP map, priority flow control, pause, CNP marking, traffic class,
    PCIe read request size) by reading, comparing and writing only what differs, one port after another.
  - Installs the very same code as C(gpu-fabric-nic) with one systemd unit per port, so that boot and Ansible
    cannot disagree. The unit runs at every boot and, by a rule of udev, whenever the port or its adapter appears again.
  - Uses C(mlnx_qos) where it answers for the port, else iproute2's C(dcb).
  - Changing priority flow control, link mode, FEC, channels or rings takes the link down for a moment. That needs
    O(allow_disruption), and is refused while O(gpu_processes) names any; nothing is changed then.
  - A setting that is no longer asked for gets back the value that it had before this module changed it first. In
    C(dscp_to_priority), C(ecn), C(accelerations), C(rings), C(link) and C(acs_control) each key is a setting of its
    own.
  - What somebody else had under the name of one of its files is kept, and given back when the file goes.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  ports:
    description:
      - The ports, all of them, as C(gpu_fabric_plan.hosts[inventory_hostname].nic_ports) has them.
      - A port that is not listed gets back what it had before this module changed it first. Without any, all do.
    type: list
    elements: dict
    default: []
    suboptions:
      netdev:
        description: Name of the interface; of a port of InfiniBand the name of its RDMA device, as in O(ports[].hca).
        type: str
        required: true
      hca:
        description: Name of the RDMA device.
        type: str
      port:
        description: Number of the port of that device.
        type: int
        default: 1
      pci:
        description: PCI address of the function.
        type: str
      settings:
        description:
          - Any of C(dcbx) (V(os) where the host owns data centre bridging), C(trust) (V(dscp) or V(pcp)),
            C(dscp_to_priority) (dict), C(priority_to_tc) (eight numbers), C(ets) (dict with eight C(tsa) and eight
            C(tc_bandwidth)), C(buffer_size) (eight numbers of bytes), C(prio_buffer) (eight numbers),
            C(cable_length_m), C(pfc) (eight booleans), C(pause) (dict with C(rx) and C(tx)), C(cnp_dscp),
            C(cnp_priority), C(ecn) (dict by priority of C(rp) and C(np), booleans), C(traffic_class) (byte),
            C(rdma_cm_mode) (V(RoCE v2) or V(IB/RoCE v1)), C(rdma_cm_tos) (byte), C(accelerations) (dict of booleans),
            C(max_read_request_bytes), C(irq_affinity) (list of CPUs such as V(0-55)), C(link) (dict with C(speed_gbps)
            and C(autoneg)), C(fec) (V(auto), V(rs), V(baser), V(llrs) or V(off)), C(channels) (number of combined
            ones), C(rings) (V(max), or a dict with C(rx) and C(tx)).
          - A C(link) or C(fec) with which the link does not come back is taken back, and the call fails.
          - Interrupts that are pinned with C(irq_affinity) are kept from irqbalance by a policy of its own.
          - Absent ones keep the device's value.
        type: dict
        required: true
  host:
    description:
      - Settings of the host as a whole, any of C(cpu_governor), C(transparent_hugepages) and C(acs_control) (dict of
        control words by bridge; V(0) lets peers talk below it).
      - Absent ones keep the host's value.
    type: dict
    default: {}
  allow_disruption:
    description: The highest class of disruption that is allowed.
    type: str
    choices: [none, linkflap, reload, fwreset, reboot, powercycle]
    default: none
  gpu_processes:
    description: Processes that use GPUs now, for the refusal and its message.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: RoCE traffic rides in a lossless class of its own
  railyard.gpu_fabric.nic_settings:
    ports:
      - netdev: ens1f0np0
        hca: mlx5_0
        pci: "0000:18:00.0"
        settings:
          trust: dscp
          dscp_to_priority: {"26": 3, "48": 6}
          pfc: [false, false, false, true, false, false, false, false]
          pause: {rx: false, tx: false}
    allow_disruption: linkflap
"""

RETURN = r"""
changed_ports:
  description: Interfaces of which a setting differed.
  returned: success
  type: list
  elements: str
unsupported:
  description: >-
    Settings that this system has no place for, or lets nobody write (PCIe read requests, with a kernel in lockdown), by
    interface.
  returned: success
  type: dict
  sample: {ens1f0np0: [traffic_class, rdma_cm_tos]}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._disruption import CLASSES, covers
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import difference, program
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.installation import Installation
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import shown
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

Record = dict[str, dict[str, t.Any]]


def load(state: StateFile) -> Record:
    """The record of first values, with the names that its ports have now: a renamed port keeps what it had."""
    found = {}
    for saved in state.load().values():
        if not (isinstance(saved, dict) and {"port", "before"} <= set(saved) and all(map(is_map, saved.values()))):
            raise Failure(
                f"Cannot read {state.path}: an entry has other members than port and before ({str(saved)[:80]}). It"
                " holds what this host's ports were set to before the collection changed them; mend it, or remove it to"
                " give that up"
            )
        port = program.port_of(saved["port"])
        hca = port.hca or saved["port"].get("hca")
        # The name of a card that is gone may be another one's.
        name = port.netdev if is_there(saved["port"]) else f"{port.netdev} of {port.pci}"
        before = {key: by_key(first) if key in program.JOINT else first for key, first in saved["before"].items()}
        found[name] = {"port": {**port._asdict(), "hca": hca}, "before": before}
    return found


def by_key(first: dict[str, t.Any]) -> dict[str, t.Any]:
    """First values of a setting that is written in one. An earlier version kept them once, and not for each key."""
    return first if all(map(is_map, first.values())) else {key: first for key in first if key != "modes"}


def is_there(entry: dict[str, t.Any]) -> bool:
    return entry["netdev"] == program.HOST or program.is_there(entry)


def is_map(value: t.Any) -> bool:
    return isinstance(value, dict)


def split(before: dict[str, t.Any], settings: dict[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Of first values those that settings still override, and those that go back; of maps key by key."""
    kept: dict[str, t.Any] = {}
    back: dict[str, t.Any] = {}
    for name, value in before.items():
        wanted = settings.get(name)
        if wanted is None:
            back[name] = value
        elif name in program.KEYED and is_map(wanted):
            for keys, target in ((value.keys() & wanted, kept), (value.keys() - wanted.keys(), back)):
                if keys:
                    target[name] = {key: value[key] for key in sorted(keys)}
        else:
            kept[name] = value
    return kept, back


def wanted_of(entries: list[dict[str, t.Any]], netdev: str) -> dict[str, t.Any]:
    return next((entry["settings"] for entry in entries if entry["netdev"] == netdev), {})


def released(record: Record, entries: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the ports with what must go back to its first value: settings of the record that nobody wants now."""
    return [
        {**saved["port"], "settings": back}
        for netdev, saved in record.items()
        if (back := split(saved["before"], wanted_of(entries, netdev))[1])
    ]


def joined(
    entries: list[dict[str, t.Any]], leaving: list[dict[str, t.Any]]
) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """Return both, where what goes back of a setting that is written in one goes with what is wanted of it."""
    back = {entry["netdev"]: entry["settings"] for entry in leaving}
    asked, moved = [], set()
    for entry in entries:
        settings = dict(entry["settings"])
        for name in program.JOINT & settings.keys() & back.get(entry["netdev"], {}).keys():
            if settings[name] is not None:
                settings[name] = {**back[entry["netdev"]][name], **settings[name]}
                moved.add((entry["netdev"], name))
        asked.append({**entry, "settings": settings})
    rest = []
    for entry in leaving:
        alone = {name: first for name, first in entry["settings"].items() if (entry["netdev"], name) not in moved}
        rest += [{**entry, "settings": alone}] if alone else []
    return asked, rest


def farewell(entry: dict[str, t.Any]) -> str:
    names = ", ".join(entry["settings"])
    return f"{entry['netdev']} is gone, and with it what was set; nothing of it is given back or remembered ({names})"


def first_of(step: program.Step, known: t.Any) -> t.Any:
    """Return the first value of what is about to change; what is known of it is older."""
    if step.knob.name not in program.KEYED:
        return step.first if known is None else known
    known = known or {}
    if step.knob.name in program.JOINT and known:
        # All keys were as they were before the first of them changed.
        own = next(iter(known.values()))
        return {**dict.fromkeys(step.first, own), **known}
    return {**step.first, **known}


def noted(record: Record, entries: list[dict[str, t.Any]], todos: list[program.Todo]) -> Record:
    """Return the record with the first value of everything that is about to change, and all that it had."""
    new = dict(record)
    for entry, todo in zip(entries, todos):
        netdev = entry["netdev"]
        before = dict(record.get(netdev, {}).get("before", {}))
        for step in todo.steps:
            before[step.knob.name] = first_of(step, before.get(step.knob.name))
        if before:
            new[netdev] = {"port": {key: entry[key] for key in ("netdev", "hca", "port", "pci")}, "before": before}
    return new


def settled(record: Record, entries: list[dict[str, t.Any]]) -> Record:
    """Return the record without what was given back."""
    kept = {netdev: split(saved["before"], wanted_of(entries, netdev))[0] for netdev, saved in record.items()}
    return {netdev: {**record[netdev], "before": before} for netdev, before in kept.items() if before}


def without(ports: list[dict[str, t.Any]], netdev: str, names: t.Collection[str]) -> list[dict[str, t.Any]]:
    """Return the ports, one of them without some of its settings."""
    return [
        {**port, "settings": {name: value for name, value in port["settings"].items() if name not in names}}
        if port["netdev"] == netdev
        else port
        for port in ports
    ]


def together(netdevs: list[str]) -> str:
    """Ports that have the same to be told of them."""
    every = list(dict.fromkeys(netdevs))
    return every[0] if len(every) == 1 else f"{len(every)} ports ({', '.join(every)})"


def refuse(todos: list[program.Todo], allowed: str, processes: list[str]) -> None:
    """Stop before anything is written where a link would bounce and may not."""
    alike: dict[str, list[str]] = {}
    for todo in todos:
        flapping = [step for step in todo.steps if step.knob.disruption == "linkflap"]
        told = [f"{step.knob.name} is {shown(step.before)}, wanted {shown(step.after)}" for step in flapping]
        if told:
            alike.setdefault("; ".join(told), []).append(todo.port.netdev)
    if not alike:
        return
    what = "; ".join(f"{together(netdevs)}: {reasons}" for reasons, netdevs in alike.items())
    if not covers(allowed, "linkflap"):
        raise Failure(
            f"No setting of a port was changed: these take the link down for a moment ({what})."
            " Allow it with gpu_fabric_allow_disruption: linkflap"
        )
    if processes:
        raise Failure(
            f"No setting of a port was changed: these take the link down for a moment ({what}), and GPU processes run:"
            f" {', '.join(processes)}. Drain the node first"
        )


def run(module: AnsibleModule) -> dict[str, t.Any]:
    cli = Cli()
    ports: list[dict[str, t.Any]] = module.params["ports"]
    host = {name: value for name, value in module.params["host"].items() if value is not None}
    nowhere = {"hca": None, "port": 1, "pci": None}
    # The host is one more entry beside the ports: read, compared, written and remembered in the same way.
    entries = [*ports, *([{"netdev": program.HOST, **nowhere, "settings": host}] if host else [])]
    state = StateFile("nics.json")
    originals = StateFile("files.json")
    record = load(state)
    asked, leaving = joined(entries, released(record, entries))
    back = [todo for entry in leaving if is_there(entry) for todo in program.plan(entry, cli).backwards()]
    forward = [program.plan(entry, cli) for entry in asked]
    todos = [*back, *forward]
    refuse(todos, module.params["allow_disruption"], module.params["gpu_processes"])

    settings: dict[tuple[str, str], str] = {}
    for todo in todos:
        for step in todo.steps:
            key = todo.port.netdev, step.knob.name
            line = difference.setting(*key, step.before, step.after)
            # of a map, some keys may be set and others given back
            settings[key] = f"{settings[key]}\n{line}" if key in settings else line
    installation = Installation(ports, host, cli, originals)
    files = ChangeSet()
    reinstall = installation.compare(files)

    if (settings or files) and not module.check_mode:
        # The record first: a run that is cut off later still knows what there was.
        record = noted(record, entries, forward)
        state.save(record)
        if reinstall:
            installation.apply()
        try:
            for todo in back:
                program.apply(todo)
            for entry, todo in zip(asked, forward):
                program.bring_about(entry, todo, cli)
        except program.LinkLost as exc:
            # What cost the link must not cost it again at the next boot.
            kept = Installation(without(ports, exc.details["netdev"], exc.details["settings"]), host, cli, originals)
            if kept.compare(ChangeSet()):
                kept.apply()
            raise
    if not module.check_mode:
        state.save(settled(record, entries))
        if not reinstall:
            installation.settle()
    for entry in leaving:
        if not is_there(entry):
            module.warn(farewell(entry))
    return {
        "changed": bool(settings or files),
        "diff": difference.of(settings, files, program.CONFIG),
        "changed_ports": sorted({todo.port.netdev for todo in todos if todo.steps}),
        "unsupported": {todo.port.netdev: todo.unsupported for todo in todos if todo.unsupported},
    }


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "ports": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "netdev": {"type": "str", "required": True},
                    "hca": {"type": "str"},
                    "port": {"type": "int", "default": 1},
                    "pci": {"type": "str"},
                    "settings": {"type": "dict", "required": True},
                },
            },
            "host": {"type": "dict", "default": {}},
            "allow_disruption": {"type": "str", "choices": list(CLASSES), "default": "none"},
            "gpu_processes": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        with only_writer("nic_settings", module.check_mode):
            result = run(module)
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
