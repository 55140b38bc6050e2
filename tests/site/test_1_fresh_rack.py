"""From a bare OS: the dry run tells what the real run does, and a second run does nothing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from rack import ROOT, Rack, Run, node_state


@pytest.fixture(scope="module")
def story(fresh: Rack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Check, look, run, run again: every test of this module reads one chapter of it."""
    reports = tmp_path_factory.mktemp("reports")
    where = ("-e", f"gpu_fabric_report_dir={reports}")
    before = {host: node_state(fresh, host) for host in fresh.hosts}
    check = fresh.site("--check", "--diff", *where)
    after = {host: node_state(fresh, host) for host in fresh.hosts}
    real = fresh.site("--diff", *where)
    second = fresh.site(*where)
    return {"before": before, "after": after, "check": check, "real": real, "second": second, "reports": reports}


def test_check_on_bare_nodes_succeeds(story: dict) -> None:
    check: Run = story["check"]
    assert check.rc == 0, check.describe()
    assert all(host["failures"] == host["unreachable"] == 0 for host in check.stats.values()), check.describe()


def test_check_changes_nothing(story: dict) -> None:
    for host, before in story["before"].items():
        assert story["after"][host] == before, host


def test_check_names_the_changes_that_the_run_makes(story: dict) -> None:
    assert story["real"].rc == 0, story["real"].describe()
    assert story["check"].changes() == story["real"].changes()
    assert len(story["check"].changes()) > 20


def test_second_run_changes_nothing(story: dict) -> None:
    second: Run = story["second"]
    assert second.rc == 0, second.describe()
    assert second.changes() == set()
    assert all(host["changed"] == host["failures"] == 0 for host in second.stats.values()), second.describe()


def test_report_tells_the_run(story: dict, fresh: Rack) -> None:
    report = json.loads((story["reports"] / "report.json").read_text())
    assert set(report["hosts"]) == set(fresh.hosts)
    assert [item for item in report["findings"] if item["severity"] != "info"] == []
    assert report["verdict"] == "pass"
    measured = [result for result in report["benchmarks"] if result["test"] == "ib_write_bw"]
    assert len(measured) == 8 * len(fresh.hosts)
    assert all(result["verdict"] == "pass" for result in report["benchmarks"]), report["benchmarks"]
    page = (story["reports"] / "report.html").read_text()
    assert "<h1>Lab rack: GPUs, NICs and what they measure are simulated</h1>" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "<script" not in page
    suites = ET.parse(story["reports"] / "junit.xml").getroot()
    assert {suite.get("name") for suite in suites} >= set(fresh.hosts)
    assert all(suite.get("failures") == "0" for suite in suites)


def test_root_site_playbook_imports_the_collection_one() -> None:
    assert "import_playbook: playbooks/site.yml" in (ROOT / "site.yml").read_text()
