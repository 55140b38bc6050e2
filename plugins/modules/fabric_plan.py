#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_plan
short_description: Plan the whole rack from intent and facts
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Derives the desired state of every host of the play (devices and their roles, rails, addresses, quality of service,
    kernel parameters, limits, NCCL variables, package sets, firewall, thresholds) and what stands against it.
  - Reads each host's C(gpu_fabric_*) variables and the facts that M(railyard.gpu_fabric.fabric_facts) left. Hosts
    without facts are named in RV(ignore:plan.rack.unreachable) and left out.
  - Intent that cannot be used fails the task with every such variable, and nothing else is done.
  - Runs on the controller and executes nothing on any host. Use it with C(run_once).
attributes:
  check_mode:
    support: full
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    support: none
    description: Will return details on what has changed (or possibly needs changing in C(check_mode)) in diff mode.
options:
  phase:
    description:
      - Fail on findings of severity V(fail) that this phase, or one before it, gives.
      - Left out, findings are returned and none is fatal; M(railyard.gpu_fabric.fabric_verdict) judges them.
    type: str
    choices: [preflight, verify]
  group:
    description:
      - The inventory group that makes up the rack.
      - The number of a host, and with it its addresses, is its place among all members in natural order, whether they
        take part in the play or not. Where the group does not exist all hosts of the inventory are the rack.
    type: str
    default: gpu_nodes
seealso:
  - module: railyard.gpu_fabric.fabric_facts
  - module: railyard.gpu_fabric.fabric_verdict
"""

EXAMPLES = r"""
- name: The rack is planned
  railyard.gpu_fabric.fabric_plan:
  register: result
  run_once: true
"""

RETURN = r"""
plan:
  description: The plan, also as the fact C(gpu_fabric_plan). Its shape is that of docs/architecture.md.
  returned: success
  type: dict
"""
