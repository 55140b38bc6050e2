"""A NIC port behind both tools: one state, set and shown by ``mlnx_qos`` and by ``dcb`` in the real formats."""

from __future__ import annotations

import json

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Result


class FakeCli:
    """Answers argument vectors as the tools would, and remembers them."""

    def __init__(self, tools: tuple[str, ...] = ("dcb", "ethtool", "setpci")) -> None:
        self.tools = tools
        self.commands: list[str] = []
        self.pfc = [0] * 8
        self.dscp: dict[int, int] = {}
        self.pause = {"rx": "on", "tx": "on"}
        self.device_control = 0x2930
        self.refuse_pfc = False

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
            and not (command.startswith("mlnx_qos") and len(command.split()) == 3)
            and not (command.startswith("setpci") and "=" not in command)
        ]

    def dcb(self, words: list[str]) -> str:
        words = [word for word in words if word not in ("-N", "-j")]
        kind, verb = words[:2]
        values = words[4:]
        if kind == "pfc" and verb == "show":
            return json.dumps(
                {"pfc_cap": 8, "macsec_bypass": False, "delay": 0, "prio_pfc": [bool(flag) for flag in self.pfc]}
            )
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
        if kind == "dcbx":
            return json.dumps({"host": True, "ieee": True})
        raise AssertionError(words)

    def mlnx_qos(self, words: list[str]) -> str:
        options = dict(zip(words[::2], words[1::2]))
        if "--pfc" in options:
            self.pfc = [int(flag) for flag in options["--pfc"].split(",")]
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
                "DCBX mode: OS controlled",
                f"Priority trust state: {getattr(self, 'trust', 'pcp')}",
                "dscp2prio mapping:",
                *rows,
                "Receive buffer size (bytes): 20016,156096,0,0,0,0,0,0,max_buffer_size=1027728",
                "Cable len: 7",
                "PFC configuration:",
                "\tpriority    0   1   2   3   4   5   6   7",
                "\tenabled     " + "   ".join(map(str, self.pfc)) + "   ",
                "\tbuffer      0   0   0   1   0   0   0   0   ",
                *[f"tc: {tc} ratelimit: unlimited, tsa: vendor\n\t priority:  {tc}" for tc in range(8)],
                "",
            ]
        )

    def ethtool(self, words: list[str]) -> str:
        if words[0] == "-a":
            return (
                f"Pause parameters for {words[1]}:\nAutonegotiate:\toff\n"
                f"RX:\t\t{self.pause['rx']}\nTX:\t\t{self.pause['tx']}\n\n"
            )
        self.pause.update(dict(zip(words[2::2], words[3::2])))
        return ""

    def setpci(self, words: list[str]) -> str:
        register = words[2]
        if "=" in register:
            value, mask = (int(word, 16) for word in register.split("=")[1].split(":"))
            self.device_control = (self.device_control & ~mask) | (value & mask)
            return ""
        return f"{self.device_control:04x}\n"
