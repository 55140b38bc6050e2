# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``/etc/nccl.conf`` as NCCL reads it (setEnvFile in its src/misc/param.cc), and a writer that it reads back. Pure.

NCCL takes key and value verbatim: no quotes, no blanks around ``=``, no comment after a value, and the first definition
of a name wins.
"""

from __future__ import annotations

import re
import typing as t

# Before 2.26.2, a comment with a "=" in it set a variable: this header has none.
HEADER = "# Managed by railyard.gpu_fabric: changes made here are overwritten.\n"
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_LINE_LIMIT = 4095
_VALUE_LIMIT = 1023


def parse(text: str) -> dict[str, str]:
    """The variables that NCCL would set from this text."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        line = line[:_LINE_LIMIT]
        if line.startswith("#") or "=" not in line:
            continue
        name, value = line.split("=", 1)
        found.setdefault(name, value[:_VALUE_LIMIT])
    return found


def render(env: t.Mapping[str, t.Any]) -> str:
    """The file. Raises ``ValueError`` where NCCL would not read back what is meant."""
    wanted = {name: str(value) for name, value in env.items()}
    for name, value in wanted.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no variable's name for nccl.conf")
        if not value or value != value.strip() or re.search(r"[\"'\r\n]|\s#", value):
            raise ValueError(
                f"{name}: {value!r} would reach NCCL as it stands. It may not be empty, nor have quotes, line breaks, "
                "a comment or blanks around it"
            )
    text = HEADER + "".join(f"{name}={value}\n" for name, value in wanted.items())
    read = parse(text)
    lost = sorted(name for name in wanted if read.get(name) != wanted[name])
    if lost:
        raise ValueError(f"{', '.join(lost)}: longer than the {_VALUE_LIMIT} characters that NCCL keeps of a value")
    return text


__all__ = ("HEADER", "parse", "render")
