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

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._systemd import PAUSED, STARTED, STOPPED, UnitSet


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "dict", "required": True},
            "restart": {"type": "list", "elements": "str", "default": []},
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
            todo = UnitSet(units, module.params["restart"], Cli(), module.check_mode, module.params["reload"])
            changed = bool(len(todo.changes))
            if not module.check_mode:
                todo.apply()
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(changed=changed, commands=[" ".join(argv) for argv in todo.argvs], diff=todo.changes.diff())


if __name__ == "__main__":
    main()
