# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/etc/nccl.conf as NCCL itself reads it, and device lists in NCCL's own syntax.

NCCL's reader (src/misc/param.cc): one variable per line, key and value verbatim around the first ``=``; no quotes, no
``export``, no blanks trimmed, no comment after a value; the first definition wins; a value is cut at 1023 bytes.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

_NAME = re.compile(r"^[A-Z][A-Z0-9_]*$")
LINE_BYTES, VALUE_BYTES = 4095, 1023
MAX_DEVICES = 32
HEADER = "# Written by railyard.gpu_fabric from the host's facts; overwritten by the next run.\n"


class ConfError(ValueError):
    """A variable that NCCL would read as something else than was meant."""


def render(env: t.Mapping[str, t.Any], header: str = HEADER) -> str:
    """The file's text; NCCL reads back exactly *env*. ConfError names what it could not read back."""
    lines = []
    for name, value in env.items():
        value = "" if value is None else str(value)
        if not isinstance(name, str) or not _NAME.match(name):
            raise ConfError(f"{name!r} is not a variable's name")
        reason = unreadable(value)
        if reason:
            raise ConfError(f"{name}: {value!r} {reason}")
        line = f"{name}={value}"
        if len(line.encode()) > LINE_BYTES:
            raise ConfError(f"{name}: the line is longer than {LINE_BYTES} bytes")
        lines.append(line)
    text = header + "".join(line + "\n" for line in lines)
    if parse(text) != {name: str(value) for name, value in env.items()}:
        raise ConfError("NCCL would not read back what was written")
    return text


def unreadable(value: str) -> str:
    """Why NCCL would take *value* for something else; empty when it would not."""
    if not value:
        return "is empty"
    if value != value.strip():
        return "has blanks at its ends, which become part of the value"
    if any(c in value for c in "\"'"):
        return "has quotes, which become part of the value (a quoted number counts as 0)"
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        return "has control characters"
    if " #" in value or "\t#" in value:
        return "has a comment after the value, which becomes part of it"
    if len(value.encode()) > VALUE_BYTES:
        return f"is longer than {VALUE_BYTES} bytes, where NCCL cuts it"
    return ""


def parse(text: str) -> dict[str, str]:
    """What NCCL (2.26 and newer) makes of the file."""
    env: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.rstrip("\r").partition("=")
        if line.startswith("#") or not equals:
            continue
        env.setdefault(name, value.encode()[:VALUE_BYTES].decode(errors="ignore"))
    return env


@dataclass(frozen=True)
class Selector:
    """A value of NCCL_IB_HCA or NCCL_SOCKET_IFNAME."""

    exclude: bool
    exact: bool
    items: tuple[tuple[str, int | None], ...]
    problems: tuple[str, ...] = field(default=())

    def matches(self, name: str, port: int | None = None) -> bool:
        hit = any(self._hit(item, name, port) for item in self.items)
        return not hit if self.exclude else hit

    def _hit(self, item: tuple[str, int | None], name: str, port: int | None) -> bool:
        wanted, wanted_port = item
        if wanted_port is not None and port is not None and wanted_port != port:
            return False
        return name == wanted if self.exact else name.startswith(wanted)


def selector(value: str, ports: bool = True) -> Selector:
    """Read ``[^][=]name[:port],…``; modifiers count only at the start of the whole value."""
    problems, rest = [], value
    exclude = rest.startswith("^")
    rest = rest[1:] if exclude else rest
    exact = rest.startswith("=")
    rest = rest[1:] if exact else rest
    items: list[tuple[str, int | None]] = []
    for part in rest.split(","):
        name, colon, port = part.partition(":") if ports else (part, "", "")
        if part[:1] in ("^", "="):
            problems.append(
                f"{part!r}: ^ and = count only at the start of the whole value; here they are part of the name"
            )
        if not name:
            problems.append(f"{value!r} has an empty item")
            continue
        if any(c.isspace() or c in "\"'" for c in part):
            problems.append(f"{part!r} has blanks or quotes, which are part of the name")
        number = port.split(":")[0]
        if colon and not number.isdigit():
            problems.append(f"{part!r}: the port is not a number")
        items.append((name, int(number) if number.isdigit() else None))
    if len(items) > MAX_DEVICES:
        problems.append(f"{len(items)} items; NCCL takes {MAX_DEVICES}")
    return Selector(exclude, exact, tuple(items), tuple(problems))


def exact_list(items: t.Iterable[str]) -> str:
    """``=a,b``: the exact-match form of a list."""
    return "=" + ",".join(items)
