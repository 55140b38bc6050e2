# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sixteen hosts with four rails on a simulated fabric: what the real tools print, read and judged."""

from __future__ import annotations

import pytest
from railyard_ibsim import simulator
from railyard_ibsim.fat_tree import NARROW, SLOW, FatTree
from railyard_ibsim.simulator import Simulator

from ansible_collections.railyard.gpu_fabric.plugins.action.bundle_diagnose import diagnose
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    iblinkinfo,
    ibnetdiscover,
    ibqueryerrors,
    perfquery,
)
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate

HOSTS, RAILS, GROUP = 16, 4, 8

pytestmark = pytest.mark.skipif(simulator.lacking() is not None, reason=str(simulator.lacking()))


def fabric(**options: bool) -> FatTree:
    return FatTree(HOSTS, RAILS, GROUP, **options)


def simulated(tree: FatTree, scratch) -> Simulator:
    return Simulator(tree.text(), tree.node_id(tree.adapter(tree.hosts[0], 0)), scratch)


def record(tree: FatTree, scratch) -> dict[str, str]:
    with simulated(tree, scratch) as running:
        return running.recordings()


def judge(tree: FatTree, recorded: dict[str, str]) -> list[tuple[str, str, str]]:
    found = evaluate(tree.facts(), tree.plan(), {}, recorded)
    assert not {"RF-INTERNAL", "RF-FACTS-UNREADABLE"} & {f["id"] for f in found}, found
    return [(f["id"], f["host"], f["message"]) for f in found if f["id"].startswith(("RF-CABLE", "RF-LINK"))]


def only(found: list[tuple[str, str, str]], id_: str, host: str) -> str:
    assert [entry[:2] for entry in found] == [(id_, host)], found
    return found[0][2]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """What every tool prints of a healthy fabric, in each of its forms."""
    tree = fabric()
    with simulated(tree, tmp_path_factory.mktemp("fabric")) as running:
        recorded = running.recordings()
        recorded["ibnetdiscover_p.txt"] = running.run("ibnetdiscover", "-p")
        recorded["iblinkinfo_l.txt"] = running.run("iblinkinfo", "-l")
        recorded["perfquery.txt"] = running.run("perfquery", "1", "1")
        recorded["perfquery_x.txt"] = running.run("perfquery", "-x", "1", "1")
    return tree, recorded


@pytest.mark.parametrize("form", ["ibnetdiscover.txt", "ibnetdiscover_p.txt"])
def test_ibnetdiscover_is_read_without_a_remainder(healthy, form):
    tree, recorded = healthy
    parsed = ibnetdiscover.parse(recorded[form])
    assert parsed.problems == ()
    linked = {
        (row["description"], row["port"]): (row["peer"]["description"], row["peer"]["port"])
        for row in parsed.value["links"]
        if "peer" in row
    }
    wanted = {cable.low: cable.high for cable in tree.cables}
    assert linked == {**wanted, **{high: low for low, high in wanted.items()}}
    assert {(row["width"], row["speed"]) for row in parsed.value["links"] if "peer" in row} == {(4, "HDR")}


@pytest.mark.parametrize("form", ["iblinkinfo.txt", "iblinkinfo_l.txt"])
def test_iblinkinfo_is_read_without_a_remainder(healthy, form):
    tree, recorded = healthy
    parsed = iblinkinfo.parse(recorded[form])
    assert parsed.problems == ()
    ports = [(node["description"], port["port"], port) for node in parsed.value["nodes"] for port in node["ports"]]
    ends = {cable.low for cable in tree.cables} | {cable.high for cable in tree.cables}
    up = [(name, number) for name, number, port in ports if port["state"] == "active"]
    assert sorted(up) == sorted(ends)
    down = [port for name, number, port in ports if (name, number) not in ends]
    assert len(down) == len(tree.switches)  # the generator leaves one port of each without a cable
    assert {(port["state"], port["phys_state"]) for port in down} == {("down", "polling")}
    assert {port["rate_gbps"] for name, number, port in ports if (name, number) in ends} == {200.0}


def test_counters_are_read_without_a_remainder(healthy):
    _tree, recorded = healthy
    parsed = ibqueryerrors.parse(recorded["ibqueryerrors.txt"])
    assert parsed.problems == () and parsed.value["nodes"] == []
    assert parsed.value["summary"]["bad_ports"] == 0
    for form, counter in (("perfquery.txt", "SymbolErrorCounter"), ("perfquery_x.txt", "PortUnicastXmitPkts")):
        port = perfquery.parse(recorded[form])
        assert port.problems == ()
        assert port.value["ports"][0]["counters"][counter] == 0


@pytest.mark.parametrize("tools", [("ibnetdiscover", "iblinkinfo"), ("ibnetdiscover",), ("iblinkinfo",)])
def test_a_healthy_fabric_has_no_finding(healthy, tools):
    tree, recorded = healthy
    assert judge(tree, {f"{tool}.txt": recorded[f"{tool}.txt"] for tool in tools}) == []


def test_two_cables_of_one_host_swapped(tmp_path):
    tree = fabric()
    tree.swap(("gpu-0012", 1), ("gpu-0012", 2))  # one of those whose devices are enumerated backwards
    message = only(judge(tree, record(tree, tmp_path)), "RF-CABLE-SWAPPED", "gpu-0012")
    assert "mlx5_2 (rail 1) of gpu-0012 is on leaf-2-r2 port 4, leaf-2-r1 port 4 wanted" in message
    assert "there is mlx5_1 (rail 2) of gpu-0012" in message


def test_cables_of_two_hosts_swapped(tmp_path):
    tree = fabric()
    tree.swap(("gpu-0003", 0), ("gpu-0007", 3))
    message = only(judge(tree, record(tree, tmp_path)), "RF-CABLE-SWAPPED", "gpu-0003")
    assert "mlx5_0 (rail 0) of gpu-0003 is on leaf-1-r3 port 7, leaf-1-r0 port 3 wanted" in message
    assert "there is mlx5_3 (rail 3) of gpu-0007" in message


def test_the_same_rail_of_two_groups_swapped(tmp_path):
    tree = fabric()
    tree.swap(("gpu-0002", 2), ("gpu-0013", 2))
    message = only(judge(tree, record(tree, tmp_path)), "RF-CABLE-SWAPPED", "gpu-0002")
    assert "is on leaf-2-r2 port 5, leaf-1-r2 port 2 wanted" in message


def test_a_cable_in_the_wrong_leaf(tmp_path):
    tree = fabric()
    spare = tree.switches["leaf-2-r0"].ports
    tree.move("gpu-0010", 3, ("leaf-2-r0", spare))
    message = only(judge(tree, record(tree, tmp_path)), "RF-CABLE-RAIL", "gpu-0010")
    assert f"mlx5_3 (rail 3) of gpu-0010 is on leaf-2-r0 port {spare}, leaf-2-r3 port 2 wanted" in message


def test_a_dead_link(tmp_path):
    tree = fabric()
    tree.cut("gpu-0008", 2)
    message = only(judge(tree, record(tree, tmp_path)), "RF-LINK-MISSING", "gpu-0008")
    assert "mlx5_1 (rail 2) is not in the fabric" in message
    assert "leaf-1-r2 port 8 wanted (that port is down/polling)" in message


def test_a_link_that_dies_while_the_fabric_runs(tmp_path):
    tree = fabric()
    with simulated(tree, tmp_path) as running:
        running.console(f'Unlink "{tree.node_id("leaf-2-r1")}"[6]')
        recorded = running.recordings()
    message = only(judge(tree, recorded), "RF-LINK-MISSING", "gpu-0014")
    assert "mlx5_1 (rail 1) is not in the fabric; a link on leaf-2-r1 port 6 wanted" in message


def test_a_host_that_is_off(tmp_path):
    tree = fabric()
    for rail in range(RAILS):
        tree.cut("gpu-0016", rail)
    message = only(judge(tree, record(tree, tmp_path)), "RF-LINK-MISSING", "gpu-0016")
    assert "none of" in message and "(rail 3)" in message


def test_a_dead_link_between_switches(tmp_path):
    tree = fabric()
    tree.cut_uplink("leaf-1-r3", "spine-5")
    message = only(judge(tree, record(tree, tmp_path)), "RF-LINK-UPLINKS", "")
    assert "leaf-1-r3 has 7 links upwards, 8 wanted (as 7 of 8 switches of its tier)" in message
    assert "port 13 is down/polling" in message and "lacking to spine-5" in message


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (SLOW, "is slow: 4x EDR (100 Gb/s), 200 Gb/s wanted"),
        (NARROW, "is narrow: 1x HDR (50 Gb/s), 4x, 200 Gb/s wanted"),
    ],
)
def test_a_slow_or_narrow_rail(tmp_path, option, words):
    tree = fabric()
    tree.cable("gpu-0006", 1).options = option
    message = only(judge(tree, record(tree, tmp_path)), "RF-LINK-DEGRADED", "gpu-0006")
    assert f"mlx5_1 (rail 1) to leaf-1-r1 port 6 {words}" in message


def test_a_slow_link_between_switches(tmp_path):
    tree = fabric()
    tree.uplink("leaf-2-r1", "spine-4").options = SLOW
    message = only(judge(tree, record(tree, tmp_path)), "RF-LINK-DEGRADED", "")
    assert "leaf-2-r1 port 12 to spine-4 port 6 is slow: 4x EDR" in message


def test_errors_of_a_link_name_both_ends(tmp_path):
    tree = fabric()
    with simulated(tree, tmp_path) as running:
        running.count_errors(tree.node_id("leaf-1-r0"), 5, "SymbolErrorCounter", 777)
        recorded = running.recordings()
    message = only(judge(tree, recorded), "RF-LINK-ERRORS", "gpu-0005")
    assert "gpu-0005 mlx5_0 port 1 - leaf-1-r0 port 5" in message and "SymbolErrorCounter 777" in message


def test_several_faults_at_once_are_told_apart(tmp_path):
    tree = fabric()
    tree.swap(("gpu-0001", 0), ("gpu-0001", 3))
    tree.cut("gpu-0001", 1)
    tree.cable("gpu-0001", 2).options = SLOW
    tree.cut_uplink("leaf-2-r0", "spine-1")
    found = judge(tree, record(tree, tmp_path))
    assert sorted(entry[0] for entry in found) == [
        "RF-CABLE-SWAPPED",
        "RF-LINK-DEGRADED",
        "RF-LINK-MISSING",
        "RF-LINK-UPLINKS",
    ]


def test_a_bundle_with_nothing_but_the_fabric(tmp_path):
    """Hosts and devices are known by the adapters' descriptions then."""
    tree = fabric(renamed=False)
    tree.swap(("gpu-0009", 1), ("gpu-0009", 2))
    tree.cut("gpu-0004", 3)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for name, text in record(tree, tmp_path / "fabric").items():
        (bundle / name).write_text(text, encoding="utf-8")
    found = diagnose(bundle)["findings"]
    assert [(f["id"], f["host"], f["device"]) for f in found] == [
        ("RF-CABLE-SWAPPED", "gpu-0009", "mlx5_1"),
        ("RF-LINK-MISSING", "gpu-0004", "mlx5_3"),
    ]


def test_a_recording_cut_off_accuses_nobody_of_missing_links(healthy):
    tree, recorded = healthy
    text = recorded["ibnetdiscover_p.txt"]
    found = evaluate(tree.facts(), tree.plan(), {}, {"ibnetdiscover_p.txt": text[: len(text) * 2 // 3]})
    assert {f["id"] for f in found} == {"RF-FACTS-UNREADABLE"}
