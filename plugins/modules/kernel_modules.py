#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_modules
short_description: Load kernel modules now and at boot, with options, and keep others out
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Owns one file of C(/etc/modules-load.d) and one of C(/etc/modprobe.d), and loads what is not loaded.
  - Unloads only what O(reload) names and, with O(state=absent), what it was the first to load and nothing uses. What
    the packages of a set loaded is left alone, unless O(came_with) or O(came_with_gone) names the set.
  - Where a loaded module runs with other options than the wanted ones, or one that is to be kept out is loaded, the
    result says so.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  name:
    description: The files' name, without C(.conf).
    type: str
    default: gpu-fabric
  load:
    description: The modules to load, in this order.
    type: list
    elements: str
    default: []
  options:
    description: Module options, by module, as C(modprobe.d) spells them.
    type: dict
    default: {}
  follow:
    description:
      - Lists of modules by the one after which they come (and before which they go), whoever loads or removes that one.
      - So C(nvidia_peermem) is there again when the RDMA stack was started anew.
    type: dict
    default: {}
  blacklist:
    description: Modules that may not be loaded.
    type: list
    elements: str
    default: []
  reload:
    description:
      - Modules that are unloaded first where they are loaded, in this order, and then loaded anew, so that what is
        installed now replaces what was loaded before.
    type: list
    elements: str
    default: []
  now:
    description: Load the modules in the running kernel, and not only at the next boot.
    type: bool
    default: true
  initramfs:
    description:
      - Make the initramfs anew when the file in C(/etc/modprobe.d) changes, so that it holds early in the boot, too.
      - Nothing is done where this kernel boots without one. Where it cannot be made, the files are as they were before.
    type: bool
    default: false
  came_with:
    description:
      - Names of package sets that go. With O(state=absent), modules that their packages loaded on installation go as
        well.
    type: list
    elements: str
    default: []
  came_with_gone:
    description:
      - Names of package sets that may stay. With O(state=absent), modules that their packages loaded on installation go
        as well where M(railyard.gpu_fabric.package_set) has taken the set away.
      - Check mode goes by the sets that are on the host when it looks.
    type: list
    elements: str
    default: []
  failed:
    description:
      - What to do when a module does not load. The files are in place by then.
      - The same goes for a module of O(load) that another file of C(modprobe.d) has on its blacklist, for it would
        not be loaded at boot; V(fail) then changes nothing.
    type: str
    choices: [fail, warn]
    default: fail
  state:
    description:
      - V(absent) removes the files, or gives back what somebody else had in them, and unloads the modules that it
        loaded where nothing uses them.
    type: str
    choices: [present, absent]
    default: present
seealso:
  - module: railyard.gpu_fabric.managed_files
"""

EXAMPLES = r"""
- name: User space reaches the management datagrams
  railyard.gpu_fabric.kernel_modules:
    name: gpu-fabric-rdma
    load: [ib_umad, ib_uverbs, rdma_ucm]

- name: Nouveau stays out
  railyard.gpu_fabric.kernel_modules:
    name: gpu-fabric-nvidia
    load: [nvidia, nvidia_uvm]
    options:
      nvidia: NVreg_RestrictProfilingToAdminUsers=0
    blacklist: [nouveau]
"""

RETURN = r"""
changed_paths:
  description: The files that differ from what is wanted.
  returned: success
  type: list
  elements: str
  sample: [/etc/modules-load.d/gpu-fabric-rdma.conf]
loaded:
  description: The modules that this call loads.
  returned: success
  type: list
  elements: str
  sample: [ib_umad]
unloaded:
  description: The modules that this call unloads.
  returned: success
  type: list
  elements: str
  sample: []
failures:
  description: Why modules did not load, in modprobe's own words.
  returned: success
  type: list
  elements: str
  sample: ["nvidia_peermem does not load: modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument"]
intruders:
  description: Modules of O(blacklist) that are loaded. They go at the next boot.
  returned: success
  type: list
  elements: str
  sample: [nouveau]
reload_required:
  description: Options that the loaded module does not have, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["nvidia NVreg_EnableStreamMemOPs: '0' is in force, '1' is wanted"]
initramfs_required:
  description: Whether what the initramfs has a copy of changes. With O(initramfs) it is made anew.
  returned: success
  type: bool
  sample: false
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._modules import ModuleSet, gone


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "gpu-fabric"},
            "load": {"type": "list", "elements": "str", "default": []},
            "options": {"type": "dict", "default": {}},
            "follow": {"type": "dict", "default": {}},
            "blacklist": {"type": "list", "elements": "str", "default": []},
            "reload": {"type": "list", "elements": "str", "default": []},
            "now": {"type": "bool", "default": True},
            "initramfs": {"type": "bool", "default": False},
            "came_with": {"type": "list", "elements": "str", "default": []},
            "came_with_gone": {"type": "list", "elements": "str", "default": []},
            "failed": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    wanted = module.params["state"] == "present"
    failures: list[str] = []
    try:
        with only_writer("kernel_modules", module.check_mode):
            todo = ModuleSet(
                module.params["name"],
                module.params["load"] if wanted else [],
                module.params["options"] if wanted else {},
                module.params["blacklist"] if wanted else [],
                module.params["now"],
                Cli(),
                StateFile("files.json"),
                module.params["initramfs"],
                module.params["reload"] if wanted else [],
                state=StateFile("modules.json"),
                follow=module.params["follow"] if wanted else {},
                absent=not wanted,
                came_with=[
                    *module.params["came_with"],
                    *gone(module.params["came_with_gone"], StateFile("packages.json")),
                ],
            )
            if todo.barred and module.params["failed"] == "fail":
                raise Failure("; ".join(todo.barred))
            if not module.check_mode:
                failures = todo.apply()
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    result: dict[str, t.Any] = {
        "changed": bool(todo.changed_paths or todo.unloaded or todo.given_back) or len(failures) < len(todo.loaded),
        "changed_paths": todo.changed_paths,
        "loaded": todo.loaded,
        "unloaded": [*todo.unloaded, *todo.given_back],
        "failures": failures,
        "intruders": todo.intruders,
        "reload_required": todo.reload_required,
        "initramfs_required": todo.initramfs_required,
        "diff": todo.changes.diff(),
    }
    if failures and module.params["failed"] == "fail":
        module.fail_json(msg="; ".join(failures), **result)
    for sentence in [*todo.barred, *failures, *todo.kept]:
        module.warn(sentence)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
