#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: service_limits
short_description: Resource limits of logins, of systemd's defaults and of running services
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - RDMA pins memory, so C(memlock) must be unlimited where jobs run. C(limits.conf) reaches logins only; what a daemon
    starts (slurmd, containerd, kubelet) has the limits that systemd gave the daemon.
  - Writes the file of pam_limits, the defaults of both systemd managers and one drop-in per named service that
    exists, and sets the limits of the running main processes in place with C(prlimit). No service is restarted.
  - Reads back what systemd will give and what each process has.
  - A kernel that does not let root raise hard limits (no C(CAP_SYS_RESOURCE), as in many containers) is no failure.
    RV(clamped) then lists what is lower than wanted.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  limits:
    description:
      - V(unlimited) or a number, by name of the limit (V(memlock) in bytes, V(nofile), V(stack) in bytes, V(nproc)).
    type: dict
    default: {memlock: unlimited, nofile: 1048576}
  services:
    description: Services that get the limits; those that are not installed are passed over.
    type: list
    elements: str
    default: []
  state:
    description: V(absent) restores the files as they were. Running processes keep their limits until they restart.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Jobs may pin memory, whoever starts them
  railyard.gpu_fabric.service_limits:
    limits:
      memlock: unlimited
      nofile: 1048576
    services: [sshd, slurmd, containerd]
"""

RETURN = r"""
services:
  description: The limits of the main process of every named service that runs, as text.
  returned: success
  type: dict
  sample: {ssh.service: {memlock: unlimited, nofile: "1048576"}}
clamped:
  description: Limits that are lower than wanted because the kernel does not let root raise them.
  returned: success
  type: list
  elements: str
  sample: ["ssh.service: memlock 8388608, wanted unlimited"]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _limits
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import ORIGINAL, PRESENT, FileSet, Wanted
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile


class Service(t.NamedTuple):
    """A service that exists: its own name (not an alias) and its main process, 0 when it does not run."""

    unit: str
    pid: int


def find_services(cli: Cli, names: t.Sequence[str]) -> list[Service]:
    """Return the named services that are installed, each once, by one question to systemd."""
    if not names:
        return []
    units = [name if name.endswith(".service") else f"{name}.service" for name in names]
    answer = cli.run(["systemctl", "show", "--property=Id,LoadState,MainPID", "--", *units]).stdout
    found = {}
    for block in answer.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if properties.get("LoadState") == "loaded":
            found[properties["Id"]] = Service(properties["Id"], int(properties.get("MainPID") or 0))
    return [found[unit] for unit in sorted(found)]


class ServiceLimits:
    """The files and the processes of one call."""

    def __init__(self, module: AnsibleModule) -> None:
        self.cli = Cli()
        self.check_mode = module.check_mode
        self.present = module.params["state"] == "present"
        self.wanted = _limits.wanted_limits(module.params["limits"])
        self.services = find_services(self.cli, module.params["services"])
        self.state = StateFile("limits_files.json")
        contents = _limits.files(self.wanted, [service.unit for service in self.services]) if self.present else {}
        entries = [Wanted(path, PRESENT, content, mode=0o644) for path, content in contents.items()]
        # A file of an earlier run that no longer has a service goes back to what it was.
        entries += [Wanted(path, ORIGINAL) for path in sorted(set(self.state.load()) - set(contents))]
        self.files = FileSet(entries, self.cli, self.state, self.check_mode)
        self.may_raise = _limits.may_raise_limits()
        self.clamped: list[str] = []

    def todo(self) -> list[tuple[Service, str, _limits.Limit]]:
        """The limits of running processes that differ from the best that can be had."""
        steps = []
        for service in self.services if self.present else ():
            present = _limits.limits_of(service.pid) if service.pid else None
            for kind, value in self.wanted.items() if present else ():
                limit = _limits.reachable(value, present[kind], self.may_raise)
                if limit.hard != value:
                    wanted = _limits.Limit(value, value)
                    self.clamped.append(f"{service.unit}: {kind} {limit}, wanted {wanted}")
                if self.files.changes.compare(f"{service.unit} {kind}", str(present[kind]), str(limit)):
                    steps.append((service, kind, limit))
        return steps

    def apply(self) -> None:
        steps = self.files.plan()
        processes = self.todo()
        if self.check_mode or not self.files.changes:
            return
        if steps:
            self.files.apply(steps)
            self.cli.run(["systemctl", "daemon-reload"])
        for service, kind, limit in processes:
            _limits.set_limit(service.pid, kind, limit)
        self.read_back(processes)

    def read_back(self, processes: t.Sequence[tuple[Service, str, _limits.Limit]]) -> None:
        wrong = []
        for service, kind, limit in processes:
            now = _limits.limits_of(service.pid)
            if now is not None and now[kind] != limit:
                wrong.append(
                    f"{service.unit} (process {service.pid}) has {kind} {now[kind]} after it was set to {limit}"
                )
        names = {kind: f"Limit{_limits.KINDS[kind][0]}" for kind in self.wanted}
        for service in self.services if self.present else ():
            argv = ["systemctl", "show", f"--property={','.join(names.values())}", service.unit]
            shown = dict(line.split("=", 1) for line in self.cli.run(argv).stdout.splitlines() if "=" in line)
            for kind, value in self.wanted.items():
                if shown.get(names[kind]) != ("infinity" if value == -1 else str(value)):
                    wrong.append(
                        f"{service.unit}: systemd has {names[kind]}={shown.get(names[kind])}, a later drop-in wins"
                    )
        if wrong:
            raise Failure("Limits did not take: " + "; ".join(wrong))

    def report(self) -> dict[str, dict[str, str]]:
        found = {service.unit: _limits.limits_of(service.pid) for service in self.services if service.pid}
        return {
            unit: {kind: str(limits[kind]) for kind in self.wanted}
            for unit, limits in found.items()
            if limits is not None
        }


def main() -> t.NoReturn:
    module = AnsibleModule(
        argument_spec={
            "limits": {"type": "dict", "default": {"memlock": "unlimited", "nofile": 1048576}},
            "services": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    try:
        limits = ServiceLimits(module)
        limits.apply()
        services = limits.report()
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    changes = limits.files.changes
    module.exit_json(changed=len(changes) > 0, diff=changes.diff(), services=services, clamped=limits.clamped)


if __name__ == "__main__":
    main()
