# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: batch_group
short_description: The name of a group that says how many hosts a run takes at a time
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Makes of C(gpu_fabric_batch) a group's name, from which P(railyard.gpu_fabric.batches#filter) reads it again.
  - A value that C(serial) cannot take gives the whole rack. The plan refuses it before anything is changed.
options:
  _input:
    description: A number of hosts, a share, or a list of them.
    type: raw
    required: true
"""

EXAMPLES = r"""
- ansible.builtin.group_by:
    key: "{{ [1, '25%', '100%'] | railyard.gpu_fabric.batch_group }}"
"""

RETURN = r"""
_value:
  description: The name of the group.
  type: str
"""

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import batches


def batch_group(value: t.Any) -> str:
    return batches.group(value)


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"batch_group": batch_group}
