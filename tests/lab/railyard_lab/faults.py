# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Things that go wrong with hardware and kernel: injected into the state, with a note of how it was before.

Clearing one is what a technician does: the part is replaced and the machine has booted since, so what the fault wrote
into the kernel's log and into counters is gone with it.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

from railyard_lab import interfaces, kernel_log, modules, packages
from railyard_lab import state as state_file


class Refused(Exception):
    """The fault makes no sense on this host; the message says why."""


Inject = Callable[[dict[str, Any], Any, Any], dict[str, Any]]
FAULTS: dict[str, tuple[str, Inject]] = {}
# What others count, too: a fault takes back its own share.
COUNTERS = ("flaps", "symbol_errors")


def fault(name: str, summary: str) -> Callable[[Inject], Inject]:
    def register(function: Inject) -> Inject:
        FAULTS[name] = (summary, function)
        return function

    return register


# --- what was there before --------------------------------------------------------------------------------------


def _differences(old: Any, new: Any, path: list[Any]) -> list[dict[str, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in new:
                found.append({"path": [*path, key], "old": old[key], "new": None, "gone": True})
            elif key not in old:
                found.append({"path": [*path, key], "old": None, "new": new[key], "added": True})
            else:
                found += _differences(old[key], new[key], [*path, key])
        return found
    nested = isinstance(old, list) and any(isinstance(item, (dict, list)) for item in old)
    if nested and isinstance(new, list) and len(old) == len(new):
        return [item for index in range(len(old)) for item in _differences(old[index], new[index], [*path, index])]
    return [] if old == new else [{"path": path, "old": old, "new": new}]


def _restore(state: dict[str, Any], change: dict[str, Any]) -> None:
    """Put an old value back, unless somebody mended it in the meantime."""
    holder: Any = state
    for key in change["path"][:-1]:
        try:
            holder = holder[key]
        except (KeyError, IndexError):
            return
    key = change["path"][-1]
    if change.get("gone"):
        holder.setdefault(key, change["old"])
        return
    present = holder[key] if isinstance(holder, list) or key in holder else None
    if key in COUNTERS and isinstance(present, int):
        holder[key] = max(0, present - (change["new"] - change["old"]))
        return
    if present != change["new"]:
        return
    if change.get("added"):
        holder.pop(key, None)
    else:
        holder[key] = change["old"]


def inject(name: str, device: str | None, value: str | None) -> dict[str, Any]:
    if name not in FAULTS:
        raise Refused(f"no fault {name!r}; there are: {', '.join(sorted(FAULTS))}")
    with state_file.change() as state:
        before = copy.deepcopy(state)
        answer = FAULTS[name][1](state, device, value)
        changes = [
            change
            for change in _differences(before, state, [])
            if change["path"][0] not in ("dmesg", "faults", "gid_tables")
        ]
        result = {"fault": name, "host": state["host"], **answer}
        result["said"] = f"On {state['host']}, {FAULTS[name][0].split(' (')[0]} ({_details(answer)})."
        logged = [line for line in state["dmesg"] if line not in before["dmesg"]]
        state["faults"].append({"name": name, "undo": changes, "logged": logged, "result": result})
    _after(name)
    return result


def clear(name: str | None) -> dict[str, Any]:
    with state_file.change() as state:
        chosen = [entry for entry in state["faults"] if name in (None, entry["name"])]
        booted = kernel_log.boot_lines(state)
        for entry in reversed(chosen):
            for change in reversed(entry["undo"]):
                _restore(state, change)
            mtu = entry["result"].get("restore_mtu")
            if mtu:
                _set_mtu(state, mtu["interface"], mtu["mtu"])
            if entry["result"].get("restore_package"):
                _install_package(entry["result"]["restore_package"])
            state["dmesg"] = [line for line in state["dmesg"] if line not in entry.get("logged", [])]
        # A boot with the fault told of it, as of a link that trained at half its width.
        kernel_log.retell(state, booted)
        if any(entry["name"] == "acs_on" for entry in chosen):
            _write_acs(state)
        state["faults"] = [entry for entry in state["faults"] if entry not in chosen]
        host = state["host"]
    for entry in chosen:
        _after(entry["name"])
    cables = [cable for entry in chosen for cable in entry["result"].get("cables", [])]
    names = [entry["name"] for entry in chosen]
    said = f"On {host}, {', '.join(names) or 'no fault'} was cleared."
    return {"cleared": names, "cables": cables, "said": said}


def _details(answer: dict[str, Any]) -> str:
    """`device mlx5_4, rate gbps 200`: what a person may want to know of the fault that was put in."""
    hidden = ("cables", "package", "restore_mtu", "restore_package")
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in answer.items() if key not in hidden)


def describe(state: dict[str, Any]) -> list[dict[str, Any]]:
    active = {entry["name"] for entry in state["faults"]}
    return [
        {"name": name, "summary": summary, "active": name in active} for name, (summary, _) in sorted(FAULTS.items())
    ]


def _after(name: str) -> None:
    if name == "stale_fabric_manager" and interfaces.is_node():
        subprocess.run(["systemctl", "restart", "nvidia-fabricmanager.service"], capture_output=True, check=False)


# --- choosing a device --------------------------------------------------------------------------------------------


def _rail(state: dict[str, Any], device: str | None, number: int = 3) -> dict[str, Any]:
    if device:
        nic = state_file.find_nic(state, device)
        if nic is None:
            raise Refused(f"{state['host']} has no NIC {device}")
        return nic
    rails = sorted((nic for nic in state["nics"] if nic["rail"] is not None), key=lambda nic: nic["rail"])
    if not rails:
        raise Refused(f"{state['host']} has no rails")
    return rails[min(number, len(rails) - 1)]


def _gpu(state: dict[str, Any], device: str | None, number: int = 5) -> dict[str, Any]:
    gpus = sorted(state["gpus"], key=lambda gpu: gpu["pci"])
    if device is None:
        return gpus[min(number, len(gpus) - 1)]
    for index, gpu in enumerate(gpus):
        if device in (str(index), gpu["pci"], gpu["uuid"]):
            return gpu
    raise Refused(f"{state['host']} has no GPU {device}")


# --- the faults ---------------------------------------------------------------------------------------------------


@fault("port_down", "the cable of a port is out")
def _port_down(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    nic = _rail(state, device)
    nic["cable"] = False
    nic["flaps"] += 1
    state_file.log_kernel(state, f"mlx5_core {nic['pci']} {nic['netdev']}: Link down")
    return {"device": nic["rdma"] or nic["netdev"], "netdev": nic["netdev"], "cables": [nic["netdev"]]}


@fault("wrong_rate", "a port came up slower than it can")
def _wrong_rate(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    nic = _rail(state, device)
    nic["speed_limit_gbps"] = int(value) if value else nic["rate_gbps"] // 2
    return {"device": nic["rdma"], "rate_gbps": nic["speed_limit_gbps"], "nominal_gbps": nic["rate_gbps"]}


@fault("pcie_width", "the PCIe link of a NIC or GPU trained at half its width")
def _pcie_width(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    try:
        bdf = _rail(state, device)["pci"]
    except Refused:
        bdf = _gpu(state, device)["pci"]
    function = state["pci"][bdf]
    if not function["link"]["max_width"]:
        raise Refused(f"{bdf} shows no PCIe link")
    width = int(value) if value else max(1, function["link"]["max_width"] // 2)
    for one in [bdf, *function["path"][-1:]]:
        state["pci"][one]["link"]["width"] = width
    nic = state_file.nic_by(state, "pci", bdf)
    if nic is not None:
        state_file.log_kernel(state, kernel_log.pcie_bandwidth(state, bdf) or "")
    return {"device": bdf, "width": width, "max_width": function["link"]["max_width"]}


@fault("gpu_missing", "a GPU fell off the bus")
def _gpu_missing(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    gpu = _gpu(state, device)
    gpu["present"] = False
    state_file.log_kernel(
        state, f"NVRM: Xid (PCI:{gpu['pci'][:10]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    state_file.log_kernel(state, f"NVRM: GPU {gpu['pci']}: GPU has fallen off the bus.")
    return {"device": gpu["pci"], "uuid": gpu["uuid"]}


def _set_mtu(state: dict[str, Any], name: str, mtu: int) -> None:
    if interfaces.is_node():
        interfaces.run_ip("link", "set", "dev", name, "mtu", str(mtu))
    else:
        state["interfaces"].setdefault(name, {})["mtu"] = mtu


@fault("wrong_mtu", "one rail has another MTU than its peers")
def _wrong_mtu(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    nic = _rail(state, device)
    live = interfaces.current(state).get(nic["netdev"])
    if live is None:
        raise Refused(f"{nic['netdev']} does not exist")
    mtu = int(value) if value else 1500 if live.mtu != 1500 else 4096
    _set_mtu(state, nic["netdev"], mtu)
    return {"device": nic["netdev"], "mtu": mtu, "restore_mtu": {"interface": nic["netdev"], "mtu": live.mtu}}


@fault("pfc_off", "priority flow control is off on the rails of this node")
def _pfc_off(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    from railyard_lab import qos

    chosen = [_rail(state, device)] if device else [nic for nic in state["nics"] if nic["rail"] is not None]
    chosen = [nic for nic in chosen if qos.supported(nic)]
    if not chosen:
        raise Refused(f"{state['host']} has no rail with DCB")
    for nic in chosen:
        qos.set_pfc(nic, [0] * 8)
    return {"device": ",".join(nic["netdev"] for nic in chosen)}


def _version_key(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _older_package(version: str) -> tuple[str, str] | None:
    """An older Fabric Manager package: (argument for apt-get, its version)."""
    folder = state_file.path().parent / "debs"
    candidates = []
    for path in folder.glob("nvidia-fabricmanager*_*.deb") if folder.is_dir() else []:
        number = path.name.split("_")[1].split("-")[0]
        if _version_key(number) < _version_key(version):
            candidates.append((_version_key(number), str(path), number))
    if candidates:
        _key, package, number = max(candidates)
        return package, number
    if not interfaces.is_node():
        return None
    answer = subprocess.run(
        ["apt-cache", "madison", "nvidia-fabricmanager"], capture_output=True, text=True, check=False
    )
    for line in answer.stdout.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) > 1 and _version_key(fields[1].split("-")[0]) < _version_key(version):
            return f"nvidia-fabricmanager={fields[1]}", fields[1].split("-")[0]
    return None


def _install_package(package: str) -> bool:
    """Bring another version of a package, and leave it held if it was."""
    name = package.rsplit("/", 1)[-1].split("=")[0].split("_")[0]
    command = ["apt-get", "install", "-y", "-q", "--allow-downgrades", "--allow-change-held-packages", package]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", packages.INSIDE_FAULT: "1"}
    held = subprocess.run(["apt-mark", "showhold", name], capture_output=True, text=True, check=False).stdout.split()
    done = subprocess.run(command, capture_output=True, check=False, env=environment).returncode == 0
    if held:
        subprocess.run(["apt-mark", "hold", name], capture_output=True, check=False)
    return done


@fault("stale_fabric_manager", "Fabric Manager is older than the driver")
def _stale_fabric_manager(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    driver = state["driver"]["loaded"] or state["driver"]["installed"]
    if not driver:
        raise Refused(f"{state['host']} has no NVIDIA driver yet, so nothing can be older than it")
    if not state["nvswitches"] and not any(nic["sw_mng"] for nic in state["nics"]):
        raise Refused(f"{state['host']} has no NVSwitch")
    before = state["fabric_manager"]["version"]
    older = None if value else _older_package(driver)
    version = value or (older[1] if older else _previous(driver))
    result: dict[str, Any] = {"device": "nvidia-fabricmanager", "version": version, "driver": driver, "package": None}
    # dpkg's hooks call back into the state, which is locked here: they see the mark and leave it to us.
    if older and interfaces.is_node() and _install_package(older[0]):
        result["package"] = older[0]
        if before:
            result["restore_package"] = f"nvidia-fabricmanager={before}-1"
    state["fabric_manager"]["version"] = version
    return result


def _previous(version: str) -> str:
    parts = version.split(".")
    parts[1] = f"{max(0, int(parts[1]) - 13):02d}"
    return ".".join(parts)


@fault("peermem_not_loaded", "nvidia_peermem is not loaded and does not load")
def _peermem_not_loaded(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    if not state["driver"]["loaded"]:
        raise Refused(f"{state['host']} has no NVIDIA driver loaded")
    if "nvidia_peermem" in state["modules"]:
        modules.unload(state, "nvidia_peermem")
    state["broken_modules"] = ["nvidia_peermem"]
    if state["stack"]["kind"] == "inbox":
        # With open modules and DMA-BUF nobody would miss it.
        state["driver"]["loaded_flavour"] = "proprietary"
    state_file.log_kernel(state, "nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client")
    state_file.log_kernel(state, "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)")
    return {"device": "nvidia_peermem"}


@fault("firmware_drift", "a NIC runs another firmware than the same cards elsewhere")
def _firmware_drift(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    nic = _rail(state, device)
    before = nic["firmware"]
    major, _minor, _patch = before.split(".")
    nic["firmware"] = value or f"{major}.39.1002"
    return {"device": nic["rdma"], "firmware": nic["firmware"], "others": before}


@fault("xid", "a GPU reported an Xid error (value: its number, default 48)")
def _xid(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    gpu = _gpu(state, device)
    number = int(value or 48)
    gpu["xid"] = number
    what = {
        48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, "
        "subpartition 1.",
        63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
        74: "NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        119: "Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL).",
    }.get(number, "Unknown error")
    state_file.log_kernel(
        state, f"NVRM: Xid (PCI:{gpu['pci'][:10]}): {number}, pid='<unknown>', name=<unknown>, {what}"
    )
    return {"device": gpu["pci"], "xid": number}


@fault("acs_on", "PCIe ACS redirects peer-to-peer traffic on the switches")
def _acs_on(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    from railyard_lab import config_space

    chosen = [
        bdf for bdf, function in state["pci"].items() if function["port_type"] == "downstream" and function["acs"]
    ]
    if not chosen:
        raise Refused(f"{state['host']} has no PCIe switch")
    for bdf in chosen:
        state["pci"][bdf]["acs_control"] = config_space.ACS_REDIRECT
    _write_acs(state)
    return {"device": ",".join(chosen)}


def _write_acs(state: dict[str, Any]) -> None:
    """Bring the registers of the bridges to what the state says."""
    from railyard_lab import config_space, tree

    for bdf, function in state["pci"].items():
        path = tree.base() / tree.device_path(state, bdf) / "config"
        if function["acs"] and path.exists():
            data = bytearray(path.read_bytes())
            data[config_space.ACS_CONTROL] = function.get("acs_control") or 0
            path.write_bytes(bytes(data))


@fault("ecc", "a GPU counts uncorrected memory errors and waits for a row remap")
def _ecc(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    gpu = _gpu(state, device)
    gpu["uncorrected_ecc"] = int(value or 3)
    gpu["remap_pending"] = True
    return {"device": gpu["pci"], "errors": gpu["uncorrected_ecc"]}


@fault("nvlink_down", "NVLinks of a GPU are inactive")
def _nvlink_down(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    gpu = _gpu(state, device)
    gpu["links_down"] = [int(part) for part in (value or "4,5").split(",")]
    return {"device": gpu["pci"], "links": gpu["links_down"]}


@fault("link_flaps", "a port went down and up many times")
def _link_flaps(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    nic = _rail(state, device)
    nic["flaps"] += int(value or 12)
    nic["symbol_errors"] += 483
    for word in ("down", "up") * 3:
        state_file.log_kernel(state, f"mlx5_core {nic['pci']} {nic['netdev']}: Link {word}")
    return {"device": nic["rdma"], "link_downed": nic["flaps"]}


@fault("gid_missing", "the RoCE v2 GIDs of a port's addresses are not in the table")
def _gid_missing(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    nic = _rail(state, device)
    state.setdefault("hidden_gids", [])
    state["hidden_gids"] = [*state["hidden_gids"], nic["rdma"]]
    return {"device": nic["rdma"]}


@fault("sm_down", "no subnet manager answers")
def _sm_down(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    if not any(nic["link_layer"] == "InfiniBand" and not nic["sw_mng"] for nic in state["nics"]):
        raise Refused(f"{state['host']} has no InfiniBand port")
    state["sm"]["lid"] = 0
    return {"device": "subnet manager"}


@fault("driver_mismatch", "the NVIDIA library was upgraded under a loaded kernel module")
def _driver_mismatch(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    driver = state["driver"]
    if not driver["loaded"]:
        raise Refused(f"{state['host']} has no NVIDIA driver loaded")
    parts = driver["loaded"].split(".")
    driver["library"] = value or ".".join([parts[0], f"{int(parts[1]) + 10}", *parts[2:]])
    return {"device": "nvidia", "loaded": driver["loaded"], "library": driver["library"]}


@fault("numa_unknown", "the BIOS tells no NUMA node for PCI devices")
def _numa_unknown(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    for function in state["pci"].values():
        function["numa_node"] = -1
    return {"device": "BIOS"}


@fault("slow_nic", "a NIC delivers a part of its rate though all settings look right (value: per cent, default 62)")
def _slow_nic(state: dict[str, Any], device: Any, value: Any) -> dict[str, Any]:
    nic = _rail(state, device)
    nic["loss"] = 1 - float(value or 62) / 100
    return {"device": nic["rdma"], "per_cent": 100 * (1 - nic["loss"])}
