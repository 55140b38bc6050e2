#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_links
short_description: MTU, addresses, routes and policy rules of a set of interfaces, now and at every boot
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Makes the running interfaces as O(links) says, with C(ip), and writes the files with which the host's own network
    manager brings them up that way at boot. Nothing is restarted and no link is taken down.
  - Only what is wanted is added, and only what an earlier run brought is taken away; addresses, routes and rules of
    others stay.
  - An interface marked C(management) is changed under a roll-back timer. The first call arms the timer, answers, and
    only then is the running interface changed, with no file written. A second call with O(confirm=true), over a
    connection made anew, writes the files, sets the timer anew and does the rest; a third one stops the timer. Without
    them the host takes the change back by itself after O(rollback_s) seconds, and before the files so does a reboot.
  - What was there before the first change is saved in C(/var/lib/gpu_fabric/links.json); O(state=absent) restores it.
    The unit of the network manager is enabled where it is not, and then disabled again with the last link; it is never
    stopped, for that would take links down.
  - Refused before anything is changed is what would take something from another interface or have no effect at boot.
    That is an address or a route that another interface has, a routing table that it uses, a file of somebody else
    that systemd-networkd takes instead of the module's, an interface that NetworkManager was told to leave alone or
    that it makes by a connection of somebody else, and a file that ifupdown does not read.
  - Files that netplan does not take are put back before an interface is touched. What somebody else had in a file of
    the same name comes back with O(state=absent).
  - While a change of the management interface waits for its confirmation, a run without O(confirm) is refused; it is
    taken back where the run that began it was cut off.
  - Bonds are refused where NetworkManager runs the hooks of the Debian package ifenslave, which delete them.
  - Everything is read back from the kernel at the end; what the kernel did not take fails the task.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  links:
    description:
      - The interfaces, as in the plan's RV(ignore:links).
      - An interface that an earlier run set and that is no longer listed is given back what it had before.
    type: list
    elements: dict
    default: []
    suboptions:
      netdev:
        description: Name of the interface. It must exist, unless it is a bond.
        type: str
        required: true
      mac:
        description: Its address in hardware. Where given, an interface of that name with another one is refused.
        type: str
      pci:
        description: Its PCI address, for messages.
        type: str
      rail:
        description: Number of the rail it serves, for messages.
        type: int
      management:
        description:
          - The host is managed through the interface.
          - O(links[].addresses) are then all the addresses that it shall have. It keeps the name servers that it has.
          - It may be one of O(protected).
        type: bool
        default: false
      bond:
        description:
          - Makes the interface a bond, where there is none of that name yet.
          - The mode of a bond that exists is not changed, because that takes it down; another one is refused.
        type: dict
        suboptions:
          members:
            description: The interfaces of which the bond consists. They must have no addresses of their own.
            type: list
            elements: str
            required: true
          mode:
            description: How the members share the traffic.
            type: str
            choices: [802.3ad, active-backup]
            required: true
          miimon_ms:
            description: How often the members' links are looked at, in milliseconds.
            type: int
            default: 100
          lacp_rate:
            description: How often the partner is asked to speak, with V(802.3ad).
            type: str
            choices: [slow, fast]
          xmit_hash_policy:
            description: By what a member is chosen for a flow.
            type: str
            choices: [layer2, layer2+3, layer3+4, encap2+3, encap3+4]
      ipoib:
        description:
          - The interface is IP over InfiniBand.
          - With O(links[].ipoib.parent), it is the interface of a partition and is made where there is none of that
            name. One that is there and is something else is refused.
        type: dict
        suboptions:
          mode:
            description: The transport. NICs that mlx5 drives offer V(datagram) only.
            type: str
            choices: [datagram, connected]
            default: datagram
          parent:
            description: The interface of the port.
            type: str
          pkey:
            description: Key of the partition with the bit of full membership, from C(0x8001) to C(0xfffe).
            type: str
      mtu:
        description: MTU in bytes; left as it is where not given. The members of a bond get the bond's.
        type: int
      addresses:
        description: IPv4 and IPv6 addresses, each with its prefix length.
        type: list
        elements: str
        default: []
      routes:
        description: Routes through the interface.
        type: list
        elements: dict
        default: []
        suboptions:
          dst:
            description: Network in CIDR notation, or V(default).
            type: str
            required: true
          via:
            description: Gateway; without it the network is on the link.
            type: str
          src:
            description: Source address of what the host itself sends there.
            type: str
          table:
            description: Number of the routing table; 254 is the main one.
            type: int
            default: 254
      rules:
        description: Policy-routing rules by source address.
        type: list
        elements: dict
        default: []
        suboptions:
          from:
            description: Source address or network.
            type: str
            required: true
          table:
            description: Number of the routing table.
            type: int
            required: true
          priority:
            description: Place of the rule among the others; lower comes first.
            type: int
            required: true
  manager:
    description:
      - Which network manager keeps the links over a boot.
      - V(auto) takes the one that runs the host's network. netplan does where it has files; where it hands them all to
        NetworkManager, that one does.
    type: str
    choices: [auto, networkd, networkmanager, netplan, ifupdown]
    default: auto
  protected:
    description:
      - Interfaces that must not be touched, above all the one that carries the connection of this run.
      - A link of that name is refused before anything is changed, unless it is marked as C(management).
    type: list
    elements: str
    default: []
  rollback_s:
    description:
      - Seconds after which the host takes back a change of the management interface that was not confirmed.
      - With V(0), such a change is refused.
    type: int
    default: 0
  confirm:
    description: Keep the change of the management interface that an earlier call began. Fails where it was taken back.
    type: bool
    default: false
  state:
    description: V(absent) takes away what the module brought and restores what it found.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Address two rails, each with a routing table of its own
  railyard.gpu_fabric.fabric_links:
    links:
      - netdev: ens1f0np0
        mtu: 9000
        addresses: [10.224.0.11/24]
        routes:
          - {dst: 10.224.0.0/24, src: 10.224.0.11, table: 100}
        rules:
          - {from: 10.224.0.11, table: 100, priority: 100}
      - netdev: ens2f0np0
        mtu: 9000
        addresses: [10.224.1.11/24]
    protected: [eno1]
"""

RETURN = r"""
manager:
  description: The network manager that keeps the links over a boot.
  returned: success
  type: str
  sample: ifupdown
changed_links:
  description: The interfaces whose running state differed.
  returned: success
  type: list
  elements: str
commands:
  description: The commands that ran, or would run in check mode.
  returned: success
  type: list
  elements: str
pending:
  description: The change of the management interface that the host is about to make and will take back.
  returned: when one has to be confirmed
  type: dict
  contains:
    netdev:
      description: The interface.
      type: str
    addresses:
      description: The addresses that it gets, without their prefix lengths.
      type: list
      elements: str
    rollback_s:
      description: Seconds from the change until it is taken back.
      type: int
confirmed:
  description: Whether the roll-back timer is stopped; else the change has to be confirmed once more.
  returned: success
  type: bool
links:
  description: The running state of every listed interface after the task, or as it would be in check mode.
  returned: success
  type: dict
"""

import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile, read_text
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import managers
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.boot import Boot
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import delta, in_order, missing
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.host import Links, as_plan
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    HASH_POLICIES,
    LACP_RATES,
    MODES,
    TRANSPORTS,
    Link,
    LinkError,
    wanted_link,
    wanted_links,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.rollback import Pending, restore_commands
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._plan import ChangeSet

ARGUMENT_SPEC: dict[str, t.Any] = {
    "links": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "netdev": {"type": "str", "required": True},
            "mac": {"type": "str"},
            "pci": {"type": "str"},
            "rail": {"type": "int"},
            "management": {"type": "bool", "default": False},
            "bond": {
                "type": "dict",
                "options": {
                    "members": {"type": "list", "elements": "str", "required": True},
                    "mode": {"type": "str", "choices": list(MODES), "required": True},
                    "miimon_ms": {"type": "int", "default": 100},
                    "lacp_rate": {"type": "str", "choices": list(LACP_RATES)},
                    "xmit_hash_policy": {"type": "str", "choices": list(HASH_POLICIES)},
                },
            },
            "ipoib": {
                "type": "dict",
                "options": {
                    "mode": {"type": "str", "choices": list(TRANSPORTS), "default": "datagram"},
                    "parent": {"type": "str"},
                    "pkey": {"type": "str"},
                },
            },
            "mtu": {"type": "int"},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "routes": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "dst": {"type": "str", "required": True},
                    "via": {"type": "str"},
                    "src": {"type": "str"},
                    "table": {"type": "int", "default": 254},
                },
            },
            "rules": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "from": {"type": "str", "required": True},
                    "table": {"type": "int", "required": True},
                    "priority": {"type": "int", "required": True},
                },
            },
        },
    },
    "manager": {
        "type": "str",
        "choices": ["auto", "networkd", "networkmanager", "netplan", "ifupdown"],
        "default": "auto",
    },
    "protected": {"type": "list", "elements": "str", "default": []},
    "rollback_s": {"type": "int", "default": 0},
    "confirm": {"type": "bool", "default": False},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


# How long a network manager may take to set links up, or to set them anew after it has read its files.
SETTLE_S = 30


def run(module: AnsibleModule) -> dict[str, t.Any]:
    confirming = module.params["confirm"]
    cli = Cli()
    wanted = wanted_links(module.params["links"]) if module.params["state"] == "present" else []
    links = Links(wanted, cli, StateFile("links.json"))
    links.refuse(module.params["protected"])
    pending = Pending(cli)
    if confirming:
        confirm(links, pending)
    else:
        pending.refuse_waiting()
    boot = Boot(links, cli, module.params["manager"], module.check_mode)
    managed = [] if confirming else links.managed(boot.written, boot.manager)
    if managed:
        refuse_without_way_back(managed, module.params["rollback_s"])
        if not module.check_mode:
            return begin(links, managed[0], boot, pending, module.params["rollback_s"])

    deltas = links.deltas()
    changes = ChangeSet()
    for item in deltas:
        changes.compare(f"interface {item.netdev}", item.before, item.after)
    boot.compare(changes)
    # The files of a management link may cut the host off as well: its way back stays open for one more confirmation.
    confirmed = confirming and (module.check_mode or not boot.written)
    if not module.check_mode:
        apply(links, boot, in_order(deltas), read_back=len(changes) > 0)
        if confirmed:
            pending.disarm()
    # In check mode a bond may not be there yet.
    state = {name: links.present[name].describe() if name in links.present else {} for name in links.wanted}
    if module.check_mode:
        for item in deltas:
            state.get(item.netdev, {}).update(item.after)
    return {
        # A confirmation keeps what would else be gone.
        "changed": len(changes) > 0 or confirming,
        "confirmed": confirmed,
        "diff": changes.diff(),
        "manager": boot.manager.name if boot.manager else None,
        "changed_links": [item.netdev for item in deltas if item.before != item.after],
        "commands": [shlex.join(command) for command in [*boot.validate, *in_order(deltas), *boot.reload]],
        "links": state,
    }


def refuse_without_way_back(managed: list[Link], rollback_s: int) -> None:
    names = [link.netdev for link in managed]
    if rollback_s <= 0:
        raise LinkError(
            f"No link was changed: the host is managed through {', '.join(names)}, and a mistake would cut it off;"
            " give rollback_s (rdma_rollback_s), so that the host takes the change back unless it is confirmed"
        )
    if len(names) > 1:
        raise LinkError(f"No link was changed: {' and '.join(names)} both manage the host")


def apply(links: Links, boot: Boot, commands: list[list[str]], read_back: bool) -> None:
    """Write what holds at boot, then set the running links."""
    # The record first: a run that is cut off later still knows what it set.
    record = links.new_record()
    links.saved.save({**links.record, **record})
    boot.write()
    boot.unit.take()
    if boot.activations:
        # It would fight over links that are set up beside it. So it goes first, and what it leaves is done after it:
        # without a cable, for one, it refuses.
        for command in boot.activations:
            links.cli.run(command, check=False)
        links.settle(SETTLE_S, undone=True)
        commands = in_order(links.deltas())
    else:
        commands = [*commands, *boot.reload]
    for command in commands:
        links.cli.run(command)
    if boot.reload:
        links.settle(SETTLE_S)
    if read_back:
        links.read_back()
    links.give_back_kernel_conf()
    boot.unit.let_go()
    links.saved.save(record)


def begin(links: Links, link: Link, boot: Boot, pending: Pending, rollback_s: int) -> dict[str, t.Any]:
    """Have the host change its management interface after this module's answer, and take it back unless confirmed."""
    item = delta(link, links.found(link.netdev), links.ours(link.netdev))
    changes = ChangeSet()
    changes.compare(f"interface {link.netdev}", item.before, item.after)
    restore = restore_commands(link.netdev, links.answers, link)
    # Of a manager that kept the interface before, too: its file goes with the confirmation, and comes back.
    kept = {other.name: read_text(other.renderer.path(link)) for other in managers.MANAGERS.values()}
    concerned = [other for other in managers.MANAGERS.values() if other is boot.manager or kept[other.name] is not None]
    validate = [list(other.validate) for other in concerned if other.validate]
    reload = [argv for other in concerned if boot.system for argv in managers.reloads(other, boot.system)]
    pending.arm(
        {"netdev": link.netdev, **as_plan(link)},
        links.before(link),
        item.commands,
        [*validate, *reload, *restore],
        {other.renderer.path(link): kept[other.name] for other in concerned},
        rollback_s,
    )
    return {
        "changed": True,
        "diff": changes.diff(),
        "manager": boot.manager.name if boot.manager else None,
        "changed_links": [link.netdev],
        "commands": [shlex.join(command) for command in item.commands],
        "links": {link.netdev: links.present[link.netdev].describe()},
        "pending": {
            "netdev": link.netdev,
            "addresses": sorted(address.split("/")[0] for address in link.addresses),
            "rollback_s": rollback_s,
        },
    }


def confirm(links: Links, pending: Pending) -> None:
    """Go on, under a clock that is set anew, where the interface is as the first call wanted it."""
    waiting = pending.load()
    if waiting is None:
        pending.refuse()
    link = wanted_link(waiting["wanted"])
    lacks = missing(link, links.found(link.netdev))
    if lacks:
        raise LinkError(f"{link.netdev}: the host did not make the whole change: {'; '.join(lacks)}")
    pending.extend(waiting["rollback_s"])
    links.changed_before[link.netdev] = waiting["before"]


def main() -> t.NoReturn:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        with only_writer("fabric_links", module.check_mode):
            result = run(module)
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
