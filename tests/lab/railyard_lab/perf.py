# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast things are: one model for perftest and nccl-tests, fed by the states of both ends."""

from __future__ import annotations

import hashlib
from typing import Any

from railyard_lab import catalogue, config_space, gpus, interfaces, ports, qos, tree
from railyard_lab import state as state_file

# Share of the line rate that an RC write of large messages reaches, by rate: what the field measures.
EFFICIENCY = {10: 0.94, 25: 0.95, 40: 0.96, 50: 0.96, 100: 0.978, 200: 0.985, 400: 0.98, 800: 0.975}
MTU_SHARE = {4096: 1.0, 2048: 0.985, 1024: 0.945, 512: 0.87, 256: 0.75}
PCIE_SHARE = 0.92  # of the raw rate, left by headers and flow control
PFC_MISMATCH = 0.78  # one end pauses and the other does not listen: drops and retransmissions


def pcie_gbps(function: dict[str, Any]) -> float | None:
    """Raw rate of a function's link; None where it shows none (a VF, a virtual bus)."""
    link = function["link"]
    if not link["width"]:
        return None
    coding = 128 / 130 if link["gen"] >= 3 else 0.8
    return catalogue.SPEEDS_GTS[link["gen"]] * link["width"] * coding


def endpoint(
    state: dict[str, Any],
    nic: dict[str, Any],
    live: dict[str, interfaces.Interface],
    traffic_class: int,
    gid_index: int | None,
) -> dict[str, Any]:
    """What the other end needs to know of a port; also the message that perftest's stand-ins exchange."""
    port = ports.view(state, nic, live)
    gid = choose_gid(port, gid_index)
    path = [state["pci"][bdf] for bdf in [*state["pci"][nic["pci"]]["path"], nic["pci"]]]
    rates = [rate for rate in (pcie_gbps(function) for function in path) if rate]
    override = nic.get("qos", {}).get("roce", {}).get("tclass", -1)
    dscp = (override if override >= 0 else traffic_class) >> 2
    priority = qos.priority_of(nic, dscp)
    return {
        "host": state["host"],
        "device": nic["rdma"],
        "pci": nic["pci"],
        "netdev": nic["netdev"],
        "up": port["up"] and port["state"] == 4,
        "rate_gbps": port["rate_gbps"],
        "link_layer": port["link_layer"],
        "lid": port["lid"],
        "mtu": port["active_mtu"],
        "interface_mtu": port["interface"].mtu if port["interface"] else 0,
        "pcie_gbps": min(rates) if rates else None,
        "priority": priority,
        "pfc": bool(nic.get("qos", {}).get("pfc", [0] * 8)[priority]),
        "loss": nic["loss"],
        "gid": gid,
    }


def choose_gid(port: dict[str, Any], wanted: int | None) -> dict[str, Any] | None:
    """The index asked for, or the best: RoCE v2, IPv4 before global IPv6 before link-local, lowest index."""
    if wanted is not None:
        return next((entry for entry in port["gids"] if entry["index"] == wanted), None)

    def score(entry: dict[str, Any]) -> tuple[int, int, int]:
        mapped = entry["gid"].startswith("0000:0000:0000:0000:0000:ffff")
        local = entry["gid"].startswith("fe80")
        return (0 if entry["type"] == "RoCE v2" else 1, 0 if mapped else 2 if local else 1, entry["index"])

    return min(port["gids"], key=score, default=None)


def ipv4_of(gid: dict[str, Any] | None) -> str | None:
    if not gid or not gid["gid"].startswith("0000:0000:0000:0000:0000:ffff"):
        return None
    digits = gid["gid"].replace(":", "")[-8:]
    return ".".join(str(int(digits[i : i + 2], 16)) for i in range(0, 8, 2))


def _jitter(*parts: str) -> float:
    """A few tenths of a per cent, the same for the same pair: no two links of a rack measure alike."""
    return 1 - int(hashlib.sha256("|".join(sorted(parts)).encode()).hexdigest()[:4], 16) / 0xFFFF * 0.003


def link_gbps(one: dict[str, Any], other: dict[str, Any], gpu_share: float = 1.0) -> float:
    """Large-message rate between two ports."""
    rate = min(one["rate_gbps"], other["rate_gbps"])
    reached = rate * EFFICIENCY.get(rate, 0.97) * MTU_SHARE[min(one["mtu"], other["mtu"])]
    for end in (one, other):
        if end["pcie_gbps"]:
            reached = min(reached, end["pcie_gbps"] * PCIE_SHARE)
        reached *= 1 - end["loss"]
    if one["link_layer"] == "Ethernet" and one["pfc"] != other["pfc"]:
        reached *= PFC_MISMATCH
    return reached * gpu_share * _jitter(one["host"] + one["device"], other["host"] + other["device"])


def size_share(size: int, rate_gbps: float, queue_pairs: int = 1) -> float:
    """Part of the large-message rate that a message size reaches: 3 million messages a second per queue pair."""
    wire = size * 8 / (rate_gbps * 1e9)
    posting = 0.31e-6 / max(1, queue_pairs)
    return wire / max(wire, posting) if size >= 4096 else min(1.0, wire / (wire + posting))


def gpudirect(state: dict[str, Any], nic: dict[str, Any], gpu: dict[str, Any], dmabuf: bool) -> tuple[bool, float]:
    """Whether the NIC reaches a GPU's memory by itself, and which part of its rate it gets then."""
    open_modules = state["driver"]["loaded_flavour"] == "open"
    possible = "nvidia_peermem" in state["modules"] or (dmabuf and open_modules)
    if not possible:
        return False, 0.0
    near = gpus.distance(state, nic["pci"], gpu["pci"])
    if near in ("PHB", "NODE", "SYS") and state["virtualization"] == "none":
        return True, 0.35
    if redirected(state, gpu["pci"]):
        return True, 0.38
    return True, 0.975


def redirected(state: dict[str, Any], bdf: str) -> bool:
    """ACS sends peer-to-peer traffic of this function up to the root."""
    if state["virtualization"] != "none":
        return False
    for above in state["pci"][bdf]["path"]:
        path = tree.base() / tree.device_path(state, above) / "config"
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if len(data) == config_space.SIZE and config_space.acs_control(data) & 0x0C:
            return True
    return False


# --- collectives ----------------------------------------------------------------------------------------------------

SINGLE_NODE = {"h100_sxm": (478.0, 366.0), "a100_sxm": (234.5, 234.5), "b200_sxm": (838.0, 682.0), "l40s": (22.5, 22.5)}
TWO_NODES = {"h100_sxm": 448.0, "a100_sxm": 188.0, "b200_sxm": 452.0, "l40s": 22.0}


def single_node_busbw(state: dict[str, Any], count: int, nvls: bool) -> float:
    model = state["gpus"][0]["model"]
    sharp, ring = SINGLE_NODE[model]
    reached = sharp if nvls and count >= 8 else ring
    used = state_file.present_gpus(state)[:count]
    if catalogue.GPUS[model]["nvlinks"]:
        links = min((len(gpus.active_links(gpu)) for gpu in used), default=1) / catalogue.GPUS[model]["nvlinks"]
        reached *= links
    else:
        slowest = min((pcie_gbps(state["pci"][gpu["pci"]]) or 252.0) for gpu in used) / 252.0
        reached *= min(1.0, slowest)
    return reached * _jitter(state["host"], "collective")


def busbw_factor(collective: str, ranks: int) -> float:
    if ranks < 2:
        return 1.0
    return 2 * (ranks - 1) / ranks if collective == "all_reduce" else (ranks - 1) / ranks
