# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress
import os
import secrets
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import (
    host_directories,
    rack_outputs,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.bundle_intent import translate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import BY_NAME
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.redaction import Redactor

display = Display()

# What lies in them is not looked into.
_PACKED = (".gz", ".tgz", ".xz", ".bz2", ".zst", ".zip", ".7z", ".tar")
_POOL = "gpu_fabric_rail_ipv4"
_POOLS = (_POOL, "gpu_fabric_rail_ipv6", "gpu_fabric_rail_subnets", "gpu_fabric_ipoib", "gpu_fabric_ib_partitions")


def entries(bundle: Path) -> t.Iterator[Path]:
    """Everything below a folder, deepest first; links are named and not followed."""
    for directory, folders, files in os.walk(bundle, topdown=False):
        for name in sorted([*folders, *files]):
            yield Path(directory) / name


def contents(bundle: Path) -> t.Iterator[tuple[Path, bytes]]:
    for path in entries(bundle):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


def packed(bundle: Path) -> list[str]:
    return sorted(path.relative_to(bundle).as_posix() for path in entries(bundle) if path.suffix in _PACKED)


def networks_in(value: t.Any) -> t.Iterator[str]:
    """Every network that a value of the intent names, however deep."""
    if isinstance(value, dict):
        for part in value.values():
            yield from networks_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from networks_in(part)
    elif isinstance(value, str) and "/" in value:
        try:
            yield str(ipaddress.ip_network(value, strict=False))
        except ValueError:
            return


def place_pools(bundle: Path, redactor: Redactor) -> None:
    """Keep the places in a pool from which a plan counts.

    A pool that the intent leaves to its default is written down, because it is another one afterwards. Where there is
    no intent, what lies in the default pool stays there and nothing else comes into it.
    """
    outputs = rack_outputs(bundle)
    hosts = outputs["inventory"].get("hosts", {}).values()
    said = [translate(variables).said for variables in (outputs["vars"], *hosts)]
    default = BY_NAME[_POOL].default
    if not any(_POOL in variables for variables in said):
        file = bundle / "vars.yml"
        text = file.read_bytes() if file.is_file() and not file.is_symlink() else None
        if text is not None and (outputs["vars"] or text.strip() in (b"", b"{}", b"---")):
            start = text.rstrip() + b"\n" if outputs["vars"] else b""
            file.write_bytes(start + f"{_POOL}: {default}\n".encode())
            redactor.networks.keep_inside(default)
        else:
            redactor.networks.border(default)
    for variables in said:
        for name in _POOLS:
            for network in networks_in(variables.get(name)):
                redactor.networks.keep_inside(network)


def redact(bundle: Path, names: t.Iterable[str], secret: bytes) -> int:
    """Rewrite a bundle in place: contents, targets of links and names. Returns how many entries changed."""
    redactor = Redactor({*names, *host_directories(bundle)}, (), secret)
    place_pools(bundle, redactor)
    for path, data in contents(bundle):
        redactor.learn(path.relative_to(bundle).as_posix(), data)
    changed = 0
    for path in list(entries(bundle)):
        place = path.relative_to(bundle).as_posix()
        renewed = False
        if path.is_symlink():
            old = os.readlink(path)
            target = "/".join(redactor.name(part, place) for part in old.split("/"))
            if target != old:
                path.unlink()
                path.symlink_to(target)
                renewed = True
        elif path.is_file():
            data = path.read_bytes()
            fresh = redactor.data(data, place)
            if fresh != data:
                path.write_bytes(fresh)
                renewed = True
        name = redactor.name(path.name, place)
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
        unread = packed(bundle)
        if unread:
            display.warning(f"Nothing was replaced inside {', '.join(unread)}: unpack or remove them, and redact again")
        result.update(changed=bool(changed), entries=changed, unread=unread)
        return result
