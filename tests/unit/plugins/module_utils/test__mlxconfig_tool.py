# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What mlxconfig and mlxfwreset answer, good and bad, and what is made of it."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._cli import Cli, Result
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._mlxconfig_tool import Pci, Tool

CARD = "0000:18:00.0"
HEAD = f"\nDevice #1:\n----------\n\nDevice type:        ConnectX7           \nDevice:             {CARD}        \n\n"
TABLE = (
    f"{HEAD}Configurations:                                  Default             Current             Next Boot\n"
    "*       NUM_OF_VFS                                  0                   0                   8\n"
)
LEVELS = (
    "\nReset-levels:\n"
    '0: Driver, PCI link, network link will remain up ("live-Patch")  -Supported     (default)\n'
    "3: Driver restart and PCI reset                                  -{pci}\n"
    "4: Warm Reboot                                                   -{warm}\n"
    "\nReset-types (relevant only for reset-levels 3,4):\n"
    "0: Full chip reset                                               -Supported     (default)\n"
)


class Answers(Cli):
    """Answers by the last word of a command's options; with ``json`` it writes the file of ``-j``."""

    def __init__(self, answers: t.Mapping[str, t.Any], tools: t.Collection[str] = ("mlxconfig", "mlxfwreset")) -> None:
        super().__init__()
        self.answers, self.tools = answers, tools

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.tools else None

    def run(self, argv: t.Sequence[str], check: bool = True, stdin: str | None = None, **_: object) -> Result:
        self.ran.append(" ".join(argv))
        if "-j" in argv:
            if "json" not in self.answers:
                return Result(tuple(argv), 3, "-E- invalid argument: -j\n", "")
            Path(argv[argv.index("-j") + 1]).write_text(self.answers["json"], encoding="utf-8")
            return Result(tuple(argv), 0, "Query output saved\n", "")
        word = next(word for word in ("set", "reset", "query", "q") if word in argv)
        answer = self.answers[word]
        return Result(tuple(argv), *(answer if isinstance(answer, tuple) else (0, answer, "")))


def document(**values: object) -> str:
    return json.dumps({"Device #1": {"device": CARD, "tlv_configuration": {"NUM_OF_VFS": values}}})


def test_json_and_text_of_an_older_tool_say_the_same() -> None:
    told = {"default_value": 0, "current_value": 0, "next_value": 8, "modified": True, "read_only": False}
    from_json = Tool(Answers({"json": document(**told)})).query(CARD)["NUM_OF_VFS"]
    from_text = Tool(Answers({"q": TABLE})).query(CARD)["NUM_OF_VFS"]
    assert {k: from_json[k] for k in from_text} == from_text == {
        "default": "0", "current": "0", "next": "8", "modified": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"json": document(next_value=8)}, "does not tell which settings are in force"),
        ({"json": document(current_value=8)[:60] + "tlv_configuration"}, "no whole JSON object"),
        ({"q": f"{HEAD}Configurations:      Next Boot\n        NUM_OF_VFS     8\n"}, "update the card's firmware"),
        ({"q": HEAD}, "it shows no parameter"),
        ({"q": (3, "-E- Failed to open device: 0000:18:00.0. Resource busy\n", "")}, "Resource busy"),
        ({"q": "-E- Device in Livefish mode is not supported.\n"}, "Livefish"),
        ({"q": (-9, "", "")}, "no message"),
        ({"q": (3, "-E- Failed to open the device\n", "")}, "with Secure Boot, whether mst start was run"),
        # the table is whole but for what could not be asked, and which that was stands below the error
        (
            {"q": (1, f"{TABLE}-E- Failed to query some of the TLVs:\n    Failed to query the next values of the "
                      "following TLVs:\n    nv_host_to_bmc_P0_M0 \n", "")},
            "nv_host_to_bmc_P0_M0",
        ),
    ],
)  # fmt: skip
def test_answer_that_is_none_names_the_card_and_what_was_said(answers: dict[str, t.Any], told: str) -> None:
    with pytest.raises(Failure, match=told) as failure:
        Tool(Answers(answers)).query(CARD)
    assert CARD in str(failure.value)


def test_rehearsal_tells_a_refusal_and_an_answer_that_asks_nothing() -> None:
    asked = f"{HEAD}Configurations:  Next Boot   New\n  NUM_OF_VFS  0  8\n\n Apply new Configuration? (y/n) [n] : "
    aborted = (4, f"{asked}-E- Aborted by user.\n", "")
    assert Tool(Answers({"set": aborted})).rehearse(CARD, {"NUM_OF_VFS": "8"}) is None
    bad = (3, f"{HEAD}-E- The Device doesn't support NO_SUCH parameter\n", "")
    assert (
        Tool(Answers({"set": bad})).rehearse(CARD, {"NO_SUCH": "1"}) == "The Device doesn't support NO_SUCH parameter"
    )
    warned = (4, "ARE YOU SURE YOU WANT TO CONTINUE? [Y/N] [N]: -E- Aborted by user.\n", "")
    assert "did not ask" in str(Tool(Answers({"set": warned})).rehearse(CARD, {"DISABLE_SLOT_POWER_LIMITER": "1"}))


def test_error_of_a_tool_that_exits_with_0_is_one() -> None:
    applied = (0, "Applying... Failed!\n-E- Failed to set configuration: ME_ICMD_OPERATIONAL_ERROR\n", "")
    with pytest.raises(Failure, match=f"{CARD}.*ME_ICMD_OPERATIONAL_ERROR"):
        Tool(Answers({"set": applied})).set(CARD, {"NUM_OF_VFS": "8"})


@pytest.mark.parametrize(
    ("answer", "need", "reason"),
    [
        (LEVELS.format(pci="Supported", warm="Supported"), "fwreset", ""),
        (LEVELS.format(pci="Not Supported ", warm="Supported"), "reboot", "supports no PCI reset"),
        (LEVELS.format(pci="Not Supported ", warm="Not Supported "), "powercycle", "neither a PCI reset nor"),
        ((1, "-E- Failed to run: mst status -v.\n", ""), "reboot", "mst status -v"),
        ((1, "", ""), "reboot", "nothing of its levels"),
        (LEVELS[: LEVELS.index("3:")], "reboot", "live-Patch"),
    ],
)
def test_way_to_load_settings_follows_the_levels_of_the_reset_tool(answer: t.Any, need: str, reason: str) -> None:
    way = Tool(Answers({"query": answer})).way(CARD)
    assert way.need == need and reason in way.reason and bool(way.reason) is (need != "fwreset")


def test_host_with_mstflint_alone_is_asked_with_its_tools() -> None:
    cli = Answers({"q": TABLE, "query": LEVELS.format(pci="Supported", warm="Supported")}, ("mstconfig", "mstfwreset"))
    tool = Tool(cli)
    assert tool.query(CARD)["NUM_OF_VFS"]["next"] == "8" and tool.way(CARD).need == "fwreset"
    assert cli.ran[-2:] == [f"mstconfig -d {CARD} -e q", f"mstfwreset -d {CARD} query"]
    assert Tool(Answers({}, ("mstconfig",))).way(CARD).need == "reboot"


def test_reset_names_its_level_and_says_what_remains_where_it_fails() -> None:
    cli = Answers({"reset": (1, "-I- Sending Reset Command To Fw   -Failed\n-E- MFRL is not supported.\n", "")})
    with pytest.raises(Failure, match=rf"{CARD} was not reset: .*MFRL is not supported.* after a reboot of the host"):
        Tool(cli).reset(CARD)
    assert cli.ran == [f"mlxfwreset -d {CARD} -l 3 -y reset"]


@pytest.mark.parametrize(
    ("vendor", "virtual", "told"),
    [("0x8086", False, "no ConnectX or BlueField function (vendor 0x8086)"), ("0x15b3", True, "virtual function")],
)
def test_function_that_is_no_card_of_ours_is_told(tmp_path: Path, vendor: str, virtual: bool, told: str) -> None:
    folder = tmp_path / "sys/bus/pci/devices" / CARD
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n", encoding="ascii")
    if virtual:
        (folder / "physfn").mkdir()
    assert told in str(Pci(str(tmp_path)).obstacle(CARD))
    assert Pci(str(tmp_path)).obstacle("0000:99:00.0").startswith("there is no such PCI function on this host; ")
