# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NCCL's messages as rules read them, in whichever recorded output they stand."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.model import RackView

# A job prints NCCL's lines among its own; launchers put the rank before them, NCCL 2.27 the time.
_OUTPUTS = ("nccl.log", "mpirun.log", "srun.log", "nccl_tests.txt")
_LABEL = re.compile(r"^\s*(?:\d+: ?|\[\d+,\d+\](?:<std(?:out|err)>)?: ?)")
_STAMP = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ][\d:.,]+\]?\s+")
_LINE = re.compile(r"^(?P<node>[\w.-]+?):(?P<pid>\d+):(?P<tid>\d+) \[-?\d+\] (?P<rest>.*)$")


class Message(t.NamedTuple):
    node: str
    text: str
    line: str


def messages(rack: RackView) -> t.Iterator[Message]:
    for name in _OUTPUTS:
        for line in (rack.text(name) or "").splitlines():
            match = _LINE.match(_STAMP.sub("", _LABEL.sub("", line)))
            if match:
                yield Message(match["node"], match["rest"], line.strip())


_SET = re.compile(r"\b(?P<name>(?:NCCL|UCX)_[A-Z0-9_]+) set (?:by environment )?to (?P<value>\S+?)\.?$")


def settings(rack: RackView) -> dict[str, dict[str, tuple[str, str]]]:
    """Node → variable → (value, line), as NCCL said that it read them."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for message in messages(rack):
        match = _SET.search(message.text)
        if match:
            found.setdefault(message.node, {})[match["name"]] = (match["value"], message.line)
    return found
