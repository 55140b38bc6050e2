# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and serial numbers that a bundle tells, and what stands for a name. Pure."""

from __future__ import annotations

import ipaddress
import itertools
import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import natural

_LABELLED_SERIAL = re.compile(
    r"""(?:\b(?:GPU |Chassis |Module |Product |Board |Vendor |System |Base Board )?Serial[ _]?(?:Number|No\.?|Num)?"""
    r"""|\bVendor SN|\bS/N|\bAsset Tag|\bID_SERIAL(?:_SHORT)?|\[SN\] Serial number|\bserial_number)"""
    r"""["']?[ \t]*[:=|][ \t]*["']?([\w.-]{4,})(?=["']?[ \t,}]*$)""",
    re.IGNORECASE | re.MULTILINE,
)
_SERIALS = (
    _LABELLED_SERIAL,
    re.compile(r"<(?:\w*_)?serial(?:_number)?>([^<\s]{4,})</", re.IGNORECASE),
    re.compile(r"""["'](?:[\w. -]*serial[\w. -]*|(?:vendor[ _])?sn|asset_tag)["']\s*:\s*["']([^"'\s]{4,})["']""", re.I),
    re.compile(r"\bserial_number[ \t]+([\w.-]{6,})", re.IGNORECASE),
)
_NO_SERIAL = re.compile(
    r"^(n/?a|none|unknown|not|default.*|to|0+|\[?n/a\]?|number|[\d.]{0,5}|string|empty|invalid|no)$", re.IGNORECASE
)
_SERIAL_PATHS = re.compile(r"/dmi/id/\w*(serial|asset_tag)$|/device-?tree/(serial-number|system-id)$")

# As installed: they are no rack's own, and an operating system would be taken for a host.
_COMMON = frozenset(
    {"localhost", "localhost4", "localhost6", "ubuntu", "debian", "linux", "rocky", "centos", "rhel", "host", "node"}
)
_SELF = re.compile(r"(^|/)(root/etc/hostname|root/proc/sys/kernel/hostname|hostname\w*\.txt|root/etc/mailname)$")
_ADDRESSED = re.compile(r"^[ \t]*(?:\d+\.\d+\.\d+\.\d+|[0-9a-f:]*:[0-9a-f:]*)[ \t]+([^#\n]+)", re.I | re.M)
_TOLD = (
    re.compile(r"^Linux (\S+) \d+\.\d+", re.MULTILINE),  # uname -a
    re.compile(r"^\s*(?:Static|Transient) hostname: (\S+)", re.MULTILINE),
    re.compile(r"^kernel\.hostname = (\S+)", re.MULTILINE),
    re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (\S+) [\w./-]+(?:\[\d+\])?: ", re.MULTILINE),
    re.compile(r"^\d{4}-\d\d-\d\dT\S+ (\S+) [\w./-]+(?:\[\d+\])?: ", re.MULTILINE),
    re.compile(r"^([\w.-]+):\d+:\d+ \[\d+\] ", re.MULTILINE),  # NCCL
    re.compile(r"^\[?[\w-]+@([\w.-]+)[ :][^\n]*?[#$]", re.MULTILINE),  # a prompt
)
_URL = re.compile(r"://(?:[^/@\s]*@)?([\w-]+(?:\.[\w-]+)+)(?=[:/\s\"']|$)", re.MULTILINE)
_MIRROR_FILES = re.compile(r"(^|/)(vars\.yml|site\.yml|inventory\.\w+|apt[\w.-]*)$|\.(list|sources|repo)$|/apt/")
_SUBNET_FILES = re.compile(
    r"(^|/)(ibnetdiscover|iblinkinfo|ibqueryerrors|ibhosts|ibswitches|ibnodes|ibroute|ibtracert|opensm|saquery|smpquery|"
    r"ibswinfo|ibdiagnet)[\w.-]*$|/node_desc$"
)
_ADAPTER = re.compile(r"([\w.-]+) (?:HCA-\d+|mlx\d_\w+|ibp\w+|roce\w+|rocep\w+)\b")
_SWITCH = re.compile(r"\bMF\d;([\w.-]+):")
_DESCRIPTION = re.compile(r"""["']\s*([\w][\w .-]*?)\s*["']""")
_BY_MAKER = re.compile(
    r"mellanox|nvidia|quantum|connectx|infiniband|aggregation|ibsim|switch-?ib|mt\d{4}", re.IGNORECASE
)
# Whose repositories and pages everybody uses.
_PUBLIC = re.compile(
    r"(^|\.)(nvidia\.com|mellanox\.com|debian\.org|ubuntu\.com|canonical\.com|kernel\.org|github\.com|"
    r"githubusercontent\.com|freedesktop\.org|example\.invalid|w3\.org|redhat\.com|fedoraproject\.org|docker\.com|"
    r"kubernetes\.io|open-mpi\.org|nvcr\.io|python\.org|pypi\.org|systemd\.io|netfilter\.org|man7\.org)$",
    re.IGNORECASE,
)


def serials(path: str, text: str) -> set[str]:
    """Serial numbers that a file tells."""
    found = {match.group(1) for pattern in _SERIALS for match in pattern.finditer(text)}
    if _SERIAL_PATHS.search(path):
        found.add(text.strip(" \t\r\n\0"))
    lines = text.splitlines()
    header = [cell.strip() for cell in lines[0].split(",")] if path.endswith(".csv") and lines else []
    for column, name in enumerate(header):
        if "serial" in name.lower():
            found |= {cells[column].strip() for line in lines[1:] if len(cells := line.split(",")) > column}
    # Without a digit it is a word, which stands elsewhere with another meaning.
    return {value for value in found if any(map(str.isdigit, value)) and not _NO_SERIAL.match(value)}


def host_names(path: str, text: str) -> set[str]:
    """Names of hosts that a file tells: the host's own and its neighbours'."""
    found: set[str] = set()
    if _SELF.search(path):
        found |= set(text.split()[:1])
    if path.endswith("root/etc/hosts"):
        found |= {name for match in _ADDRESSED.finditer(text) for name in match[1].split() if _distinct(name)}
        found = {name for name in found if not name.startswith("ip6-")}
    if path.startswith("root/") or "/root/sys/" in path:
        return {name for name in found if name.lower() not in _COMMON}
    for pattern in _TOLD:
        found |= {match[1] for match in pattern.finditer(text) if _distinct(match[1])}
    return {name for name in found if name.lower() not in _COMMON and not _PUBLIC.search(name)}


def node_names(path: str, text: str) -> set[str]:
    """Names of other machines: what hangs on an InfiniBand subnet, from the descriptions of its nodes, and mirrors."""
    if not _SUBNET_FILES.search(path):
        if not _MIRROR_FILES.search(path):
            return set()
        return {match[1] for match in _URL.finditer(text) if _distinct(match[1]) and not _PUBLIC.search(match[1])}
    found = {match[1] for pattern in (_ADAPTER, _SWITCH) for match in pattern.finditer(text)}
    for match in _DESCRIPTION.finditer(text):
        if not _ADAPTER.search(match[1]) and not _BY_MAKER.search(match[1]):
            found.add(match[1])
    return {name for name in found if _distinct(name) and not re.match(r"[HSR]-[0-9a-f]{16}$", name)}


def _distinct(name: str) -> bool:
    """No word of a language, and no address: a name that can be looked for everywhere."""
    return len(name) > 1 and re.search(r"[\d-]|\w\.\w", name) is not None and not is_address(name)


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return re.fullmatch(r"[\d.:-]+", name) is not None
    return True


class Names:
    """What stands for each name. *hosts* come first and are numbered in their natural order, so that they keep it."""

    def __init__(self, hosts: t.Iterable[str], nodes: t.Iterable[str] = ()) -> None:
        self.aliases: dict[str, str] = {}
        self.domains: set[str] = set()
        self._numbers = {kind: itertools.count(1) for kind in ("host", "node")}
        for kind, names in (("host", hosts), ("node", nodes)):
            for name in sorted({name.lower().strip(".") for name in names if name}, key=natural):
                self._add(name, kind)
        plain = [name for name in self.aliases if name.isalpha()]
        marked = [name for name in self.aliases if name not in plain]
        # A name that is a plain word (vm) stands in keys and options as well: vm.swappiness, --vm.
        self._plain = _alternatives(plain, r"(?<![\w.-])", r"(?![\w-]|\.(?!example\.invalid)\w)")
        self._marked = _alternatives(marked, r"(?<![\w-])(?<!\w\.)", r"(?![\w-])")
        self._in_names = _alternatives(marked, r"(?<![^\W_])(?<!-)", r"(?![^\W_]|-)")
        full = [name for name in self.aliases if "." in name]
        self._full = _alternatives(full, r"(?<![\w-])(?<!\w\.)", r"(?![\w-])")
        domains = sorted(self.domains, key=len, reverse=True)
        self._domains = re.compile(
            "|".join(rf"(?<![\w-]){re.escape(domain)}(?![\w-])" for domain in domains) or r"(?!)", re.IGNORECASE
        )

    def _add(self, name: str, kind: str) -> None:
        short, _, domain = name.partition(".")
        if is_address(name) or name in self.aliases or short in ("", "localhost"):
            return
        if kind == "node" and ("." in name or " " in name):
            # The first word of a mirror's name or of a description says too little to be looked for by itself.
            self.aliases[name] = self._alias(short, kind) + ".example.invalid" * bool(domain)
        elif short not in self.aliases:
            self.aliases[short] = self._alias(short, kind)
        elif domain and any(other.partition(".")[0] == short for other in self.aliases if "." in other):
            self.aliases[name] = f"{self._alias(short, kind)}.example.invalid"
        if domain:
            self.aliases.setdefault(name, f"{self.aliases.get(short, short)}.example.invalid")
            parts = domain.split(".")
            self.domains |= {
                parent
                for parent in (".".join(parts[at:]) for at in range(len(parts) - 1))
                if not _PUBLIC.search(parent)
            }

    def _alias(self, name: str, kind: str) -> str:
        """As valid or invalid as the name that it stands for."""
        odd = re.search(r"[^a-z0-9. -]", name)
        alias = f"{kind}{odd[0] if odd else '-'}{next(self._numbers[kind]):03d}"
        return f"{'-' * name.startswith('-')}{alias}{'-' * name.endswith('-')}"

    def replace(self, text: str, *, in_names: bool = False, words: bool = True) -> str:
        """*in_names*: in the names of files, where `_` stands for a blank. *words*: names that are plain words, too."""
        if in_names:
            text = self._in_names.sub(self._found, text)
        text = _LIST.sub(self._expanded, text)
        text = self._full.sub(self._found, text)
        text = self._domains.sub("example.invalid", text)
        text = self._marked.sub(self._found, text)
        return self._plain.sub(self._found, text) if words else text

    def _found(self, match: re.Match[str]) -> str:
        return match[0] if _is_hexadecimal(match) else self.aliases[match[0].lower()]

    def _expanded(self, match: re.Match[str]) -> str:
        """A list as Slurm writes it: gpu-[01-03,07]."""
        names = []
        for part in match["list"].split(","):
            first, _, last = part.partition("-")
            if not first.isdecimal() or (last and not last.isdecimal()) or int(last or first) - int(first) > 4096:
                return match[0]
            numbers = range(int(first), int(last or first) + 1)
            names += [f"{match['start']}{number:0{len(first)}d}{match['end']}" for number in numbers]
        known = [self.aliases.get(name.lower()) for name in names]
        return ",".join(alias or "node-000" for alias in known) if any(known) else match[0]


_LIST = re.compile(r"(?<![\w.-])(?P<start>[A-Za-z][\w.-]*)\[(?P<list>\d[\d,-]*)\](?P<end>[\w.-]*)")


def _is_hexadecimal(match: re.Match[str]) -> bool:
    """Whether a name that is hexadecimal as well (c1) stands in an address: c1:00.0, b8:3f:d2:c1:00:01, fd00::c1."""
    if re.fullmatch(r"[0-9a-f]{1,4}", match[0], re.IGNORECASE) is None:
        return False
    before, after = (
        match.string[max(0, match.start() - 5) : match.start()],
        match.string[match.end() : match.end() + 16],
    )
    return (
        re.search(r"(?:[0-9a-f]{1,4}|:):$", before, re.IGNORECASE) is not None
        or re.match(r":[0-9a-f]{2}\.[0-7]\b|::|(?::[0-9a-f]{2}){3}", after, re.IGNORECASE) is not None
    )


def _alternatives(words: t.Iterable[str], before: str, after: str) -> re.Pattern[str]:
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(f"{before}(?:{listed}){after}" if listed else r"(?!)", re.IGNORECASE)


__all__ = ("Names", "host_names", "is_address", "node_names", "serials")
