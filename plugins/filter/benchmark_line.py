# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: benchmark_line
short_description: One measurement as one sentence
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Names the host, what was measured against whom, the value, the threshold and the reason.
options:
  _input:
    description: One entry of the results of M(railyard.gpu_fabric.fabric_benchmark).
    type: dict
    required: true
  host:
    description: The host that measured.
    type: str
    required: true
positional: host
"""

EXAMPLES = r"""
- name: Say what is slow
  ansible.builtin.debug:
    msg: "{{ results | map('railyard.gpu_fabric.benchmark_line', inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The sentence, without a full stop.
  type: str
  sample: "gpu-01 to gpu-02: ib_write_bw on mlx5_3 (rail 2) reached 192 Gb/s, wanted 384 Gb/s (192 is below 384)"
"""

import typing as t

from ansible.errors import AnsibleFilterError


def benchmark_line(result: t.Any, host: str) -> str:
    if not isinstance(result, dict) or "test" not in result:
        raise AnsibleFilterError(
            f"The railyard.gpu_fabric.benchmark_line input must be a benchmark result, not {type(result).__name__}"
        )
    unit = result["unit"]
    value = "nothing" if result["value"] is None else f"{result['value']:g} {unit}"
    wanted = "no threshold" if result["threshold"] is None else f"wanted {result['threshold']:g} {unit}"
    where = f"{host} to {result['peer']}" if result.get("peer") else host
    rail = "" if result.get("rail") is None else f" (rail {result['rail']})"
    return f"{where}: {result['test']} on {result['subject']}{rail} reached {value}, {wanted} ({result['detail']})"


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"benchmark_line": benchmark_line}
