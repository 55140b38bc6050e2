# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module against the lab's mlxconfig and mlxfwreset: a host in a directory, tools called in this process."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils import _mlxconfig_card
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure, StateFile
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._mlxconfig_tool import Pci
from ansible_collections.railyard.gpu_fabric.plugins.modules.nic_firmware_config import Run
from railyard_lab import node, nvconfig, toolbox
from railyard_lab import state as state_file

RAIL = "0000:18:00.0"
OTHER = "0000:40:00.0"
TWO_PORTS = "0000:29:00.0"


class LabCli(Cli):
    """Runs the lab's stand-ins instead of commands."""

    def __init__(self, without: t.Collection[str] = ()) -> None:
        super().__init__()
        self.without = {"mstconfig", "mstfwreset", *without}
        self.processes: list[str] = []
        self.json = True

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in toolbox.TOOLS and name not in self.without else None

    def run(self, argv: t.Sequence[str], check: bool = True, stdin: str | None = None, **_: object) -> Result:
        self.ran.append(" ".join(argv))
        if argv[0] == "nvidia-smi":
            return Result(tuple(argv), 0, "".join(f"{line}\n" for line in self.processes), "")
        if "-j" in argv and not self.json:
            return Result(tuple(argv), 3, "-E- Invalid option: -j\n", "")
        module = importlib.import_module(f"railyard_lab.tools.{toolbox.TOOLS[argv[0]].module}")
        out, err, before = io.StringIO(), io.StringIO(), sys.stdin
        sys.stdin = io.StringIO(stdin or "")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                rc = module.main(argv[0], list(argv[1:]))
        finally:
            sys.stdin = before
        return Result(tuple(argv), rc, out.getvalue(), err.getvalue())

    @property
    def orders(self) -> list[str]:
        return [line for line in self.ran if " -y " in line]


class Host:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.cli = LabCli()
        self.warnings: list[str] = []

    def run(self, settings: t.Any = None, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
        cards = [{"device": RAIL, "settings": settings}] if settings is not None else []
        params = {"cards": cards, "protected": [], "allow_disruption": "none", "gpu_processes": [], **options}
        self.cli.ran.clear()
        state = StateFile("nic_firmware.json", str(self.root / "record"))
        run = Run(params, self.cli, Pci(str(self.root)), state, at_once=1)
        result = run.go(check_mode)
        self.warnings = run.warnings
        return result

    def parameter(self, name: str, device: str = RAIL) -> tuple[str, str]:
        nic = state_file.find_nic(state_file.load(), device)
        assert nic is not None
        entry = nic["nvconfig"][name]
        return entry["current"], entry["next"]

    @property
    def record(self) -> dict[str, t.Any]:
        return StateFile("nic_firmware.json", str(self.root / "record")).load()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[str], Host]:
    def made(profile: str) -> Host:
        monkeypatch.setenv("RAILYARD_LAB_ROOT", str(tmp_path))
        monkeypatch.delenv("RAILYARD_LAB_STATE", raising=False)
        (tmp_path / "sys").mkdir()
        node.up(profile, "gpu-01")
        return Host(tmp_path)

    return made


@pytest.fixture
def host(make: t.Callable[[str], Host]) -> Host:
    return make("hgx_h100_roce")


def test_only_what_differs_is_written_in_one_call(host: Host) -> None:
    result = host.run({"SRIOV_EN": True, "NUM_OF_VFS": 16, "LINK_TYPE": "ETH", "ATS_ENABLED": 0})
    assert host.cli.orders == [f"mlxconfig -y -d {RAIL} set SRIOV_EN=1 NUM_OF_VFS=16"]
    assert host.parameter("SRIOV_EN") == ("False(0)", "True(1)")
    assert result["changed"] and result["reset_needed"] == "fwreset" and result["changed_cards"] == [RAIL]
    assert result["pending"] == {RAIL: {"SRIOV_EN": "False(0) -> True(1)", "NUM_OF_VFS": "8 -> 16"}}
    assert [part["after"] for part in result["diff"]] == ["1\n", "16\n"]
    assert any("gpu_fabric_allow_disruption: fwreset" in warning for warning in host.warnings)
    again = host.run({"SRIOV_EN": True, "NUM_OF_VFS": "0x10", "LINK_TYPE": "ETH", "ATS_ENABLED": 0})
    assert not again["changed"] and again["reset_needed"] == "fwreset" and host.cli.orders == []


def test_check_mode_tells_the_same_and_writes_nothing(host: Host) -> None:
    wanted = {"SRIOV_EN": True, "CNP_DSCP": 40}
    before = state_file.load()
    told = host.run(wanted, check_mode=True)
    assert told["pending"] == {RAIL: {"SRIOV_EN": "False(0) -> True", "CNP_DSCP_P1": "48 -> 40"}}
    assert host.cli.orders == [] and state_file.load() == before and host.record == {}
    done = host.run(wanted)
    assert {key: told[key] for key in ("changed", "diff", "reset_needed", "changed_cards")} == {
        key: done[key] for key in ("changed", "diff", "reset_needed", "changed_cards")
    }


def test_with_consent_the_card_is_reset_and_all_is_in_force(host: Host) -> None:
    result = host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")
    assert host.parameter("SRIOV_EN") == ("True(1)", "True(1)")
    assert result["resets"] == [RAIL] and result["reset_needed"] == "none" and result["pending"] == {}
    assert not result["link_type_changed"] and host.warnings == []
    again = host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")
    assert not again["changed"] and host.cli.orders == [] and again["resets"] == []


def test_hidden_settings_follow_in_a_second_pass(host: Host) -> None:
    wanted = {"ADVANCED_PCI_SETTINGS": 1, "PCI_WR_ORDERING": "force_relax", "MAX_ACC_OUT_READ": 44}
    first = host.run(wanted)
    assert first["deferred"] == {RAIL: ["MAX_ACC_OUT_READ", "PCI_WR_ORDERING"]}
    assert any("MAX_ACC_OUT_READ, PCI_WR_ORDERING can be written only once" in text for text in host.warnings)
    assert host.cli.orders == [f"mlxconfig -y -d {RAIL} set ADVANCED_PCI_SETTINGS=1"]
    result = host.run(wanted, allow_disruption="fwreset")
    assert host.parameter("PCI_WR_ORDERING") == ("force_relax(1)", "force_relax(1)")
    assert host.parameter("MAX_ACC_OUT_READ") == ("44", "44")
    assert result["reset_needed"] == "none" and result["deferred"] == {}
    assert [line for line in host.cli.orders if "reset" in line] == [f"mlxfwreset -d {RAIL} -l 3 -y reset"] * 2
    assert not host.run(wanted, allow_disruption="fwreset")["changed"]


def test_hidden_setting_without_its_gate_is_refused(host: Host) -> None:
    with pytest.raises(Failure, match="PCI_WR_ORDERING is shown only once ADVANCED_PCI_SETTINGS is in force"):
        host.run({"PCI_WR_ORDERING": 1})


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"SRIOV_ENN": 1}, "SRIOV_ENN is no parameter of this card and firmware; the nearest that it has is SRIOV_EN"),
        ({"CNP_DSCP_P2": 4}, "CNP_DSCP_P2: the card has no port 2"),
        ({"INTERNAL_CPU_OFFLOAD_ENGINE": 1}, "INTERNAL_CPU_OFFLOAD_ENGINE is read only"),
        ({"HOST_CHAINING_DESCRIPTORS": 1}, "HOST_CHAINING_DESCRIPTORS is an array; name its elements"),
        ({"HOST_CHAINING_DESCRIPTORS[8]": 1}, "HOST_CHAINING_DESCRIPTORS has the elements 0 to 7"),
        ({"HOST_CHAINING_DESCRIPTORS[0..3]": 99}, "Value for parameter HOST_CHAINING_DESCRIPTORS[0] is out of range"),
        ({"SRIOV_EN[0]": 1}, "SRIOV_EN is no array (it is False(0))"),
        ({"NUM_OF_VFS": 900}, "Value for parameter NUM_OF_VFS is out of range: 900"),
        ({"CQE_COMPRESSION": "SOMEWHAT"}, "Unknown value SOMEWHAT for parameter CQE_COMPRESSION"),
    ],
)
@pytest.mark.parametrize("check_mode", [True, False])
def test_what_cannot_be_is_refused_by_name_on_every_card_before_anything_is_written(
    host: Host, wanted: dict[str, t.Any], told: str, check_mode: bool
) -> None:
    before = state_file.load()
    cards = [{"device": OTHER, "settings": {"SRIOV_EN": 1}}, {"device": RAIL, "settings": wanted}]
    with pytest.raises(Failure) as failure:
        host.run(cards=cards, check_mode=check_mode)
    assert told in str(failure.value) and RAIL in str(failure.value) and "Nothing was changed" in str(failure.value)
    assert state_file.load() == before and host.cli.orders == []


@pytest.mark.parametrize("json", [True, False])
def test_elements_of_an_array_are_set_in_few_words_and_go_back(host: Host, json: bool) -> None:
    host.cli.json = json
    name = "ESWITCH_HAIRPIN_TOT_BUFFER_SIZE"

    def elements() -> list[str]:
        nic = state_file.find_nic(state_file.load(), RAIL)
        assert nic is not None
        return [element["next"] for element in nic["nvconfig"][name]["elements"]]

    told = host.run({f"{name}[0..3]": 19, f"{name}[2]": 7}, check_mode=True)
    assert elements() == ["0"] * 8 and told["changed"]
    done = host.run({f"{name}[0..3]": 19, f"{name}[2]": 7})
    assert host.cli.orders == [f"mlxconfig -y -d {RAIL} set {name}[0..1]=19 {name}[3]=19 {name}[2]=7"]
    assert elements() == ["19", "19", "7", "19", "0", "0", "0", "0"]
    assert done["diff"] == told["diff"] and len(done["diff"]) == 4
    assert done["pending"][RAIL][f"{name}[2]"] == "0 -> 7" and done["reset_needed"] == "fwreset"
    assert not host.run({f"{name}[0..3]": 19, f"{name}[2]": 7})["changed"]
    result = host.run({f"{name}[0]": 19}, allow_disruption="fwreset")
    assert elements() == ["19"] + ["0"] * 7, "what nobody asks for any more has its first value"
    assert result["resets"] == [RAIL] and host.record == {RAIL: {f"{name}[0]": "0"}}
    assert not host.run({f"{name}[0]": 19})["changed"]
    host.run()
    assert elements() == ["0"] * 8


def test_optional_settings_are_passed_over_where_a_card_lacks_them(host: Host) -> None:
    card = {"device": RAIL, "settings": {"NO_SUCH": 1, "SRIOV_EN": 1}, "optional": ["NO_SUCH"]}
    result = host.run(cards=[card])
    assert result["skipped"] == {RAIL: ["NO_SUCH"]} and host.parameter("SRIOV_EN")[1] == "True(1)"


def test_all_ports_of_a_card_are_handled_as_one(host: Host) -> None:
    host.run(cards=[{"device": TWO_PORTS, "settings": {"CNP_DSCP": 40, "CNP_DSCP_P2": 44}}])
    assert host.cli.orders == [f"mlxconfig -y -d {TWO_PORTS} set CNP_DSCP_P1=40 CNP_DSCP_P2=44"]
    with pytest.raises(Failure, match=r"0000:29:00\.1: .* is of the same card as 0000:29:00\.0; name a card once"):
        host.run(cards=[{"device": f"0000:29:00.{n}", "settings": {"CNP_DSCP": 40}} for n in (0, 1)])


def test_card_that_carries_the_connection_is_refused_by_any_of_its_ports(host: Host) -> None:
    second = next(nic["netdev"] for nic in state_file.load()["nics"] if nic["pci"] == "0000:29:00.1")
    with pytest.raises(Failure, match=rf"its port {second} carries this host's management connection"):
        host.run(cards=[{"device": TWO_PORTS, "settings": {"SRIOV_EN": 1}}], protected=[second])
    assert host.cli.ran == [], "not even asked"


def test_nvswitch_bridge_is_refused(make: t.Callable[[str], Host]) -> None:
    host = make("b200_nvswitch_bridges")
    bridge = next(nic["pci"] for nic in state_file.load()["nics"] if nic["sw_mng"])
    with pytest.raises(Failure, match="has SW_MNG in its VPD"):
        host.run(cards=[{"device": bridge, "settings": {"SRIOV_EN": 1}}])
    assert host.cli.ran == []


def test_no_card_is_reset_under_a_running_job(host: Host) -> None:
    result = host.run({"SRIOV_EN": 1}, allow_disruption="fwreset", gpu_processes=["4711 python3"])
    assert host.parameter("SRIOV_EN") == ("False(0)", "True(1)") and result["resets"] == []
    assert any("4711 python3" in warning for warning in host.warnings)
    # the plan's list may be older than the job
    host.cli.processes = ["815, /usr/bin/train"]
    assert host.run({"SRIOV_EN": 1}, allow_disruption="powercycle")["reset_needed"] == "fwreset"
    assert any("815 /usr/bin/train" in warning for warning in host.warnings)
    host.cli.processes = []
    assert host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")["reset_needed"] == "none"


def test_without_the_reset_tool_a_reboot_is_needed(host: Host) -> None:
    host.cli = LabCli(without=["mlxfwreset"])
    result = host.run({"SRIOV_EN": 1}, allow_disruption="powercycle")
    assert result["reset_needed"] == "reboot" and result["resets"] == []
    assert any("after a reboot of the host" in warning for warning in host.warnings)


def test_older_tool_without_json_reads_the_same(host: Host) -> None:
    host.cli.json = False
    assert host.run({"SRIOV_EN": 1, "LINK_TYPE": 2})["changed"]
    assert host.cli.orders == [f"mlxconfig -y -d {RAIL} set SRIOV_EN=1"]
    assert not host.run({"SRIOV_EN": 1, "LINK_TYPE": 2})["changed"]


def test_change_of_the_link_type_is_told_once_it_is_in_force(host: Host) -> None:
    assert not host.run({"LINK_TYPE": "IB"})["link_type_changed"]
    assert host.run({"LINK_TYPE": "IB"}, allow_disruption="fwreset")["link_type_changed"]
    assert not host.run({"LINK_TYPE": "IB"}, allow_disruption="fwreset")["link_type_changed"]


def test_what_is_no_longer_wanted_goes_back_to_its_first_value(host: Host) -> None:
    host.run({"SRIOV_EN": 1, "CNP_DSCP": 40})
    host.run({"SRIOV_EN": 1, "CNP_DSCP": 41})
    assert host.record == {RAIL: {"SRIOV_EN": "False(0)", "CNP_DSCP_P1": "48"}}
    host.run({"SRIOV_EN": 1})
    assert host.parameter("CNP_DSCP_P1")[1] == "48" and host.record == {RAIL: {"SRIOV_EN": "False(0)"}}
    result = host.run(allow_disruption="none")
    assert host.parameter("SRIOV_EN")[1] == "False(0)" and host.record == {}
    assert result["changed"] and result["reset_needed"] == "none", "it never was in force, so nothing waits"
    assert not host.run()["changed"]


def test_what_goes_back_is_told_until_it_is_in_force(host: Host) -> None:
    host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")
    assert host.run()["reset_needed"] == "fwreset"
    again = host.run()
    assert again["reset_needed"] == "fwreset" and not again["changed"] and host.warnings
    assert host.run(allow_disruption="fwreset")["resets"] == [RAIL]
    assert host.parameter("SRIOV_EN") == ("False(0)", "False(0)") and host.record == {}
    assert host.run(allow_disruption="fwreset")["reset_needed"] == "none"


def test_without_cards_and_record_no_tool_is_needed(host: Host) -> None:
    host.cli = LabCli(without=["mlxconfig"])
    assert not host.run()["changed"]
    with pytest.raises(Failure, match=r"Neither mlxconfig .* nor mstconfig"):
        host.run({"SRIOV_EN": 1})


def test_value_that_does_not_take_is_an_error_with_both_values(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    real = host.cli.run

    def deaf(argv: t.Sequence[str], **more: t.Any) -> Result:
        if "-y" in argv:
            return Result(tuple(argv), 0, "Applying... Done!\n", "")
        return real(argv, **more)

    monkeypatch.setattr(host.cli, "run", deaf)
    with pytest.raises(Failure, match=r"SRIOV_EN is False\(0\) for the next boot after it was set to 1"):
        host.run({"SRIOV_EN": 1})


def answer(host: Host, monkeypatch: pytest.MonkeyPatch, other: t.Callable[[list[str]], Result | None]) -> None:
    """Let *other* answer a command in the lab's stead, where it has an answer."""
    real = host.cli.run

    def run(argv: t.Sequence[str], **more: t.Any) -> Result:
        return other(list(argv)) or real(argv, **more)

    monkeypatch.setattr(host.cli, "run", run)


def by_hand(host: Host, *words: str, device: str = RAIL) -> None:
    assert host.cli.run(["mlxconfig", "-y", "-d", device, "set", *words]).rc == 0


def test_what_hid_again_behind_its_gate_is_not_remembered_for_ever(host: Host) -> None:
    host.run({"ADVANCED_PCI_SETTINGS": 1, "PCI_WR_ORDERING": "force_relax"}, allow_disruption="fwreset")
    assert set(host.record[RAIL]) == {"ADVANCED_PCI_SETTINGS", "PCI_WR_ORDERING"}
    host.run(allow_disruption="fwreset")
    assert host.parameter("PCI_WR_ORDERING") == ("per_mkey(0)", "per_mkey(0)")
    assert host.parameter("ADVANCED_PCI_SETTINGS") == ("False(0)", "False(0)") and host.record == {}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that shows and hides parameters by the value that their gate has for the next boot."""

    def visible(settings: dict[str, dict[str, t.Any]]) -> dict[str, dict[str, t.Any]]:
        gate = settings.get("ADVANCED_PCI_SETTINGS", {}).get("next") == "True(1)"
        return {name: entry for name, entry in settings.items() if gate or not entry.get("advanced")}

    monkeypatch.setattr(nvconfig, "visible", visible)


@pytest.mark.usefixtures("at_once")
def test_setting_that_shows_as_soon_as_its_gate_is_written_takes_no_second_run(host: Host) -> None:
    wanted = {"ADVANCED_PCI_SETTINGS": 1, "MAX_ACC_OUT_READ": 44}
    assert host.run(wanted)["deferred"] == {} and host.parameter("MAX_ACC_OUT_READ")[1] == "44"
    assert not host.run(wanted)["changed"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("consent", ["none", "fwreset"])
def test_setting_that_hides_as_soon_as_its_gate_is_given_back_is_no_failure(host: Host, consent: str) -> None:
    host.run({"ADVANCED_PCI_SETTINGS": 1, "MAX_ACC_OUT_READ": 44}, allow_disruption="fwreset")
    host.run(allow_disruption=consent)
    assert host.parameter("MAX_ACC_OUT_READ")[1] == "0" and host.parameter("ADVANCED_PCI_SETTINGS")[1] == "False(0)"
    assert host.run(allow_disruption="fwreset")["reset_needed"] == "none" and host.record == {}


def test_check_mode_tells_of_what_follows_a_reset(host: Host) -> None:
    wanted = {"ADVANCED_PCI_SETTINGS": 1, "PCI_WR_ORDERING": "force_relax"}
    told = host.run(wanted, allow_disruption="fwreset", check_mode=True)
    done = host.run(wanted, allow_disruption="fwreset")
    for key in ("after", "after_header"):
        assert [part[key] for part in told["diff"]] == [part[key] for part in done["diff"]]
    for key in ("changed_cards", "resets", "reset_needed", "pending", "deferred"):
        assert told[key] == done[key]


@pytest.mark.parametrize("check_mode", [True, False])
def test_what_somebody_else_left_for_the_reset_is_told_and_counts(host: Host, check_mode: bool) -> None:
    by_hand(host, "LINK_TYPE_P1=1")
    result = host.run({"SRIOV_EN": 1}, allow_disruption="fwreset", check_mode=check_mode)
    assert any("LINK_TYPE_P1 ETH(2) -> IB(1) waits for the next reset too" in warning for warning in host.warnings)
    assert result["link_type_changed"], "whoever asked for it"
    reset = next(part for part in result["diff"] if part["after_header"] == f"{RAIL} firmware reset")
    assert reset["after"] == "LINK_TYPE_P1, SRIOV_EN\n"
    assert host.record.get(RAIL, {}) == ({} if check_mode else {"SRIOV_EN": "False(0)"})


def test_what_was_left_for_the_reset_and_is_wanted_needs_one(host: Host) -> None:
    by_hand(host, "SRIOV_EN=1")
    result = host.run({"SRIOV_EN": 1})
    assert not result["changed"] and result["reset_needed"] == "fwreset" and host.record == {}
    assert not any("too" in warning for warning in host.warnings)


def test_card_that_is_named_twice_is_refused(host: Host) -> None:
    cards = [{"device": RAIL, "settings": {"SRIOV_EN": value}} for value in (0, 1)]
    with pytest.raises(Failure, match="name a card once"):
        host.run(cards=cards)
    assert host.cli.ran == []


def test_card_of_before_that_carries_the_connection_now_is_left_and_told(host: Host) -> None:
    host.run({"SRIOV_EN": 1})
    port = next(nic["netdev"] for nic in state_file.load()["nics"] if nic["pci"] == RAIL)
    cards = [{"device": OTHER, "settings": {"SRIOV_EN": 1}}]
    host.run(cards=cards, protected=[port])
    assert host.parameter("SRIOV_EN", OTHER)[1] == "True(1)" and RAIL in host.record
    assert any(f"{RAIL}: its port {port} carries" in warning for warning in host.warnings)
    host.run(protected=[port])
    assert list(host.record) == [RAIL], "to be given back once another card carries it"
    host.run()
    assert host.record == {} and host.parameter("SRIOV_EN")[1] == "False(0)"


def test_first_values_outlive_an_absence_of_their_card(host: Host) -> None:
    host.run({"SRIOV_EN": 1})
    folder, away = host.root / "sys/bus/pci/devices" / RAIL, host.root / "away"
    folder.rename(away)
    host.run(cards=[{"device": OTHER, "settings": {"SRIOV_EN": 0}}])
    assert host.record == {RAIL: {"SRIOV_EN": "False(0)"}}
    assert any(f"{RAIL}: there is no such PCI function" in warning for warning in host.warnings)
    away.rename(folder)
    host.run()
    assert host.parameter("SRIOV_EN")[1] == "False(0)"
    host.run({"SRIOV_EN": 1})
    folder.rename(away)
    host.run()
    assert host.record == {}, "nothing of the collection stays"


def test_card_that_was_named_by_another_function_before_keeps_its_first_values(host: Host) -> None:
    host.run(cards=[{"device": "0000:29:00.1", "settings": {"SRIOV_EN": 1}}])
    host.run(cards=[{"device": TWO_PORTS, "settings": {"SRIOV_EN": 1}}])
    assert host.record == {TWO_PORTS: {"SRIOV_EN": "False(0)"}}
    host.run()
    assert host.parameter("SRIOV_EN", TWO_PORTS)[1] == "False(0)"


@pytest.mark.parametrize(
    ("said", "reset"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\n", False),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure\n", True),
        ("No devices were found\n", True),
    ],
)
def test_no_card_is_reset_while_it_is_not_known_what_runs(
    host: Host, monkeypatch: pytest.MonkeyPatch, said: str, reset: bool
) -> None:
    answer(host, monkeypatch, lambda argv: Result(tuple(argv), 9, said, "") if argv[0] == "nvidia-smi" else None)
    assert host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")["resets"] == ([RAIL] if reset else [])
    assert reset or any("version mismatch" in warning for warning in host.warnings)


def test_hanging_driver_is_a_reason_against_a_reset(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(argv: list[str]) -> None:
        if argv[0] == "nvidia-smi":
            raise Failure("nvidia-smi did not end within 60 s")

    answer(host, monkeypatch, hang)
    assert host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")["reset_needed"] == "fwreset"
    assert any("did not end within 60 s" in warning for warning in host.warnings)


def test_setting_that_no_reset_brings_into_force_is_tried_once_and_needs_the_power(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = "-I- FW was loaded successfully.\n"
    answer(host, monkeypatch, lambda argv: Result(tuple(argv), 0, deaf, "") if argv[-1] == "reset" else None)
    result = host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")
    assert result["resets"] == [RAIL] and result["reset_needed"] == "powercycle"
    assert any("SRIOV_EN did not come into force with the card's reset" in warning for warning in host.warnings)


@pytest.mark.parametrize(("warm", "need"), [("Supported", "reboot"), ("Not Supported", "powercycle")])
def test_card_without_pci_reset_is_told_beside_one_that_is_reset(
    host: Host, monkeypatch: pytest.MonkeyPatch, warm: str, need: str
) -> None:
    levels = f"Reset-levels:\n3: Driver restart and PCI reset   -Not Supported \n4: Warm Reboot    -{warm} \n"

    def fixed(argv: list[str]) -> Result | None:
        return Result(tuple(argv), 0, levels, "") if argv[-1] == "query" and OTHER in argv else None

    answer(host, monkeypatch, fixed)
    cards = [{"device": device, "settings": {"SRIOV_EN": 1}} for device in (RAIL, OTHER)]
    result = host.run(cards=cards, allow_disruption="powercycle")
    assert result["resets"] == [RAIL] and result["reset_needed"] == need
    assert [w for w in host.warnings if f"{OTHER}: the new firmware settings are in force after a {need}" in w]


def test_interfaces_of_virtual_functions_need_not_be_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mlxconfig_card, "RETURN_S", 0.0)
    virtual = host.root / "sys/devices/0000:18:00.2"
    virtual.mkdir(parents=True)
    (virtual / "physfn").symlink_to((host.root / "sys/bus/pci/devices" / RAIL).resolve())
    interface = host.root / "sys/class/net/vf0"
    interface.mkdir()
    (interface / "device").symlink_to(virtual)

    def resets(argv: list[str]) -> None:
        if argv[-1] == "reset":
            (interface / "device").unlink(missing_ok=True)

    answer(host, monkeypatch, resets)
    assert host.run({"SRIOV_EN": 1}, allow_disruption="fwreset")["reset_needed"] == "none"


@pytest.mark.parametrize(("setting", "fails"), [("HIDE_PORT2_PF", False), ("SRIOV_EN", True)])
def test_every_function_is_to_be_back_but_the_one_that_is_hidden(
    host: Host, monkeypatch: pytest.MonkeyPatch, setting: str, fails: bool
) -> None:
    monkeypatch.setattr(_mlxconfig_card, "RETURN_S", 0.0)
    second = host.root / "sys/bus/pci/devices/0000:29:00.1"
    with state_file.change() as state:
        for nic in state["nics"]:
            if nic["pci"].startswith("0000:29:00"):
                nic["nvconfig"]["HIDE_PORT2_PF"] = dict(nic["nvconfig"]["SRIOV_EN"])

    def resets(argv: list[str]) -> None:
        if argv[-1] == "reset" and second.exists():
            second.rename(host.root / "away")

    answer(host, monkeypatch, resets)
    cards = [{"device": TWO_PORTS, "settings": {setting: 1}}]
    if fails:
        with pytest.raises(Failure, match=r"is back after 0 s: no driver of 0000:29:00\.1; look"):
            host.run(cards=cards, allow_disruption="fwreset")
    else:
        assert host.run(cards=cards, allow_disruption="fwreset")["resets"] == [TWO_PORTS]


def test_rule_that_the_tool_checks_while_it_writes_names_values_seen_and_wanted(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "Applying... Failed!\n-E- Rule broken: NUM_OF_VFS needs SRIOV_EN\n"

    def breaks(argv: list[str]) -> Result | None:
        return Result(tuple(argv), 3, broken, "") if "-y" in argv and OTHER in argv else None

    answer(host, monkeypatch, breaks)
    cards = [{"device": device, "settings": {"NUM_OF_VFS": 16}} for device in (RAIL, OTHER)]
    with pytest.raises(Failure, match=f"{OTHER}: NUM_OF_VFS is 8 and was to be 16: .*Rule broken"):
        host.run(cards=cards)
    assert host.record[RAIL] == {"NUM_OF_VFS": "8"}, "a run that is cut off knows what there was"
    host.run()
    assert host.parameter("NUM_OF_VFS")[1] == "8" and host.record == {}
