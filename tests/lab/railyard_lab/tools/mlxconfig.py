# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mlxconfig (MFT) and mstconfig (mstflint)."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from railyard_lab import catalogue, nvconfig
from railyard_lab import state as state_file
from railyard_lab.tools import _common

_STAR = "The '*' shows parameters with next value different from default/current value."
_READ_ONLY = "The 'RO' shows parameters which are for read only and cannot be changed"


class Failure(Exception):
    pass


def _options(argv: list[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "device": None,
        "yes": False,
        "extended": False,
        "json": None,
        "command": None,
        "words": [],
    }
    words = iter(argv)
    for word in words:
        if word in ("-d", "--dev"):
            chosen["device"] = next(words, None)
        elif word in ("-y", "--yes"):
            chosen["yes"] = True
        elif word in ("-e", "--enable_verbosity"):
            chosen["extended"] = True
        elif word in ("-j", "--json_format"):
            chosen["json"] = next(words, None)
        elif word in ("-v", "--version"):
            chosen["command"] = "version"
        elif word in ("-h", "--help"):
            chosen["command"] = "help"
        elif word.startswith("-") and chosen["command"] is None:
            raise Failure(f"Invalid option: {word}")
        elif chosen["command"] is None:
            chosen["command"] = {"q": "query", "s": "set", "r": "reset"}.get(word, word)
        else:
            chosen["words"].append(word)
    return chosen


def _find(state: dict[str, Any], name: str) -> dict[str, Any]:
    nic = state_file.find_nic(state, name)
    if nic is None or not catalogue.NICS[nic["model"]].get("type"):
        raise Failure(f"Failed to open device: {name}. No such file or directory")
    if nic["vf"]:
        raise Failure(f"Failed to open device: {name}. Unsupported operation: virtual functions have no configuration")
    return nic


def _known(settings: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in settings:
        raise Failure(f"The Device doesn't support {name} parameter")
    return settings[name]


def _named(settings: dict[str, Any], word: str) -> list[str]:
    """The parameters that a word names: one, an element of an array, or a range of elements."""
    name, bracket, rest = word.partition("[")
    entry = _known(settings, name)
    if not bracket:
        return [name]
    first, dots, last = rest.rstrip("]").partition("..")
    for text in (first, last) if dots else (first,):
        if not re.fullmatch("[0-9]+", text):
            raise Failure(f"Can not parse the index {text}")
    low, high = int(first), int(last if dots else first)
    if low > high:
        raise Failure(f"Left index {low} can not be greater than right index {high}")
    if high >= len(entry.get("elements", ())):
        raise Failure(f"Index {high} of parameter {name} is out of range")
    return [f"{name}[{index}]" for index in range(low, high + 1)]


def _heading(nic: dict[str, Any], device: str, number: int) -> None:
    model = catalogue.NICS[nic["model"]]
    print(f"\nDevice #{number}:\n----------\n")
    print(f"{'Device type:':<20}{model['type']:<20}")
    print(f"{'Name:':<20}{model['rom']:<20}")
    print(f"{'Description:':<20}{model['product'].replace(',', ';'):<20}")
    print(f"{'Device:':<20}{device:<20}\n")


def _rows(settings: dict[str, Any], names: list[str], extended: bool, new: dict[str, str] | None = None) -> None:
    header = f"{'Configurations:':<16}"
    header += f"{'Default':>48}{'Current':>20}{'Next Boot':>18}" if extended else f"{'Next Boot':>50}"
    print(header + ("       New" if new is not None else ""))
    star = read_only = False
    for name in names:
        entry = settings[name]
        values = [entry["default"], entry["current"], entry["next"]] if extended else [entry["next"]]
        if new is not None:
            values.append(new.get(name, entry["next"]))
        mark = ""
        if (extended and entry["next"] not in (entry["default"],)) or (extended and entry["next"] != entry["current"]):
            mark, star = "*", True
        if entry.get("read_only"):
            mark, read_only = "RO", True
        print(f"{mark:<8}{name:<44}" + " ".join(f"{value:<20}" for value in values))
    if star:
        print(_STAR)
    if read_only:
        print(f"\n{_READ_ONLY}")


def _query(state: dict[str, Any], given: dict[str, Any]) -> int:
    if given["device"]:
        nics = [(_find(state, given["device"]), given["device"])]
    else:
        nics = [(nic, nic["pci"]) for nic in sorted(state["nics"], key=lambda nic: nic["pci"]) if nic.get("nvconfig")]
        if not nics:
            raise Failure(
                "No devices found, mst might be stopped. You may need to run 'mst start' to load MST modules. "
            )
    document: dict[str, Any] = {}
    for number, (nic, device) in enumerate(nics, start=1):
        settings = nvconfig.visible(nic["nvconfig"])
        names = [name for word in given["words"] for name in _named(settings, word)] or list(settings)
        settings = {**settings, **nvconfig.elements(settings)}
        model = catalogue.NICS[nic["model"]]
        if given["json"]:
            document[f"Device #{number}"] = {
                "description": model["product"].replace(",", ";"),
                "device": device,
                "device_type": model["type"],
                "name": model["rom"],
                "tlv_configuration": {name: _json_entry(settings[name], given["extended"]) for name in names},
            }
            continue
        _heading(nic, device, number)
        _rows(settings, names, given["extended"])
    if given["json"]:
        _write_json(given["json"], document)
    return 0


def _json_entry(entry: dict[str, Any], extended: bool) -> dict[str, Any]:
    if not extended:
        return {"next_value": entry["next"]}
    return {
        "current_value": entry["current"],
        "default_value": entry["default"],
        "modified": entry["next"] != entry["default"] or entry["next"] != entry["current"],
        "next_value": entry["next"],
        "read_only": bool(entry.get("read_only")),
    }


def _write_json(path: str, document: dict[str, Any]) -> None:
    """The real tool reads the file first and fails when that is no JSON."""
    try:
        with open(path, encoding="utf-8") as handle:
            json.load(handle)
    except FileNotFoundError:
        pass
    except ValueError as error:
        raise Failure(f"Failed to parse the JSON file {path}: {error}") from None
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(document, handle, indent=4)
        handle.write("\n")


def _confirm(given: dict[str, Any], question: str) -> None:
    print(f"\n {question} (y/n) [n] : ", end="", flush=True)
    if given["yes"]:
        print("y")
        return
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        print()
        raise Failure("Aborted by user.")


def _set(given: dict[str, Any]) -> int:
    if not given["device"]:
        raise Failure("Device name was not specified")
    if not given["words"]:
        raise Failure("No configurations were specified")
    wanted: dict[str, str] = {}
    state = state_file.load()
    nic = _find(state, given["device"])
    settings = nvconfig.visible(nic["nvconfig"])
    for word in given["words"]:
        if "=" not in word:
            raise Failure(f"Invalid assignment: {word}")
        word, text = word.split("=", 1)
        every = {**settings, **nvconfig.elements(settings)}
        for name in _named(settings, word):
            entry = every[name]
            if entry.get("read_only"):
                raise Failure(f"Parameter {name} is read only")
            try:
                wanted[name] = nvconfig.parse_value(name, entry, text)
            except ValueError as error:
                raise Failure(str(error)) from None
    if nic["sw_mng"]:
        raise Failure("Failed to set configuration: ME_ICMD_OPERATIONAL_ERROR")
    _heading(nic, given["device"], 1)
    _rows({**settings, **nvconfig.elements(settings)}, list(wanted), False, wanted)
    _confirm(given, "Apply new Configuration?")
    with state_file.change() as fresh:
        for other in nvconfig.same_card(fresh, state_file.find_nic(fresh, nic["pci"]) or nic):
            for name, value in wanted.items():
                nvconfig.put(other["nvconfig"], name, value)
    print("Applying... Done!")
    print("-I- Please reboot machine to load new configurations.")
    return 0


def _reset(given: dict[str, Any]) -> int:
    if not given["device"]:
        raise Failure("Device name was not specified")
    state = state_file.load()
    nic = _find(state, given["device"])
    settings = nvconfig.visible(nic["nvconfig"])
    names = given["words"] or list(settings)
    for name in names:
        _known(settings, name)
    print()
    _confirm(given, f"Reset configuration for device {given['device']}?")
    with state_file.change() as fresh:
        for other in nvconfig.same_card(fresh, state_file.find_nic(fresh, nic["pci"]) or nic):
            for name in names:
                entry = other["nvconfig"][name]
                for each in () if entry.get("read_only") else (entry, *entry.get("elements", ())):
                    each["next"] = each["default"]
    print("Applying... Done!")
    print("-I- Please reboot machine to load new configurations.")
    return 0


def main(name: str, argv: list[str]) -> int:
    try:
        given = _options(argv)
        if given["command"] == "version":
            print(f"{name}, mft 4.30.1-8, built on Dec 10 2024, 12:02:11. Git SHA Hash: N/A" if name == "mlxconfig" else
                  f"{name}, mstflint 4.21.0, built on Dec 20 2022, 15:11:00. Git SHA Hash: N/A")  # fmt: skip
            return 0
        if given["command"] in (None, "help"):
            print(f"    NAME:\n        {name}\n\n    SYNOPSIS:\n        {name} [-d <device> ] [-y] [-e] [-j <file>] "
                  "<q|s|r> [parameters to set|parameters to query]")  # fmt: skip
            return 0
        if given["command"] == "query":
            return _query(_common.snapshot(), given)
        if given["command"] == "set":
            return _set(given)
        if given["command"] == "reset":
            return _reset(given)
        raise Failure(f"Invalid command: {given['command']}")
    except Failure as error:
        print(f"-E- {error}")
        return 3
