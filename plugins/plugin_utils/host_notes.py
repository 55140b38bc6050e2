# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is worth telling of one host though it does not keep it from being planned."""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.host import Host
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.problems import Note
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.topology import NEAR


def missing_rails(host: Host) -> None:
    """Fewer rails than the intent or the other GPUs of the host have."""
    present = {rail.rail for rail in host.rails}
    expected = host.intent["gpu_fabric_expected_rails"]
    if expected is not None and len(present) < expected:
        gone = sorted(set(range(expected)) - present)
    else:
        gone = sorted(set(range(max(present, default=-1) + 1)) - present)
    if not gone:
        return
    shown = [f"rail {rail.rail}: {rail.hca.name} {rail.hca.pci}" for rail in host.rails]
    host.notes.append(
        Note(
            "RF-PLAN-RAIL-MISSING",
            ", ".join(f"rail {number}" for number in gone),
            f"{len(present)} rails are here, {len(present) + len(gone)} are wanted: no device for rail "
            + ", ".join(map(str, gone)),
            shown,
            "Look for the card with lspci; a card that fell off the bus comes back with a power cycle. "
            "Otherwise set gpu_fabric_expected_rails to what the host has.",
        )
    )


def topology(host: Host) -> None:
    differing = host.affinity.disagreements()
    # Only where one of the two sees a path below the host bridge do pairs and GPUDirect depend on who is right.
    grave = [item for item in differing if (item[2] in NEAR) != (item[3] in NEAR)]
    for id_, wrong in (
        ("RF-PLAN-TOPOLOGY-DISAGREES", grave),
        ("RF-PLAN-TOPOLOGY-DIFFERS", [item for item in differing if item not in grave]),
    ):
        if not wrong:
            continue
        gpu, name, tree, reported = wrong[0]
        host.notes.append(
            Note(
                id_,
                name,
                f"{name} to the GPU at {gpu} is {tree} by the PCI tree and {reported} by nvidia-smi topo -m"
                + (f" ({len(wrong)} such pairs)" if len(wrong) > 1 else ""),
                [f"GPU {g} {n}: PCI tree {a}, nvidia-smi {b}" for g, n, a, b in wrong[:16]],
                "Check the host's PCI tree (lspci -tv); name the rails in gpu_fabric_compute_devices if it is wrong.",
            )
        )


def paths(host: Host) -> None:
    if host.rails and host.machine.gpus and not host.found.affinity_known and len(host.machine.gpus) > 1:
        host.notes.append(
            Note(
                "RF-PLAN-AFFINITY-UNKNOWN",
                "",
                f"which of the {len(host.machine.gpus)} GPUs is near which rail cannot be known from inside this host; "
                "rails are numbered by PCI path and paired with no GPU",
                [f"{rail.hca.name} {rail.hca.pci}" for rail in host.rails],
                "Nothing to do if the provider gives a topology file (NCCL_TOPO_FILE in gpu_fabric_nccl_env)",
            )
        )
