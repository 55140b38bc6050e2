# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attributes of sysfs, configfs and debugfs as kernels have them: OFED's, inbox ones, ones that are locked down."""

from __future__ import annotations

import os
import struct
import sys
import threading
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import accelerations, knobs, pcie, program

sys.path.insert(0, str(Path(__file__).parent))

from fake_nic import FakeCli

WANTED = {"cnp_dscp": 48, "cnp_priority": 6, "ecn": {"3": {"rp": True, "np": True}}, "traffic_class": 106}
BDF = "0000:18:00.0"


def entry(**settings: object) -> dict[str, object]:
    return {"netdev": "rail0", "hca": "mlx5_0", "port": 1, "pci": BDF, "settings": settings}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NET", "INFINIBAND", "DEBUG"):
        monkeypatch.setattr(knobs, name, str(tmp_path / name.lower()))
        monkeypatch.setitem(program.CLASSES, name.lower(), str(tmp_path / name.lower()))
    monkeypatch.setattr(knobs.RdmaCmDefault, "root", str(tmp_path / "rdma_cm"))
    for module in (pcie, accelerations):
        monkeypatch.setattr(module, "DEVICES", str(tmp_path / "devices"))
    monkeypatch.setattr(pcie, "LOCKDOWN", str(tmp_path / "lockdown"))
    (tmp_path / "lockdown").write_text("[none] integrity confidentiality\n")
    return tmp_path


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_ofed_has_all_of_it(kernel: Path) -> None:
    ecn = kernel / "net/rail0/ecn"
    put(ecn, roce_np__cnp_dscp="26\n", roce_np__cnp_802p_prio="0\n", roce_np__enable__3="1\n", roce_rp__enable__3="0\n")
    put(kernel / "infiniband/mlx5_0/tc/1", traffic_class="src_ip=10.0.0.1,tclass=32\n")
    todo = program.plan(entry(**WANTED), FakeCli())
    assert {step.knob.name: step.before for step in todo.steps} == {
        "cnp_dscp": 26, "cnp_priority": 0, "ecn": {"3": {"rp": False, "np": True}}, "traffic_class": -1,
    }  # fmt: skip
    for step in todo.steps:
        step.knob.write(step.after)
    assert (ecn / "roce_np/cnp_dscp").read_text() == "48"
    assert (ecn / "roce_rp/enable/3").read_text() == (ecn / "roce_np/enable/3").read_text() == "1"
    assert (kernel / "infiniband/mlx5_0/tc/1/traffic_class").read_text() == "106"


def test_inbox_has_the_marking_in_debugfs_only(kernel: Path) -> None:
    put(kernel / f"debug/mlx5/{BDF}/cc_params", np_cnp_dscp="26\n", np_cnp_prio="6\n")
    todo = program.plan(entry(**WANTED), FakeCli())
    assert [step.knob.name for step in todo.steps] == ["cnp_dscp"] and todo.unsupported == ["ecn", "traffic_class"]


def test_what_a_kernel_in_lockdown_hides_is_told_as_missing(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(kernel / f"debug/mlx5/{BDF}/cc_params", np_cnp_dscp="26\n", np_cnp_prio="6\n")

    def refuse(path: str) -> str:
        raise Failure(f"Cannot read {path}: Operation not permitted")

    monkeypatch.setattr(knobs, "read_text", refuse)
    assert program.plan(entry(cnp_dscp=48, cnp_priority=6), FakeCli()).unsupported == ["cnp_dscp", "cnp_priority"]


def config_space(bdf: str, kernel: Path) -> Path:
    data = bytearray(4096)
    struct.pack_into("<H", data, 0x06, 0x10)
    data[0x34] = 0x60
    struct.pack_into("<BBH", data, 0x60, 0x10, 0x00, 0x0002)
    struct.pack_into("<H", data, 0x68, 0x2930)
    struct.pack_into("<I", data, 0x100, 0x0001 | 1 << 16 | 0x160 << 20)
    struct.pack_into("<IHH", data, 0x160, 0x000D | 1 << 16, 0x5F, 0x1D)
    path = kernel / "devices" / bdf / "config"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(data))
    return path


def test_config_space_of_a_kernel_in_lockdown_is_read_only(kernel: Path) -> None:
    """Read requests are larger by default, so they are told as missing; ACS was asked for, so it is refused at once."""
    config_space(BDF, kernel)
    config_space("0000:15:00.0", kernel)
    acs = {"netdev": program.HOST, "settings": {"acs_control": {"0000:15:00.0": 0}}}
    assert program.plan(entry(max_read_request_bytes=4096), FakeCli()).steps and program.plan(acs, FakeCli()).steps
    (kernel / "lockdown").write_text("none [integrity] confidentiality\n")
    todo = program.plan(entry(max_read_request_bytes=4096), FakeCli())
    assert (todo.steps, todo.unsupported) == ([], ["max_read_request_bytes"])
    assert program.plan(entry(max_read_request_bytes=512), FakeCli()).unsupported == [], "it has that already"
    with pytest.raises(Failure, match=r"acs_control is 0000:15:00.0:29, wanted 0000:15:00.0:0, but .*lockdown"):
        program.plan(acs, FakeCli())


def test_connections_of_an_adapter_that_is_not_there_yet(kernel: Path) -> None:
    (kernel / "rdma_cm").mkdir()
    assert program.plan(entry(rdma_cm_tos=106), FakeCli()).unsupported == ["rdma_cm_tos"]
    assert list((kernel / "rdma_cm").iterdir()) == []
    put(kernel / "infiniband/mlx5_0", node_type="1: CA\n")
    put(kernel / "rdma_cm/mlx5_0/ports/1", default_roce_tos="0\n")
    (step,) = program.plan(entry(rdma_cm_tos=106), FakeCli()).steps
    assert step.before == 0


def configfs(kernel: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> Path:
    """The kernel makes what is in a device's folder, and keeps the values when the folder goes."""
    root = kernel / "rdma_cm"
    root.mkdir()
    put(kernel / "infiniband/mlx5_0", node_type="1: CA\n")
    kept = dict(files)
    made, gone = os.mkdir, os.rmdir

    def mkdir(path: str, *more: int) -> None:
        made(path, *more)
        if Path(path).parent == root:
            put(Path(path) / "ports/1", **kept)

    def rmdir(path: str) -> None:
        for file in (Path(path) / "ports/1").iterdir():
            kept[file.name] = file.read_text()
            file.unlink()
        for folder in ("ports/1", "ports", ""):
            gone(Path(path) / folder)

    monkeypatch.setattr(knobs.os, "mkdir", mkdir)
    monkeypatch.setattr(knobs.os, "rmdir", rmdir)
    return root


def test_connections_get_routed_gids(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode and the type of service of RDMA-CM, whose folder is left as it was found."""
    root = configfs(kernel, monkeypatch, default_roce_mode="IB/RoCE v1\n", default_roce_tos="0\n")
    wanted = entry(rdma_cm_mode="RoCE v2", rdma_cm_tos=106)
    todo = program.plan(wanted, FakeCli())
    assert {step.knob.name: step.before for step in todo.steps} == {"rdma_cm_mode": "IB/RoCE v1", "rdma_cm_tos": 0}
    program.apply(todo)
    assert program.plan(wanted, FakeCli()).steps == [] and list(root.iterdir()) == []


def test_the_ports_of_a_bond_share_its_adapter(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their units start at once at boot: neither may take the other's folder away while it writes."""
    root = configfs(kernel, monkeypatch, default_roce_tos="0\n")
    said: list[object] = []

    def unit() -> None:
        for _ in range(40):
            try:
                said.append(program.plan(entry(rdma_cm_tos=0), FakeCli()))
            except Failure as exc:
                said.append(exc)

    units = [threading.Thread(target=unit) for _ in range(4)]
    for thread in units:
        thread.start()
    for thread in units:
        thread.join()
    assert said == [(program.port_of(entry()), [], [])] * 160 and list(root.iterdir()) == []


def test_no_other_vendors_card_is_asked_for_its_registers(kernel: Path) -> None:
    wanted = entry(accelerations={"adp_retrans": True})
    for vendor, asked in (("0x14e4\n", []), ("0x15b3\n", ["mlxreg"])):
        put(kernel / "devices" / BDF, vendor=vendor)
        cli = FakeCli(("mlxreg",))
        assert program.plan(wanted, cli).unsupported == ([] if asked else ["accelerations"])
        assert [command.split()[0] for command in cli.commands] == asked


def test_a_value_that_is_no_number_is_named(kernel: Path) -> None:
    put(kernel / "net/rail0/ecn/roce_np", cnp_dscp="what\n")
    with pytest.raises(Failure, match=r"roce_np/cnp_dscp holds 'what\\n', not a number"):
        program.plan(entry(cnp_dscp=48), FakeCli())
