# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys/class/net: real interfaces as the kernel shows them, and modelled ports as a NIC's driver would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from railyard_lab import catalogue, identity, interfaces, ipoib, ports

# Attributes of a modelled port which a veth has not or has otherwise.
_OWN = {
    "device",
    "speed",
    "duplex",
    "type",
    "dev_port",
    "dev_id",
    "phys_port_name",
    "phys_switch_id",
    "subsystem",
    "power",
}


def add(
    files: dict[str, Any],
    state: dict[str, Any],
    live: dict[str, interfaces.Interface],
    device_path: Callable[[dict[str, Any], str], str],
) -> None:
    from railyard_lab.tree import Folder, Link, up

    modelled = {nic["netdev"] for nic in state["nics"] if nic["netdev"]} | {*ipoib.children(state)}
    for name, interface in live.items():
        if interface.real and name not in modelled:
            files[f"sys/class/net/{name}"] = Link(f"../../devices/virtual/net/{name}")
    if interfaces.is_node() and (interfaces.real_sysfs() / "class/net/bonding_masters").exists():
        files["sys/class/net/bonding_masters"] = Link(str(interfaces.real_sysfs() / "class/net/bonding_masters"))
    for nic in state["nics"]:
        if not nic["netdev"] or (nic["rdma"] and "mlx5_core" not in state["modules"]):
            continue
        interface = live.get(nic["netdev"])
        if nic["link_layer"] == "InfiniBand" and "ib_ipoib" not in state["modules"]:
            continue
        device = device_path(state, nic["pci"])
        folder = f"{device}/net/{nic['netdev']}"
        files[f"sys/class/net/{nic['netdev']}"] = Link(f"../../{folder[4:]}")
        files[f"{folder}/device"] = Link("../../../" + nic["pci"])
        files[f"{folder}/subsystem"] = Link(up(folder) + "class/net")
        function = nic["pci"].rsplit(".", 1)[1]
        port = ports.view(state, nic, live)
        model = catalogue.NICS[nic["model"]]
        speed = port["rate_gbps"] * 1000 if port["up"] else -1
        if nic["link_layer"] == "Ethernet":
            files[f"{folder}/speed"] = f"{speed if model['rate_gbps'] else -1}\n"
            files[f"{folder}/duplex"] = ("full" if port["up"] else "unknown") + "\n"
            files[f"{folder}/type"] = "1\n"
            if nic["rdma"] and not nic["vf"]:
                files[f"{folder}/phys_port_name"] = f"p{function}\n"
                files[f"{folder}/phys_switch_id"] = nic["sys_image_guid"] + "\n"
        if nic["link_layer"] == "InfiniBand" and interface is not None and interface.real:
            _over_infiniband(files, folder, state, nic["netdev"])
        files[f"{folder}/dev_port"] = "0\n"
        files[f"{folder}/dev_id"] = "0x0\n"
        if interface is not None and interface.real:
            # The kernel's own answer, whenever it is read: the same file, found through a link.
            for attribute in interfaces.attributes(nic["netdev"]):
                if attribute not in _OWN and f"{folder}/{attribute}" not in files:
                    files[f"{folder}/{attribute}"] = Link(
                        f"{up(folder)}devices/virtual/net/{nic['netdev']}/{attribute}"
                    )
            if not nic["cable"]:
                files[f"{folder}/carrier"], files[f"{folder}/operstate"] = "0\n", "down\n"
        elif nic["link_layer"] == "InfiniBand":
            _ipoib(files, folder, nic, port)
        elif interface is not None:
            _simulated(files, folder, interface)
        if nic.get("qos") and state["stack"]["kind"] == "doca" and not nic["vf"]:
            _ofed(files, folder, nic)
    for name in ipoib.children(state):
        if name in live and live[name].real:
            folder = f"sys/devices/ib_ipoib/net/{name}"
            files[f"sys/class/net/{name}"] = Link(f"../../{folder[4:]}")
            files[f"{folder}/subsystem"] = Link(up(folder) + "class/net")
            _over_infiniband(files, folder, state, name)
            files[f"{folder}/parent"] = ipoib.children(state)[name]["parent"] + "\n"
            for attribute in interfaces.attributes(name):
                if f"{folder}/{attribute}" not in files and attribute not in _OWN:
                    files[f"{folder}/{attribute}"] = Link(f"{up(folder)}devices/virtual/net/{name}/{attribute}")
    _ = Folder


def _over_infiniband(files: dict[str, Any], folder: str, state: dict[str, Any], name: str) -> None:
    """What ib_ipoib shows of an interface, beside what any has."""
    nic = ipoib.port_of(state, name)
    assert nic is not None
    files[f"{folder}/type"] = "32\n"
    files[f"{folder}/address"] = ipoib.address(nic, ipoib.pkey(state, name)) + "\n"
    files[f"{folder}/addr_len"] = "20\n"
    files[f"{folder}/broadcast"] = ipoib.broadcast(ipoib.pkey(state, name)) + "\n"
    files[f"{folder}/mode"] = ipoib.mode(state, name) + "\n"
    files[f"{folder}/pkey"] = f"{ipoib.pkey(state, name):#06x}\n"
    if not ipoib.joined(state, name):
        files[f"{folder}/carrier"], files[f"{folder}/operstate"] = "0\n", "down\n"


def _ipoib(files: dict[str, Any], folder: str, nic: dict[str, Any], port: dict[str, Any]) -> None:
    head = "00:00:10:29:fe:80:00:00:00:00:00:00"
    address = f"{head}:{':'.join(nic['node_guid'][i : i + 2] for i in range(0, 16, 2))}"
    files[f"{folder}/type"] = "32\n"
    files[f"{folder}/address"] = address + "\n"
    files[f"{folder}/addr_len"] = "20\n"
    files[f"{folder}/mtu"] = "2044\n"
    files[f"{folder}/operstate"] = "down\n"
    files[f"{folder}/carrier"] = "0\n"
    files[f"{folder}/mode"] = "datagram\n"
    files[f"{folder}/pkey"] = "0xffff\n"
    files[f"{folder}/flags"] = "0x1002\n"
    files[f"{folder}/ifindex"] = f"{200 + int(identity.hexadecimal(nic['pci'], 'ifindex', 2), 16)}\n"
    files[f"{folder}/speed"] = f"{port['rate_gbps'] * 1000}\n"


def _simulated(files: dict[str, Any], folder: str, interface: interfaces.Interface) -> None:
    files[f"{folder}/address"] = interface.mac + "\n"
    files[f"{folder}/addr_len"] = "6\n"
    files[f"{folder}/mtu"] = f"{interface.mtu}\n"
    files[f"{folder}/carrier"] = f"{int(interface.carrier)}\n"
    files[f"{folder}/operstate"] = ("up" if interface.carrier else "down") + "\n"
    files[f"{folder}/flags"] = f"0x{0x1002 | int(interface.up):x}\n"
    files[f"{folder}/ifindex"] = f"{interface.index}\n"


def _ofed(files: dict[str, Any], folder: str, nic: dict[str, Any]) -> None:
    """What OFED's mlx5_en adds and the inbox driver lacks."""
    values = nic["qos"]["roce"]
    for priority in range(8):
        files[f"{folder}/ecn/roce_rp/enable/{priority}"] = f"{values['rp'][priority]}\n"
        files[f"{folder}/ecn/roce_np/enable/{priority}"] = f"{values['np'][priority]}\n"
    files[f"{folder}/ecn/roce_np/cnp_dscp"] = f"{values['cnp_dscp']}\n"
    files[f"{folder}/ecn/roce_np/cnp_802p_prio"] = f"{values['cnp_802p_prio']}\n"
    files[f"{folder}/ecn/roce_np/min_time_between_cnps"] = "4\n"
    files[f"{folder}/settings/pfc_stall_prevention"] = "default\n"
    files[f"{folder}/settings/force_local_lb_disable"] = "Force local loopback disable is OFF\n"
