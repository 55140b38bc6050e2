# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shapes of the stand-ins' outputs against recorded ones: labels, their order, indentation, separators."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest


def labels(text: str, separator: str = ":") -> list[str]:
    """Indentation and label of every line that has one."""
    return [line.split(separator)[0] for line in text.splitlines() if separator in line]


def is_subsequence(part: list[str], whole: list[str]) -> str | None:
    """The first element of `part` that `whole` does not have in this order."""
    rest = iter(whole)
    return next((item for item in part if item not in rest), None)


@pytest.fixture
def umad(host):
    host.run("modprobe", "ib_umad")
    return host


def test_ibstat(umad, recorded):
    real = recorded("ibstat/h100-12ca-mixed-cx7-cx6-all-eth-active.txt").splitlines()[:17]
    ours = umad.run("ibstat", "mlx5_0").out.splitlines()
    assert [re.sub(r":.*", ":", line) for line in ours[1:]] == [re.sub(r":.*", ":", line) for line in real[1:]]
    assert ours[0] == "CA 'mlx5_0'"
    assert re.fullmatch(r"\tNode GUID: 0x[0-9a-f]{16}", ours[5])
    assert ours[8:12] == ["\t\tState: Active", "\t\tPhysical state: LinkUp", "\t\tRate: 400", "\t\tBase lid: 0"]


def test_ibstat_lists_in_the_order_of_names(umad, recorded):
    recorded_names = re.findall(r"^CA '(.*)'", recorded("ibstat/h100-12ca-mixed-cx7-cx6-all-eth-active.txt"), re.M)
    assert recorded_names == sorted(recorded_names)
    names = umad.run("ibstat", "-l").out.split()
    assert names == sorted(names) and len(names) == 10


def test_ibstat_of_one_port_stands_alone(umad):
    lines = umad.run("ibstat", "mlx5_0", "1").out.splitlines()
    assert lines[:3] == ["CA: 'mlx5_0'", "Port 1:", "State: Active"]


def test_ibstat_needs_the_umad_module(host):
    answer = host.run("ibstat")
    assert answer.rc != 0 and answer.out == "" and answer.err.startswith("ibpanic: [")


def test_ibstatus(umad, recorded):
    real = recorded("ibstatus/a100-8x-hdr-azure.txt").splitlines()[:9]
    ours = umad.run("ibstatus", "mlx5_0").out.splitlines()
    assert [line.split(":")[0].strip() for line in ours] == [line.split(":")[0].strip() for line in real]
    assert ours[1].startswith("\tdefault gid:\t fe80:") and ours[6] == "\trate:\t\t 400 Gb/sec (4X NDR)"


def test_ibv_devinfo(host, recorded):
    real = recorded("ibv_devinfo/cx6dx-eth-port-down.txt").splitlines()[:18]
    ours = host.run("ibv_devinfo", "-d", "mlx5_1").out.rstrip().splitlines()
    assert [line.split(":")[0].strip() for line in ours] == [line.split(":")[0].strip() for line in real]
    assert "\tnode_guid:\t\t\t" in ours[3] and re.search(r"\t([0-9a-f]{4}:){3}[0-9a-f]{4}$", ours[3])
    host.interface("enp41s0f0np0", up=False)
    down = host.run("ibv_devinfo", "-d", "mlx5_1").out.splitlines()
    for label in ("state", "max_mtu", "active_mtu", "sm_lid", "port_lid", "link_layer"):
        one, other = (next(line for line in text if line.strip().startswith(label + ":")) for text in (down, real))
        assert one.split() == other.split()


def test_ibdev2netdev(make_host, recorded):
    host = make_host("a100_8x200g")
    pattern = r"\S+ port \d ==> \S+ \((Up|Down)\)"
    real = recorded("ibdev2netdev/bond-without-bond-name-two-devs-one-netdev.txt").splitlines()
    for line in [*real, *host.run("ibdev2netdev").out.splitlines()]:
        assert re.fullmatch(pattern, line), line
    device = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d \S+ \(MT\d+ - \S+\)"
    pattern = device + r" .*? ?fw [\d.]+ port \d \(\w+ *\) ==> \S+ \((Up|Down)\)"
    verbose = recorded("ibdev2netdev-v/cx6-hdr-commas-in-description.txt").splitlines()
    for line in [*verbose, *host.run("ibdev2netdev", "-v").out.splitlines()]:
        assert re.fullmatch(pattern, line), line


def test_show_gids(host, recorded):
    host.interface("enp24s0np0", addresses=["10.9.0.1/24"])
    real = recorded("show_gids/bond-roce-v1-v2-tabs.txt").splitlines()
    ours = host.run("show_gids", "mlx5_0").out.splitlines()
    assert ours[:2] == real[:2]
    assert [line.count("\t") for line in ours[2:6]] == [line.count("\t") for line in real[2:6]]
    assert ours[4].split("\t")[4:] == ["10.9.0.1  ", "v1", "enp24s0np0"]
    assert ours[-1] == "n_gids_found=4" == real[-1]


def test_mlnx_qos(host, recorded):
    real = recorded("mlnx_qos/dscp-trust-mapping-excerpt.txt").splitlines()
    ours = host.run("mlnx_qos", "-i", "enp24s0np0", "--trust", "dscp").out.splitlines()
    assert ours[: len(real)] == real


@pytest.mark.parametrize("end", ["Next Boot       New"])
def test_mlxconfig_set(host, recorded, end):
    real = recorded("mlxconfig/cx6-set-next-boot-new.txt").splitlines()
    ours = host.run("mlxconfig", "-d", "18:00.0", "-y", "set", "SRIOV_EN=1", "NUM_OF_VFS=16").out.splitlines()
    header = next(line for line in real if line.startswith("Configurations:"))
    assert header.endswith(end) and header in ours
    row = next(line for line in real if "BOOT_VLAN  " in line)
    own = next(line for line in ours if "SRIOV_EN" in line)
    assert (len(own), own.index("SRIOV_EN"), own.index("False")) == (len(row), row.index("BOOT_VLAN"), row.index("1"))
    assert ours[-4:] == real[-4:]


def test_mlxconfig_query_marks_what_waits(host, recorded):
    real = recorded("mlxconfig/e-query-star-next-boot-differs.txt")
    host.run("mlxconfig", "-d", "18:00.0", "-y", "set", "SRIOV_EN=1")
    ours = host.run("mlxconfig", "-d", "18:00.0", "-e", "q").out
    assert real.splitlines()[-1] in ours
    stars = [line.split()[1] for line in ours.splitlines() if line.startswith("*")]
    assert stars == ["SRIOV_EN", "LINK_TYPE_P1"], "a value that differs from its default is marked as well"
    rows = [line.split() for line in ours.splitlines() if line.strip().startswith("NUM_OF_VFS")]
    assert rows == [["NUM_OF_VFS", "8", "8", "8"]]


def test_mst_status(host, recorded):
    real = recorded("mst-status-v/bf3-dpu-multi-netdev-numa-minus1.txt").splitlines()
    host.run("mst", "start")
    ours = host.run("mst", "status", "-v").out.splitlines()
    heading = next(line for line in ours if line.startswith("DEVICE_TYPE"))
    assert heading.split() == next(line for line in real if line.startswith("DEVICE_TYPE")).split()
    row = next(line for line in ours if line.startswith("ConnectX7"))
    assert row.index("/dev/mst") == heading.index("MST")
    plain = recorded("mst-status/cx4-minimal.txt").splitlines()
    simple = host.run("mst", "status").out.splitlines()
    device = re.compile(r"/dev/mst/mt\d+_pciconf\d+")
    assert device.sub("DEV", simple[-3]).rstrip() == device.sub("DEV", plain[-1]).rstrip()
    assert simple[-3].index("- PCI") == plain[-1].index("- PCI")


def test_rdma_link(make_host, recorded):
    real = recorded("rdma-link/cx6-ib-mixed-disabled-and-eth.txt").splitlines()
    host = make_host("hgx_h100_ib")
    ours = host.run("rdma", "link").out.splitlines()
    words = [re.sub(r"\S+/1", "DEV", line).split() for line in (ours[0], real[0])]
    assert words[0][::2] == words[1][::2] and words[0][-1] == "LINK_UP"
    ethernet = next(line for line in ours if "netdev" in line)
    assert ethernet.split()[2::2] == next(line for line in real if "netdev" in line).split()[2::2]
    assert ethernet.endswith(" "), "iproute2 ends each field with a blank"


def test_ethtool_driver_info(host, recorded):
    real = recorded("ethtool-i/mlx5-cx4lx-inbox-418.txt")
    assert labels(host.run("ethtool", "-i", "enp24s0np0").out) == labels(real)


def test_ethtool_of_a_port_that_is_down(host):
    host.interface("enp24s0np0", carrier=False)
    out = host.run("ethtool", "enp24s0np0").out
    assert "\tSpeed: Unknown!\n" in out and out.endswith("\tLink detected: no\n") and "Link partner" not in out


# --- NVIDIA ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def driver(host):
    host.lab("driver", "install", "--version", "580.95.05")
    return host


def test_nvidia_smi_table(driver, recorded):
    real = recorded("nvidia-smi/h100-mig-590-load.txt").splitlines()
    ours = driver.run("nvidia-smi").out.splitlines()
    assert {len(line) for line in ours[1:39]} == {91}
    for index in (1, 3, 4, 5, 6, 7, 11):
        assert ours[index] == real[index]
    assert ours[2].replace("580.95.05", "590.48.01").replace("13.0", "13.1") == real[2]
    columns = [match.start() for match in re.finditer(r"\|", real[8])]
    assert all([match.start() for match in re.finditer(r"\|", line)] == columns for line in ours[8:11])


def test_nvidia_smi_log_has_known_labels_in_the_known_order(driver, recorded):
    real = recorded("nvidia-smi-q/590-h200.txt")
    ours = driver.run("nvidia-smi", "-q", "-i", "0").out
    real_lines = [line.split(" :")[0].rstrip() for line in real.splitlines()]
    own_lines = [line.split(" :")[0].rstrip() for line in ours.splitlines() if line and not line.startswith("GPU 0000")]
    assert is_subsequence(own_lines, real_lines) is None
    columns = {line.index(" : ") for line in real.splitlines() if " : " in line}
    assert {line.index(" : ") for line in ours.splitlines() if " : " in line} == columns


def test_nvidia_smi_xml_and_text_agree(driver):
    document = ET.fromstring(driver.run("nvidia-smi", "-q", "-x").out)
    assert document.findtext("attached_gpus") == "8" == str(len(document.findall("gpu")))
    first = document.find("gpu")
    assert first.get("id") == "00000000:1B:00.0"
    assert first.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "16x"
    assert first.findtext("fabric/state") == "In Progress"
    assert first.findtext("uuid") in driver.run("nvidia-smi", "-L").out


def test_nvidia_smi_topology(driver, recorded):
    real = recorded("nvidia-smi-topo/h200-gcp-a3u-8gpu-8nic-tabs-ansi.txt")
    ours = driver.run("nvidia-smi", "topo", "-m").out
    assert ours.startswith("\t\x1b[4mGPU0\t") and "\tGPU NUMA ID\x1b[0m\n" in ours
    assert ours.split("\nLegend:")[1].split("NIC Legend")[0] == real.split("\nLegend:")[1].split("NIC Legend")[0]

    def excess(text: str) -> set[int]:
        """By how many tabs the rows exceed the heading, which has none for the third affinity column."""
        lines = text.splitlines()
        rows = [line for line in lines if re.match(r"(GPU|NIC)\d", line)]
        return {line.count("\t") - lines[0].count("\t") for line in rows}

    assert excess(ours) == excess(real)
    row = ours.splitlines()[1].split("\t")
    assert row[1] == " X " and row[2] == "NV18" and row[9] == "PIX"


def test_topology_follows_the_tree(make_host):
    host = make_host("a100_8x200g")
    host.lab("driver", "install", "--version", "580.95.05")
    row = host.run("nvidia-smi", "topo", "-m").out.splitlines()[1].split("\t")
    # GPU0 shares a second-level switch with NIC0; its pair's NIC is behind another one.
    assert row[2] == "NV12" and row[9:11] == ["PIX", "PXB"] and row[11] == "SYS"


def test_nvlink_status(driver, recorded):
    real = recorded("nvidia-smi-nvlink-s/h200-590.txt").splitlines()
    ours = driver.run("nvidia-smi", "nvlink", "-s").out.splitlines()
    assert ours[1:19] == real[1:19]


def test_query_gpu(driver):
    out = driver.run("nvidia-smi", "--query-gpu=index,pci.bus_id,memory.total", "--format=csv").out
    assert out.splitlines()[:2] == ["index, pci.bus_id, memory.total [MiB]", "0, 00000000:1B:00.0, 81559 MiB"]
    out = driver.run("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits").out
    assert out.splitlines() == ["81559"] * 8
    answer = driver.run("nvidia-smi", "--query-gpu=nonsense", "--format=csv")
    assert (answer.rc, answer.out) == (2, 'Field "nonsense" is not a valid field to query.\n\n')


def test_nccl_tests(driver, recorded):
    driver.lab("nccl", "install", "--version", "2.28.9")
    driver.change(lambda state: state["fabric_manager"].update(version="580.95.05", trained="580.95.05"))
    real = recorded("nccl-tests/gke-h200-2node-allgather-gib.txt").splitlines()
    ours = driver.run("all_reduce_perf", "-b", "1M", "-e", "8M", "-f", "2", "-g", "8").out.splitlines()
    for line in real:
        if line.startswith("#  ") and "Rank" not in line:
            assert line in ours, line
    row, own = (next(line for line in text if line.startswith("     1048576")) for text in (real, ours))
    assert [match.end() for match in re.finditer(r"\S+", own)] == [match.end() for match in re.finditer(r"\S+", row)]
    assert ours[-4].startswith("# Out of bounds values : 0 OK")
