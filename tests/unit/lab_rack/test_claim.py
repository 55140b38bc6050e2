# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Racks of several checkouts on one machine: who has which name and network, and what is taken away with whom.

Everything that touches the network runs in a namespace of its own, which stands for the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from lab_rack import claim, hardware, layout, remains
from test_cables import may_make_namespaces
from test_cables import rack as described


@pytest.fixture
def machine(tmp_path):
    """A machine without networks: commands of lab_rack in it, by any number of checkouts."""
    if os.geteuid() != 0 or not may_make_namespaces():
        pytest.skip("network namespaces need root")
    # A /run of its own, too: there are the names of namespaces, and the lock.
    script = "mount -t tmpfs tmpfs /run && mkdir /run/netns && echo ready && exec sleep 60"
    argv = ["unshare", "--net", "--mount", "sh", "-c", script]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "ready\n"
    yield Machine(holder.pid)
    holder.kill()
    holder.wait()


class Machine:
    # The program as it is, with a container engine that has nothing: these tests are about networks.
    PROGRAM = (
        "import sys; from lab_rack import __main__ as m, engine; engine.answers = lambda *a: False; sys.exit(m.main())"
    )

    def __init__(self, pid: int) -> None:
        self.enter = ["nsenter", f"--target={pid}", "--net", "--mount"]

    def start(self, *words: str) -> subprocess.Popen:
        argv = [*self.enter, sys.executable, "-B", "-c", self.PROGRAM, *words]
        env = {**os.environ, "PYTHONPATH": str(hardware.LAB)}
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def rack(self, *words: str) -> dict:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return json.loads(out)

    def ip(self, *words: str) -> str:
        return subprocess.run([*self.enter, "ip", *words], capture_output=True, text=True, check=True).stdout


def test_racks_claimed_at_the_same_moment_share_neither_name_nor_network(machine, tmp_path):
    directories = [tmp_path / f"checkout{number}" for number in range(6)]
    started = [machine.start("claim", "--dir", str(directory), "--name", "site") for directory in directories]
    claims = []
    for process in started:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        claims.append(json.loads(out))
    assert len({found["subnet"] for found in claims}) == len(claims)
    assert len({found["prefix"] for found in claims}) == len(claims)
    assert sum(found["prefix"] == "site" for found in claims) == 1
    assert sum("Another checkout has a rack site" in " ".join(found["notes"]) for found in claims) == len(claims) - 1


def test_a_claim_lasts_and_ends_with_the_rack(machine, tmp_path):
    first, second = tmp_path / "a/.cache/lab", tmp_path / "b/.cache/lab"
    taken = machine.rack("claim", "--dir", str(first))
    assert taken == {"prefix": "railyard", "subnet": "10.89.0.0/24", "changed": True, "notes": []}
    # As `describe` does.
    (first / "rack.json").write_text(json.dumps({**described(name="railyard"), "subnet": taken["subnet"]}))
    assert machine.rack("claim", "--dir", str(first))["changed"] is False
    other = machine.rack("claim", "--dir", str(second))
    assert other["subnet"] == "10.89.1.0/24" and other["prefix"].startswith("railyard-")
    gone = machine.rack("down", "--dir", str(second))
    assert gone["said"] == [f"The rack {other['prefix']} is down: {layout.bridge(other['prefix'])}."]
    assert machine.rack("down", "--dir", str(second)) == {"changed": False, "said": ["Nothing was up."]}
    assert "10.89.0.1/24" in machine.ip("-br", "address") and "10.89.1.1" not in machine.ip("-br", "address")
    assert machine.rack("claim", "--dir", str(first))["subnet"] == "10.89.0.0/24"


def test_a_rack_whose_network_was_taken_since_moves_and_says_so(machine, tmp_path):
    tmp_path.joinpath("rack.json").write_text(json.dumps({**described(name="railyard"), "subnet": "10.89.0.0/24"}))
    machine.ip("link", "add", "foreign", "type", "bridge")
    machine.ip("address", "add", "10.89.0.7/24", "dev", "foreign")  # down: it has no route
    taken = machine.rack("claim", "--dir", str(tmp_path))
    assert taken["subnet"] == "10.89.1.0/24" and "10.89.0.0/24" in taken["notes"][0]


def test_a_network_that_a_person_wants_is_not_replaced_by_another(machine, tmp_path):
    machine.rack("claim", "--dir", str(tmp_path / "a"), "--name", "one", "--subnet", "10.7.0.0/24")
    process = machine.start("claim", "--dir", str(tmp_path / "b"), "--name", "two", "--subnet", "10.7.0.0/24")
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "10.7.0.0/24 overlaps a network of this machine" in err


def test_a_rack_whose_checkout_is_gone_makes_way_and_is_told(machine, tmp_path):
    gone = tmp_path / "gone"
    for name in ("site", "bench"):
        machine.rack("claim", "--dir", str(gone / name), "--name", name)
    machine.ip("netns", "add", layout.fabric_netns("site"))
    for path in (gone / "site", gone / "bench", gone):
        path.rmdir()
    taken = machine.rack("claim", "--dir", str(tmp_path / "new"), "--name", "site")
    assert taken["prefix"] == "site" and taken["subnet"] == "10.89.0.0/24"
    told = " ".join(taken["notes"])
    assert f"A rack site whose description is gone ({gone}/site) was taken down." in told
    assert f"lab_rack down --dir {gone}/bench" in told
    assert layout.bridge("bench") in machine.ip("-br", "link") and machine.ip("netns", "list") == ""


def test_everything_of_a_checkout_goes_down_and_nothing_of_another(machine, tmp_path):
    mine, others = tmp_path / "mine/.cache", tmp_path / "mine2/.cache"
    for cache, name in ((mine, "railyard"), (mine, "bench"), (others, "molecule")):
        directory = cache / "lab" if name == "railyard" else cache / "lab/racks" / name
        prefix = machine.rack("claim", "--dir", str(directory), "--name", name)["prefix"]
        (directory / "rack.json").write_text(json.dumps(described(name=prefix)))
    # A rack whose description is lost, and one that was never started.
    (mine / "lab/racks/bench/rack.json").unlink()
    (mine / "lab/racks/idle").mkdir()
    said = machine.rack("down", "--cache", str(mine))["said"]
    assert sorted(sentence.split()[2] for sentence in said) == ["bench", "railyard"]
    assert machine.ip("-br", "link", "show", "type", "bridge").split()[0] == layout.bridge("molecule")
    assert not (mine / "lab/rack.json").exists() and (others / "lab/racks/molecule/rack.json").exists()


def test_a_bridge_older_than_aliases_is_known_by_the_description(monkeypatch, tmp_path):
    bridge = layout.bridge("unit")
    (tmp_path / "rack.json").write_text(json.dumps(described()))
    monkeypatch.setattr(remains, "marks", lambda: [remains.Mark(bridge, "", "")])
    assert remains.bridges(remains.at(tmp_path), [tmp_path]) == {bridge: "unit"}
    assert claim.choose_prefix("unit", tmp_path, described(), remains.marks()) == "unit"
    assert claim.choose_prefix("unit", tmp_path, {}, remains.marks()) != "unit"
    monkeypatch.setattr(remains, "marks", lambda: [remains.Mark(bridge, "unit", "/another/checkout")])
    assert remains.bridges(remains.at(tmp_path), [tmp_path]) == {}


SLEEP = ["-c", "import time; time.sleep(60)"]


def test_processes_are_ended_by_whose_they_are(tmp_path):
    mine, others = tmp_path / "mine/.cache", tmp_path / "others/.cache"
    started = {
        (kind, cache): subprocess.Popen([program, *SLEEP, *words(cache)], executable=sys.executable)
        for cache in (mine, others)
        for kind, program, words in (
            ("machine", "qemu-system-x86_64", lambda cache: ["-drive", f"file={cache}/vm/run/vm-01.qcow2,if=virtio"]),
            ("daemon", "python3", lambda cache: ["lab_rack", "daemon", "run", "--dir", f"{cache}/lab/racks/site"]),
            ("editor", "vi", lambda cache: [f"{cache}/lab/racks/site/rack.json"]),
        )
    }
    try:
        found = remains.machines(remains.below(mine / "vm")) + remains.daemons(remains.below(mine / "lab"))
        assert found == [started["machine", mine].pid, started["daemon", mine].pid]
        remains.end(found)
        ended = {which for which, process in started.items() if process.poll() is not None}
        assert ended == {("machine", mine), ("daemon", mine)}
    finally:
        for process in started.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", ["all", "Bad"])
def test_names_that_mean_something_else_are_refused(name):
    with pytest.raises(layout.LayoutError, match="lab_name"):
        layout.check_name(name)


def test_directories_that_an_alias_cannot_hold_are_refused(tmp_path):
    assert claim.alias_of("site", tmp_path).split()[1:] == ["site", str(tmp_path)]
    for wrong in (tmp_path / "with blank", tmp_path / ("x" * 250)):
        with pytest.raises(layout.LayoutError, match="no blanks"):
            claim.alias_of("site", wrong)
