# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE: used by this collection only; may change without notice.

"""Tools: which are installed, and what they answer, parsed once for all sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    dkms_status,
    dpkg_list,
    ibdev2netdev,
    ibstat,
    ibstatus,
    ibv_devinfo,
    lsmod,
    lspci,
    nvidia_smi,
    nvidia_smi_csv,
    nvidia_smi_list,
    nvidia_smi_q,
    nvidia_smi_topo,
    nvidia_smi_xml,
    ofed_info,
    rdma_link,
    rpm_list,
    show_gids,
    sysctl_output,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import ANSWER_S, TIMED_OUT, Source

__all__ = ["ANSWERS", "Tools", "installed"]

#: Tools whose presence the plan or a role reads.
_NAMES = (
    "nvidia-smi", "nvidia-fabricmanager", "nv-fabricmanager", "ibstat", "ibdev2netdev", "show_gids", "ibv_devinfo",
    "rdma",
    "ip", "dcb", "ethtool", "lspci", "setpci", "mlnx_qos", "mlxconfig", "mstconfig", "mlxfwreset", "mst", "ofed_info",
    "cma_roce_tos", "nft", "firewall-cmd", "ufw", "iptables", "systemctl", "nmcli", "netplan", "ifup", "networkctl",
    "apt-get", "dnf", "dkms", "mokutil", "ib_write_bw", "iperf3", "mpirun", "srun", "all_reduce_perf", "numactl",
    "rdma_topo", "opensm", "ibnetdiscover",
)  # fmt: skip


class Answer(NamedTuple):
    """A command whose answer is parsed."""

    argv: tuple[str, ...]
    parse: Callable[[str], Parsed]
    #: Asked of a live host too; otherwise only read where somebody recorded it, because sysfs tells the same.
    live: bool = True
    timeout: float = ANSWER_S
    #: Kept in `outputs`, for rules that compare it with sysfs.
    kept: bool = True
    #: Under way from the start, for it is slow and wanted on every host.
    early: bool = True
    #: Asked only where the kernel has RDMA devices; elsewhere the tool has nothing but complaints.
    rdma: bool = False


_NVIDIA_SMI_S = 40.0  # without persistence mode the first question initialises every GPU

ANSWERS: dict[str, Answer] = {
    "nvidia_smi_xml": Answer(("nvidia-smi", "-q", "-x"), nvidia_smi_xml.parse, True, _NVIDIA_SMI_S, False),
    "nvidia_smi_q": Answer(("nvidia-smi", "-q"), nvidia_smi_q.parse, False, kept=False),
    "nvidia_smi_csv": Answer(
        ("nvidia-smi", "--query-gpu=index", "--format=csv"), nvidia_smi_csv.parse, False, kept=False
    ),
    "nvidia_smi": Answer(("nvidia-smi",), nvidia_smi.parse, False, kept=False),
    "nvidia_smi_list": Answer(("nvidia-smi", "-L"), nvidia_smi_list.parse, False, kept=False),
    "nvidia_smi_topo": Answer(("nvidia-smi", "topo", "-m"), nvidia_smi_topo.parse, True, _NVIDIA_SMI_S),
    "nvidia_smi_processes": Answer(
        ("nvidia-smi", "--query-compute-apps=pid,process_name,gpu_uuid,used_memory", "--format=csv"),
        nvidia_smi_csv.parse,
        True,
        _NVIDIA_SMI_S,
        False,
    ),
    "lspci_nn": Answer(("lspci", "-D", "-nn"), lspci.parse, kept=False),
    "lspci_vvv": Answer(("lspci", "-vvv"), lspci.parse, False, kept=False),
    "lspci": Answer(("lspci",), lspci.parse, False, kept=False),
    "ibstat": Answer(("ibstat",), ibstat.parse, rdma=True),
    "ibstatus": Answer(("ibstatus",), ibstatus.parse, False, kept=False),
    "ibdev2netdev": Answer(("ibdev2netdev",), ibdev2netdev.parse, rdma=True),
    "ibdev2netdev_v": Answer(("ibdev2netdev", "-v"), ibdev2netdev.parse, False),
    "show_gids": Answer(("show_gids",), show_gids.parse, False),
    "rdma_link": Answer(("rdma", "-j", "link"), rdma_link.parse, rdma=True),
    "rdma_link_text": Answer(("rdma", "link"), rdma_link.parse, False),
    # The only one to tell the active MTU of an InfiniBand port.
    "ibv_devinfo": Answer(("ibv_devinfo",), ibv_devinfo.parse, rdma=True),
    "ofed_info": Answer(("ofed_info", "-s"), ofed_info.parse, kept=False),
    "rpm_list": Answer(("rpm", "-qa"), rpm_list.parse, timeout=30, kept=False, early=False),
    "dpkg_list": Answer(("dpkg", "-l"), dpkg_list.parse, False, kept=False),
    "dkms_status": Answer(("dkms", "status"), dkms_status.parse, False, kept=False),
    "lsmod": Answer(("lsmod",), lsmod.parse, False, kept=False),
    "sysctl": Answer(("sysctl", "-a"), sysctl_output.parse, False, kept=False),
}


class Tools:
    """Parsed answers of one host's tools, with what could not be read of them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.outputs: dict[str, Any] = {}
        self.problems: list[dict[str, Any]] = []
        self._values: dict[str, Any] = {}
        self.rdma = bool(source.listdir("/sys/class/infiniband"))

    def prefetch(self) -> None:
        """Have the slow tools under way while sysfs is read."""
        wanted = (answer for answer in ANSWERS.values() if answer.live and answer.early)
        self.source.prefetch([answer.argv for answer in wanted if self.rdma or not answer.rdma], _NVIDIA_SMI_S)

    def value(self, key: str) -> Optional[Any]:
        """Parsed answer; None where the tool is not there or was not recorded."""
        if key not in self._values:
            answer = ANSWERS[key]
            self._values[key] = None
            if self.source.live and not (answer.live and (self.rdma or not answer.rdma)):
                return None
            self._values[key] = self.ask(key, answer.argv, answer.parse, answer.timeout)
            if answer.kept and self._values[key] is not None:
                self.outputs[key] = self._values[key]
        return self._values[key]

    def ask(
        self, label: str, argv: Sequence[str], parse: Callable[[str], Parsed], timeout: float = ANSWER_S
    ) -> Optional[Any]:
        output = self.source.run(argv, timeout)
        if output is None or (output.rc == TIMED_OUT and not output.stdout):
            return None
        parsed = parse(output.text)
        self.problems.extend(
            {"source": label, "line": problem.line, "text": problem.text, "reason": problem.reason}
            for problem in parsed.problems
        )
        return parsed.value


def installed(source: Source) -> dict[str, Any]:
    paths = ((name, source.tool(name)) for name in _NAMES)
    return {name: {"path": path} for name, path in paths if path is not None}
