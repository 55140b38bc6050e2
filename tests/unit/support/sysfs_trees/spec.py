# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a machine is made of."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Endpoint:
    """A PCI function below `upstream` bridges (root port first) of the host bridge `root`."""

    bdf: str
    root: str
    upstream: tuple[str, ...] = ()
    numa: int = 0
    device: str = "0000"
    driver: Optional[str] = None
    speed: str = "32.0 GT/s PCIe"
    width: int = 16
    max_speed: str = "32.0 GT/s PCIe"
    max_width: int = 16
    max_read_request: int = 512
    #: Directory above the host bridge, for buses that are not directly below /sys/devices (VMBus).
    above: str = ""
    iommu_group: Optional[int] = None
    iommu_type: str = "identity"


@dataclass(frozen=True)
class Gpu(Endpoint):
    device: str = "2330"
    driver: Optional[str] = "nvidia"


@dataclass(frozen=True)
class Switch(Endpoint):
    """An NVSwitch on the bus."""

    device: str = "22a3"
    driver: Optional[str] = "nvidia-nvswitch"


@dataclass(frozen=True)
class Bridge:
    bdf: str
    #: ACS control register; None: no such capability.
    acs: Optional[int] = None
    vendor: str = "1000"
    device: str = "c030"


@dataclass(frozen=True)
class Nic(Endpoint):
    """One port of a network card, or a virtual function or sub-function of one."""

    device: str = "1021"
    driver: Optional[str] = "mlx5_core"
    rdma: Optional[str] = None
    netdev: Optional[str] = None
    link_layer: str = "InfiniBand"
    state: str = "ACTIVE"
    rate: str = "400 Gb/sec (4X NDR)"
    guid: str = "b83fd20300000000"
    #: GUID of the card, which its ports share; None: the port's own.
    system_guid: Optional[str] = None
    board_id: str = "MT_0000000838"
    firmware: str = "28.43.2026"
    hca_type: str = "MT4129"
    node_type: str = "1: CA"
    lid: int = 0
    mtu: int = 4092
    mac: str = "b8:3f:d2:00:00:00"
    ipv4: Optional[str] = None
    vendor: str = "15b3"
    part_number: Optional[str] = "MCX75310AAS-NEAT"
    product: str = "Mellanox ConnectX-7 NDR adapter"
    vpd_extra: dict[str, str] = dataclasses.field(default_factory=dict)
    subfunction: Optional[int] = None
    physfn: Optional[str] = None
    master: Optional[str] = None
    #: Interface that the GID table names, where it is not the port's own (a bond).
    gid_netdev: Optional[str] = None


@dataclass(frozen=True)
class Netdev:
    """An interface that is on no bus."""

    name: str
    kind: str = "other"  # loopback, bond, bridge, vlan, veth, other
    mac: str = "02:00:00:00:00:01"
    mtu: int = 1500
    operstate: str = "up"
    members: tuple[str, ...] = ()
    mode: str = "802.3ad 4"
    ipv4: Optional[str] = None


@dataclass(frozen=True)
class Machine:
    name: str
    hostname: str = "gpu-01"
    vendor: str = "NVIDIA"
    product: str = "DGXH100"
    kernel: str = "6.8.0-60-generic"
    driver: Optional[str] = "570.133.20"
    open_driver: bool = True
    hypervisor: bool = False
    cmdline: str = "BOOT_IMAGE=/vmlinuz root=/dev/md0 ro iommu=pt"
    modules: tuple[str, ...] = ("nvidia", "nvidia_uvm", "nvidia_peermem", "ib_core", "mlx5_core", "mlx5_ib", "ib_umad")
    bridges: tuple[Bridge, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    switches: tuple[Switch, ...] = ()
    nics: tuple[Nic, ...] = ()
    netdevs: tuple[Netdev, ...] = (Netdev("lo", "loopback", "00:00:00:00:00:00", 65536, "unknown"),)
    #: Interface and gateway of the default route.
    default_route: tuple[str, str] = ("eno1", "192.168.10.1")
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def nic(self, name: str) -> Nic:
        return next(nic for nic in self.nics if name in (nic.rdma, nic.netdev, nic.bdf))

    def with_nic(self, name: str, **changes: Any) -> Machine:
        old = self.nic(name)
        new = dataclasses.replace(old, **changes)
        return dataclasses.replace(self, nics=tuple(new if nic is old else nic for nic in self.nics))
