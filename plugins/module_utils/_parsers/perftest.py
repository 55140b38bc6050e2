# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest (``ib_write_bw``, ``ib_send_lat`` …): printed tables, and ``--out_json`` files, also those that are no JSON.

Value::

    {"test": "RDMA_Write BW Test", "bidirectional": bool,
     "settings": {"device", "number_of_qps", "transport_type", "connection_type", "link_type", "mtu_bytes", "gid_index",
                  "tx_depth", "cq_moderation", "dual_port": bool, "using_srq": bool, "pcie_relaxed_ordering": bool,
                  "rdma_cm": bool, "tos", "data_exchange", "ibv_wr_api": bool},
     "local": [{"lid", "qpn", "psn", "gid", "ipv4"}], "remote": [...],
     "gpu_memory": "dmabuf"|"cuda", "unit": "Gb/sec",
     "rows": [{"size_bytes", "iterations", "bw_peak_gbps", "bw_average_gbps", "msg_rate_mpps",
               "t_min_us", "t_max_us", "t_typical_us", "t_avg_us", "t_stdev_us", "t_p99_us", "t_p999_us"}],
     "errors": [{"kind", "text", "status", "syndrome"}], "warnings": [text], "complete": bool}

Bandwidth printed as MB/sec or MiB/sec (which is the same: 2^20 bytes) is in ``bw_*_mib_s`` as printed and, converted,
in ``bw_*_gbps``.  Rows of a further test in the same text say which (``test``).  A JSON file does not say its unit:
pass ``report_gbits``, or the numbers stay ``bw_peak``, ``bw_average``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    integer,
    number,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._lenient_json import load
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import decoded, read_lines

_TEST = re.compile(
    r"^\s+((?:RDMA_\w+|Send|Raw\w*|Atomic\w*|Write|Read)[\w ]* (?:BW|Latency) Test)\s*$|^\s+(\w[\w ]*"
    r"(?:Bidirectional )?BW Test)\s*$"
)
_PAIR = re.compile(r"([A-Za-z][A-Za-z_.*# -]*?)\s*: ?(\S+(?: [^\s:]+)*?)(?=\s{2,}|\s*\t|\s*$)")
_COLUMN = re.compile(
    r"#bytes|#iterations|(?:BW|MsgRate) Port\d\[[^\]]*\]"
    r"|BW peak\[[^\]]*\]|BW average\[[^\]]*\]|MsgRate\[[^\]]*\]|CPU_Util\[%\]|tps average"
    r"|t_(?:min|max|typical|avg|stdev)\[usec\]|\d+(?:\.\d+)?% percentile\[usec\]"
)
_PLAIN_COLUMNS = {
    "#bytes": "size_bytes",
    "#iterations": "iterations",
    "MsgRate[Mpps]": "msg_rate_mpps",
    "CPU_Util[%]": "cpu_percent",
    "tps average": "transactions_per_s",
    "99% percentile[usec]": "t_p99_us",
    "99.9% percentile[usec]": "t_p999_us",
}
_ADDRESS = re.compile(
    r"^\s*(local|remote) address: LID (0x[0-9a-fA-F]+|[0-9a-fA-F]+) QPN (0x[0-9a-fA-F]+) PSN (0x[0-9a-fA-F]+)"
)
_GID = re.compile(r"^\s*GID: (\d{2,3}(?::\d{2,3}){15})\s*$")
_OWN = re.compile(r"^\s*#bytes|^-{20,}|^\s*GID: |^ ?(?:Couldn't|Unable to|Failed|Requested|Completion|Current) ")
_NUMBERS = re.compile(r"^\s*\d+\s+[\d.]+(?:\s+[\d.]+)*\s*$")
_STATUS = re.compile(r"Failed status (\d+): wr_id (\d+) syndro?me? (0x[0-9a-fA-F]+)")
_ERRORS = (
    ("completion", re.compile(r"Completion with error at|Failed status \S|Failed to complete run_iter")),
    (
        "device_not_found",
        re.compile(
            r"IB device \S+ not found|No IB devices? found|Did not detect devices|Unable to find the Infiniband"
        ),
    ),
    (
        "connection",
        re.compile(
            r"Couldn't connect to|Unable to (?:init|open) the socket connection|Couldn't (?:listen|read remote address)"
            r"|Failed to exchange data|RDMA CM event error|RDMA_CM_EVENT_\w+; error"
            r"|Failed to (?:handle|connect) RDMA CM events?"
            r"|Connection (?:refused|timed out)|unable to connect|Unexpected CM event"
            r"|Unable to (?:perform rdma_(?:client|server)|read to socket|open file descriptor for socket)"
        ),
    ),
    ("port_down", re.compile(r"Port number \d+ state is|Link layer .* not active|port.* not active", re.IGNORECASE)),
    (
        "verbs",
        re.compile(
            r"Failed to modify QP|Couldn't (?:allocate|create|register|get)|Unable to create|Failed to create"
            r"|Cannot allocate memory|Requested SQ size might be too big|Couldn't post|failed to create mr"
            r"|Failed to (?:find|query|register)|Problems with warm up"
        ),
    ),
    ("not_run", re.compile(r"command not found|error while loading shared libraries|Segmentation fault")),
    ("usage", re.compile(r"Invalid Command line|unrecognized option|This feature is not supported", re.IGNORECASE)),
)
_WARNING = re.compile(r"Conflicting CPU frequency|WARNING|^\s*Perftest doesn't support", re.IGNORECASE)
_MIB_TO_GBIT = 1048576 * 8 / 1e9

_SETTINGS = {
    "device": ("device", "text"),
    "dual-port": ("dual_port", "bool"),
    "number of qps": ("number_of_qps", "int"),
    "transport type": ("transport_type", "text"),
    "connection type": ("connection_type", "text"),
    "using srq": ("using_srq", "bool"),
    "pcie relax order": ("pcie_relaxed_ordering", "bool"),
    "lock-free": ("lock_free", "bool"),
    "ibv_wr* api": ("ibv_wr_api", "bool"),
    "using ddp": ("using_ddp", "bool"),
    "using enhanced reorder": ("using_enhanced_reorder", "bool"),
    "tx depth": ("tx_depth", "int"),
    "rx depth": ("rx_depth", "int"),
    "cq moderation": ("cq_moderation", "int"),
    "cqe poll batch": ("cqe_poll_batch", "text"),
    "mtu": ("mtu_bytes", "bytes"),
    "link type": ("link_type", "text"),
    "gid index": ("gid_index", "int"),
    "max inline data": ("max_inline_bytes", "bytes"),
    "rdma_cm qps": ("rdma_cm", "bool"),
    "data ex. method": ("data_exchange", "text"),
    "tos": ("tos", "int"),
    "outstand reads": ("outstanding_reads", "int"),
}


def parse(text: str, report_gbits: bool | None = None) -> Parsed:
    """Read what a perftest program printed, or the file of its ``--out_json``."""
    problems = Problems()
    plain = decoded(text)
    if isinstance(plain, str):
        start = re.search(r"(\{?)\s{0,40}\"?test_info\"?\s*:\s*\{", plain)
        if start:
            document = plain[start.start() :]
            return _parse_json(document if start.group(1) else "{" + document, report_gbits, problems)
    reader = _Reader(problems)
    lines = read_lines(text, problems, labels=("gid",), prompts=False, own=_OWN)
    for line in lines:
        if not line.blank:
            reader.read(line)
    return problems.result(reader.result())


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.value: dict[str, Any] = {
            "settings": {},
            "local": [],
            "remote": [],
            "rows": [],
            "errors": [],
            "warnings": [],
        }
        self.columns: list[str] = []
        self.tests = 1
        self.later: dict[str, str | None] = {}  # the name of the rows' test, where it is not the first one
        self.begun = False  # have rows followed the last header?
        self.side: dict[str, Any] | None = None
        self.closed = False

    def read(self, line: Line) -> None:
        text = line.text
        if re.match(r"^\s*-{20,}\s*$", text):
            self.closed = bool(self.value["rows"])
            self.side = None
            return
        if not line.terminated:
            self.problems.cut(line)
            return
        if self._message(line):
            return
        test = _TEST.match(text)
        address = _ADDRESS.match(text)
        gid = _GID.match(text)
        if test:
            name = (test.group(1) or test.group(2)).strip()
            # The two ends of a loopback both print the name, before any row.
            if self.begun or self.value.get("test", name) != name:
                self._begin(name)
                self.columns = []
            if self.first:
                self.value.setdefault("test", name)
                self.value.setdefault("bidirectional", "Bidirectional" in name)
        elif "#bytes" in text and "#iterations" in text:
            self._header(text)
        elif address:
            side, lid, qpn, psn = address.groups()
            self.side = {"lid": int(lid, 16), "qpn": qpn, "psn": psn}
            if self.first:
                self.value[side].append(self.side)
        elif gid and self.side is not None:
            self._gid(gid.group(1))
            self.side = None
        elif self.columns and _NUMBERS.match(text):
            self._row(line)
        elif ":" in text:
            self._settings(text)

    def _message(self, line: Line) -> bool:
        text = line.text.strip()
        for kind, pattern in _ERRORS:
            if pattern.search(text):
                error: dict[str, Any] = {"kind": kind, "text": text}
                status = _STATUS.search(text)
                if status:
                    error["status"], error["syndrome"] = int(status.group(1)), status.group(3).lower()
                self.value["errors"].append(error)
                return True
        if _WARNING.search(text):
            self.value["warnings"].append(text)
            return True
        if "DMA-BUF for GPU" in text or "ibv_reg_dmabuf_mr" in text:
            self.value["gpu_memory"] = "dmabuf"
        elif text == "initializing CUDA":
            self.value.setdefault("cuda", True)
        return False

    def _settings(self, text: str) -> None:
        for label, cell in _PAIR.findall(text.replace("\t", "  ")):
            known = _SETTINGS.get(label.strip().lower())
            # A comma behind a value is JSON's whose beginning is lost.
            if not known or cell.endswith((",", "{")):
                continue
            key, kind = known
            value: Any = cell
            if kind == "int":
                value = integer(cell)
            elif kind == "bool":
                value = {"ON": True, "OFF": False}.get(cell)
            elif kind == "bytes":
                match = re.match(r"^(\d+)\[B\]$", cell)
                value = int(match.group(1)) if match else None
            if value is not None and self.first:
                self.value["settings"].setdefault(key, value)

    @property
    def first(self) -> bool:
        """Does this line belong to the first test of the text?"""
        return self.tests == 1 and not self.begun

    def _begin(self, name: str | None) -> None:
        self.tests += 1
        self.later = {"test": name}
        self.begun = False

    def _header(self, text: str) -> None:
        if self.begun:
            self._begin(None)  # the line that names the test is missing
        self.columns = _COLUMN.findall(text)
        unit = re.search(r"BW average\[([^\]]*)\]", text)
        if unit and self.first:
            self.value.setdefault("unit", unit.group(1))

    def _gid(self, text: str) -> None:
        octets = [int(part) for part in text.split(":")]
        if self.side is None or max(octets) > 255:
            return
        self.side["gid"] = ":".join(f"{octets[n]:02x}{octets[n + 1]:02x}" for n in range(0, 16, 2))
        if octets[:12] == [0] * 10 + [255, 255]:
            self.side["ipv4"] = ".".join(str(octet) for octet in octets[12:])

    def _row(self, line: Line) -> None:
        words = line.text.split()
        if len(words) != len(self.columns):
            self.problems.add(f"The row has {len(words)} values for {len(self.columns)} columns.", line)
            return
        row: dict[str, Any] = {}
        for column, word in zip(self.columns, words):
            value = number(word)
            if value is None:
                self.problems.add(f"The value {word!r} of column {column} is no number.", line)
                return
            _store(row, column, value)
        self.begun = True
        self.value["rows"].append({**row, **self.later})

    def result(self) -> dict[str, Any]:
        value = self.value
        failed = bool(value["errors"])
        value["complete"] = self.closed and not failed
        if self.tests > 1:
            self.problems.add(f"The text holds {self.tests} tests; settings and addresses are the first one's.")
        if not value["rows"] and not failed:
            if "test" in value or value["settings"]:
                self.problems.add("The test printed no result: this is the server's side, or it did not finish.")
            else:
                self.problems.add("There is no output of perftest in this text.")
        return value


def _store(row: dict[str, Any], column: str, value: float) -> None:
    plain = _PLAIN_COLUMNS.get(column)
    if plain in ("size_bytes", "iterations"):
        row[plain] = int(value)
        return
    if plain:
        row[plain] = value
        return
    bandwidth = re.match(r"^BW (peak|average)\[(.*)\]$", column)
    if bandwidth:
        name, unit = bandwidth.groups()
        if unit == "Gb/sec":
            row[f"bw_{name}_gbps"] = value
        elif unit in ("MB/sec", "MiB/sec"):
            row[f"bw_{name}_mib_s"] = value
            row[f"bw_{name}_gbps"] = round(value * _MIB_TO_GBIT, 6)
        return
    port = re.match(r"^(BW|MsgRate) Port(\d)\[(.*)\]$", column)
    if port:
        what, number_of_port, unit = port.groups()
        if what == "MsgRate":
            row[f"msg_rate_port{number_of_port}_mpps"] = value
        else:
            row[f"bw_port{number_of_port}_gbps"] = value if unit == "Gb/sec" else round(value * _MIB_TO_GBIT, 6)
    latency = re.match(r"^t_(\w+)\[usec\]$", column)
    if latency:
        row[f"t_{latency.group(1)}_us"] = value


_JSON_RESULTS = {
    "MsgSize": "size_bytes",
    "n_iterations": "iterations",
    "MsgRate": "msg_rate_mpps",
    "t_min": "t_min_us",
    "t_max": "t_max_us",
    "t_typical": "t_typical_us",
    "t_avg": "t_avg_us",
    "t_stdev": "t_stdev_us",
    "percentile_99": "t_p99_us",
    "percentile_99.9": "t_p999_us",
}
_JSON_INFO = {
    "Device": "device",
    "Number_of_qps": "number_of_qps",
    "Transport_type": "transport_type",
    "Connection_type": "connection_type",
    "Link_type": "link_type",
    "Mtu": "mtu_bytes",
    "GID_index": "gid_index",
    "TX_depth": "tx_depth",
    "CQ_Moderation": "cq_moderation",
    "Max_inline_data": "max_inline_bytes",
    "Dual_port": "dual_port",
    "Using_SRQ": "using_srq",
    "PCIe_relax_order": "pcie_relaxed_ordering",
    "ibv_wr_API": "ibv_wr_api",
    "rdma_cm_QPs": "rdma_cm",
    "Data_ex_method": "data_exchange",
}


def _parse_json(text: str, report_gbits: bool | None, problems: Problems) -> Parsed:
    end = text.rfind("}")
    document, good = load(text if end < 0 or text[end + 1 :].strip() == "" else text[: end + 1])
    value: dict[str, Any] = {"settings": {}, "local": [], "remote": [], "rows": [], "errors": [], "warnings": []}
    value["complete"] = good
    if not good:
        problems.add("The document ends early or is damaged; only what stands before that is read.", text=text[-80:])
    document = document if isinstance(document, dict) else {}
    info = document.get("test_info")
    for name, cell in info.items() if isinstance(info, dict) else ():
        if name == "test" and isinstance(cell, str):
            value["test"] = cell
            value["bidirectional"] = "bidirectional" in cell.lower()
        elif name in _JSON_INFO and isinstance(cell, (str, int, float)):
            value["settings"][_JSON_INFO[name]] = (
                {"ON": True, "OFF": False}.get(cell, cell) if isinstance(cell, str) else cell
            )
    results = document.get("results")
    row: dict[str, Any] = {}
    for name, cell in results.items() if isinstance(results, dict) else ():
        if isinstance(cell, bool) or not isinstance(cell, (int, float)):
            continue
        if name in _JSON_RESULTS:
            key = _JSON_RESULTS[name]
            row[key] = int(cell) if key in ("size_bytes", "iterations") else float(cell)
        elif name in ("BW_peak", "BW_average"):
            key = name.lower()
            if report_gbits is None:
                row[key] = float(cell)
            elif report_gbits:
                row[f"{key}_gbps"] = float(cell)
            else:
                row[f"{key}_mib_s"] = float(cell)
                row[f"{key}_gbps"] = round(float(cell) * _MIB_TO_GBIT, 6)
    if row:
        value["rows"].append(row)
        if report_gbits is None and ("bw_average" in row or "bw_peak" in row):
            problems.add("The file does not say whether its bandwidths are Gb/s (--report_gbits) or MiB/s.")
    elif good:
        problems.add("The file holds no result.")
    return problems.result(value)
