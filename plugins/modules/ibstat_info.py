#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ibstat_info
short_description: Read InfiniBand and RoCE devices and their ports as ibstat shows them
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Returns what C(ibstat) of infiniband-diags tells of each RDMA device and port, as typed values.
  - Reads every form of the output, also recorded ones that are filtered, cut off or carry the host names of a parallel
    shell. A value that may be wrong is left out and told in RV(problems).
  - Where C(ibstat) is not installed or does not answer, as in containers without C(/sys/class/infiniband_mad), the same
    values are read from sysfs.
extends_documentation_fragment:
  - railyard.gpu_fabric._attributes
  - railyard.gpu_fabric._capture
seealso:
  - module: railyard.gpu_fabric.ibdev2netdev_info
  - module: railyard.gpu_fabric.show_gids_info
"""

EXAMPLES = r"""
- name: Read the ports of this host
  railyard.gpu_fabric.ibstat_info:
  register: ibstat

- name: Every InfiniBand port is up at its rate
  ansible.builtin.assert:
    that: ibstat.cas | map(attribute='ports') | flatten | selectattr('link_layer', 'eq', 'InfiniBand')
      | rejectattr('state', 'eq', 'active') | list == []

- name: Read an output that somebody sent
  railyard.gpu_fabric.ibstat_info:
    capture: /srv/cases/4711/ibstat.txt
  delegate_to: localhost

- name: Read one host of a support bundle
  railyard.gpu_fabric.ibstat_info:
    capture: /srv/cases/4711/bundle
    host: gpu-07
  delegate_to: localhost
"""

RETURN = r"""
cas:
  description: The devices in the order of the output. A field that is not there is not known.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the device. Absent where the output was filtered and does not name it.
      type: str
    host:
      description: The host, where a parallel shell put it in front of the lines.
      type: str
    node_type:
      description: V(ca), V(switch), V(router), V(rnic), V(usnic) or V(unknown).
      type: str
    ca_type:
      description: Type of the device. Software devices and some vendors have none.
      type: str
    number_of_ports:
      description: Number of ports.
      type: int
    firmware:
      description: Version of the firmware.
      type: str
    hardware:
      description: Revision of the hardware.
      type: str
    node_guid:
      description: Node GUID, 16 lower-case hexadecimal digits.
      type: str
    system_image_guid:
      description: GUID that the functions of one card share.
      type: str
    extra:
      description: Fields that this module does not know, by the tool's own label.
      type: dict
    ports:
      description: The ports.
      type: list
      elements: dict
      contains:
        port:
          description: Number of the port, from 1.
          type: int
        state:
          description: V(down), V(initializing), V(armed), V(active) or V(unknown).
          type: str
        phys_state:
          description: V(linkup), V(polling), V(disabled), V(sleep), V(portconfigurationtraining), V(linkerrorrecovery),
            V(phytest), V(nostatechange) or V(unknown).
          type: str
        rate_gbps:
          description: Rate in Gb/s. A port that is down shows the lowest rate or the last one.
          type: float
        rate_text:
          description: The rate as printed, with a remark such as C((FDR10)).
          type: str
        effective_speed_gbps:
          description: Effective speed in Gb/s, as new releases print it.
          type: float
        base_lid:
          description: Local identifier. V(65535) is none, V(0) is an Ethernet port or a port without subnet manager.
          type: int
        lmc:
          description: Number of low bits of the LID that are free for paths.
          type: int
        sm_lid:
          description: LID of the subnet manager.
          type: int
        capability_mask:
          description: Capability mask, C(0x) and eight hexadecimal digits.
          type: str
        port_guid:
          description: Port GUID.
          type: str
        link_layer:
          description: V(InfiniBand) or V(Ethernet).
          type: str
        extra:
          description: Fields that this module does not know, by the tool's own label.
          type: dict
  sample:
    - name: mlx5_0
      node_type: ca
      ca_type: MT4129
      number_of_ports: 1
      firmware: 28.43.2566
      hardware: "0"
      node_guid: b8cef60300abcdef
      system_image_guid: b8cef60300abcdef
      extra: {}
      ports:
        - port: 1
          state: active
          phys_state: linkup
          rate_gbps: 400.0
          rate_text: "400"
          base_lid: 12
          lmc: 0
          sm_lid: 1
          capability_mask: "0xa751e848"
          port_guid: b8cef60300abcdef
          link_layer: InfiniBand
          extra: {}
form:
  description: Form of the output, V(full), V(port) (C(ibstat DEV PORT)), V(short) (C(-s)), V(list) (C(-l)), V(guids)
    (C(-p)), V(filtered) or V(empty); V(sysfs) where there was none and RV(cas) was computed from sysfs.
  returned: success
  type: str
  sample: full
port_guids:
  description: What C(ibstat -p) prints.
  returned: success
  type: list
  elements: str
  sample: []
failed_devices:
  description: Devices that the tool's messages name as not found or not answering.
  returned: success
  type: list
  elements: str
  sample: [mlx5_8]
debug_messages:
  description: Lines of debugging that the tool wrote, verbatim.
  returned: success
  type: list
  elements: str
  sample: []
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
  sample: ibstat
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
  sample: ["ibpanic: [4711] main: stat of IB device 'mlx5_8' failed: No such device or address"]
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
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import ibstat
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._rdma_answers import ibstat as from_sysfs

TOOL = Tool(
    commands=(("ibstat",), ("ibstat", "-l")),
    parse=ibstat.parse,
    subject="cas",
    from_sysfs=from_sysfs,
)


def main() -> None:
    run_module(TOOL)


if __name__ == "__main__":
    main()
