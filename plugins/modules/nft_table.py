#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nft_table
short_description: One nftables table, loaded now and at every boot
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Owns one table and nothing else of the packet filter. The tables of others are neither read nor changed.
  - Compares what the kernel has with what O(rules) would give, both as C(nft) itself prints them, so a rule that
    somebody changed by hand is seen and mended. The wanted rules are tried in an empty network namespace first;
    rules that C(nft) refuses change nothing.
  - The new table replaces the old one in one transaction, so there is no moment without a filter.
  - A systemd unit loads the file at boot, after C(nftables.service), whose configuration may flush all tables, and
    again whenever that service is reloaded or restarted.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  family:
    description: Address family of the table.
    type: str
    choices: [inet, ip, ip6]
    default: inet
  name:
    description: Name of the table.
    type: str
    required: true
  rules:
    description:
      - What stands between the braces of the table.
      - Required where O(state=present).
    type: str
  path:
    description: File in which the table is kept.
    type: path
    default: /etc/gpu_fabric/firewall.nft
  unit:
    description: Name of the systemd unit that loads it at boot.
    type: str
    default: gpu-fabric-firewall.service
  state:
    description:
      - V(absent) removes the table, its file and its unit, or gives back what somebody else had in files of those
        names.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Let only the rack in
  railyard.gpu_fabric.nft_table:
    name: gpu_fabric
    rules: |
      chain input {
        type filter hook input priority filter; policy drop;
        ct state established,related accept
        iif lo accept
        ip saddr 10.0.0.0/24 accept
      }
"""

RETURN = r"""
table:
  description: The table as C(nft) lists it after the task, or would list it in check mode.
  returned: success
  type: str
"""

import os
import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet, ours
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import HEADER, Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._systemd import STARTED, STOPPED, UnitSet

UNITS = "/etc/systemd/system"
# What nft takes for a name, and what stands in a unit's command line as it is.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_UNIT = re.compile(r"[A-Za-z0-9:_.-]+\.service")
_PATH = re.compile(r"/[A-Za-z0-9_./+:@,=-]+")
UNIT = (
    HEADER
    + """\
[Unit]
Description=Packet filter of the GPU fabric
# The distribution's own service may begin with `flush ruleset`.
After=nftables.service
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service
Before=network-pre.target
Wants=network-pre.target
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={nft} -f {path}
ExecReload={nft} -f {path}
ExecStop=-{nft} delete table {table}

[Install]
WantedBy=sysinit.target
"""
)


def script(table: str, rules: str) -> str:
    """Return what replaces the table in one transaction; naming it first makes the deletion valid on a fresh host."""
    body = "".join(f"  {line}\n" if line.strip() else "\n" for line in rules.strip("\n").splitlines())
    return f"#!/usr/sbin/nft -f\n{HEADER}table {table}\ndelete table {table}\n\ntable {table} {{\n{body}}}\n"


# Loading and listing in one transaction would list the table before it is complete, so two commands share a namespace.
TRY = 'printf "%s" "$1" | nft -f - && nft --stateless list table $2'


def canonical(cli: Cli, table: str, text: str) -> str:
    """Return the table as ``nft`` prints it when it is loaded where it harms nobody."""
    tried = cli.run(["unshare", "--net", "sh", "-c", TRY, "sh", text, table], check=False)
    if tried.rc != 0:
        raise Failure(f"nft refuses the rules of table {table}; nothing was changed: {tried.stderr.strip()}")
    return tried.stdout


def loaded(cli: Cli, table: str) -> str | None:
    """Return the table as the kernel has it, without what its counters count; ``None`` where there is none."""
    if cli.which("nft") is None:
        return None
    listed = cli.run(["nft", "--stateless", "list", "table", *table.split()], check=False)
    if listed.rc == 0:
        return listed.stdout
    if "No such file or directory" in listed.stderr:
        return None
    raise Failure(f"Cannot read table {table}: {listed.stderr.strip()}")


def replace(cli: Cli, table: str, text: str | None) -> None:
    """Have the kernel's table be ``text``, or not be there."""
    if text is not None:
        cli.run(["nft", "-f", "-"], stdin=text)
    elif loaded(cli, table) is not None:
        cli.run(["nft", "delete", "table", *table.split()])


def checked(params: t.Mapping[str, t.Any]) -> str:
    """The table's family and name, where everything that goes into a script or a unit can stand there."""
    for option, pattern in (("name", _NAME), ("unit", _UNIT), ("path", _PATH)):
        if not pattern.fullmatch(params[option]):
            raise Failure(f"{option}: {params[option]!r} does not match {pattern.pattern}; nothing was changed")
    return f"{params['family']} {params['name']}"


def run(
    params: t.Mapping[str, t.Any], check_mode: bool, cli: Cli, originals: StateFile, units: str = UNITS
) -> dict[str, t.Any]:
    table, unit = checked(params), params["unit"]
    paths = (params["path"], f"{units}/{unit}")
    present = params["state"] == "present"
    nft = cli.which("nft")
    wanted_table = wanted_text = text_of_unit = None
    if present:
        if nft is None and not check_mode:
            raise Failure("There is no nft on this host; install the package nftables")
        wanted_text = script(table, params["rules"])
        text_of_unit = UNIT.format(nft=nft or "/usr/sbin/nft", path=params["path"], table=table)
        # Before the package is there, a dry run can only show the rules as they were written.
        wanted_table = canonical(cli, table, wanted_text) if nft else wanted_text
    entries = [ours(*item) for item in zip(paths, (wanted_text, text_of_unit))]
    files = FileSet(entries, cli, originals, check_mode)
    steps = files.plan()
    changes = files.changes
    # Where there is nothing to take away, there need not be a systemd either.
    service = {unit: STARTED if present else STOPPED} if present or os.path.lexists(paths[1]) else {}
    for change in UnitSet(service, [], cli, check_mode=True, strict=not check_mode).changes:
        changes.compare(f"unit {unit}", change.before, change.after)
    present_table = loaded(cli, table)
    reload = changes.compare(f"table {table}", present_table, wanted_table)

    if not check_mode:
        if not present:
            UnitSet(service, [], cli, check_mode).apply()
        if reload:
            replace(cli, table, wanted_text)
        try:
            files.apply(steps)
        except Failure as exc:
            if reload:
                back = present_table and f"table {table}\ndelete table {table}\n{present_table}"
                replace(cli, table, back)
            raise Failure(f"{exc}. The table is as it was before, too", **exc.details) from exc
        if files.changed_paths:
            cli.run(["systemctl", "daemon-reload"])
        if present:
            # Started, it comes back with nftables.service even before the next boot.
            UnitSet(service, [], cli, check_mode).apply()
        now = loaded(cli, table)
        if now != wanted_table:
            raise Failure(f"The kernel has another table {table} than was loaded: {now!r}")
    return {"changed": len(changes) > 0, "diff": changes.diff(), "table": wanted_table or ""}


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "family": {"type": "str", "choices": ["inet", "ip", "ip6"], "default": "inet"},
            "name": {"type": "str", "required": True},
            "rules": {"type": "str"},
            "path": {"type": "path", "default": "/etc/gpu_fabric/firewall.nft"},
            "unit": {"type": "str", "default": "gpu-fabric-firewall.service"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ["rules"])],
        supports_check_mode=True,
    )
    try:
        with only_writer("nft_table", module.check_mode):
            result = run(module.params, module.check_mode, Cli(), StateFile("files.json"))
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
