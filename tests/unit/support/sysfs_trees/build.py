# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine as files: the attributes and links that the kernel shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Union

from .registers import config_space, vital_product_data
from .spec import Bridge, Endpoint, Gpu, Machine, Netdev, Nic, Switch

_GID_SLOTS = 16
_ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_STATES = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}
_ARPHRD = {"Ethernet": 1, "InfiniBand": 32}


def build(machine: Machine, root: Union[str, Path]) -> Path:
    """Write the tree of `machine` below `root`, which then stands in for `/`."""
    tree = _Tree(Path(root))
    for endpoint in (*machine.gpus, *machine.switches, *machine.nics):
        tree.function(endpoint, machine)
    for netdev in machine.netdevs:
        tree.netdev(netdev)
    tree.system(machine)
    for path, text in machine.files.items():
        tree.write(path, text)
    return tree.root


class _Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir(parents=True, exist_ok=True)

    # --- files and links -----------------------------------------------------------------------

    def write(self, path: str, content: Union[str, bytes, int]) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            text = str(content)
            target.write_text(text if text.endswith("\n") or not text else f"{text}\n", encoding="utf-8")

    def attributes(self, directory: str, **values: Union[str, bytes, int, None]) -> None:
        for name, value in values.items():
            if value is not None:
                self.write(f"{directory}/{name}", value)

    def link(self, path: str, target: str) -> None:
        """A relative link, as sysfs has them."""
        here = self.root / path.lstrip("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        if not here.is_symlink():
            here.symlink_to(os.path.relpath(self.root / target.lstrip("/"), here.parent))

    def directory(self, path: str) -> None:
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)

    # --- PCI -----------------------------------------------------------------------------------

    def function(self, endpoint: Endpoint, machine: Machine) -> None:
        here = f"/sys/devices{endpoint.above}/{endpoint.root}"
        bridges = {bridge.bdf: bridge for bridge in machine.bridges}
        for bdf in endpoint.upstream:
            here = f"{here}/{bdf}"
            if not (self.root / here.lstrip("/") / "config").exists():
                self._bridge(bridges.get(bdf, Bridge(bdf)), here, endpoint.numa)
        here = f"{here}/{endpoint.bdf}"
        vendor, base_class = _identity(endpoint)
        if isinstance(endpoint, Nic) and endpoint.subfunction is not None:
            self._port(endpoint, f"{here}/mlx5_core.sf.{endpoint.subfunction}")
            return
        self.attributes(
            here,
            vendor=f"0x{vendor}",
            device=f"0x{endpoint.device}",
            subsystem_vendor=f"0x{vendor}",
            subsystem_device="0x0040",
            numa_node=endpoint.numa,
            local_cpulist="0-127" if endpoint.numa < 0 else f"{endpoint.numa * 56}-{endpoint.numa * 56 + 55}",
            current_link_speed=endpoint.speed,
            current_link_width=endpoint.width,
            max_link_speed=endpoint.max_speed,
            max_link_width=endpoint.max_width,
            config=config_space(vendor, endpoint.device, base_class, max_read_request=endpoint.max_read_request),
        )
        self.write(f"{here}/class", f"0x{base_class}")
        self.link(f"/sys/bus/pci/devices/{endpoint.bdf}", here)
        if endpoint.driver is not None:
            self.directory(f"/sys/bus/pci/drivers/{endpoint.driver}")
            self.link(f"{here}/driver", f"/sys/bus/pci/drivers/{endpoint.driver}")
        if endpoint.iommu_group is not None:
            group = f"/sys/kernel/iommu_groups/{endpoint.iommu_group}"
            self.write(f"{group}/type", endpoint.iommu_type)
            self.link(f"{here}/iommu_group", group)
        if isinstance(endpoint, Nic):
            if endpoint.physfn is not None:
                self.link(f"{here}/physfn", f"{here.rsplit('/', 1)[0]}/{endpoint.physfn}")
            if endpoint.part_number is not None:
                keywords = {"PN": endpoint.part_number, "SN": f"MT25{endpoint.guid[-8:].upper()}", **endpoint.vpd_extra}
                self.write(f"{here}/vpd", vital_product_data(endpoint.product, keywords))
            self._port(endpoint, here)

    def _bridge(self, bridge: Bridge, here: str, numa: int) -> None:
        self.attributes(
            here,
            vendor=f"0x{bridge.vendor}",
            device=f"0x{bridge.device}",
            numa_node=numa,
            config=config_space(bridge.vendor, bridge.device, "060400", acs=bridge.acs),
        )
        self.write(f"{here}/class", "0x060400")
        self.directory("/sys/bus/pci/drivers/pcieport")
        self.link(f"{here}/driver", "/sys/bus/pci/drivers/pcieport")
        self.link(f"/sys/bus/pci/devices/{bridge.bdf}", here)

    # --- ports ---------------------------------------------------------------------------------

    def _port(self, nic: Nic, device: str) -> None:
        if nic.netdev is not None:
            self._interface(nic, device)
        if nic.rdma is None:
            return
        here = f"{device}/infiniband/{nic.rdma}"
        self.attributes(
            here,
            fw_ver=nic.firmware,
            hca_type=nic.hca_type,
            board_id=nic.board_id,
            node_guid=_grouped(nic.guid),
            sys_image_guid=_grouped(nic.system_guid or nic.guid),
            node_type=nic.node_type,
            node_desc=f"gpu-01 {nic.rdma}",
        )
        self.link(f"{here}/device", device)
        self.link(f"/sys/class/infiniband/{nic.rdma}", here)
        port = f"{here}/ports/1"
        up = nic.state == "ACTIVE"
        self.attributes(
            port,
            state=f"{_STATES[nic.state]}: {nic.state}",
            phys_state="5: LinkUp" if up else "3: Disabled",
            rate=nic.rate,
            link_layer=nic.link_layer,
            lid=f"0x{nic.lid:x}",
            sm_lid="0x1" if nic.link_layer == "InfiniBand" and up else "0x0",
            lid_mask_count=0,
            cap_mask="0xa751e848" if nic.link_layer == "InfiniBand" else "0x00010000",
        )
        self.write(f"{port}/pkeys/0", "0xffff")
        self.write(f"{port}/pkeys/1", "0x0000")
        for counter, value in (("symbol_error", 0), ("link_downed", 1), ("port_xmit_data", 4096)):
            self.write(f"{port}/counters/{counter}", value)
        for counter, value in (("out_of_sequence", 0), ("np_cnp_sent", 0), ("lifespan", 10)):
            self.write(f"{port}/hw_counters/{counter}", value)
        self._gids(nic, port)

    def _gids(self, nic: Nic, port: str) -> None:
        """An empty slot has a zero GID and neither type nor interface, whose reading fails on a real host."""
        table: list[tuple[str, str]] = []
        if nic.link_layer == "InfiniBand":
            table.append((f"fe80:0000:0000:0000:{_grouped(nic.guid)}", "IB/RoCE v1"))
        else:
            local = f"fe80:0000:0000:0000:{_modified_eui64(nic.mac)}"
            table.extend(((local, "IB/RoCE v1"), (local, "RoCE v2")))
            if nic.ipv4 is not None:
                parts = [int(part) for part in nic.ipv4.split("/")[0].split(".")]
                mapped = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*parts)
                table.extend(((mapped, "IB/RoCE v1"), (mapped, "RoCE v2")))
        netdev = nic.gid_netdev or nic.netdev
        for index in range(_GID_SLOTS):
            gid, kind = table[index] if index < len(table) else (_ZERO_GID, "")
            self.write(f"{port}/gids/{index}", gid)
            if kind:
                self.write(f"{port}/gid_attrs/types/{index}", kind)
                if netdev is not None and nic.link_layer == "Ethernet":
                    self.write(f"{port}/gid_attrs/ndevs/{index}", netdev)

    def _interface(self, nic: Nic, device: str) -> None:
        here = f"{device}/net/{nic.netdev}"
        up = nic.state == "ACTIVE"
        number = "".join(char for char in nic.rate.split()[0] if char.isdigit() or char == ".")
        infiniband = nic.link_layer == "InfiniBand"
        self.attributes(
            here,
            address=f"00:00:10:49:fe:80:00:00:00:00:00:00:{':'.join(_pairs(nic.guid))}" if infiniband else nic.mac,
            mtu=nic.mtu,
            operstate="up" if up else "down",
            carrier=int(up),
            speed=int(float(number) * 1000) if up else -1,
            duplex="full" if up else "unknown",
            type=_ARPHRD[nic.link_layer],
            dev_port=0,
            dev_id="0x0",
            ifindex=2 + int(nic.guid[-4:], 16),
            phys_port_name="p0" if nic.physfn is None and not infiniband else None,
        )
        self.link(f"{here}/device", device)
        self.link(f"/sys/class/net/{nic.netdev}", here)
        if nic.master is not None:
            self.link(f"{here}/master", f"/sys/devices/virtual/net/{nic.master}")

    def netdev(self, netdev: Netdev) -> None:
        here = f"/sys/devices/virtual/net/{netdev.name}"
        self.attributes(
            here,
            address=netdev.mac,
            mtu=netdev.mtu,
            operstate=netdev.operstate,
            type=772 if netdev.kind == "loopback" else 1,
            uevent=f"DEVTYPE={netdev.kind}\nINTERFACE={netdev.name}"
            if netdev.kind in ("bond", "bridge", "vlan")
            else "",
        )
        if netdev.kind == "bond":
            self.attributes(f"{here}/bonding", mode=netdev.mode, slaves=" ".join(netdev.members))
        elif netdev.kind == "bridge":
            self.directory(f"{here}/bridge")
        self.link(f"/sys/class/net/{netdev.name}", here)

    # --- the system around them ----------------------------------------------------------------

    def system(self, machine: Machine) -> None:
        self.attributes("/sys/class/dmi/id", sys_vendor=machine.vendor, product_name=machine.product)
        self.attributes("/proc/sys/kernel", hostname=machine.hostname, osrelease=machine.kernel)
        self.write("/proc/cmdline", machine.cmdline)
        self.write("/proc/cpuinfo", f"flags\t\t: fpu vme{' hypervisor' if machine.hypervisor else ''} lahf_lm")
        self.write("/proc/uptime", "86400.42 1000000.00")
        self.write("/proc/modules", "\n".join(f"{name} 16384 0 - Live 0x0000000000000000" for name in machine.modules))
        for name in machine.modules:
            self.directory(f"/sys/module/{name}")
        self.write(
            "/proc/1/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max open files            1048576              1048576              files     \n"
            "Max locked memory         8388608              unlimited            bytes     \n",
        )
        self.write(
            "/etc/os-release",
            'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
        )
        if machine.driver is not None and machine.gpus:
            kind = "Open Kernel Module for x86_64" if machine.open_driver else "x86_64 Kernel Module"
            self.write(
                "/proc/driver/nvidia/version",
                f"NVRM version: NVIDIA UNIX {kind}  {machine.driver}  Release Build  (builder@host)\n"
                "GCC version:  gcc version 13.3.0\n",
            )


def _identity(endpoint: Endpoint) -> tuple[str, str]:
    if isinstance(endpoint, Gpu):
        return "10de", "030200"
    if isinstance(endpoint, Switch):
        return "10de", "068000"
    assert isinstance(endpoint, Nic)
    return endpoint.vendor, "020700" if endpoint.link_layer == "InfiniBand" else "020000"


def _modified_eui64(mac: str) -> str:
    octets = mac.split(":")
    head = f"{int(octets[0], 16) ^ 2:02x}{octets[1]}:{octets[2]}ff"
    return f"{head}:fe{octets[3]}:{octets[4]}{octets[5]}"


def _grouped(guid: str) -> str:
    return ":".join(guid[index : index + 4] for index in range(0, 16, 4))


def _pairs(guid: str) -> list[str]:
    return [guid[index : index + 2] for index in range(0, 16, 2)]
