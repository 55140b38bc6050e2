# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import secrets
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.redaction import Redactor, host_names, serials


def entries(bundle: Path) -> t.Iterator[Path]:
    """Everything below a folder, deepest first; links are named and not followed."""
    for directory, folders, files in os.walk(bundle, topdown=False):
        for name in sorted([*folders, *files]):
            yield Path(directory) / name


def contents(bundle: Path) -> t.Iterator[tuple[Path, bytes]]:
    for path in entries(bundle):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


def redact(bundle: Path, names: t.Iterable[str], secret: bytes) -> int:
    """Rewrite a bundle in place: contents, targets of links and names. Returns how many entries changed."""
    known, numbers = set(names), set()
    for path, data in contents(bundle):
        if b"\0" not in data:
            text, place = data.decode("latin-1"), path.relative_to(bundle).as_posix()
            known |= host_names(place, text)
            numbers |= serials(place, text)
    redactor = Redactor(known, numbers, secret)
    changed = 0
    for path in list(entries(bundle)):
        place = path.relative_to(bundle).as_posix()
        renewed = False
        if path.is_symlink():
            target = redactor.text(os.readlink(path))
            if target != os.readlink(path):
                path.unlink()
                path.symlink_to(target)
                renewed = True
        elif path.is_file():
            data = path.read_bytes()
            fresh = redactor.data(data, place)
            if fresh != data:
                path.write_bytes(fresh)
                renewed = True
        name = redactor.name(path.name)
        if name != path.name:
            path.rename(path.with_name(name))
            renewed = True
        changed += renewed
    return changed


class ActionModule(ActionBase):
    """Documented in plugins/modules/bundle_redact.py. Runs on the controller and touches no host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result = super().run(tmp, task_vars)
        _valid, args = self.validate_argument_spec(
            argument_spec={
                "bundle": {"type": "path", "required": True},
                "names": {"type": "list", "elements": "str", "required": True},
            }
        )
        bundle = Path(args["bundle"]).resolve()
        if not bundle.is_dir():
            raise AnsibleActionFail(f"{bundle}: no such folder; bundle names the folder of a support bundle")
        if self._task.check_mode:
            result.update(changed=True)
            return result
        try:
            changed = redact(bundle, args["names"], secrets.token_bytes(32))
        except OSError as error:
            raise AnsibleActionFail(
                f"{bundle}: not every file could be redacted ({error}); do not pass the bundle on, and record it again"
            ) from error
        result.update(changed=bool(changed), entries=changed)
        return result
