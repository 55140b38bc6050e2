"""The report says what the data says, holds any text, and needs nothing from elsewhere."""

from __future__ import annotations

import html.parser
import json
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import report


def below(*bridges: str, numa: int) -> dict:
    return {"numa_node": numa, "upstream": list(bridges), "root": f"pci{bridges[0][:7]}"}


def device(name: str, netdev: str, pci: str, role: str) -> dict:
    return {"name": name, "netdev": netdev, "pci": pci, "role": role, "confidence": "high", "reason": "by its place"}


FACTS = {
    "host": {"os": {"id": "debian", "version_id": "12"}, "kernel": "6.1.0", "product": {"name": "HGX"}},
    "pci": {
        "0000:1b:00.0": below("0000:15:01.0", "0000:16:00.0", "0000:17:00.0", numa=0),
        "0000:18:00.0": below("0000:15:01.0", "0000:16:00.0", "0000:17:01.0", numa=0),
        "0000:29:00.0": below("0000:28:01.0", numa=1),
    },
    "gpus": [{"pci": "0000:1b:00.0", "name": "NVIDIA H100 80GB HBM3", "index": 0}],
    "rdma_devices": {
        "mlx5_0": {"firmware": "28.43.2566", "ports": {"1": {"state": "down"}}},
        "mlx5_1": {"ports": {"1": {"state": "active"}}},
    },
}
RAIL = {
    "rail": 0,
    "hca": "mlx5_0",
    "port": 1,
    "pci": "0000:18:00.0",
    "netdev": "ens1",
    "gpu": 0,
    "gpus": [0],
    "distance": "PIX",
    "numa_node": 0,
    "rate_gbps": 400.0,
    "mtu": 9000,
    "ipv4": "10.224.0.11/24",
    "ipv6": None,
}
PLAN = {
    "rack": {
        "fabric": "roce",
        "rails": 1,
        "roce": {
            "dscp": 26,
            "traffic_class": 106,
            "priority": 3,
            "switch": {
                "trust": "dscp",
                "dscp_to_priority": {"26": 3, "48": 6},
                "pfc": [0, 0, 0, 1, 0, 0, 0, 0],
                "ecn_traffic_classes": [3],
                "strict_traffic_classes": [6],
                "mtu_min": 9100,
            },
        },
    },
    "hosts": {
        "gpu-01": {
            "rails": [RAIL],
            "devices": [
                device("mlx5_0", "ens1", "0000:18:00.0", "compute"),
                device("mlx5_1", "ens2", "0000:29:00.0", "storage"),
            ],
            "nccl_env": {"NCCL_IB_HCA": "=mlx5_0:1"},
            "tuning": {
                "host": {"cpu_governor": "performance"},
                "reasons": {"cpu_governor": "no waiting for a clock"},
                "left_out": {"acs": "a virtual machine"},
            },
            "nic_firmware": {"reasons": {"NUM_OF_VFS": "as you told"}, "left_out": {}},
            "sysctl": {"vm.zone_reclaim_mode": {"value": "0", "reason": "page cache"}},
            "thresholds": {"ib_write_bw_gbps": {"0": 384.0}, "basis": {"ib_write_bw_gbps.0": "0.96 of 400"}},
        }
    },
}
FINDING = {
    "id": "RF-X",
    "severity": "fail",
    "phase": "preflight",
    "host": "gpu-01",
    "device": "mlx5_0",
    "message": "gpu-01 mlx5_0 is down",
    "evidence": ["state: 1: DOWN"],
    "cause": "",
    "remedy": "plug it in",
}
RESULT = {
    "test": "ib_write_bw",
    "subject": "mlx5_0",
    "peer": "gpu-02",
    "unit": "Gb/s",
    "value": 192.0,
    "threshold": 384.0,
    "verdict": "fail",
    "detail": "192 is below 384",
    "command": "ib_write_bw",
    "rail": 0,
}


def finding(**more: object) -> dict:
    return {**FINDING, **more}


def measured(**more: object) -> dict:
    return {**RESULT, **more}


def build(**more: object) -> dict:
    given = {"findings": [], "benchmarks": {}, **more}
    return report.build({"gpu-01": FACTS}, PLAN, **given)


class Elements(html.parser.HTMLParser):
    """Every start tag with its attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_healthy_host_passes_and_a_finding_or_a_slow_rail_fails_it() -> None:
    assert build()["verdict"] == "pass"
    assert build(findings=[finding()])["verdict"] == "fail"
    assert build(findings=[finding(severity="warn")])["verdict"] == "warn"
    assert build(benchmarks={"gpu-01": [measured()]})["hosts"]["gpu-01"]["verdict"] == "fail"
    assert build(benchmarks={"gpu-01": [measured(verdict="not_run", value=None)]})["verdict"] == "warn"


def test_unreachable_and_broken_off_hosts_are_named() -> None:
    built = build(unreachable=["gpu-02"], failures={"gpu-01": "apt failed"})
    assert built["hosts"]["gpu-02"]["state"] == "unreachable"
    assert built["hosts"]["gpu-01"]["state"] == "failed"
    assert built["counts"]["hosts"] == 2
    page = report.render_html(built)
    assert "apt failed" in page and "unreachable" in page


def test_what_was_only_measured_has_not_passed() -> None:
    only = measured(test="iperf3", rail=None, verdict="pass", threshold=None, detail="no threshold")
    page = report.render_html(build(benchmarks={"gpu-01": [only, measured(verdict="pass", value=390.0)]}))
    assert "<b>1 / 1</b>measurements passed, 1 without a threshold" in page
    assert '<span class="badge none">measured</span>' in page


def test_host_that_others_stopped_has_not_failed() -> None:
    built = build(stopped=["gpu-01"])
    assert (built["hosts"]["gpu-01"]["state"], built["verdict"]) == ("stopped", "pass")
    case = ET.fromstring(report.render_junit(built)).find(".//testcase[@name='reachable and complete']")
    assert case.find("skipped") is not None and case.find("failure") is None
    assert "stopped" in report.render_html(built)


def test_tree_puts_gpu_and_nic_under_their_switch() -> None:
    sockets = build()["hosts"]["gpu-01"]["tree"]
    assert [socket["numa"] for socket in sockets] == [0, 1]
    switch = sockets[0]["switches"][0]
    assert switch["pci"] == "0000:16:00.0"
    assert [(device["kind"], device["label"]) for device in switch["devices"]] == [("gpu", "GPU 0"), ("nic", "mlx5_0")]
    assert switch["devices"][1]["rail"] == 0 and switch["devices"][1]["up"] is False
    assert sockets[1]["switches"][0]["kind"] == "root"


def test_page_has_everything_and_loads_nothing() -> None:
    page = report.render_html(build(findings=[finding()], benchmarks={"gpu-01": [measured()]}))
    elements = Elements(page)
    assert not [tag for tag, _ in elements.tags if tag in ("script", "link", "img", "iframe")]
    assert "url(" not in page and "@import" not in page
    for words in (
        "gpu-01 mlx5_0 is down",
        "plug it in",
        "state: 1: DOWN",
        "192",
        "NCCL_IB_HCA==mlx5_0:1",
        "page cache",
        "PIX",
        "26 → 3, 48 → 6",
        "0 0 0 1 0 0 0 0",
        "9100",
        "cpu_governor = performance",
        "no waiting for a clock",
        "a virtual machine",
        "as you told",
    ):
        assert words in elements.text, words
    assert any(tag == "svg" for tag, _ in elements.tags)


@given(st.text(max_size=60))
def test_any_text_stays_text(text: str) -> None:
    evil = finding(message=text, evidence=[text, "<script>alert(1)</script>"], host="gpu-01", device=text)
    built = build(findings=[evil])
    page = report.render_html(built)
    assert "<script" not in page
    ET.fromstring(report.render_junit(built).encode())
    json.dumps(built)


def test_junit_counts_what_the_report_counts() -> None:
    results = [measured(), measured(verdict="pass", rail=1), measured(verdict="not_run", rail=2)]
    found = [finding(), finding(severity="warn"), finding(severity="info")]
    root = ET.fromstring(report.render_junit(build(findings=found, benchmarks={"gpu-01": results})).encode())
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "2", "1")


def test_hosts_are_in_natural_order() -> None:
    built = report.build({f"gpu-{n}": {} for n in (10, 9, 1)}, {}, [])
    assert list(built["hosts"]) == ["gpu-1", "gpu-9", "gpu-10"]


def test_sparse_recording_still_makes_a_report() -> None:
    """A bundle may hold two files: GPUs without a place, a plan without a rack."""
    facts = {"gpus": [{"name": "NVIDIA H100"}, {}], "nvswitches": [{}], "rdma_devices": {"mlx5_0": {}}}
    plan = {"rack": {}, "hosts": {"gpu-01": {"devices": [{"name": "mlx5_0"}], "rails": [], "confidence": "low"}}}
    built = report.build({"gpu-01": facts}, plan, [finding(evidence=None, host=None, device=None)])
    assert built["hosts"]["gpu-01"]["gpus"]["count"] == 2
    assert "mlx5_0" in report.render_html(built)
    ET.fromstring(report.render_junit(built).encode())
