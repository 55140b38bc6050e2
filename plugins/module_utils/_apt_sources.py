# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""apt's configuration files as text: sources, preferences, what unattended-upgrades leaves alone. Pure."""

from __future__ import annotations

import re
import typing as t

HEADER = "# Managed by railyard.gpu_fabric: changes made here are overwritten.\n"

# type, options in brackets, URI, suite, components
_ONE_LINE = re.compile(r"^\s*(deb|deb-src)\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)")


def same_repository(uri: str, suite: str) -> tuple[str, str]:
    """What makes two entries one repository to apt: the scheme and a last slash do not."""
    rest = uri.strip().partition("://")[2] or uri.strip()
    host, slash, path = rest.partition("/")
    return (host.lower() + slash + path).rstrip("/"), suite.strip().rstrip("/")


def render_source(
    uri: str, suite: str, components: t.Sequence[str], architectures: t.Sequence[str], keyring: str
) -> str:
    """A deb822 source. A flat repository's suite ends in a slash, and it has no components."""
    lines = [HEADER, "Types: deb\n", f"URIs: {uri}\n", f"Suites: {suite}\n"]
    if components and not suite.endswith("/"):
        lines.append(f"Components: {' '.join(components)}\n")
    if architectures:
        lines.append(f"Architectures: {' '.join(architectures)}\n")
    lines.append(f"Signed-By: {keyring}\n")
    return "".join(lines)


def without_repository(name: str, text: str, uri: str, suite: str) -> str | None:
    """A source file without its entries of one repository; ``None`` where nothing but comments would be left.

    A file that has no such entry comes back as it was.
    """
    strip = _without_stanzas if name.endswith(".sources") else _without_lines
    kept, found = strip(text, same_repository(uri, suite))
    if not found:
        return text
    return kept if any(line.strip() and not line.lstrip().startswith("#") for line in kept.splitlines()) else None


def _without_lines(text: str, repository: tuple[str, str]) -> tuple[str, bool]:
    kept = []
    for line in text.splitlines(keepends=True):
        match = _ONE_LINE.match(line)
        if match is None or same_repository(match.group(2), match.group(3)) != repository:
            kept.append(line)
    result = "".join(kept)
    return result, result != text


def _without_stanzas(text: str, repository: tuple[str, str]) -> tuple[str, bool]:
    stanzas = re.split(r"(\n[ \t]*\n)", text)
    kept = [stanza for stanza in stanzas if not _stanza_names(stanza, repository)]
    return "".join(kept).lstrip("\n"), len(kept) != len(stanzas)


def _stanza_names(stanza: str, repository: tuple[str, str]) -> bool:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t") and name:
            fields[name] += " " + line.strip()
        elif ":" in line:
            name, value = line.split(":", 1)
            name = name.strip().lower()
            fields[name] = value.strip()
    return any(
        same_repository(uri, suite) == repository
        for uri in fields.get("uris", "").split()
        for suite in fields.get("suites", "").split()
    )


def render_preferences(pins: t.Sequence[t.Mapping[str, t.Any]]) -> str | None:
    """A preferences file, ``None`` for no pins."""
    if not pins:
        return None
    stanzas = [
        f"Package: {' '.join(pin['packages'])}\nPin: version {pin['version']}\nPin-Priority: {pin['priority']}\n"
        for pin in pins
    ]
    return HEADER + "\n" + "\n".join(stanzas)


def render_unattended(patterns: t.Sequence[str]) -> str | None:
    """What unattended-upgrades may not touch, as it wants it: anchored regular expressions, appended to its list."""
    if not patterns:
        return None
    lines = [f'Unattended-Upgrade::Package-Blacklist:: "^{_regex(pattern)}$";\n' for pattern in patterns]
    return "// " + HEADER[2:] + "".join(lines)


def _regex(glob: str) -> str:
    # In apt.conf a backslash is an ordinary character; a package's name needs escapes for "." and "+" only.
    return glob.replace(".", "[.]").replace("+", "[+]").replace("*", ".*").replace("?", ".")


__all__ = (
    "HEADER",
    "render_preferences",
    "render_source",
    "render_unattended",
    "same_repository",
    "without_repository",
)
