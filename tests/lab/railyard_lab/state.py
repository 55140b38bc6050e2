# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of one host: a JSON file, changed by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEFAULT = "/var/lib/gpu-fabric-lab/state.json"


def root() -> Path:
    return Path(os.environ.get("RAILYARD_LAB_ROOT", "/"))


def path() -> Path:
    given = os.environ.get("RAILYARD_LAB_STATE")
    return Path(given) if given else root() / DEFAULT.lstrip("/")


def exists() -> bool:
    return path().is_file()


def load() -> dict[str, Any]:
    try:
        return json.loads(path().read_text())
    except FileNotFoundError:
        raise SystemExit(
            f"railyard_lab: {path()} is missing: run `railyard_lab node up --profile P --host H`"
        ) from None


def save(state: dict[str, Any]) -> None:
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}.new")
    fresh.write_text(json.dumps(state, indent=1) + "\n")
    fresh.replace(target)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    lock = path().with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def change() -> Iterator[dict[str, Any]]:
    """Read, let the caller change, write, and bring the tree up to date; nothing is written when the body raises."""
    from railyard_lab import tree

    with locked():
        state = load()
        before = json.dumps(state, sort_keys=True)
        yield state
        changed = json.dumps(state, sort_keys=True) != before
        tree.sync(state)
        if changed or json.dumps(state, sort_keys=True) != before:
            save(state)


@contextlib.contextmanager
def use(writes: bool) -> Iterator[dict[str, Any]]:
    """For a tool that may set or only show: what is shown needs no lock, or tools asked at once wait for each other."""
    if not writes:
        yield load()
        return
    with change() as state:
        yield state


@contextlib.contextmanager
def reading() -> Iterator[dict[str, Any]]:
    """A state that agrees with the interfaces as they are now."""
    with change() as state:
        yield state


def nic_by(state: dict[str, Any], key: str, value: str) -> dict[str, Any] | None:
    return next((nic for nic in state["nics"] if nic.get(key) == value), None)


def find_nic(state: dict[str, Any], name: str) -> dict[str, Any] | None:
    """A NIC by what a person or a tool calls it: RDMA name, interface, PCI address with or without domain, mst path."""
    wanted = name.rsplit("/dev/mst/", 1)[-1]
    for nic in state["nics"]:
        names = {nic["rdma"], nic["netdev"], nic["pci"], nic["pci"].removeprefix("0000:"), mst_name(state, nic)}
        if wanted in names - {None}:
            return nic
    return None


def mst_name(state: dict[str, Any], nic: dict[str, Any]) -> str | None:
    """`mt4129_pciconf3`, with `.1` for the second function of a card."""
    from railyard_lab import catalogue

    model = catalogue.NICS[nic["model"]]
    if model["vendor"] != "15b3" or nic["vf"]:
        return None
    cards: list[str] = []
    for other in sorted(state["nics"], key=lambda item: item["pci"]):
        other_model = catalogue.NICS[other["model"]]
        card = other["pci"].rsplit(".", 1)[0]
        if other_model["device"] == model["device"] and card not in cards:
            cards.append(card)
    card, function = nic["pci"].rsplit(".", 1)
    suffix = f".{function}" if function != "0" else ""
    return f"mt{int(model['device'], 16)}_pciconf{cards.index(card)}{suffix}"


def present_gpus(state: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted((gpu for gpu in state["gpus"] if gpu["present"]), key=lambda gpu: gpu["pci"])


def log_kernel(state: dict[str, Any], text: str) -> None:
    from railyard_lab import clock

    state["dmesg"].append([round(clock.uptime(), 6), text])
    del state["dmesg"][:-400]
