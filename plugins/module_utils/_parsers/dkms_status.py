# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``dkms status``: ``module/version, kernel, arch: status`` of DKMS 3 and ``module, version, kernel, arch: status``
before.

Value::

    {"modules": [{"module", "version", "kernel", "architecture", "status": "added"|"built"|"installed"|"broken"|
                  "installed-weak", "original_module": true, "warning": text, "remark": text}],
     "errors": [text]}

``kernel`` and ``architecture`` are absent for a module that was only added.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_STATUS = "added|built|installed-weak|installed|broken"
_ENTRY = re.compile(
    rf"^\s*([A-Za-z0-9_.+-]+)(?:/|, )([^,:/\s]+)(?:, ([^,:\s]+), ([^,:\s]+))?: ({_STATUS})"
    r"( from \S+)?((?: \([^()]*\))*)( \(?WARNING!.*)?\s*$"
)
_REMARK = re.compile(r"\(([^()]*)\)")
# "original_module exists" and, since DKMS 3, "Original modules exist": one of the kernel's is kept aside.
_ORIGINAL = re.compile(r"original.modules? exists?", re.IGNORECASE)
# What is in the kernel's directory is not what DKMS built.
_WARNING = re.compile(r"^WARNING!|^Differences between built and installed|^Built modules? (?:is|are) missing")
_ERROR = re.compile(r"^\s*(Error!.*|dkms: .*not found.*|.*dkms: command not found.*|ERROR.*)$")


def parse(text: str) -> Parsed:
    """Read the output of ``dkms status``."""
    problems = Problems()
    modules: list[dict[str, Any]] = []
    errors: list[str] = []
    lines = read_lines(text, problems, own=_ENTRY)
    for line in lines:
        if line.blank:
            continue
        error = _ERROR.match(line.text)
        match = _ENTRY.match(line.text)
        if error and line.terminated:
            errors.append(error.group(1).strip())
        elif match and (line.terminated or match.group(5) in ("added", "built", "installed", "broken")):
            if not line.terminated and (match.group(5) in ("installed", "built") or match.group(8)):
                # "installed" may go on as "installed-weak" or with a warning.
                problems.cut(line)
                continue
            modules.append(_module(match))
        elif not line.terminated:
            problems.cut(line)
        elif ":" in line.text and re.search(rf": (?:{_STATUS})\b", line.text):
            problems.add("This line of dkms status is not readable.", line)
    if not modules and not errors and any(not line.blank for line in lines):
        problems.add("There is no output of dkms status in this text.", text=lines[0].text)
    return problems.result({"modules": modules, "errors": errors})


def _module(match: re.Match[str]) -> dict[str, Any]:
    name, version, kernel, architecture, status, _source, remarks, warning = match.groups()
    module: dict[str, Any] = {"module": name, "version": version}
    if kernel:
        module["kernel"], module["architecture"] = kernel, architecture
    module["status"] = status
    for remark in _REMARK.findall(remarks):
        if _ORIGINAL.search(remark):
            module["original_module"] = True
        else:
            module["warning" if _WARNING.match(remark) else "remark"] = remark
    if warning:
        module["warning"] = warning.strip().strip("()")
    return module
