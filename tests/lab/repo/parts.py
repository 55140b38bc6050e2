# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintainer scripts and files that many packages share."""

from __future__ import annotations

LAB = "/usr/local/sbin/gpu-fabric-lab"  # apt gives maintainer scripts a PATH without /usr/local


def on(word: str, *commands: str) -> str:
    """Shell text of a maintainer script: run `commands` when called for `word`."""
    body = "".join(f"  {command}\n" for command in commands)
    return f'case "$1" in {word})\n{body};; esac\n'


def unit_scripts(
    unit: str, *, enable: bool, configure: tuple[str, ...] = (), remove: tuple[str, ...] = ()
) -> dict[str, str]:
    """What a package with a service does at installation and removal."""
    start = (f"systemctl enable {unit} >/dev/null 2>&1 || true",) if enable else ()
    return {
        "postinst": on(
            "configure", *configure, "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi", *start
        ),
        "prerm": on(
            "remove",
            f"if [ -d /run/systemd/system ]; then systemctl disable --now {unit} >/dev/null 2>&1 || true; fi",
            *remove,
        ),
        "postrm": "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n",
    }


def shared_object(label: str) -> bytes:
    """An ELF header and a text: enough for ldconfig, nothing to run."""
    header = bytes.fromhex("7f454c4602010100000000000000000003003e0001000000")
    return (
        header + bytes(28) + (64).to_bytes(2, "little") + (56).to_bytes(2, "little") + bytes(8) + label.encode() + b"\0"
    )


def library(stem: str, soname: str, version: str) -> dict[str, str | bytes]:
    directory = "/usr/lib/x86_64-linux-gnu"
    return {
        f"{directory}/{stem}.{version}": shared_object(f"{stem} {version}"),
        f"{directory}/{soname}": f"->{stem}.{version}",
    }
