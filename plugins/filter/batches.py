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
  - Returns the first of the values of C(gpu_fabric_batch) as a list, or the whole rack where there is none.
  - A value that C(serial) cannot take gives the whole rack as well. The plan refuses it before anything is changed.
options:
  _input:
    description: The values of the hosts.
    type: list
    elements: raw
    required: true
"""

EXAMPLES = r"""
- hosts: gpu_nodes
  serial: "{{ groups.gpu_nodes | map('extract', hostvars, 'gpu_fabric_batch') | railyard.gpu_fabric.batches }}"
"""

RETURN = r"""
_value:
  description: What the play's C(serial) is.
  type: list
  elements: raw
"""

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import batches as planned


def batches(values: t.Iterable[t.Any]) -> list[t.Any]:
    return planned.batches(values)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"batches": batches}
