# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_rack import hardware, layout

PORTS = [
    {"name": "enp1s0", "mac": "AA:00:00:00:00:01", "network": "rail0"},
    {"name": "enp2s0", "mac": "aa:00:00:00:00:02", "network": "rail1"},
]


def rack(count: int = 2, **changes):
    values = {
        "name": "railyard", "count": count, "profile": "p", "subnet": "10.89.7.0/24", "engine": "podman",
        "image": "localhost/i:1", "port": 8080, "nics_of": lambda host: PORTS,
    }  # fmt: skip
    return layout.build(**{**values, **changes})


def test_nodes_have_addresses_of_the_subnet_and_eth0_first():
    found = rack()
    assert [node["name"] for node in found["nodes"]] == ["gpu-01", "gpu-02"]
    assert [node["address"] for node in found["nodes"]] == ["10.89.7.11", "10.89.7.12"]
    assert found["gateway"] == "10.89.7.1"
    assert [nic["name"] for nic in found["nodes"][0]["nics"]] == ["eth0", "enp1s0", "enp2s0"]
    assert found["nodes"][0]["nics"][1]["mac"] == "aa:00:00:00:00:01"


def test_management_macs_differ_and_are_locally_administered_unicast():
    macs = {layout.management_mac("railyard", name) for name in layout.node_names(64)}
    assert len(macs) == 64
    assert all(int(mac[:2], 16) & 0b11 == 0b10 for mac in macs)


def test_controller_interface_names_fit():
    assert len(rack()["bridge"]) <= 15
    assert layout.tag("railyard") != layout.tag("other")


@pytest.mark.parametrize("count", [0, 65])
def test_node_count_out_of_range_is_refused(count):
    with pytest.raises(layout.LayoutError, match=f"lab_nodes is {count}"):
        rack(count)


def test_small_subnet_is_refused():
    with pytest.raises(layout.LayoutError, match="too small for 16 nodes"):
        rack(16, subnet="10.1.0.0/28")


@pytest.mark.parametrize("name", ["", "Upper", "-x", "a b", "a" * 40])
def test_bad_name_is_refused(name):
    with pytest.raises(layout.LayoutError, match="lab_name"):
        rack(name=name)


def test_an_interface_that_a_profile_has_twice_is_refused():
    with pytest.raises(layout.LayoutError, match="enp1s0 twice"):
        rack(nics_of=lambda host: [PORTS[0], PORTS[0]])


@pytest.mark.parametrize("change", [{"image": "localhost/i:2"}, {"subnet": "10.89.8.0/24"}, {"count": 3}])
def test_spec_changes_with_what_a_container_is_made_of(change):
    assert rack(**{"count": 2, **change})["nodes"][0]["spec"] != rack(2)["nodes"][0]["spec"]


def test_spec_is_stable():
    assert rack()["nodes"][1]["spec"] == rack()["nodes"][1]["spec"]


def test_subnet_skips_what_is_routed():
    assert layout.choose_subnet(["10.89.0.0/24", "10.89.1.128/25", "192.168.0.0/16"]) == "10.89.2.0/24"
    assert layout.choose_subnet(["0.0.0.0/0", "fd00::/8"]) == "10.89.0.0/24"


def test_wanted_subnet_is_kept_or_refused():
    assert layout.choose_subnet(["10.0.0.0/24"], "10.9.9.0/24") == "10.9.9.0/24"
    with pytest.raises(layout.LayoutError, match=r"10\.9\.9\.0/24 overlaps"):
        layout.choose_subnet(["10.9.0.0/16"], "10.9.9.0/24")


def test_no_free_subnet_says_what_to_set():
    with pytest.raises(layout.LayoutError, match="set lab_subnet"):
        layout.choose_subnet(["10.88.0.0/13"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 255), st.integers(16, 32)), max_size=30))
def test_chosen_subnet_never_overlaps(routes):
    used = [str(ipaddress.ip_network((f"10.89.{third}.0", length), strict=False)) for third, length in routes]
    try:
        chosen = ipaddress.ip_network(layout.choose_subnet(used))
    except layout.LayoutError:
        covered = ipaddress.collapse_addresses(ipaddress.ip_network(text) for text in used)
        assert sum(1 for _ in covered) > 0
        return
    assert not any(chosen.overlaps(ipaddress.ip_network(text)) for text in used)


def test_ports_hang_on_one_switch_per_rail_and_infiniband_ports_on_one_for_all():
    def port(name, role, rail=None, **more):
        return {"name": name, "mac": "m", "role": role, "rail": rail, "link_layer": "Ethernet", "plugged": True, **more}

    found = hardware.cables(
        [
            port("a", "compute", 0),
            port("b", "compute", 1),
            port("s0", "storage"),
            port("s1", "storage"),
            port("m", "management"),
            port("ib0", "compute", 2, link_layer="InfiniBand"),
            port("ib1", "compute", 3, link_layer="InfiniBand"),
            port("u", "storage", plugged=False),
        ]
    )
    assert {cable["name"]: cable["network"] for cable in found} == {
        "a": "rail0", "b": "rail1", "s0": "storage0", "s1": "storage1", "m": "frontend",
        "ib0": "infiniband", "ib1": "infiniband",
    }  # fmt: skip


@pytest.mark.parametrize("profile", hardware.lab("profiles").split())
def test_every_profile_can_be_cabled(profile):
    first = hardware.nics_of(profile, "gpu-01")
    second = hardware.nics_of(profile, "gpu-02")
    assert [nic["name"] for nic in first] == [nic["name"] for nic in second]
    assert not {nic["mac"] for nic in first} & {nic["mac"] for nic in second}
    assert all(len(nic["name"]) <= 15 for nic in first)
    rack(nics_of=lambda host: hardware.nics_of(profile, host))


def test_an_unknown_profile_is_refused_in_one_line():
    with pytest.raises(hardware.HardwareError) as raised:
        hardware.nics_of("no_such_profile", "gpu-01")
    assert "no_such_profile" in str(raised.value)
    assert "\n" not in str(raised.value)
