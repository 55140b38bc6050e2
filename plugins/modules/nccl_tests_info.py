#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_tests_info
short_description: Read the result of nccl-tests and judge it against a bandwidth
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Returns what C(all_reduce_perf) and the other programs of nccl-tests printed, of any version, or the file that they
    wrote with C(-J), as typed values.
  - Columns are found by their names, since their number and order changed with versions, collectives and options.
  - Asks no host, unlike the other info modules, because a benchmark is nothing to start by the way. Give the output as
    O(text), or the file or bundle that holds it as O(capture).
  - With O(minimum_busbw_gbps) the run is judged at its largest message. The average that nccl-tests prints is over all
    sizes and says little about a run that begins with small ones.
extends_documentation_fragment:
  - railyard.gpu_fabric._attributes
options:
  text:
    description: The output itself, for example RV(ansible.builtin.command#module:stdout) of the run.
    type: str
  capture:
    description:
      - A file that holds the output, or a support bundle.
      - In a bundle, C(nccl_tests.txt), C(nccl_tests.log), C(all_reduce_perf.txt) or C(nccl_tests.json) is read, of the
        rack, or of O(host).
    type: path
  host:
    description: The host whose folder of the bundle O(capture) is read instead of the rack's outputs.
    type: str
  minimum_busbw_gbps:
    description:
      - Bus bandwidth that the run has to reach, in gigabytes per second (GB/s), the unit of nccl-tests.
      - RV(passes) and RV(reasons) are returned when this is set.
    type: float
    aliases: [minimum_busbw_gbytes_s]
  judge:
    description: The number that O(minimum_busbw_gbps) is compared with.
    type: str
    default: largest
    choices:
      largest: The better one of the two bus bandwidths of the largest message.
      average: The average over all sizes, as nccl-tests prints it.
seealso:
  - module: railyard.gpu_fabric.nvidia_smi_info
"""

EXAMPLES = r"""
- name: Measure the collective bandwidth inside this host
  ansible.builtin.command:
    argv: [all_reduce_perf, -b, 1G, -e, 16G, -f, "2", -g, "8"]
  changed_when: false
  register: all_reduce

- name: Judge it
  railyard.gpu_fabric.nccl_tests_info:
    text: "{{ all_reduce.stdout }}\n"
    minimum_busbw_gbps: 430
  register: nccl

- name: The host is as fast as it has to be
  ansible.builtin.assert:
    that: nccl.passes
    fail_msg: "{{ nccl.reasons | join(' ') }}"

- name: Read a run that was recorded in a bundle
  railyard.gpu_fabric.nccl_tests_info:
    capture: /srv/cases/4711/bundle
  delegate_to: localhost
"""

RETURN = r"""
rows:
  description: The table, one entry a message size.
  returned: success
  type: list
  elements: dict
  contains:
    size_bytes:
      description: Size of the message in bytes.
      type: int
    out_of_place_time_us:
      description: Time in microseconds. The same with C(in_place) for this and the next three.
      type: float
    out_of_place_algbw_gbytes_s:
      description: Algorithm bandwidth in GB/s.
      type: float
    out_of_place_busbw_gbytes_s:
      description: Bus bandwidth in GB/s.
      type: float
    out_of_place_wrong:
      description: Number of wrong values. Absent when the run did not check them.
      type: int
  sample:
    - size_bytes: 17179869184
      count: 4294967296
      type: float
      redop: sum
      root: -1
      out_of_place_time_us: 70832.1
      out_of_place_algbw_gbytes_s: 242.54
      out_of_place_busbw_gbytes_s: 454.77
      out_of_place_wrong: 0
average_busbw_gbytes_s:
  description: Average bus bandwidth over all sizes in GB/s.
  returned: when the run finished
  type: float
  sample: 373.187
largest_busbw_gbytes_s:
  description: The better one of the two bus bandwidths of the largest message, in GB/s.
  returned: when there is a row
  type: float
  sample: 454.77
out_of_bounds_count:
  description: Number of wrong values in the whole run.
  returned: when the output names it
  type: int
  sample: 0
out_of_bounds_ok:
  description: Whether nccl-tests called that number good.
  returned: when the output names it
  type: bool
  sample: true
complete:
  description: Whether the run printed its average.
  returned: success
  type: bool
  sample: true
ranks:
  description: Number of ranks.
  returned: when the list of devices is whole
  type: int
  sample: 16
devices:
  description: The GPU of each rank.
  returned: success
  type: list
  elements: dict
  sample: [{"rank": 0, "group": 0, "pid": 85, "host": "gpu-01", "device": 0, "pci": "0000:cc:00.0", "name": "NVIDIA
  H200"}]
collective:
  description: The collective, when the output names it.
  returned: when the output names it
  type: str
  sample: all_reduce
config:
  description: Threads, sizes, step and iterations of the run.
  returned: when the output has it
  type: dict
  sample: {"threads": 1, "gpus_per_thread": 8, "minimum_bytes": 8, "maximum_bytes": 17179869184}
columns:
  description: Names of the table's columns as printed.
  returned: success
  type: list
  elements: str
  sample: [size, count, type, redop, root, time, algbw, busbw, "#wrong"]
summaries:
  description: The summary of each run, where the output holds several (nccl-tests built without MPI).
  returned: success
  type: list
  elements: dict
  sample: [{"run": 1, "out_of_bounds_count": 0, "out_of_bounds_ok": true, "average_busbw_gbytes_s": 373.187}]
nccl_version:
  description: Version of NCCL.
  returned: when the output names it
  type: str
  sample: 2.28.9
cuda_version:
  description: Version of CUDA that NCCL was built for.
  returned: when the output names it
  type: str
  sample: "12.9"
nccl_tests_version:
  description: Version of nccl-tests.
  returned: when the output names it
  type: str
  sample: 2.19.6
errors:
  description: Messages of failure, verbatim.
  returned: success
  type: list
  elements: str
  sample: []
passes:
  description: Whether the run finished, every value was right and the bandwidth reached O(minimum_busbw_gbps).
  returned: when O(minimum_busbw_gbps) is set
  type: bool
  sample: true
reasons:
  description: Why the run does not pass, each as a sentence with the value seen and the value wanted.
  returned: when O(minimum_busbw_gbps) is set
  type: list
  elements: str
  sample: []
source:
  description: The file that was read.
  returned: with O(capture)
  type: str
  sample: /srv/cases/4711/bundle/nccl_tests.txt
problems:
  description: What could not be read. Each is also given as a warning.
  returned: success
  type: list
  elements: dict
  contains:
    line:
      description: Number of the line in the output, from 1. V(0) stands for the whole output.
      type: int
    text:
      description: The line, at most 200 characters of it.
      type: str
    reason:
      description: Why it could not be read.
      type: str
  sample: []
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._capture import read_file, warn
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nccl_verdict import judge, largest_busbw
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import nccl_tests

ARGUMENTS: dict[str, Any] = {
    "text": {"type": "str"},
    "capture": {"type": "path"},
    "host": {"type": "str"},
    "minimum_busbw_gbps": {"type": "float", "aliases": ["minimum_busbw_gbytes_s"]},
    "judge": {"type": "str", "default": "largest", "choices": ["largest", "average"]},
}
_NAMES = ("nccl_tests.txt", "nccl_tests.log", "all_reduce_perf.txt", "nccl_tests.json")


def find(capture: str, host: str | None) -> str:
    """The file to read: the capture itself, or the one of a bundle."""
    if not os.path.isdir(capture):
        if host is not None:
            raise Failure(f"host is {host!r}, but capture {capture} is one recorded output and no bundle.")
        return capture
    if host is not None and (os.sep in host or host in ("", ".", "..")):
        raise Failure(f"host is {host!r}, wanted the name of one folder in {capture}.")
    folder = capture if host is None else os.path.join(capture, host)
    for name in _NAMES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise Failure(f"{folder} holds no output of nccl-tests; looked for {', '.join(_NAMES)}.")


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        mutually_exclusive=[("text", "capture"), ("text", "host")],
        required_one_of=[("text", "capture")],
    )
    params = module.params
    try:
        source = None if params["capture"] is None else find(params["capture"], params["host"])
        text = params["text"] if source is None else read_file(source)
    except Failure as exc:
        module.fail_json(msg=str(exc), **exc.details)
    value, found = nccl_tests.parse(text)
    problems = [problem._asdict() for problem in found]
    result: dict[str, Any] = {**value, "problems": problems}
    best = largest_busbw(value)
    if best is not None:
        result["largest_busbw_gbytes_s"] = best
    if source is not None:
        result["source"] = source
    if params["minimum_busbw_gbps"] is not None:
        result["reasons"] = judge(value, params["minimum_busbw_gbps"], params["judge"])
        result["passes"] = not result["reasons"]
    warn(module, problems)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
