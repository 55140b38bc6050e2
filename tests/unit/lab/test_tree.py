# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree says what the state and the interfaces say, and follows them."""

from __future__ import annotations

import os
import struct

import pytest

from railyard_lab import config_space, tree

PORT = "sys/class/infiniband/mlx5_3/ports/1"
NETDEV = "enp64s0np0"


@pytest.mark.parametrize(
    "profile", ["hgx_h100_roce", "hgx_h100_ib", "b200_nvswitch_bridges", "cloud_vm", "a100_8x200g"]
)
def test_no_link_leads_nowhere(make_host, profile):
    host = make_host(profile, tree=True)
    for folder, names, files in os.walk(host.root / "sys"):
        for name in [*names, *files]:
            path = os.path.join(folder, name)
            assert os.path.exists(path), f"{path} -> {os.readlink(path)}"


def test_an_rdma_device_is_found_from_its_class_and_from_its_function(tree_host):
    device = (tree_host.root / "sys/class/infiniband/mlx5_3/device").resolve()
    assert device.name == "0000:40:00.0"
    assert [part for part in device.parts if ":" in part] == [
        "pci0000:37", "0000:37:01.0", "0000:38:00.0", "0000:39:00.0", "0000:40:00.0"]  # fmt: skip
    assert os.listdir(device / "infiniband") == ["mlx5_3"]
    assert os.listdir(device / "net") == [NETDEV]
    assert (device / "driver").resolve().name == "mlx5_core"
    assert (device / "numa_node").read_text() == "0\n"


def test_gids_follow_addresses_slot_by_slot(tree_host):
    tree_host.interface(NETDEV, addresses=["10.1.0.5/24"])
    assert tree_host.read(f"{PORT}/gids/3") == "0000:0000:0000:0000:0000:ffff:0a01:0005\n"
    assert tree_host.read(f"{PORT}/gid_attrs/types/3") == "RoCE v2\n"
    tree_host.interface(NETDEV, addresses=["10.1.0.5/24", "10.1.0.6/24"])
    tree_host.interface(NETDEV, addresses=["10.1.0.6/24"])
    assert tree_host.read(f"{PORT}/gids/3").startswith("0000:0000:0000:0000:0000:0000")
    assert not (tree_host.root / PORT / "gid_attrs/types/3").exists()
    assert tree_host.read(f"{PORT}/gids/5").endswith("ffff:0a01:0006\n")
    tree_host.interface(NETDEV, addresses=["10.1.0.6/24", "10.1.0.7/24"])
    assert tree_host.read(f"{PORT}/gids/3").endswith("ffff:0a01:0007\n"), "the freed slot is taken first"


def test_the_default_gid_is_made_of_the_mac(tree_host):
    mac = tree_host.nic("mlx5_3")["mac"].split(":")
    wanted = f"fe80:0000:0000:0000:{int(mac[0], 16) ^ 2:02x}{mac[1]}:{mac[2]}ff:fe{mac[3]}:{mac[4]}{mac[5]}\n"
    assert tree_host.read(f"{PORT}/gids/1") == wanted
    own = "fe80::" + wanted.strip()[20:]
    tree_host.interface(NETDEV, addresses=[f"{own}/64", "10.1.0.5/24"])
    assert tree_host.read(f"{PORT}/gids/2").endswith("0a01:0005\n"), "the EUI-64 link-local takes no slot of its own"


def test_a_port_goes_with_its_interface(tree_host):
    assert tree_host.read(f"{PORT}/state") == "4: ACTIVE\n"
    tree_host.interface(NETDEV, up=False)
    assert tree_host.read(f"{PORT}/state") == "1: DOWN\n"
    assert tree_host.read(f"{PORT}/phys_state") == "3: Disabled\n"
    assert tree_host.read(f"{PORT}/rate") == "40 Gb/sec (4X QDR)\n"
    assert tree_host.read(f"sys/class/net/{NETDEV}/operstate") == "down\n"


@pytest.mark.parametrize(("mtu", "payload"), [(9000, 4096), (4200, 4096), (4191, 2048), (1500, 1024)])
def test_roce_mtu_leaves_room_for_headers(host, mtu, payload):
    host.interface(NETDEV, mtu=mtu)
    assert f"active_mtu:\t\t{payload} (" in host.run("ibv_devinfo", "-d", "mlx5_3").out


def test_what_is_gone_leaves_the_tree(tree_host):
    bdf = "0000:c3:00.0"
    assert (tree_host.root / "sys/bus/pci/devices" / bdf / "vendor").exists()
    tree_host.lab("fault", "gpu_missing", "--device", bdf)
    assert not os.path.lexists(tree_host.root / "sys/bus/pci/devices" / bdf)
    assert not (tree_host.root / tree.device_path(tree_host.state, bdf)).exists()
    tree_host.lab("fault", "clear")
    assert (tree_host.root / "sys/bus/pci/devices" / bdf / "vendor").exists()


def _capabilities(data):
    found, offset = {}, data[0x34]
    while offset:
        found[data[offset]] = offset
        offset = data[offset + 1]
    offset = 0x100
    while offset:
        head = struct.unpack_from("<I", data, offset)[0]
        found[0x1000 | head & 0xFFFF] = offset
        offset = head >> 20
    return found


def test_configuration_space_holds_link_acs_and_buses(tree_host):
    data = (tree_host.root / "sys/bus/pci/devices/0000:39:00.0/config").read_bytes()
    found = _capabilities(data)
    assert len(data) == 4096 and data[0x0E] == 1
    assert list(data[0x18:0x1B]) == [0x39, 0x40, 0x40]
    status = struct.unpack_from("<H", data, found[0x10] + 0x12)[0]
    assert (status & 0xF, status >> 4 & 0x3F) == (5, 16)
    assert struct.unpack_from("<H", data, found[0x100D] + 6)[0] == 0
    tree_host.lab("fault", "acs_on")
    data = (tree_host.root / "sys/bus/pci/devices/0000:39:00.0/config").read_bytes()
    assert struct.unpack_from("<H", data, found[0x100D] + 6)[0] == 0x1D
    tree_host.lab("fault", "clear", "acs_on")
    data = (tree_host.root / "sys/bus/pci/devices/0000:39:00.0/config").read_bytes()
    assert struct.unpack_from("<H", data, found[0x100D] + 6)[0] == 0


def test_what_setpci_writes_lasts_until_the_reboot(tree_host):
    path = tree_host.root / "sys/bus/pci/devices/0000:40:00.0/config"
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, config_space.DEVICE_CONTROL, 0x2936)
    path.write_bytes(bytes(data))
    tree_host.interface(NETDEV, mtu=9000)
    tree_host.lab("fault", "pcie_width", "--device", "mlx5_3")
    data = path.read_bytes()
    assert struct.unpack_from("<H", data, config_space.DEVICE_CONTROL)[0] == 0x2936
    assert tree_host.read("sys/bus/pci/devices/0000:40:00.0/current_link_width") == "8\n"
    tree_host.reboot()
    assert struct.unpack_from("<H", path.read_bytes(), config_space.DEVICE_CONTROL)[0] != 0x2936


def test_vital_product_data_adds_up(tree_host):
    data = (tree_host.root / "sys/class/infiniband/mlx5_3/device/vpd").read_bytes()
    end = data.index(b"RV\x01") + 4
    assert sum(data[:end]) % 256 == 0
    assert data[end:] == b"\x78"


def test_nvswitch_bridges_say_so_in_their_product_data(make_host):
    host = make_host("b200_nvswitch_bridges", tree=True)
    for number in range(4):
        assert b"SW_MNG" in (host.root / f"sys/class/infiniband/mlx5_{number}/device/vpd").read_bytes()
    assert b"SW_MNG" not in (host.root / "sys/class/infiniband/mlx5_4/device/vpd").read_bytes()
    masks = [int(host.read(f"sys/class/infiniband/mlx5_{number}/ports/1/cap_mask"), 16) for number in range(4)]
    assert [bool(mask & 1 << 10) for mask in masks] == [False, True, True, True], (
        "the first one can run a subnet manager"
    )


def test_a_guest_shows_a_flat_bus_without_numa(make_host):
    host = make_host("cloud_vm", tree=True)
    for bdf in os.listdir(host.root / "sys/bus/pci/devices"):
        path = (host.root / "sys/bus/pci/devices" / bdf).resolve()
        assert path.parent.name == "pci0000:00"
        assert (path / "numa_node").read_text() == "-1\n"
    assert host.run("systemd-detect-virt") == (0, "kvm\n", "")


def test_nothing_is_written_when_nothing_changed(tree_host):
    before = {path: path.stat().st_mtime_ns for path in (tree_host.root / "sys").rglob("*") if path.is_file()}
    tree_host.lab("sync")
    tree_host.run("rdma", "link")
    assert {path: path.stat().st_mtime_ns for path in (tree_host.root / "sys").rglob("*") if path.is_file()} == before
