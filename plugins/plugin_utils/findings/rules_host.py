# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the run may change the host at all."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView

NOT_ROOT = define(
    "host",
    "RF-HOST-NOT-ROOT",
    title="The run is not root on the host",
    severity="fail",
    phase="preflight",
    means="Packages, modules, links and files below /etc and /var/lib need root: the run would end with 'Permission "
    "denied' at the first of them. Facts that only root can read (PCI capabilities, firmware settings) are missing.",
    looks_at="The effective user of the process that read the facts (/proc/self/status).",
    cause="The inventory names a user other than root and no privilege escalation.",
    remedy="Set ansible_become: true for the group (and ansible_become_password, where sudo asks for one).",
    check="ansible GROUP -m ansible.builtin.command -a 'id -u' prints 0.",
    source="documentation of Ansible: privilege escalation",
)


@host_rule(NOT_ROOT)
def not_root(host: HostView) -> t.Iterator[Finding]:
    user = host.get("host", "euid")
    if isinstance(user, int) and user != 0:
        yield NOT_ROOT.on(
            host,
            f"{host.name}: the run has the effective user id {user}, 0 (root) wanted; set ansible_become: true",
            device="privileges",
            evidence=[f"/proc/self/status: effective user id {user}"],
        )
