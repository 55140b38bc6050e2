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
  - Reads back what systemd will give and what each process has. Where a drop-in of a later name gives a service
    another limit, everything that was written is taken back. Files of C(limits.d) of a later name are found beforehand.
  - A kernel that does not let root raise hard limits (no C(CAP_SYS_RESOURCE), as in many containers) is no failure.
    RV(clamped) then lists what is lower than wanted. The file of pam_limits has only what can be had, for pam_limits
    refuses every login for which it cannot set a limit.
  - For the same reason a C(nofile) above C(fs.nr_open) is refused; in check mode, where an earlier task may be the one
    that raises it, it gives a warning.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
options:
  limits:
    description:
      - V(unlimited) or a number, by name of the limit (V(memlock) in bytes, V(nofile), V(stack) in bytes, V(nproc)).
    type: dict
    default: {memlock: unlimited, nofile: 1048576}
  services:
    description:
      - Services that get the limits, with or without V(.service); those that are not installed are passed over.
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

import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _limits
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._files import FileSet, ours
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._locks import only_writer

_SERVICE = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?")
# What starts logins, and so bounds what they can have.
_LOGIN_SERVICES = ("ssh.service", "sshd.service")


class Service(t.NamedTuple):
    """A service that exists: its own name (not an alias) and its main process, 0 where systemd knows none."""

    unit: str
    pid: int
    active: bool
    #: Soft and hard limit at its next start, by kind, in systemd's words.
    told: dict[str, tuple[str, str]]
    drop_ins: list[str]


def find_services(cli: Cli, names: t.Sequence[str], kinds: t.Iterable[str] = _limits.KINDS) -> list[Service]:
    """Return the named services that are installed, each once, by one question to systemd."""
    if not names:
        return []
    units = [name if name.endswith(".service") else f"{name}.service" for name in names]
    for name, unit in zip(names, units):
        if not _SERVICE.fullmatch(unit[: -len(".service")]):
            raise Failure(f"services: {name!r} is no service; of a template, name the instances, such as slurmd@1")
    labels = {kind: f"Limit{_limits.KINDS[kind][0]}" for kind in kinds}
    properties = ["Id", "LoadState", "ActiveState", "MainPID", "DropInPaths"]
    properties += [f"{label}{end}" for label in labels.values() for end in ("Soft", "")]
    answer = cli.run(["systemctl", "show", f"--property={','.join(properties)}", "--", *units]).stdout
    found = {}
    for block in answer.split("\n\n"):
        told = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if told.get("LoadState") == "loaded":
            found[told["Id"]] = Service(
                told["Id"],
                int(told.get("MainPID") or 0),
                told.get("ActiveState") == "active",
                {kind: (told.get(f"{label}Soft", ""), told.get(label, "")) for kind, label in labels.items()},
                told.get("DropInPaths", "").split(),
            )
    return [found[unit] for unit in sorted(found)]


class ServiceLimits:
    """The files and the processes of one call."""

    def __init__(
        self, params: t.Mapping[str, t.Any], check_mode: bool, cli: Cli, state: StateFile, root: str = "/"
    ) -> None:
        self.cli = cli
        self.check_mode = check_mode
        self.present = params["state"] == "present"
        self.names = params["services"]
        self.wanted = _limits.wanted_limits(params["limits"])
        self.warnings: list[str] = []
        self.clamped: list[str] = []
        self.services = find_services(cli, self.names, self.wanted)
        self.may_raise = _limits.may_raise_limits()
        contents = {}
        if self.present:
            self._judge_nofile()
            logins = self._logins()
            beaten = _limits.login_overrides(logins, root)
            if beaten:
                raise Failure(
                    f"Nothing was changed. In a login, {'; '.join(beaten)}. Remove the lines from the file, or give it "
                    f"a name before {_limits.LOGIN_FILE}"
                )
            contents = _limits.files(self.wanted, logins, [service.unit for service in self.services])
        # A file of an earlier run that no longer has a service goes back to what it was.
        texts: dict[str, str | None] = dict.fromkeys(sorted(state.load()))
        texts.update({f"{root.rstrip('/')}{path}": content for path, content in contents.items()})
        self.files = FileSet([ours(*item) for item in texts.items()], cli, state, check_mode)

    def _judge_nofile(self) -> None:
        value, ceiling = self.wanted.get("nofile"), _limits.nofile_ceiling()
        if value is None or 0 < value <= ceiling:
            return
        said = (
            f"nofile {_limits.shown(value)} is more than the kernel lets any process have (fs.nr_open = {ceiling}), "
            "and a login fails where its limits cannot be set. Lower gpu_fabric_nofile, or raise fs.nr_open in "
            "gpu_fabric_sysctl"
        )
        if value > 0 and self.check_mode:
            self.warnings.append(said)
        else:
            raise Failure(f"Nothing was changed: {said}")

    def _logins(self) -> dict[str, int]:
        if self.may_raise:
            return self.wanted
        pids = [1, *(service.pid for service in self.services if service.unit in _LOGIN_SERVICES and service.pid)]
        given = [limits for limits in map(_limits.limits_of, pids) if limits is not None]
        logins = _limits.login_limits(self.wanted, given)
        for kind, value in logins.items():
            if value != self.wanted[kind]:
                wanted = _limits.shown(self.wanted[kind])
                self.clamped.append(f"logins: {kind} {_limits.shown(value)}, wanted {wanted}")
        return logins

    def told_otherwise(self, services: t.Sequence[Service]) -> list[tuple[Service, str, str]]:
        """(service, kind, what it has at its next start) where that is not what is wanted."""
        found = []
        for service in services if self.present else ():
            for kind, value in self.wanted.items():
                wanted = "infinity" if value == -1 else str(value)
                soft, hard = service.told[kind]
                if (soft, hard) != (wanted, wanted):
                    found.append((service, kind, hard if soft == hard else f"{soft}:{hard}"))
        return found

    def todo(self) -> list[tuple[Service, str, _limits.Limit]]:
        """The limits of running processes that differ from the best that can be had."""
        steps = []
        for service in self.services if self.present else ():
            present = _limits.limits_of(service.pid) if service.pid else None
            if service.active and not service.pid:
                self.warnings.append(
                    f"{service.unit} runs, and systemd knows no main process of it: what runs now keeps its limits "
                    "until the service is restarted"
                )
            if present is None:
                continue
            for kind, value in self.wanted.items():
                limit = _limits.reachable(value, present[kind], self.may_raise)
                if limit.hard != value:
                    wanted = _limits.Limit(value, value)
                    self.clamped.append(f"{service.unit}: {kind} {limit}, wanted {wanted}")
                if self.files.changes.compare(f"{service.unit} {kind}", str(present[kind]), str(limit)):
                    steps.append((service, kind, limit))
        return steps

    def apply(self) -> None:
        steps = self.files.plan()
        for service, kind, told in self.told_otherwise(self.services):
            wanted = "infinity" if self.wanted[kind] == -1 else str(self.wanted[kind])
            self.files.changes.compare(f"{service.unit} {kind} at its next start", told, wanted)
        processes = self.todo()
        if self.check_mode:
            return
        if not self.files.changes:
            self.files.settle()
            return
        self.files.apply(steps)
        self.cli.run(["systemctl", "daemon-reload"])
        self._judge_drop_ins()
        for service, kind, limit in processes:
            _limits.set_limit(service.pid, kind, limit)
        self.read_back(processes)

    def _judge_drop_ins(self) -> None:
        """systemd itself says who wins; where it is not us, nothing of ours stays."""
        beaten = []
        for service, kind, told in self.told_otherwise(find_services(self.cli, self.names, self.wanted)):
            later = [path for path in service.drop_ins if path.rpartition("/")[2] > _limits.DROP_IN]
            label = f"Limit{_limits.KINDS[kind][0]}"
            beaten.append(f"{service.unit} has {label}={told} of {', '.join(later) or 'no drop-in that is known'}")
        if beaten:
            said = self.files.undo()
            self.cli.run(["systemctl", "daemon-reload"])
            raise Failure(
                f"Limits do not take: {'; '.join(beaten)}, and not what is wanted. Remove the line from the file of "
                f"the later name. {said}"
            )

    def read_back(self, processes: t.Sequence[tuple[Service, str, _limits.Limit]]) -> None:
        wrong = []
        for service, kind, limit in processes:
            now = _limits.limits_of(service.pid)
            if now is not None and now[kind] != limit:
                wrong.append(
                    f"{service.unit} (process {service.pid}) has {kind} {now[kind]} after it was set to {limit}"
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
        with only_writer("service_limits", module.check_mode):
            limits = ServiceLimits(module.params, module.check_mode, Cli(), StateFile("limits_files.json"))
            limits.apply()
            services = limits.report()
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    for sentence in limits.warnings:
        module.warn(sentence)
    changes = limits.files.changes
    module.exit_json(changed=len(changes) > 0, diff=changes.diff(), services=services, clamped=limits.clamped)


if __name__ == "__main__":
    main()
