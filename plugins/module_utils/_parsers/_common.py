# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parsers of recorded tool output share.

A recorded text may be cut anywhere.  Three rules keep a cut from becoming a wrong value:

* a line that ends with a newline is whole;
* the last line without a newline is whole only where the line itself proves it (a closing parenthesis, the last
  member of a closed list of words); otherwise its last value is dropped with a ``Problem``;
* a line that holds U+FFFD (a byte that was no UTF-8) is not believed at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

TEXT_LIMIT = 200
PROBLEM_LIMIT = 500
REPLACEMENT = "\ufffd"
CUT_REASON = "The text ends inside this line, so its last value cannot be trusted."
DAMAGED_REASON = "The line holds bytes that are not text, so it cannot be trusted."


class Problem(NamedTuple):
    """What could not be read, and why."""

    line: int
    text: str
    reason: str


class Parsed(NamedTuple):
    """The values of one text and what could not be read of it."""

    value: Any
    problems: tuple[Problem, ...]


class Line(NamedTuple):
    """One line without its newline, terminal escapes and trailing carriage returns."""

    number: int
    text: str
    terminated: bool

    @property
    def damaged(self) -> bool:
        return REPLACEMENT in self.text

    @property
    def blank(self) -> bool:
        return not self.text.strip()

    @property
    def indented(self) -> bool:
        return self.text[:1].isspace()  # copied from a web page, blanks may be no-break spaces


class Problems:
    """Collects problems in the order of their discovery, each once."""

    def __init__(self) -> None:
        self._problems: dict[Problem, None] = {}
        self._unlisted = 0

    def add(self, reason: str, line: Line | None = None, text: str | None = None) -> None:
        shown = text if text is not None else (line.text if line else "")
        problem = Problem(line.number if line else 0, shown.strip()[:TEXT_LIMIT], reason)
        if len(self._problems) < PROBLEM_LIMIT or problem in self._problems:
            self._problems[problem] = None
        else:
            self._unlisted += 1

    def cut(self, line: Line) -> None:
        self.add(CUT_REASON, line)

    def damaged(self, line: Line) -> None:
        self.add(DAMAGED_REASON, line)

    def any_damaged(self) -> bool:
        return any(problem.reason == DAMAGED_REASON for problem in self._problems)

    def __len__(self) -> int:
        return len(self._problems)

    def result(self, value: Any) -> Parsed:
        listed = tuple(self._problems)
        if self._unlisted:
            listed += (Problem(0, "", f"{self._unlisted} more problems of this text are not listed."),)
        return Parsed(value, listed)


# CSI and OSC sequences, and the two-character escapes that `script` and coloured prompts leave behind.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
# The same in the notation of ``cat -v``.
_CARET_ESCAPES = re.compile(r"\^\[\[[0-9;]*[mK]")
# The head of an escape sequence whose end was cut off.
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*)?\Z")


def clean(text: Any) -> str:
    """The text without byte order mark, terminal escapes, NULs and carriage returns."""
    if isinstance(text, (bytes, bytearray)):
        text = bytes(text).decode("utf-8", errors="replace")
    if not isinstance(text, str):
        return ""
    text = text[1:] if text.startswith("\ufeff") else text
    text = _CUT_ESCAPE.sub("", _CARET_ESCAPES.sub("", _ESCAPES.sub("", text)))
    # A cut between CR and LF leaves a lone CR: that line was whole.
    if text.endswith("\r"):
        text += "\n"
    text = re.sub(r"\r+\n", "\n", text)
    return text.replace("\r", "\n").replace("\x00", "")


# Outputs are often quoted in mails.  No tool begins its own lines with this mark.
_QUOTE = re.compile(r"^(?:> ?)+")
_QUOTED_LINES = 3
_LONGEST_BLANK = 500
_BLANKS = re.compile(rf"[^\S\n]{{{_LONGEST_BLANK},}}")


def split_lines(text: Any) -> list[Line]:
    """The lines of a text; only newlines separate lines (form feeds and the like do not)."""
    cleaned = clean(text)
    if not cleaned:
        return []
    # Endless runs of blanks would cost patterns with two neighbouring repetitions a time that grows with their square.
    pieces = _BLANKS.sub(lambda run: run.group()[:_LONGEST_BLANK], cleaned).split("\n")
    whole = cleaned.endswith("\n")
    if whole:
        pieces.pop()
    if sum(piece.startswith(">") for piece in pieces) >= _QUOTED_LINES:
        pieces = [_QUOTE.sub("", piece) for piece in pieces]
    last = len(pieces)
    return [Line(number, piece, whole or number < last) for number, piece in enumerate(pieces, 1)]


# user@host:/path$ command | [user@host dir]# command | host:~ # command | $ command | # command
_PROMPT = re.compile(
    r"""^\s*(?:
          \[[^\]\s]+@[^\]]*\]\s*[\#$%>]\s?
        | (?:\([^)]*\)\s*)?[\w.-]+@[\w.-]+(?:[:\s][^\s\#$%>]*)?\s*[\#$%>]\s?
        | [\w.-]+:[~/][^\s\#$%>]*\s?[\#$%>]\s?
        | (?:sh|bash)-[\d.]+[\#$]\s?
        | [\#$]\s
        )\s*(?P<command>.*)$""",
    re.VERBOSE,
)


def prompt_command(text: str) -> str | None:
    """The command typed at a shell prompt on this line; None when the line is no prompt."""
    match = _PROMPT.match(text)
    return match.group("command").strip() if match else None


def believable(text: Any, problems: Problems, prompts: bool = True) -> Iterator[Line]:
    """The lines with something on them, without damaged ones (a problem each) and typed commands.

    ``prompts=False`` for tools whose own lines look like a prompt (``# Port …``).
    """
    for line in split_lines(text):
        if line.damaged:
            problems.damaged(line)
        elif not line.blank and not (prompts and prompt_command(line.text) is not None):
            yield line


def first_output(lines: Iterable[Line], once: re.Pattern[str], problems: Problems) -> Iterator[Line]:
    """The lines of the first output in a text that may hold several, as a loop over devices prints them.

    The first group of *once* is what a line that stands once in each output begins with.
    """
    seen: set[str] = set()
    for line in lines:
        match = None if line.damaged else once.match(line.text)
        if match and match.group(1) in seen:
            problems.add("Another output of the tool begins here; only the first one was read.", line)
            return
        if match:
            seen.add(match.group(1))
        yield line


_FAILURE = re.compile(
    r"command not found|: not found$|^Command ['\"][^'\"]+['\"] not found|[Pp]ermission denied"
    r"|[Nn]o such (?:file|device)|cannot access"
    r"|[Oo]peration not (?:permitted|supported)|Segmentation fault|Cannot allocate memory|Input/output error"
)


def failure(text: str) -> bool:
    """Is this line the shell's or a tool's message that it could not do its work?"""
    return bool(_FAILURE.search(text))


_HOST_PREFIX = re.compile(r"^([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?): ?(.*)$")
_RULER = re.compile(r"^-{5,}$")
_RULED_HOST = re.compile(r"^([\w.,\[\]-]+)(?: \(\d+\))?$")
_AD_HOC = re.compile(r"^(\S+) \| (?:CHANGED|SUCCESS|FAILED)\b.* >>$")


def _folded_hosts(lines: list[Line]) -> list[tuple[str | None, list[Line]]]:
    """The blocks of ``dshbak``/``clush -b`` (the name between two rulers) and of an Ansible ad-hoc command."""
    groups: list[tuple[str | None, list[Line]]] = [(None, [])]
    position = 0
    while position < len(lines):
        ad_hoc = _AD_HOC.match(lines[position].text)
        ruled = position + 2 < len(lines) and all(_RULER.match(lines[position + n].text) for n in (0, 2))
        match = ad_hoc or (_RULED_HOST.match(lines[position + 1].text) if ruled else None)
        if match:
            groups.append((match.group(1), []))
            position += 1 if ad_hoc else 3
        else:
            groups[-1][1].append(lines[position])
            position += 1
    return groups


# First words of messages, which look like a prefix and are none.
_NO_HOSTS = {"bash", "sh", "sudo", "env", "error", "warning", "fatal", "note", "usage", "timeout"}
_NO_HOSTS |= {"ibpanic", "ibwarn", "ibdebug"}


def split_hosts(
    lines: list[Line], labels: Iterable[str] = (), native: Callable[[str], bool] | None = None
) -> list[tuple[str | None, list[Line]]]:
    """Take the ``host: `` prefixes of a parallel shell (pdsh, clush) off, or the headings of folded output.

    A line counts as prefixed when only its rest is one of the tool's own lines: ``native`` knows those; without it,
    ``labels`` are the tool's own one-word labels that look like a prefix.  Returns (host, lines) in the order of the
    hosts' first lines, which may alternate; one pair with host None where most lines have no prefix.
    """
    groups = _folded_hosts(lines)
    if len(groups) > 1:
        return groups if any(not line.blank for line in groups[0][1]) else groups[1:]
    if native is None:
        reserved = _NO_HOSTS | {label.lower() for label in labels}

        def native(text: str) -> bool:
            match = _HOST_PREFIX.match(text)
            return bool(text.strip()) and not (match and match.group(1).lower() not in reserved)

    hosts: dict[str, list[Line]] = {}
    own = 0
    for line in lines:
        match = _HOST_PREFIX.match(line.text)
        if native(line.text):
            own += 1
        elif match and not line.damaged and native(match.group(2)):
            hosts.setdefault(match.group(1), [])
    prefixed = 0
    for line in lines:
        match = _HOST_PREFIX.match(line.text)
        if match and match.group(1) in hosts and (line.terminated or match.group(2).strip()):
            hosts[match.group(1)].append(line._replace(text=match.group(2)))
            prefixed += 1
        elif line.damaged or not line.terminated:
            for group in hosts.values():  # whose line it was cannot be told
                group.append(line)
    return list(hosts.items()) if prefixed > own else [(None, lines)]


_GUID = re.compile(r"^(?:0x)?([0-9a-fA-F]{16})$")
_GUID_GROUPS = re.compile(r"^[0-9a-fA-F]{4}(?:[:.][0-9a-fA-F]{4}){3}$")
_GUID_OCTETS = re.compile(r"^[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){7}$")


def guid(text: str) -> str | None:
    """A GUID as 16 lower-case hex digits; None when the text is no whole GUID."""
    text = text.strip()
    match = _GUID.match(text)
    if match:
        return match.group(1).lower()
    if _GUID_GROUPS.match(text) or _GUID_OCTETS.match(text):
        return re.sub(r"[:.-]", "", text).lower()
    return None


_MAPPED = re.compile(r"^(?:0{4}:){5}ffff:([0-9a-f]{2})([0-9a-f]{2}):([0-9a-f]{2})([0-9a-f]{2})$", re.IGNORECASE)


def ipv4_of_gid(gid: str) -> str | None:
    """The IPv4 address of an IPv4-mapped GID, written in full; None for any other GID."""
    match = _MAPPED.match(gid)
    return ".".join(str(int(octet, 16)) for octet in match.groups()) if match else None


_PCI = re.compile(r"^(?:(?:0x)?([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$")


def pci_address(text: str) -> str | None:
    """A PCI address as ``dddd:bb:dd.f``; the 8-digit domains of nvidia-smi lose their leading zeros down to four."""
    match = _PCI.match(text.strip())
    if not match:
        return None
    domain = (match.group(1) or "0000").lower().lstrip("0").rjust(4, "0")
    return f"{domain}:{match.group(2).lower()}:{match.group(3).lower()}.{match.group(4)}"


_INTEGER = re.compile(r"^[+-]?[0-9]+$")
_HEX = re.compile(r"^0x[0-9a-fA-F]+$")
_NUMBER = re.compile(r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$")


def integer(text: str) -> int | None:
    """A decimal or 0x integer; None otherwise."""
    text = text.strip()
    if len(text) > 40:
        return None
    if _INTEGER.match(text):
        return int(text)
    return int(text, 16) if _HEX.match(text) else None


def number(text: str) -> float | None:
    """A finite decimal number; None otherwise."""
    text = text.strip()
    if len(text) > 40 or not _NUMBER.match(text):
        return None
    value = float(text)
    return value if abs(value) < 1e300 else None


LINK_LAYERS = {"infiniband": "InfiniBand", "ethernet": "Ethernet"}


# What EFA and the like say.  It is an answer, and no link layer.
NO_LINK_LAYER = ("unspecified", "unknown")


def link_layer(text: str) -> str | None:
    return LINK_LAYERS.get(text.strip().lower())


# Words of ibstat, sysfs, ibv_devinfo and rdma for one and the same IBA port state.
_PORT_STATES = {
    "???": "unknown",
    "nop": "nop",
    "down": "down",
    "init": "initializing",
    "initialize": "initializing",
    "initializing": "initializing",
    "armed": "armed",
    "arm": "armed",
    "active": "active",
    "active_defer": "active_defer",
    "actdefer": "active_defer",
    "invalid state": "unknown",
}


def port_state(text: str) -> str | None:
    """``Active``, ``4: ACTIVE``, ``PORT_ACTIVE (4)`` → ``active``; None for any other word."""
    word = re.sub(r"^\s*\d+:\s*|\s*\(\d+\)\s*$", "", text).strip().lower()
    word = word[5:] if word.startswith("port_") else word
    return _PORT_STATES.get(word)


# The physical states of IBA, as ibstat writes them, in lower case; rdma and ibv_devinfo spell some differently.
_PHYS_STATES = {
    "no state change": "nostatechange",
    "nop": "nostatechange",
    "sleep": "sleep",
    "polling": "polling",
    "disabled": "disabled",
    "portconfigurationtraining": "portconfigurationtraining",
    "port_configuration_training": "portconfigurationtraining",
    "port_configuration_traning": "portconfigurationtraining",
    "armed": "portconfigurationtraining",
    "linkup": "linkup",
    "link_up": "linkup",
    "linkerrorrecovery": "linkerrorrecovery",
    "link_error_recovery": "linkerrorrecovery",
    "link_error_recover": "linkerrorrecovery",
    "phytest": "phytest",
    "phy_test": "phytest",
    "phy test": "phytest",
    "link_down": "linkdown",
    "???": "unknown",
}


def phys_state(text: str) -> str | None:
    """``LinkUp``, ``5: LinkUp``, ``LINK_UP (5)`` → ``linkup``; None for any other word."""
    word = re.sub(r"^\s*\d+:\s*|\s*\(\d+\)\s*$", "", text).strip().lower()
    return _PHYS_STATES.get(word)


def whole_netdev(name: str) -> bool:
    """Does an interface's name prove that none of its characters is missing?

    udev ends the names of NIC ports with the port's number (``ens1f0np0``), one digit on the cards of hosts.
    """
    return bool(re.search(r"\dnp\d\Z", name))


_BETWEEN = re.compile(r"[ \t\n,]*")


def json_items(text: Any) -> tuple[list[Any], bool]:
    """The elements of a JSON array (or the one object) in a text, and whether the text held all of it.

    Warnings in front and prompts behind are passed over; of a cut array, the elements that are whole are returned.
    """
    cleaned = clean(text)
    start = re.search(r"^[ \t]*[\[{]", cleaned, re.MULTILINE)
    if not start:
        return [], not cleaned.strip()
    position = start.end() - 1
    decoder = json.JSONDecoder()
    if cleaned[position] == "{":
        try:
            return [decoder.raw_decode(cleaned, position)[0]], True
        except (ValueError, RecursionError):
            return [], False
    items: list[Any] = []
    position += 1
    while True:
        position = _BETWEEN.match(cleaned, position).end()  # type: ignore[union-attr]
        if position >= len(cleaned):
            return items, False
        if cleaned[position] == "]":
            return items, True
        try:
            item, position = decoder.raw_decode(cleaned, position)
        except (ValueError, RecursionError):
            return items, False
        if isinstance(item, (int, float)) and position >= len(cleaned):
            return items, False  # a number at the very end may lack digits
        items.append(item)


def holds_damage(value: Any) -> bool:
    """Does a decoded document hold a character that stands for bytes that were no text?"""
    if isinstance(value, str):
        return REPLACEMENT in value
    if isinstance(value, dict):
        return any(holds_damage(key) or holds_damage(item) for key, item in value.items())
    return isinstance(value, list) and any(holds_damage(item) for item in value)
