"""A NIC port behind both tools: one state, set and shown by ``mlnx_qos`` and by ``dcb`` in the real formats."""

from __future__ import annotations

import json

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result


class FakeCli:
    """Answers argument vectors as the tools would, and remembers them."""

    def __init__(self, tools: tuple[str, ...] = ("dcb", "ethtool")) -> None:
        self.tools = tools
        self.commands: list[str] = []
        self.pfc = [0] * 8
        self.dscp: dict[int, int] = {}
        self.pause = {"rx": "on", "tx": "on"}
        self.refuse_pfc = False
        self.dcbx = ["host", "cee", "ieee"]
        self.cable = 7
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
        stdout = getattr(self, argv[0])(argv[1:])
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
                    "delay": self.cable,
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
        if kind == "app":
            self.dscp.update({int(d): int(p) for d, p in (pair.split(":") for pair in values[1:])})
            return ""
        if kind == "dcbx" and verb == "show":
            return json.dumps(dict.fromkeys(self.dcbx, True))
        if kind == "dcbx":
            self.dcbx = values
            return ""
        if kind == "ets" and verb == "show":
            return json.dumps({"willing": False, "tc_bw": self.tc_bw, "tc_tsa": self.tsa, "prio_tc": self.prio_tc})
        if kind == "buffer" and verb == "show":
            return json.dumps({"prio_buffer": self.prio_buffer, "buffer_size": self.buffer_size, "total_size": 1027728})
        if kind in ("ets", "buffer"):
            target: list[object] = []
            for word in values:
                if ":" not in word:
                    target = getattr(self, {"tc-tsa": "tsa"}.get(word, word.replace("-", "_")))
                else:
                    index, value = word.split(":")
                    target[int(index)] = value if target is self.tsa else int(value)
            return ""
        raise AssertionError(words)

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
            _, dscp, prio = options["--dscp2prio"].split(",")
            self.dscp[int(dscp)] = int(prio)
        if "--trust" in options:
            self.trust = options["--trust"]
        table: dict[int, list[int]] = {}
        for dscp in range(64):
            table.setdefault(self.dscp.get(dscp, dscp >> 3), []).append(dscp)
        rows = [
            f"\tprio:{prio} dscp:{','.join(f'{dscp:02}' for dscp in sorted(dscps, reverse=True))},"
            for prio, dscps in sorted(table.items())
        ]
        return "\n".join(
            [
                f"DCBX mode: {'OS' if 'host' in self.dcbx else 'Firmware'} controlled",
                f"Priority trust state: {getattr(self, 'trust', 'pcp')}",
                "dscp2prio mapping:",
                *rows,
                f"Receive buffer size (bytes): {','.join(map(str, self.buffer_size))},max_buffer_size=1027728",
                f"Cable len: {self.cable}",
                "PFC configuration:",
                "\tpriority    0   1   2   3   4   5   6   7",
                "\tenabled     " + "   ".join(map(str, self.pfc)) + "   ",
                "\tbuffer      " + "   ".join(map(str, self.prio_buffer)) + "   ",
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
