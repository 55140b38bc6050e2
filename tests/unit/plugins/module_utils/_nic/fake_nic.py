"""A NIC port behind both tools: one state, set and shown by ``mlnx_qos`` and by ``dcb`` in the real formats."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result


class Refused(Exception):
    """A tool ends with 1: what it says on standard error and, in its third argument, on standard output."""

    def __init__(self, stderr: str = "", stdout: str = "") -> None:
        super().__init__(stderr)
        self.stderr, self.stdout = stderr, stdout


class FakeCli:
    """Answers argument vectors as the tools would, and remembers them.

    The driver behind them is mlx5: a class that is not ETS has a bandwidth of 100, a DSCP entry that is set takes the
    former one out by itself, a lossless buffer keeps its room.
    """

    def __init__(self, tools: tuple[str, ...] = ("dcb", "ethtool")) -> None:
        self.tools = tools
        self.commands: list[str] = []
        self.pfc = [0] * 8
        self.dscp: dict[int, int] = {}
        # whether mlnx_qos shows what the firmware maps by itself, as OFED's own files do
        self.full_table = True
        self.pause = {"rx": "on", "tx": "on"}
        self.refuse_pfc = False
        self.dcbx = ["host", "cee", "ieee"]
        self.cable = 7
        self.has_buffers = True
        self.size_label = "max_buffer_size"
        self.prio_tc = [1, 0, 2, 3, 4, 5, 6, 7]
        self.tsa = ["vendor"] * 8
        self.tc_bw = [0] * 8
        self.buffer_size = [20016, 156096, 0, 0, 0, 0, 0, 0]
        self.prio_buffer = [0] * 8
        self.registers = {"roce_adp_retrans_en": 1, "roce_tx_window_en": 0, "roce_tx_window_field_select": 0}

    def which(self, name: str) -> str | None:
        return f"/usr/sbin/{name}" if name in self.tools else None

    def run(self, argv: list[str], check: bool = True, **_: object) -> Result:
        self.commands.append(" ".join(argv))
        try:
            stdout = getattr(self, argv[0])(argv[1:])
        except Refused as exc:
            return Result(tuple(argv), 1, exc.stdout, exc.stderr)
        return Result(tuple(argv), 0, stdout, "")

    @property
    def writes(self) -> list[str]:
        shows = ("show", "-a ")
        return [
            command
            for command in self.commands
            if not any(word in command for word in shows)
            and not (command.startswith("mlnx_qos") and len(command.split()) == 3 + command.endswith(" -a"))
            and not command.endswith("--get")
        ]

    def dcb(self, words: list[str]) -> str:
        words = [word for word in words if word not in ("-N", "-j")]
        kind, verb = words[:2]
        values = words[4:]
        if kind == "pfc" and verb == "show":
            return json.dumps(
                {
                    "pfc_cap": 8,
                    "macsec_bypass": False,
                    "delay": self.cable if self.has_buffers else 0,
                    "prio_pfc": [bool(flag) for flag in self.pfc],
                }
            )
        if kind == "pfc" and values[0] == "delay":
            self.cable = int(values[1])
            return ""
        if kind == "pfc":
            for pair in values[values.index("prio-pfc") + 1 :]:
                priority, flag = pair.split(":")
                self.pfc[int(priority)] = int(flag == "on") and not self.refuse_pfc
            return ""
        if kind == "app" and verb == "show":
            return json.dumps(
                {"dscp_prio": [[dscp, prio, " "] for dscp, prio in self.dscp.items()]} if self.dscp else {}
            )
        if kind == "app" and verb == "flush":
            self.dscp.clear()
            return ""
        if kind == "app" and verb == "del":
            gone = {int(d): int(p) for d, p in (pair.split(":") for pair in values[1:])}
            if not gone.items() <= self.dscp.items():
                raise Refused("Attribute write: No such file or directory\n")
            self.dscp = {dscp: prio for dscp, prio in self.dscp.items() if dscp not in gone}
            return ""
        if kind == "app":
            wanted = {int(d): int(p) for d, p in (pair.split(":") for pair in values[1:])}
            replaced = [dscp for dscp, prio in wanted.items() if self.dscp.get(dscp, prio) != prio]
            self.dscp.update(wanted)
            if replaced:
                raise Refused("Attribute write: No such file or directory\nCould not remove replaced APP entries\n")
            return ""
        if kind == "dcbx" and verb == "show":
            return json.dumps(dict.fromkeys(self.dcbx, True))
        if kind == "dcbx":
            self.dcbx = values
            return ""
        if kind == "ets" and verb == "show":
            shown = [share if kind == "ets" else 100 for share, kind in zip(self.tc_bw, self.tsa)]
            return json.dumps({"willing": False, "tc_bw": shown, "tc_tsa": self.tsa, "prio_tc": self.prio_tc})
        if kind == "buffer" and not self.has_buffers:
            raise Refused("Attribute read: Operation not supported\n")
        if kind == "buffer" and verb == "show":
            return json.dumps({"prio_buffer": self.prio_buffer, "buffer_size": self.buffer_size, "total_size": 1027728})
        if kind in ("ets", "buffer"):
            self.set_lists(values)
            return ""
        raise AssertionError(words)

    def set_lists(self, words: list[str]) -> None:
        """What is not named keeps what the driver shows; then all of it has to fit."""
        bandwidth = [share if kind == "ets" else 100 for share, kind in zip(self.tc_bw, self.tsa)]
        lists = {
            "tc-tsa": list(self.tsa),
            "tc-bw": bandwidth,
            "prio-tc": list(self.prio_tc),
            "prio-buffer": list(self.prio_buffer),
            "buffer-size": list(self.buffer_size),
        }
        target: list[t.Any] = []
        for word in words:
            if ":" not in word:
                target = lists[word]
            else:
                index, value = word.split(":")
                target[int(index)] = value if target is lists["tc-tsa"] else int(value)
        if not {"prio-buffer", "buffer-size"} & set(words):
            expected = 100 if "ets" in lists["tc-tsa"] else 0
            if sum(lists["tc-bw"]) not in (100, expected):
                raise Refused(f"Bandwidth percentages in tc-bw sum to {sum(lists['tc-bw'])}%, expected {expected}%\n")
        self.keep_lossless_room(lists["buffer-size"], lists["prio-buffer"])
        self.tsa, self.prio_tc = lists["tc-tsa"], lists["prio-tc"]
        self.tc_bw = [share if kind == "ets" else 0 for share, kind in zip(lists["tc-bw"], self.tsa)]
        self.buffer_size, self.prio_buffer = lists["buffer-size"], lists["prio-buffer"]

    def keep_lossless_room(self, sizes: list[int], places: list[int]) -> None:
        for priority, buffer in enumerate(places):
            if self.pfc[priority] and not sizes[buffer]:
                raise Refused("Attribute write: Invalid argument\n", "Buffers commands error\n")

    def mlnx_qos(self, words: list[str]) -> str:
        everything = "-a" in words
        words = [word for word in words if word != "-a"]
        options = dict(zip(words[::2], words[1::2]))
        if "-d" in options:
            self.dcbx = ["host", "cee", "ieee"] if options["-d"] == "os" else []
        if "--cable_len" in options:
            self.cable = int(options["--cable_len"])
            # length and mask go together: the mask that is not named is empty
            self.pfc = [0] * 8
        if "--pfc" in options:
            self.pfc = [int(flag) for flag in options["--pfc"].split(",")]
        if {"--buffer_size", "--prio2buffer"} & set(options):
            room = {"--buffer_size": self.buffer_size, "--prio2buffer": self.prio_buffer}
            given = {option: [int(word) for word in options[option].split(",")] for option in room if option in options}
            self.keep_lossless_room(*{**room, **given}.values())
        for option, name in (
            ("--prio_tc", "prio_tc"),
            ("--tcbw", "tc_bw"),
            ("--prio2buffer", "prio_buffer"),
            ("--buffer_size", "buffer_size"),
        ):
            if option in options:
                setattr(self, name, [int(word) for word in options[option].split(",")])
        if "--tsa" in options:
            self.tsa = options["--tsa"].split(",")
        if "--dscp2prio" in options:
            verb, dscp, prio = options["--dscp2prio"].split(",")
            if verb == "set":
                self.dscp[int(dscp)] = int(prio)
            elif self.dscp.pop(int(dscp)) != int(prio):
                raise Refused("", "dscp2prio command failed\n")
        if "--trust" in options:
            self.trust = options["--trust"]
        table: dict[int, list[int]] = {}
        for dscp in range(64) if self.full_table else self.dscp:
            table.setdefault(self.dscp.get(dscp, dscp >> 3), []).append(dscp)
        rows = [
            f"\tprio:{prio} dscp:{','.join(f'{dscp:02}' for dscp in sorted(dscps, reverse=True))},"
            for prio, dscps in sorted(table.items())
        ]
        buffers = f"Receive buffer size (bytes): {','.join(map(str, self.buffer_size))},{self.size_label}=1027728"
        places = "\tbuffer      " + "   ".join(map(str, self.prio_buffer)) + "   "
        return "\n".join(
            [
                *(() if self.has_buffers else ("Buffers commands are not supported on your system",)),
                f"DCBX mode: {'OS' if 'host' in self.dcbx else 'Firmware'} controlled",
                f"Priority trust state: {getattr(self, 'trust', 'pcp')}",
                "dscp2prio mapping:",
                *rows,
                *((buffers,) if self.has_buffers else ()),
                f"Cable len: {self.cable if self.has_buffers else 0}",
                "PFC configuration:",
                "\tpriority    0   1   2   3   4   5   6   7",
                "\tenabled     " + "   ".join(map(str, self.pfc)) + "   ",
                *((places,) if self.has_buffers else ()),
                *[self.shown_class(tc) for tc in range(8) if everything or tc in self.prio_tc],
                "",
            ]
        )

    def shown_class(self, tc: int) -> str:
        share = f"ets, bw: {self.tc_bw[tc]}%" if self.tsa[tc] == "ets" else self.tsa[tc]
        rows = [f"\t priority:  {priority}" for priority in range(8) if self.prio_tc[priority] == tc]
        return "\n".join([f"tc: {tc} ratelimit: unlimited, tsa: {share}", *rows])

    def mlxreg(self, words: list[str]) -> str:
        if "--set" in words:
            given = dict(pair.split("=") for pair in words[words.index("--set") + 1].split(","))
            for name, value in given.items():
                if name.endswith("_en") and given.get(name.replace("_en", "_field_select"), "1") == "1":
                    self.registers[name] = int(value)
            return ""
        rows = [f"{name:<30} | 0x{value:08x}" for name, value in self.registers.items()]
        return "\n".join(["Sending access register...", "", "Field Name | Data", "=" * 40, *rows, "=" * 40, ""])

    def ethtool(self, words: list[str]) -> str:
        if words[0] == "-a":
            return (
                f"Pause parameters for {words[1]}:\nAutonegotiate:\toff\n"
                f"RX:\t\t{self.pause['rx']}\nTX:\t\t{self.pause['tx']}\n\n"
            )
        self.pause.update(dict(zip(words[2::2], words[3::2])))
        return ""
