#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ibdev2netdev_info
short_description: Read which network interface belongs to which RDMA port
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Returns what C(ibdev2netdev) and C(ibdev2netdev -v) of OFED tell, as typed values.
  - Where the tool does not exist, which is so on every host without OFED, the same answer is computed from sysfs. Bonds
    are then resolved by the GID table, as by RDMA itself.
extends_documentation_fragment:
  - railyard.gpu_fabric._attributes
  - railyard.gpu_fabric._capture
seealso:
  - module: railyard.gpu_fabric.ibstat_info
  - module: railyard.gpu_fabric.show_gids_info
"""

EXAMPLES = r"""
- name: Read the interfaces of the RDMA ports
  railyard.gpu_fabric.ibdev2netdev_info:
  register: ibdev2netdev

- name: Show the interfaces of one device
  ansible.builtin.debug:
    msg: "{{ ibdev2netdev.mappings | selectattr('device', 'eq', 'mlx5_0') | map(attribute='netdev') }}"

- name: Read an output that somebody sent
  railyard.gpu_fabric.ibdev2netdev_info:
    capture: /srv/cases/4711/ibdev2netdev.txt
  delegate_to: localhost
"""

RETURN = r"""
mappings:
  description:
    - One element for each pair of port and interface, in the order of the output. A field that is not there is not
      known.
    - Neither side is unique. The representors of an embedded switch give one port several interfaces, and a bond gives
      several devices one interface.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: Name of the RDMA device.
      type: str
    port:
      description: Number of its port, from 1.
      type: int
    netdev:
      description: Name of the network interface.
      type: str
    status:
      description: V(up) or V(down), the carrier of the interface; V(na) where it cannot be read. An InfiniBand port
        whose IPoIB interface is V(down) may be in full use.
      type: str
    pci:
      description: PCI address of the device.
      type: str
    hca_type:
      description: Type of the device, C(MT) and the number of its PCI device.
      type: str
    part_id:
      description: Part or serial number from the vital product data of the card.
      type: str
    description:
      description: Name of the card from its vital product data.
      type: str
    firmware:
      description: Version of the firmware.
      type: str
    port_state:
      description: State of the RDMA port, as RV(ignore:cas[].ports[].state) of M(railyard.gpu_fabric.ibstat_info).
      type: str
    comment:
      description: A remark that somebody put behind the line.
      type: str
    host:
      description: The host, where a parallel shell put it in front of the lines.
      type: str
  sample:
    - device: mlx5_0
      port: 1
      netdev: ens1f0np0
      status: up
      pci: "0000:18:00.0"
      hca_type: MT4129
      part_id: MCX755106AS-HEAT
      description: ConnectX-7 HHHL adapter card
      firmware: 28.43.2566
      port_state: active
form:
  description: Form of the output, V(plain), V(verbose) or V(empty); V(sysfs) where there was none and RV(mappings) was
    computed from sysfs.
  returned: success
  type: str
  sample: verbose
origin:
  description:
    - Where the answer is from. V(tool) the tool ran on this host; V(recorded) a recorded output; V(sysfs) computed from
      C(/sys/class/infiniband), because the tool is not there or does not answer; V(none) nothing could be asked.
    - An empty list from V(none) means "not known", never "no devices".
  returned: success
  type: str
  sample: tool
command:
  description: The command that answered, or whose recorded answer was read from a bundle.
  returned: when a command answered
  type: str
  sample: ibdev2netdev -v
rc:
  description: Exit status of the command.
  returned: when the command ran on this host
  type: int
  sample: 0
errors:
  description: Messages of the tool or the shell that were found in the output, verbatim.
  returned: success
  type: list
  elements: str
  sample: ["bash: ibdev2netdev: command not found"]
partial:
  description: The output ends before its end, or a part of it could not be read.
  returned: success
  type: bool
  sample: false
problems:
  description: What could not be read. Each is also given as a warning.
  returned: success
  type: list
  elements: dict
  contains:
    line:
      description: Number of the line in the output, from 1. V(0) stands for the whole output.
      type: int
    text:
      description: The line, at most 200 characters of it.
      type: str
    reason:
      description: Why it could not be read.
      type: str
  sample:
    - line: 11
      text: "Rate: 4"
      reason: The text ends inside this line, so its last value cannot be trusted.
"""

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._capture import Tool, run_module
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import ibdev2netdev
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._rdma_answers import ibdev2netdev as from_sysfs

TOOL = Tool(
    commands=(("ibdev2netdev", "-v"), ("ibdev2netdev",)),
    parse=ibdev2netdev.parse,
    subject="mappings",
    from_sysfs=from_sysfs,
)


def main() -> None:
    run_module(TOOL)


if __name__ == "__main__":
    main()
