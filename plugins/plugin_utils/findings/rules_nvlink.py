# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVLink between the GPUs of a node."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import nvidia_smi_nvlink
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.catalogue import Finding, define
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import host_rule
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import (
    HostView,
    dicts,
    mapping,
    natural,
)

NVLINK = define(
    "gpu",
    "RF-GPU-NVLINK",
    title="GPUs of a node are not joined by NVLink as they should be",
    severity="fail",
    phase="verify",
    means="Data between the GPUs named goes over PCIe, or over fewer links than between the others: collectives inside "
    "the node run at the speed of the worst pair.",
    looks_at="The matrix of nvidia-smi topo -m: pairs without NV among pairs with it, pairs with fewer links, no NV "
    "at all beside NVSwitches; links that nvidia-smi nvlink -s calls inactive while others are active.",
    cause="Fabric Manager did not come up, MIG is on, a link failed to train, or a bridge between two cards "
    "is missing.",
    remedy="Check nvidia-fabricmanager and the kernel log for SXid and Xid 74, reset the GPUs or reboot the drained "
    "node; reseat the bridge or replace the baseboard when the same link stays away.",
    check="nvidia-smi topo -m shows NV with the same number for every pair of GPUs.",
    source="Azure/azurehpc-health-checks azure_gpu_nvlink; aws-samples gpu-cluster-healthcheck topology check",
)


def _pairs(host: HostView) -> dict[tuple[str, str], str]:
    links = mapping(host.get("outputs", "nvidia_smi_topo", "links"))
    found = {}
    for one, row in links.items():
        for other, distance in mapping(row).items():
            if str(one).startswith("GPU") and str(other).startswith("GPU") and natural(one) < natural(other):
                found[(str(one), str(other))] = str(distance)
    return found


@host_rule(NVLINK)
def missing_links(host: HostView) -> t.Iterator[Finding]:
    pairs = _pairs(host)
    counts = {pair: int(text[2:]) for pair, text in pairs.items() if text.startswith("NV") and text[2:].isdigit()}
    switched = bool(dicts(host.get("nvswitches")))
    if not pairs or not (counts or switched):
        return
    # Two cards with a bridge are joined in pairs; only where most pairs are joined all have to be.
    full = switched or len(counts) * 2 > len(pairs)
    most = max(counts.values(), default=0)
    odd = {pair: text for pair, text in pairs.items() if (full and pair not in counts) or counts.get(pair, most) < most}
    if not odd:
        return
    involved = collections.Counter(name for pair in odd for name in pair)
    worst = [name for name, times in involved.items() if times == max(involved.values())]
    blamed = worst if len(worst) < len(involved) else sorted(involved, key=natural)
    wanted = f"NV{most}" if most else "NVLink (NV)"
    shown = ", ".join(f"{one}-{other} {text}" for (one, other), text in list(odd.items())[:4])
    yield NVLINK.on(
        host,
        f"{host.name}: {', '.join(blamed)}: {len(odd)} of {len(pairs)} pairs of GPUs are not joined by {wanted} "
        f"({shown}); {wanted} for every pair wanted",
        device=", ".join(blamed),
        evidence=[f"nvidia-smi topo -m: {one} {other} {text}" for (one, other), text in list(odd.items())[:8]],
    )


@host_rule(NVLINK)
def inactive_links(host: HostView) -> t.Iterator[Finding]:
    for name in ("nvidia-smi_nvlink_s", "nvidia-smi_nvlink_status", "nvidia-smi_nvlink"):
        text = host.recorded(name)
        if text:
            break
    else:
        return
    gpus = dicts(nvidia_smi_nvlink.parse(text).value.get("gpus"))
    active = {gpu.get("index"): [x for x in dicts(gpu.get("links")) if x.get("active")] for gpu in gpus}
    most = max(map(len, active.values()), default=0)
    speed = max((x.get("speed_gbytes_s") or 0 for links in active.values() for x in links), default=0)
    for gpu in gpus:
        dead = [x["link"] for x in dicts(gpu.get("links")) if x.get("active") is False]
        slow = [x["link"] for x in active[gpu.get("index")] if 0 < (x.get("speed_gbytes_s") or speed) < speed]
        lacking = most - len(active[gpu.get("index")])
        if not most or not (dead or slow or lacking):
            continue
        what = [f"link {', '.join(map(str, dead))} inactive"] if dead else []
        what += [f"link {', '.join(map(str, slow))} slower than {speed:g} GB/s"] if slow else []
        what += [f"{len(active[gpu.get('index')])} of {most} links active"] if lacking and not dead else []
        yield NVLINK.on(
            host,
            f"{host.name}: GPU {gpu.get('index')} has NVLink {'; '.join(what)}; {most} active links at {speed:g} GB/s "
            "wanted",
            device=f"GPU {gpu.get('index')}",
            evidence=[f"GPU {gpu.get('index')}: Link {number}: inactive" for number in dead[:4]],
        )
