# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State → the files that a kernel with this hardware would show under /sys and /proc.

`build` is pure: a dictionary of relative paths to text, bytes, `Link` or `Folder`. `sync` writes what differs from the
last time and takes away what is gone; what a host wrote itself in the meantime is first taken into the state.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any, NamedTuple, Union

from railyard_lab import catalogue, config_space, interfaces, modules, ports, tree_net, tree_rdma
from railyard_lab import state as state_file


class Link(NamedTuple):
    target: str


class Folder(NamedTuple):
    pass


Node = Union[str, bytes, bytearray, Link, Folder]
Files = dict[str, Node]


def base() -> Path:
    """Where the tree is written: the tmpfs that lies over /sys in a node, the root itself in tests."""
    root = state_file.root()
    return Path("/run/gpu-fabric-lab/tree") if interfaces.is_node() else root


def device_path(state: dict[str, Any], bdf: str) -> str:
    """`sys/devices/pci0000:15/0000:15:01.0/…/0000:18:00.0`"""
    chain = [*state["pci"][bdf]["path"], bdf]
    return "/".join(["sys/devices", f"pci{chain[0][:7]}", *chain])


def up(path: str) -> str:
    """From a folder of the tree to `sys`."""
    return "../" * (path.count("/"))


def build(state: dict[str, Any], live: dict[str, interfaces.Interface]) -> Files:
    files: Files = {}
    functions = _visible_functions(state)
    files["sys/class/infiniband"] = Folder()
    files["sys/class/net"] = Folder()
    files["sys/bus/pci/devices"] = Folder()
    for slot in sorted(functions):
        _function(files, state, slot, functions)
    tree_net.add(files, state, live, device_path)
    if "mlx5_ib" in state["modules"]:
        tree_rdma.add(files, state, live, device_path)
    _modules(files, state)
    _proc(files, state)
    _dmi(files, state)
    return files


def _visible_functions(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    gone = {gpu["pci"] for gpu in state["gpus"] if not gpu["present"]}
    return {bdf: function for bdf, function in state["pci"].items() if bdf not in gone}


def _bus_numbers(bdf: str, functions: dict[str, dict[str, Any]]) -> tuple[int, int, int]:
    own = int(bdf[5:7], 16)
    below = [int(other[5:7], 16) for other, function in functions.items() if bdf in function["path"]]
    return own, min(below, default=own), max(below, default=own)


def _driver(state: dict[str, Any], function: dict[str, Any]) -> str:
    loaded = state["modules"]
    if function["kind"] == "gpu":
        return "nvidia" if "nvidia" in loaded else ""
    if function["kind"] == "nvswitch":
        return "nvidia-nvswitch" if "nvidia" in loaded else ""
    if function["driver"] == "mlx5_core" and "mlx5_core" not in loaded:
        return ""
    return function["driver"]


def _speed(generation: int) -> str:
    return f"{catalogue.SPEEDS_GTS[generation]:.1f} GT/s PCIe" if generation in catalogue.SPEEDS_GTS else "Unknown"


def _function(files: Files, state: dict[str, Any], bdf: str, functions: dict[str, dict[str, Any]]) -> None:
    function = functions[bdf]
    path = device_path(state, bdf)
    numa = function["numa_node"]
    cpus = state["cpulists"].get(str(numa)) or state["cpulists"]["0"]
    driver = _driver(state, function)
    link = function["link"]
    nic = state_file.nic_by(state, "pci", bdf)
    product = _vpd(state, nic)
    shape = {**function, "vpd": product is not None, "port_number": int(bdf[8:10], 16)}
    numbers = _bus_numbers(bdf, functions) if function["kind"] == "bridge" else None
    region = 0x20_0000_0000 + (int(bdf[:4] or "0", 16) << 40) + (int(bdf[5:7], 16) << 28) + (int(bdf[-1], 16) << 26)
    size = 0 if function["kind"] == "bridge" else 0x0200_0000
    entry = f"0x{region:016x} 0x{region + size - 1:016x} 0x{0x14220C if size else 0:016x}" if size else None
    empty = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
    modalias = (
        f"pci:v0000{function['vendor'].upper()}d0000{function['device'].upper()}"
        f"sv0000{function['subsystem_vendor'].upper()}sd0000{function['subsystem_device'].upper()}"
        f"bc{function['class'][:2].upper()}sc{function['class'][2:4].upper()}i{function['class'][4:].upper()}"
    )
    values: Files = {
        "vendor": f"0x{function['vendor']}\n",
        "device": f"0x{function['device']}\n",
        "subsystem_vendor": f"0x{function['subsystem_vendor']}\n",
        "subsystem_device": f"0x{function['subsystem_device']}\n",
        "class": f"0x{function['class']}\n",
        "revision": "0xb0\n" if function["kind"] == "bridge" else "0x00\n" if nic else "0xa1\n",
        "irq": "18\n",
        "enable": "1\n",
        "numa_node": f"{numa}\n",
        "local_cpulist": f"{cpus}\n",
        "config": bytes(config_space.build(shape, numbers)),
        "resource": "\n".join([entry or empty] + [empty] * 12) + "\n",
        "modalias": modalias + "\n",
        "current_link_speed": _speed(link["gen"]) + "\n",
        "current_link_width": f"{link['width']}\n",
        "max_link_speed": _speed(link["max_gen"]) + "\n",
        "max_link_width": f"{link['max_width']}\n",
        "msi_bus": "1\n",
        "power_state": "D0\n",
        "uevent": f"{'DRIVER=' + driver + chr(10) if driver else ''}PCI_CLASS={function['class'].lstrip('0').upper()}\n"
        f"PCI_ID={function['vendor'].upper()}:{function['device'].upper()}\nPCI_SLOT_NAME={bdf}\nMODALIAS={modalias}\n",
        "subsystem": Link(up(path) + "bus/pci"),
    }
    if numbers:
        values["secondary_bus_number"], values["subordinate_bus_number"] = f"{numbers[1]}\n", f"{numbers[2]}\n"
    if product is not None:
        values["vpd"] = product
    if nic and nic["rdma"] and not nic["vf"]:
        wanted = nic["nvconfig"]
        total = int(wanted["NUM_OF_VFS"]["current"]) if wanted["SRIOV_EN"]["current"] == "True(1)" else 0
        values["sriov_totalvfs"], values["sriov_numvfs"] = f"{total}\n", "0\n"
    if state["virtualization"] == "none" and function["kind"] != "bridge":
        group = sorted(functions).index(bdf) + 1
        values["iommu_group"] = Link(up(path) + f"devices/iommu_groups/{group}")
        files[f"sys/devices/iommu_groups/{group}/type"] = (
            "identity\n" if "iommu=pt" in state["cmdline"].split() else "DMA-FQ\n"
        )
        files[f"sys/devices/iommu_groups/{group}/devices/{bdf}"] = Link(f"../../../../{path[4:]}")
    if driver:
        values["driver"] = Link(up(path) + f"bus/pci/drivers/{driver}")
        files[f"sys/bus/pci/drivers/{driver}/{bdf}"] = Link(f"../../../../{path[4:]}")
    for name, value in values.items():
        files[f"{path}/{name}"] = value
    files[f"sys/bus/pci/devices/{bdf}"] = Link(f"../../../{path[4:]}")


def _vpd(state: dict[str, Any], nic: dict[str, Any] | None) -> bytes | None:
    model = catalogue.NICS[nic["model"]] if nic else {}
    if not nic or not model.get("product"):
        return None
    board = model["part"].replace("MCX", "CX").split("-")[0]
    identity_field = f"MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL={board}" + (":SMDL=SW_MNG" if nic["sw_mng"] else "")
    unique = hashlib.md5((state["host"] + nic["pci"]).encode(), usedforsecurity=False).hexdigest()
    return config_space.vpd(
        model["product"],
        [
            ("PN", f"{model['part']:<21}"),
            ("EC", "A9"),
            ("V2", f"{model['part']:<21}"),
            ("SN", f"{nic['serial']:<24}"),
            ("V3", unique),
            ("VA", identity_field),
            ("V0", f"PCIeGen{model['gen']} x{model['width']}"),
        ],
    )


def _modules(files: Files, state: dict[str, Any]) -> None:
    for name in state["modules"]:
        folder = f"sys/module/{name}"
        files[f"{folder}/initstate"] = "live\n"
        files[f"{folder}/refcnt"] = f"{len(modules.users(state, name))}\n"
        files[f"{folder}/taint"] = "POE\n" if name.startswith("nvidia") else "OE\n" if name == "gdrdrv" else "\n"
        files[f"{folder}/coresize"] = f"{modules.KNOWN.get(name, (16384, (), ''))[0]}\n"
        files[f"{folder}/holders"] = Folder()
        for user in modules.users(state, name):
            files[f"{folder}/holders/{user}"] = Link(f"../../{user}")
        number = modules.version(state, name, loaded=True)
        if number:
            files[f"{folder}/version"] = f"{number}\n"
            files[f"{folder}/srcversion"] = hashlib.sha1(f"{name}{number}".encode()).hexdigest()[:23].upper() + "\n"
        for parameter, value in state["module_parameters"].get(name, {}).items():
            files[f"{folder}/parameters/{parameter}"] = f"{value}\n"


def _proc(files: Files, state: dict[str, Any]) -> None:
    files["proc/cmdline"] = state["cmdline"] + "\n"
    lines = []
    for position, name in enumerate(reversed(state["modules"])):
        size = modules.KNOWN.get(name, (16384, (), ""))[0]
        users = modules.users(state, name)
        holders = ",".join(users) + "," if users else "-"
        taint = " (POE)" if name.startswith("nvidia") else ""
        lines.append(
            f"{name} {size} {len(users)} {holders} Live 0x{0xFFFFFFFFC0000000 + position * 0x100000:016x}{taint}"
        )
    files["proc/modules"] = "".join(line + "\n" for line in lines)
    files["proc/driver"] = Folder()
    if "nvidia" not in state["modules"]:
        return
    driver = state["driver"]
    root = "proc/driver/nvidia"
    files[f"{root}/version"] = (
        f"NVRM version: {modules.version_line(driver)}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1) \n"
    )
    parameters = {
        "ResmanDebugLevel": "4294967295", "RmLogonRC": "1", "ModifyDeviceFiles": "1", "DeviceFileUID": "0",
        "DeviceFileGID": "0", "DeviceFileMode": "438", "InitializeSystemMemoryAllocations": "1",
        "UsePageAttributeTable": "4294967295", "EnableMSI": "1", "EnablePCIeGen3": "0", "MemoryPoolSize": "0",
        "KMallocHeapMaxSize": "0", "VMallocHeapMaxSize": "0", "IgnoreMMIOCheck": "0", "EnableStreamMemOPs": "0",
        "EnableUserNUMAManagement": "1", "NvLinkDisable": "0", "RmProfilingAdminOnly": "1",
        "PreserveVideoMemoryAllocations": "1", "EnableS0ixPowerManagement": "0", "DynamicPowerManagement": "3",
        "EnableGpuFirmware": "18", "EnableGpuFirmwareLogs": "2", "OpenRmEnableUnsupportedGpus": "1",
        "GrdmaPciTopoCheckOverride": "0", "CreateImexChannel0": "0", "ImexChannelCount": "2048",
    }  # fmt: skip
    for name, value in state["module_parameters"].get("nvidia", {}).items():
        plain = name.removeprefix("NVreg_")
        plain = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}.get(plain, plain)
        if plain in parameters:
            parameters[plain] = value
    strings = (
        'RegistryDwords: ""\nRegistryDwordsPerDevice: ""\nRmMsg: ""\nGpuBlacklist: ""\nTemporaryFilePath: "/var"\n'
    )
    files[f"{root}/params"] = "".join(f"{name}: {value}\n" for name, value in parameters.items()) + strings
    for index, gpu in enumerate(state_file.present_gpus(state)):
        model = catalogue.GPUS[gpu["model"]]
        firmware = driver["loaded"] if driver["loaded_flavour"] == "open" else "N/A"
        files[f"{root}/gpus/{gpu['pci']}/information"] = (
            f"Model: \t\t {model['name']}\nIRQ:   \t\t 18\nGPU UUID: \t {gpu['uuid']}\n"
            f"Video BIOS: \t {model['vbios']}\n"
            f"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {gpu['pci']}\n"
            f"Device Minor: \t {index}\nGPU Firmware: \t {firmware}\nGPU Excluded:\t No\n"
        )


def _dmi(files: Files, state: dict[str, Any]) -> None:
    for name, value in state["dmi"].items():
        files[f"sys/class/dmi/id/{name}"] = f"{value}\n"
    files["sys/class/dmi/id/product_uuid"] = f"{uuid.uuid5(uuid.NAMESPACE_DNS, state['host'])}\n"


# --- writing ------------------------------------------------------------------------------------------------------


def _fingerprint(node: Node) -> str:
    if isinstance(node, Link):
        return "l" + node.target
    if isinstance(node, Folder):
        return "d"
    data = node.encode() if isinstance(node, str) else bytes(node)
    return "f" + hashlib.blake2b(data, digest_size=12).hexdigest()


def sync(state: dict[str, Any]) -> bool:
    """Bring the written tree to the state. Nothing to do (and False) where there is no tree: an image, a unit test."""
    where = base()
    if not (where / "sys").is_dir():
        ports.refresh_gid_tables(state, interfaces.current(state))
        return False
    manifest_path = where / ".manifest.json"
    known: dict[str, str] = json.loads(manifest_path.read_text()) if manifest_path.exists() else {}
    tree_rdma.take_in(state, where, known, device_path)
    live = interfaces.current(state)
    ports.refresh_gid_tables(state, live)
    files = build(state, live)
    fresh = {path: _fingerprint(node) for path, node in files.items()}
    if fresh == known:
        return False
    gone = [path for path in known if path not in fresh]
    for path in sorted(gone, key=lambda item: -item.count("/")):
        _remove(where / path, where)
    for path in sorted(files, key=lambda item: item.count("/")):
        if fresh[path] != known.get(path):
            _write(where / path, files[path])
    manifest_path.write_text(json.dumps(fresh))
    return True


def writable(state: dict[str, Any]) -> list[Path]:
    """The files that a host may write and that then read otherwise."""
    return [base() / path for path, *_ in tree_rdma.stores(state, device_path)]


def clear() -> None:
    """An empty tree under RAILYARD_LAB_ROOT, as a node's tmpfs is at each boot."""
    where = base()
    (where / ".manifest.json").unlink(missing_ok=True)
    shutil.rmtree(where / "sys", ignore_errors=True)
    (where / "sys").mkdir(parents=True)


def _remove(path: Path, where: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        try:
            path.rmdir()
        except OSError:
            return
    # Folders that are mounted over the node's own stay, empty or not: a mount keeps the folder that it was made of.
    mounted = ("sys", "proc", "class", "bus", "devices", "module", "driver")
    parent = path.parent
    while parent != where and parent.is_dir() and parent.name not in mounted:
        try:
            parent.rmdir()
        except OSError:
            return
        parent = parent.parent


def _write(path: Path, node: Node) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(node, Folder):
        path.mkdir(exist_ok=True)
        return
    if isinstance(node, Link):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        path.symlink_to(node.target)
        return
    if path.is_symlink():
        path.unlink()
    data = node.encode() if isinstance(node, str) else bytes(node)
    if path.name == "config" and path.exists():
        data = bytes(config_space.keep_volatile(bytearray(data), path.read_bytes()))
    # In place: some of these files are mounted over others one by one. Never empty: a kernel's file is not, either.
    with open(path, "r+b" if path.exists() else "wb") as handle:
        handle.write(data)
        handle.truncate()
    os.chmod(path, 0o600 if path.name == "vpd" else 0o644)
