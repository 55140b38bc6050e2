# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host has already and would lose, or would have twice, is named before anything is set."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links import delta, host, kernel_conf
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.model import LinkError, wanted_links
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._links.present import QUERIES

RAIL = {
    "netdev": "rail0",
    "addresses": ["10.224.0.11/24"],
    "routes": [{"dst": "10.224.1.0/24", "via": "10.224.0.1", "table": 1000}],
    "rules": [{"from": "10.224.0.11", "table": 1000, "priority": 1000}],
}
BOND = {
    "netdev": "bond0",
    "addresses": ["10.30.0.5/24"],
    "bond": {"members": ["rail1"], "mode": "active-backup"},
    "routes": [{"dst": "default", "via": "10.30.0.1"}],
}


class Kernel:
    """Answers as `ip` does."""

    def __init__(self, addresses: dict[str, str], **answers: list[dict[str, t.Any]]) -> None:
        self.answers = answers
        self.answers["addresses"] = [
            {
                "ifname": name,
                "flags": ["UP"],
                "addr_info": [{"local": address, "prefixlen": 24}] if address else [],
            }
            for name, address in {"eno1": "10.20.0.5", "rail0": "", "rail1": "", **addresses}.items()
        ]

    def run(self, argv: t.Sequence[str], **_: t.Any) -> Result:
        query = next(name for name, words in QUERIES.items() if words == list(argv))
        return Result(tuple(argv), 0, json.dumps(self.answers.get(query, [])), "")


@pytest.fixture
def state(tmp_path: pathlib.Path) -> StateFile:
    return StateFile("links.json", str(tmp_path / "state"))


def links(state: StateFile, kernel: Kernel, *wanted: dict[str, t.Any]) -> host.Links:
    return host.Links(wanted_links(wanted), kernel, state)  # type: ignore[arg-type]


DEFAULT = {"dst": "default", "gateway": "10.20.0.1", "dev": "eno1", "metric": 100}


@pytest.mark.parametrize(
    ("kernel", "wanted", "said"),
    [
        (Kernel({"rail1": "10.224.0.11"}), RAIL, r"10\.224\.0\.11/24, wanted on rail0, is on rail1; take it away"),
        (Kernel({}, routes4=[DEFAULT]), BOND, r"bond0 would take the route default via 10\.20\.0\.1 from eno1; leave"),
        (
            Kernel({}, routes4=[{"dst": "default", "nexthops": [{"gateway": "10.20.0.1", "dev": "eno1"}]}]),
            BOND,
            r"bond0 would take the route default via 10\.20\.0\.1 from eno1",
        ),
        (
            Kernel({}, routes4=[{**DEFAULT, "table": "1000"}]),
            RAIL,
            r"table 1000, wanted for what rail0 sends, has routes of eno1 \(default via 10\.20\.0\.1 table 1000\)",
        ),
    ],
)
def test_what_another_interface_has_is_refused(
    state: StateFile, kernel: Kernel, wanted: dict[str, t.Any], said: str
) -> None:
    with pytest.raises(LinkError, match="^No link was changed: .*" + said):
        links(state, kernel, wanted).refuse([])


def test_what_an_earlier_run_set_may_move_to_another_interface(state: StateFile) -> None:
    before = {"mtu": 1500, "up": True}
    moved = {**RAIL, "netdev": "rail1"}
    state.save({"rail1": {"before": before, "set": {key: RAIL[key] for key in ("addresses", "routes", "rules")}}})
    route = {"dst": "10.224.1.0/24", "gateway": "10.224.0.1", "dev": "rail1", "table": "1000"}
    kernel = Kernel({"rail1": "10.224.0.11"}, routes4=[route])
    links(state, kernel, RAIL).refuse([])
    links(state, kernel, moved).refuse([])


def test_rule_of_an_address_that_was_taken_away_by_hand_is_still_known(state: StateFile) -> None:
    rule = {"priority": 1000, "src": "10.224.0.11", "table": "1000"}
    commands = delta.in_order(links(state, Kernel({}, rules4=[rule]), RAIL).deltas())
    assert [argv for argv in commands if "rule" in argv] == []
    # Nor does it stay behind when the rail has another address from now on.
    state.save({"rail0": {"before": {"mtu": 1500}, "set": {key: RAIL[key] for key in ("addresses", "rules")}}})
    other = {**RAIL, "addresses": ["10.224.0.12/24"], "rules": []}
    commands = delta.in_order(links(state, Kernel({}, rules4=[rule]), other).deltas())
    assert [argv[3] for argv in commands if "rule" in argv] == ["del"]


def test_two_rails_that_change_places_lose_nothing(state: StateFile) -> None:
    other = {
        "addresses": ["10.224.1.11/24"],
        "routes": [{"dst": "10.224.0.0/24", "via": "10.224.1.1", "table": 1001}],
        "rules": [{"from": "10.224.1.11", "table": 1001, "priority": 1001}],
    }
    first = {key: RAIL[key] for key in other}
    before = {"mtu": 1500, "up": True}
    state.save({"rail0": {"before": before, "set": first}, "rail1": {"before": before, "set": other}})
    kernel = Kernel(
        {"rail0": "10.224.0.11", "rail1": "10.224.1.11"},
        routes4=[
            {"dst": "10.224.1.0/24", "gateway": "10.224.0.1", "dev": "rail0", "table": "1000"},
            {"dst": "10.224.0.0/24", "gateway": "10.224.1.1", "dev": "rail1", "table": "1001"},
        ],
        rules4=[
            {"priority": 1000, "src": "10.224.0.11", "table": "1000"},
            {"priority": 1001, "src": "10.224.1.11", "table": "1001"},
        ],
    )
    changed = links(state, kernel, {"netdev": "rail0", **other}, {"netdev": "rail1", **first})
    changed.refuse([])
    assert [" ".join(argv) for argv in delta.in_order(changed.deltas())] == [
        "ip -4 route del 10.224.1.0/24 via 10.224.0.1 dev rail0 table 1000",
        "ip address flush dev rail0 to 10.224.0.11",
        "ip -4 route del 10.224.0.0/24 via 10.224.1.1 dev rail1 table 1001",
        "ip address flush dev rail1 to 10.224.1.11",
        "ip address replace 10.224.1.11/24 dev rail0",
        "ip -4 route replace 10.224.0.0/24 via 10.224.1.1 dev rail0 table 1001",
        "ip address replace 10.224.0.11/24 dev rail1",
        "ip -4 route replace 10.224.1.0/24 via 10.224.0.1 dev rail1 table 1000",
    ]


@pytest.mark.parametrize(
    ("all_", "own", "refused"), [("1", "1", True), ("0", "1", False), ("1", "0", False), (None, None, True)]
)
def test_ipv6_that_is_switched_off_is_said_before_anything_is_set(
    state: StateFile,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    all_: str | None,
    own: str | None,
    refused: bool,
) -> None:
    monkeypatch.setattr(kernel_conf, "ROOT", str(tmp_path))
    for name, value in (("all", all_), ("rail0", own)):
        if value is not None:
            (tmp_path / "ipv6/conf" / name).mkdir(parents=True)
            (tmp_path / "ipv6/conf" / name / "disable_ipv6").write_text(f"{value}\n")
    seen = links(state, Kernel({}), {**RAIL, "addresses": ["10.224.0.11/24", "fd00:224::b/64"]})
    if refused:
        with pytest.raises(LinkError, match="rail0 shall have fd00:224::b/64, and IPv6 is switched off"):
            seen.refuse([])
    else:
        seen.refuse([])
    links(state, Kernel({}), RAIL).refuse([])


@pytest.mark.parametrize("entry", [{}, [], {"set": {}}, {"before": {"mtu": 1500}, "set": None}])
def test_record_that_lacks_a_part_is_named_with_what_to_do(state: StateFile, entry: t.Any) -> None:
    state.save({"rail0": entry})
    with pytest.raises(LinkError, match=r"links\.json: rail0 lacks `before` or `set`.* mend it, or remove it"):
        links(state, Kernel({}), RAIL)
