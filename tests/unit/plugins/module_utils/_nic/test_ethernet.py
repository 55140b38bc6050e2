# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Link mode, FEC, channels and rings: set and given back, refused by what the device has, taken back where they cut."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import program
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers.ethtool import speed_of, speeds_of
from ansible_collections.railyard.gpu_fabric.plugins.modules import nic_settings

MODES = ["25000baseCR/Full", "100000baseCR2/Full", "100000baseCR4/Full", "200000baseCR4/Full", "400000baseCR4/Full"]
WANTED = {
    "link": {"speed_gbps": 200, "autoneg": False},
    "fec": "rs",
    "channels": 24,
    "rings": {"rx": 8192, "tx": 4096},
}


class Port:
    """A port behind ethtool. ``far`` is what the other end does: the speeds that it takes."""

    def __init__(self, listing: str = "set", shows_forced: bool = True) -> None:
        self.autoneg, self.offered, self.forced = True, list(MODES), 400
        self.fec, self.combined, self.rings = "auto", 63, {"rx": 1024, "tx": 1024}
        self.far = {25, 100, 200, 400}
        self.listing, self.shows_forced = listing, shows_forced
        self.negotiates, self.fec_modes = "Yes", "None\t RS"
        self.ran: list[str] = []

    def which(self, name: str) -> str | None:
        return name if name == "ethtool" else None

    @property
    def speed(self) -> int | None:
        mine = set(speeds_of(self.offered)) if self.autoneg else {self.forced}
        return max(mine & self.far, default=None)

    @property
    def state(self) -> tuple[t.Any, ...]:
        return (self.autoneg, sorted(self.offered), self.fec, self.combined, dict(self.rings))

    def run(self, argv: t.Sequence[str], check: bool = True, **_: object) -> Result:
        words = list(argv[1:])
        option = words.pop(0) if words[0].startswith("-") else ""
        assert words.pop(0) == "rail0"
        if option in ("-s", "-G", "-L", "--set-fec"):
            self.ran.append(" ".join(argv))
        stdout = getattr(self, {"": "shown", "-s": "change"}.get(option, option.strip("-").replace("-", "_")))(words)
        return Result(tuple(argv), 0, stdout or "", "")

    def shown(self, _: list[str]) -> str:
        offered = self.offered if self.autoneg or self.shows_forced else []
        lists = {"Supported": MODES, "Advertised": offered}
        lines = ["Settings for rail0:"]
        for label, modes in lists.items():
            lines.append(f"\t{label} link modes:   " + ("\n\t                        ".join(modes) or "Not reported"))
        speed = f"{self.speed * 1000}Mb/s" if self.speed else "Unknown!"
        return "\n".join(
            [
                *lines,
                f"\tSupports auto-negotiation: {self.negotiates}",
                f"\tSupported FEC modes: {self.fec_modes}",
                f"\tSpeed: {speed}",
                f"\tAuto-negotiation: {'on' if self.autoneg else 'off'}",
                f"\tLink detected: {'yes' if self.speed else 'no'}",
                "",
            ]
        )

    def change(self, words: list[str]) -> None:
        if "advertise" in words:
            at = words.index("advertise") + 1
            flags = dict(zip(words[at::2], words[at + 1 :: 2]))
            self.autoneg, self.offered = True, [mode for mode in self.offered + MODES if flags.get(mode) == "on"]
            self.offered = sorted(set(self.offered), key=MODES.index)
            return
        given = dict(zip(words[::2], words[1::2]))
        autoneg = given.get("autoneg", "on" if self.autoneg else "off") == "on"
        if "speed" in given:
            assert given["duplex"] == "full"
            self.forced = int(given["speed"]) // 1000
            self.offered = [mode for mode in MODES if speed_of(mode) == self.forced]
        elif given.get("autoneg") == "on":
            self.offered = list(MODES)
        self.autoneg = autoneg

    def show_fec(self, _: list[str]) -> str:
        names = {"auto": "Auto", "rs": "RS", "off": "Off"}
        listed = names[self.fec] if self.listing == "set" else "Auto Off RS"
        active = names["rs" if self.fec == "auto" else self.fec] if self.speed else "None"
        return (
            f"FEC parameters for rail0:\nSupported/Configured FEC encodings: {listed}\nActive FEC encoding: {active}\n"
        )

    def set_fec(self, words: list[str]) -> None:
        assert words[0] == "encoding"
        self.fec = words[1]

    def l(self, _: list[str]) -> str:  # noqa: E743
        rows = "RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t"
        title = "Channel parameters for rail0:\nPre-set maximums:\n"
        return f"{title}{rows}63\nCurrent hardware settings:\n{rows}{self.combined}\n"

    def L(self, words: list[str]) -> None:
        self.combined = int(words[1])

    def g(self, _: list[str]) -> str:
        rows = "RX:\t\t{rx}\nRX Mini:\tn/a\nTX:\t\t{tx}\n"
        title = "Ring parameters for rail0:\nPre-set maximums:\n"
        return title + rows.format(rx=8192, tx=8192) + "Current hardware settings:\n" + rows.format(**self.rings)

    def G(self, words: list[str]) -> None:
        self.rings |= {side: int(size) for side, size in zip(words[::2], words[1::2])}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "CARRIER_S", 0)


def watch(monkeypatch: pytest.MonkeyPatch, port: Port) -> None:
    monkeypatch.setattr(program, "read_carrier", lambda path: port.speed is not None)


def plan(port: Port, wanted: dict[str, t.Any]) -> program.Todo:
    return program.plan({"netdev": "rail0", "settings": wanted}, t.cast(t.Any, port))


def first_values(todo: program.Todo) -> dict[str, t.Any]:
    return {step.knob.name: step.before for step in todo.steps}


@pytest.mark.parametrize("listing", ["set", "able"])
@pytest.mark.parametrize("shows_forced", [True, False])
def test_all_are_set_seen_and_given_back(listing: str, shows_forced: bool) -> None:
    port = Port(listing, shows_forced)
    before = port.state
    # A driver that lists all that it can do has RS in use already, and nothing shows that "auto" chose it.
    wanted = WANTED if listing == "set" else {**WANTED, "fec": "off"}
    todo = plan(port, wanted)
    assert port.ran == [] and todo.flaps and todo.unsupported == []
    program.apply(todo)
    assert port.ran == [
        "ethtool -s rail0 speed 200000 duplex full autoneg off",
        f"ethtool --set-fec rail0 encoding {wanted['fec']}",
        "ethtool -L rail0 combined 24",
        "ethtool -G rail0 rx 8192 tx 4096",
    ]
    assert plan(port, wanted).steps == []
    program.apply(plan(port, first_values(todo)))
    assert port.state == before


def test_only_what_differs_is_written() -> None:
    port = Port()
    program.apply(plan(port, {"rings": {"tx": 2048}, "channels": 63}))
    assert port.ran == ["ethtool -G rail0 tx 2048"] and port.rings == {"rx": 1024, "tx": 2048}


def test_as_many_descriptors_as_there_are() -> None:
    port = Port()
    todo = plan(port, {"rings": "max"})
    program.apply(todo)
    assert port.ran == ["ethtool -G rail0 rx 8192 tx 8192"] and plan(port, {"rings": "max"}).steps == []
    assert first_values(todo) == {"rings": {"rx": 1024, "tx": 1024}}


def test_negotiation_at_one_speed_and_back() -> None:
    port = Port()
    todo = plan(port, {"link": {"speed_gbps": 100, "autoneg": True}})
    program.apply(todo)
    assert port.offered == MODES[1:3] and port.autoneg
    assert plan(port, {"link": {"speed_gbps": 100}}).steps == []
    program.apply(plan(port, first_values(todo)))
    assert port.offered == MODES


def test_a_selection_that_no_speed_says_is_given_back_mode_by_mode() -> None:
    port = Port()
    port.offered = [MODES[0], MODES[2]]
    before = port.state
    todo = plan(port, {"link": {"speed_gbps": 400}})
    program.apply(todo)
    program.apply(plan(port, first_values(todo)))
    assert port.state == before and plan(port, first_values(todo)).steps == []


class Runs:
    """Runs of the module on one port, with the record of first values between them."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.record: nic_settings.Record = {}

    def __call__(self, wanted: dict[str, t.Any]) -> bool:
        entries = [{**program.Port("rail0")._asdict(), "settings": wanted}]
        asked, leaving = nic_settings.joined(entries, nic_settings.released(self.record, entries))
        back = [plan(self.port, entry["settings"]) for entry in leaving]
        forward = [plan(self.port, entry["settings"]) for entry in asked]
        self.record = nic_settings.noted(self.record, entries, forward)
        for todo in (*back, *forward):
            program.apply(todo)
        self.record = nic_settings.settled(self.record, entries)
        return any(todo.steps for todo in (*back, *forward))


FORCED = {"speed_gbps": 100, "autoneg": False}


def test_negotiation_goes_back_while_the_speed_stays() -> None:
    port = Port()
    before, run = port.state, Runs(port)
    run({"link": FORCED})
    assert run({"link": {"speed_gbps": 100}})
    assert port.autoneg and port.offered == MODES[1:3]
    assert port.ran[-1] == "ethtool -s rail0 speed 100000 duplex full autoneg on"
    assert not run({"link": {"speed_gbps": 100}})
    run({})
    assert port.state == before and run.record == {}


@pytest.mark.parametrize("offered", [MODES, [MODES[0], MODES[2]]])
def test_the_speed_goes_back_while_negotiation_stays(offered: list[str]) -> None:
    port = Port()
    port.offered = list(offered)
    before, run = port.state, Runs(port)
    run({"link": {"speed_gbps": 400, "autoneg": True}})
    assert run({"link": {"autoneg": True}}) and port.state == before
    assert not run({"link": {"autoneg": True}})
    run({"link": {**FORCED, "speed_gbps": 200}})
    run({})
    assert port.state == before and run.record == {}


@pytest.mark.parametrize("shows_forced", [True, False])
def test_a_port_that_was_forced_is_forced_again(shows_forced: bool) -> None:
    port = Port(shows_forced=shows_forced)
    plain = Runs(port)
    plain({"link": FORCED})
    before, run = port.state, Runs(port)
    run({"link": {"autoneg": True}})
    assert port.autoneg and port.offered == MODES
    run({})
    assert (port.autoneg, port.forced) == (False, 100) and port.state == before


def test_autoneg_alone_leaves_the_offered_modes() -> None:
    port = Port()
    port.offered = [MODES[3]]
    assert plan(port, {"link": {"autoneg": True}}).steps == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"link": {"speed_gbps": 40}}, "the port supports 25, 100, 200, 400 Gb/s"),
        ({"fec": "baser"}, "fec is auto, wanted baser, but the port supports auto, off, rs"),
        ({"channels": 64}, "the device has 63 at most"),
        ({"rings": {"rx": 16384, "tx": 512}}, "the device has rx 8192 at most"),
    ],
)
def test_what_the_device_has_not_is_refused_before_anything_is_written(wanted: dict[str, t.Any], said: str) -> None:
    port = Port()
    with pytest.raises(Failure, match=said):
        plan(port, {"rings": {"rx": 512}, **wanted})
    assert port.ran == []


def test_a_port_that_cannot_negotiate_is_not_told_to() -> None:
    port = Port()
    port.autoneg, port.negotiates = False, "No"
    with pytest.raises(Failure, match="does not negotiate; allowed is autoneg false"):
        plan(port, {"link": {"autoneg": True}})


def test_a_link_that_stays_away_gets_back_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    port = Port()
    watch(monkeypatch, port)
    port.far = {400}
    before = port.state
    with pytest.raises(
        program.LinkLost, match=r"rail0: the link did not come back .* link was set to .*switch port"
    ) as told:
        program.apply(plan(port, {"link": {"speed_gbps": 200, "autoneg": False}}))
    assert told.value.details == {"netdev": "rail0", "settings": ["link"]}
    assert port.speed == 400 and port.state == before


def test_a_link_that_is_lost_over_nothing_of_its_own_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    port = Port()
    carriers = iter([True])
    monkeypatch.setattr(program, "CARRIER_S", 0)
    monkeypatch.setattr(program, "read_carrier", lambda path: next(carriers, False))
    with pytest.raises(Failure, match=r"rail0: the link was up and did not come back .* rings changed.* switch port"):
        program.apply(plan(port, {"rings": {"rx": 512}}))
    assert port.rings["rx"] == 512


@pytest.mark.parametrize("shows_forced", [True, False])
def test_a_link_that_was_away_before_is_forced_and_left_so(monkeypatch: pytest.MonkeyPatch, shows_forced: bool) -> None:
    port = Port(shows_forced=shows_forced)
    watch(monkeypatch, port)
    port.far = set()
    program.apply(plan(port, {"link": {"speed_gbps": 200, "autoneg": False}, "fec": "rs"}))
    assert (port.forced, port.autoneg, port.fec) == (200, False, "rs")


def test_a_driver_without_such_settings_is_told_of() -> None:
    port = Port()
    port.run = lambda argv, check=True, **_: Result(tuple(argv), 95, "", "Operation not supported")  # type: ignore[method-assign]
    assert plan(port, WANTED) == program.Todo(program.Port("rail0"), [], ["link", "fec", "channels", "rings"])


STATES = st.fixed_dictionaries(
    {},
    optional={
        "link": st.builds(
            lambda speed, autoneg: {"speed_gbps": speed, "autoneg": autoneg},
            st.sampled_from([25, 100, 200, 400]),
            st.booleans(),
        ),
        "fec": st.sampled_from(["auto", "rs", "off"]),
        "channels": st.integers(1, 63),
        "rings": st.fixed_dictionaries({}, optional={side: st.sampled_from([64, 1024, 8192]) for side in ("rx", "tx")}),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"speed_gbps": st.sampled_from([25, 100]), "autoneg": st.booleans()}).filter(
            lambda link: link.get("autoneg") is not False or "speed_gbps" in link
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_whatever_was_asked_of_a_link_meanwhile_it_is_given_back(wishes: t.Any, shows_forced: bool) -> None:
    port = Port(shows_forced=shows_forced)
    before, run = port.state, Runs(port)
    for link in wishes:
        wanted = {"link": link} if link else {}
        run(wanted)
        assert not run(wanted), "a second run has nothing to do"
    run({})
    assert port.state == before and run.record == {}


@settings(max_examples=60, deadline=None)
@given(STATES, STATES, st.booleans())
def test_any_state_is_reached_from_any_other_and_left_again(first: t.Any, second: t.Any, shows_forced: bool) -> None:
    port = Port(shows_forced=shows_forced)
    program.apply(plan(port, first))
    before = port.state
    todo = plan(port, second)
    program.apply(todo)
    assert plan(port, second).steps == []
    program.apply(plan(port, first_values(todo)))
    assert port.state == before
