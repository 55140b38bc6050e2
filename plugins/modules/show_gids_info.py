#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: show_gids_info
short_description: Read the GID tables of all RDMA ports
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Returns what C(show_gids) of mlnx-tools tells, as typed values.
  - Where the tool does not exist, the same answer is read from sysfs.
  - The index of a GID is not stable. It changes with the order in which addresses are set; choose a GID by its type and
    address.
extends_documentation_fragment:
  - railyard.gpu_fabric._attributes
  - railyard.gpu_fabric._capture
seealso:
  - module: railyard.gpu_fabric.ibstat_info
  - module: railyard.gpu_fabric.ibdev2netdev_info
"""

EXAMPLES = r"""
- name: Read the GID tables
  railyard.gpu_fabric.show_gids_info:
  register: show_gids

- name: Show the RoCE v2 GIDs that carry an IPv4 address
  ansible.builtin.debug:
    msg: "{{ show_gids.gids | selectattr('version', 'defined') | selectattr('version', 'eq', 'v2')
      | selectattr('ipv4', 'defined') }}"

- name: Read an output that somebody sent
  railyard.gpu_fabric.show_gids_info:
    capture: /srv/cases/4711/show_gids.txt
  delegate_to: localhost
"""

RETURN = r"""
gids:
  description: The filled slots of the tables. A field that is not there is not known.
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
    index:
      description: Index in the table, from 0.
      type: int
    gid:
      description: The GID, eight groups of four lower-case hexadecimal digits.
      type: str
    ipv4:
      description: The IPv4 address in an IPv4-mapped GID.
      type: str
    version:
      description: V(v1) or V(v2), as the tool prints it.
      type: str
    type:
      description: V(RoCE v1), V(RoCE v2) or V(IB). Absent where V(v1) may mean either.
      type: str
    netdev:
      description: Interface to which the GID belongs.
      type: str
    host:
      description: The host, where a parallel shell put it in front of the lines.
      type: str
  sample:
    - device: mlx5_0
      port: 1
      index: 3
      gid: 0000:0000:0000:0000:0000:ffff:0ae0:000b
      ipv4: 10.224.0.11
      version: v2
      type: RoCE v2
      netdev: ens1f0np0
count:
  description: Number of GIDs that the tool says it found.
  returned: when the output holds it
  type: int
  sample: 4
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
  sample: show_gids
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
  sample: ["bash: show_gids: command not found"]
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
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import show_gids
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._rdma_answers import show_gids as from_sysfs

TOOL = Tool(
    commands=(("show_gids",),),
    parse=show_gids.parse,
    subject="gids",
    from_sysfs=from_sysfs,
)


def main() -> None:
    run_module(TOOL)


if __name__ == "__main__":
    main()
