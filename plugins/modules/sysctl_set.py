#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: sysctl_set
short_description: Keep a set of kernel parameters in one file and in force
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Owns one file of C(sysctl.d), writes the parameters to it, sets them in the running kernel and reads them back.
  - Computes, over all directories of C(sysctl.d), whether another file gives one of the parameters another value at
    boot.
  - What was in force before the first change is kept in C(/var/lib/gpu_fabric/sysctl.json). A parameter that is
    dropped from O(settings) gets that value back.
  - Where the kernel refuses one of the values, those that were set before it are set back, and the file stays as it
    was.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  settings:
    description:
      - The parameters, all of them, by name. The name of an interface with a dot in it is written with V(/),
        as in V(net.ipv4.conf.eth0/100.rp_filter).
    type: dict
    default: {}
  path:
    description: The file, C(*.conf) in C(/etc/sysctl.d). Files that sort after it win over it at boot.
    type: path
    default: /etc/sysctl.d/90-gpu-fabric.conf
  state:
    description:
      - V(absent) removes the file, or gives back what somebody else had in it, and restores every value that was in
        force before.
    type: str
    choices: [present, absent]
    default: present
  overridden:
    description: What to do when another file gives one of the parameters another value at boot.
    type: str
    choices: [fail, warn, ignore]
    default: fail
  unavailable:
    description:
      - What to do with a parameter that this kernel or network namespace does not have or does not let be set.
      - It stays in the file, marked so that it does not spoil the others at boot.
    type: str
    choices: [fail, warn, ignore]
    default: warn
seealso:
  - module: railyard.gpu_fabric.managed_files
"""

EXAMPLES = r"""
- name: Socket buffers suit 100 Gb/s storage
  railyard.gpu_fabric.sysctl_set:
    settings:
      net.core.rmem_max: 67108864
      net.ipv4.tcp_rmem: 4096 131072 67108864
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
  sample: /etc/sysctl.d/90-gpu-fabric.conf
changed_keys:
  description: Parameters whose value in force changes.
  returned: success
  type: list
  elements: str
  sample: [net.core.rmem_max]
reverted:
  description: Parameters dropped from the set, with the value they get back.
  returned: success
  type: dict
  sample: {vm.swappiness: "60"}
unavailable:
  description: Parameters that cannot be set here, each with the reason.
  returned: success
  type: list
  elements: dict
  sample:
    - key: net.ipv4.conf.ens9.rp_filter
      reason: /proc/sys/net/ipv4/conf/ens9/rp_filter does not exist in this kernel or network namespace
overrides:
  description: Parameters to which another file gives another value at boot.
  returned: success
  type: list
  elements: dict
  sample:
    - key: net.core.rmem_max
      value: "1048576"
      wanted: "67108864"
      path: /etc/sysctl.d/99-site.conf
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysctl import Kernel, SysctlSet, Unavailable


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "default": {}},
            "path": {"type": "path", "default": "/etc/sysctl.d/90-gpu-fabric.conf"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "overridden": {"type": "str", "choices": ["fail", "warn", "ignore"], "default": "fail"},
            "unavailable": {"type": "str", "choices": ["fail", "warn", "ignore"], "default": "warn"},
        },
        supports_check_mode=True,
    )
    settings = module.params["settings"] if module.params["state"] == "present" else {}
    try:
        with only_writer("sysctl_set", module.check_mode):
            todo = SysctlSet(
                module.params["path"],
                settings,
                Kernel(),
                StateFile("sysctl.json"),
                StateFile("files.json"),
            )
            path = module.params["path"]
            beaten = [
                f"{item.key} is {item.value!r} at boot, from {item.path}, not {item.wanted!r} as in {path}"
                for item in todo.overrides()
            ]
            if beaten:
                _judge(
                    module,
                    module.params["overridden"],
                    beaten,
                    "Remove the key from that file, or give it the same value.",
                )
            foreseen = list(todo.unavailable)
            _judge_unavailable(module, foreseen)
            changed = bool(len(todo.changes))
            if changed and not module.check_mode:
                todo.apply()
                _judge_unavailable(module, todo.unavailable[len(foreseen) :])
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(
        changed=changed,
        path=module.params["path"],
        changed_keys=todo.changed_keys,
        reverted=todo.reverted,
        unavailable=[item._asdict() for item in todo.unavailable],
        overrides=[item._asdict() for item in todo.overrides()],
        diff=todo.changes.diff(),
    )


def _judge_unavailable(module: AnsibleModule, unavailable: list[Unavailable]) -> None:
    if unavailable:
        reasons = [f"{item.key} is not set: {item.reason}" for item in unavailable]
        remedy = "Remove the key by setting it to null in gpu_fabric_sysctl."
        _judge(module, module.params["unavailable"], reasons, remedy)


def _judge(module: AnsibleModule, verdict: str, sentences: list[str], remedy: str) -> None:
    text = "; ".join(sentences) + ". " + remedy
    if verdict == "fail":
        raise Failure(text)
    if verdict == "warn":
        module.warn(text)


if __name__ == "__main__":
    main()
