# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the right type that no host or network would take are refused in the plan, not half-way through a run."""

from __future__ import annotations

import ipaddress

import boxes
import pytest
from boxes import plan_one, rack
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._sysctl import _checked
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import value_checks
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError, resolve


def problems(**variables):
    return resolve({f"gpu_fabric_{name}": value for name, value in variables.items()})[1]


PRINT = "0123 4567 89AB CDEF 0123 4567 89AB CDEF 0123 4567"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rail_ipv4", "127.0.0.0/8", "loopback"),
        ("rail_ipv4", "224.0.0.0/8", "multicast"),
        ("rail_ipv4", "169.254.0.0/16", "link-local"),
        ("rail_ipv4", "240.0.0.0/4", "reserved"),
        ("rail_ipv4", "0.0.0.0/0", "unspecified"),
        ("rail_ipv6", "fe80::/48", "link-local"),
        ("rail_ipv6", "ff00::/16", "multicast"),
        ("rail_ipv6", "::/0", "unspecified"),
        ("rail_subnets", ["10.1.0.0/24", "127.1.0.0/24"], "127.1.0.0/24 holds loopback"),
        ("sysctl", {"-vm.swappiness": 1}, "'-vm.swappiness' is no kernel parameter"),
        ("sysctl", {"net.ipv4.conf.*.rp_filter": 1}, "is no kernel parameter"),
        ("sysctl", {"swappiness": 1}, "is no kernel parameter"),
        ("sysctl", {"vm.swappiness": ""}, "vm.swappiness: ''"),
        ("sysctl", {"vm.swappiness": "1\nkernel.panic=1"}, "vm.swappiness: '1"),
        ("sysctl", {"vm.swappiness": 1, "vm/swappiness": 2}, "the same parameter"),
        ("sysctl", {"vm.swappiness": 1, "vm/swappiness": None}, "the same parameter"),
        ("repository", {"ulr": "https://mirror.example/x"}, ".ulr: no such key; the nearest is url"),
        ("repository", {"doca_version": "3.2.1"}, ".doca_version: no such key"),
        ("repository", {"name": "My Mirror"}, "name: 'My Mirror'"),
        ("repository", {"url": "mirror.example", "key_url": "https://mirror.example/k"}, "url: 'mirror.example'"),
        ("repository", {"url": "https://mirror.example"}, "exactly one of key"),
        ("repository", {"url": "https://mirror.example", "key_url": "x", "key": "y"}, "key, key_url"),
        ("repository", {"suite": "a b"}, "suite: 'a b'"),
        ("repository", {"suite": "/\nTrusted: yes"}, ".suite: '"),
        ("repository", {"key_fingerprints": "0123"}, ".key_fingerprints: '0123' is not allowed"),
        ("repository", {"key_fingerprints": ["0123"]}, "'0123' is no fingerprint"),
        ("repository", {"key_fingerprints": ["Z" * 40]}, "is no fingerprint"),
        ("repository", {"components": ["main\nTrusted: yes"]}, ".components: ["),
        ("ofed_repository", {"urll": "x"}, "the nearest is url"),
        ("thresholds", {"ib_write_bw_gbps": "lots"}, ".ib_write_bw_gbps: 'lots' is not allowed"),
        ("thresholds", {"iperf3_gbps": True}, ".iperf3_gbps: True is not"),
        ("thresholds", {"iperf3_gbps": -1}, ".iperf3_gbps: -1 is not"),
        ("thresholds", {"iperf3_gbps": float("nan")}, ".iperf3_gbps: nan is not"),
        ("thresholds", {"iperf3_gbps": [1]}, ".iperf3_gbps: [1] is not"),
        ("thresholds", {"ib_write_bw_gbps": {"9": 1}}, ".ib_write_bw_gbps: {'9': 1} is not"),
        ("thresholds", {"iperf_gbps": 5}, "the nearest is iperf3_gbps"),
        ("mtu", "9_000", "'9_000'"),
        ("mtu", "\uff19000", "'\uff19000'"),
        ("allow_tcp", ["٢٢"], "is not a number"),
        ("batch", "9" * 5000, "999"),
        ("batch", "٣", "'٣'"),
        ("driver_version", "٥٨٠.95", "'٥٨٠.95'"),
        ("driver_version", "9" * 5000 + ".1", "999"),
        ("services_memlock", ["../../etc"], "'../../etc'"),
        ("services_memlock", ["a/b"], "'a/b'"),
        ("kernel_cmdline", ["a\0b"], "a\\x00b"),
        ("kernel_cmdline", ["a\nb"], "a\\nb"),
        ("kernel_cmdline", ["a;reboot"], "'a;reboot' is no argument of a kernel"),
        ("kernel_cmdline", ['x="y"'], "is no argument of a kernel"),
        ("kernel_cmdline", ["iommu=pt", "iommu=off"], "contradict"),
        ("nccl_env", {"PATH": "/tmp"}, "'PATH' is no variable of NCCL"),
        ("nccl_env", {"LD_PRELOAD": "x.so"}, "'LD_PRELOAD'"),
        ("nccl_env", {"NCCL_DEBUG": "INFO\nLD_PRELOAD=x"}, ".NCCL_DEBUG: 'INFO"),
    ],
)
def test_refused_by_name_with_value_and_what_is_allowed(name, value, said):
    (problem,) = problems(**{name: value})
    assert problem.variable == f"gpu_fabric_{name}"
    assert said in problem.line() and problem.allowed, problem


@pytest.mark.parametrize(
    "variables",
    [
        {"rail_ipv4": "172.16.0.0/12", "rail_ipv6": "2001:db8::/48"},
        {"sysctl": {"vm.swappiness": 1, "vm/swappiness": "1", "net/ipv4/conf/eth0.100/rp_filter": None}},
        {"sysctl": {"net.ipv4.tcp_rmem": "4096\t131072 67108864"}},
        {"repository": {"url": "file:/srv/mirror", "key_file": "/srv/key.gpg", "key_fingerprints": [PRINT]}},
        {"repository": {"key_fingerprints": [PRINT.replace(" ", "")]}},
        {"ofed_repository": {"doca_version": "3.1.0"}},
        {"thresholds": dict.fromkeys(value_checks.THRESHOLDS, "12.5") | {"iperf3_gbps": None}},
        {"services_memlock": ["getty@tty1", "slurmd.service"]},
        {"kernel_cmdline": ["iommu=pt", "intel_iommu=on"], "iommu": "passthrough"},
        {"nccl_env": {"UCX_TLS": "rc", "NCCL_DEBUG": "WARN", "OFI_NCCL_PROTOCOL": None}},
        {"rail_mode": "routed_31", "rail_ipv4": "", "rail_subnets": ["10.1.0.0/24"]},
    ],
)
def test_usable_values_are_taken(variables):
    assert problems(**variables) == []


@pytest.mark.parametrize("token", ["iommu=off", "iommu=nopt", "intel_iommu=off"])
def test_passthrough_against_the_cmdline(token):
    (problem,) = problems(kernel_cmdline=[token], iommu="passthrough")
    assert token in problem.message
    assert problems(kernel_cmdline=[token], tuning_profile="training")
    assert problems(kernel_cmdline=[token], tuning_profile="training", iommu="untouched") == []


@given(st.dictionaries(st.text("av.*-/x\n 1", max_size=6), st.none() | st.text(max_size=4) | st.integers(), max_size=3))
def test_the_plan_takes_a_sysctl_exactly_where_the_module_does(settings):
    given_values = {key: value for key, value in settings.items() if value is not None}
    refused = bool(problems(sysctl=given_values))
    try:
        _checked(given_values)
        assert not refused
    except Failure:
        assert refused


@given(st.integers(0, 2**32 - 1), st.integers(8, 30))
def test_a_pool_is_refused_exactly_where_its_addresses_are_special(number, prefix):
    net = ipaddress.ip_network((number, prefix), strict=False)
    first, last = net[0], net[-1]
    special = any(a.is_loopback or a.is_multicast or a.is_link_local or a.is_reserved for a in (first, last))
    special = special or int(first) < 1 << 24 or net.supernet_of(ipaddress.ip_network("169.254.0.0/16"))
    assert bool(value_checks.unusable(str(net))) == bool(special)


def test_a_spelling_of_its_own_overrides_and_removes_the_planned_parameter():
    planned = plan_one(boxes.hgx_h100(), sysctl={"net/core/somaxconn": True, "net/core/rmem_max": None})["sysctl"]
    values = planned.get("set", planned)
    assert values["net.core.somaxconn"]["value"] == "1"
    assert "net/core/somaxconn" not in values and "net.core.rmem_max" not in values


def test_thresholds_are_those_of_the_plan():
    planned = plan_one(boxes.hgx_h100(), thresholds={"ib_write_bw_gbps": 300})["thresholds"]
    assert set(planned) - {"basis"} == set(value_checks.THRESHOLDS)
    assert set(planned["ib_write_bw_gbps"].values()) == {300}


def test_subnets_are_no_matter_to_a_rack_without_ethernet_rails():
    assert plan_one(boxes.dgx_a100(), rail_subnets=["10.1.0.0/24"])
    assert plan_one(boxes.no_fabric(), rail_subnets=["10.1.0.0/24"])


@pytest.mark.parametrize("value", [5, "192.0.2.5/24", {"a": 1}])
def test_bond_addresses_are_a_list(value):
    bond = {"bond0": {"members": ["eno7"], "mode": "802.3ad", "addresses": value}}
    with pytest.raises(IntentError, match=r"bond0\.addresses: .* is not a list") as refused:
        plan_one(boxes.hgx_h100(), bonds=bond)
    assert str(refused.value).count("addresses: ") == 1


@pytest.mark.parametrize("value", ["127.0.0.5/24", "224.0.0.5/24", "fe80::5/64"])
def test_bond_addresses_are_unicast(value):
    bond = {"bond0": {"members": ["eno7"], "mode": "802.3ad", "addresses": [value]}}
    with pytest.raises(IntentError, match=r"bond0\.addresses\[0\]: .* is not allowed"):
        plan_one(boxes.hgx_h100(), bonds=bond)


@pytest.mark.parametrize("pool", ["127.0.0.0/16", "224.0.0.0/16", "0.0.0.0/0"])
def test_ipoib_pools_are_unicast(pool):
    with pytest.raises(IntentError, match=r"gpu_fabric_ipoib.ipv4: .* holds"):
        plan_one(boxes.dgx_a100(), ipoib={"ipv4": pool})


def test_routed_31_needs_ipv4_among_its_subnets():
    (problem,) = problems(rail_mode="routed_31", rail_subnets=["fd00:1::/64"])
    assert problem.variable == "gpu_fabric_rail_subnets"


def test_a_key_of_ones_own_replaces_the_vendors():
    repository = plan_one(boxes.hgx_h100(), repository={"key_file": "/srv/key.gpg"})["packages"]["driver"]["repository"]
    assert repository["key_file"] == "/srv/key.gpg" and "key_url" not in repository


def test_rack_of_text_numbers_is_one_of_numbers():
    facts = {"gpu-01": boxes.hgx_h100().done()}
    assert rack(facts, node_id="7") == rack(facts, node_id=7)


@pytest.mark.parametrize("number", [[1], -5, 0, "x", True, "9" * 5000])
def test_number_of_a_host_outside_the_run_is_looked_at(number):
    facts = {"gpu-01": boxes.hgx_h100().done()}
    with pytest.raises(IntentError, match="gpu-02: gpu_fabric_node_id"):
        rack(facts, {"gpu-02": {"node_id": number}})
    assert rack(facts, {"gpu-02": {"node_id": "7"}})["rack"]["members"] == ["gpu-01", "gpu-02"]


def test_an_ipoib_pool_with_the_address_of_any_member_is_refused():
    facts = {"gpu-01": boxes.dgx_a100().done()}
    with pytest.raises(IntentError, match=r"gpu_fabric_ipoib: 10.240.1.0/24 .* holds 10.240.1.9, at which gpu-02"):
        rack(facts, {"gpu-02": {"address": "10.240.1.9"}}, ipoib={"ipv4": "10.240.0.0/16"})


def test_roce_rails_without_any_pool_are_refused():
    with pytest.raises(IntentError, match="gpu_fabric_rail_ipv4: empty"):
        plan_one(boxes.hgx_h100(), rail_ipv4="")
    assert plan_one(boxes.hgx_h100(), rail_ipv4="", rail_ipv6="fd00:224::/48")
    assert plan_one(boxes.dgx_a100(), rail_ipv4="")
    provided = boxes.rxe_guest()
    for name in ("ens3", "ens4"):
        provided.facts["netdevs"][name]["addresses"] = [f"198.51.100.{name[-1]}/24"]
    assert plan_one(provided, rail_ipv4="", allow_software_rdma=True)
