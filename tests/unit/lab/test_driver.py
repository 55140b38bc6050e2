# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules, driver, Fabric Manager and tools: bare OS, installation, upgrade under a loaded module, restart."""

from __future__ import annotations

import os
import signal
import time

import pytest

from railyard_lab import modules, toolbox

OLD, NEW = "580.82.07", "580.95.05"


def test_a_bare_host_has_no_nvidia_driver(tree_host):
    assert tree_host.run("nvidia-smi").rc == 9
    assert not (tree_host.root / "proc/driver/nvidia").exists()
    assert tree_host.run("modprobe", "nvidia").err.startswith("modprobe: FATAL: Module nvidia not found in directory")
    assert not (tree_host.root / "sys/bus/pci/devices/0000:1b:00.0/driver").exists()


def test_installation_loads_the_driver(tree_host):
    tree_host.lab("driver", "install", "--version", NEW, "--flavour", "open")
    assert "Open Kernel Module for x86_64  580.95.05 " in tree_host.read("proc/driver/nvidia/version")
    assert tree_host.read("sys/module/nvidia/version") == f"{NEW}\n"
    assert (tree_host.root / "sys/bus/pci/devices/0000:1b:00.0/driver").resolve().name == "nvidia"
    assert tree_host.run("modinfo", "-F", "license", "nvidia").out == "Dual MIT/GPL\n"
    assert "GPU UUID" in tree_host.read("proc/driver/nvidia/gpus/0000:1b:00.0/information")


def test_an_upgrade_needs_a_restart(tree_host):
    tree_host.lab("driver", "install", "--version", OLD)
    tree_host.lab("driver", "install", "--version", NEW)
    assert OLD in tree_host.read("proc/driver/nvidia/version")
    assert tree_host.run("nvidia-smi")[:2] == (
        18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n")  # fmt: skip
    tree_host.reboot()
    assert NEW in tree_host.read("proc/driver/nvidia/version")
    assert tree_host.run("nvidia-smi").rc == 0


def test_a_reload_does_it_too_unless_somebody_computes(host):
    host.lab("driver", "install", "--version", OLD)
    host.lab("driver", "install", "--version", NEW)
    process = {"pid": 4711, "name": "python3", "gpu_uuid": host.state["gpus"][0]["uuid"], "used_mib": 1000}
    host.change(lambda state: state["gpu_processes"].append(process))
    assert host.run("rmmod", "nvidia_uvm").rc == 1
    host.change(lambda state: state["gpu_processes"].clear())
    assert (
        host.run("rmmod", "nvidia").err
        == "rmmod: ERROR: Module nvidia is in use by: nvidia_modeset nvidia_uvm nvidia_drm\n"
    )
    assert host.run("rmmod", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia").rc == 0
    assert host.run("modprobe", "nvidia_uvm").rc == 0
    assert host.state["driver"]["loaded"] == NEW


def test_removal_leaves_loaded_modules_until_the_restart(host):
    host.lab("driver", "install", "--version", NEW)
    host.lab("driver", "remove")
    assert "nvidia" in host.state["modules"]
    host.reboot()
    assert "nvidia" not in host.state["modules"]


def test_peer_memory_needs_ofeds_ib_core(make_host):
    inbox = make_host()
    inbox.lab("driver", "install", "--version", NEW)
    assert inbox.run("modprobe", "nvidia-peermem")[::2] == (
        1, "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n")  # fmt: skip
    doca = make_host("a100_8x200g", "gpu-02", tree=True)
    doca.lab("driver", "install", "--version", NEW)
    assert doca.run("modprobe", "nvidia-peermem").rc == 0
    assert doca.read("sys/module/nvidia_peermem/version") == f"{NEW}\n"
    assert "nvidia_peermem" in os.listdir(doca.root / "sys/module/ib_core/holders")


def test_module_options_come_from_modprobe_d(tree_host):
    folder = tree_host.root / "etc/modprobe.d"
    folder.mkdir(parents=True)
    (folder / "gpu.conf").write_text(
        "options nvidia NVreg_RestrictProfilingToAdminUsers=0 NVreg_EnableStreamMemOPs=1\n"
    )
    tree_host.lab("driver", "install", "--version", NEW)
    parameters = tree_host.read("proc/driver/nvidia/params")
    assert "RmProfilingAdminOnly: 0\n" in parameters and "EnableStreamMemOPs: 1\n" in parameters


def test_modules_of_modules_load_d_are_there_after_the_boot(host):
    folder = host.root / "etc/modules-load.d"
    folder.mkdir(parents=True)
    (folder / "fabric.conf").write_text("# for MADs\nib_umad\nno_such_module\n")
    host.reboot()
    assert "ib_umad" in host.state["modules"]
    answer = host.lab("modules-load")
    assert (answer.rc, answer.err) == (1, "Failed to find module 'no_such_module'\n")


def test_lsmod_counts_users(host):
    host.run("modprobe", "ib_umad")
    rows = {line.split()[0]: line.split()[1:] for line in host.run("lsmod").out.splitlines()[1:]}
    assert rows["ib_core"][1] == "3" and set(rows["ib_core"][2].split(",")) == {"ib_uverbs", "mlx5_ib", "ib_umad"}
    for name, row in rows.items():
        assert int(row[1]) == len(modules.users(host.state, name))


@pytest.fixture
def fabric(host):
    host.lab("driver", "install", "--version", NEW)
    host.lab("fabricmanager", "install", "--version", NEW)
    yield host
    pid_file = host.root / "run/nvidia-fabricmanager/nv-fabricmanager.pid"
    if pid_file.exists():
        os.kill(int(pid_file.read_text()), signal.SIGTERM)


def test_fabric_manager_completes_the_fabric(fabric):
    def fabric_state():
        return fabric.run("nvidia-smi", "--query-gpu=fabric.state", "--format=csv,noheader").out.split("\n")[0]

    assert fabric_state() == "In Progress"
    assert fabric.run("all_reduce_perf", "-g", "8").out.count("system not yet initialized") == 1
    pid = os.fork()
    if pid == 0:  # the daemon must not keep this process's captured streams
        from railyard_lab.tools import fabricmanager

        os._exit(fabricmanager.main("nv-fabricmanager", ["-c", "/x"]))
    assert os.waitpid(pid, 0)[1] == 0
    daemon = int((fabric.root / "run/nvidia-fabricmanager/nv-fabricmanager.pid").read_text())
    os.kill(daemon, 0)
    assert fabric_state() == "Completed"
    os.kill(daemon, signal.SIGTERM)
    for _ in range(200):
        if not (fabric.root / "run/nvidia-fabricmanager/nv-fabricmanager.pid").exists():
            return
        time.sleep(0.02)
    pytest.fail("the daemon did not end on SIGTERM")


@pytest.mark.parametrize(
    ("profile", "version", "said"),
    [
        ("hgx_h100_roce", OLD, f"interface version {OLD} don't match with driver version {NEW}"),
        ("pcie_1x100g", NEW, "NV_WARN_NOTHING_TO_DO"),
        ("b200_nvswitch_bridges", NEW, "NV_WARN_NOTHING_TO_DO"),
    ],
)
def test_fabric_manager_refuses(make_host, profile, version, said):
    host = make_host(profile)
    host.lab("driver", "install", "--version", NEW)
    host.lab("fabricmanager", "install", "--version", version)
    answer = host.run("nv-fabricmanager", "-c", "/x")
    assert answer.rc == 1 and said in answer.err
    assert said in host.read("var/log/fabricmanager.log")


def test_bridges_need_mads(make_host):
    from railyard_lab.tools import fabricmanager

    host = make_host("b200_nvswitch_bridges")
    host.lab("driver", "install", "--version", NEW)
    host.lab("fabricmanager", "install", "--version", NEW)
    assert fabricmanager.refusal(host.state) is not None
    host.run("modprobe", "ib_umad")
    assert fabricmanager.refusal(host.state) is None


def test_tools_come_and_go_with_their_packages(host):
    place = host.root / "usr/local/sbin"
    host.lab("tool", "refresh")
    assert (
        (place / "rdma").exists()
        and not (place / "ib_write_bw").exists()
        and not (host.root / "usr/bin/nvidia-smi").exists()
    )
    (host.root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (host.root / "usr/bin/ib_write_bw").write_text("\x7fELF")
    host.lab("driver", "install", "--version", NEW)
    assert (place / "ib_write_bw").stat().st_mode & 0o111
    assert (host.root / "usr/bin/nvidia-smi").exists()
    (host.root / "usr/bin/ib_write_bw").unlink()
    host.lab("driver", "remove")
    assert not (place / "ib_write_bw").exists() and not (host.root / "usr/bin/nvidia-smi").exists()
    (place / "rdma").write_text("#!/bin/sh\n# somebody's own\n")
    (place / "ofed_info").write_text("#!/bin/sh\n# somebody's own\n")
    host.lab("tool", "refresh")
    assert (place / "ofed_info").exists(), "a file that is no stand-in stays"


def test_every_tool_has_its_module():
    import importlib

    for name, tool in toolbox.TOOLS.items():
        assert callable(importlib.import_module(f"railyard_lab.tools.{tool.module}").main), name


def test_hooks_do_nothing_on_an_image_without_state(tmp_path, monkeypatch, capsys):
    from railyard_lab import cli

    monkeypatch.setenv("RAILYARD_LAB_ROOT", str(tmp_path))
    for words in (["driver", "install", "--version", NEW], ["tool", "refresh"], ["stack", "inbox"], ["cuda", "remove"],
                  ["dkms", "add", "nvidia", NEW]):  # fmt: skip
        assert cli.main(words) == 0
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_dkms_status_tells_added_from_installed(host):
    host.lab("dkms", "installed", "nvidia", NEW)
    host.lab("dkms", "add", "gdrdrv", "2.5.1")
    lines = host.run("dkms", "status").out.splitlines()
    assert lines[0] == "gdrdrv/2.5.1: added"
    assert lines[1] == f"nvidia/{NEW}, {os.uname().release}, {os.uname().machine}: installed"
