#!/usr/bin/python

# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle_collect
short_description: Record a host for a support bundle
version_added: 0.1.0
author: [Railyard maintainers (@railyard)]
description:
  - Records everything that M(railyard.gpu_fabric.fabric_facts) reads on a host, and the answers of the tools that a
    diagnosis wants besides, in one archive. Apart from writing the archive it changes nothing.
  - Unpacked to C(<bundle>/<host>/), the archive is a host's folder of a support bundle, which the C(capture) option of
    the modules and C(playbooks/diagnose.yml) read.
  - Passwords in repository addresses are masked, environments of processes are not recorded, and of the packages only
    those of the GPU and fabric stack are. Serial numbers, addresses and host names are recorded.
options:
  dest:
    description: Path of the archive (C(.tar.gz)) on the host. Readable by its owner only.
    type: path
    required: true
  nic_config:
    description: Record the firmware settings of each NVIDIA network card too, which takes seconds per card.
    type: bool
    default: true
  subnet:
    description:
      - Record the InfiniBand subnet too (C(ibnetdiscover), C(iblinkinfo), C(ibqueryerrors)), as the host's first active
        port sees it. One host of a rack is enough; a large subnet takes minutes.
      - Without effect on a host that has no active InfiniBand port.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check_mode and return changed status prediction without modifying target.
    support: full
    details: Says that the archive would be written, and writes none.
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
    details: The archive is a new one each time.
"""

EXAMPLES = r"""
- name: Record the host
  railyard.gpu_fabric.bundle_collect:
    dest: /var/tmp/gpu-fabric-bundle.tar.gz

- name: Take the record
  ansible.builtin.fetch:
    src: /var/tmp/gpu-fabric-bundle.tar.gz
    dest: "bundles/{{ inventory_hostname }}.tar.gz"
    flat: true
"""

RETURN = r"""
dest:
  description: Path of the archive.
  returned: always
  type: str
entries:
  description: Number of files, links and folders in it.
  returned: when it was written
  type: int
size_bytes:
  description: Size of the archive.
  returned: when it was written
  type: int
missing_tools:
  description: Tools whose answers it lacks because they are not installed.
  returned: when it was written
  type: list
  elements: str
subnet:
  description: Whether the InfiniBand subnet was recorded too.
  returned: when it was written
  type: bool
problems:
  description: What could not be read, and why.
  returned: when it was written
  type: list
  elements: dict
"""

import os
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._collect import (
    Recorder,
    missing_tools,
    record_extra,
    record_subnet,
    write_archive,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather


def record(module: AnsibleModule, dest: str) -> dict[str, t.Any]:
    source = Recorder()
    facts = gather(source, nic_config=module.params["nic_config"])
    record_extra(source)
    subnet = module.params["subnet"] and record_subnet(source, facts)
    handle, path = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as stream:
        names = write_archive(source, stream)
    size = os.path.getsize(path)
    module.atomic_move(path, dest)
    os.chmod(dest, 0o600)
    return {
        "entries": len(names),
        "size_bytes": size,
        "missing_tools": missing_tools(source),
        "subnet": subnet,
        "problems": facts["problems"],
    }


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "nic_config": {"type": "bool", "default": True},
            "subnet": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    dest = module.params["dest"]
    folder = os.path.dirname(os.path.abspath(dest))
    if not os.path.isdir(folder) or os.path.isdir(dest):
        module.fail_json(msg=f"Cannot write the archive {dest}: its folder {folder} must exist and it must be a file.")
    result = {} if module.check_mode else record(module, dest)
    module.exit_json(changed=True, dest=dest, **result)


if __name__ == "__main__":
    main()
