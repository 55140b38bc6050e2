# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: batches
short_description: The batches of hosts of a run, as serial takes them
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Reads them from the name of a group that P(railyard.gpu_fabric.batch_group#filter) made, for C(serial) is read
    before any host's variables are known. Without such a group it is the whole rack.
options:
  _input:
    description: The groups of the inventory.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Provision
  hosts: gpu_nodes
  serial: "{{ groups | railyard.gpu_fabric.batches }}"
"""

RETURN = r"""
_value:
  description: What the play's C(serial) is.
  type: list
  elements: raw
"""

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import batches as planned


def batches(groups: t.Iterable[str]) -> list[t.Any]:
    return planned.batches(groups)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"batches": batches}
