# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``dpkg -l``, and ``dpkg-query -W`` with the package, version and status in tab-separated columns.

Value::

    {"packages": {name: {"version", "architecture", "status": "installed"|"config-files"|..., "held": bool,
                         "wanted": "install"|"hold"|"deinstall"|"purge"|"unknown", "broken": true}}}

A package that is installed for a foreign architecture as well keeps its own under ``name`` and the other under
``name:arch``.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    Line,
    Parsed,
    Problems,
    first_output,
)
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_WANTED = {"u": "unknown", "i": "install", "h": "hold", "r": "deinstall", "p": "purge"}
_STATUS = {
    "n": "not-installed",
    "c": "config-files",
    "H": "half-installed",
    "U": "unpacked",
    "F": "half-configured",
    "W": "triggers-awaited",
    "t": "triggers-pending",
    "i": "installed",
}
_ARCHITECTURES = frozenset(
    {"all", "amd64", "arm64", "i386", "armhf", "armel", "ppc64el", "s390x", "riscv64", "mips64el", "any", "none"}
)
_ONCE = re.compile(r"^(Desired=)")
_NAME = r"[a-z0-9][a-z0-9+.-]*"
_ROW = re.compile(
    rf"^([uihrp])([ncHUFWti])([ R])?\s+({_NAME})(?::([a-z0-9-]+))?\s+(\S+)(?:\s+([a-z0-9-]+))?(?:\s+(\S.*))?\s*$"
)
_QUERY = re.compile(rf"^({_NAME})(?::([a-z0-9-]+))?\t([^\t\s]*)(?:\t(.*?))?\s*$")
_LONG = re.compile(r"^(install|hold|deinstall|purge|unknown) (ok|reinstreq) ([a-z-]+)$")


def parse(text: str) -> Parsed:
    """Read the output of ``dpkg -l`` or ``dpkg-query -W``."""
    problems = Problems()
    packages: dict[str, dict[str, Any]] = {}
    lines = read_lines(text, problems)
    for line in first_output(lines, _ONCE, problems):
        if line.blank or line.text.startswith(("Desired=", "| Status=", "|/ Err", "||/", "+++-")):
            continue
        row = _ROW.match(line.text)
        query = None if row else _QUERY.match(line.text)
        if row:
            _row(row, line, packages, problems)
        elif query and line.terminated:
            _query(query, line, packages, problems)
        elif not line.terminated:
            problems.cut(line)
        elif re.match(r"^[uihrp][ncHUFWti][ R]?\s", line.text):
            problems.add("This line of dpkg -l is not readable.", line)
    if not packages and any(not line.blank for line in lines):
        problems.add("There is no list of packages of dpkg in this text.", text=lines[0].text)
    return problems.result({"packages": packages})


def _keep(packages: dict[str, dict[str, Any]], name: str, architecture: str | None, package: dict[str, Any]) -> None:
    if name in packages and architecture:
        packages[f"{name}:{architecture}"] = package
    else:
        packages[name] = package


def _goes_on(architecture: str) -> bool:
    """Whether a longer architecture begins with this one ("arm" of a cut "arm64")."""
    return any(other != architecture and other.startswith(architecture) for other in _ARCHITECTURES)


def _row(row: re.Match[str], line: Line, packages: dict[str, dict[str, Any]], problems: Problems) -> None:
    wanted, status, error, name, qualifier, version, architecture, _description = row.groups()
    package: dict[str, Any] = {
        "version": version,
        "status": _STATUS[status],
        "wanted": _WANTED[wanted],
        "held": wanted == "h",
    }
    if architecture in _ARCHITECTURES:
        package["architecture"] = architecture
    if error == "R":
        package["broken"] = True
    if version == "<none>":
        del package["version"]
    if not line.terminated and architecture not in _ARCHITECTURES:
        # Without the next column behind it, the version may be cut.
        problems.cut(line)
        package.pop("version", None)
    elif not line.terminated and row.end() == row.end(7) and _goes_on(str(architecture)):
        package.pop("architecture")
    _keep(packages, name, qualifier or architecture, package)


def _query(query: re.Match[str], line: Line, packages: dict[str, dict[str, Any]], problems: Problems) -> None:
    name, architecture, version, status = query.groups()
    package: dict[str, Any] = {}
    if version:
        package["version"] = version
    long = _LONG.match(status or "")
    if long:
        package["status"], package["wanted"] = long.group(3), long.group(1)
        package["held"] = long.group(1) == "hold"
        if long.group(2) == "reinstreq":
            package["broken"] = True
    elif status and re.match(r"^[uihrp][ncHUFWti]", status):
        package["status"], package["wanted"] = _STATUS[status[1]], _WANTED[status[0]]
        package["held"] = status[0] == "h"
    elif status:
        problems.add("The status column of this package is none that dpkg knows.", line)
    elif not version:
        package["status"] = "not-installed"
    _keep(packages, name, architecture, package)
