# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Debian package in a few words, and how it becomes a file. Same words, same bytes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

EPOCH = 1735689600  # 2025-01-01: packages do not depend on when they are built


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    summary: str
    section: str = "contrib/libs"
    architecture: str = "amd64"
    source: str = ""
    # Depends, Conflicts, Provides, …: control field → text
    relations: Mapping[str, str] = field(default_factory=dict)
    # absolute path → text or bytes; "->target" makes a link; a path under bin/ or sbin/ is executable
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    # postinst, prerm, …: what it does for which word, as shell text
    scripts: Mapping[str, str] = field(default_factory=dict)
    conffiles: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"

    def control(self) -> str:
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "Railyard lab <lab@example.invalid>",
            "Section": self.section,
            "Priority": "optional",
            **({"Source": self.source} if self.source else {}),
            **self.relations,
            "Description": f"{self.summary}\n Stand-in of the lab's repository: the real package's name, version\n"
            " and relations, none of its contents.",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items())


def _executable(path: str) -> bool:
    return Path(path).parent.name in ("bin", "sbin") or path.startswith("/etc/init.d/")


def write_tree(package: Package, tree: Path) -> None:
    """Lay the package out as dpkg-deb wants it."""
    control = tree / "DEBIAN"
    control.mkdir(parents=True)
    (control / "control").write_text(package.control())
    for name, body in package.scripts.items():
        script = control / name
        script.write_text(f"#!/bin/sh\nset -e\n{body.strip()}\nexit 0\n")
        script.chmod(0o755)
    if package.conffiles:
        (control / "conffiles").write_text("".join(f"{path}\n" for path in package.conffiles))
    for path, content in package.files.items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str) and content.startswith("->"):
            target.symlink_to(content[2:])
            continue
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(0o755 if _executable(path) else 0o644)
    for path in tree.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


def build(package: Package, directory: Path, scratch: Path) -> Path:
    tree = scratch / f"{package.name}_{package.version}"
    write_tree(package, tree)
    target = directory / package.filename
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(target)],
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)},
    )
    return target
