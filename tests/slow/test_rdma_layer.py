"""The RDMA layer on every machine of the lab: both back ends, pending firmware, batches, drift, one code point."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "site"))

from rack import Rack, Run, node_state

ROCE = ("hgx_h100_roce", "a100_8x200g", "b200_nvswitch_bridges", "pcie_1x100g")
OTHERS = ("hgx_h100_ib", "cloud_vm")
FIRMWARE = {"NUM_OF_VFS": 16, "SRIOV_EN": True}
GIVEN = ("-e", json.dumps({"gpu_fabric_nic_firmware": FIRMWARE}))
WITH_OFED_TOOL, WITH_DCB = "gpu-01", "gpu-02"


def plan(run: Run) -> dict[str, Any]:
    """The plan that a run followed."""
    for _, _, result in run.results():
        found = (result.get("ansible_facts") or {}).get("gpu_fabric_plan")
        if found:
            return found
    raise AssertionError(run.describe())


def warnings(run: Run) -> str:
    return "\n".join(warning for _, _, result in run.results() for warning in result.get("warnings", []))


def changed_hosts(run: Run) -> set[str]:
    return {host for host, _ in run.changes()}


def without_ofed_tool(rack: Rack, host: str) -> None:
    """Make a node one with the distribution's own stack: iproute2 is all it has."""
    rack.shell(
        host,
        "gpu-fabric-lab stack inbox && gpu-fabric-lab set preinstalled '[\"mft\"]' && "
        "gpu-fabric-lab tool refresh >/dev/null",
    )
    assert "mlnx_qos" not in rack.shell(host, "ls /usr/local/sbin /usr/sbin")


def by_mlnx_qos(rack: Rack, netdev: str) -> dict[str, Any]:
    """A port as OFED's tool shows it."""
    lines = rack.shell(WITH_OFED_TOOL, f"mlnx_qos -i {netdev}").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    owners = {}
    for line in lines:
        words = line.split()
        if words and words[0].startswith("prio:") and "dscp:" in line:
            for code in line.split("dscp:")[1].strip().strip(",").split(","):
                owners[int(code)] = int(words[0].split(":")[1])
    trust = next(line.rpartition(":")[2].strip() for line in lines if line.startswith("Priority trust state"))
    return {"trust": trust, "pfc": [int(flag) for flag in rows["enabled"]], "dscp": owners}


def by_dcb(rack: Rack, netdev: str) -> dict[str, Any]:
    """A port as iproute2 shows it."""
    table = json.loads(rack.shell(WITH_DCB, f"dcb -N -j app show dev {netdev}"))["dscp_prio"]
    flags = json.loads(rack.shell(WITH_DCB, f"dcb -N -j pfc show dev {netdev}"))["prio_pfc"]
    named = [flag in (True, "on") for flag in (flags if isinstance(flags, list) else flags.values())]
    pairs = table.items() if isinstance(table, dict) else table
    return {
        "trust": "dscp" if table else "pcp",
        "pfc": [int(flag) for flag in named],
        "dscp": {int(k): int(v) for k, v in pairs},
    }


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    rack = Rack(nodes=2)
    yield rack
    rack.down()


def firmware_of(rack: Rack, host: str, pci: str) -> dict[str, dict[str, Any]]:
    """NUM_OF_VFS of a card as its tool shows it: default, current, next boot."""
    text = rack.shell(host, f"mlxconfig -d {pci} -e q NUM_OF_VFS")
    words = next(line.split() for line in text.splitlines() if "NUM_OF_VFS" in line)
    return dict(zip(("default", "current", "next"), words[-3:], strict=True))


@pytest.mark.parametrize("profile", [*ROCE, *OTHERS])
def test_quality_of_service_and_firmware_with_both_back_ends(rack: Rack, profile: str) -> None:
    rack.profile = profile
    rack.reset()
    without_ofed_tool(rack, WITH_DCB)
    run = rack.site("--tags", "rdma", *GIVEN)
    assert run.rc == 0, run.describe()
    hosts = plan(run)["hosts"]
    roce = plan(run)["rack"].get("roce") or {}
    for host, read in ((WITH_OFED_TOOL, by_mlnx_qos), (WITH_DCB, by_dcb)):
        ports = [port for port in hosts[host]["nic_ports"] if "pfc" in port["settings"]]
        assert len(ports) == (len(hosts[host]["rails"]) if profile in ROCE else 0)
        for port in ports:
            shown = read(rack, port["netdev"])
            assert shown["trust"] == "dscp", (host, port["netdev"])
            assert shown["pfc"] == [0, 0, 0, 1, 0, 0, 0, 0], (host, port["netdev"])
            assert shown["dscp"][roce["dscp"]] == 3
            assert shown["dscp"][roce["cnp_dscp"]] == roce["cnp_priority"]

    # What the firmware was told waits for a reset, for which there was no consent; it is told once.
    cards = {host: [card["device"] for card in hosts[host]["nic_firmware"]["cards"]] for host in rack.hosts}
    assert all(bool(named) == (profile != "cloud_vm") for named in cards.values()), hosts["gpu-01"]["nic_firmware"]
    for host, devices in cards.items():
        for device in devices:
            shown = firmware_of(rack, host, device)
            assert (shown["current"], shown["next"]) == ("8", "16"), (host, device, shown)
    again = rack.site("--tags", "rdma", *GIVEN)
    assert again.rc == 0, again.describe()
    assert again.changes() == set()
    if any(cards.values()):
        assert "fwreset" in warnings(again), again.describe()

    for host in rack.hosts:
        rack.lab(lab_power="off", lab_node=host)
        rack.lab(lab_power="on", lab_node=host)
    for host, devices in cards.items():
        for device in devices:
            assert firmware_of(rack, host, device)["current"] == "16"
    restarted = rack.site("--tags", "rdma", *GIVEN)
    assert restarted.rc == 0, restarted.describe()
    assert restarted.changes() == set(), "the nodes came back otherwise than the run had left them"
    assert "fwreset" not in warnings(restarted)


def test_one_code_point_moves_everything_that_follows_from_it(rack: Rack) -> None:
    rack.profile = "hgx_h100_roce"
    rack.reset()
    without_ofed_tool(rack, WITH_DCB)
    rack.converge()
    for dscp, traffic_class in ((26, 106), (24, 98)):
        run = rack.site("-e", f"gpu_fabric_roce_dscp={dscp}")
        assert run.rc == 0, run.describe()
        found = plan(run)
        assert found["rack"]["roce"]["traffic_class"] == traffic_class
        assert found["rack"]["roce"]["perftest_tos"] == traffic_class
        assert found["rack"]["roce"]["switch"]["dscp_to_priority"][str(dscp)] == 3
        assert found["rack"]["roce"]["switch"]["pfc"] == [0, 0, 0, 1, 0, 0, 0, 0]
        for host, read in ((WITH_OFED_TOOL, by_mlnx_qos), (WITH_DCB, by_dcb)):
            conf = rack.shell(host, "cat /etc/nccl.conf").splitlines()
            assert f"NCCL_IB_TC={traffic_class}" in conf
            for rail in found["hosts"][host]["rails"]:
                shown = read(rack, rail["netdev"])
                assert shown["dscp"][dscp] == 3
                assert shown["pfc"] == [0, 0, 0, 1, 0, 0, 0, 0]
                tos = rack.shell(
                    host, f"cat /sys/kernel/config/rdma_cm/{rail['hca']}/ports/1/default_roce_tos 2>/dev/null || :"
                )
                assert tos.strip() in ("", str(traffic_class))
        # Only OFED's driver has a traffic class of its own for every queue pair.
        shown = rack.shell(WITH_OFED_TOOL, "cat /sys/class/infiniband/*/tc/1/traffic_class 2>/dev/null || :").split()
        assert {word for word in shown if word.startswith("tclass=")} <= {f"tclass={traffic_class}"}
        assert rack.site("-e", f"gpu_fabric_roce_dscp={dscp}").changes() == set()


def test_contradictory_intent_is_refused(rack: Rack) -> None:
    rack.up()
    for given, words in (
        ({"gpu_fabric_roce_dscp": 48}, ["gpu_fabric_roce_dscp", "gpu_fabric_roce_cnp_dscp", "48"]),
        (
            {"gpu_fabric_roce_profile": "lossy", "gpu_fabric_roce_pfc_priorities": [3]},
            ["gpu_fabric_roce_pfc_priorities", "lossy"],
        ),
        ({"gpu_fabric_nccl_env": {"NCCL_IB_TC": "0"}}, ["NCCL_IB_TC", "106"]),
    ):
        run = rack.site("--tags", "rdma", "-e", json.dumps(given))
        assert run.rc != 0, given
        assert run.changes() == set()
        for word in words:
            assert word in run.messages(), run.describe()


def test_drift_by_hand_is_shown_and_mended_on_that_node_only(rack: Rack) -> None:
    rack.profile = "hgx_h100_roce"
    rack.up()
    run = rack.site("--tags", "rdma")
    assert run.rc == 0, run.describe()
    netdev = plan(run)["hosts"][WITH_OFED_TOOL]["rails"][2]["netdev"]
    before = {host: node_state(rack, host) for host in rack.hosts}
    rack.shell(
        WITH_OFED_TOOL,
        f"ip link set {netdev} mtu 1500; mlnx_qos -i {netdev} --pfc 0,0,0,0,0,0,0,0 >/dev/null;"
        "sysctl -q -w net.core.rmem_max=212992; sed -i /memlock/d /etc/security/limits.d/90-gpu-fabric.conf",
    )
    check = rack.site("--tags", "rdma", "--check", "--diff")
    assert check.rc == 0, check.describe()
    assert changed_hosts(check) == {WITH_OFED_TOOL}
    shown = "\n".join(str(result.get("diff")) for _, _, result in check.results() if result.get("changed"))
    for word in (netdev, "1500", "9000", "pfc", "212992", "memlock"):
        assert word in shown, word
    mended = rack.site("--tags", "rdma")
    assert mended.rc == 0, mended.describe()
    assert mended.changes() == check.changes()
    assert {host: node_state(rack, host) for host in rack.hosts} == before
    assert by_mlnx_qos(rack, netdev)["pfc"] == [0, 0, 0, 1, 0, 0, 0, 0]


def test_failing_canary_of_sixteen_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    rack = Rack(nodes=16)
    rack.reset()
    try:
        canary, *others = rack.hosts
        # Its file system takes no change, as after an error of its disk.
        rack.shell(
            canary,
            "mount --bind /etc/sysctl.d /etc/sysctl.d && mount -o remount,bind,ro /etc/sysctl.d",
        )
        before = {host: node_state(rack, host) for host in (others[0], others[-1])}
        batch = json.dumps({"gpu_fabric_batch": [1, "25%", "100%"]})
        # The report is made under every tag that a person gives along.
        run = rack.site("--tags", "rdma,report", "-e", batch, "-e", f"gpu_fabric_report_dir={tmp_path}")
        assert run.rc != 0
        assert run.stats[canary]["failures"] == 1, run.describe()
        assert "/etc/sysctl.d" in run.messages() and "Read-only" in run.messages(), run.describe()
        assert changed_hosts(run) <= {canary}
        assert {host: node_state(rack, host) for host in before} == before
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["hosts"][canary]["state"] == "failed"
        assert report["verdict"] == "fail"

        rack.shell(canary, "umount /etc/sysctl.d")
        run = rack.site("--tags", "rdma", "-e", batch)
        assert run.rc == 0, run.describe()
        assert changed_hosts(run) == set(rack.hosts)
        assert rack.site("--tags", "rdma").changes() == set()
    finally:
        rack.down()
