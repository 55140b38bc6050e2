# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of made-up machines, in the shape of docs/architecture.md. Addresses and models are this file's own."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.plan import plan_rack

RATES = {"100": 100.0, "200": 200.0, "400": 400.0}


class Box:
    """One host's facts, put together piece by piece."""

    def __init__(self, virtualization: str = "none", product: str = "Example 8U") -> None:
        self.facts: dict[str, t.Any] = {
            "schema": 1,
            "host": {
                "kernel": "6.8.0-45-generic",
                "architecture": "x86_64",
                "virtualization": virtualization,
                "container": False,
                "product": {"vendor": "Example", "name": product},
                "os": {"id": "debian", "id_like": [], "version_id": "12"},
            },
            "pci": {},
            "gpus": [],
            "nvswitches": [],
            "rdma_devices": {},
            "netdevs": {},
            "routes": [],
        }

    def function(self, bdf: str, vendor: str, device: str, cls: str, above: t.Sequence[str], numa: int | None, **more):
        domain, bus = bdf.split(":")[:2]
        root = above[0].rsplit(":", 1)[0] if above else f"{domain}:{more.pop('root_bus', bus)}"
        more.pop("root_bus", None)
        self.facts["pci"][bdf] = {
            "vendor": vendor,
            "device": device,
            "class": cls,
            "numa_node": numa,
            "upstream": list(above),
            "root": f"pci{root}",
            **more,
        }

    def gpu(
        self, bdf: str, above: t.Sequence[str] = (), numa: int | None = 0, device: str = "2330", name: str = "", **more
    ):
        self.function(bdf, "10de", device, "030200", above, numa, **more)
        entry = {"pci": bdf, "numa_node": numa}
        if name:
            entry |= {"name": name, "index": len(self.facts["gpus"])}
        self.facts["gpus"].append(entry)
        return self

    def nic(
        self,
        name: str,
        bdf: str,
        above: t.Sequence[str] = (),
        numa: int | None = 0,
        *,
        rate: float | None = 400.0,
        layer: str = "Ethernet",
        state: str = "active",
        board: str = "MT_0000000838",
        hca_type: str = "MT4129",
        netdev: str | None = None,
        addresses: t.Sequence[str] = (),
        mtu: int = 1500,
        guid: str | None = None,
        device: str = "1021",
        master: str = "",
        gids: t.Sequence[dict[str, t.Any]] = (),
        ports: int = 1,
        **more,
    ):
        self.function(bdf, "15b3", device, "0207" if layer == "InfiniBand" else "0200", above, numa, **more)
        number = len(self.facts["rdma_devices"]) + 1
        netdev = f"en{name}" if netdev is None else netdev
        self.facts["rdma_devices"][name] = {
            "pci": bdf,
            "driver": "mlx5_core",
            "transport": "infiniband",
            "board_id": board,
            "hca_type": hca_type,
            "node_guid": guid or f"a088c203{number:08x}",
            # one for all functions of a slot
            "sys_image_guid": f"a088c203{int(bdf.rpartition('.')[0].replace(':', '')[2:], 16):08x}",
            "software": False,
            "ports": {
                str(port): {
                    "state": state,
                    "phys_state": "linkup" if state == "active" else "polling",
                    "rate_gbps": rate,
                    "link_layer": layer,
                    "netdevs": [netdev] if netdev and port == 1 else [],
                    "gids": list(gids),
                }
                for port in range(1, ports + 1)
            },
        }
        if netdev:
            kind = "ipoib" if layer == "InfiniBand" else "physical"
            speed = int(rate * 1000) if rate else None
            self.netdev(netdev, bdf, kind, addresses, mtu=mtu, master=master, speed_mbps=speed)
        return self

    def netdev(self, name: str, bdf: str = "", kind: str = "physical", addresses: t.Sequence[str] = (), **more):
        self.facts["netdevs"][name] = {
            "pci": bdf,
            "mac": f"02:00:00:00:00:{len(self.facts['netdevs']):02x}",
            "mtu": 1500,
            "mtu_max": 9978,
            "kind": kind,
            "addresses": list(addresses),
            **more,
        }
        return self

    def management(
        self, name: str = "eno1", bdf: str = "0000:02:00.0", address: str = "10.0.0.11/24", speed: int = 10000
    ):
        if bdf not in self.facts["pci"]:
            self.function(bdf, "8086", "1563", "0200", ("0000:00:1c.0",), 0)
        if name not in self.facts["netdevs"]:
            self.netdev(name, bdf, addresses=[address], speed_mbps=speed)
        self.facts["routes"].append({"dst": "default", "via": "10.0.0.1", "dev": name, "family": 4, "metric": 100})
        return self

    def switch(self, bus: int, ports: int, domain: int = 0) -> list[tuple[str, ...]]:
        """Bridges above each of the downstream ports of one PCIe switch behind a root port of its own."""
        base = f"{domain:04x}"
        above = (f"{base}:{bus:02x}:01.0", f"{base}:{bus + 1:02x}:00.0")
        return [(*above, f"{base}:{bus + 2:02x}:{port:02x}.0") for port in range(ports)]

    def done(self) -> dict[str, t.Any]:
        return copy.deepcopy(self.facts)


H100_BUSES = (
    (0x18, 0x1B),
    (0x40, 0x43),
    (0x4F, 0x52),
    (0x5E, 0x61),
    (0x9A, 0x9D),
    (0xC0, 0xC3),
    (0xCE, 0xD1),
    (0xDC, 0xDF),
)
# Device numbers with gaps and against the bus: what a kernel that probes in parallel gives.
H100_NAMES = ("mlx5_15", "mlx5_10", "mlx5_14", "mlx5_13", "mlx5_8", "mlx5_7", "mlx5_9", "mlx5_4")


def hgx_h100(layer: str = "Ethernet", skip: t.Container[int] = (), lost_gpus: t.Container[int] = (), **nic) -> Box:
    """8 GPUs, each with a 400G NIC under its switch; 2 storage ports on one card; an onboard management NIC."""
    box = Box(product="Example HGX H100")
    for rail, (nic_bus, gpu_bus) in enumerate(H100_BUSES):
        first, second = box.switch(nic_bus - 3, 2)
        numa = rail // 4
        if rail not in lost_gpus:
            box.gpu(
                f"0000:{gpu_bus:02x}:00.0",
                second,
                numa,
                name="NVIDIA H100 80GB HBM3",
                link={"max_speed_gts": 32, "max_width": 16},
            )
        if rail not in skip:
            box.nic(H100_NAMES[rail], f"0000:{nic_bus:02x}:00.0", first, numa, layer=layer,
                    link={"max_speed_gts": 32.0, "max_width": 16}, **nic)  # fmt: skip
    for port in (0, 1):
        box.nic(f"mlx5_{port}", f"0000:29:00.{port}", ("0000:26:01.0",), 0, rate=200.0, board="MT_0000000834",
                addresses=[f"10.20.{port}.11/24"])  # fmt: skip
    for slot in range(4):
        box.facts["nvswitches"].append({"pci": f"0000:{0x87 + slot:02x}:00.0"})
    return box.management()


H100_ROCE_LIST = "=" + ",".join(f"{name}:1" for name in H100_NAMES)


def dgx_a100() -> Box:
    """4 switches, each with 2 GPUs and 2 HDR NICs; a dual-port storage NIC at the same rate near GPUs of one switch."""
    box = Box(product="Example DGX A100")
    names = iter(("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9"))
    for group, bus in enumerate((0x05, 0x45, 0x85, 0xB0)):
        ports = box.switch(bus, 6)
        for n in range(2):
            box.gpu(f"0000:{bus + 3 + n:02x}:00.0", ports[n], 3 - group, device="20b0", name="NVIDIA A100-SXM4-80GB")
        for n in range(2):
            card = {"rate": 200.0, "layer": "InfiniBand", "board": "MT_0000000223", "hca_type": "MT4123"}
            box.nic(next(names), f"0000:{bus + 6 + n:02x}:00.0", ports[2 + n], 3 - group, **card)
        if group == 1:
            for n in range(2):
                box.nic(f"mlx5_{4 + n}", f"0000:{bus + 9:02x}:00.{n}", ports[4], 3 - group, rate=200.0,
                        layer="InfiniBand", board="MT_0000000224", hca_type="MT4123")  # fmt: skip
    for slot in range(6):
        box.facts["nvswitches"].append({"pci": f"0000:{0xC4 + slot:02x}:00.0"})
    return box.management(name="enp225s0f0", bdf="0000:e1:00.0")


def hgx_b200(layer: str = "InfiniBand") -> Box:
    """As the H100 box, with four NVSwitch bridges that come first and show active InfiniBand ports at full rate."""
    box = Box(product="Example HGX B200")
    for n in range(4):
        box.nic(f"mlx5_{n}", f"0000:05:00.{n}", ("0000:02:01.0", "0000:03:00.0"), 0, layer="InfiniBand", netdev="",
                vpd={"sw_mng": True}, board="NVD0000000033")  # fmt: skip
    for rail, (nic_bus, gpu_bus) in enumerate(H100_BUSES):
        first, second = box.switch(nic_bus - 3, 2)
        box.gpu(f"0000:{gpu_bus:02x}:00.0", second, rail // 4, device="2901", name="NVIDIA B200")
        box.nic(f"mlx5_{4 + rail}", f"0000:{nic_bus:02x}:00.0", first, rail // 4, layer=layer)
    return box.management()


def gb200() -> Box:
    """Grace: GPUs and NICs in PCI domains of their own, two of each on each socket; a DPU for the front end."""
    box = Box(product="Example GB200 tray")
    for n, domain in enumerate((0x0008, 0x0009, 0x0018, 0x0019)):
        box.gpu(f"{domain:04x}:01:00.0", (f"{domain:04x}:00:00.0",), n // 2, device="2941", name="NVIDIA GB200")
    for n, domain in enumerate((0x0000, 0x0002, 0x0010, 0x0012)):
        box.nic(
            f"mlx5_{n + 1}",
            f"{domain:04x}:03:00.0",
            (f"{domain:04x}:00:00.0", f"{domain:04x}:01:00.0"),
            n // 2,
            layer="InfiniBand",
        )
    box.nic(
        "mlx5_0",
        "0006:03:00.0",
        ("0006:00:00.0",),
        0,
        rate=200.0,
        board="MT_0000000884",
        netdev="enP6p3s0f0",
        addresses=["10.0.0.11/24"],
    )
    return box.management(name="enP6p3s0f0", bdf="0006:03:00.0")


def hyperv() -> Box:
    """Every function in a domain of its own, no bridges; the accelerated front-end NIC is a slave of eth0."""
    box = Box(virtualization="hyperv", product="Virtual Machine")
    for n in range(8):
        box.gpu(f"{n + 1:04x}:00:00.0", (), n // 4, root_bus="00", name="NVIDIA H100 80GB HBM3")
    for n in range(8):
        card = {"layer": "InfiniBand", "device": "101e", "board": "MT_0000000001", "physfn": None, "root_bus": "00"}
        box.nic(f"mlx5_ib{n}", f"{0x101 + n:04x}:00:00.0", (), n // 4, **card)
    box.nic(
        "mlx5_an0",
        "fa01:00:02.0",
        (),
        0,
        rate=40.0,
        device="101a",
        board="MT_0000000010",
        netdev="enP64000s1",
        master="eth0",
        root_bus="00",
    )
    box.netdev("eth0", kind="other", addresses=["10.1.0.4/24"], driver="hv_netvsc")
    box.facts["routes"].append({"dst": "default", "dev": "eth0", "via": "10.1.0.1", "family": 4})
    return box


def kvm(front_end: bool = False) -> Box:
    """A flat guest: everything on one bus, NUMA not told."""
    box = Box(virtualization="kvm", product="Standard PC")
    for n in range(8):
        box.gpu(f"0000:00:{4 + n:02x}.0", (), None, root_bus="00", name="NVIDIA H100 80GB HBM3")
    for n in range(9 if front_end else 8):
        box.nic(f"mlx5_{n}", f"0000:00:{0x10 + n:02x}.0", (), None, device="101e", root_bus="00")
    return box.management(name="ens3", bdf="0000:00:03.0")


def pcie_box(gpus: int = 4) -> Box:
    """GPUs straight on root ports and one 100G NIC."""
    box = Box(product="Example PCIe")
    for n in range(gpus):
        bus = 0x21 + n * 0x20
        box.gpu(f"0000:{bus:02x}:00.0", (f"0000:{bus - 1:02x}:01.0",), n // 2, device="26b9", name="NVIDIA L40S")
    box.nic("mlx5_0", "0000:a1:00.0", ("0000:a0:03.0",), 1, rate=100.0, board="MT_0000000359", hca_type="MT4125")
    return box.management()


def no_fabric() -> Box:
    box = Box(product="Example PCIe")
    box.gpu("0000:21:00.0", ("0000:20:01.0",), 0, device="26b9", name="NVIDIA L40S")
    return box.management()


def rxe_guest(rails: int = 2) -> Box:
    """A virtual machine without HCA and with soft RoCE on two of its interfaces and on the management one."""
    box = Box(virtualization="qemu", product="Standard PC")
    box.management(name="ens2", bdf="0000:00:02.0")
    for n in range(rails + 1):
        netdev = "ens2" if n == rails else f"ens{3 + n}"
        if n < rails:
            box.function(f"0000:00:{3 + n:02x}.0", "1af4", "1041", "0200", (), None)
            box.netdev(netdev, f"0000:00:{3 + n:02x}.0", driver="virtio_net")
        box.facts["rdma_devices"][f"rxe{n}"] = {
            "driver": "rdma_rxe",
            "software": True,
            "parent_netdev": netdev,
            "transport": "infiniband",
            "ports": {"1": {"state": "active", "rate_gbps": 2.5, "link_layer": "Ethernet", "netdevs": [netdev]}},
        }
    return box


def plan_one(box: Box | dict, **intent) -> dict[str, t.Any]:
    """The plan of a rack of one; intent without its prefix."""
    facts = box.done() if isinstance(box, Box) else box
    return rack({"gpu-01": facts}, **intent)["hosts"]["gpu-01"]


def rack(facts: dict[str, t.Any], connection: dict[str, t.Any] | None = None, **intent) -> dict[str, t.Any]:
    variables = {f"gpu_fabric_{name}": value for name, value in intent.items()}
    return plan_rack(dict.fromkeys(facts, variables), facts, connection)


def roles(plan: dict[str, t.Any]) -> dict[str, str]:
    return {device["name"]: device["role"] for device in plan["devices"]}


def notes(plan: dict[str, t.Any]) -> list[str]:
    return [note["id"] for note in plan["notes"]]


def pairs(plan: dict[str, t.Any]) -> list[tuple[int, str, t.Any]]:
    return [(rail["rail"], rail["hca"], rail["gpu"]) for rail in plan["rails"]]
