# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log: ``dmesg`` (also ``-T``, ``-x``, ``--time-format=iso``), the journal and what log shippers make
of them.

Value::

    {"events": [{"kind", "severity": "error"|"warning"|"info", "text", "time", "uptime_s", "pci", …}],
     "fabric_manager": {… as fabricmanager_log …}}        # when the text is its log

Only lines that say something about GPUs, NICs, PCIe, their drivers or the loss of memory are events.  Kinds, and
what they
carry beside ``pci``:

GPU ``xid`` (code, name, action, pid, process; for 154: recovery_from, recovery_to), ``sxid`` (code, fatal, link),
``gpu_lost``
(no Xid in the line), ``gpu_unsupported`` (driver_version, pci_id), ``gpu_needs_open_module``, ``gpu_init_failed``,
``gpu_probe_failed`` (count), ``nvrm_version_mismatch`` (client_version, module_version), ``nvrm_loaded`` (version,
flavour),
``gsp_error``, ``nouveau_bound``, ``nouveau_conflict``
modules ``symbol_error`` (module, symbol, reason, errno), ``key_rejected`` (module), ``unsigned_module`` (module),
``peermem_error``, ``gdrdrv_loaded`` (version, flavour), ``lockdown``, ``secure_boot`` (enabled)
mlx5 ``mlx5_link`` (device, port, state: up|down|active|init), ``mlx5_pcie_bandwidth`` (available_gbps, capable_gbps,
limited_at),
``mlx5_module`` (module, status, reason), ``mlx5_power`` (power_w), ``mlx5_command_failed`` (command, opcode, status,
syndrome,
errno), ``mlx5_temperature``, ``mlx5_firmware`` (version), ``mlx5_firmware_error``, ``mlx5_health``, ``mlx5_tx_timeout``
others ``pcie_bandwidth`` (as mlx5's), ``aer`` (error_severity, error_type, agent), ``aer_received`` (error_severity,
source; ``pci`` is the root port), ``slot_link_down``,
``netdev_watchdog`` (netdev,
driver, queue), ``netdev_link`` (netdev, state), ``bond_member`` (bond, netdev, state), ``iommu_fault``,
``iommu_mode`` (mode),
``machine_check``, ``out_of_memory`` (process, pid)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import fabricmanager_log
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    pci_address,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._xids import XIDS

# Kernel messages begin with "name: " themselves, so a parallel shell's prefix is known by the stamp behind it only.
_OWN = re.compile(r"^\[\s*\d+\.\d+\]|^\[[A-Z][a-z]{2} [A-Z]|^kern\s*:|^<\d+>|^kernel: ")
_LIMIT = 1024
_STAMPS = (
    # dmesg -x: facility and level
    re.compile(r"^(?:kern|user|daemon|syslog|auth)\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*: "),
    re.compile(r"^<\d+>"),
    re.compile(r"^\[\s*(?P<uptime>\d+\.\d+)\](?:\s*\[\s*[TC]\d+\])? ?"),
    re.compile(r"^\[(?P<wall>[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4})\] ?"),
    re.compile(r"^(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[+-]\d\d:?\d\d|Z)?) ?"),
    re.compile(r"^(?P<short>[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d) "),
    re.compile(r"^(?:[\w.-]+ )?kernel: "),
)
_MESSAGE_START = re.compile(r"^(?:\[|<\d+>|[A-Z][a-z]{2} +\d+ |\d{4}-\d\d-|kern\s*:)")


def unstamped(text: str) -> str:
    """A line of the log without what dmesg, journalctl or syslog wrote before the message."""
    for pattern in _STAMPS * 2:
        text = pattern.sub("", text)
    return text


def _pci(text: str) -> str | None:
    """An address, also without its function (which is 0)."""
    return pci_address(text if "." in text else f"{text}.0")


def parse(text: str) -> Parsed:
    """Read a kernel log."""
    problems = Problems()
    lines = read_lines(text, problems, prompts=False, barriers=True, own=_OWN)
    value: dict[str, Any] = {"events": []}
    if any(fabricmanager_log.RECORD.match(line.text) for line in lines):
        manager = fabricmanager_log.parse(text)
        value["fabric_manager"] = manager.value
        for problem in manager.problems:
            problems.add(problem.reason, Line(problem.line, problem.text, True))
        return problems.result(value)
    for message in _messages(lines, problems):
        event = _event(message)
        if event:
            value["events"].append(event)
    return problems.result(value)


class _Message:
    """One message; the kernel splits long ones over lines that may have no stamp."""

    def __init__(self, line: Line) -> None:
        self.time: dict[str, Any] = {}
        self.parts = [self._strip(line.text)]
        self.raw = [line.text.strip()]

    def _strip(self, text: str) -> str:
        for _round in range(3):
            before = text
            for pattern in _STAMPS:
                match = pattern.match(text)
                if match:
                    for name, found in match.groupdict().items():
                        if found and name == "uptime":
                            self.time.setdefault("uptime_s", float(found))
                        elif found:
                            self.time.setdefault("time", found)
                    text = text[match.end() :]
            if text == before:
                break
        return text.strip()

    def goes_on(self, line: Line) -> bool:
        """Whether a line belongs to this message: indented without a stamp, or the next part of a sentence of NVRM."""
        text = line.text.strip()
        if line.text[:1] in (" ", "\t") and not _MESSAGE_START.match(text):
            return True
        sentence = self.parts[0].startswith("NVRM: ") and not self.parts[-1].endswith((".", "!"))
        return sentence and bool(re.match(r"NVRM: (?!loading )[a-z(]", unstamped(text)))

    def add(self, line: Line) -> None:
        self.raw.append(line.text.strip())
        self.parts.append(re.sub(r"^NVRM: ", "", unstamped(line.text.strip())))


def _messages(lines: list[Line], problems: Problems) -> list[_Message]:
    messages: list[_Message] = []
    hidden = False
    for line in lines:
        if line.damaged:
            # The next lines may go on with what could not be read, so nothing is added to the message before.
            hidden = True
            if messages and line.text[:1] in (" ", "\t", "\ufffd"):
                messages.pop()
            continue
        if line.blank:
            continue
        if not line.terminated:
            problems.cut(line)
            if messages and messages[-1].goes_on(line):
                messages.pop()
            continue
        if messages and not hidden and messages[-1].goes_on(line):
            messages[-1].add(line)
        elif hidden and line.text[:1] in (" ", "\t") and not _MESSAGE_START.match(line.text.strip()):
            continue
        else:
            messages.append(_Message(line))
            hidden = False
    return messages


def _event(message: _Message) -> dict[str, Any] | None:
    # As few lines as say it: how many more belong to the message is not always in the text.
    for count in range(1, len(message.parts) + 1):
        # The kernel's own lines end at 1 KiB; a longer one is something else and would only cost time.
        text = " ".join(message.parts[:count])[:_LIMIT]
        for kind, severity, pattern, reader in _EVENTS:
            match = pattern.search(text)
            if match:
                shown = "\n".join(message.raw[:count])
                event: dict[str, Any] = {"kind": kind, "severity": severity, "text": shown, **message.time}
                pci = match.groupdict().get("pci")
                if pci and _pci(pci):
                    event["pci"] = _pci(pci)
                if reader:
                    event.update(reader(match))
                return event
    return None


def _xid(match: re.Match[str]) -> dict[str, Any]:
    code = int(match.group("code"))
    found: dict[str, Any] = {"code": code}
    if code in XIDS:
        found["name"], found["action"] = XIDS[code]
        if found["action"] == "info" or found["action"] == "application":
            found["severity"] = "warning" if code != 154 else "error"
    rest = match.group("rest")
    pid = re.search(r"pid='?(\d+)\b", rest)
    if pid:
        found["pid"] = int(pid.group(1))
    process = re.search(r"name='?([^,']+)", rest)
    if process and process.group(1).strip() != "<unknown>":
        found["process"] = process.group(1).strip()
    recovery = re.search(r"recovery action changed from \S+ \(([^)]*)\) to \S+ \(([^)]*)\)", rest)
    if recovery:
        found["recovery_from"], found["recovery_to"] = recovery.groups()
        if found["recovery_to"] == "None":
            found["severity"] = "info"
    link = re.search(r"\bLink (\d+)\b", rest)
    if link:
        found["link"] = int(link.group(1))
    return found


def _sxid(match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"code": int(match.group("code"))}
    rest = match.group("rest")
    word = re.search(r"\b(Non-fatal|Fatal)\b", rest, re.IGNORECASE)
    if word:
        found["fatal"] = word.group(1).lower() == "fatal"
        found["severity"] = "error" if found["fatal"] else "warning"
    link = re.search(r"\bLink (\d+)\b", rest)
    if link:
        found["link"] = int(link.group(1))
    return found


def _named(*names: str) -> Callable[[re.Match[str]], dict[str, Any]]:
    """A reader that takes groups over as they stand."""

    def read(match: re.Match[str]) -> dict[str, Any]:
        return {name: match.group(name) for name in names if match.group(name) is not None}

    return read


def _flavour(match: re.Match[str]) -> dict[str, Any]:
    found = _named("version")(match)
    found["flavour"] = "open" if re.search(r"open", match.group("flavour"), re.IGNORECASE) else "proprietary"
    return found


def _bandwidth(match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"available_gbps": float(match.group("available"))}
    if match.group("capable"):
        found["capable_gbps"] = float(match.group("capable"))
        at = _pci(match.group("at"))
        if at:
            found["limited_at"] = at
    else:
        found["severity"] = "info"
    return found


def _link(match: re.Match[str]) -> dict[str, Any]:
    state = match.group("state").lower()
    found: dict[str, Any] = {"state": state, "severity": "warning" if state == "down" else "info"}
    for name in ("device", "bond", "netdev"):
        if match.groupdict().get(name):
            found[name] = match.group(name)
    if match.groupdict().get("port"):
        found["port"] = int(match.group("port"))
    return found


def _module_event(match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"module": int(match.group("module")), "status": match.group("status").strip()}
    if match.group("reason"):
        found["reason"] = match.group("reason").strip()
    if match.group("level") != "error":
        found["severity"] = "warning" if "unplugged" in found["status"].lower() else "info"
    return found


def _command(match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"command": match.group("command"), "opcode": match.group("opcode").lower()}
    rest = match.group("rest")
    status = re.search(r"status ([^,(]+)\((0x[0-9a-fA-F]+)\)", rest)
    if status:
        found["status"] = status.group(1).strip()
    syndrome = re.search(r"syndrome \((0x[0-9a-fA-F]+)\)", rest)
    if syndrome:
        found["syndrome"] = syndrome.group(1).lower()
    error = re.search(r"err\((-?\d+)\)", rest)
    if error:
        found["errno"] = int(error.group(1))
    return found


def _symbol(match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"module": match.group("module").replace("-", "_"), "symbol": match.group("symbol")}
    if match.group("errno"):
        found["reason"], found["errno"] = "unknown symbol", int(match.group("errno"))
    else:
        found["reason"] = "version of symbol differs" if "disagrees" in match.group(0) else "unknown symbol"
    return found


def _aer(match: re.Match[str]) -> dict[str, Any]:
    severity = match.group("severity").strip()
    found: dict[str, Any] = {
        "error_severity": severity.lower(),
        "error_type": match.group("type").strip(),
        "severity": "warning" if severity.lower().startswith("corrected") else "error",
    }
    if match.group("agent"):
        found["agent"] = match.group("agent").strip()
    return found


def _aer_received(match: re.Match[str]) -> dict[str, Any]:
    """What a root port heard; the device that sent it follows in a message of its own, which may be suppressed."""
    severity = match.group("severity").lower()
    found: dict[str, Any] = {
        "error_severity": severity.replace("correctable", "corrected"),
        "severity": "warning" if severity.startswith("correct") else "error",
    }
    source = _pci(match.group("source")) if ":" in match.group("source") else None
    if source:
        found["source"] = source
    return found


def _integers(*names: str) -> Callable[[re.Match[str]], dict[str, Any]]:
    def read(match: re.Match[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, text in match.groupdict().items():
            if name != "pci" and text is not None:
                found[name] = int(text) if name in names else text
        return found

    return read


def _secure_boot(match: re.Match[str]) -> dict[str, Any]:
    return {"enabled": match.group("word").lower() == "enabled"}


_P = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_ANY = r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_MLX5 = rf"mlx5_core {_P}(?: (?P<device>[\w.-]+))?: "

_Reader = Callable[[re.Match[str]], dict[str, Any]]
_TABLE: tuple[tuple[str, str, str, _Reader | None], ...] = (
    ("xid", "error", rf"NVRM: Xid \({_ANY}(?: [^)]*)?\): (?P<code>\d+), ?(?P<rest>.*)$", _xid),
    ("xid", "error", rf"NVRM: Xid \({_ANY}\): (?P<code>\d+)(?P<rest>)$", _xid),
    ("sxid", "error", rf"nvidia-nvswitch\d*:? SXid \({_ANY}\): (?P<code>\d+), ?(?P<rest>.*)$", _sxid),
    ("gpu_lost", "error", rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_ANY}:?.*fallen off the bus", None),
    (
        "gpu_unsupported",
        "error",
        rf"NVRM: The NVIDIA (?:probe routine|GPU) {_P}\s+\(PCI ID: (?P<pci_id>[0-9a-f:]+)\)\s+installed in this"
        rf" system\s+is not "
        r"supported by the\s+NVIDIA (?P<driver_version>\d+(?:\.\d+)+) driver release",
        _named("pci_id", "driver_version"),
    ),
    (
        "gpu_needs_open_module",
        "error",
        rf"NVRM: (?:The NVIDIA GPU {_P}.*)?(?:requires use of the NVIDIA open kernel modules|.*only supported"
        rf" by the open kernel)",
        None,
    ),
    ("gpu_init_failed", "error", rf"NVRM: GPU {_ANY}: RmInitAdapter failed! \((?P<status>[^)]*)\)", _named("status")),
    (
        "gpu_probe_failed",
        "error",
        r"NVRM: The NVIDIA probe routine failed for (?P<count>\d+) device",
        _integers("count"),
    ),
    (
        "nvrm_version_mismatch",
        "error",
        r"NVRM: API mismatch: the (?:client|NVIDIA kernel module)[^.]*?has (?:the )?version "
        r"(?P<client_version>\d+(?:\.\d+)+),? but\s+"
        r"(?:NVRM: )?(?:this kernel module|this NVIDIA driver component) has (?:the )?version "
        r"(?P<module_version>\d+(?:\.\d+)+)",
        _named("client_version", "module_version"),
    ),
    (
        "nvrm_loaded",
        "info",
        r"NVRM: loading NVIDIA UNIX (?P<flavour>(?:Open )?(?:\S+ )?Kernel Module)(?: for \S+)?\s+"
        r"(?P<version>\d+(?:\.\d+)+)",
        _flavour,
    ),
    ("nouveau_conflict", "error", r"NVRM: .*(?:nouveau|rivafb|nvidiafb).*", None),
    ("gsp_error", "error", rf"NVRM: .*GSP.*(?:at {_ANY}).*", None),
    ("nouveau_bound", "warning", rf"^nouveau {_P}: (?!.*NVRM).*", None),
    (
        "symbol_error",
        "error",
        r"(?P<module>[\w-]+): (?:disagrees about version of symbol|Unknown symbol) (?P<symbol>\w+)(?: \(err "
        r"(?P<errno>-?\d+)\))?",
        _symbol,
    ),
    (
        "key_rejected",
        "error",
        r"Required key not available|Loading of (?:unsigned module|module with unavailable key) is rejected",
        None,
    ),
    (
        "unsigned_module",
        "warning",
        r"(?P<module>[\w-]+): module verification failed: signature and/or required key missing",
        _named("module"),
    ),
    ("peermem_error", "error", r"nvidia[-_]peermem.*\bERROR\b", None),
    (
        "gdrdrv_loaded",
        "info",
        r"gdrdrv:\S* ?loading gdrdrv version (?P<version>[\d.]+) built for (?P<flavour>\w+) NVIDIA driver",
        _flavour,
    ),
    ("lockdown", "warning", r"Kernel is locked down|Lockdown: ", None),
    ("secure_boot", "info", r"[Ss]ecure ?[Bb]oot:? (?:Secure boot )?(?P<word>enabled|disabled)", _secure_boot),
    ("mlx5_link", "info", rf"{_MLX5}Port: (?P<port>\d+) Link (?P<state>INIT|ACTIVE|DOWN|ARMED)\b", _link),
    ("mlx5_link", "info", rf"{_MLX5}Link (?P<state>up|down)\b", _link),
    (
        "mlx5_pcie_bandwidth",
        "warning",
        rf"{_MLX5}(?P<available>\d+\.\d+) Gb/s available PCIe bandwidth(?:, limited by .*? link at (?P<at>\S+) "
        r"\(capable of (?P<capable>\d+\.\d+) Gb/s)?",
        _bandwidth,
    ),
    (
        "pcie_bandwidth",
        "warning",
        rf"{_P}: (?P<available>\d+\.\d+) Gb/s available PCIe bandwidth(?:, limited by .*? link at (?P<at>\S+) "
        r"\(capable of (?P<capable>\d+\.\d+) Gb/s)?",
        _bandwidth,
    ),
    (
        "mlx5_module",
        "error",
        rf"{_MLX5}Port module event(?:\[(?P<level>\w+)\])?: module (?P<module>\d+), (?P<status>[^,]+?)(?:, "
        rf"(?P<reason>.+?))?\s*$",
        _module_event,
    ),
    (
        "mlx5_power",
        "warning",
        rf"{_MLX5}.*insufficient power on the PCIe slot \((?P<power_w>\d+)W\)",
        _integers("power_w"),
    ),
    ("mlx5_temperature", "error", rf"{_MLX5}.*[Hh]igh temperature", None),
    (
        "mlx5_command_failed",
        "error",
        rf"{_MLX5}(?:\S+\(pid \d+\): )?(?P<command>[A-Z][A-Z0-9_]+)\((?P<opcode>0x[0-9a-fA-F]+)\)(?P<rest>.*failed.*)$",
        _command,
    ),
    ("mlx5_firmware", "info", rf"{_MLX5}firmware version: (?P<version>\d+\.\d+\.\d+)", _named("version")),
    ("mlx5_tx_timeout", "error", rf"{_MLX5}TX timeout", None),
    (
        "mlx5_health",
        "error",
        rf"{_MLX5}.*(?:health compromised|device's health|assert_var|assert_exit|Fatal error|handling bad"
        rf" device|Health issue observed|health recovery|synd 0x(?!0\b))",
        None,
    ),
    (
        "mlx5_firmware_error",
        "error",
        rf"{_MLX5}.*(?:wait_fw_init|[Ff]irmware over \d+ MS|pre-initializing|mlx5_load_one failed|probe_one.*failed"
        r"|mlx5_function_\w+ .*failed|command .*timeout|timeout\. Will cause a leak|wait_func_handle_exec_timeout"
        r"|firmware.*(?:timeout|not respond))",
        None,
    ),
    ("mlx5_tx_timeout", "error", r"mlx5_core.*TX timeout", None),
    (
        "aer",
        "error",
        rf"{_P}: (?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+), type=(?P<type>[^,(]+)(?:,"
        rf" \((?P<agent>[^)]*)\))?",
        _aer,
    ),
    (
        "aer_received",
        "error",
        rf"^pcieport {_P}: (?:PCIe )?AER: (?:Multiple )?"
        r"(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\))"
        r" error (?:message )?received(?: from|:)? (?P<source>[0-9a-f:.]+|id=[0-9a-f]+)",
        _aer_received,
    ),
    (
        "netdev_link",
        "info",
        rf"^[\w-]+ {_P} (?P<netdev>[\w.-]+): NIC Link is (?P<state>[Uu]p|[Dd]own)\b",
        _link,
    ),
    ("slot_link_down", "error", rf"pciehp(?: {_P})?.*(?:Link Down|Card not present)", None),
    (
        "netdev_watchdog",
        "error",
        r"NETDEV WATCHDOG: (?P<netdev>\S+) \((?P<driver>[\w-]+)\): transmit queue (?P<queue>\d+) timed out",
        _integers("queue"),
    ),
    (
        "bond_member",
        "info",
        r"^(?P<bond>[\w.-]+): \(slave (?P<netdev>[\w.-]+)\): link status (?:definitely )?(?P<state>up|down)\b",
        _link,
    ),
    ("iommu_fault", "error", r"DMAR:.*\bfault\b|AMD-Vi: Event logged \[IO_PAGE_FAULT|arm-smmu.*(?:event|fault)", None),
    ("iommu_mode", "info", r"iommu: Default domain type: (?P<mode>\w+)", _named("mode")),
    ("machine_check", "error", r"mce: \[Hardware Error\]|\[Hardware Error\]: .*", None),
    ("out_of_memory", "error", r"Out of memory: Killed process (?P<pid>\d+) \((?P<process>[^)]*)\)", _integers("pid")),
    ("peermem_error", "error", r"nvidia[-_]peermem.*(?:fail|error|invalid)", None),
)
_EVENTS = tuple((kind, severity, re.compile(pattern), reader) for kind, severity, pattern, reader in _TABLE)
