# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcb of iproute2 6.1 over the state of modelled ports; real interfaces go to the real program."""

from __future__ import annotations

import json
from typing import Any

from railyard_lab import interfaces, qos
from railyard_lab import state as state_file
from railyard_lab.tools import _common

_USAGE = """Usage: dcb [ OPTIONS ] OBJECT { COMMAND | help }
       dcb [ -f | --force ] { -b | --batch } filename [ -n | --netns ] netnsname
where  OBJECT := { app | buffer | dcbx | ets | maxrate | pfc }
       OPTIONS := [ -V | --Version | -i | --iec | -j | --json
                  | -N | --Numeric | -p | --pretty
                  | -s | --statistics | -v | --verbose]"""
# Names of /etc/iproute2/rt_dsfield.
DSCP_NAMES = {0: "default", 46: "EF"} | {8 * n: f"CS{n}" for n in range(1, 8)}
DSCP_NAMES |= {8 * x + 2 * y: f"AF{x}{y}" for x in range(1, 5) for y in range(1, 4)}
_NO_ENTRY = (
    "Error when attempting to set attribute: No such file or directory\nAttribute write: No such file or directory"
)
_INVALID = "Error when attempting to set attribute: Invalid argument\nAttribute write: Invalid argument"
APP_SELECTORS = {"ethtype": 1, "stream-port": 2, "dgram-port": 3, "port": 4}


class Failure(Exception):
    """What the program says on standard error before it leaves with status 1."""


def _matches(word: str, full: str) -> bool:
    return bool(word) and full.startswith(word)


def _pick(word: str, names: tuple[str, ...]) -> str:
    for full in names:
        if _matches(word, full):
            return full
    raise Failure(f'What is "{word}"?')


class Output:
    """iproute2's print_* functions: text and JSON from the same calls."""

    def __init__(self, as_json: bool, pretty: bool) -> None:
        self.as_json, self.pretty = as_json, pretty
        #: What went wrong after something had been set already.
        self.failure = ""
        self.document: dict[str, Any] = {}
        self.text: list[str] = []

    def value(self, key: str, label: str, value: Any) -> None:
        self.document[key] = value
        shown = ("on" if value else "off") if isinstance(value, bool) else value
        self.text.append(f"{label} {shown} ")

    def array(self, key: str, label: str, values: list[Any], show: Any = str) -> None:
        self.document[key] = values
        self.text.append(f"{label} " + "".join(f"{index}:{show(value)} " for index, value in enumerate(values)))

    def line(self) -> None:
        self.text.append("\n")

    def end(self) -> None:
        if self.as_json:
            print(
                json.dumps(self.document, indent=4) if self.pretty else json.dumps(self.document, separators=(",", ":"))
            )
        else:
            print("".join(self.text), end="")


def _on_off(value: Any) -> str:
    return "on" if value else "off"


def _size(size: int) -> str:
    if size >= 1024 * 1024 and abs(1024 * 1024 * round(size / (1024 * 1024)) - size) < 1024:
        return f"{round(size / (1024 * 1024))}Mb"
    if size >= 1024 and abs(1024 * round(size / 1024) - size) < 16:
        return f"{round(size / 1024)}Kb"
    return f"{size}b"


def main(name: str, argv: list[str]) -> int:
    original = list(argv)
    flags: set[str] = set()
    while argv and argv[0].startswith("-"):
        word = argv.pop(0)
        if word in ("-V", "--Version"):
            print("dcb utility, iproute2-6.1.0")
            return 0
        if word in ("-h", "--help"):
            _common.error(_USAGE)
            return 0
        if word in ("-b", "--batch", "-n", "--netns"):
            return _common.run_real("dcb", original) or 1
        long = {"--json": "j", "--Numeric": "N", "--pretty": "p", "--statistics": "s", "--iec": "i", "--force": "f"}
        flags |= set(long.get(word, word.lstrip("-")))
    if not argv or _matches(argv[0], "help"):
        _common.error(_USAGE)
        return 0
    try:
        return _run(argv, flags, original)
    except Failure as error:
        _common.error(str(error))
        return 1


def _run(argv: list[str], flags: set[str], original: list[str]) -> int:
    objects = ("app", "buffer", "dcbx", "ets", "maxrate", "pfc")
    what = next((full for full in objects if _matches(argv[0], full)), None)
    if what is None:
        raise Failure(f'Object "{argv[0]}" is unknown')
    action = _pick(argv[1] if len(argv) > 1 else "", ("show", "set", "add", "del", "replace", "flush"))
    if len(argv) < 4 or argv[2] != "dev":
        raise Failure(f"Expected `dev DEV', not `{argv[2] if len(argv) > 2 else ''}'")
    device, rest = argv[3], argv[4:]
    with state_file.use(writes=action != "show") as state:
        nic = state_file.nic_by(state, "netdev", device)
        if nic is None:
            live = interfaces.current(state)
            if device in live and live[device].real:
                nic = None
            else:
                raise Failure("Attribute read: No such device")
        elif not qos.supported(nic):
            raise Failure("Attribute read: Operation not supported" if action == "show" or what != "dcbx" else
                          "Attribute write: Operation not supported")  # fmt: skip
        else:
            handler = globals()[f"_{what}"]
            output = Output("j" in flags, "p" in flags)
            bounced = handler(nic, action, rest, output, flags)
            if bounced:
                for word in ("down", "up"):
                    state_file.log_kernel(state, f"mlx5_core {nic['pci']} {nic['netdev']}: Link {word}")
            if action == "show":
                output.end()
    if nic is not None:
        if output.failure:
            raise Failure(output.failure)
        return 0
    return _common.run_real("dcb", original) or 1


def _mapping(words: list[str], low: int, high: int, parse: Any) -> tuple[dict[int, Any], int]:
    """`all:off 3:on`, up to the next keyword; the mapping and how many words it took."""
    found: dict[int, Any] = {}
    taken = 0
    for word in words:
        key, colon, text = word.partition(":")
        if not colon:
            break
        value = parse(text)
        if key == "all":
            found = dict.fromkeys(range(low, high + 1), value)
        else:
            if not key.isdigit() or not low <= int(key) <= high:
                raise Failure(f"Invalid mapping {word}")
            found[int(key)] = value
        taken += 1
    return found, taken


def _switch(text: str) -> int:
    if text not in ("on", "off"):
        raise Failure('Error: argument of "prio-pfc" must be one of "off", "on"')
    return int(text == "on")


def _number(limit: int, what: str) -> Any:
    def parse(text: str) -> int:
        if not text.isdigit() or int(text) > limit:
            raise Failure(f"In mapping, {what} is expected to be 0..{limit}")
        return int(text)

    return parse


def _pfc(nic: dict[str, Any], action: str, words: list[str], output: Output, flags: set[str]) -> bool:
    values = nic["qos"]
    if action == "show":
        chosen = [
            _pick(word, ("pfc-cap", "macsec-bypass", "delay", "prio-pfc", "requests", "indications")) for word in words
        ]

        def wants(key: str) -> bool:
            return not chosen or key in chosen

        if wants("pfc-cap"):
            output.value("pfc_cap", "pfc-cap", 8)
        if wants("macsec-bypass"):
            output.value("macsec_bypass", "macsec-bypass", False)
        if wants("delay"):
            output.value("delay", "delay", values["delay"])
        if not chosen or chosen[0] in ("pfc-cap", "macsec-bypass", "delay"):
            output.line()
        if wants("prio-pfc"):
            output.array("prio_pfc", "prio-pfc", [bool(bit) for bit in values["pfc"]], _on_off)
            output.line()
        for key in ("requests", "indications"):
            if ("s" in flags and not chosen) or key in chosen:
                output.array(key, key, [0] * 8)
                output.line()
        return False
    if action != "set":
        raise Failure(f'What is "{action}"?')
    wanted, delay = list(values["pfc"]), None
    while words:
        word = _pick(words.pop(0), ("prio-pfc", "macsec-bypass", "delay"))
        if word == "prio-pfc":
            found, taken = _mapping(words, 0, 7, _switch)
            del words[:taken]
            for priority, bit in found.items():
                wanted[priority] = bit
        elif word == "delay":
            delay = _number(0xFFFF, "delay")(words.pop(0))
        else:
            words.pop(0)
    return qos.set_pfc(nic, wanted, delay)


def _ets(nic: dict[str, Any], action: str, words: list[str], output: Output, flags: set[str]) -> bool:
    values = nic["qos"]
    names = (
        "willing",
        "ets-cap",
        "cbs",
        "tc-tsa",
        "reco-tc-tsa",
        "pg-bw",
        "tc-bw",
        "reco-tc-bw",
        "prio-tc",
        "reco-prio-tc",
    )
    if action == "show":
        chosen = [_pick(word, names) for word in words]
        arrays = {
            "tc-bw": qos.shown_shares(values), "pg-bw": [0] * 8, "tc-tsa": values["tsa"], "prio-tc": values["prio_tc"],
            "reco-tc-bw": [0] * 8, "reco-tc-tsa": ["strict"] * 8, "reco-prio-tc": [0] * 8,
        }  # fmt: skip
        scalars: dict[str, Any] = {"willing": False, "ets-cap": 8, "cbs": False}
        for key, value in scalars.items():
            if not chosen or key in chosen:
                output.value(key.replace("-", "_"), key, value)
        if not chosen or set(chosen) & set(scalars):
            output.line()
        for key, array in arrays.items():
            if not chosen or key in chosen:
                output.array(key.replace("-", "_"), key, array)
                output.line()
        return False
    if action != "set":
        raise Failure(f'What is "{action}"?')
    # The tool sends what it was shown with what it is told.
    tsa, bandwidth, prio_tc = list(values["tsa"]), qos.shown_shares(values), list(values["prio_tc"])

    def kind(text: str) -> str:
        if text not in ("strict", "cbs", "ets", "vendor"):
            raise Failure('Error: argument of "TSA" must be one of "strict", "cbs", "ets", "vendor"')
        return text

    while words:
        word = _pick(words.pop(0), names)
        if word == "willing":
            words.pop(0)
            continue
        target, parse = {
            "tc-tsa": (tsa, kind),
            "tc-bw": (bandwidth, _number(100, "BW")),
            "prio-tc": (prio_tc, _number(7, "TC")),
        }.get(word, ([0] * 8, str))
        found, taken = _mapping(words, 0, 7, parse)
        del words[:taken]
        for index, value in found.items():
            target[index] = value
    total, has_ets = sum(bandwidth), "ets" in tsa
    if total != 100 and (has_ets or total != 0):
        raise Failure(f"Bandwidth percentages in tc-bw sum to {total}%, expected {100 if has_ets else 0}%")
    shares = [share if kind == "ets" else 0 for share, kind in zip(bandwidth, tsa, strict=True)]
    values["tsa"], values["tc_bw"], values["prio_tc"] = tsa, shares, prio_tc
    return False


def _dscp_key(text: str) -> int:
    if text.isdigit():
        return int(text)
    for number, label in DSCP_NAMES.items():
        if label.lower() == text.lower():
            return number
    raise Failure(f"Invalid dscp-prio mapping {text}")


def _app(nic: dict[str, Any], action: str, words: list[str], output: Output, flags: set[str]) -> bool:
    values = nic["qos"]
    names = ("default-prio", "dscp-prio", "ethtype-prio", "stream-port-prio", "dgram-port-prio", "port-prio")
    if action in ("show", "flush"):
        chosen = [_pick(word, names) for word in words]
        if action == "flush":
            if not chosen or "dscp-prio" in chosen:
                for dscp, priority in list(values["dscp"].items()):
                    qos.delete_app(values, int(dscp), priority)
            if not chosen or "default-prio" in chosen:
                values["default_prio"] = []
            return False
        _app_show(values, chosen, output, "N" in flags)
        return False
    if action not in ("add", "del", "replace"):
        raise Failure(f'What is "{action}"?')
    while words:
        word = _pick(words.pop(0), names)
        if word == "default-prio":
            while words and words[0].isdigit():
                priority = int(words.pop(0))
                others = [] if action == "replace" else [item for item in values["default_prio"] if item != priority]
                values["default_prio"] = others if action == "del" else [*others, priority]
            continue
        while words and ":" in words[0]:
            key, _, text = words.pop(0).partition(":")
            priority = _number(7, "PRIO")(text)
            if word != "dscp-prio":
                continue
            for dscp in range(64) if key == "all" else [_dscp_key(key)]:
                if dscp > 63:
                    raise Failure("In DSCP:PRIO mapping, DSCP is expected to be 0..63")
                if action == "del":
                    if not qos.delete_app(values, dscp, priority):
                        raise Failure(_NO_ENTRY)
                    continue
                # The driver has taken the former entry out by itself when the tool wants to.
                if action == "replace" and values["dscp"].get(str(dscp), priority) != priority:
                    output.failure = f"{_NO_ENTRY}\nCould not remove replaced APP entries"
                qos.set_app(values, dscp, priority)
    return False


def _app_show(values: dict[str, Any], chosen: list[str], output: Output, numeric: bool) -> None:
    if values["default_prio"] and (not chosen or "default-prio" in chosen):
        output.document["default_prio"] = values["default_prio"]
        output.text.append("default-prio " + "".join(f"{priority} " for priority in values["default_prio"]) + "\n")
    if values["dscp"] and (not chosen or "dscp-prio" in chosen):
        table = sorted((int(dscp), priority) for dscp, priority in values["dscp"].items())
        output.document["dscp_prio"] = [[dscp, priority] for dscp, priority in table]
        label = (lambda dscp: str(dscp)) if numeric else (lambda dscp: DSCP_NAMES.get(dscp, str(dscp)))
        output.text.append("dscp-prio " + "".join(f"{label(dscp)}:{priority} " for dscp, priority in table) + "\n")


def _buffer(nic: dict[str, Any], action: str, words: list[str], output: Output, flags: set[str]) -> bool:
    values = nic["qos"]
    if action == "show":
        chosen = [_pick(word, ("prio-buffer", "buffer-size", "total-size")) for word in words]
        if not chosen or "prio-buffer" in chosen:
            output.array("prio_buffer", "prio-buffer", values["prio_buffer"])
            output.line()
        if not chosen or "buffer-size" in chosen:
            output.array("buffer_size", "buffer-size", values["buffer_size"], _size)
            output.line()
        if not chosen or "total-size" in chosen:
            output.document["total_size"] = qos.MAX_BUFFER
            output.text.append(f"total-size {_size(qos.MAX_BUFFER)} \n")
        return False
    if action != "set":
        raise Failure(f'What is "{action}"?')
    places, sizes = list(values["prio_buffer"]), list(values["buffer_size"])
    while words:
        word = _pick(words.pop(0), ("prio-buffer", "buffer-size"))
        parse = _number(7, "BUFFER") if word == "prio-buffer" else _number(qos.MAX_BUFFER, "SIZE")
        found, taken = _mapping(words, 0, 7, parse)
        del words[:taken]
        for index, value in found.items():
            (places if word == "prio-buffer" else sizes)[index] = value
    if not qos.set_buffers(nic, places, sizes):
        raise Failure(_INVALID)
    return False


def _maxrate(nic: dict[str, Any], action: str, words: list[str], output: Output, flags: set[str]) -> bool:
    values = nic["qos"]
    if action == "show":
        output.array("tc_maxrate", "tc-maxrate", [rate * 125 for rate in values["maxrate"]])
        output.line()
        return False
    raise Failure("Attribute write: Operation not supported")


def _dcbx(nic: dict[str, Any], action: str, words: list[str], output: Output, flags: set[str]) -> bool:
    values = nic["qos"]
    if action == "show":
        for flag in (qos.HOST, "lld-managed", qos.CEE, qos.IEEE, "static"):
            if flag in values["dcbx"]:
                output.document[flag.replace("-", "_")] = True
                output.text.append(f"{flag} ")
        output.line()
        return False
    if action != "set":
        raise Failure(f'What is "{action}"?')
    chosen = [_pick(word, (qos.HOST, "lld-managed", qos.CEE, qos.IEEE, "static")) for word in words]
    if "lld-managed" in chosen:
        raise Failure(
            "Error when attempting to set attribute: Operation not permitted\nAttribute write: Operation not permitted"
        )
    # Whoever is host-managed speaks both dialects in this driver.
    values["dcbx"] = [qos.HOST, qos.CEE, qos.IEEE] if qos.HOST in chosen else []
    return False
