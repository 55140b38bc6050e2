# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of one host's recorded output, as every line-based parser wants them.

On top of ``_common.split_lines``: bytes that were no text make their line unbelievable, typed commands at shell prompts
are not output, and the ``host: `` prefix of a parallel shell is taken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers._common import (
    REPLACEMENT,
    Line,
    Problems,
    prompt_command,
    split_hosts,
    split_lines,
)

# What `errors="surrogateescape"` leaves for a byte that was no UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")


def decoded(text: Any) -> Any:
    """The text with every trace of an undecodable byte as U+FFFD."""
    return _SURROGATES.sub(REPLACEMENT, text) if isinstance(text, str) else text


def read_lines(
    text: Any,
    problems: Problems,
    labels: Iterable[str] = (),
    prompts: bool = True,
    barriers: bool = False,
    own: re.Pattern[str] | None = None,
) -> list[Line]:
    """The believable lines of a text that one host printed.

    ``labels``: the tool's own first words that look like a ``host: `` prefix.  ``prompts=False`` for tools whose own
    lines look like a prompt (``# …``).  ``barriers=True`` keeps damaged lines (``line.damaged``), for formats in which
    a line says to what the next ones belong.  ``own``: what only lines of the tool begin with; a prefix is one
    when such a line stands behind it.
    Lines of several hosts are not mixed: only the first host's are returned.
    """
    lines = []
    for line in split_lines(decoded(text)):
        if line.damaged:
            problems.damaged(line)
            if barriers:
                lines.append(line)
        elif not (prompts and prompt_command(line.text) is not None):
            lines.append(line)
    native = None if own is None else (lambda text: own.search(text) is not None)
    groups = split_hosts(lines, labels, native)
    if len(groups) > 1:
        hosts = ", ".join(str(host) for host, _lines in groups)
        problems.add(f"The text holds the output of several hosts ({hosts}); only the first one's was read.")
    return groups[0][1]


def last_word_cut(line: Line) -> tuple[str, bool]:
    """The part of a line that is whole, and whether something was cut off.

    A line without its newline may end inside its last word; what stands before that word is whole.
    """
    if line.terminated:
        return line.text, False
    text = line.text
    return text[: max(text.rfind(" "), text.rfind("\t")) + 1], True
