# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``rpm -qa``: one ``name-[epoch:]version-release.arch`` a line.

Value::

    {"packages": {name: {"version": "550.144.03-1.el9", "epoch", "architecture", "status": "installed",
                         "versions": ["5.14.0-1.el9", ...]}}}

``versions`` is there where several are installed at once (kernels); ``version`` is then the first of the list.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import Parsed, Problems
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._recorded import read_lines

_ARCHITECTURES = "noarch|x86_64|aarch64|i[3-6]86|ppc64le|s390x|src|\\(none\\)"
_PACKAGE = re.compile(rf"^([A-Za-z0-9][A-Za-z0-9+._~^-]*)-(?:(\d+):)?([^-\s:]+)-([^-\s]+)\.({_ARCHITECTURES})\s*$")
_NO_ARCHITECTURE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9+._~^-]*)-(?:(\d+):)?([0-9][^-\s:]*)-([^-\s]+)\s*$")


def parse(text: str) -> Parsed:
    """Read the output of ``rpm -qa``."""
    problems = Problems()
    packages: dict[str, dict[str, Any]] = {}
    lines = read_lines(text, problems)
    for line in lines:
        if line.blank:
            continue
        match = _PACKAGE.match(line.text)
        short = None if match else _NO_ARCHITECTURE.match(line.text)
        if match:
            # Every architecture of the list is a whole word, so the line needs no newline.
            name, epoch, version, release, architecture = match.groups()
            _keep(packages, name, {"version": f"{version}-{release}", "architecture": architecture}, epoch)
        elif not line.terminated:
            problems.cut(line)
        elif short:
            name, epoch, version, release = short.groups()
            _keep(packages, name, {"version": f"{version}-{release}"}, epoch)
        elif line.text.startswith(("package ", "error:", "warning:")):
            problems.add("rpm could not answer.", line)
    if not packages and any(not line.blank for line in lines):
        problems.add("There is no list of packages of rpm in this text.", text=lines[0].text)
    return problems.result({"packages": packages})


def _keep(packages: dict[str, dict[str, Any]], name: str, package: dict[str, Any], epoch: str | None) -> None:
    if epoch:
        package["epoch"] = int(epoch)
    package["status"] = "installed"
    present = packages.get(name)
    if present is None:
        packages[name] = package
        return
    versions = present.setdefault("versions", [present["version"]])
    if package["version"] not in versions:
        versions.append(package["version"])
    if len(versions) == 1:
        del present["versions"]
