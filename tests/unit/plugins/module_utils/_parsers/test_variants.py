# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the field does to outputs: other releases, launchers, terminals, copies of web pages, several runs in one file.

The mutations of each recording are in ``test_gpu_fixtures`` and ``test_network_corpus``; here is what it says.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PARSERS = "ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers."
FIXTURES = Path(__file__).parent / "fixtures"


def parse(tool, text):
    value, problems = importlib.import_module(PARSERS + tool).parse(text)
    return value, [problem.reason for problem in problems]


def read(tool, name):
    return parse(tool, (FIXTURES / tool / name).read_text(encoding="utf-8"))


def test_topology_that_a_terminal_wrapped():
    value, reasons = read("nvidia_smi_topo", "terminal-wrapped.txt")
    # Two distances without the blank between them are still two; half a word hides what stands behind it.
    assert value["links"]["GPU0"] == {"GPU0": "X", "GPU1": "NV12", "NIC0": "NODE", "NIC1": "PIX"}
    assert value["links"]["GPU1"] == {"GPU0": "NV12", "GPU1": "X", "NIC0": "NODE"}
    assert value["gpus"][0]["cpu_affinity"] == "0-47"
    assert "cpu_affinity" not in value["gpus"][1]
    assert "The distance between GPU1 and NIC1 is 'NO0-47', which is none." in reasons


def test_topology_whose_tabs_were_doubled_by_hand():
    value, reasons = read("nvidia_smi_topo", "tabs-by-hand.txt")
    assert value["gpu_nic"] == {"0": {"mlx5_0": "NODE", "mlx5_1": "SYS"}, "1": {"mlx5_0": "SYS", "mlx5_1": "NODE"}}
    assert [gpu["numa_nodes"] for gpu in value["gpus"]] == [[0], [1]]
    assert not reasons


@pytest.mark.parametrize("start, end", [("^[[4m", "^[[0m"), ("[4m", "[0m"), ("\x1b[4m", "\x1b[0m")])
def test_topology_underlined(start, end):
    text = (FIXTURES / "nvidia_smi_topo" / "caret-escapes.txt").read_text(encoding="utf-8")
    value, reasons = parse("nvidia_smi_topo", text.replace("^[[4m", start).replace("^[[0m", end))
    assert value["gpu_nic"] == {"0": {"bnxt_re4": "SYS"}}
    assert value["gpus"][0]["cpu_affinity"] == "33,35,37"
    assert not reasons


def test_mig_mode_that_waits_for_a_reset():
    value, reasons = read("nvidia_smi", "mig-pending.txt")
    assert (value["gpus"][0]["mig"], value["gpus"][0]["mig_pending"]) == (False, True)
    assert not reasons


@pytest.mark.parametrize(
    "text, wanted",
    [
        (
            "Unable to determine the device handle for GPU5: Unknown Error",
            {"kind": "gpu_lost", "gpu": 5, "reason": "Unknown Error"},
        ),
        ("Failed to properly shut down NVML: Driver Not Loaded", {"kind": "driver_not_loaded"}),
        (
            "NVIDIA-SMI has failed because you do not have permission to communicate with the NVIDIA driver.",
            {"kind": "insufficient_permissions"},
        ),
        ("Segmentation fault (core dumped)", {"kind": "crashed"}),
        ("timeout: sending signal TERM to command 'nvidia-smi'", {"kind": "timed_out"}),
    ],
)
def test_more_ways_in_which_nvidia_smi_fails(text, wanted):
    value, reasons = parse("nvidia_smi_any", text + "\n")
    assert value["failures"] == [{**wanted, "text": text}]
    assert not reasons


def test_rdma_dev():
    value, reasons = read("rdma_link", "dev.txt")
    assert not reasons
    assert not value["links"]
    assert value["devices"][0] == {
        "device": "mlx5_0",
        "node_type": "ca",
        "firmware": "28.43.1014",
        "node_guid": "5c257303000a11c0",
        "sys_image_guid": "5c257303000a11c0",
        "extra": {},
    }
    assert value["devices"][1]["extra"] == {"adaptive-moderation": "on"}
    assert value["devices"][1]["caps"] == ["BAD_PKEY_CNTR", "BAD_QKEY_CNTR"]
    document = '[{"ifindex":0,"ifname":"mlx5_0","node_type":"ca","fw":"28.43.1014","node_guid":"5c25:7303:000a:11c0"}]'
    assert parse("rdma_link", document)[0]["devices"][0]["node_guid"] == "5c257303000a11c0"


def test_ibv_devinfo_without_its_indentation():
    value, reasons = read("ibv_devinfo", "no-indentation.txt")
    assert not reasons
    assert len(value["warnings"]) == 1
    assert value["devices"][0]["ports"] == [
        {
            "port": 1,
            "state": "active",
            "max_mtu_bytes": 4096,
            "active_mtu_bytes": 1024,
            "sm_lid": 0,
            "lid": 0,
            "lmc": 0,
            "link_layer": "Ethernet",
            "effective_speed_gbps": 100.0,
            "extra": {},
        }
    ]


def test_ibv_devices():
    value, reasons = read("ibv_devinfo", "devices.txt")
    assert [(device["device"], device["node_guid"]) for device in value["devices"]] == [
        ("mlx5_0", "5c257303000a11c0"),
        ("bnxt_re0", "5c25730aff0a2230"),
    ]
    assert not reasons
    value, reasons = read("ibv_devinfo", "list.txt")
    assert [device["device"] for device in value["devices"]] == ["mlx5_1", "mlx5_0"]
    assert not reasons


def test_ibstatus_of_a_device_without_a_link_layer():
    value, reasons = read("ibstatus", "efa.txt")
    assert value["ports"][0]["extra"] == {"link_layer": "Unknown"}
    assert "link_layer" not in value["ports"][0]
    assert not reasons


def test_ibdev2netdev_with_short_addresses():
    value, reasons = read("ibdev2netdev", "no-domain.txt")
    assert [(row["pci"], row["port"], row["port_state"]) for row in value["mappings"]] == [
        ("0000:03:00.0", 1, "active"),
        ("0000:03:00.0", 2, "down"),
    ]
    assert not reasons


def test_perftest_on_two_ports():
    value, reasons = read("perftest", "two-ports.txt")
    row = value["rows"][0]
    assert row["bw_average_gbps"] == 200.000018
    assert (row["bw_port1_gbps"], row["msg_rate_port2_mpps"]) == (100.000009, 0.190735)
    assert value["settings"] == {
        "device": "mlx5_4",
        "dual_port": True,
        "pcie_relaxed_ordering": True,
        "lock_free": False,
    }
    assert not reasons


def test_two_perftests_in_one_text():
    value, reasons = read("perftest", "two-tests.txt")
    assert value["test"] == "Send Latency Test"
    assert [row.get("test") for row in value["rows"]] == [None, "RDMA_Read BW Test"]
    assert reasons == ["The text holds 2 tests; settings and addresses are the first one's."]


@pytest.mark.parametrize(
    "text, kind",
    [
        ("Couldn't post send: qp 0 scnt=0", "verbs"),
        ("Unexpected CM event bl blka 8", "connection"),
        (" Unable to find the Infiniband/RoCE device", "device_not_found"),
        ("bash: ib_write_bw: command not found", "not_run"),
    ],
)
def test_more_ways_in_which_perftest_fails(text, kind):
    value, _reasons = parse("perftest", text + "\n")
    assert [error["kind"] for error in value["errors"]] == [kind]
    assert not value["complete"]


def test_nccl_tests_of_the_first_version_prints_milliseconds():
    value, reasons = read("nccl_tests", "first-version.txt")
    row = value["rows"][0]
    assert (row["size_bytes"], row["out_of_place_time_us"], row["in_place_busbw_gbytes_s"]) == (8388608, 512.0, 16.32)
    assert value["average_busbw_gbytes_s"] == 16.3501
    assert not reasons


@pytest.mark.parametrize("name", ["collected-with-times.txt", "host-and-rank.txt"])
def test_nccl_tests_behind_labels(name):
    value, reasons = read("nccl_tests", name)
    assert [row["in_place_busbw_gbytes_s"] for row in value["rows"]] == [0.35]
    assert (value["average_busbw_gbytes_s"], value["config"]["minimum_bytes"]) == (0.345, 4096)
    assert not reasons


def test_nccl_tests_that_failed_before_another_run():
    value, reasons = read("nccl_tests", "failed-then-another.txt")
    # The average is the second run's: it says nothing about the first one, whose configuration stands outside.
    assert "average_busbw_gbytes_s" not in value
    assert value["summaries"] == [
        {"run": 2, "out_of_bounds_count": 0, "out_of_bounds_ok": True, "average_busbw_gbytes_s": 0.385}
    ]
    assert [(row["run"], row["size_bytes"]) for row in value["rows"]] == [(1, 4096), (2, 8192)]
    assert not value["complete"]
    assert any("2 runs" in reason for reason in reasons)


@pytest.mark.parametrize(
    "text",
    [
        "./all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file",
        "bash: all_reduce_perf: command not found",
        "Invalid number of GPUs: 8 requested but only 4 were found.",
    ],
)
def test_nccl_tests_that_did_not_run(text):
    value, reasons = parse("nccl_tests", text + "\n")
    assert value["errors"] == [text]
    assert reasons == ["nccl-tests did not run."]


def test_what_a_root_port_heard_and_other_drivers_links():
    value, reasons = read("dmesg", "aer-and-links.txt")
    assert not reasons
    events = value["events"]
    assert [(event["kind"], event["severity"]) for event in events] == [
        ("aer_received", "warning"),
        ("aer", "warning"),
        ("aer_received", "error"),
        ("netdev_link", "warning"),
        ("netdev_link", "info"),
        ("xid", "warning"),
        ("mlx5_firmware_error", "error"),
        ("mlx5_health", "error"),
    ]
    assert (events[2]["pci"], events[2]["source"]) == ("0000:40:01.1", "0000:42:00.0")
    assert (events[3]["netdev"], events[3]["state"]) == ("ens5f0np0", "down")
    assert "process" not in events[5]


def test_words_of_newer_nccl():
    value, reasons = read("nccl_info", "newer-words.txt")
    assert not reasons
    assert value["networks"] == [{"host": "gpu07", "network": "AWS Libfabric"}]
    assert [(plugin["kind"], plugin["name"]) for plugin in value["plugins"]] == [("provider", "efa")]
    assert [item["netdev"] for item in value["net_socket"][0]["interfaces"]] == ["ens7", "ens8"]
    assert value["channels"][0]["transport"] == "P2P/direct pointer"
    event, completion = value["warns"]
    assert (event["kind"], event["device"], event["event"], event["code"]) == (
        "async_event",
        "mlx5_1",
        "port error",
        10,
    )
    assert (completion["kind"], completion["status"], completion["vendor_error"]) == ("completion_error", 12, 129)
    assert "peer" not in completion


def test_iperf3_both_ways():
    value, reasons = read("iperf3", "bidirectional.txt")
    assert not reasons
    assert [row["bits_per_second"] for row in value["intervals"]] == [923e6, 931e6]
    assert (value["sent_bits_per_second"], value["received_bits_per_second"], value["retransmits"]) == (927e6, 922e6, 2)
    assert (value["reverse_sent_bits_per_second"], value["reverse_received_bits_per_second"]) == (847e6, 843e6)
    document = (
        '{"start": {}, "intervals": [], "end": {"sum_sent": {"bits_per_second": 9e8}, '
        '"sum_sent_bidir_reverse": {"bits_per_second": 7e8}, "sum_received_bidir_reverse": {"bits_per_second": 6e8}}}'
    )
    value, reasons = parse("iperf3", document)
    assert not reasons
    assert (value["reverse_sent_bits_per_second"], value["reverse_received_bits_per_second"]) == (7e8, 6e8)


def test_iperf3_of_a_server_that_was_stopped_after_its_test():
    value, reasons = read("iperf3", "server.txt")
    assert not reasons
    assert value["complete"]
    assert "error" not in value
    assert value["received_bits_per_second"] == 9.39e9


def test_iperf3_with_one_sum_for_both_ends():
    value, reasons = read("iperf3", "udp-one-sum.txt")
    assert not reasons
    assert len(value["intervals"]) == 2
    assert (value["bits_per_second"], value["lost_packets"], value["packets"]) == (1010000.0, 1, 31)


def test_iperf3_interrupted():
    value, _reasons = read("iperf3", "interrupted.txt")
    assert [row["end_s"] for row in value["intervals"]] == [1.0, 1.53]
    assert value["error"] == "the client has terminated"
    assert not value["complete"]


def test_iperf3_errors_read_alike_in_text_and_json():
    text = parse("iperf3", "iperf3: error - unable to connect to server: Connection refused\n")[0]
    document = (
        '{"start": {}, "intervals": [], "end": {}, "error": "error - unable to connect to server: Connection refused"}'
    )
    assert text["error"] == parse("iperf3", document)[0]["error"] == "unable to connect to server: Connection refused"
    assert parse("iperf3", "iperf3: the client has unexpectedly closed the connection\n")[0]["error"]


def test_mst_status_without_its_modules():
    value, reasons = read("mst_status", "modules-not-loaded.txt")
    assert not reasons
    assert [device["pci"] for device in value["devices"]] == ["0000:21:00.0", "0001:22:00.1"]
    assert [module["loaded"] for module in value["modules"]] == [False, False]


def test_mlnx_qos_of_old_releases():
    value, reasons = read("mlnx_qos", "user-priorities.txt")
    assert not reasons
    assert value["priority_to_tc"] == [0, 0, 0, 1, 1, 1, 1, 1]
    assert value["pfc"][3] is True


def test_remarks_of_newer_dkms():
    value, reasons = read("dkms_status", "newer-remarks.txt")
    assert not reasons
    first, second, third, fourth = value["modules"]
    assert (first["original_module"], first.get("warning")) == (True, None)
    assert (second["original_module"], second["warning"]) == (True, "Differences between built and installed modules")
    assert third["warning"] == "Built modules are missing in the kernel modules folder"
    assert fourth["status"] == "built"


def test_lists_of_a_fabrics_nodes():
    value, reasons = read("ibnetdiscover", "list.txt")
    assert not reasons
    assert [(node["type"], node["guid"], node["number_of_ports"]) for node in value["nodes"]] == [
        ("switch", "fc6a1c0300e7ef80", 65),
        ("ca", "5c257303000a11c0", 1),
    ]
    assert [node["lid"] for node in read("ibnetdiscover", "ibswitches.txt")[0]["nodes"]] == [1, 14]


def test_cells_that_say_that_a_gpu_is_lost():
    value, reasons = read("nvidia_smi_csv", "lost-cells.txt")
    assert [(failure["kind"], failure["pci"], failure["gpu"]) for failure in value["failures"]] == [
        ("gpu_lost", "0000:3c:00.0", 1)
    ]
    assert value["gpus"][1] == {"index": 1, "name": "NVIDIA H100 80GB HBM3", "pci": "0000:3c:00.0"}
    assert value["gpus"][2]["not_available"] == ["ecc.uncorrected_volatile"]
    assert "nvidia-smi could not read temperature.gpu of GPU 0000:4d:00.0: ERR!." in reasons


def test_remapped_rows_have_numbers_for_yes_and_no():
    value, reasons = read("nvidia_smi_csv", "remapped-rows.txt")
    assert not reasons
    assert [gpu["remapped_rows"]["pending"] for gpu in value["gpus"]] == [False, True]
    assert [gpu["remapped_rows"]["failure"] for gpu in value["gpus"]] == [False, False]


def test_retired_pages_are_no_gpus():
    value, reasons = parse(
        "nvidia_smi_csv",
        "gpu_uuid, gpu_bus_id, retired_pages.address, retired_pages.cause\n"
        "GPU-1a2b3c4d-0000-1111-2222-333344445555, 00000000:1A:00.0, 0x00000000000a1b2c, Double Bit ECC\n"
        "GPU-1a2b3c4d-0000-1111-2222-333344445555, 00000000:1A:00.0, 0x00000000000a1b2d, Single Bit ECC\n",
    )
    assert not reasons
    assert not value["gpus"]
    assert [page["retired_pages.cause"] for page in value["retired_pages"]] == ["Double Bit ECC", "Single Bit ECC"]


def test_the_place_in_a_partial_list_is_no_index():
    value, reasons = read("nvidia_smi_q", "one-of-several.txt")
    gpu = value["gpus"][0]
    assert "index" not in gpu
    assert (gpu["pci"], gpu["temperature_c"], gpu["retired_pages"]) == ("0000:5d:00.0", 41, {"pending": True})
    assert [(failure["kind"], failure["pci"]) for failure in value["failures"]] == [("gpu_lost", "0000:5d:00.0")]
    assert any("8 GPUs are attached" in reason for reason in reasons)
    document = (
        "<nvidia_smi_log><driver_version>555.42.02</driver_version><attached_gpus>8</attached_gpus>"
        '<gpu id="00000000:5D:00.0"><performance_state>GPU is lost</performance_state></gpu></nvidia_smi_log>'
    )
    value, _reasons = parse("nvidia_smi_xml", document)
    assert "index" not in value["gpus"][0]
    assert [failure["kind"] for failure in value["failures"]] == ["gpu_lost"]


def test_a_failed_uuid_is_none():
    value, reasons = read("nvidia_smi_list", "failing.txt")
    assert [gpu.get("uuid") for gpu in value["gpus"]] == ["GPU-1a2b3c4d-0000-1111-2222-333344445555", None, None]
    assert len(reasons) == 2
    assert parse("nvidia_smi_list", "No devices found.\n")[0]["failures"][0]["kind"] == "no_devices"


def test_apt_three_and_files_of_two_packages():
    value, _reasons = parse(
        "apt_output",
        "Summary:\n"
        "  Upgrading: 2, Installing: 3, Removing: 0, Not Upgrading: 5\n"
        "Error: Unable to locate package mlnx-all\n"
        "Error: Couldn't find any package by glob 'libnccl9'\n"
        "Warning: OpenPGP signature verification failed: https://packages.example.org noble InRelease: Missing key "
        "0123456789ABCDEF0123456789ABCDEF01234567, which is needed to verify signature.\n"
        "Error: Something else\n"
        "Notice: See apt-secure(8)\n",
    )
    assert value["summary"] == {"upgraded": 2, "newly_installed": 3, "removed": 0, "not_upgraded": 5}
    assert [error["kind"] for error in value["errors"]] == ["not_found", "not_found", "key", "other"]
    assert value["errors"][2]["key_id"] == "0123456789ABCDEF0123456789ABCDEF01234567"
    assert value["notices"] == ["Notice: See apt-secure(8)"]
    value, _reasons = parse(
        "apt_output",
        "dpkg: error: dpkg frontend lock was locked by another process with pid 4321\n"
        "dpkg: error processing archive /var/cache/libnvidia-a_2_amd64.deb (--unpack):\n"
        " trying to overwrite '/usr/lib/libnvidia-ml.so.1', which is also in package libnvidia-b 1.0\n",
    )
    lock, package = value["errors"]
    assert (lock["kind"], lock["pid"]) == ("lock", 4321)
    assert (package["path"], package["other_package"]) == ("/usr/lib/libnvidia-ml.so.1", "libnvidia-b")


def test_the_last_lines_of_iperf3_with_several_streams():
    text = (FIXTURES / "iperf3" / "text-parallel.txt").read_text(encoding="utf-8")
    whole = parse("iperf3", text)[0]
    tail = "".join(text.splitlines(keepends=True)[-6:])
    assert "[SUM]" in tail and tail.count("sender") > 1
    assert parse("iperf3", tail)[0]["sent_bits_per_second"] == whole["sent_bits_per_second"]


def test_details_of_a_port_are_not_its_counters() -> None:
    ports = read("perfquery", "rcv-error-details.txt")[0]["ports"]
    assert [port.get("details") for port in ports] == ["PortRcvErrorDetails", None]
    assert ports[0]["counters"]["PortLocalPhysicalErrors"] == 4
    assert ports[1]["counters"]["SymbolErrorCounter"] == 6


def test_ibnetdiscover_rows_without_quotes() -> None:
    links = read("ibnetdiscover", "unquoted.txt")[0]["links"]
    assert [link["description"] for link in links] == ["MF0;leaf-01:MQM9700/U1", "Leaf 02 of rack 7", "gpu-01 mlx5_0"]
    assert [link.get("speed") for link in links] == ["SDR", None, "NDR"]


def test_iblinkinfo_speed_of_fewer_digits() -> None:
    (node,) = read("iblinkinfo", "fewer-digits.txt")[0]["nodes"]
    (link,) = node["ports"]
    assert (link["lane_gbps"], link["speed"], link["rate_gbps"]) == (25.78, "EDR", 100)


def test_ibswinfo_without_values() -> None:
    value, problems = read("ibswinfo", "standby.txt")
    assert value["psus"] == [
        {"psu": 1, "dc_power": "ERROR"},
        {"psu": 2, "status": "OK", "dc_power": "OK", "power_w": 118},
    ]
    assert value["fans"] == [{"fan": 2, "rpm": 5210}]
    assert not problems
    assert parse("ibswinfo", "PSU1 status | OK\n  power (W) | none\n")[1]


ONE_OF_TWO = {
    "mlnx_qos": ("pcp_old.txt", "pcp", "dscp"),
    "ethtool_driver": ("mlx5_open.txt", "0000:18:00.0", "0000:19:00.0"),
    "ethtool_module": ("qsfp.txt", "0.9123 mW", "0.1123 mW"),
    "ethtool_stats": ("mlx5.txt", "123456", "123457"),
    "ibswinfo": ("switch.txt", "MT2011X01234", "MT2011X01235"),
    "modinfo": ("mlx5.txt", "24.10-1.1.4", "24.04-0.6.6"),
    "nvidia_smi": ("580-two-gpus.txt", "580.95.05", "570.86.15"),
    "nvidia_smi_topo": ("tabs-ansi.txt", "PIX", "PXB"),
    "iperf3": ("bidirectional.txt", "iperf Done", "iperf Done"),
    "dcb": ("app.txt", ":3", ":4"),
}


@pytest.mark.parametrize("tool", sorted(ONE_OF_TWO))
def test_of_two_outputs_in_one_text_the_first_is_read(tool):
    name, old, new = ONE_OF_TWO[tool]
    text = (FIXTURES / tool / name).read_text(encoding="utf-8").rstrip("\n") + "\n"
    assert old in text
    value, reasons = parse(tool, text)
    both, said = parse(tool, text + text.replace(old, new))
    assert both == value
    assert [reason for reason in said if reason not in reasons and "only the first one was read" in reason]


def test_rings_without_headings():
    value, reasons = parse(
        "ethtool_rings", "Ring parameters for eth4:\nRX:\t\t8192\nTX:\t\t4096\nRX:\t\t1024\nTX:\t\t512\n"
    )
    assert value["interfaces"] == [{"netdev": "eth4", "maximum": {}, "current": {}}]
    assert len(reasons) == 4


def test_messages_of_the_library_below_ibqueryerrors():
    value, reasons = parse(
        "ibqueryerrors", "src/query_smp.c:228; umad (DR path slid 0; dlid 0; 0,1 Attr 0x15:0) bad status\n"
    )
    assert value["errors"] and reasons


def test_pfc_rows_with_colons():
    text = "PFC configuration:\n\tpriority:  0 1 2 3 4 5 6 7\n\tenabled:   0 0 0 0 1 0 0 0\n"
    assert parse("mlnx_qos", text)[0]["pfc"] == [False, False, False, False, True, False, False, False]


def test_csv_of_several_queries_and_rows_that_look_like_a_header():
    text = (
        "index, name, temperature.gpu, power.draw [W]\n0, NVIDIA H200, 41, 99.50 W\n"
        "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n77, python3.10, 512 MiB, GPU-0\n"
        "index, name, temperature.gpu, power.draw [W]\n0, NVIDIA H200, 43, 98.00 W\n"
    )
    value, reasons = parse("nvidia_smi_csv", text)
    assert [gpu["temperature_c"] for gpu in value["gpus"]] == [41, 43]
    assert [(process["pid"], process["used_mib"]) for process in value["processes"]] == [(77, 512)]
    assert not reasons
    value, reasons = parse("nvidia_smi_csv", "compute_mode\nExclusive_Process\nDefault\n")
    assert [gpu["compute_mode"] for gpu in value["gpus"]] == ["Exclusive_Process", "Default"]


def test_interface_whose_first_line_is_missing():
    text = "Settings for eth4:\n\tSpeed: 400000Mb/s\n\tDuplex: Full\n\tSpeed: 25000Mb/s\n\tDuplex: Half\n"
    value, reasons = parse("ethtool", text)
    assert value["interfaces"] == [{"netdev": "eth4", "extra": {}, "speed_mbps": 400000, "duplex": "full"}]
    assert reasons


def test_second_summary_and_second_release_are_told():
    counts = "{} upgraded, 0 newly installed, 0 to remove and 4 not upgraded.\n"
    value, reasons = parse("apt_output", counts.format(3) + counts.format(0))
    assert value["summary"]["upgraded"] == 3 and reasons
    value, reasons = parse("ofed_info", "MLNX_OFED_LINUX-24.10-1.1.4.0:\nMLNX_OFED_LINUX-5.8-2.0.3.0:\n")
    assert value["version"] == "24.10-1.1.4.0" and reasons


def test_topology_whose_header_lost_its_indentation():
    text = (
        "GPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
        "GPU0\t X \tNV18\tPIX\t0-31\t0\nGPU1\tNV18\t X \tSYS\t32-63\t1\nNIC0\tPIX\tSYS\t X \n"
        "\nNIC Legend:\n\n  NIC0: mlx5_4\n"
    )
    value, reasons = parse("nvidia_smi_topo", text)
    assert value["gpu_nic"] == {"0": {"mlx5_4": "PIX"}, "1": {"mlx5_4": "SYS"}}
    assert [gpu["numa_nodes"] for gpu in value["gpus"]] == [[0], [1]]
    assert not reasons
    twice, reasons = parse("nvidia_smi_topo", text + "GPU0\t X \tNV18\tSYS\t0-31\t0\n")
    assert twice == value and reasons


def test_perftest_through_the_connection_manager():
    text = "RDMA CM event error:\nEvent: RDMA_CM_EVENT_REJECTED; error: -111.\n\nFailed to connect RDMA CM events.\n"
    value, _reasons = parse("perftest", text)
    assert [error["kind"] for error in value["errors"]] == ["connection"] * 3 and not value["complete"]
    value, _reasons = parse("perftest", " Failed status transport retry counter exceeded: wr_id 0 syndrom 0x81\n")
    assert value["errors"][0]["kind"] == "completion"
