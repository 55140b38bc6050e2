# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi topo -m`` (and ``-mp``): tab-separated as printed, or with its tabs expanded to blanks by a copy.

Value::

    {"devices": ["GPU0", "NIC0", "mlx5_0"],     # the columns of the matrix
     "gpus": [{"name", "index", "cpu_affinity": "0-47,96-143", "numa_nodes": [0], "numa_affinity": "0",
      "gpu_numa_id": 2}],
     "nics": [{"name": "NIC0", "device": "mlx5_0"}],
     "links": {"GPU0": {"GPU1": "NV18", "NIC0": "PIX"}},
     "gpu_nic": {"0": {"mlx5_0": "PIX"}},       # GPU index → RDMA device → distance
     "failures": [...], "warnings": [...]}

Distances: ``X NV<n> PIX PXB PHB NODE SYS``, and ``SOC`` of drivers that did not tell ``NODE`` from ``SYS``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    integer,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_failures import failures
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._nvidia_gpu import is_absent
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import last_word_cut, read_lines

_DEVICE = re.compile(r"^(?:GPU\d+|NIC\d+|CPU\d+|[a-z][a-z0-9]*(?:_[a-z]+)*_?\d+\w*|rocep\w+|ibp\w+)$")
_DISTANCE = re.compile(r"^(?:X|SYS|NODE|PHB|PXB|PIX|PSB|SOC|NV\d+|NVB|C2C|N/A)$")
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_CPU_LIST = re.compile(r"^[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*$")
_LEGEND = re.compile(r"^\s+(NIC\d+): (\S+)\s*$")
# The underline around the header, of which a copy from a web page has lost the escape character.
_UNDERLINE = re.compile(r"\[\d?m")
# Distances that a terminal wrapped into each other: only words none of which begins another.
_GLUED = re.compile(r"SYS|NODE|PHB|PXB|PIX|PSB|SOC|NV\d+|N/A")


def parse(text: str) -> Parsed:
    """Read the output of ``nvidia-smi topo -m``."""
    problems = Problems()
    lines = read_lines(text, problems)
    failed, warned, used = failures(lines, problems)
    reader = _Reader(problems)
    for line in lines:
        if line.number not in used and not line.blank:
            reader.read(line)
    value = reader.result()
    if not reader.columns and not failed:
        problems.add("There is no matrix of nvidia-smi topo -m in this text.", text=lines[0].text if lines else "")
    return problems.result({**value, "failures": failed, "warnings": warned})


def numa_nodes(text: str) -> list[int]:
    """``0,3-9`` → the node numbers; [] when the text is not such a list."""
    nodes: list[int] = []
    if not _CPU_LIST.match(text):
        return nodes
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high - low > 4096:
            return []
        nodes.extend(range(low, high + 1))
    return nodes


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.columns: list[str] = []
        self.affinities: list[str] = []
        self.tabs = False
        self.rows: dict[str, dict[str, str]] = {}
        self.trailing: dict[str, dict[str, str]] = {}
        self.legend: dict[str, str] = {}
        self.over = False  # another matrix has begun

    def read(self, line: Line) -> None:
        if self.over:
            return
        legend = _LEGEND.match(line.text)
        if legend:
            if line.terminated:
                self.legend[legend.group(1)] = legend.group(2)
            else:
                self.problems.cut(line)
        elif not self.columns:
            self._header(line)
        elif line.indented and _UNDERLINE.sub("", line.text).split()[:1] == self.columns[:1]:
            self.over = True
            self.problems.add("Another matrix begins here; only the first one was read.", line)
        elif line.text.split()[0] in self.columns and not line.indented:
            self._row(line)
        elif not line.terminated:
            self.problems.cut(line)

    def _header(self, line: Line) -> None:
        line = line._replace(text=_UNDERLINE.sub("", line.text))
        words = line.text.split()
        # A copy may have lost the blanks in front; a row would go on with a distance.
        begins = line.indented or (len(words) > 1 and _DEVICE.match(words[1]) and not _DISTANCE.match(words[1]))
        if not begins or not words or not _DEVICE.match(words[0]):
            if not line.terminated:
                self.problems.cut(line)
            return
        if not line.terminated:
            self.problems.cut(line)
            return
        text = re.sub(r"\s+", " ", line.text).strip()
        position = min((text.find(name) for name in _AFFINITIES if name in text), default=len(text))
        names = text[:position].split()
        if not all(_DEVICE.match(name) for name in names):
            self.problems.add("The header of the matrix names something that is no device.", line)
            return
        self.columns = names
        self.affinities = [name for name in _AFFINITIES if name in text[position:]]
        self.tabs = "\t" in line.text.strip()

    def _row(self, line: Line) -> None:
        text, cut = last_word_cut(line)
        if cut:
            self.problems.cut(line)
        words = text.split()
        if not words:
            return
        if words[0] in self.rows:
            self.problems.add(f"The row of {words[0]} stands there twice; the first one was read.", line)
            return
        name, count = words[0], len(self.columns)
        cells, consumed = self._distances(name, words[1:], line)
        row = self.rows[name] = dict(zip(self.columns, cells))
        if row.get(name, "X") != "X":
            # The diagonal is always X: the cells of this row do not stand under their columns.
            self.problems.add(f"The row of {name} is shifted against the header.", line)
            self.rows[name] = {}
            return
        if len(cells) == count:
            self._affinity(name, self._behind(text, 1 + consumed, cut), line, cut)
        elif not cut:
            self.problems.add(f"The row of {name} has {len(cells)} distances for {count} columns.", line)

    def _distances(self, name: str, words: list[str], line: Line) -> tuple[list[str], int]:
        """The distances as far as they stand under their columns, and how many words they are."""
        cells: list[str] = []
        for position, word in enumerate(words):
            if len(cells) == len(self.columns):
                return cells, position
            glued = _GLUED.findall(word)
            if _DISTANCE.match(word):
                cells.append(word)
            elif len(glued) > 1 and "".join(glued) == word and len(cells) + len(glued) <= len(self.columns):
                cells.extend(glued)
            else:
                # What stands behind it may belong to another column.
                self.problems.add(
                    f"The distance between {name} and {self.columns[len(cells)]} is {word!r}, which is none.", line
                )
                return cells, position
        return cells, len(words)

    def _behind(self, text: str, count: int, cut: bool) -> list[str]:
        """The cells behind the first ``count`` words."""
        rest = re.sub(rf"^\s*(?:\S+\s+){{{count - 1}}}\S+[ ]*", "", text, count=1)
        if not self.tabs or "\t" not in text:
            return rest.split()
        cells = [cell.strip() for cell in rest.split("\t")][1:]
        return cells[:-1] if cut else cells

    def _affinity(self, name: str, cells: list[str], line: Line, cut: bool) -> None:
        names = self.affinities
        if not name.startswith("GPU") or not names:
            return
        if len(cells) == len(names) + 1 and "" in cells[:-1]:
            # The driver prints two tabs before the last column.
            last_blank = max(index for index, cell in enumerate(cells[:-1]) if not cell)
            cells = [*cells[:last_blank], *cells[last_blank + 1 :]]
        while len(cells) > len(names) and not cells[-1]:
            cells = cells[:-1]
        if len(cells) > len(names):
            self.problems.add(f"The row of {name} has more cells than the header has columns.", line)
            return
        if len(cells) < len(names) and not cut and not self.tabs:
            # With blanks instead of tabs, an empty column cannot be told from a missing one.
            if cells:
                self.problems.add(f"The affinity columns of {name} are not all there, so none is read.", line)
            return
        if cut and len(cells) > 1 and "" in cells:
            cells = cells[: cells.index("")]
        self.trailing[name] = dict(zip(names, cells))

    def _gpu(self, name: str) -> dict[str, Any]:
        gpu: dict[str, Any] = {"name": name, "index": int(name[3:])}
        cells = self.trailing.get(name, {})
        cpus = cells.get("CPU Affinity", "")
        if _CPU_LIST.match(cpus):
            gpu["cpu_affinity"] = cpus
        numa = cells.get("NUMA Affinity", "")
        if numa_nodes(numa):
            gpu["numa_affinity"] = numa
            gpu["numa_nodes"] = numa_nodes(numa)
        own = integer(cells.get("GPU NUMA ID", ""))
        if own is not None:
            gpu["gpu_numa_id"] = own
        for label, cell in cells.items():
            good = {"CPU Affinity": "cpu_affinity", "NUMA Affinity": "numa_affinity", "GPU NUMA ID": "gpu_numa_id"}
            if good[label] not in gpu and not is_absent(cell):
                self.problems.add(f"The {label} of {name} is {cell!r}, which is not of its kind.")
        return gpu

    def result(self) -> dict[str, Any]:
        nics = []
        for name in self.columns:
            if name.startswith(("GPU", "CPU")):
                continue
            device = self.legend.get(name) if name.startswith("NIC") else name
            nics.append({"name": name, "device": device} if device else {"name": name})
        missing = [name for name in self.columns if name.startswith("GPU") and not self.rows.get(name)]
        if missing:
            self.problems.add(f"The matrix has no row for {', '.join(missing)}.")
        unnamed = [nic["name"] for nic in nics if "device" not in nic]
        if unnamed:
            self.problems.add(
                f"The legend that says which devices {unnamed[0]} to {unnamed[-1]} are is not in the text."
            )
        return {
            "devices": self.columns,
            "gpus": [self._gpu(name) for name in self.columns if name.startswith("GPU")],
            "nics": nics,
            "links": {name: row for name, row in self.rows.items() if row},
            "gpu_nic": self._gpu_nic(nics),
        }

    def _gpu_nic(self, nics: list[dict[str, str]]) -> dict[str, dict[str, str]]:
        """GPU index → device → distance; a NIC that no legend names is not in it."""
        table: dict[str, dict[str, str]] = {}
        for name, row in self.rows.items():
            if not name.startswith("GPU"):
                continue
            for nic in nics:
                if "device" in nic and nic["name"] in row:
                    table.setdefault(name[3:], {})[nic["device"]] = row[nic["name"]]
        return table
