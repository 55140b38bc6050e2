# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine types. Addresses follow public descriptions of these machines; GUIDs, MACs and serials are made up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .spec import Bridge, Gpu, Machine, Netdev, Nic, Switch

GEN4, GEN5 = "16.0 GT/s PCIe", "32.0 GT/s PCIe"
NDR, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"
_LOOPBACK = Netdev("lo", "loopback", "00:00:00:00:00:00", 65536, "unknown")
_NVLINK_MODULES = ("nvidia", "nvidia_uvm", "ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib")


def _guid(serial: int) -> str:
    return f"b83fd2030{serial * 16:07x}"


def _mac(serial: int) -> str:
    digits = f"b83fd2{serial * 16:06x}"
    return ":".join(digits[index : index + 2] for index in range(0, 12, 2))


def _switch(bus: int, domain: int = 0) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """A host bridge with one PCIe switch: (root, bridges above the first port, bridges above the second)."""
    base = f"{domain:04x}"
    above = (f"{base}:{bus - 3:02x}:01.0", f"{base}:{bus - 2:02x}:00.0")
    return (
        f"pci{base}:{bus - 3:02x}",
        (*above, f"{base}:{bus - 1:02x}:00.0"),
        (*above, f"{base}:{bus - 1:02x}:01.0"),
    )


def _bridges(*chains: tuple[str, ...], acs: int = 0) -> tuple[Bridge, ...]:
    """Every bridge once; downstream ports and root ports have an ACS capability, upstream ports have none."""
    found = {}
    for chain in chains:
        for index, bdf in enumerate(chain):
            found[bdf] = Bridge(bdf, acs=None if index == 1 else acs)
    return tuple(found.values())


def _infiniband(index: int, bdf: str, **changes: object) -> Nic:
    bus = int(bdf.split(":")[1], 16)
    nic = Nic(
        bdf=bdf,
        root="",
        rdma=f"mlx5_{index}",
        netdev=f"ibp{bus}s0",
        guid=_guid(index + 1),
        mac=_mac(index + 1),
        lid=index + 10,
        max_read_request=4096,
    )
    return dataclasses.replace(nic, **changes)


def _ethernet(index: int, bdf: str, address: str | None = None, **changes: object) -> Nic:
    bus, function = int(bdf.split(":")[1], 16), bdf.rsplit(".", 1)[1]
    nic = Nic(
        bdf=bdf,
        root="",
        rdma=f"mlx5_{index}",
        netdev=f"enp{bus}s0f{function}np{function}",
        link_layer="Ethernet",
        guid=_guid(index + 1),
        system_guid=_guid(index + 1 - int(function)),
        mac=_mac(index + 1),
        mtu=9000,
        ipv4=address,
        max_read_request=4096,
    )
    return dataclasses.replace(nic, **changes)


_H100_PAIRS = (
    (0x18, 0x1B),
    (0x40, 0x43),
    (0x4F, 0x52),
    (0x5E, 0x61),
    (0x9A, 0x9D),
    (0xC0, 0xC3),
    (0xCE, 0xD1),
    (0xDC, 0xDF),
)


def _hgx(name: str, pairs: tuple[tuple[int, int], ...], gpu: str, product: str, **changes: object) -> Machine:
    """A switch per GPU, which it shares with its network card. Device numbers follow the bus and skip storage cards."""
    gpus, nics, chains = [], [], []
    index = 0
    for rail, (nic_bus, gpu_bus) in enumerate(pairs):
        root, first, second = _switch(nic_bus)
        numa = 0 if rail < len(pairs) // 2 else 1
        chains.extend((first, second))
        gpus.append(Gpu(f"0000:{gpu_bus:02x}:00.0", root, second, numa, device=gpu, iommu_group=20 + rail))
        if rail in (1, 4):  # a storage card takes the numbers in between
            index += 2
        nics.append(
            _infiniband(index, f"0000:{nic_bus:02x}:00.0", root=root, upstream=first, numa=numa, iommu_group=40 + rail)
        )
        index += 1
    for number, bus, numa in ((1, 0x29, 0), (6, 0xAA, 1)):
        root, first, _ = _switch(bus)
        chains.append(first)
        for function in (0, 1):
            nics.append(
                _ethernet(
                    number + function,
                    f"0000:{bus:02x}:00.{function}",
                    f"10.20.{number}.11/24" if function == 0 else None,
                    root=root,
                    upstream=first,
                    numa=numa,
                    rate="200 Gb/sec (4X HDR)" if function == 0 else "40 Gb/sec (4X QDR)",
                    state="ACTIVE" if function == 0 else "DOWN",
                    board_id="MT_0000000834",
                    part_number="MCX755206AS-NEAT",
                    product="ConnectX-7 200GbE dual-port",
                )
            )
    management = Nic(
        "0000:0b:00.0",
        "pci0000:00",
        ("0000:00:1c.0",),
        0,
        device="1563",
        vendor="8086",
        driver="ixgbe",
        netdev="eno1",
        link_layer="Ethernet",
        rate="10 Gb/sec",
        speed="8.0 GT/s PCIe",
        width=4,
        max_speed="8.0 GT/s PCIe",
        max_width=4,
        mac="b4:2e:99:00:00:01",
        guid=_guid(60),
        ipv4="192.168.10.11/24",
        mtu=1500,
        part_number=None,
    )
    machine = Machine(
        name=name,
        product=product,
        bridges=_bridges(*chains),
        gpus=tuple(gpus),
        switches=tuple(
            Switch(f"0000:{bus:02x}:00.0", "pci0000:00", ("0000:00:1d.0",), 0, width=2, max_width=2)
            for bus in (0x05, 0x06, 0x07, 0x08)
        ),
        nics=(*nics, management),
        netdevs=(_LOOPBACK, Netdev("docker0", "bridge", "02:42:00:00:00:01", operstate="down")),
    )
    return dataclasses.replace(machine, **changes)


def hgx_h100() -> Machine:
    return _hgx("hgx_h100", _H100_PAIRS, "2330", "DGXH100")


def hgx_h200() -> Machine:
    return _hgx("hgx_h200", _H100_PAIRS, "2335", "HGX H200", vendor="Supermicro")


def hgx_h100_two_nics() -> Machine:
    """Two RoCE cards behind the switch of each GPU, on two more of its ports."""
    machine = hgx_h100()
    nics = [nic for nic in machine.nics if nic.link_layer == "Ethernet"]
    bridges = list(machine.bridges)
    index = 10
    for rail, gpu in enumerate(machine.gpus):
        upper = gpu.upstream[:2]
        nic_bus = int(gpu.upstream[2].split(":")[1], 16) + 1
        for plane, port in enumerate((0, 2)):
            bridge = f"{gpu.upstream[2][:8]}{port:02x}.0"
            if port:
                bridges.append(Bridge(bridge, acs=0))
            bus = nic_bus + plane
            nics.append(
                _ethernet(
                    index,
                    f"0000:{bus:02x}:00.0",
                    f"10.224.{rail * 2 + plane}.11/24",
                    root=gpu.root,
                    upstream=(*upper, bridge),
                    numa=gpu.numa,
                    rate=HDR,
                    board_id="MT_0000000840",
                )
            )
            index += 1
    return dataclasses.replace(machine, name="hgx_h100_two_nics", bridges=tuple(bridges), nics=tuple(nics))


def hgx_b200() -> Machine:
    """No NVSwitch on the bus: four ConnectX-7 bridge functions manage them, and look like InfiniBand cards."""
    machine = _hgx("hgx_b200", _H100_PAIRS, "2901", "DGXB200", switches=(), driver="580.82.07")
    root, first, _ = _switch(0x05)
    managers = [
        _infiniband(
            20 + function,
            f"0000:05:00.{function}",
            root=root,
            upstream=first,
            numa=0,
            speed="8.0 GT/s PCIe",
            width=2,
            max_width=2,
            max_speed="8.0 GT/s PCIe",
            netdev=None,
            board_id="MT_0000001128",
            part_number="692-9X78D-00MV-JA0",
            product="NVIDIA NVLink switch management",
            vpd_extra={"VB": "SW_MNG", "V2": "692-9X78D-00MV-JA0"},
        )
        for function in range(4)
    ]
    return dataclasses.replace(machine, nics=(*managers, *machine.nics), bridges=(*machine.bridges, *_bridges(first)))


def dgx_a100() -> Machine:
    """Two GPUs and two cards behind each of four switches; NUMA nodes in the order of an EPYC pair with NPS4."""
    groups = (
        (0x00, 3, (0x07, 0x0F), (0x0C, 0x12)),
        (0x40, 1, (0x47, 0x4E), (0x4B, 0x54)),
        (0x80, 7, (0x87, 0x90), (0x8D, 0x94)),
        (0xB0, 5, (0xB7, 0xBD), (0xBA, 0xCC)),
    )
    gpus, nics, chains = [], [], []
    index = 0
    for base, numa, gpu_buses, nic_buses in groups:
        root = f"pci0000:{base:02x}"
        for port, (gpu_bus, nic_bus) in enumerate(zip(gpu_buses, nic_buses)):
            above = (f"0000:{base:02x}:01.1", f"0000:{base + 1:02x}:00.0")
            pair = (*above, f"0000:{base + 2:02x}:{port * 4:02x}.0", f"0000:{base + 3 + port:02x}:00.0")
            first, second = (*pair, f"0000:{base + 5 + port:02x}:00.0"), (*pair, f"0000:{base + 5 + port:02x}:10.0")
            chains.extend((first, second))
            gpus.append(Gpu(f"0000:{gpu_bus:02x}:00.0", root, first, numa, "20b2", speed=GEN4, max_speed=GEN4))
            nics.append(
                _infiniband(
                    index,
                    f"0000:{nic_bus:02x}:00.0",
                    root=root,
                    upstream=second,
                    numa=numa,
                    device="101b",
                    rate=HDR,
                    speed=GEN4,
                    max_speed=GEN4,
                    hca_type="MT4123",
                    firmware="20.39.1002",
                    board_id="MT_0000000223",
                    part_number="MCX653105A-HDAT",
                    product="ConnectX-6 VPI adapter card, HDR IB",
                )
            )
            index += 1
    for function in (0, 1):  # the storage card
        nics.append(
            _ethernet(
                index + function,
                f"0000:61:00.{function}",
                f"10.20.1{function}.11/24",
                root="pci0000:60",
                upstream=("0000:60:03.1",),
                numa=2,
                device="101b",
                rate=HDR,
                speed=GEN4,
                max_speed=GEN4,
                hca_type="MT4123",
                board_id="MT_0000000224",
                part_number="MCX653106A-HDAT",
                master="bond0" if function == 0 else None,
            )
        )
    return Machine(
        name="dgx_a100",
        product="DGXA100 920-23687-2530-000",
        driver="550.144.03",
        open_driver=False,
        bridges=_bridges(*chains),
        gpus=tuple(gpus),
        switches=tuple(
            Switch(f"0000:{bus:02x}:00.0", "pci0000:c0", ("0000:c0:01.1",), 4, "1af1", speed=GEN4)
            for bus in (0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9)
        ),
        nics=tuple(nics),
        netdevs=(_LOOPBACK, Netdev("bond0", "bond", _mac(9), 9000, members=("enp97s0f0np0",))),
    )


def gb200() -> Machine:
    """A Grace-Blackwell tray: every root complex is a PCI domain of its own."""
    gpus = tuple(
        Gpu(f"{domain:04x}:01:00.0", f"pci{domain:04x}:00", (f"{domain:04x}:00:00.0",), numa, "2941", above="")
        for domain, numa in ((0x08, 0), (0x09, 0), (0x18, 1), (0x19, 1))
    )
    nics = [
        _infiniband(
            index,
            f"{domain:04x}:03:00.0",
            root=f"pci{domain:04x}:00",
            upstream=tuple(f"{domain:04x}:{bdf}" for bdf in ("00:00.0", "01:00.0", "02:00.0")),
            numa=numa,
            netdev=f"ib{f'P{domain}' if domain else ''}p3s0",
        )
        for index, (domain, numa) in enumerate(((0x00, 0), (0x02, 0), (0x10, 1), (0x12, 1)))
    ]
    for index, (domain, numa) in enumerate(((0x06, 0), (0x16, 1))):
        nics.append(
            _ethernet(
                10 + index,
                f"{domain:04x}:03:00.0",
                f"10.20.{index}.11/24",
                root=f"pci{domain:04x}:00",
                upstream=(f"{domain:04x}:00:00.0",),
                numa=numa,
                device="a2dc",
                rate=HDR,
                netdev=f"enP{domain}s3f0np0",
                hca_type="MT41692",
                board_id="MT_0000000884",
                part_number="900-9D3B6-00CN-PA0",
                product="BlueField-3 P-Series DPU",
            )
        )
    return Machine(
        name="gb200",
        product="GB200 NVL",
        kernel="6.8.0-1021-nvidia-64k",
        gpus=gpus,
        nics=tuple(nics),
        driver="570.133.20",
    )


def hyperv_guest() -> Machine:
    """A cloud VM: each passed-through function hangs on a VMBus channel under a domain of its own."""

    def channel(domain: int) -> str:
        return f"/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/{domain:08x}-0000-4a1b-9c2d-3e4f5a6b7c8d"

    domains = (1, 2, 3, 8, 9, 10, 11, 12)
    gpus = tuple(
        Gpu(f"{domain:04x}:00:00.0", f"pci{domain:04x}:00", (), 0 if domain < 8 else 1, above=channel(domain))
        for domain in domains
    )
    nics = tuple(
        _infiniband(
            index,
            f"01{index + 1:02x}:00:00.0",
            root=f"pci01{index + 1:02x}:00",
            numa=0 if index < 4 else 1,
            device="101e",
            above=channel(0x100 + index),
            rdma=f"mlx5_ib{index}",
            netdev=f"ib{index}",
            part_number=None,
            board_id="MSF0000000038",
        )
        for index in range(8)
    )
    return Machine(
        name="hyperv_guest",
        vendor="Microsoft Corporation",
        product="Virtual Machine",
        hypervisor=True,
        cmdline="BOOT_IMAGE=/vmlinuz root=UUID=1 ro console=ttyS0",
        gpus=gpus,
        nics=nics,
        netdevs=(_LOOPBACK, Netdev("eth0", "other", "00:0d:3a:00:00:01", ipv4="10.1.0.4/24")),
        default_route=("eth0", "10.1.0.1"),
    )


def kvm_guest() -> Machine:
    """A flat guest: every function on one bus, and no NUMA node told."""
    gpus = tuple(Gpu(f"0000:00:{slot:02x}.0", "pci0000:00", (), -1) for slot in range(4, 12))
    nics = tuple(
        _ethernet(
            index,
            f"0000:00:{slot:02x}.0",
            f"10.224.{index}.11/24",
            root="pci0000:00",
            numa=-1,
            device="101e",
            rate=HDR,
            netdev=f"ens{slot}",
            part_number=None,
            max_read_request=512,
        )
        for index, slot in enumerate(range(16, 24))
    )
    return Machine(
        name="kvm_guest", vendor="QEMU", product="Standard PC (Q35 + ICH9, 2009)", hypervisor=True, gpus=gpus, nics=nics
    )


def pcie_box() -> Machine:
    """Two GPUs straight on root ports and one dual-port card with a virtual function and a sub-function."""
    gpus = tuple(
        Gpu(
            f"0000:{bus:02x}:00.0",
            f"pci0000:{bus - 1:02x}",
            (f"0000:{bus - 1:02x}:01.1",),
            numa,
            "26b9",
            speed=GEN4,
            max_speed=GEN4,
        )
        for bus, numa in ((0x21, 0), (0xA1, 1))
    )
    common = {
        "root": "pci0000:40",
        "upstream": ("0000:40:01.1",),
        "device": "101d",
        "rate": "100 Gb/sec (4X EDR)",
        "speed": GEN4,
    }
    common.update(max_speed=GEN4, hca_type="MT4125", board_id="MT_0000000359", part_number="MCX623106AN-CDAT")
    nics = (
        _ethernet(0, "0000:41:00.0", "10.224.0.11/24", **common),
        _ethernet(1, "0000:41:00.1", **{**common, "state": "DOWN", "rate": "40 Gb/sec (4X QDR)"}),
        _ethernet(
            2,
            "0000:41:00.2",
            **{**common, "device": "101e", "physfn": "0000:41:00.0", "netdev": "enp65s0f0v0", "part_number": None},
        ),
        _ethernet(3, "0000:41:00.0", **{**common, "subfunction": 2, "netdev": "enp65s0f0s88"}),
    )
    return Machine(
        name="pcie_box",
        vendor="Dell Inc.",
        product="PowerEdge R760xa",
        bridges=(Bridge("0000:20:01.1", acs=0x5D), Bridge("0000:a0:01.1", acs=0x5D), Bridge("0000:40:01.1", acs=0x01)),
        gpus=gpus,
        nics=nics,
        modules=_NVLINK_MODULES,
    )


def no_rdma() -> Machine:
    """An ordinary server."""
    nic = Nic(
        "0000:03:00.0",
        "pci0000:00",
        ("0000:00:1c.4",),
        0,
        device="1533",
        vendor="8086",
        driver="igb",
        netdev="eno1",
        link_layer="Ethernet",
        rate="1 Gb/sec",
        ipv4="192.168.10.11/24",
        mtu=1500,
        part_number=None,
    )
    return Machine(
        name="no_rdma", vendor="Dell Inc.", product="PowerEdge R640", nics=(nic,), modules=("igb",), driver=None
    )


MACHINES: dict[str, Callable[[], Machine]] = {
    function.__name__: function
    for function in (
        dgx_a100, hgx_h100, hgx_h100_two_nics, hgx_h200, hgx_b200, gb200, hyperv_guest, kvm_guest, pcie_box, no_rdma,
    )
}  # fmt: skip
