# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibstat``: every form, state and vendor; and what a text that lacks something must not be read as."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import decode, differences, fixture_files

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import ibstat

FIXTURES = {path.stem: decode(path.read_bytes()) for path in fixture_files("ibstat")}
FULL = FIXTURES["ndr_and_roce"]


def read(name):
    return ibstat.parse(FIXTURES[name])


def summary(value):
    keys = ("port", "state", "phys_state", "rate_gbps", "link_layer")
    return [(ca["name"], *(port.get(key) for key in keys)) for ca in value["cas"] for port in ca["ports"]]


def test_every_field_of_a_device():
    value, problems = read("ndr_and_roce")
    assert value["cas"][0] == {
        "name": "mlx5_0",
        "node_type": "ca",
        "ca_type": "MT4129",
        "number_of_ports": 1,
        "firmware": "28.43.2566",
        "hardware": "0",
        "node_guid": "b8cef60300000a10",
        "system_image_guid": "b8cef60300000a10",
        "extra": {},
        "ports": [
            {
                "port": 1,
                "state": "active",
                "phys_state": "linkup",
                "rate_gbps": 400.0,
                "rate_text": "400",
                "base_lid": 12,
                "lmc": 0,
                "sm_lid": 1,
                "capability_mask": "0xa751e848",
                "port_guid": "b8cef60300000a10",
                "link_layer": "InfiniBand",
                "extra": {},
            }
        ],
    }
    assert summary(value)[1:] == [
        ("mlx5_10", 1, "down", "polling", 10.0, "InfiniBand"),
        ("mlx5_2", 1, "active", "linkup", 100.0, "Ethernet"),
    ]
    assert (value["form"], value["partial"], problems) == ("full", False, ())


def test_no_newline_at_the_end_is_whole_when_the_last_word_is():
    assert read("no_newline_at_end").value == read("ndr_and_roce").value
    assert read("no_newline_at_end").problems == ()


def test_two_ports_and_the_rarer_states():
    value, problems = read("mlx4_two_ports_states")
    assert summary(value) == [
        ("mlx4_0", 1, "armed", "linkup", 56.0, "InfiniBand"),
        ("mlx4_0", 2, "initializing", "linkerrorrecovery", 40.0, "InfiniBand"),
    ]
    assert value["cas"][0]["ports"][1]["rate_text"] == "40 (FDR10)"
    assert problems == ()


def test_effective_speed():
    port = read("effective_speed_xdr").value["cas"][0]["ports"][0]
    assert (port["rate_gbps"], port["effective_speed_gbps"]) == (800.0, 793.5)


def test_devices_of_other_vendors_and_of_software():
    value, _problems = read("software_and_other_vendors")
    cas = {ca["name"]: ca for ca in value["cas"]}
    assert list(cas) == ["rxe0", "siw0", "bnxt_re0", "hfi1_0", "mana_0", "rdmap113s0"]
    assert cas["siw0"]["node_type"] == "rnic"
    assert not {"ca_type", "firmware", "hardware"} & set(cas["rxe0"])
    assert cas["rxe0"]["ports"][0]["rate_gbps"] == 2.5
    assert cas["rdmap113s0"]["ca_type"] == "EFA"
    assert cas["rdmap113s0"]["ports"][0]["extra"] == {"Link layer": "Unspecified"}
    assert "link_layer" not in cas["rdmap113s0"]["ports"][0]


def test_releases_without_link_layer_are_whole():
    value, problems = read("no_link_layer_old_release")
    assert [port["state"] for port in value["cas"][0]["ports"]] == ["active", "down"]
    assert value["partial"] is False and problems == ()


def test_one_port():
    value, problems = read("one_port_unindented")
    assert summary(value) == [("mlx5_3", 1, "active", "linkup", 200.0, "InfiniBand")]
    assert (value["form"], value["partial"], problems) == ("port", False, ())


def test_short_list_and_guids():
    short = read("short").value
    assert (short["form"], [ca["name"] for ca in short["cas"]]) == ("short", ["mlx5_0", "mlx5_1"])
    assert short["partial"] is False
    names = read("list").value
    assert (names["form"], [ca["name"] for ca in names["cas"]]) == (
        "list",
        ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_bond_0"],
    )
    guids = read("guids").value
    assert (guids["form"], guids["port_guids"]) == ("guids", ["043f72030000ab10", "043f72030000ac10"])


def test_a_panic_behind_good_devices_is_told():
    value, problems = read("spaces_prompt_and_panic")
    assert summary(value) == [("mlx5_0", 1, "active", "linkup", 200.0, "InfiniBand")]
    assert value["failed_devices"] == ["mlx5_1"] and value["partial"] is True
    assert len(value["errors"]) == 1 and "mlx5_1" in problems[0].text


def test_lines_of_several_hosts_do_not_mix():
    value, _problems = read("pdsh_two_hosts")
    assert [(ca["host"], ca["name"], ca["ports"][0]["state"]) for ca in value["cas"]] == [
        ("gpu-1", "mlx5_0", "active"),
        ("gpu-2", "mlx5_0", "down"),
    ]


def test_filtered_output_keeps_ports_apart():
    value, problems = read("grepped")
    assert [(port["state"], port["rate_gbps"]) for port in value["cas"][0]["ports"]] == [
        ("active", 400.0),
        ("down", 10.0),
    ]
    assert value["form"] == "filtered" and len(problems) == 1


def test_unknown_fields_are_kept():
    first = read("unknown_fields").value["cas"][0]
    assert first["extra"] == {"Firmware date": "2024-11-05"}
    assert first["ports"][0]["extra"] == {"Plane mask": "0x0f"}


def test_remarks_and_marks_of_a_document():
    text = FULL.replace("'mlx5_2'", "'mlx5\\_2'").replace("State: Down\n", "State: Down   # no cable\n")
    value, problems = ibstat.parse(text.replace("Rate: 100\n", "Rate: 100 Gbps\n"))
    assert summary(value) == summary(ibstat.parse(FULL).value) and problems == ()


def test_a_quoted_mail():
    assert read("quoted_mail").value["cas"] == read("mlx4_two_ports_states").value["cas"]


def test_quotes_and_blanks_of_a_web_page():
    assert summary(read("web_page_quotes_and_blanks").value) == [("mlx5_0", 1, "active", "linkup", 400.0, "InfiniBand")]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("\t\tRate: 4", "rate_gbps"),
        ("\t\tRate: 400", "rate_gbps"),
        ("\t\tBase lid: 1", "base_lid"),
        ("\t\tSM lid: 1", "sm_lid"),
        ("\t\tState: Activ", "state"),
        ("\t\tCapability mask: 0xa751e84", "capability_mask"),
        ("\t\tPort GUID: 0xb8cef60300000a1", "port_guid"),
        ("\t\tLink layer: Infini", "link_layer"),
    ],
)
def test_a_cut_value_is_absent_and_told(line, key):
    head = FULL[: FULL.index(line.split(":")[0] + ":")]
    value, problems = ibstat.parse(head + line)
    assert key not in value["cas"][0]["ports"][0]
    assert value["partial"] is True
    assert any(problem.text == line.strip() for problem in problems)


@pytest.mark.parametrize(
    ("line", "key", "wanted"),
    [
        ("\t\tState: Active", "state", "active"),
        ("\t\tPhysical state: LinkUp", "phys_state", "linkup"),
        ("\t\tCapability mask: 0xa751e848", "capability_mask", "0xa751e848"),
        ("\t\tPort GUID: 0xb8cef60300000a10", "port_guid", "b8cef60300000a10"),
    ],
)
def test_a_last_value_that_proves_itself_is_kept(line, key, wanted):
    value, _problems = ibstat.parse(FULL[: FULL.index(line)] + line)
    assert value["cas"][0]["ports"][0][key] == wanted


def test_a_cut_name_or_number_opens_nothing():
    assert ibstat.parse("CA 'mlx5_1").value["cas"] == []
    assert ibstat.parse("mlx5_0\nmlx5_1").value["cas"] == [{"name": "mlx5_0", "ports": [], "extra": {}}]
    cut = FULL[: FULL.index("\tPort 1:")] + "\tPort 1"
    assert ibstat.parse(cut).value["cas"][0]["ports"] == []


def test_a_lost_header_does_not_give_its_fields_to_the_device_above():
    lost = FULL.replace("CA 'mlx5_10'\n", "")
    value, problems = ibstat.parse(lost)
    assert list(differences(value, ibstat.parse(FULL).value)) == []
    assert value["cas"][0]["ports"][0]["state"] == "active"
    assert [ca["name"] for ca in value["cas"]] == ["mlx5_0", "mlx5_2"]
    assert problems


def test_text_of_something_else_is_told():
    for text in ("mlx5_0 port 1 ==> ib0 (Up)\n", "Welcome to gpu-7\n"):
        value, problems = ibstat.parse(text)
        assert value["cas"] == [] and problems
    value, problems = ibstat.parse("-bash: ibstat: command not found\n")
    assert value["errors"] == ["-bash: ibstat: command not found"] and problems


def test_nothing_at_all_is_no_device_and_no_problem():
    value, problems = ibstat.parse("")
    assert value["cas"] == [] and value["form"] == "empty" and problems == ()


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,10}[0-9]", fullmatch=True)
STATES = {"Down": "down", "Initializing": "initializing", "Armed": "armed", "Active": "active"}
PHYSICAL = {"Polling": "polling", "LinkUp": "linkup", "Disabled": "disabled", "Sleep": "sleep", "PhyTest": "phytest"}
PORTS = st.tuples(
    st.sampled_from(sorted(STATES)),
    st.sampled_from(sorted(PHYSICAL)),
    st.sampled_from([10, 25, 40, 56, 100, 200, 400, 800]),
    st.integers(0, 65535),
    st.integers(0, 2**64 - 1),
    st.sampled_from(["InfiniBand", "Ethernet"]),
)


def render(devices):
    lines = []
    for name, ports in devices:
        lines += [f"CA '{name}'", "\tCA type: MT4129", f"\tNumber of ports: {len(ports)}"]
        lines += ["\tFirmware version: 28.43.2566", "\tHardware version: 0"]
        lines += ["\tNode GUID: 0xb8cef60300000a10", "\tSystem image GUID: 0xb8cef60300000a10"]
        for number, (state, physical, rate, lid, guid, layer) in enumerate(ports, 1):
            lines += [
                f"\tPort {number}:",
                f"\t\tState: {state}",
                f"\t\tPhysical state: {physical}",
                f"\t\tRate: {rate}",
            ]
            lines += [f"\t\tBase lid: {lid}", "\t\tLMC: 0", "\t\tSM lid: 1", "\t\tCapability mask: 0x2651e848"]
            lines += [f"\t\tPort GUID: 0x{guid:016x}", f"\t\tLink layer: {layer}"]
    return "\n".join(lines) + "\n"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(NAMES, st.lists(PORTS, min_size=1, max_size=3)), min_size=1, max_size=4),
    st.integers(0, 10**6),
)
def test_what_ibstat_prints_is_read_back_and_a_cut_of_it_never_differs(devices, offset):
    text = render(devices)
    value, problems = ibstat.parse(text)
    assert problems == () and value["partial"] is False
    assert [
        (
            ca["name"],
            [(p["state"], p["phys_state"], p["rate_gbps"], p["base_lid"], p["port_guid"]) for p in ca["ports"]],
        )
        for ca in value["cas"]
    ] == [
        (name, [(STATES[s], PHYSICAL[ph], float(rate), lid, f"{guid:016x}") for s, ph, rate, lid, guid, _l in ports])
        for name, ports in devices
    ]
    cut = ibstat.parse(text[: offset % len(text)])
    assert list(differences(cut.value, value)) == []
