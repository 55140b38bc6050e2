#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle_redact
short_description: Take what identifies a rack out of a support bundle
version_added: 0.1.0
author: [Railyard maintainers (@railyard)]
description:
  - Replaces host names, addresses, GUIDs, hardware addresses, UUIDs and serial numbers in all files of a bundle and in
    their names, in place.
  - The same original has the same replacement everywhere, and addresses of one subnet stay in one subnet, so that the
    bundle can still be diagnosed. The replacements follow from a random key that is not kept.
  - This is an action plugin. It runs on the controller.
attributes:
  check_mode:
    support: full
    description: Says that the bundle would change and leaves it.
  diff_mode:
    support: none
    description: A difference would show what is to be hidden.
options:
  bundle:
    description: Folder of the bundle.
    type: path
    required: true
  names:
    description: Host names to hide besides those that the hosts give themselves, as in the inventory.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Make a bundle that can be passed on
  railyard.gpu_fabric.bundle_redact:
    bundle: /srv/bundles/rack-7
    names: "{{ groups['all'] }}"
"""

RETURN = r"""
entries:
  description: How many files, links and folders were changed.
  type: int
  returned: success
unread:
  description: Archives and compressed files of the bundle, in which nothing was replaced.
  type: list
  elements: str
  returned: success
"""
