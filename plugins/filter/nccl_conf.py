# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nccl_conf
short_description: NCCL variables as the text of an nccl.conf
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Renders variables in the order given, and refuses what NCCL's own parser would not read back to the same values.
options:
  _input:
    description: The variables, by name.
    type: dict
    required: true
"""

EXAMPLES = r"""
text: "{{ {'NCCL_IB_HCA': '=mlx5_0:1,mlx5_1:1'} | railyard.gpu_fabric.nccl_conf }}"
"""

RETURN = r"""
_value:
  description: The content of the file.
  type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.nccl_conf import render


def nccl_conf(env: t.Mapping[str, t.Any]) -> str:
    if not hasattr(env, "items"):
        raise AnsibleFilterError(f"nccl_conf: a mapping of variables is needed, not {type(env).__name__}")
    try:
        return render(env)
    except ValueError as exc:
        raise AnsibleFilterError(f"nccl_conf: {exc}") from exc


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"nccl_conf": nccl_conf}
