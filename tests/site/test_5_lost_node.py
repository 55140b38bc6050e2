"""A node that goes away in the middle of a run: the others finish, and it catches up later."""

from __future__ import annotations

import json
import threading
import time

import pytest
from rack import Rack


@pytest.fixture(scope="module")
def lost(fresh: Rack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    reports = tmp_path_factory.mktemp("reports")
    runs = []
    thread = threading.Thread(target=lambda: runs.append(fresh.site("-e", f"gpu_fabric_report_dir={reports}")))
    thread.start()
    # Wait until the run has really begun on the node: it has written something there.
    deadline = time.monotonic() + 300
    while "yes" not in fresh.shell("gpu-03", "test -d /var/lib/gpu_fabric && echo yes || echo no"):
        assert time.monotonic() < deadline, "the run never reached gpu-03"
        time.sleep(0.5)
    fresh.lab(lab_power="off", lab_node="gpu-03")
    thread.join()
    return {"run": runs[0], "reports": reports}


def test_the_rest_of_the_rack_completes(lost: dict) -> None:
    stats = lost["run"].stats
    assert stats["gpu-03"]["unreachable"] == 1, lost["run"].describe()
    for host in ("gpu-01", "gpu-02", "gpu-04"):
        assert stats[host]["unreachable"] == 0, lost["run"].describe()
    report = json.loads((lost["reports"] / "report.json").read_text())
    assert report["hosts"]["gpu-03"]["state"] != "ok"
    assert report["hosts"]["gpu-01"]["state"] == "ok"
    assert lost["run"].rc != 0


def test_it_catches_up_when_it_returns(lost: dict, fresh: Rack) -> None:
    fresh.lab(lab_power="on", lab_node="gpu-03")
    run = fresh.converge()
    assert {host for host, _ in run.changes()} <= {"gpu-03"}
    again = fresh.converge()
    assert again.changes() == set()
    names = {host: fresh.shell(host, "cat /etc/nccl.conf") for host in ("gpu-01", "gpu-03")}
    assert names["gpu-01"] == names["gpu-03"]
