# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the lab stands on this machine, found by its own marks, and how it is taken away.

rack.json says what a rack should be. Its parts say whose they are themselves: containers by the directory of their
seed, the management bridge by its alias, daemons and virtual machines by their arguments. So a rack goes away whole
also where its description is lost or a run ended half way.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import cables, engine, layout

MARK = "railyard-lab"
SEED = "/seed"  # how the place ends at which a container sees its node's directory
TERM_S = 10

Belongs = Callable[[str], bool]


class Mark(NamedTuple):
    """A management bridge and whose it is; an empty directory: it was made without an alias."""

    bridge: str
    prefix: str
    directory: str

    @property
    def abandoned(self) -> bool:
        return bool(self.directory) and not Path(self.directory).is_dir()


def marks() -> list[Mark]:
    """The management bridge of every rack on this machine."""
    found = []
    for link in json.loads(cables.ip(["-json", "-details", "link", "show", "type", "bridge"]) or "[]"):
        words = link.get("ifalias", "").split()
        if len(words) == 3 and words[0] == MARK:
            found.append(Mark(link["ifname"], words[1], words[2]))
        elif layout.is_bridge(link.get("ifname", "")):
            found.append(Mark(link["ifname"], "", ""))
    return found


def at(directory: Path) -> Belongs:
    """The rack of this directory and no other."""
    here = os.path.realpath(directory)
    return lambda text: os.path.realpath(text) == here


def below(directory: Path) -> Belongs:
    """Every rack of this directory and of those in it."""
    here = os.path.realpath(directory)
    return lambda text: os.path.realpath(text) == here or os.path.realpath(text).startswith(here + os.sep)


def described(directory: Path) -> dict[str, Any]:
    """What the directory's rack.json says; empty where there is none."""
    path = directory / "rack.json"
    return json.loads(path.read_text()) if path.exists() else {}


# --- processes ----------------------------------------------------------------------------------------------------


def _processes() -> Iterator[tuple[int, list[str]]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                argv = Path(entry.path, "cmdline").read_bytes()
            except OSError:  # it ended in the meantime
                continue
            yield int(entry.name), [os.fsdecode(word) for word in argv.split(b"\0")]


def daemons(belongs: Belongs) -> list[int]:
    return [
        pid
        for pid, argv in _processes()
        if "lab_rack" in argv and argv[-3:-1] == ["--dir", argv[-2]] and "run" in argv and belongs(argv[-2])
    ]


def machines(belongs: Belongs) -> list[int]:
    """Virtual machines whose disk lies where `belongs` says."""
    found = []
    for pid, argv in _processes():
        disks = [
            word.split("file=", 1)[1].split(",")[0] for word in argv if word.startswith("file=") and ".qcow2" in word
        ]
        if os.path.basename(argv[0]).startswith("qemu-system") and any(belongs(disk) for disk in disks):
            found.append(pid)
    return found


def end(pids: Iterable[int]) -> None:
    """Ask, wait, insist."""
    left = set(pids)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            _signal(pid, number)
        deadline = time.monotonic() + TERM_S
        while left and time.monotonic() < deadline:
            left = {pid for pid in left if _alive(pid)}
            time.sleep(0.05)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# --- containers ---------------------------------------------------------------------------------------------------


def containers(engine_name: str, belongs: Belongs, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """The engine's containers whose seed lies where `belongs` says: name and rack."""
    found = []
    for entry in engine.inspect_all(engine_name, environment):
        for mount in entry.get("Mounts") or []:
            # .../<rack's directory>/nodes/<node>
            directory = os.path.dirname(os.path.dirname(mount.get("Source", "")))
            if mount.get("Destination", "").endswith(SEED) and belongs(directory):
                found.append({"name": entry["Name"].lstrip("/"), "rack": entry["Config"]["Labels"]["railyard.lab"]})
    return sorted(found, key=lambda container: container["name"])


# --- the whole ----------------------------------------------------------------------------------------------------


def bridges(belongs: Belongs, directories: Iterable[Path]) -> dict[str, str]:
    """Management bridges that belong, and the names of their racks on this machine."""
    standing = marks()
    found = {mark.bridge: mark.prefix for mark in standing if mark.directory and belongs(mark.directory)}
    foreign = {mark.bridge for mark in standing if mark.directory} - set(found)
    for directory in directories:
        rack = described(directory)
        # A bridge without an alias is older than aliases.
        if rack and rack["bridge"] not in foreign:
            found[rack["bridge"]] = rack.get("prefix", rack["name"])
    return found


def take_down(belongs: Belongs, directories: Iterable[Path], environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Remove everything that belongs, and nothing of anybody else's: `{rack: [what was there]}`."""
    gone: dict[str, list[str]] = {}
    known = [path for path in directories if belongs(str(path))]
    doomed = bridges(belongs, known)
    end(daemons(belongs))
    for engine_name in (name for name in engine.ENGINES if engine.answers(name, environment)):
        found = containers(engine_name, belongs, environment)
        engine.remove(engine_name, [container["name"] for container in found], environment)
        for container in found:
            gone.setdefault(container["rack"], []).append(container["name"])
    for bridge, rack in doomed.items():
        if cables.remove(bridge, layout.fabric_netns(rack)):
            gone.setdefault(rack, []).append(bridge)
    for directory in known:
        (directory / "rack.json").unlink(missing_ok=True)
        (directory / "daemon.pid").unlink(missing_ok=True)
    return gone
