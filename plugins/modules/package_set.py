#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_set
short_description: Repository, key, pins, packages at versions and holds, as one transaction
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Brings a set of packages that belong together to the wanted versions, from a repository with its own key, and keeps
    them there.
  - The transaction is worked out by apt on a private copy of its configuration and indexes before anything is touched.
    So check mode names the changes that the real run makes, also where the repository is not configured yet, and a
    repository that cannot be reached or verified is refused with nothing changed.
  - A transaction that would do more than what was asked is refused. Such are another kernel, the removal or downgrade
    of a package that is not named, and a change of a package that somebody else holds.
  - The repository's index is fetched only when the source changes or does not offer what is needed. A second call runs
    one query and nothing else.
requirements:
  - apt, on the managed host
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  name:
    description:
      - Names this set, in file names and in the record of what it brought to the host.
      - Lower-case letters, digits and dashes.
    type: str
    required: true
  packages:
    description:
      - The wanted version, by package.
      - V(580.95.05) is that upstream version at any revision, V(580.95.05-1) exactly that, V(580.95.*) a glob.
      - An empty string is any version; an installed one then stays.
    type: dict
    default: {}
  repository:
    description:
      - A repository that the packages come from, beside those that the host has.
      - Other entries for the same repository are removed first, for apt refuses two that disagree on the key.
    type: dict
    suboptions:
      name:
        description: Names the source and the keyring. Sets that share a repository give the same name.
        type: str
        required: true
      url:
        description: Base of the repository.
        type: str
        required: true
      suite:
        description: The suite, or V(/) for a flat repository.
        type: str
        default: /
      components:
        description: Components. A flat repository has none.
        type: list
        elements: str
        default: []
      architectures:
        description: Architectures, when not all that the host has.
        type: list
        elements: str
        default: []
      key:
        description: The public key itself, in ASCII armour. One of O(repository.key), O(repository.key_url) and
          O(repository.key_file) is needed.
        type: str
      key_url:
        description: Where the host fetches the key. It is fetched once, and again when the address changes.
        type: str
      key_file:
        description: The key in a file on the host, in either form.
        type: path
      key_fingerprints:
        description: Fingerprints of exactly the primary keys that the key has to hold.
        type: list
        elements: str
        default: []
  remove:
    description: Names or globs of packages that are purged in the same transaction. O(packages) go before.
    type: list
    elements: str
    default: []
  pins:
    description: Versions at which apt keeps whole families of packages, dependencies among them.
    type: list
    elements: dict
    default: []
    suboptions:
      packages:
        description: Names or globs.
        type: list
        elements: str
        required: true
      version:
        description: The version, or a glob.
        type: str
        required: true
      priority:
        description: Priority of the pin. Above V(1000) it also allows a downgrade.
        type: int
        default: 1001
  hold:
    description:
      - Hold the packages, and the installed ones that O(pins) cover, and keep unattended-upgrades from them.
      - A later call with another version changes packages that this module holds, and no others.
    type: bool
    default: false
  protected:
    description:
      - Globs of packages that the transaction may not bring, change or remove unless they are in O(packages).
      - Without it, kernels.
    type: list
    elements: str
  recommends:
    description: Install recommended packages as well.
    type: bool
    default: false
  lock_timeout_s:
    description: How long to wait for other users of apt and dpkg, in seconds.
    type: int
    default: 300
  state:
    description:
      - V(absent) purges the packages that this set brought, with what only they needed, and removes its holds, pins,
        source and key. What others had under the names of these files, or in other entries of the same repository,
        comes back.
      - Kernel modules that came with the packages are left to
        O(railyard.gpu_fabric.kernel_modules#module:came_with_gone).
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: The driver stack is at one version and stays there
  railyard.gpu_fabric.package_set:
    name: gpu-fabric-driver
    repository:
      name: nvidia
      url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/
      key_url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
      key_fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
    packages:
      nvidia-open: 580.95.05
      nvidia-fabricmanager: 580.95.05
    pins:
      - packages: ["nvidia-*", "libnvidia-*"]
        version: 580.95.05*
    hold: true

- name: The distribution's RDMA tools are there
  railyard.gpu_fabric.package_set:
    name: gpu-fabric-ofed
    packages: {rdma-core: "", perftest: "", infiniband-diags: ""}
"""

RETURN = r"""
moves:
  description: The packages that the transaction installs, changes or removes, dependencies among them.
  returned: success
  type: list
  elements: dict
  sample:
    - name: nvidia-open
      before: null
      after: 580.95.05-1
versions:
  description: The version of each of O(packages) after the task, or as it would be in check mode.
  returned: success
  type: dict
  sample: {nvidia-open: 580.95.05-1}
held:
  description: The packages that are held for this set.
  returned: success
  type: list
  elements: str
  sample: [nvidia-open]
changed_paths:
  description: The configuration files of apt that differ from what is wanted.
  returned: success
  type: list
  elements: str
  sample: [/etc/apt/sources.list.d/nvidia.sources]
"""

import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._modules import Brought, Running
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._package_set import PackageSet, backend
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._packages import (
    PROTECTED,
    Pin,
    Repository,
    Request,
    checked,
)

# Modules that packages of the stack load as they are installed. Others that come meanwhile are somebody else's.
STACK = re.compile(r"(nvidia|gdrdrv|ib_|iw_|rdma|mlx5_ib|mlx_compat)")


def repository_from(params: dict[str, t.Any] | None) -> Repository | None:
    if params is None:
        return None
    values: dict[str, t.Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in params.items()
    }
    return Repository(**values)


def request_from(params: dict[str, t.Any]) -> Request:
    return checked(
        Request(
            name=params["name"],
            packages={name: str(pin or "") for name, pin in params["packages"].items()},
            repository=repository_from(params["repository"]),
            remove=tuple(params["remove"]),
            pins=tuple(Pin(tuple(pin["packages"]), pin["version"], pin["priority"]) for pin in params["pins"]),
            hold=params["hold"],
            protected=tuple(PROTECTED if params["protected"] is None else params["protected"]),
            recommends=params["recommends"],
        )
    )


def main() -> t.NoReturn:
    strings: dict[str, t.Any] = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "packages": {"type": "dict", "default": {}},
            "repository": {
                "type": "dict",
                "options": {
                    "name": {"type": "str", "required": True},
                    "url": {"type": "str", "required": True},
                    "suite": {"type": "str", "default": "/"},
                    "components": {**strings, "default": []},
                    "architectures": {**strings, "default": []},
                    "key": {"type": "str", "no_log": False},
                    "key_url": {"type": "str", "no_log": False},
                    "key_file": {"type": "path", "no_log": False},
                    "key_fingerprints": {**strings, "default": [], "no_log": False},
                },
            },
            "remove": {**strings, "default": []},
            "pins": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "packages": {**strings, "required": True},
                    "version": {"type": "str", "required": True},
                    "priority": {"type": "int", "default": 1001},
                },
            },
            "hold": {"type": "bool", "default": False},
            "protected": dict(strings),
            "recommends": {"type": "bool", "default": False},
            "lock_timeout_s": {"type": "int", "default": 300},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    try:
        with only_writer("package_set", module.check_mode):
            packages = PackageSet(
                request_from(module.params),
                backend(module.params["lock_timeout_s"]),
                StateFile("packages.json"),
                absent=module.params["state"] == "absent",
            )
            running = Running()
            brought = Brought([module.params["name"]], running, Cli(), StateFile("modules.json"))
            changed = bool(len(packages.changes))
            if changed and not module.check_mode:
                before = running.loaded()
                try:
                    packages.apply()
                finally:
                    brought.remember([name for name in running.loaded() - before if STACK.match(name)])
            elif not module.check_mode:
                packages.settle()
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(
        changed=changed,
        moves=[move._asdict() for move in packages.moves],
        versions=packages.versions,
        held=packages.held,
        changed_paths=packages.changed_paths,
        diff=packages.changes.diff(),
    )


if __name__ == "__main__":
    main()
