# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl-tests (``all_reduce_perf`` and its kin): the printed table of every version, and the file of ``-J``.

Value::

    {"collective", "nccl_tests_version", "nccl_version", "cuda_version", "ranks",
     "config": {"threads", "gpus_per_thread", "minimum_bytes", "maximum_bytes", "step", "warmup_iterations",
      "iterations",
                "aggregated_iterations", "validation": bool, "graph": int},
     "devices": [{"rank", "group", "pid", "host", "device", "pci", "bus", "name"}],
     "columns": ["size", "count", ...],
     "rows": [{"size_bytes", "count", "type", "redop", "root", "iterations",
               "out_of_place_time_us", "out_of_place_algbw_gbytes_s", "out_of_place_busbw_gbytes_s",
                "out_of_place_wrong",
               … the same for in_place …}],
     "out_of_bounds_count", "out_of_bounds_ok": bool,
     "average_busbw_gbytes_s", "average_ok": bool,       # average_ok: only with NCCL_TESTS_MIN_BW
     "summaries": [{"run", the four above}],             # one per run that the text holds
     "errors": [text], "complete": bool}

Bandwidths are gigabytes per second, as printed.  Columns are found by their names in the header: their number and order
changed with versions, collectives and options.  The average is over all sizes of the run.  Rows of a text that holds
several runs have ``run`` (from 1); what stands outside of rows and summaries is the first run's.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    failure,
    integer,
    number,
    pci_address,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._lenient_json import load
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import decoded, read_lines

# What launchers and log collectors put in front of a line: the rank of srun -l, the tag of mpirun --tag-output, the
# host and rank of PALS, a tag in brackets, a time.  It is one where a line of the tests stands behind it.
_LABEL = re.compile(
    r"^\s*(?:(?:\d+: ?|\[\d+,\d+\](?:<std(?:out|err)>)?: ?|[\w.-]+ \d+: ?|\[[^\]]*\]:? ?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? ?)"
    r"(?:std(?:out|err) F ?)?)+(?=#|\s+\d+\s+\d+\s+[a-z]\w*\s)"
)
_OWN = re.compile(rf"^#|^\s+\d+\s+\d+\s+\w+\s|{_LABEL.pattern}")
_RANK = re.compile(r"^\s*(?:\d+: ?|\[\d+,\d+\](?:<std(?:out|err)>)?: ?)")
_DEVICE = re.compile(
    r"^#\s+Rank\s+(\d+)(?:\s+Group\s+(\d+))?\s+Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[([0-9a-fA-Fx:]+)\]\s+(\S.*?)\s*$"
)
_HEADER = re.compile(r"^#\s+(?:size\s+count|bytes\s+N)\s+type\b.*\btime\s+algbw\s+busbw\b")
_BOUNDS = re.compile(r"^#?\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)\b")
_AVERAGE = re.compile(r"^#?\s*Avg bus bandwidth\s*:\s*(\S+)(?:\s+(OK|FAILED))?(\s*)$")
_COLLECTIVE = re.compile(r"^#\s*Collective test (starting|concluded):\s*(\S+?)(?:_perf)?\s*$")
_TESTS_VERSION = re.compile(r"^#\s*nccl-tests version (\S+)(?:\s+nccl-headers=(\d+))?(?:\s+nccl-library=(\d+))?\s*$")
_NCCL_VERSION = re.compile(r"\bNCCL version (\d+(?:\.\d+)+\S*?)(?:\+cuda(\d+(?:\.\d+)*))?\s*$")
_ERROR = re.compile(
    r"Test (?:NCCL |CUDA )?failure\b|NCCL WARN|error while loading shared libraries|CUDA error|unhandled "
    r"(?:cuda|system) error|Failed[:,] (?:NCCL|Cuda|MPI) |Invalid (?:number of GPUs|usage)|out of memory"
    r"|mpirun (?:noticed|has exited|detected|was unable)|^srun: error|^slurmstepd: error|Out of bounds values.*FAILED"
)
_CONFIG = (
    ("threads", r"\bnThread\s+(\d+)\b"),
    ("gpus_per_thread", r"\bnGpus\s+(\d+)\b"),
    ("minimum_bytes", r"\bminBytes\s+(\d+)\b"),
    ("maximum_bytes", r"\bmaxBytes\s+(\d+)\b"),
    ("warmup_iterations", r"\bwarmup iters:\s*(\d+)\b"),
    ("iterations", r"(?<!warmup )(?<!agg )\biters:\s*(\d+)\b"),
    ("aggregated_iterations", r"\bagg iters:\s*(\d+)\b"),
    ("validation", r"\bvalidation:\s*(\d+)\b"),
    ("graph", r"\bgraph:\s*(\d+)\b"),
)
_STEP = re.compile(r"\bstep:\s*(\d+\((?:factor|bytes)\))")
# Header name → key of the row; those of a half get its prefix.
_COMMON = {
    "size": "size_bytes",
    "count": "count",
    "type": "type",
    "redop": "redop",
    "root": "root",
    "#iters": "iterations",
    # Names of the first versions.
    "bytes": "size_bytes",
    "N": "count",
    "op": "redop",
}
_HALF = {
    "time": "time_us",
    "algbw": "algbw_gbytes_s",
    "busbw": "busbw_gbytes_s",
    "#wrong": "wrong",
    "error": "error",
    "res": "error",
    "i_min": "iteration_min_us",
    "i_max": "iteration_max_us",
    "i_p99": "iteration_p99_us",
    "i_cv%": "iteration_cv_percent",
}
_WORDS = frozenset({"type", "redop"})
_INTEGERS = frozenset({"size_bytes", "count", "root", "iterations", "wrong"})


def parse(text: str) -> Parsed:
    """Read what an nccl-tests program printed, or the file that it wrote with ``-J``."""
    problems = Problems()
    plain = decoded(text)
    if isinstance(plain, str) and re.search(r'^\s*\{\s*"', plain) and '"results"' in plain:
        return _parse_json(plain, problems)
    reader = _Reader(problems)
    for line in read_lines(text, problems, prompts=False, barriers=True, own=_OWN):
        if not line.blank:
            reader.read(line if line.damaged else line._replace(text=_RANK.sub("", _LABEL.sub("", line.text))))
    return problems.result(reader.result())


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.value: dict[str, Any] = {"devices": [], "columns": [], "rows": [], "summaries": [], "errors": []}
        self.keys: list[str] = []
        self.seen = False
        self.doubt = False  # a damaged line may have been one of the ranks'
        self.runs = 1
        self.begun = False  # has the current run printed results?
        self.milliseconds = False  # the first versions, whose header says "bytes", print those

    def read(self, line: Line) -> None:
        if line.damaged:
            self.doubt = True
            return
        text = line.text
        if (_ERROR.search(text) or failure(text)) and not text.startswith("#") and "NCCL INFO" not in text:
            self.value["errors"].append(text.strip())
            self.begun = self.begun or (self.seen and "Test " in text)  # the run ended here
        bounds, average = _BOUNDS.match(text), _AVERAGE.match(text)
        if bounds:
            self._summary()["out_of_bounds_count"] = int(bounds.group(1))
            self._summary()["out_of_bounds_ok"] = bounds.group(2) == "OK"
        elif average:
            self._average(average, line)
        elif not line.terminated:
            self.problems.cut(line)
        elif text.startswith("#"):
            self._comment(line)
        elif re.match(r"^\s*\d+\s+\d+\s+[a-z]\w*(?:\s|$)", text):
            if self.keys:
                self._row(line)
            self.begun = self.begun or self.seen
        else:
            self._version(text)

    def _version(self, text: str) -> None:
        version = _NCCL_VERSION.search(text)
        if version:
            self.value.setdefault("nccl_version", version.group(1))
            if version.group(2):
                self.value.setdefault("cuda_version", version.group(2))

    def _comment(self, line: Line) -> None:
        text = line.text
        device = _DEVICE.match(text)
        tests = _TESTS_VERSION.match(text)
        collective = _COLLECTIVE.match(text)
        if device:
            self._device(device)
        elif _HEADER.match(text):
            self._header(line)
        elif tests:
            self.seen = True
            self.value["nccl_tests_version"] = tests.group(1)
        elif collective:
            self.seen = True
            if collective.group(1) == "starting":
                self._begin()
            if self.runs == 1:
                self.value.setdefault("collective", collective.group(2))
        elif "minBytes" in text and "maxBytes" in text:
            self._config(text)
        else:
            self._version(text)

    def _device(self, match: re.Match[str]) -> None:
        self.seen = True
        rank, group, pid, host, device, address, name = match.groups()
        entry: dict[str, Any] = {"rank": int(rank), "pid": int(pid), "host": host, "device": int(device), "name": name}
        if group is not None:
            entry["group"] = int(group)
        # Old versions print the bus only ("0x1b"), later ones "0000:1b:00" without a function, which is always 0.
        pci = pci_address(address if "." in address else f"{address}.0")
        if pci:
            entry["pci"] = pci
        elif re.match(r"^0x[0-9a-fA-F]{2}$", address):
            entry["bus"] = address[2:].lower()
        if self.runs == 1:
            self.value["devices"].append(entry)

    def _begin(self) -> None:
        """What stands in front of results, after those of a run: the next run."""
        self.seen = True
        if self.begun:
            self.runs += 1
            self.begun = False

    def _config(self, text: str) -> None:
        self._begin()
        config: dict[str, Any] = {}
        for key, pattern in _CONFIG:
            match = re.search(pattern, text)
            if match:
                config[key] = int(match.group(1))
        if "validation" in config:
            config["validation"] = bool(config["validation"])
        step = _STEP.search(text)
        if step:
            config["step"] = step.group(1)
        if self.runs == 1:
            self.value.setdefault("config", config)

    def _header(self, line: Line) -> None:
        self._begin()
        names = line.text.lstrip("#").split()
        self.milliseconds = "bytes" in names
        keys: list[str] = []
        half = ""
        for name in names:
            if name == "time":
                half = "in_place_" if half else "out_of_place_"
            if name in _COMMON:
                keys.append(_COMMON[name])
            elif name in _HALF and half:
                keys.append(half + _HALF[name])
            else:
                keys.append(f"extra.{name}")
        if not self.doubt and self.value["devices"] and "ranks" not in self.value:
            # The list of devices ends with the one of the highest rank.
            self.value["ranks"] = max(device["rank"] for device in self.value["devices"]) + 1
        self.keys = keys
        if not self.value["columns"]:
            self.value["columns"] = names

    def _row(self, line: Line) -> None:
        words = line.text.split()
        keys = self.keys
        if len(words) == len(keys) - 1 and "redop" in keys:
            # alltoall of older versions leaves the column of the operation empty.
            keys = [key for key in keys if key != "redop"]
        if len(words) < len(keys):
            self.problems.add(f"The row has {len(words)} values for {len(keys)} columns.", line)
            return
        row: dict[str, Any] = {}
        for key, word in zip(keys, words):
            if not self._cell(row, key, word, line):
                return
        if len(words) > len(keys):
            row["extra"] = {**row.get("extra", {}), "trailing": " ".join(words[len(keys) :])}
        self.begun = True
        self.value["rows"].append({**row, "run": self.runs})

    def _cell(self, row: dict[str, Any], key: str, word: str, line: Line) -> bool:
        if key.startswith("extra."):
            row.setdefault("extra", {})[key[6:]] = word
            return True
        if word == "N/A":
            return True
        kind = re.sub(r"^(?:out_of|in)_place_", "", key)
        value: Any
        if kind in _WORDS:
            value = word
        elif kind in _INTEGERS:
            value = integer(word)
            if value is None and kind == "wrong" and number(word) is not None:
                value = int(number(word) or 0)
        else:
            value = number(word)
        if value is None:
            self.problems.add(f"The value {word!r} of column {kind} is no number, so the row is not read.", line)
            return False
        row[key] = round(value * 1000, 6) if kind == "time_us" and self.milliseconds else value
        return True

    def _summary(self) -> dict[str, Any]:
        """The summary of the current run."""
        summaries = self.value["summaries"]
        self.begun = True
        if not summaries or summaries[-1]["run"] != self.runs or "average_busbw_gbytes_s" in summaries[-1]:
            summaries.append({"run": self.runs})
        last: dict[str, Any] = summaries[-1]
        return last

    def _average(self, match: re.Match[str], line: Line) -> None:
        text, verdict, blank = match.groups()
        average = number(text)
        # A blank or a verdict behind the number proves that it is whole.
        if not (line.terminated or verdict or blank):
            self.problems.cut(line)
            return
        if average is None:
            self.problems.add(f"The average bus bandwidth is {text!r}, which is no number.", line)
            return
        summary = self._summary()
        if verdict:
            summary["average_ok"] = verdict == "OK"
        summary["average_busbw_gbytes_s"] = average

    def result(self) -> dict[str, Any]:
        value = self.value
        finished = [summary for summary in value["summaries"] if "average_busbw_gbytes_s" in summary]
        runs = max(self.runs, len(finished))
        # Lines of processes that run side by side are mixed: only runs one after the other can be told apart.
        value["complete"] = {summary["run"] for summary in finished} >= set(range(1, self.runs + 1))
        if value["summaries"] and value["summaries"][0]["run"] == 1:
            value.update({key: item for key, item in value["summaries"][0].items() if key != "run"})
        if self.runs == 1:
            value["rows"] = [{key: item for key, item in row.items() if key != "run"} for row in value["rows"]]
        if runs > 1:
            self.problems.add(
                f"The text holds {runs} runs; the summary is the first one's. Built without MPI, every process runs on "
                "its own."
            )
        if value["errors"] and not self.seen:
            self.problems.add("nccl-tests did not run.", text=value["errors"][0])
        elif not self.seen and not value["summaries"]:
            self.problems.add("There is no output of nccl-tests in this text.")
        elif not value["complete"]:
            self.problems.add("The output ends before the average: the run did not finish or the text was cut off.")
        return value


def _parse_json(text: str, problems: Problems) -> Parsed:
    document, good = load(text)
    value: dict[str, Any] = {"devices": [], "columns": [], "rows": [], "summaries": [], "errors": [], "complete": good}
    if not good:
        problems.add("The document ends early or is damaged; only what stands before that is read.", text=text[-80:])
    if not isinstance(document, dict):
        return problems.result(value)
    config = document.get("config")
    config = config if isinstance(config, dict) else {}
    for device in _dicts(config.get("devices")):
        entry = {key: device[key] for key in ("rank", "group", "pid", "device") if isinstance(device.get(key), int)}
        if isinstance(device.get("hostname"), str):
            entry["host"] = device["hostname"]
        if isinstance(device.get("device_info"), str):
            entry["name"] = device["device_info"]
        pci = pci_address(str(device.get("device_hex", "")) + ".0")
        if pci:
            entry["pci"] = pci
        value["devices"].append(entry)
    names = {
        "nthreads": "threads",
        "ngpus": "gpus_per_thread",
        "minimum_bytes": "minimum_bytes",
        "maximum_bytes": "maximum_bytes",
    }
    settings = {key: config[name] for name, key in names.items() if isinstance(config.get(name), int)}
    if settings:
        value["config"] = settings
    code = document.get("nccl_version")
    if isinstance(code, int) and code > 10000:
        value["nccl_version"] = f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    elif isinstance(code, str):
        value["nccl_version"] = code
    for result in _dicts(document.get("results")):
        row = _json_row(result)
        if "size_bytes" in row:
            value["rows"].append(row)
    summary: dict[str, Any] = {}
    bounds = document.get("out_of_bounds")
    if isinstance(bounds, dict) and isinstance(bounds.get("count"), int) and isinstance(bounds.get("okay"), bool):
        summary["out_of_bounds_count"], summary["out_of_bounds_ok"] = bounds["count"], bounds["okay"]
    average = document.get("average_bus_bandwidth")
    if isinstance(average, dict) and isinstance(average.get("bandwidth"), (int, float)):
        summary["average_busbw_gbytes_s"] = float(average["bandwidth"])
        if isinstance(average.get("okay"), bool):
            summary["average_ok"] = average["okay"]
    if summary:
        value["summaries"].append(summary)
        value.update(summary)
    return problems.result(value)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _json_row(result: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, key in (("size", "size_bytes"), ("count", "count"), ("actual_iterations", "iterations")):
        if isinstance(result.get(name), int):
            row[key] = result[name]
    for name in ("type", "redop"):
        if isinstance(result.get(name), str):
            row[name] = result[name].strip()
    root = integer(str(result.get("root", "")))
    if root is not None:
        row["root"] = root
    for half in ("out_of_place", "in_place"):
        cells = result.get(half)
        if not isinstance(cells, dict):
            continue
        for name, key in (("time", "time_us"), ("alg_bw", "algbw_gbytes_s"), ("bus_bw", "busbw_gbytes_s")):
            if isinstance(cells.get(name), (int, float)):
                row[f"{half}_{key}"] = float(cells[name])
        wrong = integer(str(cells.get("nwrong", "")))
        if wrong is not None:
            row[f"{half}_wrong"] = wrong
    return row
