#!/usr/bin/python

# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_facts
short_description: Read everything about a host that matters to a GPU training fabric
version_added: 0.1.0
author: [Railyard maintainers (@railyard)]
description:
  - Reads GPUs, NVSwitches, RDMA devices and their ports, network interfaces, the PCIe tree, the driver as loaded and
    as installed, kernel modules, limits, kernel parameters, services, packages, firewall and the kernel log in one
    remote execution, and returns them as C(ansible_facts.gpu_fabric).
  - Nothing has to be installed on the host. Facts come from C(/sys) and C(/proc) first; where a tool tells the same,
    its answer is kept in C(outputs) so that the two can be compared.
  - A key is absent where its value is not known. What could not be read is listed in C(problems).
  - Reads only. As a user other than root, PCIe registers, vital product data, the nftables rule set and the kernel
    log may be missing.
options:
  capture:
    description:
      - Folder of a support bundle, or of one host in it, to read instead of the host.
    type: path
  host:
    description:
      - Name of the host's folder in O(capture). Not needed where O(capture) is that folder itself, or holds one only.
    type: str
  sysctl_keys:
    description:
      - Kernel parameters to read besides those that the collection may set.
    type: list
    elements: str
    default: []
  nic_config:
    description:
      - Read the firmware settings of each NVIDIA network card with C(mlxconfig), which takes seconds per card.
    type: bool
    default: false
  port_settings:
    description:
      - Read rings, channels, link modes and FEC of the RoCE ports with C(ethtool), four commands for each port.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check_mode and return changed status prediction without modifying target.
    support: full
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
    details: Nothing is changed.
  facts:
    description: Returns facts about the host.
    support: full
"""

EXAMPLES = r"""
- name: Read the fabric facts
  railyard.gpu_fabric.fabric_facts:

- name: Read them from a support bundle
  railyard.gpu_fabric.fabric_facts:
    capture: /srv/bundles/rack-7
    host: gpu-01
  delegate_to: localhost
"""

RETURN = r"""
ansible_facts:
  description: Facts of the host.
  returned: always
  type: dict
  contains:
    gpu_fabric:
      description: The facts; C(docs/architecture.md) describes every key.
      returned: always
      type: dict
      sample:
        schema: 1
        host: {hostname: gpu-01, kernel: 6.8.0-60-generic, virtualization: none}
        gpus: [{pci: "0000:1b:00.0", index: 0, name: NVIDIA H100 80GB HBM3}]
        problems: []
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._capture import ARGUMENTS, open_bundle
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import LiveSource, Source


def source_of(capture: str | None, host: str | None) -> Source:
    """The host, or the folder that stands for it."""
    if capture is None:
        if host is not None:
            raise Failure(f"host is {host!r}, but without capture there is no bundle to look for it in.")
        return LiveSource()
    if not os.path.isdir(capture):
        raise Failure(f"Cannot read the bundle {capture}: there is no such folder.")
    return open_bundle(capture, host, ())


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "sysctl_keys": {"type": "list", "elements": "str", "default": []},
            "nic_config": {"type": "bool", "default": False},
            "port_settings": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        source = source_of(module.params["capture"], module.params["host"])
    except Failure as exc:
        module.fail_json(msg=str(exc))
    wanted = {name: module.params[name] for name in ("sysctl_keys", "nic_config", "port_settings")}
    facts = gather(source, **wanted)
    module.exit_json(changed=False, ansible_facts={"gpu_fabric": facts})


if __name__ == "__main__":
    main()
