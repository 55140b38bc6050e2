# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The system around the fabric: limits, kernel parameters, units, packages, modules, firmware, firewalls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosts import link, live, recorded

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import (
    driver,
    files,
    firewall,
    host,
    limits,
    modules,
    packages,
    services,
    sysctl,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.tools import Tools
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import Source

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
"""


class TestLimits:
    def test_of_a_process(self) -> None:
        assert limits.parse_process_limits(LIMITS) == {
            "nofile": {"soft": 1024, "hard": 524288},
            "memlock": {"soft": 8388608, "hard": "unlimited"},
            "memlock_bytes": 8388608,
        }

    def test_a_line_cut_in_the_middle_gives_nothing(self) -> None:
        assert limits.parse_process_limits("Max locked memory         838") == {}

    def test_of_a_service_as_it_runs_and_as_it_is_configured(self, tmp_path: Path) -> None:
        shown = (
            "Id=ssh.service\nNames=ssh.service sshd.service\nLoadState=loaded\nActiveState=active\nMainPID=812\n"
            "LimitMEMLOCK=infinity\nLimitNOFILE=524288\n\n"
            "Id=slurmd.service\nNames=slurmd.service\nLoadState=not-found\nActiveState=inactive\n"
        )
        source = live(
            tmp_path, {"/proc/812/limits": LIMITS, "/proc/1/limits": LIMITS}, {"systemctl": f"cat <<'X'\n{shown}X"}
        )
        found = limits.collect(source)
        assert found["services"] == {
            "sshd": {
                "pid": 812,
                **limits.parse_process_limits(LIMITS),
                "configured": {"memlock": "unlimited", "nofile": 524288},
            }
        }
        assert found["pid1"]["memlock_bytes"] == 8388608

    def test_of_recorded_processes(self, tmp_path: Path) -> None:
        found = limits.collect(recorded(tmp_path, {"root/proc/4711/limits": LIMITS}))
        assert found["processes"]["4711"]["memlock_bytes"] == 8388608

    def test_of_logins_the_last_line_counts(self, tmp_path: Path) -> None:
        source = recorded(
            tmp_path,
            {
                "root/etc/security/limits.conf": "* soft memlock 64\n# * hard memlock 1\n",
                "root/etc/security/limits.d/90-gpu-fabric.conf": "* - memlock unlimited\nroot hard nofile 9 # all\n",
                "root/etc/security/limits.d/README": "* - memlock 1\n",
            },
        )
        assert limits.collect(source)["login"] == {
            "*": {"memlock": {"soft": "unlimited", "hard": "unlimited"}},
            "root": {"nofile": {"hard": 9}},
        }

    def test_memlock_is_in_kib_in_the_file(self) -> None:
        assert limits.parse_limits_conf("* hard memlock 64\n* hard nofile 64\n* wrong nofile 1\n* hard nofile\n") == [
            ("*", "hard", "memlock", 65536),
            ("*", "hard", "nofile", 64),
        ]


class TestSysctl:
    def test_files_in_the_order_of_systemd(self, tmp_path: Path) -> None:
        source = recorded(
            tmp_path,
            {
                "root/etc/sysctl.d/90-gpu-fabric.conf": "net.core.rmem_max = 1\n",
                "root/etc/sysctl.d/10-low.conf": "vm.swappiness=10\n",
                "root/usr/lib/sysctl.d/50-vendor.conf": "vm.swappiness=60\n",
                "root/usr/lib/sysctl.d/10-low.conf": "vm.swappiness=99\n",
                "root/run/sysctl.d/60-run.conf": "# nothing\n",
                "root/etc/sysctl.d/README": "vm.swappiness=1\n",
                "root/etc/sysctl.conf": "net.core.rmem_max = 2\n",
            },
        )
        link(tmp_path / "gpu-01" / "root", "etc/sysctl.d/99-sysctl.conf", "../sysctl.conf")
        found = sysctl.files(source)
        assert [entry["path"] for entry in found] == [
            "/etc/sysctl.d/10-low.conf",  # hides the vendor's file of that name
            "/usr/lib/sysctl.d/50-vendor.conf",
            "/run/sysctl.d/60-run.conf",
            "/etc/sysctl.d/90-gpu-fabric.conf",
            "/etc/sysctl.d/99-sysctl.conf",
        ]
        assert found[-1]["entries"] == {"net.core.rmem_max": "2"}
        assert found[-1]["target"] == "/etc/sysctl.conf"

    def test_without_debians_link_only_procps_applies_the_old_file(self, tmp_path: Path) -> None:
        found = sysctl.files(recorded(tmp_path, {"root/etc/sysctl.conf": "vm.swappiness=1\n"}))
        assert found == [
            {"path": "/etc/sysctl.conf", "entries": {"vm.swappiness": "1"}, "applied_by": "sysctl --system"}
        ]

    def test_values(self, tmp_path: Path) -> None:
        source = live(
            tmp_path,
            {
                "/proc/sys/net/core/rmem_max": "212992\n",
                "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
                "/proc/sys/net/ipv4/conf/rail0.100/rp_filter": "2\n",
                "/proc/sys/dev/extra/value": "7\n",
            },
        )
        found = sysctl.collect(source, Tools(source), ["rail0.100"], ["dev/extra/value"])
        assert found == {
            "net.core.rmem_max": "212992",
            "net.ipv4.tcp_rmem": "4096 131072 6291456",
            "dev.extra.value": "7",
            "net.ipv4.conf.rail0/100.rp_filter": "2",
        }

    def test_recorded_values(self, tmp_path: Path) -> None:
        source = recorded(tmp_path, {"sysctl_a.txt": "net.core.rmem_max = 4\nuncommon.key = 5\n"})
        assert sysctl.collect(source, Tools(source)) == {"net.core.rmem_max": "4", "uncommon.key": "5"}


class TestServices:
    def test_of_a_live_host(self, tmp_path: Path) -> None:
        shown = (
            "Id=nvidia-fabricmanager.service\nNames=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\n"
            "SubState=failed\nUnitFileState=enabled\nMainPID=0\nNRestarts=3\nResult=exit-code\nNeedDaemonReload=yes\n\n"
            "Id=docker.service\nNames=docker.service\nLoadState=not-found\nActiveState=inactive\n\n"
            "Id=ufw.service\nNames=ufw.service\nLoadState=masked\nActiveState=inactive\nUnitFileState=masked\n"
        )
        found = services.collect(live(tmp_path, commands={"systemctl": f"cat <<'X'\n{shown}X"}))
        assert found == {
            "nvidia-fabricmanager": {
                "active": False,
                "state": "failed",
                "enabled": True,
                "unit_file_state": "enabled",
                "sub_state": "failed",
                "result": "exit-code",
                "restarts": 3,
                "needs_daemon_reload": True,
            },
            "ufw": {"active": False, "state": "inactive", "enabled": False, "unit_file_state": "masked"},
        }

    def test_of_a_recording(self, tmp_path: Path) -> None:
        found = services.collect(
            recorded(
                tmp_path,
                {
                    "systemctl_is-active_nvidia-fabricmanager.txt": "inactive\n",
                    "systemctl_show_slurmd.txt": "ActiveState=active\nMainPID=77\n",
                },
            )
        )
        assert found["nvidia-fabricmanager"] == {"active": False, "state": "inactive"}
        assert found["slurmd"]["pid"] == 77


class TestPackages:
    STATUS = (
        "Package: libnccl2\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 2.26.2-1+cuda12.8\n"
        "Description: x\n Package: inside a description\n\n"
        "Package: bash\nStatus: install ok installed\nVersion: 5.2\n\n"
        "Package: nvidia-driver-570\nStatus: deinstall ok config-files\nVersion: 570.1\nArchitecture: amd64\n\n"
        "Package: cuda-keyring\nStatus: install ok installed\nArchitecture: all\nVersion: 1.1-1\n\n"
        "Package: rdma-core\nStatus: install ok half-configured\nVersion: 50.0\nArchitecture: amd64\n"
    )

    def found(self, source: Source) -> dict[str, Any] | None:
        return packages.collect(source, Tools(source))

    def test_holds_of_the_collection_are_told_from_those_of_others(self, tmp_path: Path) -> None:
        status = "\n\n".join(
            f"Package: {name}\nStatus: hold ok installed\nVersion: 1-1\n" for name in ("libnccl2", "cuda-a", "cuda-b")
        )
        records = '{"gpu-fabric-nccl": {"held": ["libnccl2", "cuda-a"], "held_before": ["cuda-a"]}}'
        for text, ours in ((records, ["libnccl2"]), ("[]", []), ("{", []), ('{"x": {}}', [])):
            files = {"/var/lib/dpkg/status": status, "/var/lib/gpu_fabric/packages.json": text}
            found = self.found(live(tmp_path, files))
            assert [name for name, entry in found.items() if entry.get("ours")] == ours
            assert all(entry["held"] for entry in found.values())

    def test_of_dpkg(self, tmp_path: Path) -> None:
        found = self.found(live(tmp_path, {"/var/lib/dpkg/status": self.STATUS}))
        assert found is not None
        assert list(found) == ["cuda-keyring", "libnccl2", "nvidia-driver-570", "rdma-core"]
        assert found["libnccl2"] == {
            "status": "installed",
            "held": True,
            "version": "2.26.2-1+cuda12.8",
            "architecture": "amd64",
        }
        assert found["nvidia-driver-570"]["status"] == "config-files"
        assert found["rdma-core"]["status"] == "half-configured"

    def test_of_rpm(self, tmp_path: Path) -> None:
        source = live(
            tmp_path,
            {"/var/lib/rpm/rpmdb.sqlite": ""},
            {"rpm": "echo nvidia-driver-3:550.54.15-1.el9.x86_64; echo vim-1-1.x86_64"},
        )
        found = self.found(source)
        assert found is not None
        assert list(found) == ["nvidia-driver"]

    def test_no_database_is_not_an_empty_one(self, tmp_path: Path) -> None:
        assert self.found(live(tmp_path)) is None
        assert self.found(recorded(tmp_path)) is None
        assert (
            self.found(live(tmp_path, {"/var/lib/dpkg/status": "Package: bash\nStatus: install ok installed\n"})) == {}
        )

    @pytest.mark.parametrize(
        ("version", "upstream"),
        [("1:535.183.01-0ubuntu0.22.04.1", "535.183.01"), ("550.144.03-1", "550.144.03"), ("570.1", "570.1")],
    )
    def test_upstream_version(self, version: str, upstream: str) -> None:
        assert packages.upstream_version(version) == upstream


class TestModules:
    def test_loaded_and_installed(self, tmp_path: Path) -> None:
        source = live(
            tmp_path,
            {
                "/proc/modules": (
                    "nvidia 56717312 3 nvidia_uvm,nvidia_peermem, Live 0x0000000000000000 (POE)\n"
                    "ib_core 450560 2 mlx5_ib,ko2iblnd, Live 0x0000000000000000\n"
                    "ko2iblnd 270336 1 - Live 0x0000000000000000\n"
                ),
                "/sys/module/nvidia/version": "570.133.20\n",
                "/sys/module/ib_umad/uevent": "",
            },
            {
                "modinfo": 'case $1 in nvidia) echo "filename:       /lib/modules/6.8/updates/dkms/nvidia.ko"; '
                'echo "version:        575.51.03";; *) echo "modinfo: ERROR: Module $1 not found." >&2; exit 1;; esac'
            },
        )
        found = modules.collect(source, Tools(source))
        assert found is not None
        assert found["nvidia"]["loaded"] is True
        assert found["nvidia"]["holders"] == ["nvidia_uvm", "nvidia_peermem"]
        # Loaded and installed differ: a restart is due.
        assert (found["nvidia"]["version"], found["nvidia"]["installed_version"]) == ("570.133.20", "575.51.03")
        assert found["nouveau"] == {"loaded": False}
        assert found["gdrdrv"] == {"loaded": False, "available": False}
        # Built into the kernel: no line in /proc/modules, and yet there.
        assert found["ib_umad"]["loaded"] is True
        assert found["ko2iblnd"]["loaded"] is True

    def test_unknown_is_not_unloaded(self, tmp_path: Path) -> None:
        source = recorded(tmp_path)
        assert modules.collect(source, Tools(source)) is None

    def test_dkms_tree(self, tmp_path: Path) -> None:
        base = "/var/lib/dkms/nvidia/570.133.20"
        source = live(
            tmp_path,
            {
                f"{base}/6.8.0-60-generic/x86_64/module/nvidia.ko": "",
                f"{base}/6.8.0-59-generic/x86_64/module/nvidia.ko": "",
                f"{base}/source/dkms.conf": "",
                "/var/lib/dkms/gdrdrv/2.5/source/dkms.conf": "",
            },
        )
        link(
            Path(source.root),
            "var/lib/dkms/nvidia/kernel-6.8.0-60-generic-x86_64",
            "570.133.20/6.8.0-60-generic/x86_64",
        )
        found = modules.dkms(source, Tools(source))
        assert found == [
            {"module": "gdrdrv", "version": "2.5", "status": "added"},
            {
                "module": "nvidia",
                "version": "570.133.20",
                "kernel": "6.8.0-59-generic",
                "architecture": "x86_64",
                "status": "built",
            },
            {
                "module": "nvidia",
                "version": "570.133.20",
                "kernel": "6.8.0-60-generic",
                "architecture": "x86_64",
                "status": "installed",
            },
        ]


class TestHost:
    @pytest.mark.parametrize(
        ("answer", "kind"),
        [("none", "none"), ("kvm", "kvm"), ("microsoft", "hyperv"), ("amazon", "kvm"), ("vmware", "vmware")],
    )
    def test_virtualization_by_systemd(self, tmp_path: Path, answer: str, kind: str) -> None:
        status = 1 if answer == "none" else 0
        source = live(tmp_path, commands={"systemd-detect-virt": f"echo {answer}; exit {status}"})
        assert host.collect(source)["virtualization"] == kind

    @pytest.mark.parametrize(
        ("vendor", "product", "flags", "kind"),
        [
            ("Dell Inc.", "PowerEdge XE9680", "fpu", "none"),
            ("Microsoft Corporation", "Virtual Machine", "fpu hypervisor", "hyperv"),
            ("Microsoft Corporation", "Surface Book", "fpu", "none"),
            ("Amazon EC2", "p5.48xlarge", "fpu hypervisor", "kvm"),
            ("Amazon EC2", "p5.metal-48xl", "fpu", "none"),
            ("Google", "Google Compute Engine", "fpu hypervisor", "kvm"),
            ("ACME", "Cloud", "fpu hypervisor", "other"),
        ],
    )
    def test_virtualization_by_firmware(self, tmp_path: Path, vendor: str, product: str, flags: str, kind: str) -> None:
        source = live(
            tmp_path,
            {
                "/sys/class/dmi/id/sys_vendor": vendor,
                "/sys/class/dmi/id/product_name": product,
                "/proc/cpuinfo": f"flags\t\t: {flags}\n",
            },
        )
        assert host.collect(source)["virtualization"] == kind

    def test_an_answer_that_did_not_come_is_not_guessed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = live(
            tmp_path, {"/proc/cpuinfo": "flags\t\t: fpu hypervisor\n"}, {"systemd-detect-virt": "exec sleep 30"}
        )
        run = source.run
        monkeypatch.setattr(source, "run", lambda argv, timeout=None: run(argv, 0.2))
        assert "virtualization" not in host.collect(source)

    def test_a_container(self, tmp_path: Path) -> None:
        source = live(tmp_path, {"/run/.containerenv": ""}, {"systemd-detect-virt": "echo none; exit 1"})
        assert host.collect(source)["container"] is True

    @pytest.mark.parametrize(("value", "state"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\x00", False)])
    def test_secure_boot_by_firmware(self, tmp_path: Path, value: bytes, state: bool) -> None:
        name = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
        assert host.collect(live(tmp_path, {name: value}))["secure_boot"] is state

    @pytest.mark.parametrize(
        ("text", "euid"),
        [("Name:\tpython3\nUid:\t1000\t0\t0\t0\n", 0), ("Uid:\t1000\t1000\t0\t0\n", 1000), ("Uid:\tx\n", None)],
    )
    def test_effective_user(self, tmp_path: Path, text: str, euid: int | None) -> None:
        assert host.collect(live(tmp_path, {"/proc/self/status": text})).get("euid") == euid

    def test_secure_boot_recorded(self, tmp_path: Path) -> None:
        found = host.collect(
            recorded(tmp_path, {"mokutil_sb-state.txt": "SecureBoot enabled\n", "mokutil_list-enrolled.txt": ""})
        )
        assert found["secure_boot"] is True
        assert found["enrolled_keys"] == []
        assert "secure_boot" not in host.collect(recorded(tmp_path, name="other"))

    def test_a_machine_with_a_bios_has_no_secure_boot(self, tmp_path: Path) -> None:
        assert host.collect(live(tmp_path, {"/sys/firmware/acpi/x": ""}))["secure_boot"] is False

    def test_command_line(self, tmp_path: Path) -> None:
        source = recorded(tmp_path, {"root/proc/cmdline": 'ro iommu=pt dyndbg="file drivers/x +p" quiet\n'})
        assert host.collect(source)["cmdline"] == ["ro", "iommu=pt", "dyndbg=file drivers/x +p", "quiet"]
        source = recorded(tmp_path, {"root/proc/cmdline": 'ro x="never closed\n'}, name="other")
        assert host.collect(source)["cmdline"] == ["ro", 'x="never', "closed"]

    def test_processors(self, tmp_path: Path) -> None:
        assert host.collect(live(tmp_path, {"/sys/devices/system/cpu/online": "0-47,96-143,200\n"}))["cpus"] == 97

    def test_the_answer_stands_behind_a_warning(self, tmp_path: Path) -> None:
        assert host.collect(recorded(tmp_path, {"uname_r.txt": "warning: x\n6.8.0-60\n"}))["kernel"] == "6.8.0-60"


class TestDriver:
    @pytest.mark.parametrize(
        ("line", "version", "flavour"),
        [
            ("NVIDIA UNIX x86_64 Kernel Module  535.161.08  Tue Mar  5 2024", "535.161.08", "proprietary"),
            ("NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build", "570.158.01", "open"),
            ("NVIDIA UNIX aarch64 Kernel Module  550.90.07  Fri", "550.90.07", "proprietary"),
            ("NVIDIA UNIX Open Kernel Module for aarch64  580.82.07  Release", "580.82.07", "open"),
        ],
    )
    def test_version_of_the_loaded_module(self, line: str, version: str, flavour: str) -> None:
        text = f"NVRM version: {line}\nGCC version:  gcc version 12.3.0\n"
        assert driver.parse_version(text) == {"version": version, "flavour": flavour}

    def test_no_version(self) -> None:
        assert driver.parse_version("NVRM version: NVIDIA UNIX x86_64 Kernel Mod") == {}

    def test_library_by_its_link(self, tmp_path: Path) -> None:
        source = live(tmp_path, {"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.575.51.03": ""})
        link(Path(source.root), "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.575.51.03")
        found = driver.collect(source, Tools(source), {}, None)
        assert found == {"library_version": "575.51.03"}

    def test_fabric_manager(self, tmp_path: Path) -> None:
        source = live(tmp_path, commands={"journalctl": "echo 'nv-fabricmanager[1]: started'"})
        found = driver.fabric_manager(
            source,
            {"nvidia-fabricmanager": {"active": True, "state": "active"}},
            {"nvidia-fabricmanager-570": {"status": "installed", "version": "570.133.20-1"}},
        )
        assert found == {
            "package": "nvidia-fabricmanager-570",
            "installed_version": "570.133.20",
            "active": True,
            "state": "active",
            "log": ["nv-fabricmanager[1]: started"],
        }
        assert driver.fabric_manager(live(tmp_path), {}, {}) is None


class TestFirewall:
    def test_rule_set(self, tmp_path: Path) -> None:
        rules = "table inet filter {\n\tchain input {\n\t}\n}\ntable ip nat {\n}\n"
        source = live(tmp_path, {"/etc/ufw/ufw.conf": "ENABLED=no\n"}, {"nft": f"cat <<'X'\n{rules}X"})
        found = firewall.collect(source, {"firewalld": {"active": False}})
        assert found["nftables"] == {"ruleset": rules, "tables": ["inet filter", "ip nat"]}
        assert found["ufw"] == {"active": False}
        assert found["firewalld"] == {"active": False}

    def test_without_privilege_it_is_not_known(self, tmp_path: Path) -> None:
        source = live(tmp_path, commands={"nft": "echo 'Operation not permitted (you must be root)' >&2; exit 1"})
        assert "nftables" not in firewall.collect(source, {})
        assert "must be root" in source.unread[0]["reason"]

    def test_zones(self) -> None:
        text = (
            "block\n  target: %%REJECT%%\n  services: \n\npublic (default, active)\n  target: default\n"
            "  interfaces: eno1 eno2\n  services: ssh\n  rich rules: \n"
        )
        found = firewall.parse_zones(text)
        assert found["block"] == {"active": False, "target": "%%REJECT%%", "services": []}
        assert found["public"]["active"] is True
        assert found["public"]["interfaces"] == ["eno1", "eno2"]


class TestFiles:
    def test_passwords_in_addresses_are_not_kept(self, tmp_path: Path) -> None:
        source = recorded(
            tmp_path, {"root/etc/apt/sources.list.d/x.list": "deb https://user:geheim@mirror.example/cuda /\n"}
        )
        found = files.collect(source)
        assert found == {"/etc/apt/sources.list.d/x.list": "deb https://***:***@mirror.example/cuda /\n"}

    def test_a_long_file_is_left_out_and_said(self, tmp_path: Path) -> None:
        source = recorded(tmp_path, {"root/etc/nccl.conf": "#" * 70000})
        assert files.collect(source) == {}
        assert source.unread[0]["source"] == "/etc/nccl.conf"

    def test_network_file_systems(self, tmp_path: Path) -> None:
        text = "/dev/sda1 / ext4 rw 0 0\nfs:/home /home nfs4 rw,proto=rdma 0 0\n10.1.1.1@o2ib:/s /s lustre rw 0 0\n"
        found = files.mounts(recorded(tmp_path, {"root/proc/mounts": text}))
        assert found is not None
        assert [(entry["fstype"], entry["options"]) for entry in found] == [
            ("nfs4", ["rw", "proto=rdma"]),
            ("lustre", ["rw"]),
        ]
