#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_report
short_description: Write the record of a run as HTML, JSON and JUnit
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Puts facts, plan, findings and measurements of all hosts of the run into C(report.html), C(report.json) and
    C(junit.xml) on the controller.
  - This is an action plugin that runs on the controller only.
  - Writing the report is never a change, since it is the record of the run and no state of a host.
attributes:
  check_mode:
    support: full
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    support: none
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)) in diff mode.
options:
  directory:
    description: Where the files go, on the controller; made where it does not exist. Check mode writes nothing.
    type: path
    required: true
  title:
    description: Heading of the page.
    type: str
    default: GPU fabric
  hosts:
    description: The hosts of the run, reachable or not.
    type: list
    elements: str
    required: true
  complete:
    description: Whether a host that did not set C(gpu_fabric_run_complete) counts as failed.
    type: bool
    default: true
  outcomes:
    description:
      - Names of registered results. The message of the first that failed on a host says why the host stopped, and where
        one did and no host came to the end, the others count as stopped by it rather than as failed.
    type: list
    elements: str
    default: []
  remarks:
    description: Name of the registered result of M(railyard.gpu_fabric.fabric_verdict) that has remarks of each host.
    type: str
    default: ''
"""

EXAMPLES = r"""
- name: Write the report
  railyard.gpu_fabric.fabric_report:
    directory: reports
    hosts: "{{ groups.gpu_nodes }}"
"""

RETURN = r"""
path:
  description: The HTML page.
  returned: success
  type: str
verdict:
  description: V(pass), V(warn) or V(fail) for the whole rack.
  returned: success
  type: str
counts:
  description: Numbers of hosts, findings and measurements.
  returned: success
  type: dict
failed_hosts:
  description: Hosts that were unreachable or did not complete the run.
  returned: success
  type: list
  elements: str
"""
