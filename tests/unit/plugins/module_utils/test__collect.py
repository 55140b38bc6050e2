# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A bundle recorded from a host gives the facts of that host."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hosts import link, live, write
from sysfs_trees import MACHINES, build

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _collect
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._collect import Recorder, record_extra, write_archive
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import BundleSource

COMMANDS = {
    "ip": """case "$*" in
      *addr) echo '[{"ifname":"eno1","mtu":1500,"addr_info":[{"local":"192.0.2.4","prefixlen":24}]}]';;
      "-j -4 route show table all") echo '[{"dst":"default","gateway":"192.0.2.1","dev":"eno1"}]';;
      *) echo '[]';;
    esac""",
    "systemctl": "printf '%s\\n' Id=slurmd.service Names=slurmd.service LoadState=loaded ActiveState=active MainPID=77",
    "ofed_info": "echo 'MLNX_OFED_LINUX-24.10-0.7.0.0:'",
    "systemd-detect-virt": "echo none; exit 1",
    "nvidia-smi": (
        "echo 'Failed to initialize NVML: Driver/library version mismatch'; echo 'NVML library version: 575.5'; exit 18"
    ),
    "nft": "echo 'Operation not permitted' >&2; exit 1",
}
FILES = {
    "/proc/77/limits": "Max locked memory         65536                65536                bytes\n",
    "/etc/apt/sources.list.d/cuda.list": "deb https://user:geheim@mirror.example/cuda /\n",
    "/var/lib/dpkg/status": (
        "Package: libnccl2\nStatus: hold ok installed\nVersion: 2.26.2-1\n\n"
        "Package: secret-project\nStatus: install ok installed\n"
        "Version: 1\n"
    ),
    "/var/log/apt/history.log": "Commandline: /usr/bin/unattended-upgrade\n",
    "/proc/self/environ": "TOKEN=geheim\0",
    "/etc/sysctl.conf": "vm.swappiness = 1\n",
}


def recorder(directory: Path, machine: str) -> Recorder:
    stand_in = live(directory, FILES, COMMANDS)
    build(MACHINES[machine](), stand_in.root)
    link(Path(stand_in.root), "etc/sysctl.d/99-sysctl.conf", "/etc/sysctl.conf")
    return Recorder(stand_in.root, stand_in.environ)


def archive(source: Recorder) -> bytes:
    stream = io.BytesIO()
    write_archive(source, stream)
    return stream.getvalue()


def unpack(data: bytes, folder: Path) -> BundleSource:
    with tarfile.open(fileobj=io.BytesIO(data)) as bundle:
        bundle.extractall(folder, filter="data")  # refuses what leads outside
    return BundleSource(str(folder))


def comparable(facts: dict[str, Any]) -> dict[str, Any]:
    """Without what only one of the two has by its nature."""
    return {
        key: value
        for key, value in facts.items()
        # A recording does not know that there is none of something, and keeps the texts besides.
        if value not in ({}, []) and key not in ("recorded", "host", "tools", "problems", "files")
    }


@pytest.mark.parametrize("machine", ["hgx_b200", "pcie_box", "hyperv_guest", "no_rdma"])
def test_the_facts_of_a_bundle_are_those_of_its_host(tmp_path: Path, machine: str) -> None:
    source = recorder(tmp_path, machine)
    told = gather(source)
    again = gather(unpack(archive(source), tmp_path / "gpu-01"))
    assert comparable(again) == comparable(told)
    assert again["limits"]["services"]["slurmd"]["memlock_bytes"] == 65536
    assert again["driver"]["smi_error_kind"] == "driver_library_mismatch"
    assert again["host"]["virtualization"] == "none"
    assert again["ssh"]["netdev"] == "eno1"
    assert set(told["tools"]) <= set(again.get("tools", {})) | set(COMMANDS)


def test_nothing_private_is_recorded(tmp_path: Path) -> None:
    source = recorder(tmp_path, "no_rdma")
    gather(source)
    record_extra(source)
    bundle = unpack(archive(source), tmp_path / "gpu-01")
    everything = b"".join(
        path.read_bytes() for path in (tmp_path / "gpu-01").rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert b"geheim" not in everything
    assert b"secret-project" not in everything
    assert gather(bundle)["packages"] == {"libnccl2": {"status": "installed", "held": True, "version": "2.26.2-1"}}
    assert gather(bundle)["recorded"]["apt_history"] == "Commandline: /usr/bin/unattended-upgrade\n"


def test_links_stay_inside(tmp_path: Path) -> None:
    source = recorder(tmp_path, "no_rdma")
    gather(source)
    with tarfile.open(fileobj=io.BytesIO(archive(source))) as bundle:
        links = {entry.name: entry.linkname for entry in bundle.getmembers() if entry.issym()}
    assert links["root/etc/sysctl.d/99-sysctl.conf"] == "../sysctl.conf"
    assert not any(target.startswith("/") for target in links.values())


def test_an_initramfs_is_recorded_by_its_drivers_only(tmp_path: Path) -> None:
    stand_in = live(tmp_path, commands={"lsinitramfs": "echo usr/bin/sh; echo usr/lib/modules/6.8/nouveau.ko"})
    write(Path(stand_in.root), {"/proc/sys/kernel/osrelease": "6.8.0-60\n", "/boot/initrd.img-6.8.0-60": "big"})
    source = Recorder(stand_in.root, stand_in.environ)
    record_extra(source)
    assert source.outputs["lsinitramfs.txt"] == "usr/lib/modules/6.8/nouveau.ko\n"
    assert "/boot/initrd.img-6.8.0-60" not in source.files


def test_tools_that_are_missing_are_named(tmp_path: Path) -> None:
    source = recorder(tmp_path, "no_rdma")
    missing = _collect.missing_tools(source)
    assert "show_gids" in missing
    assert "nvidia-smi" not in missing


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "/etc/netplan/50.yaml",
            'network:\n  wifis:\n    w0:\n      access-points:\n        "x": {password: "geheim"}\n',
        ),
        ("/etc/NetworkManager/system-connections/a.nmconnection", "[wifi-security]\npsk=geheim\n"),
        ("/etc/NetworkManager/system-connections/b.nmconnection", "[802-1x]\nprivate-key-password = geheim\n"),
        ("/etc/network/interfaces", "iface w0 inet dhcp\n  wpa-psk geheim\n"),
    ],
)
def test_keys_of_networks_are_masked(path: str, text: str) -> None:
    masked = _collect._filtered(path, text.encode())
    assert b"geheim" not in masked
    assert masked.splitlines()[0] == text.splitlines()[0].encode()


@pytest.mark.parametrize(("machine", "port"), [("dgx_a100", "mlx5_0"), ("hyperv_guest", "mlx5_ib0"), ("no_rdma", None)])
def test_a_subnet_is_recorded_where_it_can_be_seen(tmp_path: Path, machine: str, port: str | None) -> None:
    tools = dict.fromkeys(("ibnetdiscover", "iblinkinfo", "ibqueryerrors"), 'echo "$@"')
    stand_in = live(tmp_path, FILES, {**COMMANDS, **tools})
    build(MACHINES[machine](), stand_in.root)
    source = Recorder(stand_in.root, stand_in.environ)
    facts = gather(source, nic_config=False)
    assert _collect.record_subnet(source, facts) == bool(port)
    said = {name: source.outputs.get(f"{name}.txt") for name in tools}
    assert said == dict.fromkeys(tools, f"-C {port} -P 1\n" if port else None)


def test_a_subnet_is_never_asked_through_the_ports_of_nvswitches(tmp_path: Path) -> None:
    stand_in = live(tmp_path, FILES, COMMANDS)
    build(MACHINES["hgx_b200"](), stand_in.root)
    facts = gather(Recorder(stand_in.root, stand_in.environ), nic_config=False)
    name, number = _collect.subnet_port(facts) or pytest.fail("its rails are InfiniBand ports")
    assert not facts["pci"][facts["rdma_devices"][name]["pci"]]["vpd"]["sw_mng"]
    for device in facts["rdma_devices"].values():
        if not facts["pci"][device["pci"]].get("vpd", {}).get("sw_mng"):
            device["ports"] = {number: {"link_layer": "Ethernet", "state": "active"}}
    assert _collect.subnet_port(facts) is None
