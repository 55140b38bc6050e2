# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hosts import link, live, recorded

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _source
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._bundle import bundle_name
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import TIMED_OUT, BundleSource, LiveSource


class TestBundleNames:
    """The list of names in use, as the format of the bundle gives it."""

    @pytest.mark.parametrize(
        ("command", "name"),
        [
            ("uname -r", "uname_r.txt"),
            ("lsmod", "lsmod.txt"),
            ("dmesg", "dmesg.txt"),
            ("dmesg --ctime", "dmesg.txt"),
            ("dpkg -l", "dpkg_l.txt"),
            ("rpm -qa", "rpm_qa.txt"),
            ("dkms status", "dkms_status.txt"),
            ("lspci -nn", "lspci_nn.txt"),
            ("lspci -D -nn", "lspci_nn.txt"),
            ("lspci -vvv", "lspci_vvv.txt"),
            ("ibstat", "ibstat.txt"),
            ("/usr/sbin/ibstat", "ibstat.txt"),
            ("ibdev2netdev -v", "ibdev2netdev_v.txt"),
            ("ibv_devinfo", "ibv_devinfo.txt"),
            ("ibv_devinfo -v", "ibv_devinfo.txt"),
            ("show_gids", "show_gids.txt"),
            ("rdma link", "rdma_link.txt"),
            ("rdma -j link", "rdma_link.json"),
            ("mlnx_qos", "mlnx_qos.txt"),
            ("mlnx_qos -i ens1f0np0", "mlnx_qos_ens1f0np0.txt"),
            ("mlxconfig -d 0000:18:00.0 -j q", "mlxconfig_0000:18:00.0.json"),
            ("ethtool ens1f0np0", "ethtool_ens1f0np0.txt"),
            ("ethtool -i ens1f0np0", "ethtool_i_ens1f0np0.txt"),
            ("nvidia-smi", "nvidia-smi.txt"),
            ("nvidia-smi -q", "nvidia-smi_q.txt"),
            ("nvidia-smi -q -x", "nvidia-smi_q.xml"),
            ("nvidia-smi topo -m", "nvidia-smi_topo_m.txt"),
            ("nvidia-smi --query-gpu=index,name --format=csv", "nvidia-smi_query_gpu.csv"),
            ("ofed_info -s", "ofed_info_s.txt"),
            ("modinfo mlx5_core", "modinfo_mlx5_core.txt"),
            ("modprobe nvidia_peermem", "modprobe_nvidia_peermem.txt"),
            ("sysctl -a", "sysctl_a.txt"),
            ("ip -br addr", "ip_br_addr.txt"),
            ("ip -br link", "ip_br_link.txt"),
            ("ip link", "ip_link.txt"),
            ("ip route", "ip_route.txt"),
            ("ip route show table all", "ip_route_table_all.txt"),
            ("ip rule", "ip_rule.txt"),
            ("ls /sys/class/infiniband", "ls_sys_class_infiniband.txt"),
            ("lsinitramfs", "lsinitramfs.txt"),
            ("mokutil --sb-state", "mokutil_sb-state.txt"),
            ("mokutil --list-enrolled", "mokutil_list-enrolled.txt"),
            ("systemd-detect-virt", "systemd_detect_virt.txt"),
            ("systemctl show slurmd", "systemctl_show_slurmd.txt"),
            ("systemctl show -p MainPID slurmd.service", "systemctl_show_slurmd.txt"),
            ("systemctl is-active docker", "systemctl_is-active_docker.txt"),
            ("journalctl -u nvidia-fabricmanager -n 60 --no-pager", "journalctl_nvidia-fabricmanager.txt"),
            ("firewall-cmd --list-all-zones", "firewall-cmd.txt"),
            ("nft list ruleset", "nft_list_ruleset.txt"),
            ("apt-cache policy libnccl2", "apt-cache_policy_libnccl2.txt"),
        ],
    )
    def test_known_name(self, command: str, name: str) -> None:
        assert name in bundle_name(command.split())

    def test_no_name_leaves_the_folder(self) -> None:
        assert not any("/" in name for name in bundle_name(["cat", "/etc/../../secret"]))

    def test_one_port_does_not_answer_for_another(self) -> None:
        assert not set(bundle_name(["mlnx_qos", "-i", "ens1"])) & set(bundle_name(["mlnx_qos", "-i", "ens2"]))


class TestBundle:
    def test_reads_files_and_outputs(self, tmp_path: Path) -> None:
        source = recorded(tmp_path, {"root/etc/nccl.conf": "NCCL_DEBUG=INFO\n", "uname_r.txt": "6.8.0\n"})
        assert source.read("/etc/nccl.conf") == "NCCL_DEBUG=INFO\n"
        answer = source.run(["uname", "-r"])
        assert answer is not None
        assert (answer.stdout, answer.recorded) == ("6.8.0\n", True)
        assert source.name == "gpu-01"
        assert not source.live

    def test_what_is_missing_is_absent_and_not_a_problem(self, tmp_path: Path) -> None:
        source = recorded(tmp_path)
        assert source.read("/etc/nccl.conf") is None
        assert source.listdir("/sys/class/net") == []
        assert source.run(["ibstat"]) is None
        assert source.realpath("/sys/class/net/eth0") is None
        assert source.unread == []

    def test_nothing_outside_the_folder_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret\n")
        source = recorded(tmp_path)
        root = tmp_path / "gpu-01" / "root"
        link(root, "etc/absolute", str(tmp_path / "secret"))
        link(root, "etc/relative", "../../../secret")
        link(tmp_path / "gpu-01", "ibstat.txt", "../secret")
        source = BundleSource(str(tmp_path / "gpu-01"))
        assert source.read("/etc/absolute") is None
        assert source.read("/etc/relative") is None
        assert source.read("/../../secret") is None
        assert source.run(["ibstat"]) is None

    def test_a_link_is_followed_as_on_the_host(self, tmp_path: Path) -> None:
        source = recorded(tmp_path, {"root/etc/sysctl.conf": "a = 1\n"})
        link(tmp_path / "gpu-01" / "root", "etc/sysctl.d/99-sysctl.conf", "/etc/sysctl.conf")
        assert source.read("/etc/sysctl.d/99-sysctl.conf") == "a = 1\n"
        assert source.realpath("/etc/sysctl.d/99-sysctl.conf") == "/etc/sysctl.conf"

    def test_where_a_recorded_link_leads_is_known_though_its_end_was_not_copied(self, tmp_path: Path) -> None:
        source = recorded(tmp_path)
        target = "../../devices/pci0000:15/0000:15:01.0/0000:18:00.0/net/ens1"
        link(tmp_path / "gpu-01" / "root", "sys/class/net/ens1", target)
        assert source.realpath("/sys/class/net/ens1") == "/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/net/ens1"

    def test_links_in_a_circle_end(self, tmp_path: Path) -> None:
        source = recorded(tmp_path)
        link(tmp_path / "gpu-01" / "root", "a", "b")
        link(tmp_path / "gpu-01" / "root", "b", "a")
        assert source.realpath("/a") is None
        assert source.read("/a") is None

    def test_damaged_text_is_readable(self, tmp_path: Path) -> None:
        source = recorded(tmp_path, {"root/etc/x": b"a\xffb\n"})
        assert source.read("/etc/x") == "a\ufffdb\n"

    def test_a_folder_that_is_not_there_is_said(self, tmp_path: Path) -> None:
        assert BundleSource(str(tmp_path / "none")).unread[0]["reason"] == "No such file or directory"

    def test_a_long_file_is_cut_and_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_source, "READ_LIMIT", 4)
        source = recorded(tmp_path, {"root/log": "123456"})
        assert source.read("/log") == "1234"
        assert source.unread == [{"source": "/log", "reason": "only the first 4 bytes were read"}]


class TestLive:
    def test_runs_a_command_in_the_c_locale_without_input(self, tmp_path: Path) -> None:
        source = live(
            tmp_path, commands={"tool": 'echo "$LC_ALL $LANG $1"; read x || echo closed'}, environ={"LANG": "de_DE"}
        )
        answer = source.run(["tool", "a b"])
        assert answer is not None
        assert answer.stdout == "C  a b\nclosed\n"
        assert not answer.recorded

    def test_a_tool_that_is_not_installed(self, tmp_path: Path) -> None:
        source = live(tmp_path)
        assert source.run(["ibstat"]) is None
        assert source.tool("ibstat") is None
        assert source.unread == []

    def test_status_and_both_streams_are_kept(self, tmp_path: Path) -> None:
        answer = live(tmp_path, commands={"tool": "printf out; echo err >&2; exit 3"}).run(["tool"])
        assert answer is not None
        assert (answer.rc, answer.text) == (3, "out\nerr\n")

    def test_a_command_that_hangs_is_ended_and_its_half_answer_dropped(self, tmp_path: Path) -> None:
        source = live(tmp_path, commands={"tool": "echo half; exec sleep 30"})
        before = time.monotonic()
        answer = source.run(["tool"], timeout=0.3)
        assert time.monotonic() - before < 10
        assert answer is not None
        assert (answer.stdout, answer.rc) == ("", TIMED_OUT)
        assert source.unread == [{"source": "tool", "reason": "no answer within 0.3 s"}]

    def test_a_command_is_asked_once(self, tmp_path: Path) -> None:
        count = tmp_path / "count"
        source = live(tmp_path, commands={"tool": f"echo x >> {count}"})
        source.prefetch([["tool"]])
        source.map(source.run, [["tool"], ["tool"]])
        source.run(["tool"])
        assert count.read_text() == "x\n"

    def test_answers_come_in_the_order_of_the_questions(self, tmp_path: Path) -> None:
        source = live(tmp_path, commands={"tool": "echo $1"})
        answers = source.map(source.run, [["tool", str(number)] for number in range(12)])
        assert [answer.stdout for answer in answers if answer] == [f"{number}\n" for number in range(12)]

    def test_a_file_that_may_not_be_read_is_noted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = live(tmp_path, {"/sys/secret": "x"})

        def refuse(*_args: object, **_kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
        assert source.read("/sys/secret") is None
        assert source.unread == [{"source": "/sys/secret", "reason": "Permission denied"}]
        assert source.read("/sys/secret", quiet=True) is None
        assert len(source.unread) == 1

    def test_an_attribute_without_a_value_is_absent_and_not_a_problem(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = live(tmp_path, {"/sys/speed": "x"})

        def refuse(*_args: object, **_kwargs: object) -> None:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr("builtins.open", refuse)
        assert source.read("/sys/speed") is None
        assert source.unread == []

    def test_the_machine_itself(self) -> None:
        source = LiveSource()
        assert source.realpath("/proc/self") == f"/proc/{os.getpid()}"
        assert source.read("/proc/self/cmdline")
        assert source.tool("sh")
