# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the planner noticed while it decided (``plan.hosts[h].notes``), as findings."""

from __future__ import annotations

import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Entry, Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import HostView, dicts
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.rules_driver import gpu_lines

_CHECK = "ansible-playbook playbooks/preflight.yml: the plan is made again from fresh facts"
_SOURCE = "plugins/plugin_utils"


def _define(
    id_: str, severity: str, title: str, means: str, looks_at: str, cause: str, remedy: str, file: str
) -> Entry:
    return define(
        "plan",
        id_,
        title=title,
        severity=severity,
        phase="preflight",
        means=means,
        looks_at=looks_at,
        cause=cause,
        remedy=remedy,
        check=_CHECK,
        source=f"{_SOURCE}/{file}",
    )


ENTRIES: tuple[Entry, ...] = (
    _define(
        "RF-PLAN-LOW-CONFIDENCE",
        "fail",
        "The rails cannot be told from the other devices",
        "Several choices of rails fit this host equally well, so none is made: a storage or front-end NIC among the "
        "rails costs bandwidth or hangs jobs, and nothing on the host would show why.",
        "PCIe distance to the GPUs, port rate, link layer, model and number of the candidates.",
        "A front-end or storage NIC of the same model and rate as the rails, a host that hides its PCIe tree, or a "
        "rail that also carries management.",
        "Name the rails in gpu_fabric_compute_devices (RDMA device, PCI address, GUID or board id), in the host's or "
        "its group's variables.",
        "classify.py",
    ),
    _define(
        "RF-PLAN-MIXED-LINK-LAYER",
        "fail",
        "InfiniBand and Ethernet ports compete for the rails",
        "NCCL fails when its device list holds InfiniBand and Ethernet ports; the planner never mixes them silently.",
        "The link layer of the candidates' ports.",
        "A VPI card with the wrong LINK_TYPE, or two fabrics of the same rate on one host.",
        "Set LINK_TYPE of the stray card with mlxconfig, exclude it in gpu_fabric_exclude_devices, or state "
        "gpu_fabric_fabric: roce or infiniband.",
        "choice.py",
    ),
    _define(
        "RF-PLAN-FABRIC",
        "fail",
        "The fabric that is asked for is not there",
        "gpu_fabric_fabric names a kind of fabric that no port of this host is set to: it would get no rails at all.",
        "gpu_fabric_fabric and the link layer of every free device.",
        "VPI cards that are set to the other link type, or a host of another kind in the group.",
        "Name the cards in gpu_fabric_compute_devices, so that site.yml --tags rdma sets their LINK_TYPE, or set "
        "gpu_fabric_fabric for this host.",
        "choice.py",
    ),
    _define(
        "RF-PLAN-BRIDGE-OVERRIDE",
        "fail",
        "An override names an NVSwitch management bridge",
        "ConnectX functions with SW_MNG in their VPD manage the NVSwitches of HGX B200 and newer. Configuring or "
        "resetting one drops NVLink for the whole host.",
        "VPD of the device that the override names.",
        "A device list that was copied from another machine, or written without looking at the VPD.",
        "Remove the device from the override.",
        "classify.py",
    ),
    _define(
        "RF-PLAN-OVERRIDE-UNMATCHED",
        "fail",
        "A list of devices in the intent names one that is not there",
        "gpu_fabric_compute_devices names no device of this host, or one of the lists of devices names something that "
        "no host of the rack has. The device that was meant keeps the role that its facts suggest: a storage card that "
        "was to be excluded may become a rail.",
        "Names, PCI addresses, GUIDs, board ids and interfaces of the RDMA devices. A name that any host has is no "
        "finding, and in a run without the whole rack nobody can tell.",
        "A slip of the pen, device names that differ between hosts, or a card that moved or is lost.",
        "Correct the variable; PCI addresses and board ids outlive renames.",
        "classify.py",
    ),
    _define(
        "RF-PLAN-INTENT-DIFFERS",
        "warn",
        "Hosts of the rack are to have different versions or speeds",
        "Each host works with its own value, so that a rack can be updated host by host or hold two generations. Jobs "
        "that span the hosts run at the pace of the slowest, or not at all where a program needs the newer version.",
        "The values of gpu_fabric_driver_version, gpu_fabric_cuda_version, gpu_fabric_rdma_stack and "
        "gpu_fabric_link_speed_gbps over the hosts of the run.",
        "A value in the variables of one host or of a part of the group.",
        "Give the variable one value for the whole group, unless the hosts are to differ.",
        "rack_notes.py",
    ),
    _define(
        "RF-PLAN-RAIL-MISSING",
        "fail",
        "A rail has no device",
        "GPUs of this host, or gpu_fabric_expected_rails, call for more rails than there are NICs. The other rails "
        "keep their numbers, so the host could be set up, but jobs would run at the pace of what is missing.",
        "The numbers of the rails found, by GPU and by the layout of like hosts, and gpu_fabric_expected_rails.",
        "A NIC that fell off the bus, is disabled in the BIOS or was never fitted.",
        "Bring the card back, or set gpu_fabric_expected_rails to what the host has.",
        "host_notes.py",
    ),
    _define(
        "RF-PLAN-VERSIONS",
        "fail",
        "Pinned driver, CUDA and GPU do not go together",
        "With these versions the toolkit does not run on the driver, or the driver does not run the GPU.",
        "gpu_fabric_driver_version, gpu_fabric_cuda_version and the GPUs' generation against the compatibility table.",
        "Versions pinned independently of each other.",
        "Raise gpu_fabric_driver_version to the version named, or lower gpu_fabric_cuda_version.",
        "packages.py",
    ),
    _define(
        "RF-PLAN-VERSIONS-MINOR",
        "warn",
        "The driver is older than the one CUDA came with",
        "Minor-version compatibility lets the toolkit run, but PTX of its compiler and new features do not.",
        "gpu_fabric_driver_version against the driver packaged with gpu_fabric_cuda_version.",
        "The toolkit was raised within its major version, the driver was not.",
        "Raise gpu_fabric_driver_version to the version named.",
        "packages.py",
    ),
    _define(
        "RF-PLAN-FLAVOUR",
        "fail",
        "The planned kernel modules do not support the GPU",
        "Blackwell and newer GPUs run with the open kernel modules only, Volta and older only with the proprietary "
        "ones.",
        "gpu_fabric_driver_flavour and the GPUs' generation by PCI device id.",
        "A flavour set for all groups alike.",
        "Set gpu_fabric_driver_flavour: auto.",
        "packages.py",
    ),
    _define(
        "RF-PLAN-NCCL-ENV",
        "fail",
        "A variable of gpu_fabric_nccl_env cannot be right on this host",
        "NCCL reads /etc/nccl.conf literally and matches names by prefix. The named value would select other devices, "
        "another traffic class or an unusable address, so it is refused before it is written.",
        "The value in NCCL's own syntax against the host's devices, roles, GID table and quality of service.",
        "A value copied from another machine, a quoted value, a prefix that matches more than it says, or one that "
        "contradicts gpu_fabric_roce_dscp.",
        "Correct or remove the variable in gpu_fabric_nccl_env; the planned value is right without it.",
        "nccl_env.py",
    ),
    _define(
        "RF-PLAN-NCCL-ENV-OBSOLETE",
        "warn",
        "A variable of gpu_fabric_nccl_env does nothing or does not belong in a system-wide file",
        "The variable is written as asked, but NCCL no longer reads it, or it defeats NCCL's own choice in every job.",
        "Names in gpu_fabric_nccl_env and gpu_fabric_nccl_version.",
        "Tuning recipes for older releases.",
        "Remove the variable from gpu_fabric_nccl_env, or set it in the one job that needs it.",
        "nccl_env.py",
    ),
    _define(
        "RF-PLAN-GID-INDEX",
        "fail",
        "No one GID index fits all rails",
        "NCCL before 2.21 takes one index for all devices. On this host the RoCE v2 address is at different indexes.",
        "The GID tables of the rails' ports.",
        "An extra link-local or VLAN address on some of the rails.",
        "Raise gpu_fabric_nccl_version to 2.21 or newer, or give the rails the same addresses.",
        "nccl_env.py",
    ),
    _define(
        "RF-PLAN-MTU",
        "fail",
        "The wanted MTU does not fit the interface",
        "The driver refuses a larger MTU than it states; a rail with another MTU than its peers drops large messages.",
        "The interface's mtu_max and gpu_fabric_mtu.",
        "A virtual or paravirtual NIC, or a provider's limit.",
        "Lower gpu_fabric_mtu for the whole rack.",
        "rail_links.py",
    ),
    _define(
        "RF-PLAN-MEMBER-ADDRESS",
        "warn",
        "A member of the rack has no known management address",
        "The firewall admits the rack's members by address. A member whose address is not known would be shut out.",
        "ansible_host of every member of the inventory's group, and the facts of the hosts in this run.",
        "Inventory names that are not addresses, together with --limit or an unreachable host.",
        "Set ansible_host to an address for every host.",
        "rack_notes.py",
    ),
    _define(
        "RF-PLAN-NIC-FIRMWARE",
        "warn",
        "Firmware settings are not applied to a rail's card",
        "gpu_fabric_nic_firmware asks for settings, and a rail's card is not this run's to set: it manages NVSwitches, "
        "carries the run's own connection, or belongs to the hypervisor.",
        "VPD and ports of the rails' cards, the interface of the connection, virtualization.",
        "A rail's card that also carries management, or a device list that names an NVSwitch bridge.",
        "Set these cards with mlxconfig by hand, from the console, or exclude them in gpu_fabric_exclude_devices.",
        "nic_firmware.py",
    ),
    _define(
        "RF-PLAN-TUNING",
        "warn",
        "A tuning that was asked for by name is not set on a host",
        "A variable of the intent asks for a tuning of this host that the host cannot have, or must not: it stays as "
        "it is, and the rack is less alike than its variables say.",
        "gpu_fabric_cpu_governor, gpu_fabric_irq_affinity, gpu_fabric_acs, gpu_fabric_kernel_cmdline and their kin, "
        "the kind of host (container, virtual machine, platform) and its kernel's arguments. What only "
        "gpu_fabric_tuning_profile asks for is told in the report.",
        "Variables of a group that holds hosts of several kinds.",
        "Take the variable out of this host's variables, or set it where the reason does not hold.",
        "tuning.py",
    ),
    _define(
        "RF-PLAN-PKEY",
        "fail",
        "A port is no full member of a partition that it shall have",
        "gpu_fabric_ib_partitions asks for a partition, and the subnet manager has not given its key to the port: the "
        "interface of the partition would never get a carrier, and queue pairs with the key would fail.",
        "pkeys of the port in sysfs, where the port is active, against gpu_fabric_ib_partitions.",
        "The port's GUID is missing in the subnet manager's partition, stands there as a limited member, or was "
        "changed with the card.",
        "Give the port's GUID full membership in the subnet manager (UFM, or partitions.conf of opensm), or name the "
        "hosts that run opensm in gpu_fabric_opensm_nodes, and the collection writes its partitions.",
        "ipoib.py",
    ),
    _define(
        "RF-PLAN-PKEY-PENDING",
        "info",
        "A port gets the key of a partition in this run",
        "The subnet manager that the collection runs will give the port a key that it does not have yet.",
        "pkeys of the port in sysfs, gpu_fabric_ib_partitions and gpu_fabric_opensm_nodes.",
        "A partition that is new in the intent, or a run without the hosts of gpu_fabric_opensm_nodes.",
        "Nothing to do. Where it stays, look at the log of opensm on the first of gpu_fabric_opensm_nodes: another "
        "subnet manager with a higher priority may be the master.",
        "ipoib.py",
    ),
    _define(
        "RF-PLAN-NCCL-PKEY",
        "warn",
        "The key of a partition has no index that fits all rails",
        "The ports are limited members of the default partition, so NCCL needs another key. It takes one index for all "
        "rails, and the key stands at different ones: NCCL_IB_PKEY is left out.",
        "P_Key tables of the rails' ports.",
        "Ports that got their keys in another order.",
        "Have the subnet manager put the key at one index (indx0 in opensm's partitions.conf), or give the ports full "
        "membership of the default partition.",
        "ipoib.py",
    ),
    _define(
        "RF-PLAN-IPOIB",
        "warn",
        "An InfiniBand rail has no interface for its addresses",
        "gpu_fabric_ipoib or gpu_fabric_ib_partitions wants an interface on a rail, and there is none to be named.",
        "Interfaces of the rails' ports, and the rails that the host has.",
        "ib_ipoib is not loaded yet, or rails names a rail that the host lacks.",
        "Run again when ib_ipoib is loaded, which the run does; or correct rails.",
        "ipoib.py",
    ),
    _define(
        "RF-PLAN-IPOIB-MTU",
        "fail",
        "An MTU of IP over InfiniBand is more than the port carries",
        "A datagram travels in one InfiniBand packet, four bytes of which are not its own. The kernel would take the "
        "smaller value without a word.",
        "mtu of gpu_fabric_ipoib and gpu_fabric_ib_partitions against the ports' active MTU.",
        "A link of 2048 bytes on one port, or an MTU that belongs to connected mode.",
        "Set mtu to auto or less, or raise the MTU of the port's link and of the partition.",
        "ipoib.py",
    ),
    _define(
        "RF-PLAN-TOPOLOGY-DISAGREES",
        "warn",
        "The PCI tree and nvidia-smi disagree about distances",
        "Rails are paired with GPUs by the PCI tree; the driver sees another one, and NCCL may decide otherwise.",
        "Bridges above each GPU and NIC in sysfs, and nvidia-smi topo -m.",
        "A hypervisor that presents a synthetic tree, or a PCIe fabric that was re-cabled without a reboot.",
        "Compare lspci -tv with nvidia-smi topo -m; name the rails in gpu_fabric_compute_devices if the tree is wrong.",
        "host_notes.py",
    ),
    _define(
        "RF-PLAN-TOPOLOGY-DIFFERS",
        "info",
        "The PCI tree and nvidia-smi use different words for a distance",
        "Both agree on which NICs a GPU reaches below its host bridge, so pairs and GPUDirect do not depend on it.",
        "Bridges above each GPU and NIC in sysfs, and nvidia-smi topo -m.",
        "Platforms on which the driver sees NUMA nodes or nested switches in another way than the kernel.",
        "Nothing to do.",
        "host_notes.py",
    ),
    _define(
        "RF-PLAN-AFFINITY-UNKNOWN",
        "info",
        "GPU and NIC pairs cannot be known from inside the host",
        "The host shows no PCIe switch between GPUs and NICs. Rails are used, but no pairing is invented.",
        "Bridges above each GPU and NIC in sysfs.",
        "A virtual machine whose PCI tree is synthetic.",
        "Give NCCL the provider's topology file (NCCL_TOPO_FILE in gpu_fabric_nccl_env).",
        "host_notes.py",
    ),
    _define(
        "RF-PLAN-NAMES",
        "warn",
        "Names of devices change at the next boot",
        "gpu_fabric_stable_names has names by PCI path ready for the next boot. Until a run follows it, what was "
        "written by name (NCCL's list of devices, addresses, firewall) does not fit the devices any more.",
        "Names of the rails' interfaces and RDMA devices against those that follow from their PCI path.",
        "The option was set, or a device was added, since the host was started.",
        "Drain the host, reboot it and run site.yml on it before jobs start.",
        "stable_names.py",
    ),
)
_BY_ID = {entry.id: entry for entry in ENTRIES}
# Of no consequence where nothing is applied.
_LIVE_ONLY = ("RF-PLAN-MEMBER-ADDRESS",)
# A recording without GPUs and PCIe tree cannot tell rails from other devices; that is the recording's lack, no fault.
_NEED_GPUS = ("RF-PLAN-LOW-CONFIDENCE", "RF-PLAN-MIXED-LINK-LAYER")
_ABOUT_GPUS = ("RF-PLAN-VERSIONS", "RF-PLAN-FLAVOUR")


@host_rule(*ENTRIES)
def noted_while_planning(host: HostView) -> t.Iterator[Finding]:
    for note in dicts(host.plan.get("notes")):
        entry = _BY_ID.get(str(note.get("id")))
        if entry is not None and not (host.recorded_only and entry.id in _LIVE_ONLY):
            yield entry.on(
                host,
                f"{host.name}: {note.get('message')}",
                device=note.get("device"),
                evidence=[*(note.get("evidence") or []), *(gpu_lines(host) if entry.id in _ABOUT_GPUS else [])],
                remedy=note.get("remedy"),
                severity="warn" if entry.id in _NEED_GPUS and host.recorded_only and not host.gpus else None,
            )
