# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The intent: what is accepted, and that everything else is refused with the variable's name and what is allowed."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import (
    BY_NAME,
    OPTIONS,
    IntentError,
    Problem,
    defaults,
    lines,
    resolve,
)


def refused(**variables):
    _, problems = resolve({f"gpu_fabric_{name}": value for name, value in variables.items()})
    return {problem.variable.removeprefix("gpu_fabric_"): problem for problem in problems}


def test_defaults_are_valid_and_complete():
    intent, problems = resolve({})
    assert problems == []
    assert intent == defaults()
    assert set(intent) == set(BY_NAME)


def test_every_option_says_what_is_allowed():
    for option in OPTIONS:
        assert option.meaning.endswith(".") and option.allowed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rail_ipv4", "10.224.0.0/33"),
        ("rail_ipv4", "10.224.0.1/12"),
        ("rail_ipv4", "fd00::/48"),
        ("rail_ipv6", "10.0.0.0/8"),
        ("rail_ipv4", "10.224.0.0"),
        ("mtu", 1000),
        ("mtu", 10000),
        ("mtu", "nine"),
        ("mtu", True),
        ("roce_dscp", 64),
        ("allow_disruption", "all"),
        ("require_hardware", "maybe"),
        ("compute_devices", "mlx5_0"),
        ("compute_devices", [""]),
        ("allow_tcp", [0]),
        ("allow_tcp", [22, "http"]),
        ("admin_networks", ["10.0.0.0"]),
        ("driver_version", "latest"),
        ("driver_version", 580.1),
        ("nccl_env", ["NCCL_IB_TC=106"]),
        ("nccl_env", {"nccl_ib_tc": 106}),
        ("nccl_env", {"NCCL_IB_TC": [106]}),
        ("sysctl", {"swappiness": 1}),
        ("sysctl", {"vm.swappiness": {"value": 1}}),
        ("node_id", 0),
        ("rail_mode", "per_rail"),
        ("roce_pfc_priorities", [8]),
    ],
)
def test_bad_values_are_refused_with_the_variable_and_what_is_allowed(name, value):
    problem = refused(**{name: value})[name]
    assert problem.variable == f"gpu_fabric_{name}"
    assert problem.allowed


def test_unknown_variable_names_the_nearest_one():
    problem = refused(rail_ipv4_prefx=24)["rail_ipv4_prefx"]
    assert "no such variable" in problem.message and "gpu_fabric_rail_ipv4_prefix" in problem.message
    assert "the nearest is gpu_fabric_mtu" in refused(mtuu=1)["mtuu"].message


def test_a_bare_number_for_a_version_explains_yaml():
    assert "quotes" in refused(cuda_version=13.0)["cuda_version"].message


@pytest.mark.parametrize(
    ("variables", "name", "words"),
    [
        ({"rail_ipv4": "10.224.0.0/24", "rail_ipv4_prefix": 20}, "rail_ipv4_prefix", ["/20", "10.224.0.0/24"]),
        ({"rail_gateways": True, "rail_host_offset": 0}, "rail_host_offset", ["gateway"]),
        ({"rail_mode": "routed_31", "rail_ipv4": ""}, "rail_mode", ["IPv4"]),
        ({"rail_subnets": ["10.1.0.0/24", "10.1.0.128/25"]}, "rail_subnets", ["10.1.0.0/24", "10.1.0.128/25"]),
        ({"rail_subnets": ["fd00:1::/64", "fd00:1::/64"]}, "rail_subnets", ["overlap"]),
        ({"admin_networks": ["10.224.3.0/24"]}, "admin_networks", ["10.224.3.0/24", "gpu_fabric_rail_ipv4"]),
        ({"roce_dscp": 26, "roce_cnp_dscp": 24}, "roce_cnp_dscp", ["priority 3", "26"]),
        ({"roce_pfc_priorities": [4]}, "roce_pfc_priorities", ["priority 3"]),
        ({"roce_pfc_priorities": [3, 6]}, "roce_pfc_priorities", ["priority 6"]),
        ({"roce_pfc_priorities": [1, 2, 3]}, "roce_pfc_priorities", ["[1, 2, 3]"]),
        ({"roce_profile": "lossy", "roce_pfc_priorities": [3]}, "roce_pfc_priorities", ["lossy"]),
        ({"roce_ets": {0: 50, 3: 40}}, "roce_ets", ["add up to 90"]),
        ({"roce_ets": {6: "strict"}}, "roce_ets", ["add up to 0"]),
        ({"roce_ets": {8: 100}}, "roce_ets", ["8: 100"]),
        ({"roce_ets": {3: 100, 4: 0}}, "roce_ets", ["4: 0"]),
        ({"roce_ets": {3: 60, "3": 40}}, "roce_ets", ["named twice"]),
        ({"roce_priority_to_tc": [0, 1, 2]}, "roce_priority_to_tc", ["3 values"]),
        ({"roce_priority_to_tc": [0, 0, 0, 3, 0, 0, 3, 0]}, "roce_priority_to_tc", ["share traffic class 3"]),
        ({"roce_buffer_size": [20016]}, "roce_buffer_size", ["1 values"]),
        (
            {"roce_buffer_size": [20016] + [0] * 7, "roce_priority_to_buffer": [0, 0, 0, 1, 0, 0, 0, 0]},
            "roce_priority_to_buffer",
            ["buffer 1, whose size is 0"],
        ),
        ({"roce_accelerations": {"tx_windows": True}}, "roce_accelerations", [".tx_windows: no such key; the nearest"]),
        ({"roce_accelerations": {"tx_window": 1}}, "roce_accelerations", [".tx_window: 1 is not"]),
        ({"nic_firmware": {"sriov_en": 1}}, "nic_firmware", ["'sriov_en'"]),
        ({"nic_firmware": {"sriov_en": 1}}, "nic_firmware", ["the nearest is SRIOV_EN"]),
        ({"nic_firmware": {"SRIOV_ENN": 1}}, "nic_firmware", ["SRIOV_ENN is no", "the nearest is SRIOV_EN"]),
        ({"nic_firmware": {"CNP_DSPC_P2": 1}}, "nic_firmware", ["the nearest is CNP_DSCP_P2"]),
        ({"nic_firmware": {"HOST_CHAINING_DESCRIPTOR[0..3]": 1}}, "nic_firmware", ["HOST_CHAINING_DESCRIPTORS[0..3]"]),
        ({"nic_firmware": {"HOST_CHAINING_DESCRIPTORS[x]": 1}}, "nic_firmware", ["has no index of an array"]),
        ({"nic_firmware": {"HOST_CHAINING_DESCRIPTORS[3..1]": 1}}, "nic_firmware", ["has no index of an array"]),
        ({"nic_firmware": {"A[0..3]": 1, "A[2..4]": 2}}, "nic_firmware", ["A[2] is 1 in A[0..3] and 2 in A[2..4]"]),
        ({"nic_firmware": {"SRIOV_EN": "maybe"}}, "nic_firmware", [".SRIOV_EN: 'maybe' is not"]),
        ({"nic_firmware": {"NUM_OF_VFS": "many"}}, "nic_firmware", [".NUM_OF_VFS: 'many' is not"]),
        ({"nic_firmware": {"LINK_TYPE": "ETH IB"}}, "nic_firmware", [".LINK_TYPE: 'ETH IB' is not"]),
        ({"nic_firmware": {"SRIOV_EN": [1]}}, "nic_firmware", [".SRIOV_EN: [1] is not"]),
        ({"nic_firmware": {"LINK_TYPE_P1": "IB"}, "fabric": "roce"}, "nic_firmware", ["LINK_TYPE_P1 is IB", "roce"]),
        ({"compute_devices": ["mlx5_0"], "storage_devices": ["MLX5_0"]}, "storage_devices", ["compute_devices"]),
    ],
)  # fmt: skip
def test_contradictions(variables, name, words):
    problem = refused(**variables)[name]
    assert all(word in problem.line() for word in words), problem


@pytest.mark.parametrize(
    "variables",
    [
        {"admin_networks": ["0.0.0.0/0"]},
        {"admin_networks": ["10.0.0.0/8"]},
        {"roce_profile": "none", "roce_cnp_dscp": 26},
        {"roce_pfc_priorities": [3, 4]},
        {"roce_ets": {0: 40, 3: 60, 6: "strict"}, "roce_priority_to_tc": [0, 0, 0, 3, 0, 0, 6, 0]},
        {"roce_ets": {"3": 100}},
        {"roce_accelerations": {"adp_retrans": True, "slow_restart_idle": False}},
        {"nic_firmware": {"LINK_TYPE": "ETH", "SRIOV_EN": True, "NUM_OF_VFS": None}, "fabric": "roce"},
        {"nic_firmware": {"LINK_TYPE_P1": "eth", "LINK_TYPE_P2": "ETH(2)"}, "fabric": "roce"},
        {"nic_firmware": {"EXP_ROM_UEFI_x86_ENABLE": False}},
        {"nic_firmware": {"HOST_CHAINING_DESCRIPTORS[0..3]": 2, "HOST_CHAINING_DESCRIPTORS[1]": 3}},
        {"nic_firmware": {"SOME_NEW_PARAMETER": "WORD", "NUM_PF_MSIX": 63, "PF_LOG_BAR_SIZE": 5, "VF_BAR2_SIZE": 1}},
        {"nic_firmware": {"LRO_LOG_TIMEOUT4": 1, "FLEX_PARSER_PROFILE_ENABLE": 4, "SRIOV_EN": "True(1)"}},
        {"kernel_cmdline": ["iommu=pt"], "tuning_profile": "training"},
        {"max_read_request": 4096},
        {"roce_dscp": 24},
        {"rail_subnets": ["10.1.0.0/24", "10.1.1.0/24"]},
        {"rail_ipv4": "", "rail_ipv6": "fd00:224::/48"},
        {"require_hardware": "no"},
        {"mtu": "4200"},
        {"expected_gpus": None},
        {"node_id": "17"},
    ],
)
def test_good_values_are_accepted(variables):
    assert refused(**variables) == {}


def test_text_becomes_the_exact_type():
    intent, _ = resolve({"gpu_fabric_mtu": "4200", "gpu_fabric_require_hardware": "no", "gpu_fabric_allow_tcp": ["22"]})
    assert (intent["gpu_fabric_mtu"], intent["gpu_fabric_require_hardware"]) == (4200, False)
    assert intent["gpu_fabric_allow_tcp"] == [22]


def test_all_problems_come_at_once_and_hosts_share_lines():
    _, problems = resolve({"gpu_fabric_mtu": 1, "gpu_fabric_rail_ipv4": "x", "gpu_fabric_oops": 1})
    assert len(problems) == 3
    error = IntentError([(host, problem) for host in ("gpu-01", "gpu-02") for problem in problems])
    assert len(str(error).splitlines()) == 3
    assert str(error).splitlines()[0].startswith("gpu-01, gpu-02: ")
    many = [(f"gpu-{n:02}", Problem("v", "m", "a")) for n in range(9)]
    assert "and 4 more" in lines(many)[0]


def test_other_variables_and_the_plan_itself_are_no_intent():
    assert resolve({"ansible_host": "10.0.0.1", "gpu_fabric_plan": {}, "other": 1})[1] == []


def test_roles_declare_the_same_variables(request):
    """Role preflight's argument_specs and defaults say what OPTIONS says."""
    role = request.config.rootpath / "roles" / "preflight"
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    given_defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    declared = {name for name in specs if name.startswith("gpu_fabric_")}
    assert declared == set(BY_NAME), declared ^ set(BY_NAME)
    for name, option in BY_NAME.items():
        assert specs[name]["type"] == option.kind, name
        assert specs[name].get("default") == option.default, name
        assert given_defaults.get(name) == option.default, name
        assert tuple(specs[name].get("choices", ())) == option.choices, name


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(sorted(BY_NAME)) | st.text(max_size=12).map("gpu_fabric_".__add__), anything, max_size=6
    )
)
def test_any_values_give_an_intent_or_problems_never_an_exception(variables):
    intent, problems = resolve(variables)
    assert set(intent) == set(BY_NAME)
    assert all(problem.line() for problem in problems)


def test_every_mistake_of_a_value_is_told_once_with_its_place():
    given = {
        "gpu_fabric_rail_subnets": ["10.1.0.0/24", "10.2.0.1/24", "x", "10.3.0.0/24"],
        "gpu_fabric_allow_tcp": [22, 0, "http"],
        "gpu_fabric_thresholds": {"iperf3": 1, "ib_write_lat_us": 0},
        "gpu_fabric_ib_partitions": [{}, 5],
    }
    _, problems = resolve(given)
    assert sorted(problem.line().split(". Allowed")[0] for problem in problems) == [
        "gpu_fabric_allow_tcp[1]: 0 is not a number from 1 to 65535",
        "gpu_fabric_allow_tcp[2]: 'http' is not a number from 1 to 65535",
        "gpu_fabric_ib_partitions[1]: 5 is no mapping",
        "gpu_fabric_rail_subnets[1]: '10.2.0.1/24' is not allowed",
        "gpu_fabric_rail_subnets[2]: 'x' is not allowed",
        "gpu_fabric_thresholds.ib_write_lat_us: 0 is not allowed",
        "gpu_fabric_thresholds.iperf3: no such key; the nearest is iperf3_gbps",
    ]
