# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Losses of a link that our own settings bring about are counted for the boot, and only those."""

from __future__ import annotations

import json
import pathlib
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import link_downs
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic import bounces, program
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._nic.knobs import Knob, Port

PORT = Port("rail0", "mlx5_0", 1, "0000:19:00.0")


@pytest.fixture
def counter(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where the port counts its losses; record and boot id are the test's own."""
    counter = tmp_path / "link_downed"
    counter.write_text("7\n")
    boot = tmp_path / "boot_id"
    boot.write_text("boot-1\n")
    monkeypatch.setattr(bounces, "RECORD", str(tmp_path / "run" / "link_downs.json"))
    monkeypatch.setattr(bounces, "BOOT_ID", str(boot))
    monkeypatch.setattr(bounces, "LAG_S", 0.3)
    monkeypatch.setattr(bounces, "counted", lambda port: int(counter.read_text()))
    return counter


class Bouncing(Knob):
    """A setting that costs the link twice, as the counter tells."""

    name = "pfc"
    disruption = "linkflap"
    value = 0

    def __init__(self, counter: pathlib.Path) -> None:
        self.counter = counter

    def read(self) -> int:
        return self.value

    def write(self, value: t.Any) -> None:
        self.value = value
        self.counter.write_text(str(int(self.counter.read_text()) + 2))


def test_what_a_setting_costs_is_added_up(counter: pathlib.Path) -> None:
    for value in (1, 2):
        knob = Bouncing(counter)
        program.apply(program.Todo(PORT, [program.Step(knob, 0, value)], []))
        counter.write_text(str(int(counter.read_text()) + 1))  # and one that is the cable's
    assert bounces.load() == {"rail0": {"pci": "0000:19:00.0", "downs": 4}}


def test_a_count_that_comes_late_is_waited_for(counter: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([7, 7, 8])
    monkeypatch.setattr(bounces, "counted", lambda port: next(answers, 8))
    monkeypatch.setattr(bounces.time, "sleep", lambda _s: None)
    bounces.note(PORT, 7, bounced=True)
    assert bounces.load()["rail0"]["downs"] == 1


def test_nothing_lost_or_nothing_known_leaves_no_record(counter: pathlib.Path) -> None:
    bounces.note(PORT, 7, bounced=False)
    bounces.note(PORT, None, bounced=True)
    assert not pathlib.Path(bounces.RECORD).exists()


def test_ports_that_are_set_at_once_are_all_counted(counter: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bounces.load

    def slow() -> dict[str, t.Any]:
        ports = real()
        time.sleep(0.02)
        return ports

    monkeypatch.setattr(bounces, "load", slow)
    names = [f"rail{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bounces.note(PORT._replace(netdev=name), 6, bounced=True), names))
    assert {name: entry["downs"] for name, entry in real().items()} == dict.fromkeys(names, 1)


def test_another_boot_begins_anew(counter: pathlib.Path) -> None:
    bounces.note(PORT, 3, bounced=True)
    pathlib.Path(bounces.BOOT_ID).write_text("boot-2\n")
    assert bounces.load() == {}
    bounces.note(PORT, 6, bounced=True)
    assert bounces.load()["rail0"]["downs"] == 1


class Source:
    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def exists(self, path: str) -> bool:
        return path in self.files

    def read(self, path: str) -> str | None:
        return self.files.get(path)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"boot_id": "b1", "ports": {"rail0": {"pci": "0000:19:00.0", "downs": 2}}}, {"rail0": 2}),
        ({"boot_id": "b0", "ports": {"rail0": {"pci": "0000:19:00.0", "downs": 2}}}, {}),
        ({"boot_id": "b1", "ports": {"rail0": {"downs": "many"}, "rail1": 3}}, {}),
        ([], {}),
        ({"boot_id": "b1", "ports": []}, {}),
    ],
)
def test_facts_tell_those_of_this_boot(record: t.Any, told: dict[str, int]) -> None:
    source = Source({bounces.RECORD: json.dumps(record), bounces.BOOT_ID: "b1\n"})
    assert {name: entry["downs"] for name, entry in link_downs.collect(t.cast(t.Any, source)).items()} == told
    assert link_downs.collect(t.cast(t.Any, Source({bounces.RECORD: "{cut", bounces.BOOT_ID: "b1"}))) == {}
