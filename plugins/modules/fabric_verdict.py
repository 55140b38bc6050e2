#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_verdict
short_description: Stop a run, or warn, by what was found
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Sorts findings into those that stop the run and those that do not, prints the latter as warnings, and fails with one
    message that lists the former, each with host, device, what was seen and the remedy.
  - This is an action plugin. It runs on the controller and touches no host.
extends_documentation_fragment:
  - railyard.gpu_fabric._writes
attributes:
  check_mode:
    details:
      - This action changes nothing.
  diff_mode:
    support: none
    details:
      - This action changes nothing.
options:
  findings:
    description: The findings, as M(railyard.gpu_fabric.fabric_plan) gives them.
    type: list
    elements: dict
    default: []
  applied:
    description:
      - Names of the results that the layers' tasks register. At the end of a run they say what it did to this host; the
        facts and the plan of the host are those of the run. RV(remarks) are printed as warnings and stop nothing.
    type: list
    elements: str
    default: []
  hosts:
    description:
      - The hosts that go on with this run. Each then answers for its own findings only, and the first of them also for
        those of the rack and of hosts that are not in the run. Use C(any_errors_fatal), so that none goes on alone.
      - Without it, whichever host runs this answers for all.
    type: list
    elements: str
    default: []
  phases:
    description: The phases whose findings count.
    type: list
    elements: str
    default: [preflight]
  mending:
    description: Tags of the layers that this run applies. A finding that one of them sets right is a warning.
    type: list
    elements: str
    default: []
  removing:
    description:
      - The run takes away what the collection brought. Then nothing that is wrong with hardware or fabric stops it;
        every finding is a warning.
    type: bool
    default: false
  unchanged:
    description: Say in the message that nothing was changed so far.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: The rack is fit to be provisioned
  railyard.gpu_fabric.fabric_verdict:
    findings: "{{ gpu_fabric_plan.findings }}"
    hosts: "{{ ansible_play_hosts }}"
    mending: [rdma, security]
    unchanged: true
  any_errors_fatal: true
"""

RETURN = r"""
stops:
  description: The findings that stop the run, each as id, host and device.
  returned: always
  type: list
  elements: str
  sample: ["RF-LINK-RATE gpu-02 mlx5_3"]
warnings_count:
  description: How many findings were printed as warnings.
  returned: always
  type: int
  sample: 0
remarks:
  description:
    - Findings about the run itself, where O(applied) is given, such as values that a layer without its tag in this
      run has from an earlier one (RF-RUN-LEFT-BEHIND), and settings that a port has no place for (RF-RUN-UNSUPPORTED).
  returned: always
  type: list
  elements: dict
  sample: []
"""
