# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine profiles: compact JSON in `profiles/`, unfolded here into the first state of a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from railyard_lab import catalogue, identity, link, nvconfig, qos

DIRECTORY = Path(__file__).parent / "profiles"
SCHEMA = 1


def names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def load(name: str) -> dict[str, Any]:
    path = DIRECTORY / f"{name}.json"
    if not path.is_file():
        raise SystemExit(f"railyard_lab: no profile {name!r}; there are: {', '.join(names())}")
    return json.loads(path.read_text())


def unfold(name: str, host: str) -> dict[str, Any]:
    """The state of a host of this profile as it comes from the factory with a bare OS on it."""
    profile = load(name)
    state: dict[str, Any] = {
        "schema": SCHEMA,
        "profile": name,
        "host": host,
        "boot": {"count": 0, "id": ""},
        "virtualization": profile["virtualization"],
        "dmi": profile["dmi"],
        "cmdline": profile["cmdline"],
        "cpulists": profile["cpulists"],
        "stack": dict(profile.get("stack", {"kind": "inbox", "version": None})),
        "preinstalled": profile.get("tools", ["mft", "mlnx-tools"]),
        "enabled_tools": [],
        "driver": {"installed": None, "library": None, "flavour": None, "loaded": None, "loaded_flavour": None},
        "fabric_manager": {"version": None},
        "persistence": False,
        "mig": False,
        "cuda": None,
        "nccl": None,
        "modules": ["mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs"],
        "module_parameters": {},
        "dkms": [],
        "sm": {"lid": 1 if profile.get("subnet_manager") else 0},
        "fabric": {"expected_pfc": profile.get("fabric_pfc", [3])},
        "pci": {},
        "gpus": [],
        "nvswitches": [],
        "nics": [],
        "interfaces": {},
        "gid_tables": {},
        "ipoib": {},
        "gpu_processes": [],
        "dmesg": [],
        "faults": [],
    }
    _add_bridges(state, profile)
    for index, entry in enumerate(profile["gpus"]["pci"]):
        _add_gpu(state, profile["gpus"]["model"], entry, index)
    for bdf in profile.get("nvswitches", {}).get("pci", []):
        _add_nvswitch(state, profile["nvswitches"]["model"], bdf)
    for entry in profile["nics"]:
        _add_nic(state, entry)
    return state


def _add_bridges(state: dict[str, Any], profile: dict[str, Any]) -> None:
    models = profile.get("bridge_models", {})
    for group in profile["pcie"]:
        above: list[str] = []
        for position, bdf in enumerate(group["above"]):
            # Below the root port upstream and downstream ports of switches take turns.
            model = models["root"] if position == 0 else models["up"] if position % 2 else models["down"]
            _add_function(state, bdf, catalogue.BRIDGES[model], group["numa"], list(above), "bridge", "060400")
            above.append(bdf)
        for port, devices in group["below"]:
            path = list(above)
            if port:
                _add_function(state, port, catalogue.BRIDGES[models["down"]], group["numa"], path, "bridge", "060400")
                path = [*path, port]
            for bdf in devices:
                state["pci"][bdf] = {"path": path, "numa_node": group["numa"]}


def _add_function(
    state: dict[str, Any], bdf: str, model: dict[str, Any], numa: int, path: list[str], kind: str, pci_class: str
) -> dict[str, Any]:
    subsystem = model.get("subsystem", ("0000", "0000"))
    function = {
        "kind": kind,
        "path": path,
        "numa_node": numa,
        "vendor": model.get("vendor", "10de"),
        "device": model["device"],
        "class": pci_class,
        "subsystem_vendor": subsystem[0],
        "subsystem_device": subsystem[1],
        "driver": model.get("driver", ""),
        "link": {"gen": model["gen"], "width": model["width"], "max_gen": model["gen"], "max_width": model["width"]},
        "port_type": model.get("type") if kind == "bridge" else "endpoint",
        "acs": bool(model.get("acs")),
        "max_read_request": model.get("mrrs", 512),
    }
    state["pci"][bdf] = function
    return function


def _place(state: dict[str, Any], bdf: str) -> tuple[int, list[str]]:
    place = state["pci"].get(bdf, {"path": [], "numa_node": -1})
    return place["numa_node"], place["path"]


def _add_gpu(state: dict[str, Any], model_name: str, bdf: str, index: int) -> None:
    model = catalogue.GPUS[model_name]
    numa, path = _place(state, bdf)
    _add_function(state, bdf, {**model, "vendor": "10de"}, numa, path, "gpu", "030200")
    host = state["host"]
    state["gpus"].append(
        {
            "pci": bdf,
            "model": model_name,
            "module_id": index + 1,
            "uuid": identity.gpu_uuid(host, bdf),
            "serial": identity.serial(host, bdf, "16", 13),
            "present": True,
            "uncorrected_ecc": 0,
            "remap_pending": False,
            "links_down": [],
            "xid": None,
        }
    )


def _add_nvswitch(state: dict[str, Any], model_name: str, bdf: str) -> None:
    numa, path = _place(state, bdf)
    _add_function(state, bdf, catalogue.NVSWITCHES[model_name], numa, path, "nvswitch", "068000")
    state["nvswitches"].append({"pci": bdf, "model": model_name})


def _lid(host: str, bdf: str) -> int:
    """What the subnet manager gave this port: some number, another one for each port of the fabric."""
    return 2 + int(identity.hexadecimal(host, bdf, 4), 16) % 0xBF00


def _add_nic(state: dict[str, Any], entry: dict[str, Any]) -> None:
    bdf, model = entry["pci"], catalogue.NICS[entry["model"]]
    numa, path = _place(state, bdf)
    link_layer = entry.get("link_layer", "Ethernet")
    pci_class = "020700" if link_layer == "InfiniBand" or model.get("sw_mng") else "020000"
    function = _add_function(state, bdf, model, numa, path, "nic", pci_class)
    function["physfn"] = entry.get("physfn")
    mellanox = model["vendor"] == "15b3"
    mac = identity.mac(state["host"], bdf, identity.OUI_MELLANOX if mellanox else identity.OUI_OTHER)
    nic = {
        "pci": bdf,
        "model": entry["model"],
        "role": entry["role"],
        "rail": entry.get("rail"),
        "rdma": entry.get("rdma"),
        "netdev": entry.get("netdev"),
        "mac": mac,
        "node_guid": identity.guid(mac),
        "sys_image_guid": identity.guid(identity.mac(state["host"], bdf.rsplit(".", 1)[0] + ".0")),
        "serial": identity.serial(state["host"], bdf.rsplit(".", 1)[0], "MT2409X", 12),
        "firmware": entry.get("firmware", model["firmware"]),
        "psid": model.get("psid", ""),
        "link_layer": link_layer,
        "rate_gbps": entry.get("rate_gbps", model["rate_gbps"]),
        "speed_limit_gbps": None,
        "cable": entry.get("cable", True),
        "lid": entry.get("lid", _lid(state["host"], bdf) if link_layer == "InfiniBand" else 0),
        "capability_mask": entry.get("capability_mask"),
        "vf": bool(model.get("vf")),
        "sw_mng": bool(model.get("sw_mng")),
        "flaps": 0,
        "symbol_errors": 0,
        "loss": 0.0,
        **link.factory(),
        "features": {},
    }
    if nic["rdma"]:
        nic["nvconfig"] = nvconfig.factory(nic, model, state["stack"])
    if link_layer == "Ethernet" and mellanox:
        nic["qos"] = qos.factory()
    state["nics"].append(nic)
