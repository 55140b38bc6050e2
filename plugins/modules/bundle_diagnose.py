#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle_diagnose
short_description: Diagnose a rack from a support bundle
version_added: 0.1.0
author: [Railyard maintainers (@railyard)]
description:
  - Reads a support bundle (what C(playbooks/collect.yml) records of a rack), makes facts and plan of it and looks for
    everything the catalogue of findings knows, without contacting any host.
  - Writes C(report.json), C(report.html) and C(junit.xml), and fails where a finding of severity V(fail) exists.
  - This is an action plugin. It runs on the controller.
attributes:
  check_mode:
    support: full
    description: Diagnoses and writes no report.
  diff_mode:
    support: none
    description: A report is written anew each time.
options:
  bundle:
    description: Folder of the bundle, with one folder for each host.
    type: path
    required: true
  report_dir:
    description:
      - Folder for the report on the controller. Made where it does not exist.
      - By default beside the bundle, with its name and C(-report).
    type: path
"""

EXAMPLES = r"""
- name: Diagnose what a customer sent
  railyard.gpu_fabric.bundle_diagnose:
    bundle: /srv/bundles/rack-7
    report_dir: /srv/reports/rack-7
"""

RETURN = r"""
findings:
  description: Everything that was found, worst first.
  type: list
  elements: dict
  returned: success
report_json:
  description: Path of the report as data.
  type: str
  returned: success
report_html:
  description: Path of the report as a page.
  type: str
  returned: success
junit_xml:
  description: Path of the report as JUnit, one case for each finding.
  type: str
  returned: success
"""
