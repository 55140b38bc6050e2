#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_cmdline
short_description: Arguments of the kernel, from the next boot on
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Adds arguments to the kernel's command line, and takes away again what it added. Arguments that others set stay.
  - Where C(grubby) is installed it writes the boot entries of all kernels. It replaces another value of the same
    argument, which comes back when the argument goes. Elsewhere the module owns one file of C(/etc/default/grub.d) that
    appends to C(GRUB_CMDLINE_LINUX), and has GRUB's configuration generated.
  - Where the boot entries lack an argument after that, what was written is taken back. An argument that a later one of
    another value takes the effect of, and a kernel that GRUB did not start, are warned of.
  - Arguments are compared one by one, in no order, with what every boot entry holds and with what the running kernel
    was started with. It never reboots; RV(reboot_required) says whether a reboot is missing. Arguments that were taken
    away are remembered, so that every call says so until a kernel runs that was started without them.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  arguments:
    description:
      - The arguments, all of them, such as V(iommu=pt). One of an earlier call that is not listed is taken away.
    type: list
    elements: str
    default: []
  state:
    description: V(absent) takes away what this module added.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: The IOMMU passes addresses through from the next boot on
  railyard.gpu_fabric.kernel_cmdline:
    arguments: [iommu=pt]
"""

RETURN = r"""
reboot_required:
  description: Whether the running kernel was started with other arguments than are wanted.
  returned: success
  type: bool
  sample: true
missing:
  description: Wanted arguments that the running kernel was not started with.
  returned: success
  type: list
  elements: str
  sample: [iommu=pt]
stale:
  description: >-
    Arguments of this module that the running kernel was started with and the next one will not be, whichever call took
    them away.
  returned: success
  type: list
  elements: str
  sample: []
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cmdline import CommandLine
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "arguments": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    wanted = module.params["arguments"] if module.params["state"] == "present" else []
    try:
        with only_writer("kernel_cmdline", module.check_mode):
            line = CommandLine(wanted, Cli(), StateFile("kernel_cmdline.json"), StateFile("files.json"))
            if len(line.changes) and not module.check_mode:
                line.apply()
            elif not module.check_mode:
                line.settle()
            missing, stale, doubts = line.missing, line.stale, line.doubts
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    if missing or stale:
        told = [f"lacks {' '.join(missing)}"] * bool(missing) + [f"still has {' '.join(stale)}"] * bool(stale)
        module.warn(f"The running kernel {' and '.join(told)}; that changes at the next reboot")
    for sentence in doubts:
        module.warn(sentence)
    module.exit_json(
        changed=len(line.changes) > 0,
        diff=line.changes.diff(),
        missing=missing,
        stale=stale,
        reboot_required=bool(missing or stale),
    )


if __name__ == "__main__":
    main()
