#!/usr/bin/python
# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_smi_info
short_description: Read the GPUs that the NVIDIA driver knows, or how nvidia-smi failed
version_added: 0.1.0
author:
  - Railyard maintainers (@railyard)
description:
  - Returns what C(nvidia-smi) tells of the driver and each GPU, as typed values.
  - Asks for the fullest form first (C(-q -x)) and takes C(-q), C(--query-gpu), C(-L) or the plain table where that one
    says nothing of GPUs. A recorded output may have any of these forms, of any version of the driver.
  - Where C(nvidia-smi) fails, RV(failures) says how, as a kind and in its own words; that is a result, not an error.
extends_documentation_fragment:
  - railyard.gpu_fabric._attributes
  - railyard.gpu_fabric._capture
seealso:
  - module: railyard.gpu_fabric.fabric_facts
  - module: railyard.gpu_fabric.nccl_tests_info
"""

EXAMPLES = r"""
- name: Read the GPUs of this host
  railyard.gpu_fabric.nvidia_smi_info:
  register: smi

- name: The driver answers, and every GPU is there
  ansible.builtin.assert:
    that:
      - smi.failures == []
      - smi.gpus | length == 8

- name: Read an output that somebody sent
  railyard.gpu_fabric.nvidia_smi_info:
    capture: /srv/cases/4711/nvidia-smi.txt
  delegate_to: localhost

- name: Read one host of a support bundle
  railyard.gpu_fabric.nvidia_smi_info:
    capture: /srv/cases/4711/bundle
    host: gpu-07
  delegate_to: localhost
"""

RETURN = r"""
gpus:
  description: The GPUs in the order of the output. A value that is not there is not known in this form of the output.
  returned: success
  type: list
  elements: dict
  contains:
    index:
      description: Index by which nvidia-smi names the GPU.
      type: int
    pci:
      description: PCI address, C(dddd:bb:dd.f) in lower case.
      type: str
    name:
      description: Name of the product. The plain table of old drivers shortens it, see RV(gpus[].name_truncated).
      type: str
    name_truncated:
      description: The name ends with dots because the table had no more room.
      type: bool
    uuid:
      description: UUID of the GPU.
      type: str
    serial:
      description: Serial number of the board.
      type: str
    architecture:
      description: Architecture, such as V(Hopper).
      type: str
    device_id:
      description: PCI vendor and device, C(10de:2330).
      type: str
    vbios:
      description: Version of the VBIOS.
      type: str
    persistence:
      description: Whether persistence mode is on.
      type: bool
    mig:
      description: Whether the GPU is split into MIG devices.
      type: bool
    memory_total_mib:
      description: Memory in MiB.
      type: int
    memory_used_mib:
      description: Memory in use in MiB.
      type: int
    utilization_percent:
      description: Utilisation in percent. Absent with MIG.
      type: int
    temperature_c:
      description: Temperature in degrees Celsius.
      type: int
    power_w:
      description: Power drawn in watts.
      type: float
    power_limit_w:
      description: Power limit in watts.
      type: float
    fabric_state:
      description: State of the NVLink fabric, V(Completed) once the Fabric Manager has set the GPU up.
      type: str
    fabric_status:
      description: Result of the NVLink fabric's set-up.
      type: str
    recovery_action:
      description: What the driver wants done, V(None) when nothing.
      type: str
    pcie:
      description: PCIe link. C(generation) falls while the GPU is idle, C(max_generation) does not.
      type: dict
    ecc:
      description: Whether ECC is on, and the totals of its counters.
      type: dict
    remapped_rows:
      description: Rows of memory that were remapped, whether more are pending, whether remapping failed.
      type: dict
    clock_events:
      description: Reasons for which the clocks are held down.
      type: list
      elements: str
    unreadable:
      description: Values of the plain table in whose place nvidia-smi printed an error.
      type: list
      elements: str
    not_available:
      description: Values that this GPU or driver does not have.
      type: list
      elements: str
    extra:
      description: Everything else, by the tool's own label.
      type: dict
  sample:
    - index: 0
      pci: "0000:18:00.0"
      name: NVIDIA H100 80GB HBM3
      uuid: GPU-4f1c2a9e-0000-4000-8000-000000000001
      persistence: true
      memory_total_mib: 81559
      fabric_state: Completed
processes:
  description: Programs that hold a GPU, as far as this form of the output names them.
  returned: success
  type: list
  elements: dict
  sample: [{"pci": "0000:18:00.0", "pid": 21180, "type": "C", "name": "python", "used_mib": 2296}]
mig_devices:
  description: MIG devices.
  returned: success
  type: list
  elements: dict
  sample: []
driver_version:
  description: Version of the driver.
  returned: when the output names it
  type: str
  sample: 580.126.09
cuda_version:
  description: Newest CUDA version that the driver supports.
  returned: when the output names it
  type: str
  sample: "13.0"
attached_gpus:
  description: How many GPUs nvidia-smi says are attached.
  returned: when the output names it
  type: int
  sample: 8
failures:
  description: How nvidia-smi failed. Empty when it did not.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description:
        - V(driver_library_mismatch), V(smi_library_mismatch), V(library_not_found), V(driver_not_loaded),
          V(insufficient_permissions), V(blocked_by_operating_system), V(initialize_failed), V(gpu_lost),
          V(gpu_requires_reset), V(system_not_initialized), V(no_devices), V(command_not_found), V(invalid_option),
          V(timed_out) or V(crashed).
      type: str
    text:
      description: The message, verbatim.
      type: str
    pci:
      description: The GPU that it names by its address.
      type: str
    gpu:
      description: The GPU that it names by its index alone.
      type: int
    reason:
      description: What follows the GPU in the message.
      type: str
    library_version:
      description: Version of the NVML library, where it differs from the driver's.
      type: str
  sample:
    - kind: driver_library_mismatch
      text: "Failed to initialize NVML: Driver/library version mismatch"
      library_version: "535.183"
faults_reported:
  description: Warnings of nvidia-smi, such as a corrupted infoROM.
  returned: success
  type: list
  elements: dict
  sample: [{"kind": "inforom_corrupted", "pci": "0008:00:00.0", "text": "WARNING: infoROM is corrupted at gpu
  0008:00:00.0"}]
form:
  description: Form of the output, V(xml), V(query), V(csv), V(list), V(table) or V(none).
  returned: success
  type: str
  sample: xml
origin:
  description:
    - Where the answer is from. V(tool) nvidia-smi ran on this host; V(recorded) a recorded output; V(none) nothing
      could be asked.
    - An empty list of GPUs from V(none) means "not known", never "no GPUs".
  returned: success
  type: str
  sample: tool
command:
  description: The command that answered, or whose recorded answer was read from a bundle.
  returned: when a command answered
  type: str
  sample: nvidia-smi -q -x
rc:
  description: Exit status of the command.
  returned: when the command ran on this host
  type: int
  sample: 0
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

from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._capture import Tool, run_module
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import nvidia_smi_any
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed

_COLUMNS = (
    "index,pci.bus_id,name,uuid,driver_version,memory.total,memory.used,persistence_mode,mig.mode.current,"
    "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,temperature.gpu,power.draw"
)


def parse(text: Any) -> Parsed:
    """The parser's value under names that are free in a module's result (``warnings`` is Ansible's own)."""
    value, problems = nvidia_smi_any.parse(text)
    kept = {key: item for key, item in value.items() if key != "warnings"}
    return Parsed({**kept, "faults_reported": value["warnings"]}, problems)


TOOL = Tool(
    commands=(
        ("nvidia-smi", "-q", "-x"),
        ("nvidia-smi", "-q"),
        ("nvidia-smi", f"--query-gpu={_COLUMNS}", "--format=csv"),
        ("nvidia-smi", "-L"),
        ("nvidia-smi",),
    ),
    parse=parse,
    subject="gpus",
    from_sysfs=None,
)


def main() -> None:
    run_module(TOOL)


if __name__ == "__main__":
    main()
