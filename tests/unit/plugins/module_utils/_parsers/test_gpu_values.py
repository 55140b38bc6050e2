# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that the parsers of host outputs find in the project's own recordings."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PARSERS = "ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers."
FIXTURES = Path(__file__).parent / "fixtures"


def read(module, name, **options):
    text = (FIXTURES / module / name).read_text(encoding="utf-8")
    return parse(module, text, **options)


def parse(module, text, function="parse", **options):
    return getattr(importlib.import_module(PARSERS + module), function)(text, **options)


def pick(mapping, *keys):
    return tuple(mapping.get(key) for key in keys)


FAILURES = (
    ("Failed to initialize NVML: Driver/library version mismatch\n", "driver_library_mismatch"),
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.\n",
        "driver_not_loaded",
    ),
    ("No devices were found\n", "no_devices"),
    ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", "library_not_found"),
    ("Failed to initialize NVML: Insufficient Permissions\n", "insufficient_permissions"),
    ("Failed to initialize NVML: Unknown Error\n", "initialize_failed"),
    ("Failed to initialize NVML: GPU access blocked by the operating system\n", "blocked_by_operating_system"),
    ("bash: nvidia-smi: command not found\n", "command_not_found"),
    ('Field "gpu.nonsense" is not a valid field to query.\n', "invalid_option"),
    ("Mismatch in versions between nvidia-smi and NVML. \n", "smi_library_mismatch"),
)


@pytest.mark.parametrize(("text", "kind"), FAILURES, ids=[kind for _text, kind in FAILURES])
@pytest.mark.parametrize(
    "module", ["nvidia_smi", "nvidia_smi_q", "nvidia_smi_xml", "nvidia_smi_csv", "nvidia_smi_list", "nvidia_smi_topo"]
)
def test_every_form_says_how_nvidia_smi_failed(module, text, kind):
    value, problems = parse(module, text)
    assert [failure["kind"] for failure in value["failures"]] == [kind]
    assert value["failures"][0]["text"] == text.strip()
    assert problems == ()


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU 0000:CA:00.0: Unknown Error",
        "Unable to determine the device handle for GPU0000:CA:00.0: Unknown Error",
        "Unable to determine the device handle for GPU2: 0000:CA:00.0: Unknown Error",
        "Unable to determine the device handle for gpu 00000000:CA:00.0: GPU is lost.  Reboot the system to recover "
        "this GPU",
    ],
)
def test_a_lost_gpu_is_named(line):
    failure = parse("nvidia_smi", line + "\n").value["failures"][0]
    assert pick(failure, "kind", "pci") == ("gpu_lost", "0000:ca:00.0")


def test_a_cut_failure_is_no_other_failure():
    value, problems = parse("nvidia_smi", "Failed to initialize NVML: Driver/library ver")
    assert value["failures"] == [] and problems


def test_library_version_of_a_mismatch():
    assert read("nvidia_smi", "library-mismatch.txt").value["failures"][0]["library_version"] == "550.127"
    cut = parse("nvidia_smi", "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.1")
    assert "library_version" not in cut.value["failures"][0] and cut.problems


def test_table_of_an_old_driver_with_a_sick_gpu():
    value, problems = read("nvidia_smi", "375-lost-gpu.txt")
    good, sick = value["gpus"]
    assert pick(good, "pci", "ecc_uncorrected_volatile", "utilization_percent", "compute_mode", "power_w") == (
        "0000:06:00.0",
        3,
        17,
        "E. Process",
        31.0,
    )
    assert "mig" not in good and "temperature_c" not in sick
    assert {"name", "temperature_c", "power_w", "utilization_percent"} <= set(sick["unreadable"])
    assert value["processes"] == [
        {"gpu": 0, "pid": 4242, "type": "C", "name": "python train.py --lr 3", "used_mib": 512}
    ]
    assert any("ERR!" in problem.reason for problem in problems)


def test_table_of_a_new_driver():
    value, problems = read("nvidia_smi", "580-two-gpus.txt")
    assert [pick(gpu, "index", "pci", "mig", "persistence", "memory_total_mib") for gpu in value["gpus"]] == [
        (0, "0000:1b:00.0", False, True, 81559),
        (1, "0000:c3:00.0", False, True, 81559),
    ]
    assert pick(value, "smi_version", "driver_version", "cuda_version") == ("580.95.05", "580.95.05", "13.0")
    assert problems == () and value["processes"] == []


def test_table_that_ends_between_two_gpus_says_so():
    text = (FIXTURES / "nvidia_smi" / "580-two-gpus.txt").read_text(encoding="utf-8")
    value, problems = parse("nvidia_smi", "\n".join(text.split("\n")[:12]) + "\n")
    assert len(value["gpus"]) == 1
    assert any("GPUs may be missing" in problem.reason for problem in problems)


def test_query_with_mig_ecc_and_a_lost_gpu():
    value, problems = read("nvidia_smi_q", "550-mig-and-process.txt")
    first, second = value["gpus"]
    assert first["ecc"] == {
        "enabled": True, "sram_threshold_exceeded": True,
        "corrected_volatile": 7, "uncorrected_volatile": 4, "corrected_aggregate": 2, "uncorrected_aggregate": 10,
    }  # fmt: skip
    assert first["mig_devices"] == [
        {"index": 0, "gpu_instance_id": 1, "compute_instance_id": 0, "memory_total_mib": 40448}
    ]
    assert first["processes"] == [
        {"pid": 4242, "gpu_instance_id": 1, "compute_instance_id": 0, "type": "C", "name": "python", "used_mib": 300}
    ]
    assert first["clock_events"] == ["sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"]
    assert pick(first, "fabric_state", "memory_total_mib") == ("In Progress", 81559)
    assert first["fabric_health"] == {"bandwidth": "Degraded"}
    assert pick(first["pcie"], "max_generation", "generation", "width") == (5, 4, 8)
    assert "persistence" not in second and "memory_total_mib" not in second
    assert [problem.text.split(":")[0].strip() for problem in problems] == ["Persistence Mode", "Total"]


def test_a_fragment_of_query_belongs_to_a_gpu_without_a_name():
    value, problems = parse("nvidia_smi_q", "    Fabric\n        State                             : Completed\n")
    assert value["gpus"] == [{"fabric_state": "Completed"}] and problems


def test_xml_sums_ecc_and_reports_what_the_driver_could_not_read():
    value, problems = read("nvidia_smi_xml", "v12-h100.xml")
    gpu = value["gpus"][0]
    assert pick(gpu, "pci", "persistence", "mig", "fabric_state", "clock_events") == (
        "0000:8f:00.0",
        True,
        False,
        "Completed",
        ["idle"],
    )
    assert gpu["ecc"] == {"corrected_volatile": 0, "uncorrected_volatile": 3}
    assert "memory_used_mib" not in gpu and ["ERR!" in problem.reason for problem in problems] == [True]
    assert gpu["processes"] == [{"pid": 777, "type": "C", "name": "python", "used_mib": 1024}]


def test_xml_with_entities_is_refused():
    bomb = '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa">]><nvidia_smi_log>&a;</nvidia_smi_log>'
    value, problems = parse("nvidia_smi_xml", bomb)
    assert value["gpus"] == [] and "entities" in problems[0].reason


def test_csv_of_any_columns():
    value, problems = read("nvidia_smi_csv", "mixed-columns.csv")
    first, second = value["gpus"]
    assert pick(first, "index", "pci", "memory_total_mib", "utilization_percent", "power_w", "persistence") == (
        0,
        "0000:1b:00.0",
        81559,
        12,
        98.5,
        True,
    )
    assert first["ecc"] == {"uncorrected_volatile": 0} and second["persistence"] is False
    assert set(second["not_available"]) == {"utilization_percent", "ecc.uncorrected_volatile"}
    assert "power_w" not in second and "Unknown Error" in problems[0].reason


def test_csv_of_processes_on_an_idle_machine_is_a_header_alone():
    value, problems = parse("nvidia_smi_csv", "pid, process_name, gpu_uuid, used_gpu_memory [MiB]\n")
    assert value["processes"] == [] and problems == ()
    # A machine that is asked for its GPUs has some to show.
    assert parse("nvidia_smi_csv", "index, name\n").problems


def test_csv_without_units_and_without_a_header():
    assert pick(read("nvidia_smi_csv", "nounits.csv").value["gpus"][0], "memory_total_mib", "power_w") == (81559, 98.5)
    row = "0, 00000000:1B:00.0, 81559\n"
    told = parse("nvidia_smi_csv", row, columns=["index", "pci.bus_id", "memory.total"])
    assert told.value["gpus"] == [{"index": 0, "pci": "0000:1b:00.0", "memory_total_mib": 81559}] and not told.problems
    guessed = parse("nvidia_smi_csv", row)
    assert guessed.value["gpus"][0]["pci"] == "0000:1b:00.0" and "memory_total_mib" not in guessed.value["gpus"][0]
    assert "no header" in guessed.problems[0].reason


def test_topology_matrix():
    value, problems = read("nvidia_smi_topo", "tabs-ansi.txt")
    assert value["gpu_nic"] == {"0": {"mlx5_4": "PIX", "mlx5_11": "SYS"}, "1": {"mlx5_4": "SYS", "mlx5_11": "PXB"}}
    assert [pick(gpu, "cpu_affinity", "numa_nodes") for gpu in value["gpus"]] == [("0-31", [0]), ("32-63", [1])]
    assert problems == ()


def test_topology_matrix_of_an_old_driver():
    value, problems = read("nvidia_smi_topo", "old-soc.txt")
    assert value["gpu_nic"]["0"] == {"mlx5_0": "PIX", "mlx5_1": "SOC"} and value["links"]["GPU0"]["GPU1"] == "PHB"
    assert problems == ()


def test_a_row_under_the_wrong_columns_is_not_read():
    value, problems = parse("nvidia_smi_topo", "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tNV4\t X \t0-3\nGPU1\tNV4\t X \t0-3\n")
    assert "GPU0" not in value["links"] and any("shifted" in problem.reason for problem in problems)


def test_nvlink():
    value = read("nvidia_smi_nvlink", "one-inactive.txt").value
    assert value["gpus"][0]["links"] == [
        {"link": 0, "active": True, "speed_gbytes_s": 26.562}, {"link": 1, "active": False},
    ]  # fmt: skip
    assert "inActive" in value["gpus"][1]["note"] and value["gpus"][1]["links"] == []


def test_any_form_of_nvidia_smi():
    forms = {
        "table": ("nvidia_smi", "580-two-gpus.txt"),
        "query": ("nvidia_smi_q", "550-mig-and-process.txt"),
        "xml": ("nvidia_smi_xml", "v12-h100.xml"),
        "csv": ("nvidia_smi_csv", "mixed-columns.csv"),
        "list": ("nvidia_smi_list", "two-gpus.txt"),
        "none": ("nvidia_smi", "library-mismatch.txt"),
    }
    for form, (folder, name) in forms.items():
        value = parse("nvidia_smi_any", (FIXTURES / folder / name).read_text(encoding="utf-8")).value
        assert value["form"] == form, name
        assert bool(value["gpus"]) == (form != "none")
    value = parse("nvidia_smi_any", (FIXTURES / "nvidia_smi_q" / "550-mig-and-process.txt").read_text()).value
    assert value["processes"][0]["pci"] == "0000:1b:00.0" and "processes" not in value["gpus"][0]


def test_lspci():
    gpu, nic = read("lspci", "nnk-domains.txt").value["devices"]
    assert pick(gpu, "vendor", "device", "class", "driver", "subsystem_device") == (
        "10de",
        "2330",
        "0302",
        "nvidia",
        "16c1",
    )
    assert pick(nic, "pci", "gone", "revision") == ("10000:01:00.1", True, "ff")
    bridge = read("lspci", "vvv-bridge.txt").value["devices"][0]
    assert bridge["link"] == {
        "max_speed_gts": 32.0, "max_width": 16, "speed_gts": 16.0, "width": 8,
        "speed_downgraded": True, "width_downgraded": True,
    }  # fmt: skip
    assert bridge["acs"]["control"] == ["SrcValid", "ReqRedir", "CmpltRedir"]
    assert pick(bridge, "numa_node", "iommu_group", "port_type", "max_read_request_bytes", "max_payload_bytes") == (
        1,
        42,
        "Downstream Port",
        2048,
        512,
    )
    assert bridge["bus"] == {"primary": "15", "secondary": "18", "subordinate": "1a"} and bridge["relaxed_ordering"]


def test_dkms():
    modules = read("dkms_status", "old-and-new.txt").value["modules"]
    assert [pick(m, "module", "version", "kernel", "status") for m in modules] == [
        ("nvidia", "535.183.01", "5.15.0-105-generic", "installed"),
        ("mlnx-ofed-kernel", "24.10", "5.15.0-105-generic", "installed"),
        ("nvidia", "550.54.15", "5.15.0-106-generic", "built"),
        ("kernel-mft-dkms", "4.30.0", None, "added"),
    ]
    assert modules[1]["original_module"] and "WARNING" in modules[2]["warning"]


def test_kernel_log():
    events = read("dmesg", "mixed.txt").value["events"]
    found = [pick(event, "kind", "pci", "severity") for event in events]
    assert found == [
        ("mlx5_pcie_bandwidth", "0000:18:00.0", "warning"),
        ("mlx5_pcie_bandwidth", "0000:19:00.0", "info"),
        ("mlx5_firmware", "0000:18:00.0", "info"),
        ("mlx5_link", "0000:18:00.0", "warning"),
        ("mlx5_module", "0000:18:00.0", "warning"),
        ("mlx5_firmware_error", "0000:40:00.0", "error"),
        ("aer", "0000:15:01.0", "warning"),
        ("aer", "0000:18:00.0", "error"),
        ("nvrm_version_mismatch", None, "error"),
        ("sxid", "0000:05:00.0", "warning"),
        ("xid", "0000:8f:00.0", "error"),
        ("symbol_error", None, "error"),
        ("symbol_error", None, "error"),
        ("nouveau_bound", "0000:8f:00.0", "warning"),
        ("key_rejected", None, "error"),
    ]
    assert pick(events[0], "available_gbps", "capable_gbps", "limited_at") == (126.016, 252.048, "0000:15:01.0")
    assert pick(events[8], "client_version", "module_version") == ("535.183.01", "535.161.08")
    assert pick(events[9], "code", "fatal", "link") == (12028, False, 32)
    assert pick(events[10], "code", "action") == (79, "reboot")
    assert pick(events[12], "module", "symbol", "errno") == ("nvidia_peermem", "ib_register_peer_memory_client", -22)


def test_fabric_manager_journal():
    value = read("fabricmanager_log", "journal-mismatch.txt").value
    assert pick(value["mismatch"], "fabric_manager_version", "driver_version") == ("570.86.15", "570.124.06")
    assert len(value["errors"]) == 2


def test_nccl_tests_with_iteration_columns():
    value, problems = read("nccl_tests", "220-i-columns.txt")
    first, second = value["rows"]
    assert pick(first, "out_of_place_busbw_gbytes_s", "in_place_busbw_gbytes_s", "in_place_iteration_p99_us") == (
        49.93,
        51.15,
        21.0,
    )
    assert second["out_of_place_time_us"] == 31.0 and "in_place_wrong" not in second
    assert pick(value, "out_of_bounds_count", "out_of_bounds_ok", "average_busbw_gbytes_s", "average_ok") == (
        1,
        False,
        59.3725,
        False,
    )
    assert pick(value, "collective", "nccl_tests_version", "ranks") == ("all_reduce", "2.19.6", 2)
    assert pick(value["config"], "gpus_per_thread", "warmup_iterations", "iterations", "step") == (
        2,
        1,
        20,
        "2(factor)",
    )
    assert problems == ()


def test_nccl_tests_json():
    value, problems = read("nccl_tests", "json-v2.json")
    assert pick(value["rows"][0], "size_bytes", "root", "out_of_place_busbw_gbytes_s", "in_place_wrong") == (
        8,
        -1,
        2.25,
        0,
    )
    assert "in_place_busbw_gbytes_s" not in value["rows"][0] and "average_ok" not in value
    assert pick(value, "nccl_version", "average_busbw_gbytes_s", "complete") == ("2.28.9", 2.25, True)
    assert value["devices"][0]["pci"] == "0000:1b:00.0" and problems == ()


def test_an_average_that_may_be_cut_is_not_one():
    value, problems = parse("nccl_tests", "# Avg bus bandwidth    : 37")
    assert "average_busbw_gbytes_s" not in value and problems


def test_several_runs_in_one_text_are_told():
    value, problems = parse("nccl_tests", "# Avg bus bandwidth    : 10.5 \n# Avg bus bandwidth    : 11.5 \n")
    assert [summary["average_busbw_gbytes_s"] for summary in value["summaries"]] == [10.5, 11.5]
    assert any("2 runs" in problem.reason for problem in problems)


def test_nccl_log_of_two_hosts():
    value, problems = read("nccl_info", "two-hosts.txt")
    assert pick(value, "nccl_version", "nccl_cuda_version", "hosts") == ("2.28.9", "12.9", ["node01", "node02"])
    assert value["networks"] == [{"host": "node01", "network": "IB"}, {"host": "node02", "network": "Socket"}]
    assert value["no_ib_device"] == ["node02"]
    assert {entry["name"]: entry["value"] for entry in value["env"]} == {
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_SOCKET_IFNAME": "=eth0",
    }  # fmt: skip
    assert [device["link_layer"] for device in value["net_ib"][0]["devices"]] == ["RoCE", "RoCE"]
    assert {pick(c, "host", "transport", "gpudirect") for c in value["channels"]} == {
        ("node01", "NET/IB", True), ("node02", "NET/Socket", False),
    }  # fmt: skip
    assert pick(value["warns"][0], "kind", "status", "opcode", "vendor_error", "hca") == (
        "completion_error",
        12,
        0,
        129,
        "mlx5_0",
    )
    assert value["plugins"][0]["kind"] == "missing" and problems == ()


CONF_FAULTS = {
    'A="1"\n': "quoted_value",
    "A=1 \n": "trailing_blank",
    "A =1\n": "blank_before_equals",
    " A=1\n": "leading_blank",
    "A= 1\n": "blank_after_equals",
    "export A=1\n": "export_prefix",
    "A=1 # why\n": "inline_comment",
    "A=$HOME/x\n": "variable_expansion",
    "A=1\r\n": "carriage_return",
    " # A=1\n": "indented_comment",
    "A\n": "no_equals",
    "A=1\nA=2\n": "duplicate",
    "a-b=1\n": "bad_name",
    "A=" + "x" * 2000 + "\n": "too_long",
}


@pytest.mark.parametrize(("text", "kind"), CONF_FAULTS.items(), ids=CONF_FAULTS.values())
def test_nccl_conf_faults(text, kind):
    value, problems = parse("nccl_conf", text)
    assert [fault["kind"] for fault in value["faults"]] == [kind] and len(problems) == 1


def test_nccl_conf_as_nccl_reads_it():
    value, problems = read("nccl_conf", "good.conf")
    assert value["settings"] == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_IB_TC": "106", "UCX_TLS": "tcp"}
    assert value["faults"] == [] and problems == ()
    assert parse("nccl_conf", "A=1\nA=2\nB=x=y\n\n#C=1\n").value["settings"] == {"A": "1", "B": "x=y"}
    assert parse("nccl_conf", "A=1\r\n").value["settings"] == {"A": "1\r"}
    assert parse("nccl_conf", "A=1\r\n", strips_carriage_return=True).value["settings"] == {"A": "1"}
    unterminated = parse("nccl_conf", "A=1")
    assert unterminated.value["settings"] == {"A": "1"} and unterminated.problems


def test_perftest():
    value, problems = read("perftest", "ib-write-bw.txt")
    assert pick(value["rows"][0], "bw_peak_gbps", "bw_average_gbps", "iterations") == (394.12, 393.98, 5000)
    assert pick(value["settings"], "device", "number_of_qps", "mtu_bytes", "gid_index", "rdma_cm") == (
        "mlx5_7",
        2,
        4096,
        3,
        False,
    )
    assert [side[0]["ipv4"] for side in (value["local"], value["remote"])] == ["10.2.0.1", "10.2.0.2"]
    assert problems == () and value["complete"]


def test_perftest_json_valid_and_broken():
    value, problems = read("perftest", "broken.json", report_gbits=True)
    assert pick(value["rows"][0], "bw_average_gbps", "size_bytes") == (393.98, 65536)
    assert pick(value["settings"], "device", "transport_type") == ("mlx5_7", "IB over Ethernet") and problems == ()
    unknown = read("perftest", "broken.json")
    assert "bw_average_gbps" not in unknown.value["rows"][0] and any(
        "report_gbits" in p.reason for p in unknown.problems
    )
    value, problems = read("perftest", "good.json")
    assert pick(value["rows"][0], "t_avg_us", "t_p99_us", "t_p999_us") == (1.8, 2.5, 4.25) and problems == ()


def test_iperf3():
    value, problems = read("iperf3", "text-parallel.txt")
    assert pick(value, "sent_bits_per_second", "received_bits_per_second", "retransmits") == (17.2e9, 17.1e9, 3)
    assert len(value["intervals"]) == 1 and problems == ()
    failed = read("iperf3", "error.json").value
    assert pick(failed, "error", "complete") == ("unable to connect to server: Connection refused", False)


def test_dpkg_states():
    packages = read("dpkg_list", "states.txt").value["packages"]
    assert pick(packages["cuda-drivers-550"], "version", "status", "held") == ("550.144.03-0ubuntu1", "installed", True)
    assert packages["libibverbs1"]["version"] == "44.0-2" and packages["nvidia-dkms-535"]["status"] == "config-files"
    assert pick(packages["mlnx-ofed-kernel-dkms"], "status", "broken") == ("half-configured", True)
    assert packages["nvidia-open"]["status"] == "not-installed" and "version" not in packages["nvidia-open"]
    query = read("dpkg_list", "query.txt").value["packages"]
    assert query["libnccl2"]["held"] and query["opensm"]["status"] == "config-files"


def test_rpm_names_versions_and_epochs():
    packages = read("rpm_list", "el9.txt").value["packages"]
    assert pick(packages["nvidia-driver"], "version", "epoch", "architecture") == ("575.57.08-1.el9", 3, "x86_64")
    kernels = parse("rpm_list", "kernel-core-5.14.0-503.el9.x86_64\nkernel-core-5.14.0-570.el9.x86_64\n").value[
        "packages"
    ]
    assert kernels["kernel-core"]["versions"] == ["5.14.0-503.el9", "5.14.0-570.el9"]


def test_apt():
    errors = read("apt_output", "locked-and-keys.txt").value["errors"]
    assert pick(errors[0], "kind", "path", "pid", "process") == (
        "lock",
        "/var/lib/dpkg/lock-frontend",
        1234,
        "unattended-upgr",
    )
    assert pick(errors[1], "kind", "key_id") == ("key", "A4B469963BF863CC")
    assert pick(errors[3], "kind", "package", "version") == ("version_not_found", "libnccl2", "2.28.9-1")
    assert pick(errors[4], "kind", "package") == ("not_found", "nvidia-fabricmanager-999")
    actions = read("apt_output", "install.txt").value
    assert actions["summary"] == {"upgraded": 1, "newly_installed": 1, "removed": 0, "not_upgraded": 3}
    assert [pick(a, "action", "package", "old_version") for a in actions["actions"]] == [
        ("upgrade", "libnccl2", "2.27.3-1+cuda12.9"), ("install", "perftest", None), ("configure", "perftest", None),
    ]  # fmt: skip
    entry = read("apt_output", "history.log").value["history"][0]
    assert entry["command"] == "/usr/bin/unattended-upgrade"
    assert pick(entry["actions"][0], "package", "old_version", "version") == (
        "libnvidia-compute-550",
        "550.127.05-0ubuntu1",
        "550.144.03-0ubuntu1",
    )
    assert entry["actions"][2]["automatic"]


def test_apt_policy():
    text = (
        "perftest:\n  Installed: (none)\n  Candidate: 24.01.0-1\n  Version table:\n     24.01.0-1 500\n"
        "        500 https://example.org stable/main amd64 Packages\n"
    )
    package = parse("apt_output", text, "parse_policy").value["packages"]["perftest"]
    assert "installed" not in package and package["candidate"] == "24.01.0-1"
    assert package["versions"][0]["sources"][0]["priority"] == 500


def test_modinfo_and_modprobe():
    value = read("modinfo", "mlx5.txt").value
    assert pick(value, "name", "version", "in_tree", "kernel") == (
        "mlx5_core",
        "24.10-1.1.4",
        False,
        "5.15.0-105-generic",
    )
    assert value["depends"] == ["mlx_compat", "tls"] and value["parameters"]["debug_mask"].startswith("debug mask")
    refused = read("modinfo", "key.txt").value["errors"][0]
    assert pick(refused, "kind", "module") == ("key_rejected", "nvidia")


def test_sysctl():
    value = read("sysctl_output", "a.txt").value
    assert value["values"]["net.ipv4.tcp_rmem"] == "4096 87380 134217728"
    assert pick(value["errors"][0], "kind", "key") == ("permission_denied", "net.ipv4.tcp_fastopen_key")
    assert parse("sysctl_output", "net/ipv4/conf/eth0.5/arp_ignore = 1\n").value["values"] == {
        "net.ipv4.conf.eth0/5.arp_ignore": "1"
    }


def test_modules():
    modules = read("lsmod", "loaded.txt").value["modules"]
    assert (
        modules["ib_core"]["holders"] == ["nvidia_peermem", "ib_uverbs", "mlx5_ib"]
        and modules["nvidia_uvm"]["use_count"] == 4
    )
    assert read("lsmod", "proc.txt").value["modules"]["nvidia"]["holders"] == ["nvidia_uvm", "nvidia_peermem"]
    cut = parse("lsmod", "nvidia 56717312 2 nvidia_uvm,nvidia_peer")
    assert "holders" not in cut.value["modules"]["nvidia"] and cut.problems


def test_ip():
    interfaces = read("ip_output", "addr.txt").value["interfaces"]
    assert pick(interfaces[1], "name", "mtu", "master", "operstate", "mac") == (
        "ens1f0np0",
        9000,
        "bond0",
        "up",
        "b8:ce:f6:00:00:01",
    )
    assert interfaces[1]["addresses"] == ["10.224.0.11/24", "fe80::1/64"] and interfaces[2]["parent"] == "bond0"
    assert read("ip_output", "brief.txt").value["interfaces"][2] == {
        "name": "veth0", "operstate": "down", "addresses": [], "parent": "if10",
    }  # fmt: skip
    routes = read("ip_output", "route.txt").value["routes"]
    assert [pick(r, "dst", "dev", "table", "family") for r in routes] == [
        ("default", "eno1", "main", 4),
        ("10.224.0.0/24", "ens1f0np0", "101", 4),
        ("default", "ens1f0np0", "101", 4),
        ("127.0.0.1", "lo", "local", 4),
        ("fd00:1::/64", "ens1f0np0", "main", 6),
    ]
    assert routes[2]["flags"] == ["onlink"] and routes[0]["metric"] == 100
    assert [pick(r, "priority", "from", "table") for r in read("ip_output", "rule.txt").value["rules"]] == [
        (0, "all", "local"), (1001, "10.224.0.11", "101"), (32766, "all", "main"),
    ]  # fmt: skip
    assert read("ip_output", "addr.json").value["interfaces"][0]["addresses"] == ["10.224.0.11/24"]


def test_systemd():
    units = read("systemd_show", "two-units.txt").value["units"]
    assert [pick(unit, "Id", "LimitMEMLOCK") for unit in units] == [
        ("sshd.service", "infinity"),
        ("slurmd.service", "8388608"),
    ]
    limit = importlib.import_module(PARSERS + "systemd_show").limit
    assert (limit("infinity"), limit("8388608"), limit("8M")) == ("unlimited", 8388608, None)


def test_nft():
    value, problems = read("nft_ruleset", "rack.txt")
    rack = value["tables"][0]
    assert pick(rack["chains"][0], "hook", "priority", "policy") == ("input", "filter", "drop")
    assert rack["chains"][0]["rules"][2:] == [
        "tcp dport { 22, 80 } accept",
        'ip saddr @members accept comment "rack { x }"',
    ]
    assert rack["sets"][0]["elements"] == ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]
    assert [table["name"] for table in value["tables"]] == ["gpu_fabric", "nat"] and problems == ()
