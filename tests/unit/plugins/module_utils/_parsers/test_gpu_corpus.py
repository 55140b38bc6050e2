# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded outputs of GPU, PCI, log and benchmark tools: each one's facts, and every mutation of each.

An expectation is written by hand from the file; the index's own last column says in words what it is about.
"""

from __future__ import annotations

import importlib

import pytest
from mutations import NO_SHARED, check_all, corpus_files, corpus_rows, decode, shared_root

PARSERS = "ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers."
TOOLS = {
    "nvidia-smi": "nvidia_smi",
    "nvidia-smi-L": "nvidia_smi_list",
    "nvidia-smi-q": "nvidia_smi_q",
    "nvidia-smi-xml": "nvidia_smi_xml",
    "nvidia-smi-csv": "nvidia_smi_csv",
    "nvidia-smi-topo": "nvidia_smi_topo",
    "nvidia-smi-nvlink-s": "nvidia_smi_nvlink",
    "lspci": "lspci",
    "lspci-vv": "lspci",
    "dkms-status": "dkms_status",
    "dmesg": "dmesg",
    "nccl-tests": "nccl_tests",
    "nccl-info": "nccl_info",
    "perftest": "perftest",
    "iperf3": "iperf3",
    "apt-dpkg": "apt_output",
}
needs_shared = pytest.mark.skipif(shared_root() is None, reason=NO_SHARED)


def pick(mapping, *keys):
    return tuple(mapping.get(key) for key in keys)


def lost(value):
    return [pick(failure, "kind", "pci") for failure in value["failures"]]


def inactive(value):
    return {
        gpu["index"]: [link["link"] for link in gpu["links"] if not link["active"]]
        for gpu in value["gpus"]
        if any(not link["active"] for link in gpu["links"])
    }


def speeds(value):
    return [(len(gpu["links"]), {link.get("speed_gbytes_s") for link in gpu["links"]}) for gpu in value["gpus"]]


def nearest(value, distance):
    """GPU → the NICs at a distance."""
    return {
        name: [nic for nic, cell in row.items() if nic.startswith("NIC") and cell == distance]
        for name, row in value["links"].items()
        if name.startswith("GPU")
    }


def last_row(value):
    row = value["rows"][-1]
    return pick(row, "size_bytes", "out_of_place_busbw_gbytes_s", "in_place_busbw_gbytes_s")


def run(value):
    keys = ("average_busbw_gbytes_s", "out_of_bounds_count", "out_of_bounds_ok", "complete")
    return (len(value["rows"]), *pick(value, *keys))


def device(value):
    assert len(value["devices"]) == 1
    return value["devices"][0]


def link(value):
    keys = ("speed_gts", "width", "max_speed_gts", "max_width", "speed_downgraded", "width_downgraded")
    return pick(device(value)["link"], *keys)


def events(value, *keys):
    return [pick(event, "kind", "pci", *keys) for event in value["events"]]


def gbits(value):
    return pick(value, "sent_bits_per_second", "received_bits_per_second", "retransmits", "complete")


FLOAT_TABLE = ("redop", "root", "in_place_wrong")

EXPECTED = {
    "nvidia-smi/v100-8x-460-inforom-warning.txt": lambda v: (
        [gpu["pci"] for gpu in v["gpus"]] == [f"000{n}:00:00.0" for n in range(1, 9)]
        and {gpu["memory_total_mib"] for gpu in v["gpus"]} == {32510}
        and all(gpu["name_truncated"] for gpu in v["gpus"])
        and pick(v, "driver_version", "cuda_version") == ("460.32.03", "11.2")
        and [pick(w, "kind", "pci") for w in v["warnings"]] == [("inforom_corrupted", "0008:00:00.0")]
    ),
    "nvidia-smi/h100-mig-590-load.txt": lambda v: (
        pick(v["gpus"][0], "name", "pci", "mig", "memory_used_mib", "memory_total_mib", "power_w")
        == ("NVIDIA H100 80GB HBM3", "0000:00:09.0", True, 11125, 81559, 432.0)
        and "utilization_percent" not in v["gpus"][0]
        and [m["gpu_instance_id"] for m in v["mig_devices"]] == [2, 3, 9, 10]
        and [m["memory_total_mib"] for m in v["mig_devices"]] == [40448, 20096, 9984, 9984]
        and [(p["pid"], p["gpu_instance_id"]) for p in v["processes"]] == [(21180, 2), (21181, 2), (21198, 2)]
    ),
    "nvidia-smi/unknown-error-old-style.txt": lambda v: lost(v) == [("gpu_lost", "0000:0b:00.0")],
    "nvidia-smi/unknown-error-no-space.txt": lambda v: lost(v) == [("gpu_lost", "0000:07:00.0")],
    "nvidia-smi/unknown-error-odd-bus-id.txt": lambda v: lost(v) == [("gpu_lost", "000:ba:80.0")],
    "nvidia-smi/versions-between-smi-and-nvml.txt": lambda v: lost(v) == [("smi_library_mismatch", None)],
    "nvidia-smi-L/h100-mig.txt": lambda v: (
        len(v["gpus"]) == 1
        and [m["profile"] for m in v["gpus"][0]["mig_devices"]] == ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
        and v["gpus"][0]["mig_devices"][3]["uuid"] == "MIG-b2034221-bf98-62b0-c299-d531c4d76874"
    ),
    "nvidia-smi-nvlink-s/v100-8x-inactive-links.txt": lambda v: (
        inactive(v) == {3: [3, 5], 4: [1], 5: [0, 4], 6: [1]} and {count for count, _speeds in speeds(v)} == {6}
    ),
    "nvidia-smi-nvlink-s/a10-no-nvlink.txt": lambda v: v == {"gpus": [], "failures": [], "warnings": []},
    "nvidia-smi-nvlink-s/a100-8x-ok.txt": lambda v: speeds(v) == [(12, {25.0})] * 8,
    "nvidia-smi-nvlink-s/h200-590.txt": lambda v: speeds(v) == [(18, {26.562})],
    "nvidia-smi-q/560-single-gpu.txt": lambda v: (
        v["driver_version"] == "560.35.03"
        and [pick(g, "name", "pci", "persistence") for g in v["gpus"]] == [("NVIDIA TITAN V", "0000:01:00.0", False)]
        and {"fabric_state", "mig"} <= set(v["gpus"][0]["not_available"])
    ),
    "nvidia-smi-q/590-h200.txt": lambda v: (
        pick(v["gpus"][0], "name", "pci", "fabric_state", "fabric_status", "fabric_clique_id", "recovery_action")
        == ("NVIDIA H200", "0000:83:00.0", "Completed", "Success", 0, "None")
        and pick(v["gpus"][0], "memory_total_mib", "device_id") == (143771, "10de:2335")
        and v["gpus"][0]["ecc"]["uncorrected_aggregate"] == 0
    ),
    "nvidia-smi-csv/h100-mig-query-gpu-full.txt": lambda v: (
        len(v["columns"]) == 212
        and pick(v["gpus"][0], "name", "mig", "memory_used_mib", "power_w", "fabric_state", "recovery_action")
        == ("NVIDIA H100 80GB HBM3", True, 11125, 433.78, "Completed", "None")
        and pick(v["gpus"][0]["pcie"], "generation", "width") == (5, 16)
        and v["gpus"][0]["ecc"]["uncorrected_aggregate"] == 0
        and "utilization_percent" in v["gpus"][0]["not_available"]
    ),
    "nvidia-smi-csv/h100-mig-query-compute-apps.txt": lambda v: (
        [pick(p, "pid", "name", "used_mib", "pci") for p in v["processes"]]
        == [
            (21180, "/root/tools/memhog", 2296, "0000:00:09.0"),
            (21181, "/root/tools/memhog", 1272, "0000:00:09.0"),
            (21198, "./gpu_burn", 7484, "0000:00:09.0"),
        ]
    ),
    "nvidia-smi-csv/rtx4080s-query-gpu-consumer.txt": lambda v: (
        pick(v["gpus"][0], "name", "memory_used_mib") == ("NVIDIA GeForce RTX 4080 SUPER", 596)
        and pick(v["gpus"][0]["pcie"], "generation", "max_generation", "width") == (1, 4, 16)
        and {"mig", "ecc.enabled"} <= set(v["gpus"][0]["not_available"])
    ),
    "nvidia-smi-xml/tesla-t4-v11.txt": lambda v: (
        pick(v, "schema", "driver_version") == ("v11", "515.105.01")
        and pick(v["gpus"][0], "name", "pci") == ("Tesla T4", "0000:00:1e.0")
        and v["gpus"][0]["pcie"]["width"] == 8
        and [p["pid"] for p in v["gpus"][0]["processes"]] == [675, 5762]
    ),
    "nvidia-smi-xml/rtx-pro-6000-580.txt": lambda v: (
        pick(v["gpus"][0], "name", "pci", "temperature_c", "instant_power_w")
        == ("NVIDIA RTX PRO 6000 Blackwell", "0000:01:00.0", 37, 66.84)
    ),
    "nvidia-smi-topo/h200-gcp-a3u-8gpu-8nic-tabs-ansi.txt": lambda v: (
        v["links"]["GPU0"]["GPU7"] == "NV18"
        and nearest(v, "PIX") == {f"GPU{n}": [f"NIC{2 * (n // 2)}", f"NIC{2 * (n // 2) + 1}"] for n in range(8)}
        and v["gpu_nic"]["7"]["rocep206s0"] == "PIX"
        and [g["cpu_affinity"] for g in v["gpus"]] == ["0-55,112-167"] * 4 + ["56-111,168-223"] * 4
        and [g["numa_nodes"] for g in v["gpus"]] == [[0]] * 4 + [[1]] * 4
        and not any("gpu_numa_id" in g for g in v["gpus"])
    ),
    "nvidia-smi-topo/h200-single.txt": lambda v: (
        v["devices"] == ["GPU0"] and pick(v["gpus"][0], "cpu_affinity", "numa_nodes") == ("0-23", [0])
    ),
    "nvidia-smi-topo/windows-topo-m.txt": lambda v: v["gpus"] == [{"name": "GPU0", "index": 0}],
    "nvidia-smi-topo/gb200-4gpu-6nic-multi-numa.txt": lambda v: (
        {v["links"]["GPU0"][f"GPU{n}"] for n in (1, 2, 3)} == {"NV18"}
        and [g.get("gpu_numa_id") for g in v["gpus"]] == [2, 10, 18, None]
        and [g.get("cpu_affinity") for g in v["gpus"]] == ["0-71", "0-71", "72-143", None]
        and v["gpus"][2]["numa_affinity"] == "1,19-25,27-33"
        and nearest(v, "SYS")["GPU2"] == [f"NIC{n}" for n in range(6)]
    ),
    "nvidia-smi-topo/dgx-a100-8gpu-12nic-pxb.txt": lambda v: (
        nearest(v, "PXB")
        == {"GPU0": ["NIC0", "NIC1"], "GPU1": ["NIC0", "NIC1"], "GPU2": ["NIC2", "NIC3"], "GPU3": ["NIC2", "NIC3"]}
        and [g.get("numa_nodes") for g in v["gpus"]] == [[3], [3], [1], [1], None, None, None, None]
        and v["links"]["GPU0"]["GPU7"] == "NV12"
    ),
    "nvidia-smi-topo/rtx4090-8gpu-all-sys-one-phb.txt": lambda v: (
        nearest(v, "PHB") == {**{f"GPU{n}": [] for n in range(8)}, "GPU6": ["NIC0", "NIC1"]}
        and v["links"]["GPU0"]["GPU1"] == "SYS"
        and v["links"]["NIC0"]["NIC1"] == "PIX"
    ),
    "nvidia-smi-topo/two-gpu-phb-no-numa.txt": lambda v: (
        v["links"] == {"GPU0": {"GPU0": "X", "GPU1": "PHB"}, "GPU1": {"GPU0": "PHB", "GPU1": "X"}}
        and [g["cpu_affinity"] for g in v["gpus"]] == ["0-7", "0-7"]
        and not any("numa_nodes" in g for g in v["gpus"])
    ),
    "nvidia-smi-topo/a800-nv8-9nic-odd-even-numa.txt": lambda v: (
        nearest(v, "PIX") == {f"GPU{n}": [f"NIC{nic}"] for n, nic in enumerate((2, 4, 6, 8, 1, 3, 5))}
        and v["links"]["GPU0"]["GPU1"] == "NV8"
    ),
    "nccl-info/2node-xe8640-h100-IBext-sharp-v218.txt": lambda v: (
        pick(v, "nccl_version", "nccl_cuda_version", "cuda_driver_version") == ("2.18.5", "12.2", 12020)
        and [d["name"] for d in v["net_ib"][0]["devices"]] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
        and all(d["sharp"] and d["link_layer"] == "IB" for d in v["net_ib"][0]["devices"])
        and pick(v["net_ib"][0], "relaxed_ordering", "oob_netdev") == (True, "eno8403")
        and v["networks"] == [{"host": "gp8640node05", "network": "IBext"}]
        and {c["gpudirect"] for c in v["channels"] if c["transport"] == "NET/IBext"} == {True}
        and v["bootstrap"] == [{"host": "gp8640node05", "netdev": "eno8403", "address": "100.82.167.243"}]
    ),
    "nccl-info/status12-ipv6-gids.txt": lambda v: (
        pick(v["warns"][0], "kind", "status", "vendor_error", "local_gid", "remote_gid", "peer")
        == (
            "completion_error",
            12,
            129,
            "fd00:2248:9000:6000:4:200:3:ff22",
            "fd00:2248:9000:6000:4:200:3:ff1f",
            "10.216.210.236",
        )
    ),
    "nccl-info/old-format-error5-vendor249.txt": lambda v: (
        [pick(w, "kind", "status", "vendor_error") for w in v["warns"]] == [("completion_error", 5, 249)]
    ),
    "nccl-info/nvls-cuda-failure-1-timestamped.txt": lambda v: (
        [pick(w, "kind", "code", "rank_gpu") for w in v["warns"]] == [("nvls", 1, 2), ("nvls", 1, 1)]
    ),
    "nccl-info/nvls-old-without-number.txt": lambda v: (
        [pick(w, "host", "kind", "reason") for w in v["warns"]] == [("node23", "nvls", "invalid argument")]
    ),
    "nccl-tests/sb-a100-allreduce.txt": lambda v: (
        run(v) == (34, 68.4048, 0, True, True)
        and last_row(v) == (8589934592, 235.26, 235.03)
        and v["ranks"] == 8
        and {d["name"] for d in v["devices"]} == {"A100-SXM4-40GB"}
        and "out_of_place_wrong" not in v["rows"][-1]
    ),
    "nccl-tests/sb-a100-alltoall.txt": lambda v: (
        run(v)[1] == 58.6481 and last_row(v) == (8589934592, 224.31, 226.16) and "redop" not in v["rows"][0]
    ),
    "nccl-tests/gke-h200-2node-allgather-gib.txt": lambda v: (
        run(v) == (24, 15.0709, 0, True, True)
        and last_row(v) == (8589934592, 32.20, 33.32)
        and pick(v["rows"][0], *FLOAT_TABLE) == ("none", -1, 0)
        and [d["pci"] for d in v["devices"]] == ["0000:cc:00.0", "0000:c4:00.0"]
        and pick(v, "nccl_version", "cuda_version", "ranks") == ("2.25.1", "12.8", 2)
    ),
    "nccl-tests/gcm-a100-8rank-mpi-success.txt": lambda v: (
        run(v) == (6, 210.99, 0, True, True) and last_row(v) == (1073741824, 231.72, 231.70) and v["ranks"] == 8
    ),
    "nccl-tests/a6000-single-gpu-validation.txt": lambda v: (
        v["ranks"] == 1 and len(v["rows"]) == 3 and v["config"]["validation"] is True and not v["complete"]
    ),
    "nccl-tests/new-format-iters-column-ok.txt": lambda v: (
        run(v) == (1, 0.0, 0, True, True) and pick(v["rows"][0], "in_place_busbw_gbytes_s", "iterations") == (0.0, 20)
    ),
    "nccl-tests/new-format-out-of-bounds-2-failed.txt": lambda v: (
        run(v) == (1, 0.0, 2, False, True)
        and pick(v["rows"][0], "out_of_place_wrong", "in_place_wrong", "iterations") == (1, 1, 20)
        and v["errors"] == [".. testhost pid 12345: Test failure common.cu:1127"]
    ),
    "nccl-tests/gb200-nvl72-one-rack-tail.txt": lambda v: (
        run(v) == (5, 745.53, 0, True, True) and last_row(v) == (8589934592, 834.57, 846.82) and v["ranks"] == 72
    ),
    "nccl-tests/gb200-20-racks-1440-ranks-tail.txt": lambda v: (
        run(v)[1] == 297.808 and last_row(v) == (17179869184, 405.74, 404.77) and v["ranks"] == 1440
    ),
    "perftest/gke-cx7-write-bw-completion-error.txt": lambda v: (
        v["settings"]["device"] == "mlx5_3"
        and pick(v["rows"][-1], "size_bytes", "bw_average_gbps") == (65536, 381.41)
        and pick(v["errors"][1], "kind", "status", "syndrome") == ("completion", 10, "0x88")
        and not v["complete"]
    ),
    "perftest/gke-h200-write-bw-cuda-dmabuf.txt": lambda v: (
        pick(v, "gpu_memory", "test", "complete") == ("dmabuf", "RDMA_Write BW Test", True)
        and pick(v["rows"][-1], "size_bytes", "bw_average_gbps") == (8388608, 140.40)
    ),
    "perftest/sb-loopback-interleaved-server-client.txt": lambda v: (
        v["settings"]["device"] == "ib0"
        and pick(v["rows"][-1], "size_bytes", "bw_average_mib_s") == (8388608, 23240.68)
    ),
    "perftest/oci-4qp-rdmacm-tabs.txt": lambda v: (
        pick(v["settings"], "device", "number_of_qps", "rdma_cm", "tos") == ("mlx5_5", 4, True, 41)
        and [len(v[side]) for side in ("local", "remote")] == [4, 4]
        and v["local"][0]["ipv4"] == "10.224.4.233"
        and pick(v["rows"][0], "size_bytes", "iterations", "bw_average_gbps", "msg_rate_mpps")
        == (65536, 20000, 98.01, 0.186932)
    ),
    "perftest/rocm-bidir-write-bw-200g.txt": lambda v: (
        pick(v, "bidirectional", "complete") == (True, True)
        and v["settings"]["ibv_wr_api"] is False
        and pick(v["rows"][-1], "size_bytes", "bw_average_gbps") == (8388608, 204.59)
    ),
    "perftest/rxe-cpu-frequency-warning-inside-table.txt": lambda v: (
        pick(v["rows"][0], "size_bytes", "bw_average_mib_s", "bw_average_gbps") == (65536, 110.28, 0.925096)
        and len(v["warnings"]) == 1
    ),
    "perftest/roce-pod-read-lat-tabs-between-values.txt": lambda v: (
        pick(v["rows"][0], "size_bytes", "t_avg_us", "t_p99_us", "t_p999_us") == (2, 1.97, 2.24, 12.20)
    ),
    "dmesg/xid-119-gsp-timeout.txt": lambda v: (
        {pick(e, "pci", "code", "name") for e in v["events"] if e["kind"] == "xid"}
        == {("0000:9b:00.0", 119, "GSP RPC timeout")}
    ),
    "dmesg/xid-31-48-dmesg-T.txt": lambda v: (
        events(v, "code", "pid") == [("xid", "000d:00:00.0", 31, 3234), ("xid", "000d:00:00.0", 48, 3234)]
    ),
    "dmesg/gb200-xid-149-154-nvlink5.txt": lambda v: (
        {e["pci"] for e in v["events"] if e["code"] == 149} == {"0008:01:00.0", "0009:01:00.0"}
        and [e["recovery_to"] for e in v["events"] if e["code"] == 154]
        == ["Drain and Reset"] + ["GPU Reset Required"] * 3
    ),
    "dmesg/fallen-off-bus-multiline-no-xid.txt": lambda v: (
        [e["kind"] for e in v["events"]] == ["gpu_lost", "gpu_probe_failed", "nvrm_loaded"]
        and v["events"][0]["pci"] == "0000:b3:00.0"
        and pick(v["events"][2], "version", "flavour") == ("570.158.01", "open")
    ),
    "dmesg/peermem-invalid-context.txt": lambda v: [e["kind"] for e in v["events"]] == ["peermem_error"] * 7,
    "dmesg/mlx5-insufficient-power-27w.txt": lambda v: (
        events(v, "power_w") == [("mlx5_power", "0000:5c:00.0", 27)] and v["events"][0]["severity"] == "warning"
    ),
    "dmesg/mlx5-access-reg-failed.txt": lambda v: (
        events(v, "command", "opcode", "status")
        == [("mlx5_command_failed", "0000:d2:00.0", "ACCESS_REG", "0x805", None)]
    ),
    "dmesg/mlx5-access-reg-status-syndrome.txt": lambda v: (
        events(v, "status", "reason", "syndrome", "errno")
        == [
            ("mlx5_module", "0000:5c:00.0", "Cable error", "High Temperature", None, None),
            ("mlx5_command_failed", "0000:d2:00.0", "bad operation", None, "0x305684", -22),
        ]
    ),
    "dmesg/mlx5-link-init-active-boot.txt": lambda v: (
        events(v, "device", "state", "severity")
        == [
            ("mlx5_link", "0000:ab:00.0", "mlx5_5", "init", "info"),
            ("mlx5_link", "0000:ab:00.0", "mlx5_5", "active", "info"),
        ]
    ),
    "dmesg/mlx5-netdev-watchdog-and-power.txt": lambda v: events(v, "power_w") == [("mlx5_power", "0000:01:00.0", 27)],
    "dmesg/fabricmanager-log-multicast.txt": lambda v: (
        v["events"] == []
        and v["fabric_manager"]["errors"] == []
        and {"team setup", "team release"} == {r["kind"] for r in v["fabric_manager"]["requests"]}
        and {r["gpus"] for r in v["fabric_manager"]["requests"] if "gpus" in r} == {8}
    ),
    "dkms-status/mixed-added-and-installed.txt": lambda v: (
        [pick(m, "module", "version", "kernel", "status") for m in v["modules"]]
        == [
            ("rtl8812au", "5.13.6-23", None, "added"),
            ("virtualbox", "7.0.16", "6.17.0-19-generic", "installed"),
            ("virtualbox", "7.0.16", "6.17.0-20-generic", "installed"),
        ]
    ),
    "apt-dpkg/dkms-autoinstall-fails-kernel-postinst.txt": lambda v: (
        v["dkms_failures"] == [{"module": "rtl88x2bu", "kernel": "6.17.0-14-generic", "code": 10}]
        and [pick(e, "kind", "code") for e in v["errors"]] == [("dkms", None), ("dpkg_package", 11), ("dpkg", 1)]
        and "linux-image-6.17.0-14-generic" in v["failed_packages"]
    ),
    "iperf3/text-tcp-single.txt": lambda v: gbits(v) == (10.5e9, 10.5e9, 19, True),
    "iperf3/json-tcp-single.txt": lambda v: (
        gbits(v) == (10364702166.051445, 10331694813.193239, 19, True)
        and pick(v, "protocol", "streams", "cpu_host_percent", "congestion_control")
        == ("TCP", 1, 44.330326370365931, "bbr")
    ),
    "iperf3/text-tcp-4-streams.txt": lambda v: (
        gbits(v) == (10.9e9, 10.9e9, 12, True) and len(v["connections"]) == 4 and len(v["streams_ended"]) == 8
    ),
    "iperf3/text-udp.txt": lambda v: (
        gbits(v) == (99.6e6, 98.3e6, None, True)
        and pick(v, "protocol", "jitter_ms", "lost_packets", "packets", "lost_percent") == ("UDP", 0.052, 8, 763, 1.0)
    ),
    "iperf3/json-udp.txt": lambda v: (
        pick(v, "protocol", "bits_per_second", "packets", "lost_packets", "complete")
        == ("UDP", 99888369.621563, 763, 0, True)
    ),
    "iperf3/json-error-server-busy-rc0.txt": lambda v: (
        pick(v, "error", "complete") == ("the server is busy running a test. try again later", False)
    ),
    "iperf3/json-error-mid-run-partial-intervals.txt": lambda v: (
        pick(v, "error", "complete") == ("control socket has closed unexpectedly", False)
        and len(v["intervals"]) == 2
        and "received_bits_per_second" not in v
    ),
    "iperf3/text-error-busy.txt": lambda v: (
        pick(v, "error", "complete") == ("the server is busy running a test. try again later", False)
    ),
    "iperf3/json-3.0.11-older-layout.txt": lambda v: (
        gbits(v) == (9.35992e8, 9.34268e8, 0, True) and pick(v, "version", "duration_s") == ("3.0.11", 13)
    ),
    "lspci-vv/cx7-hhhl-gen5-x16-ok.txt": lambda v: (
        link(v) == (32.0, 16, 32.0, 16, False, False)
        and pick(device(v), "max_payload_bytes", "max_payload_supported_bytes", "max_read_request_bytes", "numa_node")
        == (256, 512, 4096, 0)
        and device(v)["vpd"]["part_number"] == "MCX75310AAS-NEAT"
        and device(v)["aer"]["uncorrectable"] == []
        and device(v)["driver"] == "mlx5_core"
    ),
    "lspci-vv/h100-sxm-gpu-gen5.txt": lambda v: (
        link(v)[:2] == (32.0, 16)
        and pick(device(v), "errors_detected", "max_read_request_bytes") == (["CorrErr"], 4096)
    ),
    "lspci-vv/pex890xx-downstream-acs-off.txt": lambda v: (
        device(v)["acs"]["control"] == []
        and "ReqRedir" in device(v)["acs"]["capabilities"]
        and pick(device(v), "port_type", "driver") == ("Downstream Port", "pcieport")
        and link(v)[:2] == (32.0, 16)
    ),
    "lspci-vv/intel-root-port-acs-srcvalid.txt": lambda v: (
        device(v)["acs"]["control"] == ["SrcValid"] and link(v) == (5.0, 1, 8.0, 1, True, False)
    ),
    "lspci-vv/bcm5720-width-x1-downgraded.txt": lambda v: link(v) == (5.0, 1, 5.0, 2, False, True),
    "lspci-vv/acsctl-grep-redirect-on.txt": lambda v: (
        [d["acs"]["control"] for d in v["unattributed"]] == [["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]]
    ),
    "lspci-vv/acscap-vs-acsctl-and-aer.txt": lambda v: (
        [(d["acs"]["capable"], d["acs"]["control"]) for d in v["unattributed"]] == [(True, [])]
    ),
    "lspci/a100-azure-vm-nn.txt": lambda v: (
        [
            sum((d["vendor"], d["device"]) == ids for d in v["devices"])
            for ids in (("10de", "20b2"), ("10de", "1af1"), ("15b3", "101c"), ("15b3", "1016"))
        ]
        == [8, 6, 8, 1]
        and v["devices"][0]["pci"] == "0001:00:00.0"
        and [d["pci"] for d in v["devices"] if d["device"] == "1016"] == ["c941:00:02.0"]
        and {d["class"] for d in v["devices"] if d["device"] == "101c"} == {"0207"}
    ),
}


def read(name):
    root = shared_root()
    assert root is not None
    return (root / "corpus" / name).read_bytes()


def parser(name):
    return importlib.import_module(PARSERS + TOOLS[name.split("/")[0]]).parse


@needs_shared
def test_every_recording_has_an_expectation():
    missing = [path for path, _facts in corpus_rows(*TOOLS) if path not in EXPECTED]
    assert missing == [], "rows of the index without an expectation"


@needs_shared
@pytest.mark.parametrize(("name", "facts"), corpus_rows(*TOOLS), ids=lambda cell: cell if "/" in cell else "")
def test_facts(name, facts):
    value, problems = parser(name)(decode(read(name)))
    assert EXPECTED[name](value), f"{facts}\n{value}\n{problems}"


@needs_shared
@pytest.mark.parametrize("path", corpus_files(*TOOLS), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_mutations(path):
    raw = path.read_bytes()
    parse = parser(f"{path.parent.name}/{path.name}")
    # Long recordings repeat themselves: every class of offsets is met in fewer cuts.
    check_all(parse, raw, step=7 if len(raw) < 4000 else 7 * 11)
