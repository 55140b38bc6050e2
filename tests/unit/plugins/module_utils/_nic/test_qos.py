# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quality of service as tools and drivers really answer: what they lack, what they say of it, how they end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import knobs, program

sys.path.insert(0, str(Path(__file__).parent))

from fake_nic import FakeCli, Refused

MASK = [False, False, False, True, False, False, False, False]
EITHER = pytest.mark.parametrize("tool", ["dcb", "mlnx_qos"])


def entry(**settings: object) -> dict[str, object]:
    return {"netdev": "no-such-rail", "hca": "mlx5_0", "port": 1, "pci": "0000:18:00.0", "settings": settings}


@EITHER
def test_a_port_without_buffers_has_all_the_rest(tool: str) -> None:
    cli = FakeCli((tool,))
    cli.has_buffers = False
    wanted = entry(trust="dscp", dscp_to_priority={"26": 3}, pfc=MASK, prio_buffer=[0] * 8, cable_length_m=30)
    todo = program.plan(wanted, cli)
    assert todo.unsupported == ["prio_buffer", "cable_length_m"]
    program.apply(todo)
    assert cli.pfc == [0, 0, 0, 1, 0, 0, 0, 0] and program.plan(wanted, cli).steps == []


def test_sizes_are_read_from_every_release_of_mlnx_qos() -> None:
    cli = FakeCli(("mlnx_qos",))
    cli.size_label = "total_size"
    assert program.plan(entry(buffer_size=cli.buffer_size), cli) == (program.port_of(entry()), [], [])


@EITHER
def test_entries_that_were_not_there_before_go_again(tool: str) -> None:
    """A table that somebody had filled in part keeps that part and nothing else."""
    cli = FakeCli((tool,))
    cli.trust, cli.full_table, cli.dscp = "dscp", False, {46: 5, 48: 7}
    todo = program.plan(entry(dscp_to_priority={"26": 3, "48": 6}), cli)
    (step,) = todo.steps
    assert step.first == {"26": None, "48": 7}
    program.apply(todo)
    assert cli.dscp == {46: 5, 48: 6, 26: 3}
    back = program.plan(entry(dscp_to_priority=step.first), cli)
    program.apply(back)
    assert cli.dscp == {46: 5, 48: 7} and program.plan(entry(dscp_to_priority=step.first), cli).steps == []


def test_a_table_that_came_with_trust_goes_with_trust() -> None:
    cli = FakeCli(("dcb",))
    wanted = entry(trust="dscp", dscp_to_priority={"26": 3, "48": 6})
    todo = program.plan(wanted, cli)
    first = {step.knob.name: step.first for step in todo.steps}
    program.apply(todo)
    for part in program.plan(entry(**first), cli).backwards():
        program.apply(part)
    assert cli.dscp == {} and program.plan(entry(**first), cli).steps == []
    # The driver was loaded anew meanwhile, with trust as the firmware had kept it.
    cli.dscp = {dscp: dscp >> 3 for dscp in range(64)}
    program.apply(program.plan(entry(dscp_to_priority=first["dscp_to_priority"]), cli))
    assert len(cli.dscp) == 64
    for part in program.plan(entry(**first), cli).backwards():
        program.apply(part)
    assert cli.dscp == {}


@EITHER
def test_room_and_who_gets_it_change_in_one(tool: str) -> None:
    """The driver refuses to take the room of a lossless priority, even if that is to move elsewhere."""
    cli = FakeCli((tool,))
    cli.pfc, cli.prio_buffer = [0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0]
    wanted = {"buffer_size": [20016, 0, 156096, 0, 0, 0, 0, 0], "prio_buffer": [0, 0, 0, 2, 0, 0, 0, 0]}
    todo = program.plan(entry(**wanted), cli)
    program.apply(todo)
    assert (cli.buffer_size, cli.prio_buffer) == (wanted["buffer_size"], wanted["prio_buffer"])
    first = {step.knob.name: step.first for step in todo.steps}
    for part in program.plan(entry(**first), cli).backwards():
        program.apply(part)
    assert (cli.buffer_size[1], cli.prio_buffer[3]) == (156096, 1)


@pytest.mark.parametrize(("own", "used"), [("mlx5_core", "mlnx_qos"), ("bnxt_en", "dcb"), ("ice", "dcb")])
def test_each_driver_has_the_tool_that_knows_it(
    own: str, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs, "NET", str(tmp_path))
    (tmp_path / "drivers" / own).mkdir(parents=True)
    (tmp_path / "no-such-rail/device").mkdir(parents=True)
    (tmp_path / "no-such-rail/device/driver").symlink_to(tmp_path / "drivers" / own)
    cli = FakeCli(("mlnx_qos", "dcb", "ethtool"))
    todo = program.plan(entry(pfc=[False] * 8, pause={"rx": False, "tx": False}), cli)
    assert {command.split()[0] for command in cli.commands} == {used, "ethtool"}
    assert todo.flaps == (own != "mlx5_core"), "other drivers train the link anew for 802.3x pause"


def test_a_map_that_is_right_in_the_end_is_no_failure() -> None:
    """dcb wants to take out the entry that the driver has replaced already, and says that there is none."""
    cli = FakeCli(("dcb",))
    cli.dscp = {26: 0, 48: 6}
    program.apply(program.plan(entry(trust="dscp", dscp_to_priority={"26": 3, "48": 6}), cli))
    assert cli.dscp == {26: 3, 48: 6}


@EITHER
def test_what_the_tool_says_of_a_value_that_was_not_set(tool: str) -> None:
    cli = FakeCli((tool,))
    cli.pfc, cli.prio_buffer = [0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0]
    todo = program.plan(entry(buffer_size=[262144] + [0] * 7), cli)
    with pytest.raises(Failure, match=r"no-such-rail: buffer_size is 20016,156096,.*, wanted 262144,0.* exited with 1"):
        program.apply(todo)


class ReadOnly(FakeCli):
    """A BlueField in DPU mode: it shows its ports to the host, and lets it set nothing."""

    def dcb(self, words: list[str]) -> str:
        if "set" in words or "replace" in words:
            raise Refused("Attribute write: Operation not supported\n")
        return super().dcb(words)


def test_a_card_that_shows_its_ports_and_keeps_them_is_told_with_the_remedy() -> None:
    cli = ReadOnly(("dcb",))
    with pytest.raises(Failure, match=r"pfc is 0,.*not supported.*DPU mode.*gpu_fabric_exclude_devices"):
        program.apply(program.plan(entry(pfc=MASK), cli))


class Broken(FakeCli):
    """A host whose mlnx_qos was left behind by another Python."""

    reason = ""

    def mlnx_qos(self, words: list[str]) -> str:
        if not self.reason:
            raise Failure("Cannot run mlnx_qos: there is no such command on this host")
        raise Refused(f'Traceback (most recent call last):\n  File "/usr/bin/mlnx_qos", line 40\n{self.reason}\n')


@pytest.mark.parametrize("reason", ["", "ModuleNotFoundError: No module named 'dcbnetlink'"])
def test_dcb_serves_where_mlnx_qos_cannot_run(reason: str) -> None:
    cli = Broken(("mlnx_qos", "dcb"))
    cli.reason = reason
    program.apply(program.plan(entry(pfc=MASK), cli))
    assert cli.pfc == [0, 0, 0, 1, 0, 0, 0, 0]


class NoDcb(FakeCli):
    """A port whose driver has no data centre bridging, as on a DPU that keeps it for itself."""

    def mlnx_qos(self, words: list[str]) -> str:
        raise Refused(
            'Traceback (most recent call last):\n  File "/usr/bin/mlnx_qos", line 362, in <module>\n'
            "OSError: [Errno 95] Netlink error: Operation not supported (95)\n"
        )

    def dcb(self, words: list[str]) -> str:
        raise Refused("Attribute read: Operation not supported\n")


def test_a_port_without_data_centre_bridging_is_told_with_the_remedy() -> None:
    with pytest.raises(Failure) as caught:
        program.plan(entry(trust="dscp", pfc=MASK), NoDcb(("mlnx_qos", "dcb")))
    said = str(caught.value)
    assert said.startswith("no-such-rail: ") and "Traceback" not in said and "File" not in said
    assert "OSError: [Errno 95]" in said and "Attribute read: Operation not supported" in said
    assert "gpu_fabric_exclude_devices" in said and "gpu_fabric_roce_profile: none" in said


class Kept(FakeCli):
    """A card whose own agent exchanges DCBX, and lets the host have no part in it."""

    def dcb(self, words: list[str]) -> str:
        if words[:2] == ["dcbx", "set"]:
            raise Refused("Error when attempting to set attribute: Operation not permitted\n")
        return super().dcb(words)


def test_a_card_that_keeps_the_exchange_is_told_with_the_remedy() -> None:
    cli = Kept(("dcb",))
    cli.dcbx = ["lld_managed", "ieee"]
    with pytest.raises(Failure, match=r"dcbx is firmware, wanted os: .* not permitted.*fw-lldp-agent off"):
        program.apply(program.plan(entry(dcbx="os"), cli))


class Overruled(FakeCli):
    """A port whose trust somebody else sets, too."""

    def run(self, argv: list[str], check: bool = True, **_: object) -> Result:
        done = super().run(argv, check)
        self.trust = "pcp"
        return done


def test_a_value_that_somebody_else_sets_back_is_told_with_who_that_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SETTLE_S", 0)
    cli = Overruled(("mlnx_qos",))
    with pytest.raises(Failure, match=r"no-such-rail: trust is pcp after it was set to dscp.*DCBX.*lldpad"):
        program.apply(program.plan(entry(trust="dscp"), cli))


@EITHER
def test_lossless_buffers_are_given_back_once_nothing_is_lossless(tool: str) -> None:
    cli = FakeCli((tool,))
    cli.buffer_size = [262144] + [0] * 7
    wanted = entry(dcbx="os", buffer_size=[100000, 162144] + [0] * 6, prio_buffer=[0, 0, 0, 1, 0, 0, 0, 0], pfc=MASK)
    todo = program.plan(wanted, cli)
    program.apply(todo)
    assert cli.buffer_size[1] and cli.pfc[3]
    first = {step.knob.name: step.before for step in todo.steps}
    for part in program.plan(entry(**first), cli).backwards():
        program.apply(part)
    assert (cli.buffer_size, cli.prio_buffer, cli.pfc) == ([262144] + [0] * 7, [0] * 8, [0] * 8)


class Willing(FakeCli):
    """A card that takes over what its switch has as soon as it owns the exchange."""

    def mlnx_qos(self, words: list[str]) -> str:
        said = super().mlnx_qos(words)
        if "-d" in words and words[words.index("-d") + 1] == "fw":
            self.pfc = [0, 0, 0, 0, 0, 1, 0, 0]
        return said


def test_what_the_firmware_does_once_it_has_its_exchange_back_is_its_own() -> None:
    cli = Willing(("mlnx_qos",))
    cli.dcbx = []
    program.apply(program.plan(entry(dcbx="os", pfc=MASK), cli))
    for part in program.plan(entry(dcbx="firmware", pfc=[False] * 8), cli).backwards():
        program.apply(part)
    assert cli.dcbx == [] and cli.pfc[5]
