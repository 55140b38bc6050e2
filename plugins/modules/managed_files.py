#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Bring a set of files to the wanted content in one call
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Writes, changes and removes files and directories that belong together, in one call and with one diff.
  - Every content is validated before the first file is written. When one cannot be written, those written before it
    are taken back.
  - What a file held before this module first wrote it is kept under C(/var/lib/gpu_fabric), so that
    O(files[].original) can bring it back.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  files:
    description:
      - The files, each with exactly one of O(files[].content), O(files[].directory), O(files[].absent) and
        O(files[].original).
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path. A symbolic link is followed.
        type: path
        required: true
      content:
        description: The whole content of the file.
        type: str
      directory:
        description: The path is a directory. Its parents are made as well.
        type: bool
        default: false
      absent:
        description: The file is removed. A directory is removed where it is empty.
        type: bool
        default: false
      original:
        description:
          - What the file held before this module first wrote it is restored.
          - A file that was not there is removed.
        type: bool
        default: false
      owner:
        description: Name or number of the owner. Without it, an existing file keeps its owner.
        type: str
      group:
        description: Name or number of the group. Without it, an existing file keeps its group.
        type: str
      mode:
        description: Permission bits as octal digits. Without it, an existing file keeps them; a new one gets V(0644), a
          directory V(0755).
        type: str
      validate:
        description:
          - A command as a list of words, in which C(%s) stands for a file with the new content.
          - A status other than 0 refuses the whole call. In check mode a command that is not installed gives a warning.
        type: list
        elements: str
  name:
    description:
      - Names the set. A file of an earlier call under the same name that O(files) does not give any more, as when its
        path was changed, goes back to what it was before.
    type: str
  backup:
    description: Keep the previous content of each changed file beside it, under a name with the time.
    type: bool
    default: false
seealso:
  - module: railyard.gpu_fabric.sysctl_set
  - module: railyard.gpu_fabric.kernel_modules
"""

EXAMPLES = r"""
- name: Limits hold for logins and for slurmd
  railyard.gpu_fabric.managed_files:
    files:
      - path: /etc/security/limits.d/90-gpu-fabric.conf
        content: |
          * soft memlock unlimited
          * hard memlock unlimited
      - path: /etc/systemd/system/slurmd.service.d/90-gpu-fabric.conf
        content: |
          [Service]
          LimitMEMLOCK=infinity
  register: __limits

- name: NCCL has its variables, wherever the file is; at an earlier path the old file comes back
  railyard.gpu_fabric.managed_files:
    name: nccl
    files:
      - path: "{{ path }}"
        content: "{{ text }}"

- name: A rule set is checked before it is written
  railyard.gpu_fabric.managed_files:
    files:
      - path: /etc/nftables.d/gpu-fabric.nft
        content: "{{ rules }}"
        mode: "0600"
        validate: [nft, --check, --file, "%s"]
"""

RETURN = r"""
changed_paths:
  description: The paths that differ from what is wanted, in the order given.
  returned: success
  type: list
  elements: str
  sample: [/etc/security/limits.d/90-gpu-fabric.conf]
backups:
  description: Where the previous contents are kept, by path.
  returned: success
  type: dict
  sample: {}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import (
    ORIGINAL,
    PRESENT,
    FileSet,
    Wanted,
    wanted_from,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer


def left_behind(earlier: t.Iterable[str], wanted: t.Sequence[Wanted]) -> list[Wanted]:
    """The files of earlier calls that are not given any more: each becomes what it was."""
    given = {item.path for item in wanted}
    return [Wanted(path, ORIGINAL) for path in earlier if path not in given]


def remember(sets: StateFile, name: str, wanted: t.Sequence[Wanted]) -> None:
    """Note which files the set has now; one without any is forgotten."""
    paths = sorted(item.path for item in wanted if item.kind == PRESENT)
    others = {key: value for key, value in sets.load().items() if key != name}
    sets.save({**others, name: paths} if paths else others)


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str"},
                    "directory": {"type": "bool", "default": False},
                    "absent": {"type": "bool", "default": False},
                    "original": {"type": "bool", "default": False},
                    "owner": {"type": "str"},
                    "group": {"type": "str"},
                    "mode": {"type": "str"},
                    "validate": {"type": "list", "elements": "str"},
                },
            },
            "name": {"type": "str"},
            "backup": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    backups: dict[str, str] = {}
    try:
        with only_writer("managed_files", module.check_mode):
            wanted = [wanted_from(entry) for entry in module.params["files"]]
            sets = StateFile("file_sets.json")
            wanted += left_behind(sets.load().get(module.params["name"], []), wanted)
            files = FileSet(wanted, Cli(), StateFile("files.json"), module.check_mode)
            steps = files.plan()
            if steps and not module.check_mode:
                if module.params["backup"]:
                    backups = {
                        step.path: module.backup_local(step.path)
                        for step in steps
                        if step.before is not None and step.rewrites
                    }
                files.apply(steps)
            elif not module.check_mode:
                files.settle()
            if module.params["name"] and not module.check_mode:
                remember(sets, module.params["name"], wanted)
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    for warning in files.warnings:
        module.warn(warning)
    module.exit_json(changed=bool(steps), changed_paths=files.changed_paths, backups=backups, diff=files.changes.diff())


if __name__ == "__main__":
    main()
