"""The commands of a delta, run by a small model of ``ip``, lead to what was wanted, and a second delta is empty."""

from __future__ import annotations

import json
from ipaddress import ip_interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.delta import delta, missing
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import (
    Link,
    LinkError,
    Route,
    Rule,
    wanted_link,
    wanted_links,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.present import QUERIES, present_links

V4 = st.integers(1, 254).map(lambda n: f"10.224.0.{n}/24")
V6 = st.integers(1, 65535).map(lambda n: f"fd00:1::{n:x}/64")
ROUTES = st.builds(
    Route,
    dst=st.sampled_from(["default", "10.224.0.0/24", "10.225.0.0/16", "192.0.2.7"]),
    via=st.sampled_from([None, "10.224.0.1"]),
    table=st.sampled_from([254, 100, 101]),
)
RULES = st.builds(
    Rule,
    source=st.sampled_from(["10.224.0.5", "10.224.0.6", "fd00:1::5"]),
    table=st.integers(100, 103),
    priority=st.integers(100, 110),
)
LINKS = st.builds(
    Link,
    netdev=st.just("rail0"),
    mtu=st.sampled_from([1500, 4200, 9000]),
    up=st.just(True),
    addresses=st.frozensets(V4 | V6, max_size=3),
    routes=st.frozensets(ROUTES, max_size=3),
    rules=st.frozensets(RULES, max_size=3),
)


def apply(link: Link, commands: list[list[str]]) -> Link:
    """Do to ``link`` what ``ip`` would do."""
    mtu, up, addresses, routes, rules = link.mtu, link.up, set(link.addresses), set(link.routes), set(link.rules)
    for command in commands:
        words = [word for word in command[1:] if word not in ("-4", "-6")]
        options = dict(zip(words[2::1], words[3::1]))
        if words[:2] == ["link", "set"]:
            mtu = int(options["mtu"]) if "mtu" in options else mtu
            up = True if words[-1] == "up" else up
        elif words[0] == "address":
            if words[1] == "replace":
                addresses.add(words[2])
                continue
            assert words[1:4] == ["flush", "dev", "rail0"], command
            gone = {item for item in addresses if item.split("/")[0] == words[5]}
            # The worst that a kernel does: the others of the network go with their first, routes with the last one.
            networks = {ip_interface(item).network for item in gone}
            addresses -= {item for item in addresses if ip_interface(item).network in networks}
            if not any((":" in item) == (":" in words[5]) for item in addresses):
                routes -= {route for route in routes if route.family == (6 if ":" in words[5] else 4)}
        elif words[0] == "route":
            route = Route(words[2], options.get("via"), int(options["table"]), options.get("src"))
            (routes.add if words[1] == "replace" else routes.remove)(route)
        elif words[0] == "rule":
            rule = Rule(options["from"], int(options["table"]), int(options["priority"]))
            assert (rule in rules) == (words[1] == "del"), command
            (rules.add if words[1] == "add" else rules.remove)(rule)
        else:
            raise AssertionError(f"unknown command {command}")
    return Link(link.netdev, link.mac, mtu, up, frozenset(addresses), frozenset(routes), frozenset(rules))


@given(wanted=LINKS, present=LINKS, ours=LINKS)
def test_commands_lead_to_what_is_wanted_and_leave_what_is_not_ours(wanted: Link, present: Link, ours: Link) -> None:
    item = delta(wanted, present, ours)
    result = apply(present, item.commands)
    assert missing(wanted, result) == []
    assert delta(wanted, result, ours).commands == []
    assert present.addresses - ours.addresses <= result.addresses
    assert not (ours.addresses - wanted.addresses) & result.addresses
    assert bool(item.commands) == (item.before != item.after)


def test_down_interface_comes_up_before_its_routes() -> None:
    present = Link("rail0", mtu=1500, up=False)
    wanted = wanted_link(
        {
            "netdev": "rail0",
            "mtu": 9000,
            "addresses": ["10.224.0.5/24"],
            "routes": [{"dst": "default", "via": "10.224.0.1", "table": 100}],
        }
    )
    assert [" ".join(command) for command in delta(wanted, present).commands] == [
        "ip link set dev rail0 mtu 9000",
        "ip link set dev rail0 up",
        "ip address replace 10.224.0.5/24 dev rail0",
        "ip -4 route replace default via 10.224.0.1 dev rail0 table 100",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"netdev": "rail 0"}, "'rail 0' is no interface name (1 to 15 characters, no blank, no slash)"),
        ({"netdev": "rail0", "mtu": 20}, "rail0: MTU 20 is outside 68 to 65535 bytes"),
        (
            {"netdev": "rail0", "addresses": ["10.0.0.5"]},
            "rail0: the address '10.0.0.5' has no prefix length; wanted address/prefix, such as 10.0.0.5/24",
        ),
        (
            {"netdev": "rail0", "routes": [{"dst": "default", "via": "10.0.0.300"}]},
            "rail0: route default: '10.0.0.300' is no address",
        ),
        (
            {"netdev": "rail0", "routes": [{"dst": "10.1.0.0/16", "via": "fd00::1"}]},
            "rail0: route 10.1.0.0/16 via fd00::1: addresses of both families in one route",
        ),
    ],
)
def test_bad_link_is_refused_by_name(entry: dict, message: str) -> None:
    with pytest.raises(LinkError) as caught:
        wanted_link(entry)
    assert str(caught.value) == message


def test_addresses_of_routes_are_compared_as_the_kernel_writes_them() -> None:
    given = {"dst": "FD00:1::/64", "via": "FD00:0:0:0:0:0:0:01", "src": "fd00::0B"}
    [route] = wanted_link({"netdev": "rail0", "routes": [given]}).routes
    assert route == Route("fd00:1::/64", "fd00::1", 254, "fd00::b")


def test_one_address_on_two_links_is_refused() -> None:
    with pytest.raises(LinkError, match=r"rail1: 10\.0\.0\.5 is already given to rail0"):
        wanted_links(
            [
                {"netdev": "rail0", "addresses": ["10.0.0.5/24"]},
                {"netdev": "rail1", "addresses": ["10.0.0.5/16"]},
            ]
        )


def test_present_links_keeps_what_people_set_and_drops_what_the_kernel_made() -> None:
    answers = dict.fromkeys(QUERIES, "")
    answers["addresses"] = json.dumps(
        [
            {
                "ifname": "rail0",
                "flags": ["BROADCAST", "UP"],
                "mtu": 9000,
                "address": "02:AA:00:00:00:01",
                "addr_info": [
                    {"family": "inet", "local": "10.224.0.5", "prefixlen": 24, "scope": "global"},
                    {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
                    {"family": "inet6", "local": "2001:db8::9", "prefixlen": 64, "scope": "global", "dynamic": True},
                ],
            }
        ]
    )
    answers["routes4"] = json.dumps(
        [
            {"dst": "10.224.0.0/24", "dev": "rail0", "prefsrc": "10.224.0.5", "table": "100"},
            {"type": "local", "dst": "10.224.0.5", "dev": "rail0", "table": "local"},
        ]
    )
    answers["rules4"] = json.dumps(
        [
            {"priority": 0, "src": "all", "table": "local"},
            {"priority": 100, "src": "10.224.0.5", "table": "100"},
            {"priority": 101, "src": "10.9.0.0", "srclen": 16, "table": "101"},
            {"priority": 103, "src": "10.224.0.7", "table": "103"},
        ]
    )
    # The rule of an address that somebody took away stays in the kernel, and cannot be added once more.
    lost = Rule("10.224.0.7", 103, 103)
    assert lost in present_links(answers, {"rail0": [lost]})["rail0"].rules
    link = present_links(answers)["rail0"]
    assert link == Link(
        "rail0",
        "02:aa:00:00:00:01",
        9000,
        True,
        frozenset({"10.224.0.5/24"}),
        frozenset({Route("10.224.0.0/24", None, 100, "10.224.0.5")}),
        frozenset({Rule("10.224.0.5", 100, 100)}),
    )


def test_tables_are_asked_for_by_number_whatever_rt_tables_calls_them() -> None:
    assert [query for query, argv in QUERIES.items() if "-N" in argv] == ["routes4", "routes6", "rules4", "rules6"]


def test_every_way_of_a_route_over_several_gateways_is_seen() -> None:
    answers = dict.fromkeys(QUERIES, "")
    answers["addresses"] = json.dumps([{"ifname": "eno1"}, {"ifname": "eno2"}])
    hops = [{"gateway": "10.20.0.1", "dev": "eno1"}, {"gateway": "10.30.0.1", "dev": "eno2"}]
    answers["routes4"] = json.dumps([{"dst": "default", "nexthops": hops}])
    found = present_links(answers)
    assert [found[name].routes for name in ("eno1", "eno2")] == [
        {Route("default", "10.20.0.1")},
        {Route("default", "10.30.0.1")},
    ]


def test_address_in_hardware_is_the_one_that_the_facts_have() -> None:
    answers = dict.fromkeys(QUERIES, "")
    given = {"ifname": "rail0", "address": "02:00:00:00:00:07", "permaddr": "a0:88:c2:00:00:01"}
    answers["addresses"] = json.dumps([given])
    assert present_links(answers)["rail0"].mac == "02:00:00:00:00:07"
