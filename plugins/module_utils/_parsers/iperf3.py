# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""iperf3: text and JSON (``-J``) of every version, and its errors, which JSON reports with exit status 0.

Value::

    {"version", "protocol": "TCP"|"UDP", "streams", "duration_s", "reverse": bool, "congestion_control",
     "connections": [{"local_address", "local_port", "remote_address", "remote_port"}],
     "sent_bits_per_second", "received_bits_per_second", "sent_bytes", "received_bytes", "retransmits",
     "reverse_sent_bits_per_second", "reverse_received_bits_per_second",         # the way back of --bidir
     "jitter_ms", "lost_packets", "packets", "lost_percent",
     "bits_per_second",                       # UDP of older versions, which have one sum for both ends
     "cpu_host_percent", "cpu_remote_percent",
     "intervals": [{"start_s", "end_s", "bits_per_second", "retransmits"}],       # all streams together
     "streams_ended": [{"id", "role": "sender"|"receiver", "bits_per_second", "retransmits"}],
     "error": text, "complete": bool}

With ``error`` nothing that was measured counts, even where intervals are there.  With ``--bidir`` intervals are those
of the way forth.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    first_output,
    number,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._lenient_json import load
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import decoded, read_lines

_CONNECTED = re.compile(r"^\[\s*(\d+)\] local (\S+) port (\d+) connected (?:to|with) (\S+) port (\d+)")
_ROW = re.compile(
    r"^\[\s*(SUM|\d+)\](?:\[([A-Z]X)-[A-Z]\])?\s+(\d+\.\d+)-\s*(\d+\.\d+)\s+sec\s+([\d.]+) ([KMGT]?)Bytes\s+([\d.]+) "
    r"([KMGT]?)(bits|Bytes)/sec(.*)$"
)
_ONCE = re.compile(r"^(Connecting to host)\b")
_HEADER = re.compile(r"^\[ ID\](?:\[Role\])?\s+Interval\s+Transfer\s+(?:Bitrate|Bandwidth)(.*)$")
_LOSS = re.compile(r"([\d.]+) ms\s+(-?\d+)/(\d+) \(([\d.e+-]+|nan|-nan)%\)")
_ERROR = re.compile(r"^iperf3: (?:error - |interrupt - )?(.*)$")
_INTERRUPT_ECHO = re.compile(r"^\^C")
_DECIMAL = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def parse(text: str) -> Parsed:
    """Read what an iperf3 client or server printed."""
    problems = Problems()
    plain = decoded(text)
    if isinstance(plain, str):
        start = re.search(r'\{\s*"(?:start|title|intervals|error|end)"\s*:', plain)
        if start:
            if re.search(r"^\[ ID\]", plain[: start.start()], re.MULTILINE):
                problems.add("A run in text stands in front of the JSON document, which alone was read.")
            return _parse_json(plain[start.start() :], problems)
    reader = _Reader(problems)
    lines = read_lines(text, problems, labels=("iperf3",), own=re.compile(r"^\[\s*(?:ID|SUM|\d+)\]|^iperf3: "))
    for line in first_output(lines, _ONCE, problems):
        if not line.blank:
            reader.read(line)
    return problems.result(reader.result())


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.value: dict[str, Any] = {"connections": [], "intervals": [], "streams_ended": []}
        self.columns = ""
        self.ids: dict[str, str] = {}  # number of a stream → the way it goes
        self.ruled = False  # the last line was the one that stands between groups of rows
        self.after = False  # sums follow: their header stands below such a line
        self.started: set[str] = set()  # streams of which an interval from the start on has been there
        self.tests = 0  # of a server
        self.server = False
        self.summary: dict[str, dict[str, Any]] = {}
        self.done = False

    def read(self, line: Line) -> None:
        line = line._replace(text=_INTERRUPT_ECHO.sub("", line.text))
        text = line.text
        error = _ERROR.match(text.strip())
        if re.match(r"^iperf Done\.", text):
            self.done = True
        elif re.match(r"^(?:- ){10,}-?\s*$", text):
            self.ruled = line.terminated
            return
        elif not line.terminated:
            self.problems.cut(line)
        elif error:
            # A server is stopped by hand when its test is over.
            tested = self.summary or self.value["intervals"]
            if not (self.server and tested and "terminated" in error.group(1)):
                self.value.setdefault("error", error.group(1).strip())
        elif text.startswith("Server listening on"):
            self.server = True
        elif text.startswith("Connecting to host") and self.server:
            self.problems.add(
                "What a client printed follows what a server printed; their streams cannot be told apart.", line
            )
        elif text.startswith("Accepted connection from"):
            self.tests += 1
            self.after = False
        elif text.startswith("Reverse mode,"):
            self.value["reverse"] = True
        elif _HEADER.match(text):
            self.columns = text
            self.after = self.ruled
            if "Datagrams" in text:
                self.value["protocol"] = "UDP"
            elif "Retr" in text:
                self.value["protocol"] = "TCP"
        elif _CONNECTED.match(text):
            self._connected(text)
        elif _ROW.match(text):
            self._row(text, line)
        elif re.match(r"^iperf \d", text):
            self.value["version"] = text.split()[1]
        self.ruled = False

    def _connected(self, text: str) -> None:
        match = _CONNECTED.match(text)
        if not match:
            return
        number_, local, local_port, remote, remote_port = match.groups()
        self._identify(number_)
        self.value["connections"].append(
            {
                "local_address": local,
                "local_port": int(local_port),
                "remote_address": remote,
                "remote_port": int(remote_port),
            }
        )

    def _identify(self, number_: str, way: str = "") -> None:
        if number_ != "SUM" and (way or number_ not in self.ids):
            self.ids[number_] = way

    def _row(self, text: str, line: Line) -> None:
        match = _ROW.match(text)
        if not match:
            return
        number_, way, start, end, transferred, byte_unit, rate, rate_unit, rate_kind, rest = match.groups()
        self._identify(number_, way or "")
        bits = number(rate)
        size = number(transferred)
        if bits is None or size is None:
            self.problems.add("A number of this row is not readable.", line)
            return
        row: dict[str, Any] = {
            "start_s": float(start),
            "end_s": float(end),
            "bits_per_second": float(
                round(bits * (_DECIMAL[rate_unit] if rate_kind == "bits" else 8 * _BINARY[rate_unit]))
            ),
        }
        role = re.search(r"\b(sender|receiver)\s*$", rest)
        rest = rest[: role.start()] if role else rest
        loss = _LOSS.search(rest)
        if loss:
            row["jitter_ms"] = float(loss.group(1))
            row["lost_packets"], row["packets"] = int(loss.group(2)), int(loss.group(3))
            percent = number(loss.group(4))
            if percent is not None:
                row["lost_percent"] = percent
        elif "Retr" in self.columns and re.match(r"^\s+\d+(?:\s|$)", rest):
            row["retransmits"] = int(rest.split()[0])
        if role:
            row["bytes"] = int(size * _BINARY[byte_unit])
            if self.tests > 1:
                return
            self.summary.setdefault(f"{way or ''} {number_} {role.group(1)}", row)
            if number_ != "SUM":
                ended = {"id": int(number_), "role": role.group(1), "bits_per_second": row["bits_per_second"]}
                if "retransmits" in row:
                    ended["retransmits"] = row["retransmits"]
                self.value["streams_ended"].append(ended)
        elif (self.after or (row["start_s"] == 0 and number_ in self.started)) and self.tests < 2:
            # UDP of older versions: one sum for both ends.
            self.summary.setdefault(f"{way or ''} {number_} both", row)
        elif "(omitted)" not in rest and self.tests < 2:
            if row["start_s"] == 0:
                self.started.add(number_)
            self.value["intervals"].append({"id": number_, "way": way or "", **row})

    def _owner(self, way: str) -> str:
        """Whose sums count: those of the one stream that goes this way, or of all together."""
        ids = [number_ for number_, its in self.ids.items() if its == way]
        if any(key.startswith(f"{way} SUM ") for key in self.summary):
            return f"{way} SUM"  # also where the text begins below the other streams
        return f"{way} {'SUM' if len(ids) > 1 else ids[0] if ids else ''}"

    def result(self) -> dict[str, Any]:
        value = self.value
        # One end of --bidir says TX of the way forth, and RX of the way back.
        ways = {way for way in self.ids.values() if way}
        forth = "TX" if ways else ""
        owner = self._owner(forth)
        intervals = [row for row in value["intervals"] if f"{row['way']} {row['id']}" == owner]
        value["intervals"] = [{key: item for key, item in row.items() if key not in ("id", "way")} for row in intervals]
        sent, received = self.summary.get(f"{owner} sender"), self.summary.get(f"{owner} receiver")
        for prefix, row in (("sent", sent), ("received", received)):
            if row:
                value[f"{prefix}_bits_per_second"] = row["bits_per_second"]
                value[f"{prefix}_bytes"] = row["bytes"]
        if sent and "retransmits" in sent:
            value["retransmits"] = sent["retransmits"]
        both = self.summary.get(f"{owner} both")
        if both and not (sent or received):
            value["bits_per_second"] = both["bits_per_second"]
        for key in ("jitter_ms", "lost_packets", "packets", "lost_percent"):
            if (received or both or {}).get(key) is not None:
                value[key] = (received or both or {})[key]
        if ways:
            back = self._owner("RX")
            for role, prefix in (("sender", "sent"), ("receiver", "received")):
                row = self.summary.get(f"{back} {role}")
                if row:
                    value[f"reverse_{prefix}_bits_per_second"] = row["bits_per_second"]
        value["complete"] = (self.done or (self.server and bool(self.summary))) and "error" not in value
        if self.tests > 1:
            self.problems.add(f"The text holds {self.tests} tests; only the first one was read.")
        if "error" not in value and not value["complete"]:
            if self.ids or self.columns or value["connections"]:
                self.problems.add("The output ends before the summary: the run did not finish or the text was cut off.")
            else:
                self.problems.add("There is no output of iperf3 in this text.")
        return value


def _parse_json(text: str, problems: Problems) -> Parsed:
    end = text.rfind("}")
    # Messages on the error channel may follow the document.
    document, good = load(text[: end + 1] if end >= 0 else text)
    if good is False and end >= 0:
        document, good = load(text)
    value: dict[str, Any] = {"connections": [], "intervals": [], "streams_ended": [], "complete": False}
    if not good:
        problems.add("The document ends early or is damaged; only what stands before that is read.", text=text[-80:])
    if not isinstance(document, dict):
        return problems.result(value)
    _start(_dict(document.get("start")), value)
    for interval in _dicts(document.get("intervals")):
        row = _measures(_dict(interval.get("sum")))
        if "bits_per_second" in row and "end_s" in row:
            value["intervals"].append(
                {key: row[key] for key in ("start_s", "end_s", "bits_per_second", "retransmits") if key in row}
            )
    finish = _dict(document.get("end"))
    _end(finish, value)
    error = document.get("error")
    if isinstance(error, str):
        value["error"] = re.sub(r"^error - ", "", error)
    value["complete"] = good and "error" not in value and bool(finish)
    if good and not finish and "error" not in value:
        problems.add("The run did not finish: there is no summary.")
    return problems.result(value)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _start(start: dict[str, Any], value: dict[str, Any]) -> None:
    version = start.get("version")
    if isinstance(version, str):
        value["version"] = version.replace("iperf ", "").strip()
    for connection in _dicts(start.get("connected")):
        names = {
            "local_host": "local_address",
            "local_port": "local_port",
            "remote_host": "remote_address",
            "remote_port": "remote_port",
        }
        value["connections"].append({key: connection[name] for name, key in names.items() if name in connection})
    test = _dict(start.get("test_start"))
    for name, key, kind in (
        ("protocol", "protocol", str),
        ("num_streams", "streams", int),
        ("duration", "duration_s", (int, float)),
    ):
        if isinstance(test.get(name), kind):
            value[key] = test[name]
    if isinstance(test.get("reverse"), int):
        value["reverse"] = bool(test["reverse"])


def _measures(cells: dict[str, Any]) -> dict[str, Any]:
    names = {
        "start": "start_s",
        "end": "end_s",
        "bytes": "bytes",
        "bits_per_second": "bits_per_second",
        "retransmits": "retransmits",
        "jitter_ms": "jitter_ms",
        "lost_packets": "lost_packets",
        "packets": "packets",
        "lost_percent": "lost_percent",
    }
    found: dict[str, Any] = {}
    for name, key in names.items():
        cell = cells.get(name)
        if isinstance(cell, (int, float)) and not isinstance(cell, bool):
            whole = key in ("bytes", "retransmits", "lost_packets", "packets")
            found[key] = int(cell) if whole else float(cell)
    return found


def _end(end: dict[str, Any], value: dict[str, Any]) -> None:
    sent, received = _measures(_dict(end.get("sum_sent"))), _measures(_dict(end.get("sum_received")))
    for prefix, cells in (("sent", sent), ("received", received)):
        if "bits_per_second" in cells:
            value[f"{prefix}_bits_per_second"] = cells["bits_per_second"]
        if "bytes" in cells:
            value[f"{prefix}_bytes"] = cells["bytes"]
    if "retransmits" in sent:
        value["retransmits"] = sent["retransmits"]
    for prefix in ("sent", "received"):
        back = _measures(_dict(end.get(f"sum_{prefix}_bidir_reverse")))
        if "bits_per_second" in back:
            value[f"reverse_{prefix}_bits_per_second"] = back["bits_per_second"]
    total = _measures(_dict(end.get("sum")))
    if "bits_per_second" in total:
        value["bits_per_second"] = total["bits_per_second"]
    for key in ("jitter_ms", "lost_packets", "packets", "lost_percent"):
        if key in total:
            value[key] = total[key]
    for stream in _dicts(end.get("streams")):
        for role in ("sender", "receiver"):
            cells = _dict(stream.get(role))
            measured = _measures(cells)
            if "bits_per_second" in measured and isinstance(cells.get("socket"), int):
                ended = {"id": cells["socket"], "role": role, "bits_per_second": measured["bits_per_second"]}
                if "retransmits" in measured:
                    ended["retransmits"] = measured["retransmits"]
                value["streams_ended"].append(ended)
    cpu = _dict(end.get("cpu_utilization_percent"))
    for name, key in (("host_total", "cpu_host_percent"), ("remote_total", "cpu_remote_percent")):
        if isinstance(cpu.get(name), (int, float)):
            value[key] = float(cpu[name])
    congestion = end.get("sender_tcp_congestion")
    if isinstance(congestion, str):
        value["congestion_control"] = congestion
