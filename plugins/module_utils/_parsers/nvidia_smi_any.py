# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs out of whichever form of nvidia-smi a text is: ``-q -x``, ``-q``, ``--query-gpu``, ``-L`` or the plain table.

Value: that of the form's own parser, with all of these members::

    {"form": "xml"|"query"|"csv"|"list"|"table"|"none", "gpus": [...], "processes": [...], "mig_devices": [...],
     "failures": [...], "warnings": [...]}

``processes`` and ``mig_devices`` name their GPU by ``gpu`` (index) or ``pci`` where the form puts them below it.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers import (
    nvidia_smi,
    nvidia_smi_csv,
    nvidia_smi_list,
    nvidia_smi_q,
    nvidia_smi_xml,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, clean
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import decoded

# What only this form has, most telling first.  A shell prompt or a host's name may stand in front of a line.
_FORMS = (
    ("xml", re.compile(r"<nvidia_smi_log|nvsmi_device_v\d+\.dtd"), nvidia_smi_xml.parse),
    ("table", re.compile(r"\| NVIDIA-SMI \d"), nvidia_smi.parse),
    (
        "query",
        re.compile(
            r"=NVSMI LOG=|^(?:\S+: )?GPU [0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d\s*$|^ {4,}\S[^|]* : ", re.MULTILINE
        ),
        nvidia_smi_q.parse,
    ),
    ("list", re.compile(r"^(?:\S+: )?\s*GPU \d+: .*\(UUID: ", re.MULTILINE), nvidia_smi_list.parse),
    (
        "csv",
        re.compile(
            r"^(?:\S+: )?[a-z_]+(?:\.[A-Za-z_]+)*(?: \[[A-Za-z%]+\])?(?:, |\s*$)|, GPU-[0-9a-f]{8}-|,"
            r" [0-9A-F]{8}:[0-9A-F]{2}:",
            re.MULTILINE,
        ),
        nvidia_smi_csv.parse,
    ),
)


def form_of(text: Any) -> str:
    """The form of nvidia-smi's answer that a text is; ``none`` for a text that is only an error message."""
    plain = clean(decoded(text))
    return next((name for name, pattern, _parse in _FORMS if pattern.search(plain)), "none")


def parse(text: Any) -> Parsed:
    """Read an answer of nvidia-smi in any form."""
    form = form_of(text)
    reader = next((parser for name, _pattern, parser in _FORMS if name == form), nvidia_smi.parse)
    parsed = reader(text)
    value: dict[str, Any] = {**parsed.value, "form": form}
    for member in ("processes", "mig_devices"):
        found = list(value.get(member, []))
        for index, gpu in enumerate(value["gpus"]):
            owner = {"pci": gpu["pci"]} if "pci" in gpu else {"gpu": gpu.get("index", index)}
            found.extend({**owner, **item} for item in gpu.get(member, []))
        value[member] = found
    value["gpus"] = [
        {key: item for key, item in gpu.items() if key not in ("processes", "mig_devices")} for gpu in value["gpus"]
    ]
    return Parsed(value, parsed.problems)
