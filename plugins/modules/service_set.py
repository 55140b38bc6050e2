#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: service_set
short_description: Have systemd units enabled and running, or neither, in one call
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Enables and starts, or stops and disables, units that belong together, and reads back that they run.
  - A unit that is to be stopped and is not installed is as wanted.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
attributes:
  idempotent:
    support: partial
    details:
      - Not where O(restart) or O(reload) is given.
options:
  units:
    description:
      - V(started), V(stopped) or V(paused), by unit. A paused unit does not run now and keeps what it does at boot.
      - A name without a suffix is a service.
      - A unit that is not installed and is to be started is an error; in check mode it counts as a change.
    type: dict
    required: true
  restart:
    description: Units of O(units) that are restarted even where they run, as after a change to their files.
    type: list
    elements: str
    default: []
  without_modules:
    description:
      - Kernel modules that keep a unit of O(restart) from replacing others, as C(nvidia_peermem) keeps C(openibd).
      - Those that are loaded are unloaded before the restart, and loaded again after it, also where it fails.
    type: list
    elements: str
    default: []
  brings:
    description: Paths that a restart of O(restart) has to bring back within 60 seconds, such as devices.
    type: list
    elements: path
    default: []
  reload:
    description: Units of O(units) that read their files again where they run already; one that starts has read them.
    type: list
    elements: str
    default: []
seealso:
  - module: railyard.gpu_fabric.package_set
"""

EXAMPLES = r"""
- name: The persistence daemon runs, and no Fabric Manager where there is no NVSwitch
  railyard.gpu_fabric.service_set:
    units:
      nvidia-persistenced.service: started
      nvidia-fabricmanager.service: stopped
"""

RETURN = r"""
commands:
  description: What is run.
  returned: success
  type: list
  elements: str
  sample: [systemctl enable nvidia-persistenced.service, systemctl start nvidia-persistenced.service]
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._modules import Aside, Running
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._systemd import PAUSED, STARTED, STOPPED, UnitSet

#: How long what a restart brings may take to appear.
APPEAR_S = 60


def await_paths(paths: t.Sequence[str], limit_s: float) -> None:
    """Wait until all paths are there; raises :class:`Failure` with those that are not after ``limit_s`` seconds."""
    end = time.monotonic() + limit_s
    while missing := [path for path in paths if not os.path.exists(path)]:
        if time.monotonic() >= end:
            raise Failure(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there {limit_s:g} s after the"
                " restart. Look at the kernel's log (dmesg) and at the unit's (journalctl -u UNIT), then run this again"
            )
        time.sleep(0.5)


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "dict", "required": True},
            "restart": {"type": "list", "elements": "str", "default": []},
            "without_modules": {"type": "list", "elements": "str", "default": []},
            "brings": {"type": "list", "elements": "path", "default": []},
            "reload": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    units: dict[str, str] = module.params["units"]
    for name, state in units.items():
        if state not in (STARTED, STOPPED, PAUSED):
            module.fail_json(msg=f"units: {name} is {state!r}, not one of {STARTED}, {STOPPED}, {PAUSED}")
    try:
        with only_writer("service_set", module.check_mode):
            cli = Cli()
            todo = UnitSet(units, module.params["restart"], cli, module.check_mode, module.params["reload"])
            aside = Aside(module.params["without_modules"] if module.params["restart"] else [], cli, Running())
            for name in aside.names:
                todo.changes.compare(f"{name} (loaded)", "yes", "anew")
            changed = bool(len(todo.changes))
            if not module.check_mode:
                with aside:
                    todo.apply()
                if module.params["restart"]:
                    await_paths(module.params["brings"], APPEAR_S)
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(changed=changed, commands=[" ".join(argv) for argv in todo.argvs], diff=todo.changes.diff())


if __name__ == "__main__":
    main()
